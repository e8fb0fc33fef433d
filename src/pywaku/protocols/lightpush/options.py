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
    - `relay_again_after_s`: a message that a light node asks for once more is relayed once more if the last
      time is so long ago; `max_relayed`: messages of which that time is known.
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
    relay_again_after_s: float = 5.0
    max_relayed: int = 16_384

    def __post_init__(self) -> None:
        if self.max_unrelayed < 1 or self.max_relayed < 1:
            raise InvalidInput("max_unrelayed and max_relayed are at least 1")
        if not self.relay_again_after_s > 0:
            raise InvalidInput(f"relay_again_after_s is positive, not {self.relay_again_after_s}")


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
    again: int = 0
    """Those of them that were relayed once more."""


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
