"""What filter counts, on either side."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class FilterServiceCounters:
    """What has happened since the service was opened; each number only grows.

    The counters of its requests are those of `FilterService.requests`.
    """

    answers: dict[int, int] = field(default_factory=dict[int, int])
    """Requests that were understood, by the status code of the answer."""
    messages: int = 0
    """Messages that somebody had subscribed to."""
    pushed: int = 0
    """Messages written to subscribers; one counts once for each."""
    dropped_slow: int = 0
    """Messages that found a subscriber's queue full."""
    dropped_gone: int = 0
    """Messages that still waited for a subscriber when its subscription ended."""
    expired: int = 0
    """Subscriptions that ended because they were not refreshed."""
    unreachable: int = 0
    """Subscriptions that ended because pushes did not get through."""
    streams_opened: int = 0
    streams_failed: int = 0
    bytes_out: int = 0


@dataclass(slots=True)
class FilterClientCounters:
    """What has happened since the client was opened; each number only grows."""

    requests: int = 0
    refused: int = 0
    """Requests that were answered with an error."""
    failed: int = 0
    """Requests without a usable answer."""
    received: int = 0
    """Pushes that arrived."""
    delivered: int = 0
    """Of these, those that were wanted and new, and so handed to the subscriptions."""
    duplicates: int = 0
    """Pushes of messages that came before, from whichever peer."""
    unwanted: int = 0
    """Pushes that match no criteria at the peer they came from."""
    undecodable: int = 0
    strangers: int = 0
    """Push streams of peers at which nothing is subscribed."""
    dropped_slow_subscription: int = 0
    """Messages that a full subscription missed."""
    callback_errors: int = 0
    streams: int = 0
    bytes_in: int = 0
