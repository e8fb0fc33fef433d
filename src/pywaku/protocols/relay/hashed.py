"""A message on its pubsub topic, hashed when somebody asks."""

from __future__ import annotations

from pywaku.message import WakuMessage, message_hash


class HashedMessage:
    """What a message is called depends on its topic; a relay that only forwards never needs to know."""

    __slots__ = ("_hash", "message", "pubsub_topic")

    def __init__(self, pubsub_topic: str, message: WakuMessage) -> None:
        self.pubsub_topic = pubsub_topic
        self.message = message
        self._hash: bytes | None = None

    @property
    def message_hash(self) -> bytes:
        """The deterministic message hash (14/WAKU2-MESSAGE)."""
        found = self._hash
        if found is None:
            found = self._hash = message_hash(self.pubsub_topic, self.message)
        return found
