"""A node on real sockets: joins a shard, exchanges messages, keeps to its cluster, leaves nothing behind."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Unpack

import pytest
import trio
from cryptography.hazmat.primitives import serialization

import pywaku
from pywaku import InvalidInput, ListenError, Message, Node, NodeConfig, WakuMessage, open_node
from pywaku.messaging.config import NodeProperties
from tests.support.certificates import write_certificate
from tests.support.networks import eventually

TOPIC = "/test/1/node/proto"


def local(**more: Unpack[NodeProperties]) -> NodeConfig:
    """A node of a test network, on loopback."""
    properties: NodeProperties = {
        "mode": "relay",
        "cluster_id": 42,
        "shards": [0],
        "bootstrap_nodes": [],
        "listen_address": "127.0.0.1",
    }
    properties.update(more)
    return NodeConfig(**properties)


async def in_mesh(*nodes: Node) -> None:
    """Wait until each node has a mesh on its first shard."""
    for node in nodes:
        await eventually(lambda node=node: bool(node.relay.mesh(node.pubsub_topics[0])))


async def test_two_nodes_exchange_messages() -> None:
    async with open_node(local()) as one, open_node(local()) as two:
        await one.connect(two.addresses[0])
        await in_mesh(one, two)
        codec = one.codec(TOPIC)
        async with await one.subscribe(codec) as at_one, await two.subscribe(codec) as at_two:
            request_id = one.send(codec, Message(b"ping"))
            received = await anext(at_two)
            assert received.message.payload == b"ping"
            sent = await one.messages.get_by_request_id(request_id)
            assert sent is not None
            assert received.message_hash == sent.message_hash
            two.send(codec, Message(b"pong"))
            while (await anext(at_one)).message.payload != b"pong":
                pass


async def test_a_subscription_to_a_content_topic_yields_nothing_else() -> None:
    async with open_node(local()) as one, open_node(local()) as two:
        await one.connect(two.addresses[0])
        await in_mesh(one, two)
        async with await two.subscribe(two.codec(TOPIC)) as mine:
            one.send(one.codec("/other/1/news/proto"), Message(b"theirs"))
            one.send(one.codec(TOPIC), Message(b"mine"))
            assert (await anext(mine)).message.payload == b"mine"
            assert len(mine) == 0


async def test_bootstrap_nodes_are_connected_and_connected_again() -> None:
    async with (
        open_node(local()) as one,
        open_node(local(bootstrap_nodes=[str(one.addresses[0])])) as two,
    ):
        await eventually(lambda: one.peer_id in two.network.peers)
        await one.network.disconnect(two.peer_id)
        await eventually(lambda: one.peer_id not in two.network.peers)
        await eventually(lambda: one.peer_id in two.network.peers)


async def test_a_peer_of_another_cluster_is_disconnected() -> None:
    async with open_node(local()) as one, open_node(local(cluster_id=43)) as two:
        await one.connect(two.addresses[0])
        await eventually(lambda: not one.network.peers and not two.network.peers)


async def test_nodes_of_different_shards_of_a_cluster_stay_connected() -> None:
    async with open_node(local()) as one, open_node(local(shards=[1])) as two:
        await one.connect(two.addresses[0])
        await eventually(lambda: one.parts.metadata.of(two.peer_id) is not None)
        known = one.parts.metadata.of(two.peer_id)
        assert known is not None
        assert (known.cluster_id, known.shards) == (42, (1,))
        assert two.peer_id in one.network.peers


async def test_content_topics_choose_the_shard_with_auto_sharding() -> None:
    async with open_node(local(cluster_id=1, shards=None, num_shards_in_network=8)) as node:
        assert node.pubsub_topic_of("/myapp/1/mytopic/cbor") == "/waku/2/rs/1/0"
        assert len(node.pubsub_topics) == 8
        assert node.codec("/myapp/1/mytopic/cbor").pubsub_topic == "/waku/2/rs/1/0"


async def test_static_shards_are_for_the_application_to_choose() -> None:
    async with open_node(local(shards=[4, 5])) as node:
        with pytest.raises(InvalidInput, match="which of this node's 2 static shards"):
            node.codec(TOPIC)
        assert node.send(node.codec(TOPIC, pubsub_topic="/waku/2/rs/42/5"), Message(b"x"))


async def test_a_message_that_is_too_large_is_refused_with_the_limit() -> None:
    async with open_node(local()) as node:
        with pytest.raises(pywaku.MessageRefused, match="153600"):
            node.send(node.codec(TOPIC), Message(bytes(153_600)))
        assert node.pending_requests == ()


async def test_a_websocket_port_with_a_certificate_speaks_wss(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    config = local(tcp_port=None, websocket_port=0, websocket_secure_cert=cert, websocket_secure_key=key)
    async with open_node(config) as node:
        (address,) = node.addresses
        assert address.has("wss")


async def test_a_certificate_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    missing = tmp_path / "no.pem"
    config = local(websocket_port=0, websocket_secure_cert=missing, websocket_secure_key=missing)
    with pytest.raises(InvalidInput, match="websocket_secure_cert"):
        async with open_node(config):
            pass


async def test_a_certificate_s_file_is_named_when_it_is_the_wrong_one(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    _, other_key = write_certificate(tmp_path / "other")
    no_pem = tmp_path / "no.pem"
    no_pem.write_bytes(b"\xff\x00")
    for given, complaint in (
        ((tmp_path / "missing", key), "websocket_secure_cert: cannot read .*missing"),
        ((cert, tmp_path), "websocket_secure_key: cannot read"),
        ((cert, no_pem), "websocket_secure_key: .*no.pem is no PEM file"),
        ((cert, other_key), "websocket_secure_cert: .* cannot be used with .*other"),
    ):
        with pytest.raises(InvalidInput, match=complaint):
            async with open_node(
                local(websocket_port=0, websocket_secure_cert=given[0], websocket_secure_key=given[1])
            ):
                pass


async def test_an_encrypted_key_is_refused_and_no_pass_phrase_asked_for(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    secret = serialization.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"pass phrase"),
        )
    )
    with pytest.raises(InvalidInput, match="websocket_secure_key: is encrypted"):
        async with open_node(local(websocket_port=0, websocket_secure_cert=cert, websocket_secure_key=key)):
            pass


async def test_peers_are_who_is_connected() -> None:
    async with open_node(local()) as one, open_node(local()) as two:
        assert one.peers == frozenset()
        await one.connect(two.addresses[0])
        assert one.peers == {two.peer_id}


async def test_a_port_that_is_taken_is_an_error() -> None:
    async with open_node(local()) as node:
        port = int(node.addresses[0].get("tcp") or 0)
        with pytest.raises(ListenError, match="in use"):
            async with open_node(local(tcp_port=port)):
                pass


async def test_a_node_takes_a_config_or_properties() -> None:
    async with open_node(
        mode="relay", cluster_id=42, shards=[0], bootstrap_nodes=[], listen_address="127.0.0.1"
    ) as node:
        assert node.config == local()
    with pytest.raises(InvalidInput, match="not both"):
        async with open_node(local(), cluster_id=42):
            pass


async def test_joins_and_leaves_are_logged_without_alarm(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with open_node(local()) as one:
        async with open_node(local()) as two:
            await one.connect(two.addresses[0])
            await in_mesh(one, two)
        await eventually(lambda: not one.network.peers)
    messages = [record.getMessage() for record in caplog.records]
    assert any(text.startswith(f"peer joined: peer={two.peer_id}") for text in messages)
    assert any(text.startswith(f"peer left: peer={two.peer_id}") for text in messages)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def test_closing_a_node_leaves_no_task() -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    async with open_node(local()) as one, open_node(local(websocket_port=0)) as two:
        await one.connect(two.addresses[0])
        await in_mesh(one, two)
    assert trio.lowlevel.current_statistics().tasks_living == before


async def test_fourteen_fully_connected_hosts_with_scoring_on_all_hear_everything() -> None:
    """All peers share an address here, and all are judged: neither may isolate an honest node."""
    count, messages = 14, 5
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(open_node(local(seed=number))) for number in range(count)]
        for index, node in enumerate(nodes):
            for other in nodes[:index]:
                await node.connect(other.addresses[0])
        await in_mesh(*nodes)
        await trio.sleep(5)  # "from second 5 on": this proof is about real time and real sockets
        heard: list[set[bytes]] = [set() for _ in nodes]
        for node, texts in zip(nodes, heard, strict=True):
            node.relay.subscribe_callback(
                node.pubsub_topics[0], lambda received, texts=texts: texts.add(received.message.payload)
            )
        for round_ in range(messages):
            for index, node in enumerate(nodes):
                await node.relay.publish(
                    node.pubsub_topics[0], WakuMessage(f"{index}/{round_}".encode(), TOPIC)
                )
        await eventually(lambda: all(len(texts) == count * messages for texts in heard))
        now = trio.current_time()
        for node in nodes:
            assert all(
                node.relay.router.score(other.peer_id, now) >= 0 for other in nodes if other is not node
            )
            assert node.relay.mesh(node.pubsub_topics[0])
