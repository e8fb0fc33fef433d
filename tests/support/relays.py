"""Small relay networks for tests: simulated hosts, each with a relay on it."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import trio

from pywaku.gossip import GossipParams
from pywaku.message import WakuMessage
from pywaku.network.simulated import LinkProfile, SimulatedNetwork, SimulatedWorld
from pywaku.protocols.relay import Relay, RelayOptions, open_relay

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
