"""Keeping connections: when to try again, and never to wait for those that are silent."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import InvalidInput, LimitExceeded
from pywaku.ids import PeerId
from pywaku.network.backoff import Backoff, BackoffPolicy
from pywaku.network.keeper import MAX_ADDRESSES, MAX_PEERS, open_keeper
from pywaku.network.port import PeerConnected
from pywaku.network.simulated import Constant, LinkProfile, SimulatedNetwork, SimulatedWorld
from pywaku.wire.multiaddr import Multiaddr
from tests.support.networks import Recorder

policies = st.builds(
    BackoffPolicy,
    base_s=st.floats(0.01, 10),
    factor=st.floats(1, 4),
    longest_s=st.floats(10, 1000),
    jitter=st.floats(0, 1),
    stable_s=st.floats(0, 100),
)


# Back-off.


@given(policies, st.integers(), st.integers(1, 40))
def test_delays_grow_within_their_bounds(policy: BackoffPolicy, seed: int, failures: int) -> None:
    backoff = Backoff(policy, random.Random(seed))
    span = policy.base_s
    for _ in range(failures):
        delay = backoff.failed()
        assert span * (1 - policy.jitter) - 1e-9 <= delay <= span <= policy.longest_s
        span = min(policy.longest_s, span * policy.factor)


@given(policies, st.floats(0, 1e6), st.floats(0, 300), st.integers(1, 10))
def test_a_stable_connection_starts_the_delays_over(
    policy: BackoffPolicy, now: float, stood: float, failures: int
) -> None:
    backoff = Backoff(policy, random.Random(0))
    for _ in range(failures):
        backoff.failed()
    backoff.connected(now)
    end = now + stood
    delay = backoff.lost(end)
    if end - now >= policy.stable_s:
        assert delay <= policy.base_s
    else:
        assert delay <= policy.longest_s
        assert (
            delay
            >= (1 - policy.jitter) * min(policy.longest_s, policy.base_s * policy.factor**failures) - 1e-9
        )


def test_without_jitter_delays_double_up_to_a_minute() -> None:
    backoff = Backoff(BackoffPolicy(jitter=0), random.Random(0))
    assert [backoff.failed() for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    backoff.connected(100)
    assert backoff.lost(159) == 60
    backoff.connected(200)
    assert backoff.lost(260) == 1
    assert backoff.failed() == 2


@pytest.mark.parametrize(
    "arguments", [{"base_s": 0}, {"factor": 0.5}, {"longest_s": 0.5}, {"jitter": 1.5}, {"stable_s": -1}]
)
def test_impossible_policies_are_invalid(arguments: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        BackoffPolicy(**arguments)


# The keeper.

EXACT = LinkProfile(Constant(0.05))


def peer_at(number: int) -> Multiaddr:
    """An address in memory where nobody is."""
    return Multiaddr.parse(f"/memory/{900_000 + number}").with_peer(PeerId(b"\0\x25" + number.to_bytes(37)))


@pytest.mark.virtual
async def test_kept_peers_are_dialed_at_once_and_again_after_a_loss() -> None:
    world = SimulatedWorld(1, link=EXACT)
    async with world, world.host() as one, world.host() as two, open_keeper(one) as keeper:
        hears = Recorder(one)
        started = trio.current_time()
        keeper.keep(two.addresses)
        await hears.wait(PeerConnected, two.peer_id)
        assert trio.current_time() - started == pytest.approx(0.1)
        for count in range(2, 5):
            await trio.sleep(100)
            world.cut(one, two)
            lost = trio.current_time()
            await hears.wait(PeerConnected, two.peer_id, count=count)
            assert 0.5 < trio.current_time() - lost < 1.2
        assert keeper.dials == 4
        assert keeper.failed_dials == 0


@pytest.mark.virtual
async def test_tries_become_rarer_while_a_peer_is_away() -> None:
    world = SimulatedWorld(1, link=EXACT)
    async with world, world.host() as one, open_keeper(one, rng=random.Random(1)) as keeper:
        async with world.host("two") as two:
            keeper.keep(two.addresses)
            await trio.sleep(1)
            assert two.peer_id in one.peers
        await trio.sleep(3600)
        assert 60 <= keeper.failed_dials <= 130
        async with world.host("two") as two:
            await trio.sleep(61)
            assert two.peer_id in one.peers


@pytest.mark.virtual
async def test_a_connection_that_keeps_falling_is_not_dialed_all_the_time() -> None:
    world = SimulatedWorld(1, link=EXACT)
    async with world, world.host() as one, world.host() as two, open_keeper(one) as keeper:
        two.watch(lambda event: world.cut(one, two) if isinstance(event, PeerConnected) else None)
        keeper.keep(two.addresses)
        await trio.sleep(600)
        assert 10 <= keeper.dials <= 30


@pytest.mark.virtual
async def test_a_peer_that_connects_by_itself_needs_no_dial() -> None:
    world = SimulatedWorld(1, link=EXACT)
    async with world, world.host() as one, world.host() as two, open_keeper(one) as keeper:
        await two.connect(one.addresses)
        keeper.keep(two.addresses)
        await trio.sleep(10)
        assert keeper.dials == 0
        world.cut(one, two)
        await two.connect(one.addresses)
        await trio.sleep(10)
        assert keeper.dials == 0
        world.cut(one, two)
        await trio.sleep(10)
        assert keeper.dials == 1
        assert two.peer_id in one.peers


@pytest.mark.virtual
async def test_silent_and_absent_peers_delay_no_others() -> None:
    world = SimulatedWorld(1, link=EXACT)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(world)
        one = await stack.enter_async_context(world.host())
        hosts: list[SimulatedNetwork] = [await stack.enter_async_context(world.host()) for _ in range(30)]
        silent, living = hosts[:20], hosts[20:]
        for host in silent:
            world.stall(host)
        keeper = await stack.enter_async_context(open_keeper(one, max_dials=8))
        for number in range(20):
            keeper.keep(peer_at(number))
        for host in (*silent, *living):
            keeper.keep(host.addresses)
        await trio.sleep(4)
        assert set(one.peers) == {host.peer_id for host in living}
        for host in silent:
            world.resume(host)
        await trio.sleep(40)
        assert set(one.peers) == {host.peer_id for host in hosts}


@pytest.mark.virtual
async def test_dials_begin_a_few_at_a_time() -> None:
    world = SimulatedWorld(1, link=LinkProfile(Constant(0.25)))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(world)
        one = await stack.enter_async_context(world.host())
        keeper = await stack.enter_async_context(open_keeper(one, max_dials=3))
        for _ in range(9):
            host = await stack.enter_async_context(world.host())
            keeper.keep(host.addresses)
        for turn in (1, 2, 3):
            await trio.sleep(0.4)
            assert keeper.dials == 3 * turn
            await trio.sleep(0.12)
            assert len(one.peers) == 3 * turn


@pytest.mark.virtual
async def test_all_addresses_of_a_peer_are_tried() -> None:
    world = SimulatedWorld(1, link=EXACT)
    async with world, world.host() as one, world.host() as two, open_keeper(one) as keeper:
        keeper.keep([Multiaddr.parse(f"/memory/90000{n}").with_peer(two.peer_id) for n in range(3)])
        await trio.sleep(1)
        assert not one.peers
        keeper.keep(
            [Multiaddr.parse(f"/memory/91000{n}").with_peer(two.peer_id) for n in range(MAX_ADDRESSES - 2)]
        )
        keeper.keep(two.addresses)
        await trio.sleep(10)
        assert two.peer_id in one.peers
        assert keeper.peers == (two.peer_id,)


@pytest.mark.virtual
async def test_forgotten_peers_are_not_dialed_but_stay_connected() -> None:
    world = SimulatedWorld(1, link=EXACT)
    async with world, world.host() as one, world.host() as two, open_keeper(one) as keeper:
        keeper.keep(two.addresses)
        await trio.sleep(1)
        keeper.forget(two.peer_id)
        keeper.forget(two.peer_id)
        await trio.sleep(1)
        assert two.peer_id in one.peers
        world.cut(one, two)
        await trio.sleep(100)
        assert not one.peers
        assert keeper.peers == ()
        keeper.keep(two.addresses)
        await trio.sleep(1)
        assert two.peer_id in one.peers
    assert keeper.dials == 2


@pytest.mark.virtual
async def test_a_forgotten_dial_is_given_up() -> None:
    world = SimulatedWorld(1, link=EXACT)
    async with world, world.host() as one, world.host() as two, open_keeper(one) as keeper:
        world.stall(two)
        keeper.keep(two.addresses)
        await trio.sleep(1)
        keeper.forget(two.peer_id)
        world.resume(two)
        await trio.sleep(100)
        assert not one.peers


@pytest.mark.virtual
async def test_what_cannot_be_kept_is_refused() -> None:
    async with SimulatedWorld(1) as world, world.host() as one, open_keeper(one) as keeper:
        with pytest.raises(InvalidInput):
            keeper.keep([peer_at(1), Multiaddr.parse("/memory/1")])
        assert keeper.peers == ()
        keeper.keep([peer_at(number) for number in range(MAX_PEERS)])
        keeper.keep(peer_at(0))
        with pytest.raises(LimitExceeded):
            keeper.keep(peer_at(MAX_PEERS))
        assert len(keeper.peers) == MAX_PEERS


@pytest.mark.virtual
async def test_a_dial_that_fails_as_nobody_thought_of_is_tried_again_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        SimulatedWorld(1) as world,
        world.host() as one,
        world.host() as two,
        world.host() as three,
        open_keeper(one) as keeper,
    ):

        async def fail(addresses: object, *, timeout: float) -> PeerId:
            await trio.lowlevel.checkpoint()
            raise RuntimeError("a fault")

        with monkeypatch.context() as patched:
            patched.setattr(one, "connect", fail)
            keeper.keep(two.addresses)
            await trio.sleep(5)
            assert keeper.failed_dials >= 2
        keeper.keep(three.addresses)
        await trio.sleep(60)
        assert one.peers.keys() == {two.peer_id, three.peer_id}
    assert "dial failed: peer=" in caplog.text
