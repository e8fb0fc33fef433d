"""Edge nodes on real sockets: they send, receive and query through service nodes, and survive losing one."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from pywaku import (
    InvalidInput,
    Message,
    MessageRecord,
    MessageRefused,
    Node,
    NodeConfig,
    WakuMessage,
    open_node,
)
from pywaku.errors import NotConnected
from pywaku.protocols.store import StoreQuery
from tests.support.networks import eventually

TOPIC = "/test/1/edge/proto"
SHARD = "/waku/2/rs/42/0"


def service(*, store: bool = False) -> NodeConfig:
    """A relay node that serves light nodes."""
    return NodeConfig(
        mode="relay",
        cluster_id=42,
        shards=[0],
        bootstrap_nodes=[],
        listen_address="127.0.0.1",
        store=store,
        store_url="sqlite://:memory:",
    )


def edge(*nodes: Node) -> NodeConfig:
    """A light node that knows these service nodes."""
    return NodeConfig(
        mode="edge",
        cluster_id=42,
        shards=[0],
        tcp_port=None,
        bootstrap_nodes=[str(node.addresses[0]) for node in nodes],
    )


def stamped(payload: bytes) -> WakuMessage:
    """A message that a store keeps."""
    return WakuMessage(payload, TOPIC, timestamp_ns=time.time_ns())


async def meshed(one: Node, two: Node) -> None:
    """Connect two relay nodes and wait until they relay for each other."""
    await one.connect(two.addresses[0])
    await eventually(lambda: bool(one.relay.mesh(SHARD)) and bool(two.relay.mesh(SHARD)))


async def test_edge_nodes_send_and_receive_through_service_nodes() -> None:
    async with open_node(service()) as one, open_node(service()) as two:
        await meshed(one, two)
        async with (
            open_node(edge(one, two)) as sender,
            open_node(edge(one, two)) as receiver,
            await receiver.subscribe(receiver.codec(TOPIC)) as subscription,
        ):
            await eventually(lambda: one.services.filter is not None and one.services.filter.peers >= 1)
            await eventually(lambda: two.services.filter is not None and two.services.filter.peers >= 1)
            sent: list[MessageRecord] = []
            sender.events.add_event_listener("message:sent", lambda event: sent.append(event.detail))
            request_id = sender.send(sender.codec(TOPIC), Message(b"through both"))
            with trio.fail_after(30):
                received = await anext(subscription)
            assert received.message.payload == b"through both"
            await eventually(lambda: len(sent) == 1)
            assert sent[0].request_id == request_id
            assert sent[0].message_hash == received.message_hash
            sender.send(sender.codec(TOPIC), Message(b"next"))
            with trio.fail_after(30):
                # From two service nodes, and yet each once.
                assert (await anext(subscription)).message.payload == b"next"
            assert sender.pending_requests == ()


async def test_an_edge_node_goes_on_when_a_service_node_fails() -> None:
    async with (
        open_node(service()) as one,
        open_node(edge(one)) as receiver,
        await receiver.subscribe(receiver.codec(TOPIC)) as subscription,
    ):
        async with open_node(service()) as two:
            await meshed(one, two)
            await receiver.connect(two.addresses[0])
            await eventually(lambda: two.services.filter is not None and two.services.filter.peers == 1)
        async with open_node(edge(one)) as sender:
            errors: list[MessageRecord] = []
            sender.events.add_event_listener("message:error", lambda event: errors.append(event.detail))
            sender.send(sender.codec(TOPIC), Message(b"still here"))  # one has nobody to relay to
            async with open_node(service()) as three:
                await meshed(one, three)
                with trio.fail_after(30):
                    assert (await anext(subscription)).message.payload == b"still here"
                assert errors == []


async def test_an_edge_node_queries_store_nodes() -> None:
    async with open_node(service(store=True)) as one, open_node(service()) as two:
        await meshed(one, two)
        for number in range(5):
            await two.relay.publish(SHARD, stamped(b"%d" % number))
        await eventually(
            lambda: (
                one.services.archive_writer is not None and one.services.archive_writer.counters.written == 5
            )
        )
        async with open_node(edge(one)) as node:
            query = StoreQuery(SHARD, (TOPIC,), page_size=2)
            found = [entry.message.payload async for entry in await node.query(query) if entry.message]
            assert found == [b"0", b"1", b"2", b"3", b"4"]
            backwards = StoreQuery(SHARD, (TOPIC,), forward=False)
            newest = [entry async for entry in await node.query(backwards, limit=1)]
            assert [entry.message.payload for entry in newest if entry.message] == [b"4"]


async def test_without_a_service_node_a_message_waits_and_a_query_says_so() -> None:
    async with open_node(edge()) as node:
        request_id = node.send(node.codec(TOPIC), Message(b"alone"))
        with pytest.raises(NotConnected, match="store"):
            await node.query(StoreQuery(SHARD, (TOPIC,)), timeout=0.05)
        assert node.health == "Unhealthy"
        assert node.pending_requests == (request_id,)
        node.cancel_request(request_id)
        record = await node.messages.get_by_request_id(request_id)
        assert record is not None
        assert (record.sending, record.sent, record.error) == (False, False, "cancelled")


async def test_an_edge_node_says_what_it_has_not() -> None:
    async with open_node(edge()) as node:
        with pytest.raises(InvalidInput, match="mode is edge"):
            _ = node.relay
        with pytest.raises(MessageRefused, match="153600"):
            node.send(node.codec(TOPIC), Message(bytes(153_600)))


async def test_a_node_is_found_by_its_record_and_a_bad_record_is_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with open_node(service()) as one:
        assert one.enr is not None
        assert one.enr.shards is not None
        records = ["enr:-nonsense", one.enr.text]
        async with open_node(replace(service(), bootstrap_nodes=records)) as two:
            await eventually(lambda: one.peer_id in two.peers)
    assert [record.getMessage()[:22] for record in caplog.records] == ["bootstrap node skipped"]


async def test_a_restart_remembers_peers_and_the_record_s_number(tmp_path: Path) -> None:
    path = tmp_path / "peers.sqlite3"
    key = "364d111d729a6eb6d3e6113e163f017b5ef03a6f94c9b5b7bb1bb36fa5cb07a9"

    def config(*nodes: str) -> NodeConfig:
        return replace(service(), node_key=key, tcp_port=None, peers_path=path, bootstrap_nodes=nodes)

    async with open_node(service()) as one:
        async with open_node(config(str(one.addresses[0]))) as node:
            await eventually(lambda: one.peer_id in node.peers)
            assert node.enr is not None
            number = node.enr.seq
        async with open_node(config()) as node:
            assert one.peer_id in node.finding.book.book
            assert node.enr is not None
            assert node.enr.seq == number


async def test_edge_nodes_leave_no_task() -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    async with open_node(service()) as one, open_node(edge(one)) as node:
        await node.subscribe(node.codec(TOPIC))
        await eventually(lambda: one.services.filter is not None and one.services.filter.peers == 1)
    assert trio.lowlevel.current_statistics().tasks_living == before
