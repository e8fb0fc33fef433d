"""Segments of payloads on their way, and a store that keeps what a reassembler says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pywaku.segments import (
    Change,
    Event,
    KeptSending,
    PayloadReceived,
    Reassembler,
    ReassemblyLimits,
    SegmentationConfig,
    SegmentKept,
    SendingForgotten,
    SendingOpened,
    SendingSettled,
    split,
)
from pywaku.wire.segments import Segment

SIZE = 64
PLAIN = SegmentationConfig(segment_size_bytes=SIZE)
WITH_PARITY = SegmentationConfig(segment_size_bytes=SIZE, enable_reed_solomon=True)


def with_parity(rate: float, size: int = SIZE) -> SegmentationConfig:
    """Reed-Solomon at a rate."""
    return SegmentationConfig(segment_size_bytes=size, enable_reed_solomon=True, parity_rate=rate)


def payload_of(size: int, salt: int = 0) -> bytes:
    """A payload whose segments all differ, and that does not end in a zero."""
    return bytes((number * 7 + (number >> 6) * 31 + salt) % 255 + 1 for number in range(size))


def segments_of(payload: bytes, config: SegmentationConfig = PLAIN) -> list[Segment]:
    """All segments of a payload."""
    return list(split(payload, config))


class SegmentStore:
    """What a store would keep: it applies the changes of each step."""

    def __init__(self) -> None:
        self.sendings: dict[int, SendingOpened] = {}
        self.segments: dict[int, list[SegmentKept]] = {}

    def apply(self, changes: Iterable[Change]) -> None:
        """One transaction."""
        for change in changes:
            number = change.number
            if isinstance(change, SendingOpened):
                assert number not in self.sendings
                self.sendings[number] = change
                self.segments[number] = []
            elif isinstance(change, SegmentKept):
                assert all(change.position != other.position for other in self.segments[number])
                self.segments[number].append(change)
            elif isinstance(change, SendingSettled):
                self.sendings[number] = replace(self.sendings[number], settled=True)
                self.segments[number] = [replace(segment, payload=b"") for segment in self.segments[number]]
            else:
                assert isinstance(change, SendingForgotten)
                del self.sendings[number], self.segments[number]

    def kept(self) -> list[KeptSending]:
        """What a reassembler goes on from."""
        return [KeptSending(opened, tuple(self.segments[number])) for number, opened in self.sendings.items()]


class Receiver:
    """A reassembler with its store; segments get an id of their own each unless told otherwise."""

    def __init__(self, limits: ReassemblyLimits | None = None) -> None:
        self.limits = limits
        self.now = 0.0
        self.store = SegmentStore()
        self.reassembler = Reassembler(limits)
        self.events: list[Event] = []
        self._ids = 0

    def give(self, segment: Segment, sender: str = "alice", segment_id: str | None = None) -> list[Event]:
        """A segment arrives; returns what that led to."""
        if segment_id is None:
            self._ids += 1
            segment_id = f"id {self._ids}"
        step = self.reassembler.receive(segment, sender=sender, segment_id=segment_id, now=self.now)
        self.store.apply(step.changes)
        self.events += step.events
        return step.events

    def give_all(self, segments: Iterable[Segment], sender: str = "alice") -> list[Event]:
        """Segments arrive one after the other."""
        return [event for segment in segments for event in self.give(segment, sender)]

    def tick(self, now: float) -> list[Event]:
        """Time has passed."""
        self.now = now
        step = self.reassembler.tick(now)
        self.store.apply(step.changes)
        self.events += step.events
        return step.events

    def restart(self) -> None:
        """Go on from what was stored."""
        self.reassembler = Reassembler(self.limits, self.store.kept(), self.now)

    @property
    def payloads(self) -> list[bytes]:
        """What was received so far."""
        return [event.payload for event in self.events if isinstance(event, PayloadReceived)]
