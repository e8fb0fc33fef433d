"""Damage to bytes: what a hostile peer, or a broken one, makes of a valid encoding."""

from __future__ import annotations

import random
from typing import Final

_HOSTILE: Final = (
    b"\xff" * 9 + b"\x01",  # the largest varint
    b"\xff" * 10,  # one without end
    b"\x80\x80\x00",  # one longer than needed
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\x00",
    b"\x0b" * 150,  # groups within groups
    b"\x1a\x7f" * 80,
    b"\xff\xfe\xed\xa0\x80",  # not UTF-8
)


def damaged(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """`data` with one to three things done to it; `other` lends what is put in."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(out))
        to = min(len(out), at + rng.randint(1, 8))
        match rng.randrange(9):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(out):
                out[at] = rng.randrange(256)
            case 2:
                out[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3:
                del out[at:to]
            case 4:
                del out[at:]
            case 5:
                out[at:at] = out[at:to] * rng.randint(1, 20)
            case 6:
                out[at:] = other[rng.randint(0, len(other)) :]
            case 7:
                out[at:at] = other
            case _:
                out[at : to if rng.random() < 0.5 else at] = rng.choice(_HOSTILE)
    return bytes(out)
