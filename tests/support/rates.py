"""Asking a rate limiter, in one line each."""

from __future__ import annotations

from typing import Any

from pywaku.channels.ratelimit import RateLimiter
from pywaku.channels.ratequeue import Kind, Transmission
from pywaku.channels.ratevalues import RateLimitConfig, RateStep, Reason

START = 1_700_000_400.0  # an epoch of 600 seconds begins here
MESSAGE, SEGMENT, RETRY, EPHEMERAL, SYNC = Kind


def on(limit: int = 10, **options: Any) -> RateLimitConfig:
    """Enabled, with so many messages in an epoch."""
    return RateLimitConfig(enabled=True, messages_per_epoch=limit, **options)


def ask(
    limiter: RateLimiter, name: str, kind: Kind = MESSAGE, now: float = START, channel: str = "room"
) -> RateStep:
    """Something is to be sent."""
    return limiter.request(Transmission(channel, name, kind), now)


def fill(limiter: RateLimiter, count: int, now: float = START) -> None:
    """So many messages go out."""
    for number in range(count):
        assert len(ask(limiter, f"filler {number}", now=now).send) == 1


def names(step: RateStep) -> list[str]:
    """What is sent."""
    return [transmission.key for transmission in step.send]


def why(step: RateStep) -> list[Reason]:
    """Why what is not sent is not."""
    return [dropped.reason for dropped in step.dropped] + [delayed.reason for delayed in step.delayed]
