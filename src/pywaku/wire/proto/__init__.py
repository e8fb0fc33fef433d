"""Protocol buffer definitions (`*.proto`) and the code generated from them (`make proto`)."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError as _ProtobufError
from google.protobuf.message import Message

from pywaku.errors import DecodeError

_Kind = TypeVar("_Kind", bound=Message)


def parse(kind: type[_Kind], data: bytes) -> _Kind:
    """`data` as a message of `kind`; raises `DecodeError` where it is none (proto3 strings are UTF-8)."""
    try:
        return kind.FromString(data)
    except (_ProtobufError, UnicodeDecodeError) as error:  # the second where protobuf runs in plain Python
        raise DecodeError(f"not a {kind.DESCRIPTOR.name}: {error}") from None
