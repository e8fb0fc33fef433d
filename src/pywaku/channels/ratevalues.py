"""The values that go into and come out of a rate limiter."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pywaku.channels.ratequeue import Transmission
from pywaku.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class RateLimitConfig:
    """RELIABLE-CHANNEL-API, RateLimitConfig; what it leaves open has the values of 64/WAKU2-NETWORK."""

    enabled: bool = False
    epoch_period_sec: int = 600
    messages_per_epoch: int = 100
    approach_threshold: float = 0.9
    """From this share of the limit on, it counts as approached."""
    space_evenly: bool = False
    """Send no more than one message in each `epoch_period_sec / messages_per_epoch`, instead of at once."""
    max_queued: int = 10_000

    def __post_init__(self) -> None:
        for name in ("epoch_period_sec", "messages_per_epoch", "max_queued"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} is at least 1, not {getattr(self, name)}")
        if not 0 < self.approach_threshold <= 1:
            raise InvalidInput(f"a threshold is above 0 and at most 1, not {self.approach_threshold}")


@dataclass(frozen=True, slots=True)
class NodeLimit:
    """What the node's membership allows, where it attaches proofs. It holds whatever was configured."""

    messages_per_epoch: int
    epoch_period_sec: int
    used: int = 0
    """Messages that the node knows to be sent in this epoch, by whomever."""

    def __post_init__(self) -> None:
        if self.messages_per_epoch < 0 or self.used < 0 or self.epoch_period_sec < 1:
            raise InvalidInput("a limit and its use are not negative, and an epoch has at least a second")


class Reason(StrEnum):
    """Why something was not sent at once (the first two are the specification's)."""

    RATE_LIMIT_APPROACHED = "rate_limit_approached"
    RATE_LIMIT_REACHED = "rate_limit_reached"
    SPACING = "spacing"
    QUEUE_FULL = "queue_full"
    """Too much waits already, and none of it has less right. A later retry may try again."""


@dataclass(frozen=True, slots=True)
class Delayed:
    """It waits, and is given out later by `tick`: not before `until`, and after what has more right."""

    transmission: Transmission
    reason: Reason
    until: float


@dataclass(frozen=True, slots=True)
class Dropped:
    """It is not sent, and nothing more will be heard of it here."""

    transmission: Transmission
    reason: Reason


@dataclass(frozen=True, slots=True)
class Charges:
    """What has been sent: to be stored, and given to the next limiter."""

    epoch_period_sec: int
    epochs: tuple[tuple[int, int], ...]
    """Epochs with the number of messages sent in them."""
    last_at: float | None
    """When the last message was sent."""


class RateStep(NamedTuple):
    """What came of a call. Charges, if any, are stored before anything is sent: no crash is to undo them."""

    send: list[Transmission]
    delayed: list[Delayed]
    dropped: list[Dropped]
    charges: Charges | None


class Usage(NamedTuple):
    """How far the limit is used; the limit is None where there is none."""

    limit: int | None
    used: int
    queued: int
    epoch_ends_at: float


@dataclass(slots=True)
class RateCounters:
    """What a limiter has done, and what its bounds have cut, since it exists."""

    sent: int = 0
    delayed: int = 0
    repeated: int = 0
    """Asked for while it waited already, as when a retry is due for what has not been sent once."""
    ephemeral_dropped: int = 0
    sync_dropped: int = 0
    queue_full: int = 0
    withdrawn: int = 0
