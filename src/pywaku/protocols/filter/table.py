"""Who wants which messages: the subscriptions of a filter service node, indexed by what messages carry.

Finding the subscribers of a message costs one look-up, however many subscriptions there are.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Iterable
from enum import Enum
from typing import NamedTuple

from pywaku.ids import PeerId


class Criterion(NamedTuple):
    """What a subscription is made of: messages of one content topic, published on one pubsub topic."""

    pubsub_topic: str
    content_topic: str


class Subscribed(Enum):
    """What became of a wish to subscribe. A refused one leaves everything as it was."""

    DONE = "done"
    TOO_MANY_PEERS = "too many peers"
    TOO_MANY_CRITERIA = "too many criteria"
    TOO_MANY_BYTES = "too many bytes"


class _Interest:
    """The peers that share a criterion, in the order in which they came."""

    __slots__ = ("content_topic", "peers", "pubsub_topic")

    def __init__(self, pubsub_topic: str, content_topic: str) -> None:
        self.pubsub_topic = pubsub_topic
        self.content_topic = content_topic
        self.peers: dict[PeerId, None] = {}


class _Subscription:
    """All that one peer wants."""

    __slots__ = ("expires_at", "interests", "size")

    def __init__(self) -> None:
        self.expires_at = math.inf
        self.size = 0  # of the content topics
        self.interests: dict[_Interest, None] = {}


class SubscriptionTable:
    """The subscriptions of up to `max_peers` peers with up to `max_criteria` criteria each.

    The content topics of these have up to `max_bytes` bytes together. A subscription lives for `lifetime_s`
    from the peer's last request that was honoured. `expire` takes those out whose time is up; whoever keeps
    the table calls it in time (`next_expiry`) and before requests.
    """

    def __init__(
        self,
        *,
        max_peers: int = 1000,
        max_criteria: int = 1000,
        max_bytes: int = 256 * 1024,
        lifetime_s: float = 300.0,
    ) -> None:
        self._max_peers = max_peers
        self._max_criteria = max_criteria
        self._max_bytes = max_bytes
        self._lifetime_s = lifetime_s
        self._subscriptions: OrderedDict[PeerId, _Subscription] = OrderedDict()  # by when they expire
        self._interests: dict[str, dict[str, _Interest]] = {}  # by pubsub topic, then by content topic
        self._criteria = 0

    def __len__(self) -> int:
        return len(self._subscriptions)

    def __contains__(self, peer: object) -> bool:
        return peer in self._subscriptions

    @property
    def criteria(self) -> int:
        """The criteria of all peers together."""
        return self._criteria

    @property
    def pubsub_topics(self) -> Collection[str]:
        """The pubsub topics that anyone has criteria for."""
        return self._interests.keys()

    @property
    def peers(self) -> Collection[PeerId]:
        """The subscribed peers."""
        return self._subscriptions.keys()

    def of(self, peer: PeerId) -> tuple[Criterion, ...]:
        """The criteria of a peer, in the order in which they came."""
        found = self._subscriptions.get(peer)
        if found is None:
            return ()
        return tuple(Criterion(interest.pubsub_topic, interest.content_topic) for interest in found.interests)

    def matching(self, pubsub_topic: str, content_topic: str) -> Collection[PeerId]:
        """The peers that want a message; a view, not to be kept."""
        topics = self._interests.get(pubsub_topic)
        found = None if topics is None else topics.get(content_topic)
        return () if found is None else found.peers.keys()

    def subscribe(
        self, peer: PeerId, pubsub_topic: str, content_topics: Iterable[str], now: float
    ) -> Subscribed:
        """Add criteria to a peer's subscription, or refresh it with those that it has."""
        found = self._subscriptions.get(peer)
        if found is None and len(self._subscriptions) >= self._max_peers:
            return Subscribed.TOO_MANY_PEERS
        held = {} if found is None else found.interests
        topics = self._interests.get(pubsub_topic, {})
        added = [
            content_topic
            for content_topic in dict.fromkeys(content_topics)
            if content_topic not in topics or topics[content_topic] not in held
        ]
        if len(held) + len(added) > self._max_criteria:
            return Subscribed.TOO_MANY_CRITERIA
        size = sum(map(_size, added))
        if size and size + (0 if found is None else found.size) > self._max_bytes:
            return Subscribed.TOO_MANY_BYTES
        if found is None:
            found = self._subscriptions[peer] = _Subscription()
        if added:
            topics = self._interests.setdefault(pubsub_topic, topics)
        for content_topic in added:
            interest = topics.get(content_topic)
            if interest is None:
                interest = topics[content_topic] = _Interest(pubsub_topic, content_topic)
            interest.peers[peer] = None
            found.interests[interest] = None
        found.size += size
        self._criteria += len(added)
        self.refresh(peer, now)
        return Subscribed.DONE

    def refresh(self, peer: PeerId, now: float) -> bool:
        """A peer's subscription begins its life anew; False if it has none."""
        found = self._subscriptions.get(peer)
        if found is None:
            return False
        found.expires_at = now + self._lifetime_s
        self._subscriptions.move_to_end(peer)
        return True

    def unsubscribe(self, peer: PeerId, pubsub_topic: str, content_topics: Iterable[str], now: float) -> int:
        """Take criteria out of a peer's subscription, which ends with its last; returns how many it had."""
        found = self._subscriptions.get(peer)
        if found is None:
            return 0
        topics = self._interests.get(pubsub_topic, {})
        removed = 0
        for content_topic in content_topics:
            interest = topics.get(content_topic)
            if interest is not None and interest in found.interests:
                del found.interests[interest]
                found.size -= _size(content_topic)
                self._withdraw(peer, interest)
                removed += 1
        if not found.interests:
            del self._subscriptions[peer]
        elif removed:
            self.refresh(peer, now)
        return removed

    def remove(self, peer: PeerId) -> bool:
        """End a peer's subscription; False if it had none."""
        found = self._subscriptions.pop(peer, None)
        if found is None:
            return False
        for interest in found.interests:
            self._withdraw(peer, interest)
        return True

    @property
    def next_expiry(self) -> float:
        """When the next subscription expires, unless it is refreshed."""
        for found in self._subscriptions.values():
            return found.expires_at
        return math.inf

    def expire(self, now: float) -> list[PeerId]:
        """End the subscriptions whose time is up; returns whose they were."""
        expired: list[PeerId] = []
        for peer, found in self._subscriptions.items():
            if found.expires_at > now:
                break
            expired.append(peer)
        for peer in expired:
            self.remove(peer)
        return expired

    def _withdraw(self, peer: PeerId, interest: _Interest) -> None:
        self._criteria -= 1
        del interest.peers[peer]
        if not interest.peers:
            topics = self._interests[interest.pubsub_topic]
            del topics[interest.content_topic]
            if not topics:
                del self._interests[interest.pubsub_topic]


def _size(content_topic: str) -> int:
    return len(content_topic) if content_topic.isascii() else len(content_topic.encode())
