"""Watches how well a node is connected, and has others follow (MESSAGING-API, Health Indicator)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

import trio

from pywaku.messaging.events import Events
from pywaku.messaging.health import Health, HealthChange, HealthStatus, ShardPeers, TopicHealth
from pywaku.messaging.reports import Reports
from pywaku.messaging.transport import Transport
from pywaku.network.port import PeerEvent

_EVERY_S: Final = 1.0  # the mesh changes without a word, at heartbeats

OnAllowed = Callable[[Collection[str]], None]
"""Hears on which pubsub topics messages may be sent from now on."""


class HealthWatch:
    """Reads the transport, asks the core, and tells whom it concerns. `run` does the work."""

    def __init__(
        self,
        health: Health,
        transport: Transport,
        pubsub_topics: Collection[str],
        events: Events,
        reports: Reports,
        clock: Callable[[], int],
        on_allowed: Iterable[OnAllowed],
    ) -> None:
        self._health = health
        self._transport = transport
        self._pubsub_topics = tuple(pubsub_topics)
        self._events = events
        self._reports = reports
        self._clock = clock
        self._on_allowed = tuple(on_allowed)
        self._allowed: frozenset[str] = frozenset()
        self._peers: dict[str, ShardPeers] = {}
        self._stirred = trio.Event()

    def peer_event(self, event: PeerEvent) -> None:
        """Hear of a peer from the network."""
        self._stirred.set()

    def wanted(self, pubsub_topic: str, content_topic: str, wanted: bool) -> None:
        """A content topic is subscribed to, or no more."""
        change = self._health.subscribe if wanted else self._health.unsubscribe
        self._follow(change(pubsub_topic, content_topic, trio.current_time()))

    def needed(self, pubsub_topic: str, needed: bool) -> None:
        """There is something to send on a pubsub topic, or no more."""
        change = self._health.need if needed else self._health.need_no_more
        self._follow(change(pubsub_topic, trio.current_time()))

    async def run(self) -> None:
        """Look whenever peers come or go, when a change has lasted long enough, and every second."""
        while True:
            self._stirred = trio.Event()
            self._look(trio.current_time())
            # What has just happened is known to the pools and the mesh a moment later.
            await trio.sleep(0.05)
            self._look(trio.current_time())
            with trio.move_on_at(min(trio.current_time() + _EVERY_S, self._health.next_tick)):
                await self._stirred.wait()

    def _look(self, now: float) -> None:
        changes: list[HealthChange] = []
        if self._transport.offline is not self._health.offline:
            changes += self._health.set_offline(self._transport.offline, now)
        for topic in self._pubsub_topics:
            peers = self._transport.peers(topic)
            if peers != self._peers.get(topic):
                self._peers[topic] = peers
                changes += self._health.report(topic, peers, now)
        changes += self._health.tick(now)
        self._follow(changes)

    def _follow(self, changes: list[HealthChange]) -> None:
        # A shard that nobody is subscribed to may become fit for sending without a change to tell of.
        allowed = frozenset(topic for topic in self._pubsub_topics if self._health.may_send(topic))
        if allowed != self._allowed:
            self._allowed = allowed
            for tell in self._on_allowed:
                tell(allowed)
        if not changes:
            return
        for change in changes:
            self._reports.health(change)
        self._events.emit_health(changes, self._clock())

    @property
    def status(self) -> HealthStatus:
        """The health of the node."""
        return self._health.status

    def of_shard(self, pubsub_topic: str) -> TopicHealth:
        """The health of a shard."""
        return self._health.shard_health(pubsub_topic)

    def of_content_topic(self, pubsub_topic: str, content_topic: str) -> TopicHealth:
        """The health of a content topic."""
        return self._health.content_topic_health(pubsub_topic, content_topic)
