"""A value that follows its readings without flapping. Pure."""

from __future__ import annotations

import math
from typing import Generic, TypeVar

T = TypeVar("T")


class Settling(Generic[T]):
    """A status with a `lowest` value, which it starts with.

    The fall to the lowest is immediate, as is recovery from an outage of at least `settle_s`. Any other
    change counts once its reading has lasted for `settle_s`; a shorter outage lasts that long as well. So
    what is not a fall to the lowest comes at least `settle_s` after the change before it.
    """

    __slots__ = ("_changed_at", "_lowest", "_settle_s", "_since", "reading", "status")

    def __init__(self, lowest: T, settle_s: float) -> None:
        self.status = lowest
        self.reading = lowest
        self._lowest = lowest
        self._settle_s = settle_s
        self._since = -math.inf
        self._changed_at = -math.inf

    @property
    def due(self) -> float:
        """When the status becomes the reading, if that lasts; infinity where it is the reading."""
        if self.reading == self.status:
            return math.inf
        if self.reading == self._lowest:
            return -math.inf
        since = self._changed_at if self.status == self._lowest else self._since
        return since + self._settle_s

    def update(self, reading: T, now: float) -> bool:
        """Read this now; True if the status changed."""
        if reading != self.reading:
            self.reading = reading
            self._since = now
        return self.tick(now)

    def tick(self, now: float) -> bool:
        """It is now this late; True if the status changed."""
        if now < self.due:
            return False
        changed = self.reading != self.status  # even at the end of time
        self.status = self.reading
        self._changed_at = now
        return changed
