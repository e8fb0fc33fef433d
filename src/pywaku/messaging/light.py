"""Sending and receiving through service nodes, together: the bare protocols of an edge node."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from pywaku.errors import NodeClosed
from pywaku.message import WakuMessage
from pywaku.messaging.filtered import Filtered
from pywaku.messaging.pushing import Pushing
from pywaku.peers.pools import Pools
from pywaku.protocols.filter import FilterClient, Subscription
from pywaku.protocols.lightpush import LightpushClient
from pywaku.protocols.relay import PublishOutcome
from pywaku.tasks import open_service_nursery


@asynccontextmanager
async def open_light(
    pools: Pools, lightpush: LightpushClient, filter_: FilterClient
) -> AsyncGenerator[LightMessaging]:
    """Send and receive through the nodes of `pools`."""
    async with open_service_nursery() as nursery:
        light = LightMessaging(Pushing(pools, lightpush), Filtered(pools, filter_, nursery))
        try:
            yield light
        finally:
            light.close()


class LightMessaging:
    """Made by `open_light`."""

    def __init__(self, pushing: Pushing, filtered: Filtered) -> None:
        self.pushing = pushing
        self.filtered = filtered
        self._closed = False

    async def publish(
        self, pubsub_topic: str, message: WakuMessage, *, timeout: float = 10.0
    ) -> PublishOutcome:
        """Push a message through the service nodes in use; `peers` is how many of them relayed it.

        Waits up to `timeout` seconds for a service node. Raises `MessageRefused` for a message too large.
        """
        self._require_open()
        return await self.pushing.publish(pubsub_topic, message, timeout=timeout)

    def subscribe(self, pubsub_topic: str, content_topic: str, *, capacity: int = 1000) -> Subscription:
        """Messages of a content topic, from all service nodes in use and each once."""
        self._require_open()
        self.filtered.want(pubsub_topic, content_topic)
        return self.filtered.client.messages(
            pubsub_topic,
            capacity=capacity,
            content_topics=[content_topic],
            on_end=lambda: self.filtered.want_no_more(pubsub_topic, content_topic),
        )

    def close(self) -> None:
        """Want nothing any more; `open_light` does this."""
        self._closed = True
        self.filtered.close()

    def _require_open(self) -> None:
        if self._closed:
            raise NodeClosed("the node is closed")
