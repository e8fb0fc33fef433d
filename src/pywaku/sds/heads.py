"""The messages of the log that no other one of the log names: its loose ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pywaku.sds.changes import Rows, Touch, pack, unpack
from pywaku.sds.clock import Clock


class Heads:
    """At most `limit`, the oldest go first.

    The last few messages of a log need not lead to all the others: of two that were sent at the same time,
    one may soon be too far back to be named by anybody, and who has missed it never learns. Whoever names
    the heads as well has, by way of their histories, named all of the log.
    """

    __slots__ = ("_clock", "_heads", "_limit", "_touch", "evicted")

    def __init__(self, limit: int, clock: Clock, touch: Touch) -> None:
        self._limit = limit
        self._clock = clock
        self._touch = touch
        self._heads: dict[str, int] = {}  # with their place in the order
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._heads)

    def all(self) -> Collection[str]:
        """The heads, in the order in which they came into the log."""
        return self._heads.keys()

    def enter(self, message_id: str, history: Collection[str]) -> None:
        """A message with this causal history comes into the log."""
        for named in self._heads.keys() & history:
            self.discard(named)
        self._add(message_id)

    def restore(self, message_ids: Iterable[str]) -> None:
        """Who has named these is gone from the log."""
        for message_id in message_ids:
            if message_id not in self._heads:
                self._add(message_id)

    def _add(self, message_id: str) -> None:
        self._heads[message_id] = self._clock.next_order()
        self._touch(message_id)
        if len(self._heads) > self._limit:
            self.discard(next(iter(self._heads)))
            self.evicted += 1

    def discard(self, message_id: str) -> None:
        """A message is named, or leaves the log."""
        if self._heads.pop(message_id, None) is not None:
            self._touch(message_id)

    def record(self, key: str) -> bytes | None:
        """A row of the saved state."""
        order = self._heads.get(key)
        return None if order is None else pack(order)

    def load(self, rows: Rows) -> None:
        """Take the saved state."""
        for order, message_id in sorted((unpack(row)[0], key) for key, row in rows.items()):
            self._heads[message_id] = order
