"""Subscriptions, the background subscription and missed messages on whole nodes (MESSAGING-API)."""

from __future__ import annotations

import logging
import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from pywaku import Message, MessageRecord
from pywaku.errors import InvalidInput, LimitExceeded, UnsupportedTopic
from pywaku.message import WakuMessage
from pywaku.messaging import Node
from pywaku.messaging.record import BACKGROUND_SUBSCRIPTION, PlainCodec
from pywaku.peers.selection import Need
from pywaku.peers.services import Service
from tests.messaging.test_messaging_api import (
    MODES,
    light_of,
    log_queries,
    now_of,
    properties,
    ready,
    send,
)
from tests.support.waku_nodes import CLUSTER, SHARD, TOPIC, open_services, open_waku_world, settled, until

pytestmark = pytest.mark.virtual
OTHER_TOPIC = "/test/1/other/proto"


class Heard:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    def __call__(self, record: MessageRecord) -> None:
        self.payloads.append(record.message.payload)


async def publish(node: Node, payload: bytes, topic: str = TOPIC) -> None:
    """A message of another node."""
    await node.relay.publish(SHARD, WakuMessage(payload, topic, timestamp_ns=now_of(node)))


# subscribe


@pytest.mark.parametrize("mode", MODES)
async def test_subscribe_registers_for_the_messages_of_a_decoder(mode: str) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 3) as services,
        world.node("node", *services, **properties(mode)) as node,
    ):
        await ready(node)
        heard, other = Heard(), Heard()
        one = await node.subscribe(node.codec(TOPIC), heard)
        two = await node.subscribe(node.codec(OTHER_TOPIC), other)
        assert len({one.id, two.id}) == 2
        assert [str(uuid.UUID(each.id)) for each in (one, two)] == [one.id, two.id]
        for number in range(10):
            await publish(services[0], b"%d" % number)
            await publish(services[0], b"other %d" % number, OTHER_TOPIC)
        await trio.sleep(2)
        assert sorted(heard.payloads) == [b"%d" % number for number in range(10)]
        assert sorted(other.payloads) == [b"other %d" % number for number in range(10)]
        assert len(await node.messages.get_by_subscription_id(one.id)) == 10


@pytest.mark.parametrize("mode", MODES)
async def test_subscribe_must_throw_if_the_pubsub_topic_is_not_supported(mode: str) -> None:
    async with open_waku_world() as world, world.node("alone", **properties(mode)) as node:
        with pytest.raises(UnsupportedTopic, match="Cannot create subscription"):
            await node.subscribe(PlainCodec(TOPIC, f"/waku/2/rs/{CLUSTER}/1"))
        with pytest.raises(InvalidInput, match="listener"):
            await node.subscribe(node.codec(TOPIC), "hear")  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidInput, match="capacity"):
            await node.subscribe(node.codec(TOPIC), capacity=0)
        assert node.active_subscriptions == ()


async def test_a_subscription_without_a_service_node_stands_and_begins_when_there_is_one() -> None:
    async with open_waku_world() as world, world.node("edge", mode="edge") as node:
        heard = Heard()
        start = trio.current_time()
        await node.subscribe(node.codec(TOPIC), heard)
        assert trio.current_time() - start == 5.0
        async with open_services(world, 2) as services:
            await node.connect(services[0].addresses[0])
            await ready(node)
            await trio.sleep(2)
            await publish(services[1], b"hello")
            await trio.sleep(2)
            assert heard.payloads == [b"hello"]


async def test_a_subscribe_that_is_given_up_leaves_no_subscription() -> None:
    async with open_waku_world() as world, world.node("edge", mode="edge") as node:
        with trio.move_on_after(1):
            await node.subscribe(node.codec(TOPIC))
        assert node.active_subscriptions == ()


async def test_subscriptions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pywaku.messaging.messaging.MAX_SUBSCRIPTIONS", 2)
    async with open_waku_world() as world, world.node("alone") as node:
        one = await node.subscribe(node.codec(TOPIC))
        await node.subscribe(node.codec(TOPIC))
        with pytest.raises(LimitExceeded):
            await node.subscribe(node.codec(TOPIC))
        one.unsubscribe()
        await node.subscribe(node.codec(TOPIC))


@pytest.mark.parametrize("mode", MODES)
async def test_each_message_comes_once_from_all_sources(mode: str) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 4, stores=2) as services,
        world.node("node", *services, **properties(mode, store_confirmation=True)) as node,
    ):
        heard = Heard()
        await ready(node)
        await node.subscribe(node.codec(TOPIC), heard)
        for number in range(20):
            await publish(services[number % 4], b"%d" % number)
            send(node, b"mine %d" % number)
            await trio.sleep(4)
        await trio.sleep(150)
        assert len(heard.payloads) == len(set(heard.payloads)) == 40


async def test_a_failing_listener_affects_no_subsequent_message(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("node", *services) as node,
    ):
        heard = Heard()

        def hear(record: MessageRecord) -> None:
            heard(record)
            raise ValueError("it does that")

        await ready(node)
        await node.subscribe(node.codec(TOPIC), hear)
        with caplog.at_level(logging.ERROR):
            for number in range(3):
                await publish(services[0], b"%d" % number)
                await trio.sleep(1)
        assert heard.payloads == [b"0", b"1", b"2"]


# unsubscribe, active subscriptions


@pytest.mark.parametrize("mode", MODES)
async def test_once_unsubscribed_the_listener_must_not_receive_any_further_messages(mode: str) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("node", *services, **properties(mode)) as node,
    ):
        ended, heard = Heard(), Heard()
        await ready(node)
        subscription = await node.subscribe(node.codec(TOPIC), ended)
        await node.subscribe(node.codec(TOPIC), heard)
        await publish(services[0], b"before")
        await trio.sleep(1)
        node.unsubscribe(subscription.id)
        await publish(services[0], b"after")
        await trio.sleep(5)
        assert ended.payloads == [b"before"]
        assert heard.payloads == [b"before", b"after"]


async def test_unsubscribe_must_be_ignored_if_there_is_no_such_subscription() -> None:
    async with open_waku_world() as world, world.node("alone") as node:
        subscription = await node.subscribe(node.codec(TOPIC))
        for _ in range(2):
            node.unsubscribe("unknown")
            node.unsubscribe(BACKGROUND_SUBSCRIPTION)
            node.unsubscribe(subscription.id)
            subscription.unsubscribe()
        assert node.active_subscriptions == ()


async def test_active_subscriptions_are_unique_and_those_in_effect() -> None:
    async with (
        open_waku_world() as world,
        world.node("alone", confirm_content_topics=[TOPIC]) as node,
    ):
        subscriptions = [await node.subscribe(node.codec(TOPIC)) for _ in range(3)]
        ids = [subscription.id for subscription in subscriptions]
        assert node.active_subscriptions == (BACKGROUND_SUBSCRIPTION, *ids)
        subscriptions[1].unsubscribe()
        assert node.active_subscriptions == (BACKGROUND_SUBSCRIPTION, ids[0], ids[2])


async def test_an_edge_node_unsubscribes_from_its_service_nodes() -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("edge", *services, mode="edge", subscribe_on_send=False) as node,
    ):
        filters = [service.services.filter for service in services]
        one = await node.subscribe(node.codec(TOPIC))
        await until(lambda: sum(each.peers for each in filters if each) == 2)
        two = await node.subscribe(node.codec(TOPIC))
        one.unsubscribe()
        await trio.sleep(5)
        assert sum(each.peers for each in filters if each) == 2
        two.unsubscribe()
        await until(lambda: sum(each.peers for each in filters if each) == 0)


# Acknowledgement: the background subscription


@pytest.mark.parametrize("mode", MODES)
async def test_confirm_content_topics_are_monitored_from_the_start_under_the_reserved_id(mode: str) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("node", *services, **properties(mode, confirm_content_topics=[TOPIC])) as node,
    ):
        assert BACKGROUND_SUBSCRIPTION == "1692854c-cbde-4afe-901f-1c86ecbd9ea1"
        assert node.active_subscriptions == (BACKGROUND_SUBSCRIPTION,)
        await ready(node)
        await trio.sleep(2)
        await publish(services[0], b"theirs")
        await publish(services[0], b"of no interest", OTHER_TOPIC)
        await trio.sleep(2)
        [record] = await node.messages.get_by_subscription_id(BACKGROUND_SUBSCRIPTION)
        assert (record.message.payload, record.received) == (b"theirs", True)
        assert await node.messages.get_by_content_topic(OTHER_TOPIC) == []
        node.unsubscribe(BACKGROUND_SUBSCRIPTION)  # it can be handled the same way
        assert node.active_subscriptions == ()
        await trio.sleep(1)
        await publish(services[0], b"later")
        await trio.sleep(2)
        assert len(await node.messages.get_by_content_topic(TOPIC)) == 1


@pytest.mark.parametrize("mode", MODES)
async def test_without_filter_confirmation_received_must_not_be_populated_unless_subscribed(
    mode: str,
) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("node", *services, **properties(mode, filter_confirmation=False)) as node,
    ):
        await ready(node)
        send(node, b"mine")
        await publish(services[0], b"theirs")
        await settled([node])
        await trio.sleep(10)
        [record] = await node.messages.get_by_content_topic(TOPIC)
        assert (record.message.payload, record.received) == (b"mine", False)
        assert node.active_subscriptions == ()
        await node.subscribe(node.codec(TOPIC))
        await publish(services[0], b"theirs, later")
        await trio.sleep(2)
        received = [
            each.message.payload for each in await node.messages.get_by_content_topic(TOPIC) if each.received
        ]
        assert b"theirs, later" in received


async def test_with_store_confirmation_alone_the_background_query_marks_what_is_known() -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 3, stores=1) as services,
        world.node(
            "node",
            *services,
            store_confirmation=True,
            filter_confirmation=False,
            confirm_content_topics=[TOPIC],
        ) as node,
    ):
        asked = log_queries(world, "service-2")
        await ready(node)
        send(node, b"mine", ephemeral=False)
        await publish(services[0], b"theirs")
        await trio.sleep(130)
        assert any(by_topic for _, by_topic in asked)
        [record] = await node.messages.get_by_content_topic(TOPIC)
        assert (record.sent, record.stored, record.received) == (True, True, False)


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_first_message_on_a_content_topic_subscribes_to_it_unless_that_is_off(wanted: bool) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 3) as services,
        world.node("edge", *services, mode="edge", subscribe_on_send=wanted) as node,
    ):
        await ready(node)
        send(node, b"first")
        send(node, b"second")
        await settled([node])
        await trio.sleep(2)
        assert node.active_subscriptions == ((BACKGROUND_SUBSCRIPTION,) if wanted else ())
        records = await node.messages.get_by_content_topic(TOPIC)
        assert all(record.sent for record in records)
        assert all(record.received is wanted for record in records)


# Service nodes (REQ-RES-RELIABILITY, Filter)


def log_pings(node: Node) -> list[tuple[float, Any]]:
    """When service nodes are pinged from now on, and which."""
    client = light_of(node)._filtered.client
    pings: list[tuple[float, Any]] = []
    ping = client.ping

    async def logged(peer: Any, **more: Any) -> Any:
        pings.append((trio.current_time(), peer))
        return await ping(peer, **more)

    client.ping = logged
    return pings


async def test_service_nodes_are_pinged_every_minute_and_replaced_after_two_failures() -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 4) as services,
        world.node("edge", *services, mode="edge") as node,
    ):
        pool = node.finding.pools.open(Need(Service.FILTER, CLUSTER, frozenset({0})))
        heard = Heard()
        await node.subscribe(node.codec(TOPIC), heard)
        await trio.sleep(5)
        failing, fine = pool.in_use
        pings = log_pings(node)
        await trio.sleep(180)
        times = [at for at, peer in pings if peer == failing]
        assert len(times) == 3
        assert all(59 <= later - sooner <= 62 for sooner, later in pairwise(times))
        host = world.world.host_of(failing)
        assert host is not None
        client = light_of(node)._filtered.client
        logged = client.ping

        async def silent(peer: Any, **more: Any) -> Any:
            result = await logged(peer, **more)
            return type(result)(503, "no") if peer == failing else result

        client.ping = silent
        pings.clear()
        await trio.sleep(180)
        assert len([peer for _, peer in pings if peer == failing]) == 2
        assert failing not in pool.in_use
        assert fine in pool.in_use
        assert len(pool.in_use) == 2
        [new] = [
            service for service in services if service.peer_id in pool.in_use and service.peer_id != fine
        ]
        assert new.services.filter is not None
        assert new.services.filter.peers == 1  # it was subscribed to at once
        await publish(services[0], b"hello")
        await trio.sleep(2)
        assert heard.payloads == [b"hello"]


async def test_offline_pings_must_be_stopped_and_on_return_nodes_are_pinged_at_once() -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("edge", *services, mode="edge") as node,
    ):
        await node.subscribe(node.codec(TOPIC))
        await trio.sleep(5)
        pings = log_pings(node)
        pools = light_of(node)._pools
        await trio.sleep(50)
        pools.went_offline()
        await trio.sleep(25)
        assert pings == []
        assert node.health == "Unhealthy"
        pools.came_online()
        await trio.sleep(0.5)
        assert {peer for _, peer in pings} == {service.peer_id for service in services}


async def test_the_network_state_is_monitored_and_nothing_is_lost_by_an_outage() -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 3, stores=1) as services,
        world.node("edge", *services, mode="edge") as node,
    ):
        heard = Heard()
        await node.subscribe(node.codec(TOPIC), heard)
        await ready(node)
        world.world.partition([world.host(node)])
        await until(lambda: light_of(node).offline, seconds=300)
        assert node.health == "Unhealthy"
        for number in range(5):
            await publish(services[0], b"%d" % number)
            await trio.sleep(1)
        world.world.heal()
        await until(lambda: len(heard.payloads) == 5, seconds=120)
        assert sorted(heard.payloads) == [b"%d" % number for number in range(5)]


# Missed messages (RELIABILITY-RELAY)


@pytest.mark.parametrize("mode", MODES)
async def test_what_was_missed_while_the_node_was_down_is_fetched(mode: str, tmp_path: Path) -> None:
    kept = properties(mode, records_path=tmp_path / "records.sqlite3")
    heard = Heard()
    async with open_waku_world() as world, open_services(world, 3, stores=1) as services:
        async with world.node("node", *services, **kept) as node:
            await node.subscribe(node.codec(TOPIC), heard)
            await ready(node)
            await publish(services[0], b"live")
            await trio.sleep(30)
        for number in range(250):  # more than two pages
            await publish(services[0], b"%d" % number)
            await trio.sleep(1)
        assert heard.payloads == [b"live"]
        async with world.node("node", *services, **kept) as node:
            await node.subscribe(node.codec(TOPIC), heard)
            await until(lambda: len(heard.payloads) >= 251, seconds=60)
            await trio.sleep(100)
        assert len(heard.payloads) == len(set(heard.payloads)) == 251


async def test_with_fetch_missed_off_nothing_is_fetched() -> None:
    async with open_waku_world() as world, open_services(world, 3, stores=1) as services:
        asked = log_queries(world, "service-2")
        async with world.node("node", *services, fetch_missed=False) as node:
            await node.subscribe(node.codec(TOPIC))
            await ready(node)
            await publish(services[0], b"hello")
            await trio.sleep(300)
            assert asked == []


async def test_what_was_there_before_a_subscription_is_not_fetched() -> None:
    async with open_waku_world() as world, open_services(world, 3, stores=1) as services:
        await publish(services[0], b"history")
        await trio.sleep(100)
        async with world.node("node", *services) as node:
            heard = Heard()
            await node.subscribe(node.codec(TOPIC), heard)
            await ready(node)
            await trio.sleep(100)
            assert heard.payloads == []


async def test_own_messages_reach_own_subscriptions_once() -> None:
    for mode in MODES:
        async with (
            open_waku_world() as world,
            open_services(world, 3, stores=1) as services,
            world.node("node", *services, **properties(mode)) as node,
        ):
            records: list[MessageRecord] = []
            await ready(node)
            await node.subscribe(node.codec(TOPIC), records.append)
            request_id = node.send(node.codec(TOPIC), Message(b"mine"))
            await settled([node])
            await trio.sleep(100)
            assert [record.request_id for record in records] == [request_id]
