"""Whole simulated worlds: they repeat exactly, and they are large."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import trio

from pywaku.network.port import Network, Stream
from pywaku.network.simulated import LinkProfile, LogNormal, SimulatedNetwork, SimulatedWorld
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
