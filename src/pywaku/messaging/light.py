"""Sending and receiving through service nodes: what an edge node does in place of relay.

Messages are pushed through all service nodes in use (two by default) and wanted from all of them, so that one
of them may fail. What became of each request goes to the pools, which replace nodes as the policy says
(REQ-RES-RELIABILITY); this module carries out what they decide.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Final

import trio

from pywaku.errors import (
    NetworkError,
    NodeClosed,
    NotConnected,
    ProtocolNotSupported,
    RequestTimeout,
    StreamReset,
)
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.peers.pool import Ping, Replace, Use
from pywaku.peers.pools import NodePool, PoolEvent, Pools
from pywaku.peers.selection import Need
from pywaku.peers.services import (
    CONNECTION_LOST,
    TIMED_OUT,
    UNSUITABLE,
    WITHOUT_CODE,
    Outcome,
    Service,
)
from pywaku.protocols.filter import FilterClient, Subscription
from pywaku.protocols.lightpush import LightpushClient, PushResult
from pywaku.protocols.relay import MAX_MESSAGE_SIZE, MessageRefused, PublishOutcome
from pywaku.tasks import open_service_nursery
from pywaku.topics import parse_shard_topic
from pywaku.wire.message import encode_message

logger = logging.getLogger(__name__)

_PATIENCE_S: Final = 10.0
_NO_SUBSCRIPTION: Final = 404


@asynccontextmanager
async def open_light(
    pools: Pools, lightpush: LightpushClient, filter_: FilterClient
) -> AsyncGenerator[LightMessaging]:
    """Send and receive through the nodes of `pools`."""
    async with open_service_nursery() as nursery:
        light = LightMessaging(pools, lightpush, filter_, nursery)
        try:
            yield light
        finally:
            light.close()


class LightMessaging:
    """Made by `open_light`."""

    def __init__(
        self, pools: Pools, lightpush: LightpushClient, filter_: FilterClient, nursery: trio.Nursery
    ) -> None:
        self._pools = pools
        self._lightpush = lightpush
        self._filter = filter_
        self._nursery = nursery
        self._shards: dict[str, _FilteredShard] = {}
        self._closed = False

    async def publish(
        self, pubsub_topic: str, message: WakuMessage, *, timeout: float = _PATIENCE_S
    ) -> PublishOutcome:
        """Push a message through the service nodes in use; `peers` is how many of them relayed it.

        Waits up to `timeout` seconds for a service node. Raises `MessageRefused` for a message too large.
        """
        data = encode_message(message)
        if len(data) > MAX_MESSAGE_SIZE:
            text = (
                f"Message size exceeded maximum of {MAX_MESSAGE_SIZE} bytes: it has {len(data)} when encoded"
            )
            raise MessageRefused("size", text, size=len(data))
        if self._closed:
            raise NodeClosed("the node is closed")
        pool = self._pools.open(_need(Service.LIGHTPUSH, pubsub_topic))
        taken = 0

        async def push(peer: PeerId) -> None:
            nonlocal taken
            taken += await self._push(pool, peer, pubsub_topic, message)

        with trio.move_on_after(timeout):
            nodes = await pool.wait_for()
            async with trio.open_nursery() as nursery:
                for peer in nodes:
                    nursery.start_soon(push, peer)
        return PublishOutcome(pubsub_topic, message, sha256(data).digest(), taken)

    async def _push(self, pool: NodePool, peer: PeerId, topic: str, message: WakuMessage) -> bool:
        try:
            result = await self._lightpush.push(peer, topic, message)
        except NetworkError as error:
            logger.debug("lightpush failed: peer=%s error=%s", peer.short(), error)
            pool.report(peer, outcome_of(error))
            return False
        pool.report(peer, _outcome_of_push(result))
        if not result.is_success:
            logger.debug("lightpush refused: peer=%s status=%s", peer.short(), result.status)
        return result.is_success

    def subscribe(self, pubsub_topic: str, content_topic: str, *, capacity: int = 1000) -> Subscription:
        """Messages of a content topic, from all service nodes in use and each once."""
        if self._closed:
            raise NodeClosed("the node is closed")
        shard = self._shards.get(pubsub_topic)
        if shard is None:
            pool = self._pools.open(_need(Service.FILTER, pubsub_topic))
            shard = self._shards[pubsub_topic] = _FilteredShard(
                pool, self._filter, self._nursery, pubsub_topic
            )
        shard.want(content_topic)
        return self._filter.messages(
            pubsub_topic,
            capacity=capacity,
            content_topics=[content_topic],
            on_end=lambda: shard.want_no_more(content_topic),
        )

    def close(self) -> None:
        """Want nothing any more; `open_light` does this."""
        self._closed = True
        for shard in self._shards.values():
            shard.close()


class _FilteredShard:
    """What is wanted of one shard, kept subscribed at whichever nodes the pool has in use."""

    def __init__(
        self, pool: NodePool, client: FilterClient, nursery: trio.Nursery, pubsub_topic: str
    ) -> None:
        self._pool = pool
        self._client = client
        self._nursery = nursery
        self._topic = pubsub_topic
        self._wanted: Counter[str] = Counter()
        self._unwatch: Callable[[], None] = pool.watch(self._heard)

    def want(self, content_topic: str) -> None:
        """Subscribe to it, if it is new, wherever the pool's nodes are."""
        self._wanted[content_topic] += 1
        if self._wanted[content_topic] == 1:
            for peer in self._pool.in_use:
                self._nursery.start_soon(self._subscribe, peer, [content_topic])

    def want_no_more(self, content_topic: str) -> None:
        """Unsubscribe from it, if nobody wants it any more."""
        self._wanted[content_topic] -= 1
        if self._wanted[content_topic] <= 0:
            del self._wanted[content_topic]
            for peer in self._pool.in_use:
                self._nursery.start_soon(self._unsubscribe, peer, content_topic)

    def close(self) -> None:
        """Hear of the pool no more."""
        self._unwatch()

    def _heard(self, event: PoolEvent) -> None:
        match event:
            case Use(peer):
                self._nursery.start_soon(self._subscribe, peer, list(self._wanted))
            case Replace(old):
                self._client.forget(old)
            case Ping(peer):
                self._nursery.start_soon(self._ping, peer)

    async def _subscribe(self, peer: PeerId, content_topics: Iterable[str]) -> None:
        topics = list(content_topics)
        if not topics:
            return
        try:
            result = await self._client.subscribe(peer, self._topic, topics)
            outcome = Outcome.of_status(result.status)
        except NodeClosed:
            return
        except NetworkError as error:
            outcome = outcome_of(error)
        if not outcome.ok:
            logger.debug("filter subscribe failed: peer=%s outcome=%s", peer.short(), outcome)
        self._pool.report(peer, outcome)

    async def _unsubscribe(self, peer: PeerId, content_topic: str) -> None:
        try:
            await self._client.unsubscribe(peer, self._topic, [content_topic])
        except (NetworkError, NodeClosed) as error:
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
        self._pool.report(peer, Outcome.of_status(result.status, ping=True))
        if result.status == _NO_SUBSCRIPTION:
            await self._subscribe(peer, list(self._wanted))


def outcome_of(error: NetworkError) -> Outcome:
    """What a failed request says about a service node."""
    match error:
        case RequestTimeout():
            return TIMED_OUT
        case ProtocolNotSupported():
            return UNSUITABLE
        case NotConnected() | StreamReset():
            return CONNECTION_LOST
        case _:
            return WITHOUT_CODE


def _outcome_of_push(result: PushResult) -> Outcome:
    return WITHOUT_CODE if result.status is None else Outcome.of_status(result.status)


def _need(service: Service, pubsub_topic: str) -> Need:
    cluster, shard = parse_shard_topic(pubsub_topic)
    return Need(service, cluster, frozenset({shard}))
