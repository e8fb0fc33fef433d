from hypothesis import given
from hypothesis import strategies as st

from pywaku.ids import base58_decode, base58_encode


@given(st.binary(max_size=64))
def test_base58_round_trip(data: bytes) -> None:
    assert base58_decode(base58_encode(data)) == data
