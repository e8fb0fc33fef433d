"""Unsigned varints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import DecodeError, InvalidInput
from pywaku.wire import varint
from tests.support import wire_values as values


@pytest.mark.parametrize(
    ("value", "encoding"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8001"),
        (255, "ff01"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (2**32 - 1, "ffffffff0f"),
        (2**63 - 1, "ffffffffffffffff7f"),
        (2**64 - 1, "ffffffffffffffffff01"),
    ],
)
def test_known_encodings(value: int, encoding: str) -> None:
    assert varint.encode(value).hex() == encoding
    assert varint.decode(bytes.fromhex(encoding)) == (value, len(encoding) // 2)


@given(values.UINT64, st.binary(max_size=5), st.binary(max_size=5))
def test_a_varint_is_found_where_it_stands(value: int, before: bytes, after: bytes) -> None:
    encoding = varint.encode(value)
    found = varint.decode(before + encoding + after, len(before))
    assert found == (value, len(before) + len(encoding))


@given(values.UINT64)
def test_an_incomplete_varint_is_no_error(value: int) -> None:
    encoding = varint.encode(value)
    for length in range(len(encoding)):
        assert varint.decode(encoding[:length]) is None


@pytest.mark.parametrize("data", ["8000", "808000", "ff00", "80808080808080808000"])
def test_a_varint_longer_than_needed_is_refused(data: str) -> None:
    with pytest.raises(DecodeError, match="longer than needed"):
        varint.decode(bytes.fromhex(data))


def test_a_varint_wider_than_64_bits_is_refused() -> None:
    with pytest.raises(DecodeError, match="wider than 64 bits"):
        varint.decode(b"\xff" * 9 + b"\x02")


def test_a_varint_without_end_is_refused_after_ten_bytes() -> None:
    assert varint.decode(b"\xff" * 9) is None
    with pytest.raises(DecodeError, match="longer than 10 bytes"):
        varint.decode(b"\xff" * 10)


@pytest.mark.parametrize("value", [-1, 2**64])
def test_what_64_bits_cannot_hold_is_not_encoded(value: int) -> None:
    with pytest.raises(InvalidInput):
        varint.encode(value)
