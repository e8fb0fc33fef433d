"""What a reassembler holds: a sending of a payload, and all sendings of the same payload by one sender."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from pywaku.segments.types import SEGMENT_OVERHEAD_BYTES

_LATE_PLACES: Final = 8
"""So many sendings of a payload that are over still take late segments; the newest do."""


class PayloadKey(NamedTuple):
    """What tells payloads apart. Other counts for the same hash are another payload, and harm nobody."""

    sender: str
    entire_message_hash: bytes
    data_segment_count: int
    parity_segment_count: int


class Sending:
    """The segments of one sending of a payload, by their positions. Payloads are let go when it settles."""

    __slots__ = (
        "advanced_at",
        "held_bytes",
        "key",
        "number",
        "parity_size",
        "segment_keys",
        "segments",
        "settled",
        "wants_last",
    )

    def __init__(self, number: int, key: PayloadKey, now: float) -> None:
        self.number = number
        self.key = key
        self.advanced_at = now
        self.segments: dict[int, bytes] = {}
        self.segment_keys: list[bytes] = []
        self.held_bytes = 0
        self.parity_size: int | None = None
        self.settled = (
            False  # given out, discarded or given up; it is remembered for the segments yet to come
        )
        self.wants_last = False  # the last data segment has to come: its end was not found

    @property
    def full(self) -> bool:
        """Has every segment come?"""
        return len(self.segment_keys) == self.key.data_segment_count + self.key.parity_segment_count

    @property
    def enough(self) -> bool:
        """Is it worth trying to make a payload of the segments?"""
        count = self.key.data_segment_count
        return len(self.segments) >= count and not (self.wants_last and count - 1 not in self.segments)

    def add(self, position: int, segment_key: bytes, payload: bytes) -> None:
        """Hold a segment."""
        self.segment_keys.append(segment_key)
        if self.settled:
            self.segments[position] = b""
            return
        self.segments[position] = payload
        self.held_bytes += len(payload) + SEGMENT_OVERHEAD_BYTES
        if position >= self.key.data_segment_count:
            self.parity_size = len(payload)

    def fits(self, position: int, payload: bytes) -> bool:
        """Does the length fit that of the others? Parity is as long as the longest data segment or longer."""
        if position < self.key.data_segment_count:
            return self.parity_size is None or len(payload) <= self.parity_size
        if self.parity_size is not None:
            return len(payload) == self.parity_size
        return len(payload) > 0 and all(len(other) <= len(payload) for other in self.segments.values())

    def settle(self) -> None:
        """It is over."""
        self.settled = True
        self.held_bytes = 0
        self.segments = {} if self.full else dict.fromkeys(self.segments, b"")


class Sendings:
    """All sendings of one payload: which of them a segment belongs to.

    Nothing on the wire tells two sendings of a payload apart, except that each segment of each has an id of
    its own. A segment belongs to the newest sending in which its place is free; if there is none, a new
    sending has begun. So, when everything arrives, in whatever order, as many sendings are complete as were
    sent.
    """

    __slots__ = ("count", "known", "open_places")

    def __init__(self) -> None:
        self.known: set[bytes] = set()  # the keys of all segments
        self.open_places: list[Sending] = []  # oldest first
        self.count = 0

    def place_for(self, position: int) -> Sending | None:
        """The sending that a new segment at this position belongs to."""
        for sending in reversed(self.open_places):
            if position not in sending.segments:
                return sending
        return None

    def contradicts(self, position: int, payload: bytes) -> bool:
        """Is there another segment in this place, with different content?"""
        return any(
            not sending.settled and sending.segments.get(position, payload) != payload
            for sending in self.open_places
        )

    def update(self, sending: Sending) -> None:
        """The sending has been settled, or has taken a segment."""
        if sending.full and sending in self.open_places:
            self.open_places.remove(sending)
        over = [other for other in self.open_places if other.settled]
        for other in over[:-_LATE_PLACES]:
            self.open_places.remove(other)


class Holder:
    """What is held of one sender, the reassembly that has waited longest first."""

    __slots__ = ("held_bytes", "open")

    def __init__(self) -> None:
        self.open: OrderedDict[int, Sending] = OrderedDict()
        self.held_bytes = 0
