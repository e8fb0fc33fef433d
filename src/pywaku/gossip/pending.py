"""Messages that await their verdict, and what is remembered of verdicts for duplicates that come late."""

from __future__ import annotations

from pywaku.gossip.params import GossipParams
from pywaku.gossip.seen import SeenCache
from pywaku.gossip.state import PeerState, TopicState


class PendingMessage:
    """A message under validation, and who has sent it so far, the first sender first."""

    __slots__ = ("data", "received_at", "senders", "topic")

    def __init__(self, topic: TopicState, data: bytes, sender: PeerState, received_at: float) -> None:
        self.topic = topic
        self.data = data
        self.senders = [sender]
        self.received_at = received_at


class Verdicts:
    """The table of messages under validation, bounded in number and bytes; when full, it takes no more.

    Of rejected messages the ids are kept (their later senders are as guilty as the first, P4). Of accepted
    ones the senders are kept for as long as a duplicate counts as delivered in the mesh (P3), if it counts.
    """

    __slots__ = ("_limit", "_max_bytes", "_recent", "_ttl_s", "pending", "rejected", "size")

    def __init__(self, params: GossipParams) -> None:
        self.pending: dict[bytes, PendingMessage] = {}
        self.size = 0
        self.rejected = SeenCache(params.seen_ttl_s, params.max_pending)
        self._recent: dict[bytes, tuple[float, PendingMessage]] = {}
        self._limit = params.max_pending
        self._max_bytes = params.max_pending_bytes
        self._ttl_s = params.seen_ttl_s

    def has_room(self, size: int) -> bool:
        """Whether a message of `size` bytes can be added."""
        return len(self.pending) < self._limit and self.size + size <= self._max_bytes

    def add(self, message_id: bytes, message: PendingMessage) -> None:
        """A message goes into validation."""
        self.pending[message_id] = message
        self.size += len(message.data)

    def take(self, message_id: bytes) -> PendingMessage | None:
        """A message comes out of validation."""
        message = self.pending.pop(message_id, None)
        if message is not None:
            self.size -= len(message.data)
        return message

    def accepted(self, message_id: bytes, message: PendingMessage, now: float) -> None:
        """Note for P3 what each sender of an accepted message is due."""
        stats = message.senders[0].score.in_topic(message.topic.name)
        if not stats.params.counts_mesh_deliveries:
            return
        for sender in message.senders[1:]:
            sender.score.delivered_in_mesh(message.topic.name)
        if len(self._recent) < self._limit:
            self._recent[message_id] = (now + stats.params.mesh_message_deliveries_window_s, message)

    def late_duplicate(self, message_id: bytes, sender: PeerState, now: float) -> None:
        """A peer sends a message whose verdict is known."""
        recent = self._recent.get(message_id)
        if recent is None:
            return
        until, message = recent
        if now <= until and sender not in message.senders:
            message.senders.append(sender)
            sender.score.delivered_in_mesh(message.topic.name)

    def expire(self, now: float) -> int:
        """Forget what is over; how many messages never got a verdict."""
        self.rejected.expire(now)
        if self._recent:
            self._recent = {key: entry for key, entry in self._recent.items() if now <= entry[0]}
        old: list[bytes] = []
        for message_id, message in self.pending.items():
            if message.received_at + self._ttl_s > now:
                break
            old.append(message_id)
        for message_id in old:
            self.take(message_id)
        return len(old)
