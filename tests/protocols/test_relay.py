"""Relay between simulated hosts (11/WAKU2-RELAY)."""

from __future__ import annotations

import pytest
import trio

from pywaku.message import message_hash
from pywaku.protocols.relay import ReceivedMessage
from tests.support.relays import TOPIC, message, open_nodes


@pytest.mark.virtual
async def test_a_message_published_on_a_topic_reaches_its_subscribers() -> None:
    async with open_nodes(3) as (one, two, three):
        subscriptions = [node.relay.subscribe(TOPIC) for node in (two, three)]
        await trio.sleep(2)
        sent = message("hello")
        outcome = await one.relay.publish(TOPIC, sent)
        assert outcome.peers == 2
        assert outcome.message_hash == message_hash(TOPIC, sent)
        for subscription in subscriptions:
            received = await anext(subscription)
            assert received.message == sent
            assert received.pubsub_topic == TOPIC
            assert received.message_hash == outcome.message_hash
            assert isinstance(received, ReceivedMessage)
