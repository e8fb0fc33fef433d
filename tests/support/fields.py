"""Protobuf written by hand, to hold what the library writes against."""

from __future__ import annotations

from pywaku.wire import varint


def field(number: int, value: bytes | int) -> bytes:
    """One field: a varint, or bytes with their length."""
    if isinstance(value, int):
        return varint.encode(number << 3) + varint.encode(value)
    return varint.encode(number << 3 | 2) + varint.encode(len(value)) + value
