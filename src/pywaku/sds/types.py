"""The values that go into and come out of an SDS channel."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from pywaku.wire.sds import HistoryEntry, SdsMessage


class Purpose(Enum):
    """Why something is to be sent."""

    CONTENT = "content"
    RETRANSMISSION = "retransmission"
    REPAIR = "repair"
    """A message, maybe of somebody else, that somebody misses."""
    SYNC = "sync"
    EPHEMERAL = "ephemeral"


class Transmission(NamedTuple):
    """Please send these bytes to the channel. `attempt` counts the transmissions of a message from 1."""

    message_id: str
    data: bytes
    purpose: Purpose
    attempt: int = 1


class Outcome(Enum):
    """What became of received bytes."""

    DELIVERED = "delivered"
    BUFFERED = "buffered"
    """It waits for messages that it depends on."""
    SYNC = "sync"
    EPHEMERAL = "ephemeral"
    DUPLICATE = "duplicate"
    OWN = "own"
    FOREIGN = "foreign"
    """It is of another channel."""
    MALFORMED = "malformed"
    REFUSED = "refused"
    """A `Refused` event says why."""


class Received(NamedTuple):
    """What became of received bytes, and what was in them."""

    outcome: Outcome
    message: SdsMessage | None


class RefusalReason(Enum):
    """Why a message of the channel was not taken."""

    TOO_OLD = "too old"
    """It sorts before all that the log still remembers: it may have been delivered long ago."""
    TOO_FAR_AHEAD = "too far ahead"
    """Its lamport timestamp is further in the future than clocks are apart."""


class LossReason(Enum):
    """Why a message is not waited for any more."""

    TIMEOUT = "timeout"
    BUFFER_FULL = "buffer full"
    ABANDONED = "abandoned"
    """The application gave it up."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message, in causal order and once. `missed`: what it depends on and was not delivered before it.

    `late`: it was given up before, so messages that depend on it were delivered already.
    """

    message_id: str
    sender_id: str
    content: bytes
    lamport_timestamp: int
    retrieval_hint: bytes | None = None
    missed: tuple[HistoryEntry, ...] = ()
    late: bool = False


@dataclass(frozen=True, slots=True)
class EphemeralReceived:
    """A message outside of the log: no order, no acknowledgement, and maybe more than once."""

    message_id: str
    sender_id: str
    content: bytes


@dataclass(frozen=True, slots=True)
class PossiblyAcknowledged:
    """A message of ours was seen in a bloom filter of `sender_id`, in the `count`th one so far."""

    message_id: str
    sender_id: str
    count: int


@dataclass(frozen=True, slots=True)
class AcknowledgedBy:
    """One of the recipients that `send` was given has acknowledged. `certain`: by its causal history."""

    message_id: str
    sender_id: str
    certain: bool


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Final: a message of ours was received by `acknowledged_by`; `certain`: not by bloom filters."""

    message_id: str
    acknowledged_by: tuple[str, ...]
    certain: bool


@dataclass(frozen=True, slots=True)
class NotAcknowledged:
    """Final: a message of ours was sent as often as it may, and not (by all recipients) acknowledged."""

    message_id: str
    transmissions: int
    acknowledged_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MessagesMissing:
    """Somebody's history names messages that have not come; a store may have them (by their hints)."""

    entries: tuple[HistoryEntry, ...]
    needed_by: str


@dataclass(frozen=True, slots=True)
class MessagesLost:
    """Messages are not waited for any more (irretrievable); what depends on them is delivered."""

    entries: tuple[HistoryEntry, ...]
    reason: LossReason


@dataclass(frozen=True, slots=True)
class Refused:
    """A message of the channel was not taken."""

    message_id: str
    sender_id: str
    reason: RefusalReason


SdsEvent = (
    Delivered
    | EphemeralReceived
    | PossiblyAcknowledged
    | AcknowledgedBy
    | Acknowledged
    | NotAcknowledged
    | MessagesMissing
    | MessagesLost
    | Refused
)


class Participant(NamedTuple):
    """Somebody who was heard in the channel, and the newest message of ours that its history has named."""

    sender_id: str
    heard_ms: int
    lamport_timestamp: int
    messages: int
    """Messages of any kind that were taken from it."""
    acknowledged_id: str | None
    acknowledged_lamport: int


class Sizes(NamedTuple):
    """How full the tables of a channel are."""

    log: int
    outgoing: int
    outgoing_bytes: int
    incoming: int
    incoming_bytes: int
    missing: int
    lost: int
    responses: int
    heads: int
    cached: int
    cached_bytes: int
    participants: int
    bloom_filter: int


@dataclass(slots=True)
class Counters:
    """What a channel has done, and what its bounds have cut, since this object exists."""

    sent: int = 0
    retransmitted: int = 0
    acknowledged: int = 0
    not_acknowledged: int = 0
    syncs_sent: int = 0
    ephemeral_sent: int = 0
    received: int = 0
    delivered: int = 0
    delivered_late: int = 0
    buffered: int = 0
    syncs_received: int = 0
    ephemeral_received: int = 0
    duplicates: int = 0
    own_ignored: int = 0
    own_adopted: int = 0
    """Own messages that the log did not know: state was lost."""
    foreign: int = 0
    malformed: int = 0
    too_old: int = 0
    too_far_ahead: int = 0
    bloom_filters_malformed: int = 0
    bloom_filters_too_full: int = 0
    missing: int = 0
    lost: int = 0
    released_early: int = 0
    """Messages delivered before what they depend on because the incoming buffer was full."""
    missing_dropped: int = 0
    """Missing messages that are neither waited for nor requested because too many are."""
    log_evicted: int = 0
    heads_evicted: int = 0
    lost_evicted: int = 0
    participants_evicted: int = 0
    cache_evicted: int = 0
    repairs_requested: int = 0
    repair_requests_received: int = 0
    repair_requests_ignored: int = 0
    """They are not for us: not in the cache, not of our group, too many, or answered a moment ago."""
    repairs_sent: int = 0
    repairs_by_others: int = 0
    """Requests that somebody else has answered before us."""
