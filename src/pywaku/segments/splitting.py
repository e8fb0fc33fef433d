"""A payload as segments (MESSAGE-SEGMENTATION-AND-RECONSTRUCTION, Sending)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from Crypto.Hash import keccak

from pywaku.errors import InvalidInput
from pywaku.segments import leopard
from pywaku.wire.segments import MAX_TOTAL_SEGMENTS, Segment

_MOST_SEGMENTS: Final = MAX_TOTAL_SEGMENTS - 1
_SHARD_UNIT: Final = 64
"""Leopard takes shards whose length is a multiple of this."""


@dataclass(frozen=True, slots=True)
class SegmentationConfig:
    """How payloads are cut (RELIABLE-CHANNEL-API, SegmentationConfig; `parity_rate` is the LIP's parityRate).

    With the default size, a segment in SDS, encryption and a proof stays below the 150 KB that relay carries.
    """

    segment_size_bytes: int = 102_400
    enable_reed_solomon: bool = False
    parity_rate: float = 0.125

    def __post_init__(self) -> None:
        if self.segment_size_bytes < 1:
            raise InvalidInput(f"segments have at least one byte, not {self.segment_size_bytes}")
        if self.enable_reed_solomon and self.segment_size_bytes % _SHARD_UNIT:
            raise InvalidInput(
                f"with Reed-Solomon the segment size is a multiple of {_SHARD_UNIT}, "
                f"which {self.segment_size_bytes} is not"
            )
        if not 0 < self.parity_rate <= 1:
            raise InvalidInput(f"a parity rate is above 0 and at most 1, not {self.parity_rate}")

    @property
    def max_payload_bytes(self) -> int:
        """The largest payload that can be segmented."""
        return _MOST_SEGMENTS * self.segment_size_bytes

    def counts(self, payload_size: int) -> tuple[int, int]:
        """How many data and parity segments a payload of this size has; raises `InvalidInput` if too many.

        Parity segments are the rate times the data segments, rounded up, as far as all of them are fewer
        than `maxTotalSegments` and Leopard FF8 has points for them (below 225 data segments that is no limit
        to the default rate). A payload in one segment has none: they would be copies of it.
        """
        data = max(1, -(-payload_size // self.segment_size_bytes))
        if data > _MOST_SEGMENTS:
            raise InvalidInput(
                f"a payload of {payload_size} bytes has {data} segments of {self.segment_size_bytes} bytes; "
                f"at most {self.max_payload_bytes} bytes, in {_MOST_SEGMENTS} segments, are possible"
            )
        if not self.enable_reed_solomon or data == 1:
            return data, 0
        wanted = math.ceil(round(self.parity_rate * data, 9))  # 0.07 * 100 is a little more than 7
        points = leopard.POINTS - data
        return data, min(wanted, data, _MOST_SEGMENTS - data, 1 << points.bit_length() - 1)


def entire_message_hash(payload: bytes) -> bytes:
    """The hash that all segments of a payload carry: Keccak-256, 32 bytes."""
    return keccak.new(digest_bits=256, data=payload).digest()


class SegmentedPayload:
    """The segments of a payload in the order in which they are sent: data first, then parity.

    Data segments are cut when they are asked for, so that a large payload is not in memory twice.
    """

    __slots__ = ("_parity", "_payload", "_size", "data_segment_count", "entire_message_hash")

    def __init__(self, payload: bytes, config: SegmentationConfig) -> None:
        self.data_segment_count, parity_count = config.counts(len(payload))
        self.entire_message_hash = entire_message_hash(payload)
        self._payload = payload
        self._size = config.segment_size_bytes
        self._parity: list[bytes] = []
        if parity_count:
            last = (self.data_segment_count - 1) * self._size
            view = memoryview(payload)
            shards = [view[start : start + self._size] for start in range(0, last, self._size)]
            self._parity = leopard.encode([*shards, payload[last:].ljust(self._size, b"\0")], parity_count)

    @property
    def parity_segment_count(self) -> int:
        """How many of the segments are parity."""
        return len(self._parity)

    def __len__(self) -> int:
        return self.data_segment_count + len(self._parity)

    def __getitem__(self, position: int) -> Segment:
        if not 0 <= position < len(self):
            raise IndexError(f"there are {len(self)} segments, from 0; {position} is none of them")
        is_parity = position >= self.data_segment_count
        index = position - self.data_segment_count if is_parity else position
        return Segment(
            self.entire_message_hash,
            index,
            self.data_segment_count,
            self._parity[index] if is_parity else self._data(index),
            len(self._parity),
            is_parity,
        )

    def __iter__(self) -> Iterator[Segment]:
        return (self[position] for position in range(len(self)))

    def _data(self, index: int) -> bytes:
        return self._payload[index * self._size : (index + 1) * self._size]


def split(payload: bytes, config: SegmentationConfig | None = None) -> SegmentedPayload:
    """Cut a payload into segments; one that fits in a single segment is wrapped all the same."""
    return SegmentedPayload(payload, config or SegmentationConfig())
