"""The messages of the last heartbeats, for gossip and for those who ask (gossipsub v1.0, "Message Cache")."""

from __future__ import annotations

from collections import deque

from pywaku.ids import PeerId


class CachedMessage:
    """A message as it goes out, and how often each peer has asked for it."""

    __slots__ = ("part", "requests", "topic")

    def __init__(self, topic: str, part: bytes) -> None:
        self.topic = topic
        self.part = part
        self.requests: dict[PeerId, int] | None = None

    def count_request(self, peer: PeerId) -> int:
        """Note that `peer` asks for the message; how often it has by now."""
        if self.requests is None:
            self.requests = {}
        count = self.requests.get(peer, 0) + 1
        self.requests[peer] = count
        return count


class MessageCache:
    """History windows of one heartbeat each; the newest `gossip` of `length` are gossiped about.

    At most `max_bytes` of encoded messages; beyond that the oldest go before their time.
    """

    __slots__ = ("_gossip", "_max_bytes", "_messages", "_windows", "evicted", "size")

    def __init__(self, length: int, gossip: int, max_bytes: int) -> None:
        self._messages: dict[bytes, CachedMessage] = {}
        self._windows: deque[dict[str, list[bytes]]] = deque([{}], maxlen=length)
        self._gossip = gossip
        self._max_bytes = max_bytes
        self.size = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message_id: bytes, topic: str, part: bytes) -> None:
        """Add a message, in its encoded form, to the newest window."""
        if message_id in self._messages:
            return
        self._messages[message_id] = CachedMessage(topic, part)
        window = self._windows[-1]
        ids = window.get(topic)
        if ids is None:
            window[topic] = [message_id]
        else:
            ids.append(message_id)
        self.size += len(part)
        while self.size > self._max_bytes:
            self._evict()

    def get(self, message_id: bytes) -> CachedMessage | None:
        """The message, if it is still there."""
        return self._messages.get(message_id)

    def gossip_ids(self, topic: str) -> list[bytes]:
        """The ids of a topic's messages in the windows that are gossiped about, the newest window first."""
        found: list[bytes] = []
        for window in list(self._windows)[-1 : -self._gossip - 1 : -1]:
            found += window.get(topic, ())
        return found

    def shift(self) -> None:
        """Begin a new window; what falls out of the history is gone."""
        if len(self._windows) == self._windows.maxlen:
            for ids in self._windows[0].values():
                for message_id in ids:
                    self._drop(message_id)
        self._windows.append({})

    def _evict(self) -> None:
        for window in self._windows:
            for topic, ids in window.items():
                half = len(ids) // 2 + 1  # in halves, so that a full cache does not shift a list per message
                for message_id in ids[:half]:
                    self._drop(message_id)
                del ids[:half]
                self.evicted += half
                if not ids:
                    del window[topic]
                return

    def _drop(self, message_id: bytes) -> None:
        self.size -= len(self._messages.pop(message_id).part)
