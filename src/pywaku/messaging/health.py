"""How well a node, its shards and its content topics are connected (MESSAGING-API, Health Indicator). Pure.

What is connected goes in with `now`; changes of health come out. `Health` sleeps on nothing: call `tick` at
`next_tick`. docs/health-and-events.md explains the criteria.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from pywaku.errors import InvalidInput
from pywaku.messaging.settling import Settling

SETTLE_S: Final = 2.0
"""How long a change between healthy and minimally healthy has to last before it counts."""
HEALTHY_SERVICE_NODES: Final = 2
"""Service nodes of either kind, filter and lightpush, that make an edge node healthy."""
HEALTHY_MESH_PEERS: Final = 6
"""Mesh peers that make a relay node healthy."""


class ConnectionStatus(StrEnum):
    """The health of a node by its later names (`connection_status_change`)."""

    DISCONNECTED = "Disconnected"
    PARTIALLY_CONNECTED = "PartiallyConnected"
    CONNECTED = "Connected"


class HealthStatus(StrEnum):
    """The health of a node; equal to its text, as in `node.health == "MinimallyHealthy"`."""

    UNHEALTHY = "Unhealthy"
    MINIMALLY_HEALTHY = "MinimallyHealthy"
    HEALTHY = "Healthy"

    @property
    def connection_status(self) -> ConnectionStatus:
        """The same by its later name."""
        return _CONNECTION_STATUS[self]


class TopicHealth(StrEnum):
    """The health of a shard, or of a content topic."""

    NOT_SUBSCRIBED = "NOT_SUBSCRIBED"
    UNHEALTHY = "UNHEALTHY"
    MINIMALLY_HEALTHY = "MINIMALLY_HEALTHY"
    SUFFICIENTLY_HEALTHY = "SUFFICIENTLY_HEALTHY"


_CONNECTION_STATUS: Final = {
    HealthStatus.UNHEALTHY: ConnectionStatus.DISCONNECTED,
    HealthStatus.MINIMALLY_HEALTHY: ConnectionStatus.PARTIALLY_CONNECTED,
    HealthStatus.HEALTHY: ConnectionStatus.CONNECTED,
}
_TOPIC_HEALTH: Final = {
    HealthStatus.UNHEALTHY: TopicHealth.UNHEALTHY,
    HealthStatus.MINIMALLY_HEALTHY: TopicHealth.MINIMALLY_HEALTHY,
    HealthStatus.HEALTHY: TopicHealth.SUFFICIENTLY_HEALTHY,
}


@dataclass(frozen=True, slots=True)
class ShardHealthChange:
    """The health of a shard changed."""

    pubsub_topic: str
    health: TopicHealth


@dataclass(frozen=True, slots=True)
class ContentTopicHealthChange:
    """The health of a content topic changed."""

    pubsub_topic: str
    content_topic: str
    health: TopicHealth


HealthChange = HealthStatus | ShardHealthChange | ContentTopicHealthChange
"""What changed: the node (its new status), a shard or a content topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardPeers:
    """What a node is connected to on one shard, as far as its mode uses it."""

    filter: int = 0
    """Service nodes in use for filter (edge)."""
    lightpush: int = 0
    """Service nodes in use for lightpush (edge)."""
    mesh: int = 0
    """Peers in the mesh (relay)."""


def shard_status(mode: Literal["edge", "relay"], peers: ShardPeers) -> HealthStatus:
    """The criteria of MESSAGING-API, "Health states", for one shard.

    What they leave open: a node that can send and not receive, or the reverse, is unhealthy ("reception,
    sending, or both", says `Disconnected`); one to three mesh peers are minimally healthy ("at least one peer
    on the topic", says the later `TopicHealth`), so that a network of a few nodes is able to send.
    """
    if mode == "relay":
        count, healthy = peers.mesh, HEALTHY_MESH_PEERS
    else:
        count, healthy = min(peers.filter, peers.lightpush), HEALTHY_SERVICE_NODES
    if count <= 0:
        return HealthStatus.UNHEALTHY
    return HealthStatus.HEALTHY if count >= healthy else HealthStatus.MINIMALLY_HEALTHY


def node_status(shards: Iterable[HealthStatus]) -> HealthStatus:
    """The status of a node from those of its shards: healthy or unhealthy if all of them are.

    One dead shard among several makes a node minimally healthy and does not stop what goes over the others;
    `Health.may_send` tells them apart.
    """
    different = set(shards)
    if len(different) > 1:
        return HealthStatus.MINIMALLY_HEALTHY
    return different.pop() if different else HealthStatus.UNHEALTHY


class _Shard:
    """What is known of one shard."""

    __slots__ = ("configured", "content_topics", "needed", "peers", "pubsub_topic", "relayed", "settling")

    def __init__(self, pubsub_topic: str, settle_s: float, *, configured: bool, relayed: bool) -> None:
        self.pubsub_topic = pubsub_topic
        self.configured = configured
        self.relayed = relayed
        self.peers = ShardPeers()
        self.needed = 0
        self.content_topics: dict[str, int] = {}
        self.settling = Settling(HealthStatus.UNHEALTHY, settle_s)

    @property
    def health(self) -> TopicHealth:
        """The health of the shard: a relay node is subscribed to its own shards from the start."""
        if self.relayed or self.content_topics:
            return _TOPIC_HEALTH[self.settling.status]
        return TopicHealth.NOT_SUBSCRIBED

    def changes(self) -> list[HealthChange]:
        """What to say of it after its status changed."""
        health = self.health
        if health is TopicHealth.NOT_SUBSCRIBED:
            return []
        found: list[HealthChange] = [ShardHealthChange(self.pubsub_topic, health)]
        found += [ContentTopicHealthChange(self.pubsub_topic, topic, health) for topic in self.content_topics]
        return found


class Health:
    """The health of a node, of its shards and of its content topics.

    The node's status comes from the shards it needs: those with a subscription or something to send. While it
    needs none these are the configured ones. Every method that takes `now` returns what changed, the node
    first. One entry is kept of each shard (a cluster has 1024).
    """

    def __init__(
        self, mode: Literal["edge", "relay"], pubsub_topics: Iterable[str], *, settle_s: float = SETTLE_S
    ) -> None:
        if not settle_s >= 0:
            raise InvalidInput(f"settle_s: is at least 0, not {settle_s}")
        self.mode: Literal["edge", "relay"] = mode
        self._settle_s = settle_s
        self._offline = False
        self._node = Settling(HealthStatus.UNHEALTHY, settle_s)
        self._shards: dict[str, _Shard] = {}
        for topic in pubsub_topics:
            self._shards[topic] = _Shard(topic, settle_s, configured=True, relayed=mode == "relay")

    @property
    def status(self) -> HealthStatus:
        """The health of the node."""
        return self._node.status

    @property
    def offline(self) -> bool:
        """Whether the node was said to be offline."""
        return self._offline

    @property
    def next_tick(self) -> float:
        """When to call `tick`, unless something else is called before; infinity: never."""
        return min((self._node.due, *(shard.settling.due for shard in self._shards.values())))

    def shard_health(self, pubsub_topic: str) -> TopicHealth:
        """The health of a shard."""
        shard = self._shards.get(pubsub_topic)
        return TopicHealth.NOT_SUBSCRIBED if shard is None else shard.health

    def content_topic_health(self, pubsub_topic: str, content_topic: str) -> TopicHealth:
        """The health of a content topic: that of its shard, once it is subscribed to."""
        shard = self._shards.get(pubsub_topic)
        if shard is None or content_topic not in shard.content_topics:
            return TopicHealth.NOT_SUBSCRIBED
        return shard.health

    def may_send(self, pubsub_topic: str) -> bool:
        """Is there any use in sending on this shard? Neither it nor the node is unhealthy."""
        shard = self._shards.get(pubsub_topic)
        return (
            shard is not None
            and shard.settling.status is not HealthStatus.UNHEALTHY
            and self.status is not HealthStatus.UNHEALTHY
        )

    def report(self, pubsub_topic: str, peers: ShardPeers, now: float) -> list[HealthChange]:
        """The node is connected like this on a shard."""
        shard = self._shard(pubsub_topic)
        shard.peers = peers
        return self._update([shard], now)

    def set_offline(self, offline: bool, now: float) -> list[HealthChange]:
        """The network is gone, or back: offline everything is unhealthy, whatever is said to be connected."""
        self._offline = offline
        return self._update(self._shards.values(), now)

    def need(self, pubsub_topic: str, now: float) -> list[HealthChange]:
        """There is something to send on a shard, until as many `need_no_more` as `need`."""
        shard = self._shard(pubsub_topic)
        shard.needed += 1
        return self._update([shard], now)

    def need_no_more(self, pubsub_topic: str, now: float) -> list[HealthChange]:
        """It is sent, or given up."""
        shard = self._shards.get(pubsub_topic)
        if shard is None:
            return []
        shard.needed = max(0, shard.needed - 1)
        return self._update([shard], now)

    def subscribe(self, pubsub_topic: str, content_topic: str, now: float) -> list[HealthChange]:
        """A content topic is subscribed to, until as many `unsubscribe` as `subscribe`."""
        shard = self._shard(pubsub_topic)
        before = shard.health
        count = shard.content_topics.get(content_topic, 0)
        shard.content_topics[content_topic] = count + 1
        found = self._update([shard], now)
        if count == 0 and ContentTopicHealthChange(pubsub_topic, content_topic, shard.health) not in found:
            if before is TopicHealth.NOT_SUBSCRIBED:
                found.append(ShardHealthChange(pubsub_topic, shard.health))
            found.append(ContentTopicHealthChange(pubsub_topic, content_topic, shard.health))
        return found

    def unsubscribe(self, pubsub_topic: str, content_topic: str, now: float) -> list[HealthChange]:
        """A content topic is subscribed to no longer, or by one less."""
        shard = self._shards.get(pubsub_topic)
        if shard is None:
            return []
        count = shard.content_topics.pop(content_topic, 0)
        if count > 1:
            shard.content_topics[content_topic] = count - 1
        found = self._update([shard], now)
        if count == 1:
            found.append(ContentTopicHealthChange(pubsub_topic, content_topic, TopicHealth.NOT_SUBSCRIBED))
            if shard.health is TopicHealth.NOT_SUBSCRIBED:
                found.append(ShardHealthChange(pubsub_topic, TopicHealth.NOT_SUBSCRIBED))
        return found

    def tick(self, now: float) -> list[HealthChange]:
        """It is now this late."""
        return self._update(self._shards.values(), now)

    def _shard(self, pubsub_topic: str) -> _Shard:
        shard = self._shards.get(pubsub_topic)
        if shard is None:
            shard = _Shard(pubsub_topic, self._settle_s, configured=False, relayed=False)
            self._shards[pubsub_topic] = shard
        return shard

    def _update(self, shards: Iterable[_Shard], now: float) -> list[HealthChange]:
        changed = [shard for shard in shards if shard.settling.update(self._criterion(shard), now)]
        found: list[HealthChange] = []
        if self._node.update(self._node_criterion(), now):
            found.append(self._node.status)
        for shard in changed:
            found += shard.changes()
        return found

    def _criterion(self, shard: _Shard) -> HealthStatus:
        return HealthStatus.UNHEALTHY if self._offline else shard_status(self.mode, shard.peers)

    def _node_criterion(self) -> HealthStatus:
        shards = self._shards.values()
        needed = [shard for shard in shards if shard.needed or shard.content_topics]
        needed = needed or [shard for shard in shards if shard.configured]
        return node_status(shard.settling.reading for shard in needed)
