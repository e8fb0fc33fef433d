"""Time, chance and disk, as a node is given them: real ones, or those of a simulation."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import trio

from pywaku.journal import RunBlocking, in_thread, inline
from pywaku.peers.selection import TRANSPORTS


def _chance() -> random.Random:
    return random.Random(secrets.randbits(64))


@dataclass(frozen=True, slots=True)
class Environment:
    """What a node depends on besides its configuration and the network."""

    clock: Callable[[], int] = time.time_ns
    """The time of day, in nanoseconds since 1970."""
    monotonic: Callable[[], int] = time.monotonic_ns
    """A time that never jumps, in nanoseconds."""
    rng: random.Random = field(default_factory=_chance)
    run_blocking: RunBlocking = in_thread
    """Where files are read and written."""
    transports: frozenset[str] = TRANSPORTS
    """What the network can dial."""

    @classmethod
    def simulated(cls, seed: int, *, began_ns: int | None = None) -> Environment:
        """On trio's clock, which is to be a virtual one; disk work is done in place.

        `began_ns` is the time of day at the clock's zero, the beginning of 2026 by default.
        """
        zero = _BEGINNING_NS if began_ns is None else began_ns

        def monotonic() -> int:
            return round(trio.current_time() * 1_000_000_000)

        return cls(
            clock=lambda: zero + monotonic(),
            monotonic=monotonic,
            rng=random.Random(seed),
            run_blocking=inline,
            transports=frozenset({"memory"}),
        )


_BEGINNING_NS: Final = 1_767_225_600_000_000_000
