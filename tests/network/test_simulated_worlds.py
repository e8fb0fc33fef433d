"""Whole simulated worlds: they repeat exactly, and they are large."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
import trio

from pywaku.errors import NetworkError, NodeClosed
from pywaku.ids import PeerId
from pywaku.network.port import Network, PeerConnected, PeerDisconnected, PeerEvent, Stream
from pywaku.network.simulated import LinkProfile, LogNormal, SimulatedNetwork, SimulatedWorld, Uniform
from tests.support.replay import run_replayable

FLOOD = "/test/flood/1.0.0"
ROUGH = LinkProfile(LogNormal(0.05), loss=0.05, bandwidth_bytes_per_s=1e6, write_loss=0.02)
PROGRAM = "from tests.network.test_simulated_worlds import turbulent_trace; print(turbulent_trace({seed}))"


class Flooder:
    """The simplest gossip: tells everybody what it has not heard before, on one stream per peer."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.heard: set[bytes] = set()
        self._streams: dict[bytes, Stream] = {}
        network.serve(FLOOD, self._listen)

    async def _listen(self, stream: Stream) -> None:
        while data := await stream.receive():
            for start in range(0, len(data), 8):
                await self.tell(data[start : start + 8], told_by=stream.peer)

    async def tell(self, item: bytes, told_by: bytes = b"") -> None:
        if item in self.heard:
            return
        self.heard.add(item)
        for peer in tuple(self.network.peers):
            if peer != told_by:
                if peer not in self._streams:
                    self._streams[peer] = await self.network.open_stream(peer, FLOOD)
                await self._streams[peer].send(item)


async def connect_randomly(hosts: list[SimulatedNetwork], dials: int, rng: random.Random) -> None:
    """Each host dials some others, all at once."""
    async with trio.open_nursery() as nursery:
        for host in hosts:
            for other in rng.sample(hosts, dials):
                if other is not host:
                    nursery.start_soon(partial(host.connect, other.addresses, timeout=60))


async def turbulent(seed: int) -> str:
    """A small world where everything happens at once; returns its trace."""
    rng = random.Random(seed)
    async with SimulatedWorld(seed, link=ROUGH, trace=True) as world, AsyncExitStack() as stack:
        hosts = [await stack.enter_async_context(world.host()) for _ in range(20)]
        flooders = [Flooder(host) for host in hosts]
        await connect_randomly(hosts, 3, rng)
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(flooders[rng.randrange(5)].tell, number.to_bytes(8))
            await trio.sleep(0.2)
            world.partition(hosts[:10])
            world.stall(hosts[3])
            world.cut(hosts[0], hosts[1])
            await trio.sleep(1)
            world.crash(hosts[19])
            world.heal()
            world.resume(hosts[3])
            await trio.sleep(20)
        assert world.counters.deliveries > 1000
        return world.trace


def turbulent_trace(seed: int) -> str:
    return run_replayable(partial(turbulent, seed), seed=seed)


def test_one_seed_has_one_trace() -> None:
    assert turbulent_trace(1) == turbulent_trace(1)
    assert turbulent_trace(1) != turbulent_trace(2)


def test_the_trace_does_not_depend_on_the_process() -> None:
    traces = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM.format(seed=3)],
            check=True,
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert traces == {turbulent_trace(3)}


class Ledger:
    """Checks that one host's peer events make sense, as they come."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.connected: set[PeerId] = set()
        self.network = network
        network.watch(self._hear)

    def _hear(self, event: PeerEvent) -> None:
        assert (event.peer in self.network.peers) is not isinstance(event, PeerDisconnected)
        if isinstance(event, PeerConnected):
            assert event.peer not in self.connected
            self.connected.add(event.peer)
        else:
            assert event.peer in self.connected
            if isinstance(event, PeerDisconnected):
                self.connected.discard(event.peer)


Hosts = dict[str, SimulatedNetwork]


async def live(world: SimulatedWorld, name: str, hosts: Hosts, ledgers: list[Ledger]) -> None:
    """A host that crashes and starts again whenever the world has it crash."""
    while True:
        async with world.host(name) as host:
            ledgers.append(Ledger(host))
            Flooder(host)
            hosts[name] = host
            while not host.closed:
                await trio.sleep(0.5)
        await trio.sleep(0.5)


async def attempt(action: Awaitable[object]) -> None:
    with contextlib.suppress(NetworkError, NodeClosed):
        await action


async def talk(one: Network, other: Network) -> None:
    stream = await one.open_stream(other.peer_id, FLOOD, timeout=5)
    await stream.send(bytes(8))
    await trio.sleep(1)
    await stream.close()


async def strike(world: SimulatedWorld, living: Hosts, rng: random.Random, tasks: trio.Nursery) -> None:
    """One thing happens, at random."""
    hosts = list(living.values())
    one, other = rng.sample(hosts, 2)
    match rng.randrange(12):
        case 0:
            world.partition(rng.sample(hosts, 3))
        case 1:
            world.heal()
        case 2:
            world.stall(one)
        case 3:
            world.resume(one)
        case 4:
            world.cut(one, other)
        case 5:
            if not one.closed:
                world.crash(one, silent=rng.random() < 0.5)
        case 6:
            tasks.start_soon(attempt, one.disconnect(other.peer_id))
        case 7:
            tasks.start_soon(attempt, talk(one, other))
        case 8:
            world.set_link(one, other, LinkProfile(Uniform(0, rng.choice([0.001, 0.1, 3])), loss=0.1))
        case _:
            tasks.start_soon(attempt, one.connect(other.addresses, timeout=rng.choice([0.05, 1, 20])))
            tasks.start_soon(attempt, other.connect(one.addresses, timeout=rng.choice([0.05, 1, 20])))


async def turmoil(seed: int) -> None:
    rng = random.Random(seed)
    hosts: Hosts = {}
    ledgers: list[Ledger] = []
    async with SimulatedWorld(seed, dead_after=5) as world, trio.open_nursery() as nursery:
        for name in "abcdef":
            nursery.start_soon(live, world, name, hosts, ledgers)
        await trio.sleep(1)
        async with trio.open_nursery() as tasks:
            for _ in range(150):
                await strike(world, hosts, rng, tasks)
                await trio.sleep(rng.choice([0, 0.001, 0.03, 0.5]))
        world.heal()
        for host in hosts.values():
            world.resume(host)
        await trio.sleep(60)
        alive = {host.peer_id: host for host in hosts.values()}
        for host in alive.values():
            for peer in host.peers:
                assert host.peer_id in alive[peer].peers, "one side has a connection, the other has none"
                assert host.peers[peer].identified
        for ledger in ledgers:
            assert not ledger.network.listener_failures
            if not ledger.network.closed:
                assert ledger.connected == set(ledger.network.peers)
        for one, other in itertools.permutations(alive.values(), 2):
            await one.connect(other.addresses)
            await talk(one, other)
        assert world.open_connections == 15
        assert len(ledgers) > 6
        assert world.counters.connections > 50
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(20))
def test_hosts_agree_after_any_turmoil(seed: int) -> None:
    run_replayable(partial(turmoil, seed), seed=seed)


def test_five_hundred_hosts_live_in_one_process() -> None:
    async def main() -> None:
        rng = random.Random(1)
        async with SimulatedWorld(1, link=LinkProfile(LogNormal(0.05))) as world, AsyncExitStack() as stack:
            hosts = [await stack.enter_async_context(world.host()) for _ in range(500)]
            flooders = [Flooder(host) for host in hosts]
            await connect_randomly(hosts, 5, rng)
            assert 8 < sum(len(host.peers) for host in hosts) / 500 < 11
            for number in range(10):
                await flooders[number].tell(number.to_bytes(8))
            await trio.sleep(5)
            assert all(len(flooder.heard) == 10 for flooder in flooders)
            assert world.counters.deliveries > 10 * 500 * 8

    started = time.perf_counter()
    run_replayable(main, seed=1)
    assert time.perf_counter() - started < 60  # it takes about 3 s; a bound against quadratic surprises
