"""How long one slow subscription may hold its node up: a small share of the time, and no more."""

from __future__ import annotations

from typing import Final

SHARE: Final = 0.01
"""The part of the time for which one subscription may make reading pause in the long run."""

_FREE_S: Final = 0.0001  # a consumer that takes 10,000 messages a second is not what a pause waits for
_AGAIN_S: Final = 1.0  # so that a pause, where there is one, is long enough to be of use
_LEAST_S: Final = 0.001


class Patience:
    """A budget of pauses, as a debt that is paid off with time.

    Each pause is a debt of its length, less what the consumer needs for the messages that it takes meanwhile
    if it is a fast one: whoever is merely waiting for its turn of the processor owes nothing. A debt of the
    limit ends the patience; time pays it off at `SHARE`.
    """

    __slots__ = ("_begun_at", "_debt", "_debt_at", "_not_before", "_taken")

    def __init__(self) -> None:
        self._debt = 0.0
        self._debt_at = 0.0
        self._not_before = float("-inf")
        self._begun_at = 0.0
        self._taken = 0

    def begin(self, now: float, taken: int) -> bool:
        """May there be a pause? Then it begins; `taken` counts the messages that the consumer ever took."""
        if now < self._not_before:
            return False
        self._begun_at = now
        self._taken = taken
        return True

    def left(self, now: float, taken: int, limit_s: float) -> float:
        """How much longer the pause may be; 0 when it has to end."""
        left = limit_s - self._owed(now) - self._cost(now, taken)
        return left if left > _LEAST_S else 0.0

    def end(self, now: float, taken: int) -> None:
        """The pause is over, because the consumer has caught up."""
        self._debt = self._owed(now) + self._cost(now, taken)
        self._debt_at = now

    def give_up(self, now: float, taken: int) -> None:
        """The pause is over, because the patience is; for a while there is none."""
        self.end(now, taken)
        self._not_before = now + _AGAIN_S

    def _owed(self, now: float) -> float:
        return max(0.0, self._debt - (now - self._debt_at) * SHARE)

    def _cost(self, now: float, taken: int) -> float:
        return max(0.0, now - self._begun_at - (taken - self._taken) * _FREE_S)
