"""The ids of our own messages, and of sync messages."""

from __future__ import annotations

import hashlib
import random
from typing import Final

from Crypto.Hash import keccak

_BASE36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_SYNC_BITS: Final = 52


def unique_id(sender_id: str, timestamp_ns: int, content: bytes) -> str:
    """keccak256 of the sender id, the nanoseconds in decimal and the content, in hex."""
    data = b"%b%d%b" % (sender_id.encode(), timestamp_ns, content)
    return keccak.new(digest_bits=256, data=data).hexdigest()


def content_id(content: bytes) -> str:
    """sha256 of the content, in hex: the ids of js-waku."""
    return hashlib.sha256(content).hexdigest()


def sync_id(rng: random.Random) -> str:
    """`sync-` and random characters (SDS, Periodic Sync Message: need not be unique)."""
    number = rng.getrandbits(_SYNC_BITS)
    digits: list[str] = []
    while number:
        number, digit = divmod(number, 36)
        digits.append(_BASE36[digit])
    return "sync-" + "".join(digits)
