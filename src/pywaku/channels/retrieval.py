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

    A message without a retrieval hint cannot be asked for (SDS, retrieval hints).
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._asked: dict[str, tuple[int, float]] = {}  # how often, and when again

    def due(self, missing: Iterable[HistoryEntry], now: float) -> list[bytes]:
        """The hashes to ask for, those missing for longest first; what is missing no more is forgotten."""
        asked: dict[str, tuple[int, float]] = {}
        hashes: list[bytes] = []
        for entry in missing:
            times, again_at = self._asked.get(entry.message_id, (0, now))
            if entry.retrieval_hint and again_at <= now and len(hashes) < BATCH:
                hashes.append(entry.retrieval_hint)
                again_at = now + self._every_s * 2 ** min(times, _LONGEST_DOUBLINGS)
                times += 1
            asked[entry.message_id] = (times, again_at)
        self._asked = asked
        return hashes

    def beyond_hints(self, missing: Iterable[HistoryEntry]) -> frozenset[str]:
        """Those that were asked for in vain, or could not be asked for, when `due` was called last."""
        found: set[str] = set()
        for entry in missing:
            times = self._asked.get(entry.message_id, (0, 0.0))[0]
            if times or (entry.message_id in self._asked and not entry.retrieval_hint):
                found.add(entry.message_id)
        return frozenset(found)


class Search:
    """Whether to look through what stores have of the content topic, for messages that hints do not lead to.

    Not all hints are true: js-waku stamps (and encrypts) a message once for its hint and once more to send
    it. A search that finds nothing doubles the pause before the next, so that nobody who makes messages up
    has us search all the time.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._vain = 0
        self._again_at = float("-inf")

    def due(self, sought: frozenset[str], now: float) -> bool:
        """Is it time, with these to look for?"""
        return bool(sought) and now >= self._again_at

    def done(self, now: float, *, found: bool) -> None:
        """There was one."""
        self._vain = 0 if found else min(self._vain + 1, _LONGEST_DOUBLINGS)
        self._again_at = now + self._every_s * 2**self._vain


class QueryOnConnect:
    """Whether to ask stores for the latest messages (RELIABLE-CHANNEL-API, Query on connect).

    That is when a store can be reached, and there was no such query yet, or an outage since the last one
    began, or it is longer ago than a threshold. After one that fails there is a pause, longer each time.
    """

    def __init__(self, threshold_s: float) -> None:
        self._threshold_s = threshold_s
        self._last = float("-inf")
        self._wanted = True
        self._vain = 0
        self._again_at = float("-inf")

    def outage(self) -> None:
        """The node could not reach anybody."""
        self._wanted = True

    def due(self, now: float, *, store_available: bool) -> bool:
        """Is it time?"""
        if not store_available or now < self._again_at:
            return False
        return self._wanted or now - self._last >= self._threshold_s

    def begun(self) -> None:
        """Stores are being asked."""
        self._wanted = False

    def done(self, now: float) -> None:
        """They have answered."""
        self._last = now
        self._vain = 0

    def failed(self, now: float) -> None:
        """None has answered."""
        self._wanted = True
        self._vain = min(self._vain + 1, _LONGEST_DOUBLINGS)
        self._again_at = now + 2**self._vain
