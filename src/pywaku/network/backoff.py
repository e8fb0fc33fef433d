"""When to try again: exponential back-off with jitter, as a plain value machine."""

from __future__ import annotations

import random
from dataclasses import dataclass

from pywaku.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """The n-th delay is `base_s · factor ** n` or `longest_s`, less up to `jitter` of itself (0.5: half).

    A connection that stood for `stable_s` seconds makes the delays start over.
    """

    base_s: float = 1.0
    factor: float = 2.0
    longest_s: float = 60.0
    jitter: float = 0.5
    stable_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 < self.base_s <= self.longest_s or self.factor < 1:
            raise InvalidInput("back-off takes 0 < base_s ≤ longest_s and factor ≥ 1")
        if not 0 <= self.jitter <= 1 or self.stable_s < 0:
            raise InvalidInput("back-off takes a jitter from 0 to 1 and stable_s ≥ 0")


class Backoff:
    """Tells, after each failure and each loss, how many seconds to wait before the next try."""

    __slots__ = ("_connected_at", "_policy", "_rng", "_span")

    def __init__(self, policy: BackoffPolicy, rng: random.Random) -> None:
        self._policy = policy
        self._rng = rng
        self._span = policy.base_s
        self._connected_at: float | None = None

    def failed(self) -> float:
        """A try has failed: the delay before the next one."""
        policy, span = self._policy, self._span
        self._span = min(policy.longest_s, span * policy.factor)
        return span * (1 - policy.jitter * self._rng.random())

    def connected(self, now: float) -> None:
        """A try has succeeded."""
        self._connected_at = now

    def lost(self, now: float) -> float:
        """What was connected is so no longer: the delay before the next try."""
        if self._connected_at is not None and now - self._connected_at >= self._policy.stable_s:
            self._span = self._policy.base_s
        self._connected_at = None
        return self.failed()
