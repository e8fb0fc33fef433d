"""Configuration, sending and acknowledgement on whole nodes (MESSAGING-API), on virtual time."""

from __future__ import annotations

import uuid
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from pywaku import Message, MessageRecord
from pywaku.errors import InvalidInput, LimitExceeded, NodeClosed, UnsupportedTopic
from pywaku.message import WakuMessage
from pywaku.messaging import Node
from pywaku.messaging.config import NodeProperties
from pywaku.messaging.light import Light
from pywaku.messaging.record import PlainCodec
from pywaku.protocols.store import StoreQuery
from pywaku.wire import filter as filter_wire
from pywaku.wire import lightpush, peer_exchange, relay
from pywaku.wire import store as store_wire
from tests.support.waku_nodes import (
    CLUSTER,
    SHARD,
    TOPIC,
    WakuWorld,
    open_services,
    open_waku_world,
    settled,
    until,
)

pytestmark = pytest.mark.virtual
MODES = ["edge", "relay"]


def light_of(node: Node) -> Light:
    """The transport of an edge node."""
    transport = node.parts.messaging._wanting._transport
    assert isinstance(transport, Light)
    return transport


def properties(mode: str, **more: Any) -> NodeProperties:
    """A node of that mode."""
    return NodeProperties(mode=mode, **more)  # pyright: ignore[reportArgumentType]


async def record_of(node: Node, request_id: str) -> MessageRecord:
    """What is known of a request."""
    record = await node.messages.get_by_request_id(request_id)
    assert record is not None
    return record


async def ready(node: Node) -> None:
    """Wait until it can send."""
    await until(lambda: node.health != "Unhealthy")


def send(node: Node, payload: bytes = b"hello", **fields: Any) -> str:
    """A message on `TOPIC`."""
    return node.send(node.codec(TOPIC), Message(payload, **fields))


def log_queries(world: WakuWorld, name: str) -> list[tuple[float, bool]]:
    """When a store is asked from now on, and whether by topics (else by hashes)."""
    archive = world.archives[name]
    asked: list[tuple[float, bool]] = []
    query = archive.query

    async def logged(what: Any) -> Any:
        asked.append((round(trio.current_time(), 1), not what.hashes))
        return await query(what)

    archive.query = logged  # pyright: ignore[reportAttributeAccessIssue]
    return asked


# Configuration


async def test_an_edge_node_employs_lightpush_filter_peer_exchange_and_store() -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 3, stores=1) as services,
        world.node("edge", *services, **properties("edge", store_confirmation=True)) as node,
    ):
        used: set[str] = set()
        host = world.host(node)
        open_stream = host.open_stream

        async def spy(peer: Any, *protocols: str, **more: Any) -> Any:
            stream = await open_stream(peer, *protocols, **more)
            used.add(stream.protocol)
            return stream

        host.open_stream = spy  # pyright: ignore[reportAttributeAccessIssue]
        await node.subscribe(node.codec(TOPIC))
        await ready(node)
        request_id = send(node)
        await settled([node])
        assert (await record_of(node, request_id)).stored
        node.finding.book.need_more()
        await trio.sleep(120)
        assert used >= {
            lightpush.PROTOCOL,
            filter_wire.SUBSCRIBE_PROTOCOL,
            peer_exchange.PROTOCOL,
            store_wire.PROTOCOL,
        }
        assert relay.PROTOCOL not in used


async def test_a_relay_node_deploys_relay_hosts_lightpush_and_filter_and_serves_peer_exchange() -> None:
    async with open_waku_world() as world, world.node("relay") as node, world.node("other", node) as other:
        await until(lambda: node.peer_id in other.peers and other.network.peers[node.peer_id].identified)
        assert other.network.peers[node.peer_id].protocols >= {
            relay.PROTOCOL,
            lightpush.PROTOCOL,
            filter_wire.SUBSCRIBE_PROTOCOL,
            peer_exchange.PROTOCOL,
        }


# send


@pytest.mark.parametrize("mode", MODES)
async def test_send_must_return_the_request_id_a_guid_at_once(mode: str) -> None:
    async with open_waku_world() as world, world.node("alone", **properties(mode)) as node:
        before = trio.current_time()
        ids = [send(node, b"%d" % number) for number in range(100)]
        assert trio.current_time() == before
        assert len(set(ids)) == 100
        assert [str(uuid.UUID(each)) for each in ids] == ids
        assert node.pending_requests == tuple(ids)


@pytest.mark.parametrize("mode", MODES)
async def test_send_must_throw_if_the_pubsub_topic_is_not_supported(mode: str) -> None:
    async with open_waku_world() as world, world.node("alone", **properties(mode)) as node:
        for topic in (f"/waku/2/rs/{CLUSTER}/1", "/waku/2/rs/43/0", "string"):
            with pytest.raises(UnsupportedTopic, match=f"Target pubsubTopic '{topic}' not supported"):
                node.send(PlainCodec(TOPIC, topic), Message(b"hello"))
        assert node.pending_requests == ()
        assert await node.messages.get_by_content_topic(TOPIC) == []


async def test_send_takes_an_encoder_and_a_message() -> None:
    class Confused(PlainCodec):
        def encode(self, message: Message, now_ns: int) -> WakuMessage:
            return WakuMessage(message.payload, "/another/1/topic/proto")

    async with open_waku_world() as world, world.node("alone") as node:
        with pytest.raises(InvalidInput, match="send takes a Message, not a bytes"):
            node.send(node.codec(TOPIC), b"hello")  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidInput, match="made a message of /another"):
            node.send(Confused(TOPIC, SHARD), Message(b"hello"))


async def test_what_a_message_omits_is_supplied_by_the_encoder_and_the_rest_is_kept() -> None:
    async with open_waku_world() as world, world.node("alone") as node:
        now = node.parts.messaging._clock()
        bare = await record_of(node, send(node, b"bare"))
        assert bare.message == WakuMessage(b"bare", TOPIC, timestamp_ns=now, ephemeral=False)
        full = await record_of(node, send(node, b"full", meta=b"m", timestamp_ns=5, ephemeral=True))
        assert full.message == WakuMessage(b"full", TOPIC, meta=b"m", timestamp_ns=5, ephemeral=True)


async def test_edge_must_use_lightpush_to_send_and_relay_must_use_relay() -> None:
    async with open_waku_world() as world, open_services(world, 2) as services:
        counters = [node.services.lightpush.counters for node in services if node.services.lightpush]
        async with world.node("relay", *services) as node:
            await ready(node)
            send(node, b"by relay")
            await settled([node])
            assert sum(each.relayed for each in counters) == 0
        async with world.node("edge", *services, mode="edge") as node:
            await ready(node)
            send(node, b"by lightpush")
            await settled([node])
            assert sum(each.relayed for each in counters) > 0


async def test_a_message_is_tried_again_after_1_2_and_4_seconds_and_then_has_an_error() -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("edge", *services, mode="edge") as node,
    ):
        await ready(node)
        tried: list[float] = []
        client = light_of(node)._pushing._lightpush

        async def refuse(*_: Any, **__: Any) -> Any:
            tried.append(trio.current_time())
            return lightpush_result(429)

        client.push = refuse
        errors: list[MessageRecord] = []
        node.events.add_event_listener("message:error", lambda event: errors.append(event.detail))
        start = trio.current_time()
        request_id = send(node)
        await settled([node])
        times = sorted({round(at - start, 2) for at in tried})
        assert times == pytest.approx([0, 1, 3, 7], abs=0.05)
        record = await record_of(node, request_id)
        assert (record.sending, record.sent, record.attempts) == (False, False, 4)
        assert "429" in (record.error or "")
        assert [error.request_id for error in errors] == [request_id]


def lightpush_result(status: int) -> Any:
    """An answer of a light push node."""
    from pywaku.protocols.lightpush import PushResult

    return PushResult(status)


@pytest.mark.parametrize("mode", MODES)
async def test_sending_must_pause_while_unhealthy_and_resume_on_recovery(mode: str) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("sender", *services, **properties(mode)) as node,
    ):
        await ready(node)
        world.world.partition([world.host(node)])
        await until(lambda: node.health == "Unhealthy", seconds=300)
        request_id = send(node)
        await trio.sleep(120)
        record = await record_of(node, request_id)
        assert (record.sending, record.attempts, record.error) == (True, 0, None)
        world.world.heal()
        await settled([node], seconds=300)
        assert (await record_of(node, request_id)).sent


@pytest.mark.parametrize("mode", MODES)
async def test_cancel_must_be_ignored_if_the_request_is_fulfilled_or_unknown(mode: str) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("sender", *services, **properties(mode)) as node,
    ):
        await ready(node)
        sent = send(node, b"sent")
        await settled([node])
        world.world.partition([world.host(node)])
        await until(lambda: node.health == "Unhealthy", seconds=300)
        given_up = send(node, b"given up")
        for request_id in (sent, given_up, given_up, "unknown", ""):
            node.cancel_request(request_id)
        assert (await record_of(node, sent)).sent
        assert (await record_of(node, sent)).error is None
        record = await record_of(node, given_up)
        assert (record.sending, record.sent, record.error) == (False, False, "cancelled")
        assert node.pending_requests == ()


async def test_pending_requests_are_unique_and_those_that_have_not_succeeded() -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("alone", max_pending_sends=3) as node,
    ):
        same = Message(b"the same", timestamp_ns=1)
        ids = [node.send(node.codec(TOPIC), same) for _ in range(3)]
        assert node.pending_requests == tuple(ids)
        with pytest.raises(LimitExceeded):
            send(node)
        await node.connect(services[0].addresses[0])
        await settled([node])
        assert [(await record_of(node, each)).sent for each in ids] == [True] * 3


async def test_a_sent_message_has_no_error_whatever_went_before() -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("edge", *services, mode="edge") as node,
    ):
        await ready(node)
        client = light_of(node)._pushing._lightpush
        push = client.push
        asked = 0

        async def refuse_at_first(*arguments: Any, **more: Any) -> Any:
            nonlocal asked
            asked += 1
            return lightpush_result(500) if asked <= 3 else await push(*arguments, **more)

        client.push = refuse_at_first
        request_id = send(node)
        await settled([node])
        record = await record_of(node, request_id)
        assert (record.sent, record.error, record.attempts) == (True, None, 2)


async def test_a_closed_node_takes_nothing_more() -> None:
    async with open_waku_world() as world:
        async with world.node("alone") as node:
            pass
        with pytest.raises(NodeClosed):
            send(node)
        with pytest.raises(NodeClosed):
            await node.subscribe(node.codec(TOPIC))


# Surviving the process


@pytest.mark.parametrize("mode", MODES)
async def test_pending_sends_survive_a_restart_and_go_on(mode: str, tmp_path: Path) -> None:
    kept = properties(mode, records_path=tmp_path / "records.sqlite3")
    async with open_waku_world() as world, open_services(world, 2) as services:
        async with world.node("sender", **kept) as node:
            ids = [send(node, b"%d" % number) for number in range(5)]
        async with (
            world.node("receiver", *services) as receiver,
            await receiver.subscribe(receiver.codec(TOPIC)) as subscription,
            world.node("sender", *services, **(kept | NodeProperties(max_pending_sends=2))) as node,
        ):
            assert node.pending_requests == tuple(ids)
            await ready(receiver)
            await settled([node])
            assert [(await record_of(node, each)).sent for each in ids] == [True] * 5
            assert {(await anext(subscription)).message.payload for _ in ids} == {b"%d" % n for n in range(5)}


async def test_a_send_on_a_topic_that_the_node_has_no_more_has_an_error(tmp_path: Path) -> None:
    path = tmp_path / "records.sqlite3"
    async with open_waku_world() as world:
        async with world.node("sender", records_path=path) as node:
            request_id = send(node)
        async with world.node("sender", records_path=path, shards=[1]) as node:
            record = await record_of(node, request_id)
            assert (record.sending, record.sent) == (False, False)
            assert record.error == f"the node does not operate on {SHARD} any more"


@pytest.mark.parametrize("mode", MODES)
async def test_what_came_before_a_restart_does_not_come_again(mode: str, tmp_path: Path) -> None:
    kept = properties(mode, records_path=tmp_path / "records.sqlite3")
    heard: list[bytes] = []

    def hear(record: MessageRecord) -> None:
        heard.append(record.message.payload)

    async with open_waku_world() as world, open_services(world, 2, stores=1) as services:
        async with world.node("node", *services, **kept) as node:
            await node.subscribe(node.codec(TOPIC), hear)
            await ready(node)
            await services[0].relay.publish(SHARD, WakuMessage(b"theirs", TOPIC, timestamp_ns=now_of(node)))
            send(node, b"mine")
            await settled([node])
            await trio.sleep(30)
        assert sorted(heard) == [b"mine", b"theirs"]
        async with world.node("node", *services, **kept) as node:
            await node.subscribe(node.codec(TOPIC), hear)
            await ready(node)
            await trio.sleep(200)
        assert sorted(heard) == [b"mine", b"theirs"]


def now_of(node: Node) -> int:
    """Its time of day."""
    return node.parts.messaging._clock()


# Acknowledgement


@pytest.mark.parametrize("mode", MODES)
async def test_with_store_confirmation_a_message_is_sent_once_it_was_seen(mode: str) -> None:
    async with open_waku_world() as world, open_services(world, 3, stores=1) as services:
        asked = log_queries(world, "service-2")
        async with world.node(
            "sender", *services, **properties(mode, store_confirmation=True, subscribe_on_send=False)
        ) as node:
            await ready(node)
            await trio.sleep(5)
            asked.clear()
            start = trio.current_time()
            request_id = send(node)
            await trio.sleep(20)
            record = await record_of(node, request_id)
            assert (record.sending, record.sent) == (False, True)
            by_hash = [at - start for at, by_topic in asked if not by_topic]
            if mode == "edge":
                assert by_hash
                assert 3 <= by_hash[0] <= 4


@pytest.mark.parametrize("mode", MODES)
async def test_a_message_that_no_store_has_is_sent_again_and_has_an_error_in_the_end(mode: str) -> None:
    async with open_waku_world() as world, open_services(world, 2, stores=1) as services:
        archive = world.archives["service-1"]
        only = services[1]  # so nobody else can send it back

        async def forget(*_: Any, **__: Any) -> int:
            return 0

        archive.insert = forget
        async with world.node(
            "sender", only, **properties(mode, store_confirmation=True, subscribe_on_send=False)
        ) as node:
            await ready(node)
            request_id = send(node)
            await settled([node], seconds=300)
            record = await record_of(node, request_id)
            if not record.sent:  # else a relay peer has sent it back
                assert (record.propagated, record.attempts) == (True, 4)
                assert record.error == "peers took it, but no store has it"


async def test_without_store_confirmation_stored_must_not_be_populated_unless_history_is_asked_for() -> None:
    async with open_waku_world() as world, open_services(world, 3, stores=1) as services:
        asked = log_queries(world, "service-2")
        async with world.node("node", *services, fetch_missed=False) as node:
            await node.subscribe(node.codec(TOPIC))
            await ready(node)
            mine = send(node, b"mine")
            await services[0].relay.publish(SHARD, WakuMessage(b"theirs", TOPIC, timestamp_ns=now_of(node)))
            await trio.sleep(300)
            records = await node.messages.get_by_content_topic(TOPIC)
            assert [record.stored for record in records] == [False, False]
            assert asked == []
            stored: list[MessageRecord] = []
            node.events.add_event_listener("message:stored", lambda event: stored.append(event.detail))
            found = [entry async for entry in await node.query(StoreQuery(SHARD, (TOPIC,)))]
            assert len(found) == 2
            records = await node.messages.get_by_content_topic(TOPIC)
            assert [record.stored for record in records] == [True, True]
            assert (await record_of(node, mine)).stored
            assert len(stored) == 2


async def test_messages_fetched_by_history_populate_the_records() -> None:
    async with open_waku_world() as world, open_services(world, 3, stores=1) as services:
        for number in range(5):
            message = WakuMessage(b"%d" % number, TOPIC, timestamp_ns=now_of(services[0]))
            await services[0].relay.publish(SHARD, message)
            await trio.sleep(1)
        async with world.node("late", *services, mode="edge") as node:
            events: list[str] = []
            for name in ("message:change", "message:stored", "message:received"):
                node.events.add_event_listener(name, lambda event: events.append(event.name))
            query = StoreQuery(SHARD, (TOPIC,), page_size=2, forward=False)
            found = [entry.message.payload async for entry in await node.query(query) if entry.message]
            assert found == [b"4", b"3", b"2", b"1", b"0"]
            records = await node.messages.get_by_content_topic(TOPIC)
            assert len(records) == 5
            assert {(record.stored, record.received) for record in records} == {(True, False)}
            assert sorted(set(events)) == ["message:change", "message:stored"]


async def test_the_recurring_query_is_made_every_60_seconds_and_prefers_store_nodes() -> None:
    async with open_waku_world() as world, open_services(world, 4, stores=3) as services:
        preferred = services[3]
        logs = {name: log_queries(world, name) for name in ("service-1", "service-2", "service-3")}
        async with world.node(
            "node",
            *services,
            store_nodes=[preferred.addresses[0]],
            store_confirmation=True,
            confirm_content_topics=[TOPIC],
        ) as node:
            await ready(node)
            await trio.sleep(600)
            times = sorted(at for at, by_topic in logs["service-3"] if by_topic)
            regular = [at for at in times if at >= times[0] + 90]
            assert all(59 <= later - sooner <= 61 for sooner, later in pairwise(regular))
            assert len(regular) >= 8
            others = sum(len(log) for name, log in logs.items() if name != "service-3")
            assert len(times) >= others  # one more store is asked each time, for what the first one lacks


async def test_the_recurring_query_must_be_halted_while_unhealthy_and_resume() -> None:
    async with open_waku_world() as world, open_services(world, 3, stores=1) as services:
        asked = log_queries(world, "service-2")
        async with world.node(
            "node", *services, mode="edge", store_confirmation=True, confirm_content_topics=[TOPIC]
        ) as node:
            await ready(node)
            await trio.sleep(130)
            assert asked
            node.parts.health._transport._pools.went_offline()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            await trio.sleep(1.5)
            assert node.health == "Unhealthy"
            asked.clear()
            await trio.sleep(20)
            assert asked == []
            node.parts.health._transport._pools.came_online()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            await trio.sleep(5)
            assert asked


async def test_the_recurring_query_begins_with_subscribe_and_must_be_stopped_with_unsubscribe() -> None:
    async with open_waku_world() as world, open_services(world, 3, stores=1) as services:
        asked = log_queries(world, "service-2")
        async with world.node("node", *services, store_confirmation=True) as node:
            await ready(node)
            await trio.sleep(300)
            assert asked == []
            one = await node.subscribe(node.codec(TOPIC))
            two = await node.subscribe(node.codec(TOPIC))
            await trio.sleep(130)
            assert asked
            one.unsubscribe()
            asked.clear()
            await trio.sleep(130)
            assert asked
            two.unsubscribe()
            await trio.sleep(1)
            asked.clear()
            await trio.sleep(300)
            assert asked == []


async def test_stored_must_be_updated_for_what_circulates_on_subscribed_topics() -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 3, stores=1) as services,
        world.node("node", *services, store_confirmation=True) as node,
    ):
        await node.subscribe(node.codec(TOPIC))
        await ready(node)
        await services[0].relay.publish(SHARD, WakuMessage(b"theirs", TOPIC, timestamp_ns=now_of(node)))
        await trio.sleep(1)
        [record] = await node.messages.get_by_content_topic(TOPIC)
        assert (record.received, record.stored) == (True, False)
        await trio.sleep(61)
        [record] = await node.messages.get_by_content_topic(TOPIC)
        assert (record.received, record.stored) == (True, True)
