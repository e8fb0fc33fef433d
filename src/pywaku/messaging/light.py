"""Sending and receiving through service nodes: the transport of edge nodes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import Final, Literal

from pywaku.ids import PeerId
from pywaku.messaging.filtered import Filtered
from pywaku.messaging.health import ShardPeers
from pywaku.messaging.pushing import Pushing
from pywaku.messaging.record import MessageRecord
from pywaku.messaging.transport import Handover, OnEcho, OnGap
from pywaku.peers.pools import Pools
from pywaku.protocols.filter import FilterClient, Subscription
from pywaku.protocols.lightpush import LightpushClient
from pywaku.tasks import open_service_nursery

_CAPACITY: Final = 4096


@asynccontextmanager
async def open_light(
    pools: Pools, lightpush: LightpushClient, filter_: FilterClient
) -> AsyncGenerator[Light]:
    """Send and receive through the nodes of `pools`."""
    async with open_service_nursery() as nursery:
        light = Light(pools, Pushing(pools, lightpush, nursery), Filtered(pools, filter_, nursery))
        try:
            yield light
        finally:
            light.close()


class Light:
    """The transport of a light node. Made by `open_light`."""

    name: Literal["filter"] = "filter"
    concurrency = 64

    def __init__(self, pools: Pools, pushing: Pushing, filtered: Filtered) -> None:
        self._pools = pools
        self._pushing = pushing
        self._filtered = filtered

    async def send(
        self, record: MessageRecord, *, resend: bool, given_to: Collection[PeerId] = ()
    ) -> Handover:
        """Push it through the service nodes in use, others than those that were given it before."""
        return await self._pushing.push(record.pubsub_topic, record.message, given_to=given_to)

    def listen(self, pubsub_topic: str) -> Subscription:
        """What service nodes push of the shard. The shard's pools begin to look for such nodes."""
        self._filtered.pool(pubsub_topic)
        self._pushing.pool(pubsub_topic)
        subscription = self._filtered.client.messages(pubsub_topic, capacity=_CAPACITY)
        subscription.content_topics = frozenset()
        return subscription

    def on_echo(self, listener: OnEcho) -> None:
        """Service nodes push what this node has sent like any other message."""

    def on_gap(self, listener: OnGap) -> None:
        """Tell of service nodes that begin to push: what came before that, others may have failed to push."""
        self._filtered.on_gap(listener)

    def want(self, pubsub_topic: str, content_topic: str) -> None:
        """Have it pushed, wherever the nodes in use are."""
        self._filtered.want(pubsub_topic, content_topic)

    def want_no_more(self, pubsub_topic: str, content_topic: str) -> None:
        """Unsubscribe, if nobody else wants it."""
        self._filtered.want_no_more(pubsub_topic, content_topic)

    async def established(self, pubsub_topic: str, content_topic: str) -> None:
        """Returns once a service node has agreed to push it; never, if none does."""
        await self._filtered.established(pubsub_topic, content_topic)

    def peers(self, pubsub_topic: str) -> ShardPeers:
        """The service nodes in use."""
        return ShardPeers(
            lightpush=len(self._pushing.pool(pubsub_topic).in_use),
            filter=len(self._filtered.pool(pubsub_topic).in_use),
        )

    @property
    def offline(self) -> bool:
        """Is the network taken to be away?"""
        return self._pools.offline

    def busy_peers(self, pubsub_topic: str) -> Collection[PeerId]:
        """The light push nodes in use: another node should say whether a message is stored."""
        return self._pushing.pool(pubsub_topic).in_use

    def close(self) -> None:
        """Want nothing any more; `open_light` does this."""
        self._filtered.close()
