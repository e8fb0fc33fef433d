"""The ids by which requests and their responses know each other."""

from __future__ import annotations

import random
from contextlib import suppress

from pywaku.errors import DecodeError
from pywaku.wire.protobuf_lite import read_fields, text_of

_FIELD = 1


def new_request_id(rng: random.Random) -> str:
    """A request id that nobody else makes."""
    return f"{rng.getrandbits(128):032x}"


def request_id_of(request: bytes) -> str | None:
    """The id of a request that is not decoded, be it broken or refused; None if it does not begin with one.

    All requests of Waku have it in their first field, and protobuf writes fields in ascending order.
    """
    with suppress(DecodeError, StopIteration):
        number, value = next(read_fields(request))
        if number == _FIELD and isinstance(value, bytes):
            return text_of(value)
    return None
