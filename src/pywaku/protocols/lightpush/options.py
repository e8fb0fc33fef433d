"""What can be set about light push, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pywaku.errors import InvalidInput
from pywaku.protocols.relay import MAX_MESSAGE_SIZE
from pywaku.protocols.service import RateLimit, ServiceLimits
from pywaku.topics import auto_shard_topic

MAX_REQUEST: Final = MAX_MESSAGE_SIZE + 64 * 1024
"""Bytes of a request: those of the largest message, and room for what is around it, as in nwaku."""


@dataclass(frozen=True, slots=True)
class AutoSharding:
    """A network whose content topics decide about their shards (RELAY-SHARDING, Automatic Sharding)."""

    cluster_id: int
    shard_count: int

    def __post_init__(self) -> None:
        self.pubsub_topic("/a/1/a/a")  # says what is wrong with the numbers, if anything is

    def pubsub_topic(self, content_topic: str) -> str:
        """The pubsub topic of a content topic; raises `InvalidTopic`."""
        return auto_shard_topic(content_topic, self.cluster_id, self.shard_count)


@dataclass(frozen=True, slots=True)
class LightpushServiceOptions:
    """What a light push service node takes on.

    - `requests`: rates and bounds, of version 3 and of the legacy protocol each.
    - `auto_sharding`: where a message goes whose request names no pubsub topic (None: such requests are bad).
    - `max_unrelayed`: messages that had no peers to go to, and are known as such for when they come again.
    """

    requests: ServiceLimits = field(
        default_factory=lambda: ServiceLimits(
            per_peer=RateLimit(100, 1.0),
            total=RateLimit(1000, 1.0),
            max_request=MAX_REQUEST,
            max_concurrent=256,
            max_streams_per_peer=64,
        )
    )
    auto_sharding: AutoSharding | None = None
    max_unrelayed: int = 1024

    def __post_init__(self) -> None:
        if self.max_unrelayed < 1:
            raise InvalidInput(f"max_unrelayed is at least 1, not {self.max_unrelayed}")


@dataclass(slots=True)
class LightpushServiceCounters:
    """What has happened since the service was opened; each number only grows.

    The counters of its requests are those of `LightpushService.requests` and `legacy_requests`.
    """

    answers: dict[int, int] = field(default_factory=dict[int, int])
    """Requests that were handled, by status code; legacy ones by the code that they would have got."""
    relayed: int = 0
    """Messages published for light nodes."""
    known: int = 0
    """Messages that had been seen before."""


@dataclass(slots=True)
class LightpushClientCounters:
    """What has happened since the client was made; each number only grows."""

    requests: int = 0
    refused: int = 0
    """Requests that were answered with an error."""
    failed: int = 0
    """Requests without a usable answer."""
    legacy: int = 0
    """Requests made in the legacy protocol."""
