"""The little of protobuf that small messages need, without generated code: fields in, fields out.

For messages that are read once per connection and have a handful of fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pywaku.errors import DecodeError
from pywaku.wire import varint

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_FIXED32: Final = 5
_FIXED_SIZE: Final = {_FIXED64: 8, _FIXED32: 4}
_HIGHEST_FIELD: Final = (1 << 29) - 1


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in their order, as number and value; raises `DecodeError`.

    A varint field is an `int`, every other one `bytes`. A field whose type is not what was expected counts
    as unknown, as protobuf has it: the caller skips it.
    """
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if not 0 < number <= _HIGHEST_FIELD:
            raise DecodeError(f"{number} is not a field number")
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if kind == _LENGTH:
            size, position = _varint(data, position)
        else:
            fixed = _FIXED_SIZE.get(kind)
            if fixed is None:
                raise DecodeError(f"field {number} has the wire type {kind}")
            size = fixed
        if size > len(data) - position:
            raise DecodeError(f"field {number} is cut short")
        yield number, data[position : position + size]
        position += size


def bytes_field(number: int, value: bytes) -> bytes:
    """A field that holds bytes or a message."""
    return varint.encode(number << 3 | _LENGTH) + varint.encode(len(value)) + value


def text_field(number: int, value: str) -> bytes:
    """A field that holds text."""
    return bytes_field(number, value.encode())


def text_of(value: bytes) -> str:
    """The text that a field holds; raises `DecodeError` where it is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise DecodeError("a text field does not hold UTF-8") from None


def _varint(data: bytes, position: int) -> tuple[int, int]:
    found = varint.decode(data, position)
    if found is None:
        raise DecodeError("a message ends within a field")
    return found
