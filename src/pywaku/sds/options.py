"""What an SDS channel can be told: protocol parameters and bounds, in frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from pywaku.errors import InvalidInput

MAX_CAUSAL_HISTORY: Final = 200
"""Entries that a message of ours names at most."""
MAX_RESEND_DOUBLINGS: Final = 6
"""Where each of several has to acknowledge a message, the time for that is doubled so often."""
MAX_HEADS: Final = 1_000
"""Loose ends of the log that are kept in mind; each message names the oldest of them."""
MAX_BLOOM_CAPACITY: Final = 50_000
"""Ids that a filter is made for at most: it travels with every message."""
_DAY_MS: Final = 86_400_000
_MIB: Final = 1_048_576
_GROUP_SIZE: Final = 128


class MessageIds(Enum):
    """How the ids of our messages are made; those of others are opaque to us."""

    UNIQUE = "unique"
    """keccak256 of sender id, nanoseconds in decimal, and content: two messages never share one."""
    CONTENT = "content"
    """sha256 of the content, as js-waku has it; unique ones for content that was sent before."""


@dataclass(frozen=True, slots=True)
class RepairOptions:
    """SDS Repair (SDS-R). `t_min_ms`, `t_max_ms` and `num_response_groups` are common to a channel."""

    t_min_ms: int = 30_000
    t_max_ms: int = 120_000
    num_response_groups: int = 1
    max_requests_per_message: int = 3
    max_requests_taken: int = 16
    """Requests looked at in one message of somebody else."""
    max_responses: int = 1_000
    """Requests that wait for a response at a time, or were responded to a moment ago."""
    max_cached: int = 5_000
    max_cached_bytes: int = 32 * _MIB
    """Messages kept, as they were on the wire, in case somebody misses them."""

    @staticmethod
    def response_groups_for(participants: int) -> int:
        """The number of response groups that the specification recommends (SDS-R global state)."""
        return participants // _GROUP_SIZE + 1

    def __post_init__(self) -> None:
        _need(0 <= self.t_min_ms < self.t_max_ms, "t_min_ms", "at least 0 and below t_max_ms")
        for name in ("num_response_groups", "max_requests_taken", "max_responses", "max_cached"):
            _need(getattr(self, name) >= 1, name, "at least 1")
        _need(0 <= self.max_requests_per_message <= 100, "max_requests_per_message", "0 to 100")
        _need(self.max_cached_bytes >= 0, "max_cached_bytes", "at least 0")


@dataclass(frozen=True, slots=True)
class SdsOptions:
    """All options of a channel. Raises `InvalidInput` for values that cannot be.

    The defaults are those of the second version of the Reliable Channel API, `js_waku()` those of the first.
    """

    causal_history_size: int = 2
    bloom_filter_capacity: int = 10_000
    bloom_filter_error_rate: float = 0.001
    possible_acks_threshold: int = 2
    """Bloom filters in which a message has to be seen to count as acknowledged."""
    max_false_positive_rate: float = 0.05
    """A filter so full that more of its answers are wrong acknowledges nothing."""
    acknowledgement_timeout_ms: int = 5_000
    """How long after a message was sent it is sent again, while nothing acknowledges it."""
    possibly_acknowledged_timeout_ms: int | None = None
    """The same once it was seen in a bloom filter; twice the other where it is None."""
    max_retransmissions: int = 5
    timeout_for_lost_messages_ms: int | None = 600_000
    """How long a message waits for another one that it depends on; None: as long as there is room."""
    sync_min_interval_ms: int = 30_000
    """The scale of the random pause before a sync message; 0: none are sent."""
    repair: RepairOptions | None = field(default_factory=RepairOptions)
    message_ids: MessageIds = MessageIds.UNIQUE
    max_lamport_ahead_ms: int = _DAY_MS
    """Messages whose lamport timestamp is further ahead of the clock are refused."""

    # bounds
    max_log: int = 20_000
    max_outgoing: int = 10_000
    max_outgoing_bytes: int = 256 * _MIB
    max_incoming: int = 2_000
    max_incoming_bytes: int = 64 * _MIB
    max_missing: int = 5_000
    max_lost: int = 10_000
    max_participants: int = 10_000

    @classmethod
    def js_waku(cls) -> SdsOptions:
        """What js-waku's ReliableChannel runs with (the first version of the Reliable Channel API)."""
        return cls(
            causal_history_size=200,
            acknowledgement_timeout_ms=30_000,
            possibly_acknowledged_timeout_ms=30_000,
            max_retransmissions=10,
        )

    @property
    def resend_possibly_acknowledged_ms(self) -> int:
        """How long after it was sent a possibly acknowledged message is sent again."""
        if self.possibly_acknowledged_timeout_ms is None:
            return 2 * self.acknowledgement_timeout_ms
        return self.possibly_acknowledged_timeout_ms

    @property
    def longest_wait_ms(self) -> int:
        """No timer of a channel is further away than this."""
        return max(
            self.acknowledgement_timeout_ms << MAX_RESEND_DOUBLINGS,
            self.resend_possibly_acknowledged_ms << MAX_RESEND_DOUBLINGS,
            2 * (self.timeout_for_lost_messages_ms or 0),
            2 * self.sync_min_interval_ms,
            0 if self.repair is None else self.repair.t_max_ms,
        )

    def __post_init__(self) -> None:
        _need(
            0 <= self.causal_history_size <= MAX_CAUSAL_HISTORY,
            "causal_history_size",
            f"0 to {MAX_CAUSAL_HISTORY}",
        )
        _need(
            1 <= self.bloom_filter_capacity <= MAX_BLOOM_CAPACITY,
            "bloom_filter_capacity",
            f"1 to {MAX_BLOOM_CAPACITY}",
        )
        _need(1e-6 <= self.bloom_filter_error_rate <= 0.5, "bloom_filter_error_rate", "0.000001 to 0.5")
        _need(0 <= self.max_false_positive_rate <= 1, "max_false_positive_rate", "0 to 1")
        for name in (
            "possible_acks_threshold",
            "acknowledgement_timeout_ms",
            "max_outgoing",
            "max_incoming",
            "max_missing",
            "max_lost",
            "max_participants",
        ):
            _need(getattr(self, name) >= 1, name, "at least 1")
        for name in (
            "max_retransmissions",
            "sync_min_interval_ms",
            "max_lamport_ahead_ms",
            "max_outgoing_bytes",
            "max_incoming_bytes",
        ):
            _need(getattr(self, name) >= 0, name, "at least 0")
        for name in ("possibly_acknowledged_timeout_ms", "timeout_for_lost_messages_ms"):
            _need(getattr(self, name) is None or getattr(self, name) >= 1, name, "at least 1, or None")
        _need(
            self.max_log >= max(1, self.causal_history_size),
            "max_log",
            "at least 1 and at least causal_history_size",
        )


def _need(holds: bool, name: str, what: str) -> None:
    if not holds:
        raise InvalidInput(f"SDS option {name} must be {what}")
