"""What a reliable channel can be told (RELIABLE-CHANNEL-API, options of both versions)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Final

from pywaku.errors import InvalidInput
from pywaku.sds import MessageIds, RepairOptions, SdsOptions
from pywaku.segments import ReassemblyLimits, SegmentationConfig

ANY: Final = "any"
ALL_KNOWN: Final = "all-known"
_DAY_MS: Final = 86_400_000
_KINDS: Final = {int: "an int", bool: "True or False"}


@dataclass(frozen=True, slots=True)
class ReliableChannelOptions:
    """Options of a channel, under the names of the specifications, in snake case.

    Where the two versions differ, the defaults are those of the second; `js_waku()` gives those of the first,
    for channels with js-waku. Raises `InvalidInput` for values that cannot be.
    """

    causal_history_size: int = 2
    """How many messages each message names as those before it, up to 200."""
    possible_acks_threshold: int = 2
    """In how many bloom filters a message has to be seen to count as acknowledged."""
    acknowledgement_timeout_ms: int = 5_000
    """How long to wait for an acknowledgement before sending again (`retry_interval_ms` of the first)."""
    max_retransmissions: int = 5
    """How often a message is sent again (`max_retry_attempts` of the first)."""
    timeout_for_lost_messages_ms: int | None = 600_000
    """How long a message is waited for that others name; then it is reported as irretrievable."""
    sync_min_interval_ms: int = 30_000
    """The scale of the random pause before a sync message; 0: none are sent."""
    retrieve_frequency_ms: int = 10_000
    """How often stores are asked for missing messages."""
    sweep_in_buf_interval_ms: int = 0
    """Timers are looked at this often; 0: exactly when they are due."""
    process_task_min_elapse_ms: int = 0
    """Incoming messages are gathered for as long after the last were processed; 0: taken as they come."""
    query_on_connect: bool = True
    """Ask stores for the latest messages of the channel when they can be reached, and after an outage."""
    query_threshold_ms: int = 300_000
    """... and when the last such query is older than this."""
    query_age_limit_ms: int = 30 * _DAY_MS
    """How far back such a query goes at most."""
    auto_start: bool = True
    """Start when the channel is created; otherwise by `start`."""
    segmentation: SegmentationConfig = field(default_factory=SegmentationConfig)
    wrap_segments: bool = True
    """Every message is sent as segments, also in a single one (second version); else as bare content, which
    limits it to a single segment. Received are both."""
    delivered_to: str | frozenset[str] = ANY
    """Whose acknowledgement makes a message delivered: of `any` participant, of `all-known` (those heard
    before it was sent), or of the named ones."""
    message_ids: MessageIds = MessageIds.UNIQUE
    repair: RepairOptions | None = field(default_factory=RepairOptions)
    """SDS-Repair: participants ask each other for what they miss; None: they do not."""
    reassembly: ReassemblyLimits = field(default_factory=ReassemblyLimits)
    max_unacknowledged: int = 10_000
    """Messages and segments that may wait for acknowledgement; `send` refuses more."""

    @classmethod
    def js_waku(cls) -> ReliableChannelOptions:
        """What js-waku's ReliableChannel runs with, bare content included.

        Not its message ids: those are hashes of the payload, so that of two equal payloads of different
        senders one is lost. To js-waku ids of others are opaque.
        """
        return cls(
            causal_history_size=200,
            acknowledgement_timeout_ms=30_000,
            max_retransmissions=10,
            sweep_in_buf_interval_ms=5_000,
            process_task_min_elapse_ms=1_000,
            wrap_segments=False,
        )

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(each.default, int) and not (value is None and "None" in str(each.type)):
                _need(
                    isinstance(value, type(each.default)),
                    each.name,
                    f"{_KINDS[type(each.default)]}, not {value!r}",
                )
        for name in (
            "sync_min_interval_ms",
            "sweep_in_buf_interval_ms",
            "process_task_min_elapse_ms",
            "query_threshold_ms",
        ):
            _need(getattr(self, name) >= 0, name, "at least 0")
        for name in ("retrieve_frequency_ms", "query_age_limit_ms", "max_unacknowledged"):
            _need(getattr(self, name) >= 1, name, "at least 1")
        if isinstance(self.delivered_to, str):
            _need(
                self.delivered_to in (ANY, ALL_KNOWN), "delivered_to", "any, all-known, or a set of senders"
            )
        else:
            _need(bool(self.delivered_to), "delivered_to", "any, all-known, or a set of senders")
            object.__setattr__(self, "delivered_to", frozenset(self.delivered_to))
        self.sds()

    def sds(self) -> SdsOptions:
        """The options of the SDS core."""
        base = SdsOptions()
        return replace(
            base,
            causal_history_size=self.causal_history_size,
            possible_acks_threshold=self.possible_acks_threshold,
            acknowledgement_timeout_ms=self.acknowledgement_timeout_ms,
            max_retransmissions=self.max_retransmissions,
            timeout_for_lost_messages_ms=self.timeout_for_lost_messages_ms or None,
            sync_min_interval_ms=self.sync_min_interval_ms,
            repair=self.repair,
            message_ids=self.message_ids,
            max_outgoing=self.max_unacknowledged,
        )


def _need(holds: bool, name: str, what: str) -> None:
    if not holds:
        raise InvalidInput(f"{name}: is {what}")
