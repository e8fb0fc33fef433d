"""Relay with the GossipSub of JavaScript, which runs under Waku's protocol id with StrictNoSign."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from interop.node import open_js_peer, what_is_missing
from interop.peer_process import PeerProcess
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.network.libp2p.host import open_network
from pywaku.network.port import Network
from pywaku.protocols.relay.options import RelayOptions
from pywaku.protocols.relay.relay import Relay, open_relay
from pywaku.wire.message import encode_message
from pywaku.wire.multiaddr import Multiaddr

MISSING = what_is_missing()
pytestmark = [pytest.mark.interop, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]

TOPIC = "/waku/2/rs/42/0"
CONTENT_TOPIC = "/pywaku/1/interop/proto"
PAUSE_S = 0.02

every_stack = pytest.mark.parametrize(("transport", "muxer"), [("tcp", "yamux"), ("ws", "mplex")])


class Node:
    """A relay node and all that it has received."""

    def __init__(self, network: Network, relay: Relay) -> None:
        self.network = network
        self.relay = relay
        self.peer = str(network.peer_id)
        self.address = str(network.addresses[0])
        self.received: Counter[str] = Counter()
        """How often each message was delivered, by the hash of its encoding: equal ids are equal bytes."""
        self.unsubscribe: Callable[[], None] | None = None

    def subscribe(self) -> None:
        """Join the topic and count what comes."""
        self.unsubscribe = self.relay.subscribe_callback(
            TOPIC,
            lambda got: self.received.update([hashlib.sha256(encode_message(got.message)).hexdigest()]),
        )

    async def publish(self, count: int, size: int) -> list[str]:
        """Publish messages with random payloads; their ids."""
        ids: list[str] = []
        for number in range(count):
            message = WakuMessage(os.urandom(size), CONTENT_TOPIC, timestamp_ns=number)
            outcome = await self.relay.publish(TOPIC, message)
            assert outcome.peers > 0
            ids.append(outcome.message_id.hex())
        return ids


@asynccontextmanager
async def open_node(transport: str = "tcp", muxer: str = "yamux") -> AsyncGenerator[Node]:
    """A Python relay node; it does not hear itself, as the JavaScript peers do not."""
    listen = "/ip4/127.0.0.1/tcp/0" + ("/ws" if transport == "ws" else "")
    muxers = ["/yamux/1.0.0" if muxer == "yamux" else "/mplex/6.7.0"]
    async with (
        open_network(listen=[Multiaddr.parse(listen)], muxers=muxers) as network,
        open_relay(network, options=RelayOptions(deliver_own=False)) as relay,
    ):
        yield Node(network, relay)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds."""
    while not condition():
        await trio.sleep(PAUSE_S)


async def know_each_other(js: PeerProcess, node: Node) -> None:
    """Wait until both know of the other's subscription and have it in their mesh."""
    while node.peer not in await js.call("mesh", topic=TOPIC):
        await trio.sleep(PAUSE_S)
    peer = PeerId.from_text(js.peer)
    await until(lambda: peer in node.relay.mesh(TOPIC))


@every_stack
@pytest.mark.parametrize("dialler", ["js", "py"])
async def test_a_thousand_messages_each_way_none_lost_none_doubled(
    transport: str, muxer: str, dialler: str
) -> None:
    async with (
        open_js_peer("gossip", transport=transport, muxer=muxer) as js,
        open_node(transport, muxer) as node,
    ):
        await js.call("subscribe", topic=TOPIC)
        node.subscribe()
        if dialler == "js":
            await js.call("dial", address=node.address)
        else:
            await node.network.connect(Multiaddr.parse(js.address))
        await know_each_other(js, node)

        theirs = await js.call("publishMany", topic=TOPIC, count=1000, size=200)
        await until(lambda: node.received.total() >= 1000)
        ours = await node.publish(1000, 200)
        await js.call("waitReceived", count=1000)

        assert node.received == Counter(theirs)
        assert await js.call("received", topic=TOPIC) == Counter(ours)


@every_stack
async def test_both_publish_at_the_same_time(transport: str, muxer: str) -> None:
    async with (
        open_js_peer("gossip", transport=transport, muxer=muxer) as js,
        open_node(transport, muxer) as node,
    ):
        await js.call("subscribe", topic=TOPIC)
        node.subscribe()
        await js.call("dial", address=node.address)
        await know_each_other(js, node)

        theirs: list[str] = []
        ours: list[str] = []

        async def they_publish() -> None:
            theirs.extend(await js.call("publishMany", topic=TOPIC, count=500, size=2000))

        async def we_publish() -> None:
            ours.extend(await node.publish(500, 2000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(they_publish)
            nursery.start_soon(we_publish)
        await until(lambda: node.received.total() >= 500)
        await js.call("waitReceived", count=500)

        assert node.received == Counter(theirs)
        assert await js.call("received", topic=TOPIC) == Counter(ours)


@every_stack
async def test_messages_of_the_largest_size_pass(transport: str, muxer: str) -> None:
    async with (
        open_js_peer("gossip", transport=transport, muxer=muxer) as js,
        open_node(transport, muxer) as node,
    ):
        await js.call("subscribe", topic=TOPIC)
        node.subscribe()
        await js.call("dial", address=node.address)
        await know_each_other(js, node)

        size = 150 * 1024 - 100  # 150 KiB with all attributes (64/WAKU2-NETWORK, Message Size)
        theirs = await js.call("publishMany", topic=TOPIC, count=20, size=size)
        ours = await node.publish(20, size)
        await until(lambda: node.received.total() >= 20)
        await js.call("waitReceived", count=20)

        assert node.received == Counter(theirs)
        assert await js.call("received", topic=TOPIC) == Counter(ours)


@every_stack
async def test_a_python_node_relays_between_javascript_nodes(transport: str, muxer: str) -> None:
    async with (
        open_js_peer("gossip", transport=transport, muxer=muxer) as first,
        open_js_peer("gossip", transport=transport, muxer=muxer) as second,
        open_node(transport, muxer) as node,
    ):
        for js in (first, second):
            await js.call("subscribe", topic=TOPIC)
            await js.call("dial", address=node.address)
        node.subscribe()
        for js in (first, second):
            await know_each_other(js, node)

        there = await first.call("publishMany", topic=TOPIC, count=500, size=200)
        back = await second.call("publishMany", topic=TOPIC, count=500, size=200)
        await first.call("waitReceived", count=500)
        await second.call("waitReceived", count=500)
        await until(lambda: node.received.total() >= 1000)

        assert await second.call("received", topic=TOPIC) == Counter(there)
        assert await first.call("received", topic=TOPIC) == Counter(back)
        assert node.received == Counter(there + back)
        assert len(await first.call("connections")) == 1


async def test_subscriptions_begin_and_end_while_connected() -> None:
    async with open_js_peer("gossip") as js, open_node() as node:
        await js.call("subscribe", topic=TOPIC)
        await js.call("dial", address=node.address)
        peer = PeerId.from_text(js.peer)
        await until(lambda: peer in node.relay.peers_of(TOPIC))
        assert await js.call("subscribers", topic=TOPIC) == []

        node.subscribe()
        await know_each_other(js, node)
        first = await js.call("publishMany", topic=TOPIC, count=10, size=200)
        await until(lambda: node.received.total() >= 10)

        assert node.unsubscribe is not None
        node.unsubscribe()
        while await js.call("subscribers", topic=TOPIC):
            await trio.sleep(PAUSE_S)
        await js.call("publishMany", topic=TOPIC, count=10, size=200)

        # Without a subscription of its own a node still publishes, to the subscribers it knows.
        ours = await node.publish(10, 200)
        await js.call("waitReceived", count=10)
        assert await js.call("received", topic=TOPIC) == Counter(ours)

        await js.call("unsubscribe", topic=TOPIC)
        await until(lambda: peer not in node.relay.peers_of(TOPIC))
        assert node.received == Counter(first)


async def test_signed_messages_are_refused() -> None:
    async with (
        open_js_peer("gossip", sign=True) as signing,
        open_js_peer("gossip") as plain,
        open_node() as node,
    ):
        for js in (signing, plain):
            await js.call("subscribe", topic=TOPIC)
            await js.call("dial", address=node.address)
        node.subscribe()
        for js in (signing, plain):
            await know_each_other(js, node)

        await signing.call("publishMany", topic=TOPIC, count=3, size=200)
        ids = await plain.call("publishMany", topic=TOPIC, count=3, size=200)
        await until(lambda: node.received.total() >= 3)
        peer = PeerId.from_text(signing.peer)
        await until(lambda: node.relay.router.score(peer, trio.current_time()) < 0)

        assert node.received == Counter(ids)


async def test_messages_that_are_no_waku_messages_are_not_delivered() -> None:
    async with open_js_peer("gossip") as js, open_node() as node:
        await js.call("subscribe", topic=TOPIC)
        node.subscribe()
        await js.call("dial", address=node.address)
        await know_each_other(js, node)

        await js.call("publish", topic=TOPIC, messages=["ffffffff"])
        ids = await js.call("publishMany", topic=TOPIC, count=1, size=200)
        await until(lambda: node.received.total() >= 1)

        assert node.received == Counter(ids)
        assert node.relay.counters.rejected == 1
