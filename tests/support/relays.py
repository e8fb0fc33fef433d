"""Small relay networks for tests: simulated hosts, each with a relay on it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import trio

from pywaku.errors import NetworkError
from pywaku.gossip import GossipParams
from pywaku.message import WakuMessage
from pywaku.network.port import Stream
from pywaku.network.simulated import LinkProfile, SimulatedNetwork, SimulatedWorld
from pywaku.protocols.relay import (
    PROTOCOL,
    ReceivedMessage,
    Relay,
    RelayCounters,
    RelayOptions,
    open_relay,
)
from pywaku.wire.framing import FrameDecoder, frame
from pywaku.wire.message import encode_message
from pywaku.wire.relay import (
    RelayMessage,
    Rpc,
    Subscription,
    decode_rpc,
    encode_publish,
    encode_rpc,
)

TOPIC = "/waku/2/rs/42/0"
CONTENT_TOPIC = "/test/1/relay/proto"
NOW_NS = 1_700_000_000_000_000_000
"""What wall clocks in these tests show when virtual time starts."""


class Node(NamedTuple):
    """A simulated host and the relay on it."""

    network: SimulatedNetwork
    relay: Relay


def message(text: str | int, **attributes: object) -> WakuMessage:
    """A message that differs from others by its payload."""
    return WakuMessage(str(text).encode(), CONTENT_TOPIC, **attributes)  # pyright: ignore[reportArgumentType]


def wall_clock() -> int:
    """Nanoseconds since 1970, moving with virtual time."""
    return NOW_NS + round(trio.current_time() * 1e9)


@asynccontextmanager
async def open_node(
    world: SimulatedWorld,
    name: str,
    *,
    params: GossipParams | None = None,
    options: RelayOptions | None = None,
    clock: Callable[[], int] = wall_clock,
) -> AsyncGenerator[Node, None]:
    """A host with a relay on it; its chance comes from the world's seed."""
    rng = random.Random(f"relay {world.seed} {name}")
    async with (
        world.host(name) as network,
        open_relay(network, params=params, options=options, rng=rng, clock=clock) as relay,
    ):
        yield Node(network, relay)


@asynccontextmanager
async def open_nodes(
    count: int,
    *,
    seed: int = 1,
    link: LinkProfile | None = None,
    params: GossipParams | None = None,
    options: RelayOptions | None = None,
    joined: bool = False,
) -> AsyncGenerator[list[Node], None]:
    """`count` nodes in a world of their own, all connected; with `joined`, all on `TOPIC` and meshed."""
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(SimulatedWorld(seed, link=link))
        nodes = [
            await stack.enter_async_context(open_node(world, f"node-{i}", params=params, options=options))
            for i in range(count)
        ]
        for i, node in enumerate(nodes):
            for other in nodes[i + 1 :]:
                await node.network.connect(other.network.addresses)
        if joined:
            for node in nodes:
                node.relay.subscribe_callback(TOPIC, lambda _: None)
        await trio.sleep(3)
        yield nodes


class RawPeer:
    """A host that speaks the relay protocol by hand: says what it is told, notes what it hears."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.heard: list[Rpc] = []
        self.frames: list[bytes] = []
        self.streams: list[Stream] = []
        """Inbound streams, in the order they came."""
        self.refuse = False
        """Reset inbound streams at once."""
        network.serve(PROTOCOL, self._serve)

    async def _serve(self, stream: Stream) -> None:
        self.streams.append(stream)
        if self.refuse:
            stream.reset()
            return
        decoder = FrameDecoder(1 << 24)
        with contextlib.suppress(NetworkError):
            while data := await stream.receive():
                for part in decoder.feed(data):
                    self.frames.append(part)
                    self.heard.append(decode_rpc(part))

    async def open(self, node: Node) -> Stream:
        """An outbound relay stream to a node, which is connected first if need be."""
        await self.network.connect(node.network.addresses)
        return await self.network.open_stream(node.network.peer_id, PROTOCOL)

    @property
    def published(self) -> list[RelayMessage]:
        """The messages heard."""
        return [entry for rpc in self.heard for entry in rpc.publish]

    @property
    def subscriptions(self) -> list[Subscription]:
        """The joins and leaves heard."""
        return [entry for rpc in self.heard for entry in rpc.subscriptions]


def joins(*topics: str) -> bytes:
    """A frame by which a peer joins topics."""
    return frame(encode_rpc(Rpc(subscriptions=tuple(Subscription(True, topic) for topic in topics))))


def publishes(*messages: WakuMessage | bytes, topic: str = TOPIC) -> bytes:
    """A frame with messages, or with what is to pass for one."""
    entries = [encode_message(m) if isinstance(m, WakuMessage) else m for m in messages]
    return frame(b"".join(encode_publish(topic, data) for data in entries))


class World(NamedTuple):
    """One node under test, joined to `TOPIC`, and a raw peer that is connected and joined as well."""

    node: Node
    raw: RawPeer
    stream: Stream
    received: list[ReceivedMessage]
    world: SimulatedWorld

    @property
    def relay(self) -> Relay:
        """The relay under test."""
        return self.node.relay

    @property
    def counters(self) -> RelayCounters:
        """What it counts."""
        return self.node.relay.counters

    async def arrive(self, *messages: WakuMessage | bytes, topic: str = TOPIC) -> None:
        """Messages come from the raw peer; returns when they must have been handled."""
        await self.stream.send(publishes(*messages, topic=topic))
        await trio.sleep(0.5)


@asynccontextmanager
async def open_world(
    *,
    params: GossipParams | None = None,
    options: RelayOptions | None = None,
    joined: bool = True,
    clock: Callable[[], int] = wall_clock,
) -> AsyncGenerator[World, None]:
    """See `World`."""
    async with (
        SimulatedWorld(1) as world,
        world.host("raw") as network,
        open_node(world, "node", params=params, options=options, clock=clock) as node,
    ):
        received: list[ReceivedMessage] = []
        if joined:
            node.relay.subscribe_callback(TOPIC, received.append)
        raw = RawPeer(network)
        stream = await raw.open(node)
        await stream.send(joins(TOPIC))
        await trio.sleep(1)
        yield World(node, raw, stream, received, world)
