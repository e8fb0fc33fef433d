"""What the conformance suite needs of a build of the network port, and what tests of networks share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeVar

import trio

from pywaku.ids import PeerId
from pywaku.network.port import (
    Network,
    PeerConnected,
    PeerDisconnected,
    PeerEvent,
    PeerIdentified,
    Stream,
)
from pywaku.network.simulated import LinkProfile, SimulatedNetwork, SimulatedWorld
from pywaku.wire.multiaddr import Multiaddr

Event = TypeVar("Event", PeerConnected, PeerIdentified, PeerDisconnected)

PATIENCE_S = 30.0  # how long a test waits for what must come


class NetworkFactory(Protocol):
    """One build of the network port."""

    @property
    def virtual(self) -> bool:
        """Whether it runs on virtual time."""
        ...

    def host(self) -> AbstractAsyncContextManager[Network]:
        """A new host with an identity of its own, which listens."""
        ...

    def silent_address(self) -> AbstractAsyncContextManager[Multiaddr]:
        """An address (without a peer id) where connections are accepted and then left unanswered."""
        ...

    async def refusing_address(self) -> Multiaddr:
        """An address (without a peer id) of the build's kind where nobody listens."""
        ...


class SimulatedFactory:
    """The simulated build."""

    virtual = True

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world

    def host(self) -> AbstractAsyncContextManager[SimulatedNetwork]:
        """A host."""
        return self.world.host()

    @asynccontextmanager
    async def silent_address(self) -> AsyncGenerator[Multiaddr]:
        """A stalled host."""
        async with self.world.host() as host:
            self.world.stall(host)
            yield host.addresses[0].without_peer()

    async def refusing_address(self) -> Multiaddr:
        """Nobody."""
        return Multiaddr.parse("/memory/999999")


@asynccontextmanager
async def simulated_factory(
    seed: int = 0, link: LinkProfile | None = None
) -> AsyncGenerator[SimulatedFactory]:
    """A world with nobody in it yet."""
    async with SimulatedWorld(seed, link=link) as world:
        yield SimulatedFactory(world)


class Recorder:
    """Keeps a network's peer events, and waits for them."""

    def __init__(self, network: Network) -> None:
        self.events: list[PeerEvent] = []
        self._changed = trio.Event()
        self.stop = network.watch(self._hear)

    def _hear(self, event: PeerEvent) -> None:
        self.events.append(event)
        self._changed.set()
        self._changed = trio.Event()

    def of(self, kind: type[Event], peer: PeerId) -> list[Event]:
        """The events of one kind about one peer so far."""
        return [event for event in self.events if isinstance(event, kind) and event.peer == peer]

    async def wait(self, kind: type[Event], peer: PeerId, *, count: int = 1) -> Event:
        """The `count`-th event of a kind about a peer, as soon as it has come."""
        with trio.fail_after(PATIENCE_S):
            while len(self.of(kind, peer)) < count:
                await self._changed.wait()
        return self.of(kind, peer)[count - 1]


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something holds that nothing announces."""
    with trio.fail_after(PATIENCE_S):
        while not condition():
            await trio.sleep(0.01)


async def receive_exactly(stream: Stream, size: int) -> bytes:
    """The next `size` bytes; no more than that may arrive."""
    data = bytearray()
    with trio.fail_after(PATIENCE_S):
        while len(data) < size:
            part = await stream.receive()
            assert part, f"the stream ended after {len(data)} of {size} bytes"
            data += part
    assert len(data) == size
    return bytes(data)


async def receive_to_end(stream: Stream) -> bytes:
    """Everything up to the end of the stream."""
    data = bytearray()
    with trio.fail_after(PATIENCE_S):
        while part := await stream.receive():
            data += part
    return bytes(data)


async def echo(stream: Stream) -> None:
    """A handler that sends back what it gets."""
    while data := await stream.receive():
        await stream.send(data)
