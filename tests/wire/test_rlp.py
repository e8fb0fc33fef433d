"""RLP: the examples of Ethereum's documentation, round trips, and one encoding for each value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import DecodeError, InvalidInput
from pywaku.wire.rlp import MAX_DEPTH, Item, decode, decode_int, encode, encode_int

LOREM = b"Lorem ipsum dolor sit amet, consectetur adipisicing elit"


EXAMPLES: list[tuple[Item, str]] = [
    (b"dog", "83646f67"),
    ([b"cat", b"dog"], "c88363617483646f67"),
    (b"", "80"),
    ([], "c0"),
    (b"\x00", "00"),
    (b"\x0f", "0f"),
    (b"\x80", "8180"),
    (b"\x04\x00", "820400"),
    ([[], [[]], [[], [[]]]], "c7c0c1c0c3c0c1c0"),
    (LOREM, "b838" + LOREM.hex()),
    ([LOREM], "f83a" + "b838" + LOREM.hex()),
    (bytes(1024), "b90400" + "00" * 1024),
]


@pytest.mark.parametrize(("item", "encoded"), EXAMPLES)
def test_examples_of_the_documentation(item: Item, encoded: str) -> None:
    assert encode(item).hex() == encoded
    assert decode(bytes.fromhex(encoded)) == item


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "81",
        "8100",  # a byte that stands for itself
        "817f",
        "b800",  # a length that fits in the first byte
        "b837" + "00" * 55,
        "b90038" + "00" * 56,  # a length with a leading zero
        "b8",
        "b83800",
        "bfffffffffffffffff",
        "c1",
        "c181",
        "c2c1",
        "c183",  # an item that reaches out of its list
        "f800",
        "ff" * 9,
        "8080",
        "0000",
    ],
)
def test_what_is_not_canonical_does_not_decode(encoded: str) -> None:
    with pytest.raises(DecodeError):
        decode(bytes.fromhex(encoded))


def test_nesting_is_bounded() -> None:
    item: Item = []
    for _ in range(MAX_DEPTH - 1):
        item = [item]
    assert decode(encode(item)) == item
    with pytest.raises(DecodeError):
        decode(encode([item]))
    with pytest.raises(DecodeError):
        decode(b"\xc1" * 100_000)


def test_integers_have_no_leading_zeros() -> None:
    for value in (0, 1, 127, 128, 30303, 2**64 - 1):
        assert decode_int(decode(encode(encode_int(value)))) == value
    items: list[Item] = [b"\0", b"\0\1", bytes([1] * 9), []]
    for item in items:
        with pytest.raises(DecodeError):
            decode_int(item)
    with pytest.raises(InvalidInput):
        encode_int(-1)


items = st.recursive(st.binary(max_size=80), lambda inner: st.lists(inner, max_size=5), max_leaves=12)


@given(items)
def test_any_item_round_trips(item: Item) -> None:
    assert decode(encode(item)) == item


@given(st.binary(max_size=100))
def test_what_decodes_has_no_other_encoding(data: bytes) -> None:
    try:
        item = decode(data)
    except DecodeError:
        return
    assert encode(item) == data
