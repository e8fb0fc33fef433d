"""Unsigned varints: seven bits a byte, lowest first, the top bit saying that more follow.

A varint here is at most 64 bits wide and minimal: the multiformats specification demands the shortest form,
and nothing in libp2p writes another one. (Varints inside protocol buffers are the protobuf runtime's matter,
and may be longer than needed.)
"""

from __future__ import annotations

from typing import Final

from pywaku.errors import DecodeError, InvalidInput

MAX_LENGTH: Final = 10
"""Bytes that 64 bits take at most."""

_LARGEST: Final = (1 << 64) - 1
_SHORT: Final = tuple(bytes((value,)) for value in range(0x80))


def encode(value: int) -> bytes:
    """`value` (0 to 2⁶⁴ - 1) as a varint."""
    if 0 <= value < 0x80:
        return _SHORT[value]
    if 0x80 <= value < 0x4000:  # most lengths
        return bytes((value & 0x7F | 0x80, value >> 7))
    if not 0 <= value <= _LARGEST:
        raise InvalidInput(f"a varint holds 0 to 2^64 - 1, not {value}")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode(data: bytes, offset: int = 0) -> tuple[int, int] | None:
    """The varint at `offset` and the offset after it; None while it is incomplete.

    Raises `DecodeError` for a varint that is wider than 64 bits or longer than needed.
    """
    value = 0
    shift = 0
    for position in range(offset, min(len(data), offset + MAX_LENGTH)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _LARGEST:
                raise DecodeError("a varint is wider than 64 bits")
            if byte == 0 and shift:
                raise DecodeError("a varint is longer than needed")
            return value, position + 1
        shift += 7
    if shift == 7 * MAX_LENGTH:
        raise DecodeError(f"a varint is longer than {MAX_LENGTH} bytes")
    return None
