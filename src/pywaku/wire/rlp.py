"""RLP, the encoding of Ethereum: byte strings and lists of them (Ethereum yellow paper, appendix B).

Decoding is strict: every value has one encoding, and only that one is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from pywaku.errors import DecodeError, InvalidInput

Item: TypeAlias = "bytes | list[Item]"
Encodable: TypeAlias = "bytes | Sequence[Encodable]"

MAX_DEPTH: Final = 16
_STRING: Final = 0x80
_LIST: Final = 0xC0
_SHORT: Final = 55  # longest length that fits in the first byte


def encode(item: Encodable) -> bytes:
    """A byte string, or a list of such and of lists, as RLP."""
    if isinstance(item, bytes):
        if len(item) == 1 and item[0] < _STRING:
            return item
        return _prefix(_STRING, len(item)) + item
    body = b"".join(map(encode, item))
    return _prefix(_LIST, len(body)) + body


def encode_int(value: int) -> bytes:
    """An integer as the byte string that RLP takes for it: big-endian, no leading zeros, nothing for zero."""
    if value < 0:
        raise InvalidInput("RLP has no negative integers")
    return value.to_bytes((value.bit_length() + 7) // 8)


def decode(data: bytes) -> Item:
    """The one item that `data` is; raises `DecodeError`."""
    item, end = _item(data, 0, len(data), 0)
    if end != len(data):
        raise DecodeError("something follows the RLP item")
    return item


def decode_int(item: Item, *, size: int = 8) -> int:
    """An integer of up to `size` bytes; raises `DecodeError`."""
    if not isinstance(item, bytes) or len(item) > size or item[:1] == b"\0":
        raise DecodeError(f"not an RLP integer of up to {size} bytes")
    return int.from_bytes(item)


def _prefix(base: int, size: int) -> bytes:
    if size <= _SHORT:
        return bytes((base + size,))
    length = encode_int(size)
    return bytes((base + _SHORT + len(length),)) + length


def _item(data: bytes, position: int, end: int, depth: int) -> tuple[Item, int]:
    """The item at `position`, and where it ends; nothing at or beyond `end` is looked at."""
    if position >= end:
        raise DecodeError("an RLP item is missing")
    first = data[position]
    if first < _STRING:
        return data[position : position + 1], position + 1
    base = _STRING if first < _LIST else _LIST
    size = first - base
    position += 1
    if size > _SHORT:
        width = size - _SHORT
        length = data[position : min(position + width, end)]
        size = int.from_bytes(length)
        if len(length) != width or length[0] == 0 or size <= _SHORT:
            raise DecodeError("an RLP length is not in its shortest form")
        position += width
    stop = position + size
    if stop > end:
        raise DecodeError("an RLP item is cut short")
    if base == _STRING:
        body = data[position:stop]
        if size == 1 and body[0] < _STRING:
            raise DecodeError("an RLP byte is not in its shortest form")
        return body, stop
    if depth == MAX_DEPTH:
        raise DecodeError(f"RLP lists are nested deeper than {MAX_DEPTH}")
    items: list[Item] = []
    while position < stop:
        item, position = _item(data, position, stop, depth + 1)
        items.append(item)
    return items, stop
