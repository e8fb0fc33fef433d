"""When stores are asked for what a channel misses, and for its latest messages, as plain machines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pywaku.wire.sds import HistoryEntry

BATCH: Final = 100
"""Messages that are asked for at a time."""
_LONGEST_DOUBLINGS: Final = 6


class MissingMessages:
    """Which missing messages to ask stores for now: each at intervals that double, so that none is too often.

    Of a message without a retrieval hint no store can know (SDS, retrieval hints).
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._asked: dict[str, tuple[int, float]] = {}  # how often, and when again

    def due(self, missing: Iterable[HistoryEntry], now: float) -> list[bytes]:
        """The hashes to ask for, those missing for longest first; what is missing no more is forgotten."""
        asked: dict[str, tuple[int, float]] = {}
        hashes: list[bytes] = []
        for entry in missing:
            if not entry.retrieval_hint:
                continue
            times, again_at = self._asked.get(entry.message_id, (0, now))
            if again_at <= now and len(hashes) < BATCH:
                hashes.append(entry.retrieval_hint)
                again_at = now + self._every_s * 2 ** min(times, _LONGEST_DOUBLINGS)
                times += 1
            asked[entry.message_id] = (times, again_at)
        self._asked = asked
        return hashes


class QueryOnConnect:
    """Whether to ask stores for the latest messages (RELIABLE-CHANNEL-API, Query on connect).

    That is when a store can be reached, and there was no such query yet, or an outage since the last one, or
    it is longer ago than a threshold.
    """

    def __init__(self, threshold_s: float) -> None:
        self._threshold_s = threshold_s
        self._last: float | None = None
        self._outage = False

    def outage(self) -> None:
        """The node could not reach anybody."""
        self._outage = True

    def due(self, now: float, *, store_available: bool) -> bool:
        """Is it time?"""
        if not store_available:
            return False
        return self._last is None or self._outage or now - self._last >= self._threshold_s

    def done(self, now: float) -> None:
        """It was asked, and answered."""
        self._last = now
        self._outage = False
