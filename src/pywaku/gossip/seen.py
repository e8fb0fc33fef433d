"""The ids of the messages seen lately (gossipsub v1.0, "Message Cache": the `seen` cache)."""

from __future__ import annotations

from collections import deque


class SeenCache:
    """Message ids, each kept for `ttl_s` from when it was first seen; at most `limit`, the oldest go first.

    `ids` is there for reading: a look-up costs one set membership. Ids are forgotten in buckets of a second.
    """

    __slots__ = ("_buckets", "_limit", "_newest", "_newest_until", "_ttl_s", "evicted", "ids")

    def __init__(self, ttl_s: float, limit: int) -> None:
        self.ids: set[bytes] = set()
        self.evicted = 0
        self._ttl_s = ttl_s
        self._limit = limit
        self._buckets: deque[tuple[float, deque[bytes]]] = deque()
        self._newest: deque[bytes] = deque()
        self._newest_until = float("-inf")

    def __contains__(self, message_id: bytes) -> bool:
        return message_id in self.ids

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, message_id: bytes, now: float) -> None:
        """Note an id that is not in `ids`."""
        if now >= self._newest_until:
            self._newest = deque()
            self._newest_until = now + 1.0
            self._buckets.append((self._newest_until + self._ttl_s, self._newest))
        if len(self.ids) >= self._limit:
            self._evict()
        self._newest.append(message_id)
        self.ids.add(message_id)

    def expire(self, now: float) -> None:
        """Forget what is older than the time to live."""
        while self._buckets and self._buckets[0][0] <= now:
            self.ids.difference_update(self._buckets.popleft()[1])

    def _evict(self) -> None:
        while not self._buckets[0][1]:
            self._buckets.popleft()
        self.ids.discard(self._buckets[0][1].popleft())
        self.evicted += 1
