"""How long to go on trying to reach a subscriber."""

from __future__ import annotations


class Patience:
    """Failures in a row: the pauses between them double, and it is enough after `limit_s`."""

    __slots__ = ("_failures", "_limit_s", "_pause_s", "_since")

    def __init__(self, *, pause_s: float, limit_s: float) -> None:
        self._pause_s = pause_s
        self._limit_s = limit_s
        self._since: float | None = None
        self._failures = 0

    def succeeded(self) -> None:
        """Whatever failed before is forgotten."""
        self._since = None

    def failed(self, now: float) -> float | None:
        """How long to wait before the next attempt; None if there is to be none."""
        if self._since is None:
            self._since, self._failures = now, 0
        left = self.left(now)
        if left <= 0:
            return None
        pause = self._pause_s * 2**self._failures
        self._failures += 1
        return min(pause, left)

    def left(self, now: float) -> float:
        """How much of the patience is left."""
        return self._limit_s if self._since is None else self._since + self._limit_s - now
