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


class _Interest:
    """The peers that share a criterion, in the order in which they came."""

    __slots__ = ("criterion", "peers")

    def __init__(self, criterion: Criterion) -> None:
        self.criterion = criterion
        self.peers: dict[PeerId, None] = {}


class _Subscription:
    """All that one peer wants."""

    __slots__ = ("expires_at", "interests")

    def __init__(self) -> None:
        self.expires_at = math.inf
        self.interests: dict[_Interest, None] = {}


class SubscriptionTable:
    """The subscriptions of up to `max_peers` peers with up to `max_criteria` criteria each.

    A subscription lives for `lifetime_s` from the peer's last request that was honoured. `expire` takes those
    out whose time is up; whoever keeps the table calls it in time (`next_expiry`) and before requests.
    """

    def __init__(self, *, max_peers: int = 1000, max_criteria: int = 1000, lifetime_s: float = 300.0) -> None:
        self._max_peers = max_peers
        self._max_criteria = max_criteria
        self._lifetime_s = lifetime_s
        self._subscriptions: OrderedDict[PeerId, _Subscription] = OrderedDict()  # by when they expire
        self._interests: dict[Criterion, _Interest] = {}
        self._pubsub_topics: dict[str, int] = {}  # with how many criteria each has
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
        return self._pubsub_topics.keys()

    @property
    def peers(self) -> Collection[PeerId]:
        """The subscribed peers."""
        return self._subscriptions.keys()

    def of(self, peer: PeerId) -> tuple[Criterion, ...]:
        """The criteria of a peer, in the order in which they came."""
        found = self._subscriptions.get(peer)
        return () if found is None else tuple(interest.criterion for interest in found.interests)

    def matching(self, pubsub_topic: str, content_topic: str) -> Collection[PeerId]:
        """The peers that want a message; a view, not to be kept."""
        found = self._interests.get(Criterion(pubsub_topic, content_topic))
        return () if found is None else found.peers.keys()

    def subscribe(
        self, peer: PeerId, pubsub_topic: str, content_topics: Iterable[str], now: float
    ) -> Subscribed:
        """Add criteria to a peer's subscription, or refresh it with those that it has."""
        found = self._subscriptions.get(peer)
        if found is None and len(self._subscriptions) >= self._max_peers:
            return Subscribed.TOO_MANY_PEERS
        held = {} if found is None else found.interests
        added: list[Criterion] = []
        for content_topic in dict.fromkeys(content_topics):
            criterion = Criterion(pubsub_topic, content_topic)
            interest = self._interests.get(criterion)
            if interest is None or interest not in held:
                added.append(criterion)
        if len(held) + len(added) > self._max_criteria:
            return Subscribed.TOO_MANY_CRITERIA
        if found is None:
            found = self._subscriptions[peer] = _Subscription()
        for criterion in added:
            interest = self._interests.get(criterion)
            if interest is None:
                interest = self._interests[criterion] = _Interest(criterion)
                self._pubsub_topics[pubsub_topic] = self._pubsub_topics.get(pubsub_topic, 0) + 1
            interest.peers[peer] = None
            found.interests[interest] = None
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
        removed = 0
        for content_topic in content_topics:
            interest = self._interests.get(Criterion(pubsub_topic, content_topic))
            if interest is not None and interest in found.interests:
                del found.interests[interest]
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
            del self._interests[interest.criterion]
            pubsub_topic = interest.criterion.pubsub_topic
            self._pubsub_topics[pubsub_topic] -= 1
            if not self._pubsub_topics[pubsub_topic]:
                del self._pubsub_topics[pubsub_topic]
