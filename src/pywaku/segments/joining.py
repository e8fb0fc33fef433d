"""A payload out of enough of its segments (MESSAGE-SEGMENTATION-AND-RECONSTRUCTION, Receiving)."""

from __future__ import annotations

from enum import Enum
from io import BytesIO
from typing import Final, NamedTuple

from Crypto.Hash import keccak

from pywaku.segments import leopard


class Trouble(Enum):
    """Why enough segments make no payload."""

    HASH = "hash"
    """What came out is not the payload of the hash."""
    ENDING = "ending"
    """The last data segment was recovered, but where it ends was not found within the limit."""


class Joined(NamedTuple):
    """What came out: the payload, or why there is none."""

    payload: bytes | None
    trouble: Trouble | None
    recovered: int
    """How many data segments were recovered out of parity."""


_FAILED: Final = Joined(None, Trouble.HASH, 0)


def join(
    segments: dict[int, bytes],
    data_count: int,
    parity_count: int,
    expected_hash: bytes,
    *,
    max_trailing_zeros: int,
) -> Joined:
    """The payload out of the payloads of at least `data_count` segments, by their positions.

    Data segments come first in the positions, parity after them. A recovered last segment ends in the zeros
    that it was padded with, and no field tells how many of them are its own: each possible end is tried, from
    the last byte that is not zero on, up to `max_trailing_zeros` zeros of its own.

    With the payload the segments are let go (they are empty then), so that it is not in memory twice.
    """
    lost = [position for position in range(data_count) if position not in segments]
    recovered: dict[int, bytes] = {}
    if lost:
        parity = {
            position - data_count: part for position, part in segments.items() if position >= data_count
        }
        size = len(next(iter(parity.values())))
        shards = [
            segments[position].ljust(size, b"\0") if position in segments else None
            for position in range(data_count)
        ]
        recovered = leopard.recover(shards, parity, parity_count)
        del shards, parity
    hashed = keccak.new(digest_bits=256, update_after_digest=True)
    last = data_count - 1
    for position in range(last):
        hashed.update(recovered[position] if position in recovered else segments[position])
    if last not in lost:
        hashed.update(segments[last])
        if hashed.digest() != expected_hash:
            return _FAILED
    else:
        padded = recovered[last]
        shortest = len(padded.rstrip(b"\0"))
        hashed.update(padded[:shortest])
        for end in range(shortest, len(padded) + 1):
            if hashed.digest() == expected_hash:
                recovered[last] = padded[:end]
                break
            if end - shortest >= max_trailing_zeros:
                return Joined(None, Trouble.HASH if end == len(padded) else Trouble.ENDING, 0)
            hashed.update(b"\0")
        else:
            return _FAILED
    payload = BytesIO()
    for position in range(data_count):
        payload.write(recovered.pop(position) if position in recovered else segments[position])
        if position in segments:
            segments[position] = b""
    return Joined(payload.getvalue(), None, len(lost))
