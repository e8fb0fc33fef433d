"""What relay counts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class RelayCounters:
    """What has happened since relay was opened; each number only grows."""

    received: int = 0
    """Messages that peers sent, duplicates included."""
    duplicates: int = 0
    """Of these, those seen before, on topics not joined, or refused by the router (signed ones)."""
    delivered: int = 0
    """Messages of peers that were accepted, and so handed to the subscriptions."""
    rejected: int = 0
    ignored: int = 0
    published: int = 0
    """Messages of this node that went out (or would have, had there been a peer)."""
    refused_own: int = 0
    """Messages of this node that broke a rule."""
    refusals: dict[str, int] = field(default_factory=dict[str, int])
    """Rejected and ignored messages by reason."""
    dropped_slow_peer: int = 0
    """Messages not sent because a peer's outbox was full; one message counts once for each such peer."""
    dropped_control: int = 0
    """Message ids in control traffic that were not sent, for the same reason."""
    dropped_slow_subscription: int = 0
    """Messages that a full subscription missed."""
    callback_errors: int = 0
    """What subscription callbacks and echo listeners have raised."""
    validator_errors: int = 0
    validator_timeouts: int = 0
    invalid_rpcs: int = 0
    streams_opened: int = 0
    streams_failed: int = 0
    peers_given_up: int = 0
    publish_waits: int = 0
    exchange_dials: int = 0
    exchange_dropped: int = 0
    """Recommended peers that found no place in the queue, or whose record was not usable."""
    bytes_in: int = 0
    bytes_out: int = 0
