"""Recoverable signatures, and the arithmetic that they take."""

from __future__ import annotations

import contextlib

import pytest
from Crypto.Hash import keccak
from hypothesis import example, given
from hypothesis import strategies as st

from pywaku.encryption.curve import FIELD, GENERATOR, Point, combine, point_of
from pywaku.encryption.signatures import recover, sign
from pywaku.errors import DecryptionFailed
from pywaku.keys import SECP256K1_ORDER, PrivateKey
from tests.support.payload_v1 import SIGNER

SCALARS = st.integers(0, SECP256K1_ORDER - 1)
NONZERO = st.integers(1, SECP256K1_ORDER - 1)


def times_generator(scalar: int) -> Point | None:
    """scalar·G, by the library."""
    scalar %= SECP256K1_ORDER
    if scalar == 0:
        return None
    point = PrivateKey("secp256k1", scalar.to_bytes(32)).public.uncompressed
    return int.from_bytes(point[:32]), int.from_bytes(point[32:])


@given(a=SCALARS, b=SCALARS, secret=NONZERO)
@example(a=0, b=0, secret=5)
@example(a=0, b=1, secret=5)
@example(a=1, b=0, secret=5)
@example(a=1, b=1, secret=1)
@example(a=1, b=1, secret=SECP256K1_ORDER - 1)
@example(a=3, b=3, secret=SECP256K1_ORDER - 1)
@example(a=SECP256K1_ORDER - 10, b=2, secret=5)
@example(a=5, b=SECP256K1_ORDER - 1, secret=5)
@example(a=2, b=1, secret=2)
def test_sums_of_points_are_those_of_the_library(a: int, b: int, secret: int) -> None:
    point = times_generator(secret)
    assert point is not None
    assert combine(a, b, point) == times_generator(a + b * secret)
    assert combine(a - SECP256K1_ORDER, b + SECP256K1_ORDER, point) == times_generator(a + b * secret)


def test_points_by_their_x() -> None:
    x, y = GENERATOR
    assert point_of(x, odd=bool(y & 1)) == GENERATOR
    assert point_of(x, odd=not y & 1) == (x, FIELD - y)
    assert point_of(5, odd=False) is None  # 132 is no square
    assert point_of(FIELD + x, odd=False) is None
    assert point_of(-1, odd=False) is None


@given(data=st.binary(max_size=100), secret=NONZERO)
@example(data=b"", secret=1)
def test_a_signature_tells_who_signed(data: bytes, secret: int) -> None:
    key = PrivateKey("secp256k1", secret.to_bytes(32))
    signature = sign(data, key)
    assert len(signature) == 65
    assert recover(data, signature) == key.public
    assert signature == sign(data, key)
    assert recover(data, sign(data, key, 27)) == key.public


@given(at=st.integers(0, 64), bit=st.integers(0, 7))
def test_a_changed_signature_is_nobody_s_or_somebody_else_s(at: int, bit: int) -> None:
    signature = bytearray(sign(b"data", SIGNER))
    signature[at] ^= 1 << bit
    with contextlib.suppress(DecryptionFailed):
        assert recover(b"data", bytes(signature)) != SIGNER.public


@given(
    data=st.binary(max_size=40),
    signature=st.binary(min_size=64, max_size=64),
    v=st.sampled_from((0, 1, 27, 28)),
)
def test_no_bytes_make_recovery_raise_anything_else(data: bytes, signature: bytes, v: int) -> None:
    try:
        key = recover(data, signature + bytes([v]))
    except DecryptionFailed:
        return
    assert key.verify_digest(keccak.new(digest_bits=256, data=data).digest(), signature)


def number(value: int) -> bytes:
    """As it is in a signature."""
    return value.to_bytes(32)


R = sign(b"data", SIGNER)[:32]
S = sign(b"data", SIGNER)[32:64]
HASH = keccak.new(digest_bits=256, data=b"data").digest()


@pytest.mark.parametrize(
    "signature",
    [
        pytest.param(b"", id="empty"),
        pytest.param(R + S, id="short"),
        pytest.param(R + S + b"\0\0", id="long"),
        pytest.param(R + S + b"\2", id="v of 2"),
        pytest.param(R + S + b"\x1d", id="v of 29"),
        pytest.param(bytes(32) + S + b"\0", id="r of 0"),
        pytest.param(number(5) + S + b"\0", id="r of no point"),
        pytest.param(number(SECP256K1_ORDER) + S + b"\0", id="r of the order"),
        pytest.param(b"\xff" * 32 + S + b"\0", id="r beyond the field"),
        pytest.param(R + bytes(32) + b"\0", id="s of 0"),
        pytest.param(R + number(SECP256K1_ORDER) + b"\0", id="s of the order"),
        pytest.param(R + b"\xff" * 32 + b"\0", id="s beyond the order"),
        # r of the generator and s of the hash: what would be the key is the point at infinity.
        pytest.param(number(GENERATOR[0]) + HASH + bytes([GENERATOR[1] & 1]), id="no key"),
    ],
)
def test_what_is_no_signature(signature: bytes) -> None:
    with pytest.raises(DecryptionFailed) as failure:
        recover(b"data", signature)
    assert failure.value.reason == "signature"


def test_a_second_signature_made_of_the_first_is_refused() -> None:
    signature = sign(b"data", SIGNER)
    high = SECP256K1_ORDER - int.from_bytes(signature[32:64])
    with pytest.raises(DecryptionFailed, match="s is out of range"):
        recover(b"data", signature[:32] + number(high) + bytes([signature[64] ^ 1]))
