"""The values that go into and come out of a reassembler."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final, NamedTuple

from pywaku.errors import InvalidInput

SEGMENT_OVERHEAD_BYTES: Final = 256
"""What a held segment counts for beyond its payload, so that empty ones are not free."""

MAX_SENDER_LENGTH: Final = 1024


@dataclass(frozen=True, slots=True)
class ReassemblyLimits:
    """The bounds of a reassembler (MESSAGE-SEGMENTATION-AND-RECONSTRUCTION, Denial of Service).

    Where a bound on what is held is exceeded, a reassembly is given up and reported: the one that has waited
    longest, of the sender concerned, or, for bounds on all, of the sender who holds most.
    """

    max_segment_bytes: int = 153_600
    max_reassemblies: int = 256
    max_reassemblies_per_sender: int = 32
    max_bytes: int = 256 * 1024 * 1024
    max_bytes_per_sender: int = 64 * 1024 * 1024
    timeout_s: float = 3600.0
    """A reassembly is given up when no segment has come for so long. Epochs of rate limits are 10 minutes."""
    max_remembered_segments: int = 16_384
    """Of sendings that are over, to know duplicates and late segments by; the oldest sendings go first."""
    max_trailing_zeros: int = 16_384
    """How many zeros at the end of a payload are tried for when its last segment has to be recovered."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise InvalidInput(f"{field.name} is above 0, not {getattr(self, field.name)}")


class Refusal(StrEnum):
    """Why a segment was dropped."""

    INVALID = "invalid"
    """Its numbers are none that the specification permits, or its sender's name is too long to remember."""
    OVERSIZE = "oversize"
    UNFITTING = "unfitting"
    """Its length does not fit that of the others: parity has one length, and no segment is longer."""
    CONFLICT = "conflict"
    """Another segment with different content is in its place already."""
    PARITY_UNUSABLE = "parity_unusable"
    """Parity of so many segments is not Leopard FF8. Without it the data segments suffice."""


class GivenUp(StrEnum):
    """Why a reassembly ended without a payload."""

    TIMEOUT = "timeout"
    SENDER_LIMIT = "sender_limit"
    TOTAL_LIMIT = "total_limit"


@dataclass(frozen=True, slots=True)
class PayloadReceived:
    """A payload is complete and its hash is right."""

    sender: str
    entire_message_hash: bytes
    payload: bytes
    data_segment_count: int
    recovered: int
    """How many data segments came out of parity."""


@dataclass(frozen=True, slots=True)
class PayloadIrretrievable:
    """A payload was given up; its remaining segments, should they come, are dropped."""

    sender: str
    entire_message_hash: bytes
    data_segment_count: int
    received: int
    """Segments that had come, parity included."""
    missing: int
    """How many more it would have taken."""
    missing_data: tuple[int, ...]
    """The data segments that had not come."""
    reason: GivenUp


@dataclass(frozen=True, slots=True)
class PayloadInvalid:
    """Enough segments were there, but what they make up does not have the hash; it was discarded."""

    sender: str
    entire_message_hash: bytes
    data_segment_count: int


@dataclass(frozen=True, slots=True)
class SegmentRefused:
    """A segment was dropped; whatever it claimed to belong to goes on without it."""

    sender: str
    entire_message_hash: bytes
    segment_id: str
    reason: Refusal


Event = PayloadReceived | PayloadIrretrievable | PayloadInvalid | SegmentRefused


@dataclass(frozen=True, slots=True)
class SendingOpened:
    """To store: a sending of a payload, under a number that no other stored one has."""

    number: int
    sender: str
    entire_message_hash: bytes
    data_segment_count: int
    parity_segment_count: int
    settled: bool


@dataclass(frozen=True, slots=True)
class SegmentKept:
    """To store: a segment of a sending. Its payload is empty where it is not needed any more."""

    number: int
    position: int
    """Data segments count from 0, parity segments after them."""
    segment_key: bytes
    """16 bytes that stand for the segment's id."""
    payload: bytes


@dataclass(frozen=True, slots=True)
class SendingSettled:
    """To store: the sending is over; the payloads of its segments are not needed any more."""

    number: int


@dataclass(frozen=True, slots=True)
class SendingForgotten:
    """To remove: the sending and its segments."""

    number: int


Change = SendingOpened | SegmentKept | SendingSettled | SendingForgotten


class Step(NamedTuple):
    """What came of a call: what to report, and what to store before that, in one transaction."""

    events: list[Event]
    changes: list[Change]


@dataclass(frozen=True, slots=True)
class KeptSending:
    """What was stored of a sending, for a reassembler to go on from."""

    opened: SendingOpened
    """With `settled` as it is now."""
    segments: tuple[SegmentKept, ...]


class ReassemblySizes(NamedTuple):
    """How full a reassembler is."""

    reassemblies: int
    held_bytes: int
    remembered_segments: int
    senders: int


@dataclass(slots=True)
class ReassemblyCounters:
    """What a reassembler has done, and what its bounds have cut, since it exists."""

    segments: int = 0
    duplicates: int = 0
    late: int = 0
    """Segments of a sending that was over already: parity that was not needed, mostly."""
    refused: int = 0
    payloads: int = 0
    recovered_payloads: int = 0
    recovered_segments: int = 0
    invalid: int = 0
    timed_out: int = 0
    evicted: int = 0
    forgotten: int = 0
