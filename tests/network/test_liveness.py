"""Pings: answered, measured, and missed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from pywaku.network.liveness import BLOCK, PING_PROTOCOL, Liveness, open_liveness
from pywaku.network.port import PeerConnected, PeerDisconnected, Stream
from pywaku.network.simulated import Constant, LinkProfile, SimulatedNetwork, SimulatedWorld
from tests.support.networks import Recorder, receive_exactly, receive_to_end

pytestmark = pytest.mark.virtual

INTERVAL = 30.0
TIMEOUT = 20.0


def world_without_timeouts() -> SimulatedWorld:
    """A world where only pings find out who is dead."""
    return SimulatedWorld(1, link=LinkProfile(Constant(0.05)), dead_after=None)


Pair = tuple[SimulatedWorld, SimulatedNetwork, SimulatedNetwork, Liveness]


@asynccontextmanager
async def watched_pair() -> AsyncGenerator[Pair]:
    """A world with two hosts that ping each other once they are connected, and the pings of the first."""
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(world_without_timeouts())
        one = await stack.enter_async_context(world.host())
        two = await stack.enter_async_context(world.host())
        liveness = await stack.enter_async_context(open_liveness(one))
        await stack.enter_async_context(open_liveness(two))
        yield world, one, two, liveness


async def test_pings_are_answered_block_by_block() -> None:
    world = world_without_timeouts()
    async with world, world.host() as one, world.host() as two, open_liveness(two):
        await one.connect(two.addresses)
        stream = await one.open_stream(two.peer_id, PING_PROTOCOL)
        blocks = bytes(range(BLOCK)) * 3
        await stream.send(blocks + b"half a block")
        assert await receive_exactly(stream, len(blocks)) == blocks
        await stream.close_write()
        assert await receive_to_end(stream) == b""


async def test_the_time_there_and_back_is_measured() -> None:
    async with watched_pair() as (world, one, two, liveness):
        assert liveness.rtt(two.peer_id) is None
        await one.connect(two.addresses)
        await trio.sleep(1)
        assert liveness.rtt(two.peer_id) == pytest.approx(0.1)
        world.set_link(one, two, LinkProfile(Constant(0.2)))
        await trio.sleep(INTERVAL + 1)
        assert liveness.rtt(two.peer_id) == pytest.approx(0.4)
        await one.disconnect(two.peer_id)
        assert liveness.rtt(two.peer_id) is None


async def test_all_pings_go_on_one_stream() -> None:
    streams: list[Stream] = []

    async def answer(stream: Stream) -> None:
        streams.append(stream)
        while data := await stream.receive():
            await stream.send(data)

    world = world_without_timeouts()
    async with world, world.host() as one, world.host() as two, open_liveness(one) as liveness:
        two.serve(PING_PROTOCOL, answer)
        await two.connect(one.addresses)
        await trio.sleep(10 * INTERVAL + 1)
        assert liveness.pings == 11
        assert len(streams) == 1
        assert two.peer_id in one.peers


@pytest.mark.parametrize("after", [0.0, 0.07, 1.0, 29.0, 31.0, 100.0])
@pytest.mark.parametrize("how", ["stall", "crash", "partition"])
async def test_a_dead_peer_is_found_within_interval_and_timeout(how: str, after: float) -> None:
    async with watched_pair() as (world, one, two, liveness):
        hears = Recorder(one)
        await one.connect(two.addresses)
        await trio.sleep(after)
        died = trio.current_time()
        if how == "stall":
            world.stall(two)
        elif how == "crash":
            world.crash(two, silent=True)
        else:
            world.partition([one], [two])
        with trio.fail_after(INTERVAL + TIMEOUT + 0.2):
            while not hears.of(PeerDisconnected, two.peer_id):
                await trio.sleep(0.1)
        assert trio.current_time() - died <= INTERVAL + TIMEOUT + 0.1
        assert "ping" in hears.of(PeerDisconnected, two.peer_id)[0].reason
        assert liveness.dead_peers == 1


async def test_a_peer_that_comes_back_is_watched_again() -> None:
    async with watched_pair() as (world, one, two, liveness):
        for _ in range(3):
            await one.connect(two.addresses)
            await trio.sleep(5)
            world.stall(two)
            await trio.sleep(INTERVAL + TIMEOUT)
            assert not one.peers
            world.resume(two)
            await trio.sleep(5)
        assert liveness.dead_peers == 3


async def test_living_peers_stay() -> None:
    world = world_without_timeouts()
    async with world, world.host() as one, world.host() as two, open_liveness(one), open_liveness(two):
        await one.connect(two.addresses)
        world.set_link(one, two, LinkProfile(Constant(4.0), loss=0.2))
        await trio.sleep(3600)
        assert two.peer_id in one.peers


async def test_peers_that_do_not_speak_ping_are_left_alone() -> None:
    world = world_without_timeouts()
    async with world, world.host() as one, world.host() as two, open_liveness(one) as liveness:
        await one.connect(two.addresses)
        await trio.sleep(1)
        world.stall(two)
        await trio.sleep(300)
        assert two.peer_id in one.peers
        assert liveness.pings == 0
        world.resume(two)
        async with open_liveness(two):  # and watched once they do
            await trio.sleep(1)
            assert liveness.rtt(two.peer_id) is not None


async def test_a_peer_that_ends_its_ping_streams_is_alive() -> None:
    async def hang_up(stream: Stream) -> None:
        await stream.receive()

    async def hang_up_at_once(stream: Stream) -> None:
        stream.reset()

    for handler in (hang_up, hang_up_at_once):
        world = world_without_timeouts()
        async with world, world.host() as one, world.host() as two, open_liveness(one) as liveness:
            two.serve(PING_PROTOCOL, handler)
            await one.connect(two.addresses)
            await trio.sleep(300)
            assert two.peer_id in one.peers
            assert liveness.dead_peers == 0
            assert liveness.rtt(two.peer_id) is None


async def test_an_ended_stream_is_replaced_at_once() -> None:
    async def answer_once(stream: Stream) -> None:
        await stream.send(await stream.receive())

    world = world_without_timeouts()
    async with world, world.host() as one, world.host() as two, open_liveness(one) as liveness:
        two.serve(PING_PROTOCOL, answer_once)
        await one.connect(two.addresses)
        await trio.sleep(1)
        for _ in range(3):
            world.set_link(one, two, LinkProfile(Constant(0.1)))
            await trio.sleep(INTERVAL)
            assert liveness.rtt(two.peer_id) == pytest.approx(0.2)


async def test_peers_of_before_are_watched_too_and_leaving_ends_it_all() -> None:
    world = world_without_timeouts()
    async with world, world.host() as one, world.host() as two, open_liveness(two):
        await one.connect(two.addresses)
        await trio.sleep(1)
        async with open_liveness(one) as liveness:
            await trio.sleep(1)
            assert liveness.rtt(two.peer_id) is not None
        assert two.peer_id in one.peers
        hears = Recorder(two)
        async with open_liveness(one):
            await trio.sleep(1)
            assert PING_PROTOCOL in two.peers[one.peer_id].protocols
        await one.disconnect(two.peer_id)
        assert not hears.of(PeerConnected, one.peer_id)
