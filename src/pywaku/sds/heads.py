"""The messages of the log that no other one of the log names: its loose ends."""

from __future__ import annotations

from collections.abc import Collection

from pywaku.sds.changes import Rows, Touch, pack, unpack

_ROW = ""


class Heads:
    """At most `limit`, the oldest go first.

    The last few messages of a log need not lead to all the others: of two that were sent at the same time,
    one may soon be too far back to be named by anybody, and who has missed it never learns. Whoever names
    the heads as well has, by way of their histories, named all of the log.
    """

    __slots__ = ("_heads", "_limit", "_touch", "evicted")

    def __init__(self, limit: int, touch: Touch) -> None:
        self._limit = limit
        self._touch = touch
        self._heads: dict[str, None] = {}
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._heads)

    def all(self) -> Collection[str]:
        """The heads, in the order in which they came into the log."""
        return self._heads.keys()

    def enter(self, message_id: str, history: Collection[str]) -> None:
        """A message with this causal history comes into the log."""
        for named in self._heads.keys() & history:
            del self._heads[named]
        self._heads[message_id] = None
        if len(self._heads) > self._limit:
            del self._heads[next(iter(self._heads))]
            self.evicted += 1
        self._touch(_ROW)

    def discard(self, message_id: str) -> None:
        """A message leaves the log."""
        if message_id in self._heads:
            del self._heads[message_id]
            self._touch(_ROW)

    def record(self, key: str) -> bytes | None:
        """A row of the saved state."""
        return pack(*self._heads)

    def load(self, rows: Rows) -> None:
        """Take the saved state."""
        if _ROW in rows:
            self._heads = dict.fromkeys(unpack(rows[_ROW]))
