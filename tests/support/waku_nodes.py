"""Whole nodes on a simulated network, on virtual time: relay nodes, stores, and edge nodes that use them."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import NamedTuple, Unpack

import trio

from pywaku.archive import open_archive_writer
from pywaku.keys import PrivateKey
from pywaku.messaging import Environment, Node, NodeConfig, open_node_on
from pywaku.messaging.config import NodeProperties
from pywaku.network.simulated import LinkProfile, SimulatedNetwork, SimulatedWorld
from pywaku.protocols.store import open_store_service, store_from_relay
from pywaku.topics import shard_topic
from pywaku.wire.multiaddr import Multiaddr
from tests.support.archives import MemoryArchive

CLUSTER = 42
SHARD = shard_topic(CLUSTER, 0)
TOPIC = "/test/1/messaging/proto"


class WakuWorld:
    """A network of nodes, from one seed."""

    def __init__(self, seed: int, world: SimulatedWorld) -> None:
        self.seed = seed
        self.world = world
        self.archives: dict[str, MemoryArchive] = {}
        self._made = 0

    @asynccontextmanager
    async def node(
        self,
        name: str,
        *bootstrap: Node | Multiaddr,
        keeps: bool = False,
        clock: Callable[[], int] | None = None,
        **more: Unpack[NodeProperties],
    ) -> AsyncGenerator[Node]:
        """A node of that name; one that was there before comes back with the same identity.

        With `keeps` it keeps messages in memory (which survive it) and answers queries for them. `clock` is
        its time of day, instead of the world's.
        """
        key = PrivateKey.from_bytes("secp256k1", random.Random(f"{self.seed} {name}").randbytes(32))
        properties: NodeProperties = {
            "mode": "relay",
            "cluster_id": CLUSTER,
            "shards": [0],
            "bootstrap_nodes": [
                node if isinstance(node, Multiaddr) else node.addresses[0] for node in bootstrap
            ],
        }
        properties.update(more)
        self._made += 1
        environment = Environment.simulated(
            random.Random(f"{self.seed} {name} {self._made}").randrange(1 << 62)
        )
        if clock is not None:
            environment = replace(environment, clock=clock)
        async with AsyncExitStack() as stack:
            host = await stack.enter_async_context(self.world.host(name, key=key))
            node = await stack.enter_async_context(
                open_node_on(host, NodeConfig(**properties), key=key, environment=environment)
            )
            if keeps:
                archive = self.archives.setdefault(name, MemoryArchive())
                writer = await stack.enter_async_context(
                    open_archive_writer(archive, clock=environment.clock)
                )
                stack.enter_context(store_from_relay(node.relay, writer, [SHARD]))
                await stack.enter_async_context(open_store_service(host, archive))
            yield node

    def host(self, node: Node) -> SimulatedNetwork:
        """The host that a node runs on."""
        host = self.world.host_of(node.peer_id)
        assert host is not None
        return host


@asynccontextmanager
async def open_waku_world(seed: int = 1, link: LinkProfile | None = None) -> AsyncGenerator[WakuWorld]:
    """A world with nobody in it yet."""
    async with SimulatedWorld(seed, link=link) as world:
        yield WakuWorld(seed, world)


class Service(NamedTuple):
    """Relay nodes that serve light nodes, meshed with each other."""

    nodes: tuple[Node, ...]


@asynccontextmanager
async def open_services(world: WakuWorld, count: int, *, stores: int = 0) -> AsyncGenerator[tuple[Node, ...]]:
    """Relay nodes that know each other; the last `stores` of them are stores too."""
    async with AsyncExitStack() as stack:
        nodes: list[Node] = []
        for number in range(count):
            nodes.append(
                await stack.enter_async_context(
                    world.node(f"service-{number}", *nodes, keeps=number >= count - stores)
                )
            )
        await until(lambda: all(len(node.relay.mesh(SHARD)) >= min(count - 1, 2) for node in nodes))
        yield tuple(nodes)


async def until(condition: Callable[[], bool], *, seconds: float = 60.0) -> None:
    """Wait until something holds."""
    with trio.fail_after(seconds):
        while not condition():
            await trio.sleep(0.05)


async def settled(nodes: Sequence[Node], *, seconds: float = 60.0) -> None:
    """Wait until nothing is pending at these nodes."""
    await until(lambda: not any(node.pending_requests for node in nodes), seconds=seconds)
