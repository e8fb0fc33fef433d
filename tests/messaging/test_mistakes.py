"""Mistakes of applications: they are refused or logged, and cost the node nothing (MESSAGING-API)."""

from __future__ import annotations

import pytest
import trio

import pywaku
from pywaku.errors import InvalidInput
from pywaku.message import WakuMessage
from pywaku.messaging.record import Message, MessageRecord, PlainCodec
from tests.support.waku_nodes import SHARD, TOPIC, open_services, open_waku_world, until

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("mode", ["relay", "edge"])
@pytest.mark.parametrize("content_topic", ["", "/test/1/\ud800/proto", None, 7])
async def test_a_content_topic_that_no_message_can_have_is_refused(mode: str, content_topic: str) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("mine", *services, mode=mode) as node,  # pyright: ignore[reportArgumentType]
    ):
        await until(lambda: node.health != "Unhealthy")
        with pytest.raises(InvalidInput, match="content_topic"):
            await node.subscribe(PlainCodec(content_topic, SHARD))
        assert node.active_subscriptions == ()
        await trio.sleep(5)  # nothing of it has reached anybody


async def test_what_is_unsubscribed_after_the_node_was_closed_is_so_already() -> None:
    async with open_waku_world() as world, open_services(world, 2) as services:
        async with world.node("mine", *services, mode="edge") as node:
            await until(lambda: node.health != "Unhealthy")
            subscription = await node.subscribe(node.codec(TOPIC))
            node.send(node.codec("/test/1/other/proto"), Message(b"watched in the background"))
            await until(lambda: len(node.active_subscriptions) == 2 and not node.pending_requests)
        node.unsubscribe(subscription.id)
        node.unsubscribe(pywaku.BACKGROUND_SUBSCRIPTION)
        subscription.unsubscribe()
        assert node.active_subscriptions == ()
