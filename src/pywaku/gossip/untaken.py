"""Messages of our own that no peer has taken yet: to publish one again is no duplicate."""

from __future__ import annotations


class Untaken:
    """Message ids with their topics, at most `limit`; the oldest go first.

    `topics` is there for reading: while it is empty, as on a connected node, there is nothing to look up.
    """

    __slots__ = ("_limit", "evicted", "topics")

    def __init__(self, limit: int) -> None:
        self.topics: dict[bytes, str] = {}
        self.evicted = 0
        self._limit = limit

    def __len__(self) -> int:
        return len(self.topics)

    def add(self, message_id: bytes, topic: str) -> None:
        """No peer has taken a message."""
        if message_id not in self.topics and len(self.topics) >= self._limit:
            del self.topics[next(iter(self.topics))]
            self.evicted += 1
        self.topics[message_id] = topic

    def taken(self, message_id: bytes) -> None:
        """A peer has the message after all, or it is too long ago to matter."""
        self.topics.pop(message_id, None)
