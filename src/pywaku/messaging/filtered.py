"""Receiving through service nodes: what an edge node does in place of relay.

Messages are wanted from all service nodes in use (two by default), so that one of them may fail. What became
of each request goes to the pools, which replace nodes as the policy says (REQ-RES-RELIABILITY); this module
carries out what they decide: it subscribes, pings, and subscribes anew.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

import trio

from pywaku.errors import NetworkError, NodeClosed
from pywaku.ids import PeerId
from pywaku.messaging.outcomes import need_of, outcome_of
from pywaku.messaging.transport import OnGap
from pywaku.peers.pool import Ping, Replace, Use
from pywaku.peers.pools import NodePool, PoolEvent, Pools
from pywaku.peers.services import Outcome, Service
from pywaku.protocols.filter import FilterClient
from pywaku.tasks import run_guarded

logger = logging.getLogger(__name__)

_NO_SUBSCRIPTION: Final = 404


class Filtered:
    """What is wanted of each shard, kept subscribed at the service nodes in use."""

    def __init__(self, pools: Pools, client: FilterClient, nursery: trio.Nursery) -> None:
        self.client = client
        self._pools = pools
        self._nursery = nursery
        self._shards: dict[str, _FilteredShard] = {}
        self._on_gap: list[OnGap] = []

    def on_gap(self, listener: OnGap) -> None:
        """Tell of each node that has begun to push, or does so anew, and the pubsub topic.

        Before that it did not, and whoever it replaces may have failed for a while before it was noticed.
        """
        self._on_gap.append(listener)

    def _gap(self, pubsub_topic: str) -> None:
        for listener in self._on_gap:
            listener(pubsub_topic)

    def want(self, pubsub_topic: str, content_topic: str) -> None:
        """Have the messages of a content topic pushed, until as many `want_no_more` as `want`."""
        shard = self._shards.get(pubsub_topic)
        if shard is None:
            shard = self._shards[pubsub_topic] = _FilteredShard(
                self.pool(pubsub_topic), self.client, self._nursery, pubsub_topic, self._gap
            )
        shard.want(content_topic)

    def want_no_more(self, pubsub_topic: str, content_topic: str) -> None:
        """Unsubscribe from it, if nobody wants it any more."""
        self._shards[pubsub_topic].want_no_more(content_topic)

    def pool(self, pubsub_topic: str) -> NodePool:
        """The nodes of a shard."""
        return self._pools.open(need_of(Service.FILTER, pubsub_topic))

    async def established(self, pubsub_topic: str, content_topic: str) -> None:
        """Returns once a node has agreed to push what is wanted; never, if none does."""
        await self._shards[pubsub_topic].established(content_topic)

    def close(self) -> None:
        """Hear of the pools no more."""
        for shard in self._shards.values():
            shard.close()


class _FilteredShard:
    """What is wanted of one shard, kept subscribed at whichever nodes the pool has in use."""

    def __init__(
        self,
        pool: NodePool,
        client: FilterClient,
        nursery: trio.Nursery,
        pubsub_topic: str,
        on_gap: OnGap,
    ) -> None:
        self._pool = pool
        self._client = client
        self._nursery = nursery
        self._topic = pubsub_topic
        self._on_gap = on_gap
        self._wanted: Counter[str] = Counter()
        self._agreed: dict[PeerId, set[str]] = {}  # of each node in use, what it has agreed to push
        self._busy: set[PeerId] = set()
        self._changed = trio.Event()
        self._closed = False
        self._unwatch: Callable[[], None] = pool.watch(self._heard)

    def want(self, content_topic: str) -> None:
        """Subscribe to it, if it is new, wherever the pool's nodes are."""
        self._wanted[content_topic] += 1
        if self._wanted[content_topic] == 1:
            self._settle_everywhere()

    def want_no_more(self, content_topic: str) -> None:
        """Unsubscribe from it, if nobody wants it any more."""
        self._wanted[content_topic] -= 1
        if self._wanted[content_topic] <= 0:
            del self._wanted[content_topic]
            self._wake()
            self._settle_everywhere()

    async def established(self, content_topic: str) -> None:
        """Returns once a node has agreed to push it, or nobody wants it any more."""
        while content_topic in self._wanted and not any(
            content_topic in agreed for agreed in self._agreed.values()
        ):
            await self._changed.wait()

    def close(self) -> None:
        """Hear of the pool no more, and ask nobody for anything."""
        self._closed = True
        self._unwatch()

    def _heard(self, event: PoolEvent) -> None:
        match event:
            case Use(peer):
                self._agreed[peer] = set()
                self._settle_at(peer)
            case Replace(old):
                self._client.forget(old)
                self._agreed.pop(old, None)
            case Ping(peer):
                self._nursery.start_soon(run_guarded, self._ping, peer)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _settle_everywhere(self) -> None:
        for peer in self._agreed:
            self._settle_at(peer)

    def _settle_at(self, peer: PeerId) -> None:
        if peer not in self._busy and not self._closed:
            self._busy.add(peer)
            self._nursery.start_soon(run_guarded, self._settle, peer)

    async def _settle(self, peer: PeerId) -> None:
        """Have a node push what is wanted and nothing else.

        One request follows on the other's answer: of two that are under way at once nobody knows which one
        has the last word.
        """
        try:
            while (agreed := self._agreed.get(peer)) is not None:
                if missing := [topic for topic in self._wanted if topic not in agreed]:
                    if not await self._subscribe(peer, agreed, missing):
                        return
                elif excess := [topic for topic in agreed if topic not in self._wanted]:
                    await self._unsubscribe(peer, agreed, excess)
                else:
                    return
        except NodeClosed:
            return
        finally:
            self._busy.discard(peer)

    async def _subscribe(self, peer: PeerId, agreed: set[str], topics: list[str]) -> bool:
        """Subscribe; False if that failed, and it is for the pool to say how to go on."""
        try:
            result = await self._client.subscribe(peer, self._topic, topics)
            outcome = Outcome.of_status(result.status)
        except NetworkError as error:
            outcome = outcome_of(error)
        if self._agreed.get(peer) is not agreed:
            return True  # meanwhile it was replaced, and perhaps taken into use again
        if outcome.ok:
            begins = not agreed
            agreed.update(topics)
            self._wake()
            if begins:
                self._on_gap(self._topic)
        else:
            logger.debug("filter subscribe failed: peer=%s outcome=%s", peer.short(), outcome)
        self._pool.report(peer, outcome)
        return outcome.ok

    async def _unsubscribe(self, peer: PeerId, agreed: set[str], topics: list[str]) -> None:
        agreed.difference_update(topics)
        try:
            await self._client.unsubscribe(peer, self._topic, topics)
        except NetworkError as error:
            logger.debug("filter unsubscribe failed: peer=%s error=%s", peer.short(), error)

    async def _ping(self, peer: PeerId) -> None:
        if not self._wanted:  # nothing is subscribed that a ping could keep alive
            self._pool.report(peer, Outcome.of_status(200, ping=True))
            return
        try:
            result = await self._client.ping(peer)
        except NodeClosed:
            return
        except NetworkError as error:
            outcome = outcome_of(error)
            self._pool.report(peer, Outcome(outcome.result, outcome.code, ping=True))
            return
        if result.status == _NO_SUBSCRIPTION and peer in self._agreed:
            self._agreed[peer] = set()
        self._pool.report(peer, Outcome.of_status(result.status, ping=True))
        if peer in self._agreed:  # it was not replaced for that
            self._settle_at(peer)
