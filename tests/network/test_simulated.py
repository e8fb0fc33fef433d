"""The simulated build: the conformance suite, and the world around it."""

from __future__ import annotations

import pytest
import trio

from pywaku.errors import DialError, InvalidInput, NetworkError, NodeClosed, StreamReset
from pywaku.keys import PrivateKey
from pywaku.network.port import PeerConnected, PeerDisconnected, PeerIdentified, Stream
from pywaku.network.simulated import (
    Constant,
    LinkProfile,
    LogNormal,
    SimulatedNetwork,
    SimulatedWorld,
    Uniform,
)
from tests.network.conformance import CONFORMANCE, Check
from tests.support.networks import Recorder, echo, receive_exactly, receive_to_end, simulated_factory

ECHO = "/test/echo/1.0.0"
EXACT = LinkProfile(Constant(0.1))


@pytest.mark.virtual
@pytest.mark.parametrize("check", CONFORMANCE, ids=lambda check: check.__name__)
async def test_conformance(check: Check) -> None:
    async with simulated_factory() as factory:
        await check(factory)


@pytest.mark.virtual
@pytest.mark.parametrize(
    "link",
    [
        LinkProfile(LogNormal(0.05, 1.0), loss=0.1, bandwidth_bytes_per_s=5e6),
        LinkProfile(Constant(0.0)),
        LinkProfile(Uniform(0.0, 0.02), loss=0.3, retransmit_after=0.01),
    ],
    ids=["rough", "immediate", "lossy"],
)
async def test_links_of_all_kinds_keep_the_promises(link: LinkProfile) -> None:
    sensitive = {"what_a_peer_begins_to_serve_is_made_known"}  # two changes at once may arrive as one
    for check in CONFORMANCE:
        if check.__name__ not in sensitive:
            async with simulated_factory(1, link) as factory:
                await check(factory)


async def test_it_runs_on_real_time_as_well() -> None:
    world = SimulatedWorld(1, link=LinkProfile(Constant(0.001)))
    async with world, world.host() as one, world.host() as two:
        two.serve(ECHO, echo)
        await one.connect(two.addresses)
        async with await one.open_stream(two.peer_id, ECHO) as stream:
            await stream.send(b"hello")
            assert await receive_exactly(stream, 5) == b"hello"


# Hosts.


@pytest.mark.virtual
async def test_identities_come_from_the_seed_and_the_name() -> None:
    async def identities(seed: int) -> list[str]:
        async with SimulatedWorld(seed) as world, world.host("alice") as alice, world.host() as other:
            return [str(*alice.addresses), str(*other.addresses)]

    assert await identities(1) == await identities(1)
    assert not set(await identities(1)) & set(await identities(2))


@pytest.mark.virtual
async def test_a_host_takes_a_given_identity_once_at_a_time() -> None:
    key = PrivateKey.generate()
    async with SimulatedWorld(1) as world:
        async with world.host(key=key) as one:
            assert one.peer_id == key.public.peer_id
            assert str(one.addresses[0]) == f"/memory/1/p2p/{one.peer_id}"
            with pytest.raises(InvalidInput):
                await world.host(peer_id=one.peer_id).__aenter__()
        async with world.host(peer_id=one.peer_id) as again:
            assert again.addresses == one.addresses


async def test_hosts_need_a_world_that_was_entered() -> None:
    with pytest.raises(InvalidInput):
        await SimulatedWorld(1).host().__aenter__()


@pytest.mark.virtual
async def test_other_addresses_cannot_be_dialed() -> None:
    async with SimulatedWorld(1) as world, world.host() as one:
        address = one.addresses[0].parse("/ip4/127.0.0.1/tcp/1")
        with pytest.raises(DialError):
            await one.connect(address)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Constant(-1.0),
        lambda: Constant(float("nan")),
        lambda: Uniform(2.0, 1.0),
        lambda: LogNormal(0.0),
        lambda: LinkProfile(loss=1.0),
        lambda: LinkProfile(write_loss=-0.1),
        lambda: LinkProfile(retransmit_after=0.0),
        lambda: LinkProfile(bandwidth_bytes_per_s=0.0),
    ],
)
def test_impossible_links_are_invalid(make: type[LinkProfile]) -> None:
    with pytest.raises(InvalidInput):
        make()


# Links.


class Meter:
    """A handler that notes when what arrives."""

    def __init__(self) -> None:
        self.arrivals: list[tuple[float, int]] = []

    async def __call__(self, stream: Stream) -> None:
        while data := await stream.receive():
            self.arrivals.append((trio.current_time(), len(data)))


async def metered(one: SimulatedNetwork, two: SimulatedNetwork) -> tuple[Meter, Stream]:
    """A stream from `one` to `two`, and the meter at its end."""
    meter = Meter()
    two.serve(ECHO, meter)
    await one.connect(two.addresses)
    return meter, await one.open_stream(two.peer_id, ECHO)


@pytest.mark.virtual
async def test_a_dial_takes_a_round_trip_and_a_write_one_way() -> None:
    async with SimulatedWorld(1, link=EXACT) as world, world.host() as one, world.host() as two:
        started = trio.current_time()
        meter, stream = await metered(one, two)
        assert trio.current_time() - started == pytest.approx(0.2)
        sent = trio.current_time()
        await stream.send(b"x")
        await trio.sleep(1)
        assert meter.arrivals == [(pytest.approx(sent + 0.1), 1)]


@pytest.mark.virtual
async def test_latencies_follow_their_distribution() -> None:
    link = LinkProfile(Uniform(0.05, 0.15))
    async with SimulatedWorld(7, link=link, tick=0) as world, world.host() as one, world.host() as two:
        meter, stream = await metered(one, two)
        sent: list[float] = []
        for _ in range(500):
            sent.append(trio.current_time())
            await stream.send(b"x")
            await trio.sleep(1)
        delays = [arrived - left for left, (arrived, _) in zip(sent, meter.arrivals, strict=True)]
        assert 0.05 <= min(delays) < 0.06
        assert 0.14 < max(delays) <= 0.15 + 1e-9
        assert sum(delays) / len(delays) == pytest.approx(0.1, abs=0.005)


@pytest.mark.virtual
async def test_bandwidth_is_the_limit() -> None:
    link = LinkProfile(Constant(0.05), bandwidth_bytes_per_s=1e6)
    async with SimulatedWorld(1, link=link) as world, world.host() as one, world.host() as two:
        meter, stream = await metered(one, two)
        sent = trio.current_time()
        await stream.send(bytes(1_000_000))
        await stream.close_write()
        await trio.sleep(10)
        assert sum(size for _, size in meter.arrivals) == 1_000_000
        assert meter.arrivals[-1][0] - sent == pytest.approx(1.1, abs=0.15)


@pytest.mark.virtual
async def test_lost_packets_come_later_and_in_order() -> None:
    link = LinkProfile(Constant(0.01), loss=0.2, retransmit_after=0.5)
    async with SimulatedWorld(3, link=link) as world, world.host() as one, world.host() as two:
        received: list[bytes] = []

        async def collect(stream: Stream) -> None:
            received.append(await receive_to_end(stream))

        two.serve(ECHO, collect)
        await one.connect(two.addresses)
        stream = await one.open_stream(two.peer_id, ECHO)
        for number in range(200):
            await stream.send(bytes([number]))
            await trio.sleep(0.02)
        await stream.close_write()
        await trio.sleep(30)
        assert received == [bytes(range(200))]
        assert world.counters.retransmissions > 20


@pytest.mark.virtual
async def test_swallowed_writes_are_gone_on_the_given_protocols_only() -> None:
    link = LinkProfile(Constant(0.01), write_loss=0.1, lossy_protocols=frozenset({ECHO}))
    async with SimulatedWorld(5, link=link) as world, world.host() as one, world.host() as two:
        meter, stream = await metered(one, two)
        spared = Meter()
        two.serve("/test/spared", spared)
        other = await one.open_stream(two.peer_id, "/test/spared")
        for _ in range(1000):
            await stream.send(b"x")
            await other.send(b"x")
        await trio.sleep(1)
        arrived = sum(size for _, size in meter.arrivals)
        assert 850 < arrived < 950
        assert arrived + world.counters.writes_swallowed == 1000
        assert sum(size for _, size in spared.arrivals) == 1000


@pytest.mark.virtual
async def test_each_pair_of_hosts_can_have_a_link_of_its_own() -> None:
    world = SimulatedWorld(1, link=EXACT)
    async with world, world.host() as one, world.host() as two, world.host() as three:
        world.set_link(one, two, LinkProfile(Constant(1.0)))
        started = trio.current_time()
        await one.connect(three.addresses)
        assert trio.current_time() - started == pytest.approx(0.2)
        await one.connect(two.addresses)
        assert trio.current_time() - started == pytest.approx(2.2)
        await trio.sleep(5)  # what is under way would hold up what follows it
        two.serve(ECHO, echo)
        world.set_link(two, one, LinkProfile(Constant(0.001)))
        world.set_default_link(LinkProfile(Constant(5.0)))
        started = trio.current_time()
        async with await one.open_stream(two.peer_id, ECHO) as stream:
            await stream.send(b"x")
            await stream.receive()
        assert trio.current_time() - started == pytest.approx(0.002)


# What befalls hosts.


@pytest.mark.virtual
async def test_a_short_partition_delays_and_loses_nothing() -> None:
    async with SimulatedWorld(1, link=EXACT) as world, world.host() as one, world.host() as two:
        two.serve(ECHO, echo)
        hears = Recorder(one)
        await one.connect(two.addresses)
        stream = await one.open_stream(two.peer_id, ECHO)
        await stream.send(b"in flight ")
        world.partition([one], [two])
        await stream.send(b"held back")
        before = world.counters.deliveries
        with trio.move_on_after(20) as scope:
            await stream.receive()
        assert scope.cancelled_caught
        assert world.counters.deliveries == before
        healed = trio.current_time()
        world.heal()
        assert await receive_exactly(stream, 19) == b"in flight held back"
        assert trio.current_time() - healed == pytest.approx(0.2)
        await trio.sleep(100)
        assert not hears.of(PeerDisconnected, two.peer_id)


@pytest.mark.virtual
async def test_silence_begins_in_the_middle_of_a_packet() -> None:
    async with SimulatedWorld(1, link=EXACT) as world, world.host() as one, world.host() as two:
        meter = Meter()
        two.serve(ECHO, meter)
        two.watch(lambda event: world.stall(two) if isinstance(event, PeerIdentified) else None)
        await one.connect(two.addresses)
        stream = await one.open_stream(two.peer_id, ECHO)
        await stream.send(b"x")  # in one packet with what identifies the sender
        await trio.sleep(10)
        assert not meter.arrivals
        world.resume(two)
        await trio.sleep(1)
        assert len(meter.arrivals) == 1


@pytest.mark.virtual
async def test_a_long_partition_ends_connections_across_it_and_dials_time_out() -> None:
    async with (
        SimulatedWorld(1, link=EXACT, dead_after=30) as world,
        world.host() as one,
        world.host() as two,
        world.host() as three,
    ):
        hears, also_hears = Recorder(one), Recorder(two)
        await one.connect(two.addresses)
        await one.connect(three.addresses)
        stream = await one.open_stream(two.peer_id, ECHO)
        parted = trio.current_time()
        world.partition([two])
        with pytest.raises(StreamReset):
            await stream.receive()
        assert trio.current_time() - parted == pytest.approx(30)
        await hears.wait(PeerDisconnected, two.peer_id)
        await also_hears.wait(PeerDisconnected, one.peer_id)
        assert set(one.peers) == {three.peer_id}
        with pytest.raises(DialError):
            await one.connect(two.addresses, timeout=5)
        with trio.move_on_after(2):
            await one.connect(two.addresses)
        world.heal()
        assert await one.connect(two.addresses) == two.peer_id


@pytest.mark.virtual
async def test_a_dial_that_waits_for_the_end_of_a_partition_succeeds_then() -> None:
    async with SimulatedWorld(1, link=EXACT) as world, world.host() as one, world.host() as two:
        world.partition([one], [two])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.connect, two.addresses)
            await trio.sleep(5)
            world.heal()
        assert two.peer_id in one.peers


@pytest.mark.virtual
async def test_a_disconnection_during_a_partition_is_heard_of_after_it() -> None:
    async with SimulatedWorld(1, link=EXACT) as world, world.host() as one, world.host() as two:
        await one.connect(two.addresses)
        world.partition([one], [two])
        await one.disconnect(two.peer_id)
        await trio.sleep(10)
        assert not one.peers
        assert one.peer_id in two.peers
        world.heal()
        await trio.sleep(0.2)
        assert not two.peers


@pytest.mark.virtual
async def test_a_peer_that_lost_us_earlier_is_replaced_when_it_dials_again() -> None:
    async with SimulatedWorld(1, link=EXACT) as world, world.host() as one, world.host() as two:
        two.serve(ECHO, echo)
        hears = Recorder(two)
        await one.connect(two.addresses)
        world.set_link(one, two, LinkProfile(Constant(2.0)))
        await one.disconnect(two.peer_id)  # on its slow way
        world.set_link(one, two, EXACT)
        await one.connect(two.addresses)
        await trio.sleep(5)
        kinds = [type(event) for event in hears.events if not isinstance(event, PeerIdentified)]
        assert kinds == [PeerConnected, PeerDisconnected, PeerConnected]
        async with await one.open_stream(two.peer_id, ECHO) as stream:
            await stream.send(b"x")
            assert await stream.receive() == b"x"


@pytest.mark.virtual
async def test_a_stalled_host_accepts_nothing_and_answers_nothing_until_it_resumes() -> None:
    async with SimulatedWorld(1, link=EXACT) as world, world.host() as one, world.host() as two:
        two.serve(ECHO, echo)
        await one.connect(two.addresses)
        stream = await one.open_stream(two.peer_id, ECHO)
        world.stall(two)
        with trio.move_on_after(5):
            for _ in range(100):
                await stream.send(bytes(10_000))
        with pytest.raises(StreamReset):
            await stream.send(b"that was cancelled half-way")
        with pytest.raises(NetworkError):
            await one.open_stream(two.peer_id, [ECHO, "/test/other"], timeout=5)
        later = await one.open_stream(two.peer_id, ECHO)
        await later.send(b"late")
        with trio.move_on_after(100) as scope:
            await later.receive()
        assert scope.cancelled_caught
        assert two.peer_id in one.peers
        world.resume(two)
        assert await receive_exactly(later, 4) == b"late"


@pytest.mark.virtual
async def test_a_cut_is_seen_at_once_on_both_sides() -> None:
    async with SimulatedWorld(1) as world, world.host() as one, world.host() as two, world.host() as three:
        await one.connect(two.addresses)
        await one.connect(three.addresses)
        await trio.sleep(1)
        world.cut(two, one)
        assert set(one.peers) == {three.peer_id}
        assert not two.peers
        assert await one.connect(two.addresses) == two.peer_id


@pytest.mark.virtual
@pytest.mark.parametrize("silent", [False, True])
async def test_a_host_crashes_and_starts_again(silent: bool) -> None:
    cancelled: list[bool] = []

    async def linger(stream: Stream) -> None:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.append(True)

    async with SimulatedWorld(1, link=EXACT) as world, world.host() as one:
        hears = Recorder(one)
        async with world.host("two") as two:
            crashed = Recorder(two)
            two.serve(ECHO, linger)
            await one.connect(two.addresses)
            stream = await one.open_stream(two.peer_id, ECHO)
            await trio.sleep(1)
            world.crash(two, silent=silent)
            with pytest.raises(NodeClosed):
                await two.open_stream(one.peer_id, ECHO)
            await trio.sleep(1)
            assert cancelled == [True]
            assert not crashed.of(PeerDisconnected, one.peer_id)
            assert (two.peer_id in one.peers) == silent
            if not silent:
                with pytest.raises(DialError, match="refused"):
                    await one.connect(two.addresses)
            with pytest.raises(InvalidInput):
                world.crash(two)
        async with world.host("two") as restarted:
            assert restarted.addresses == two.addresses
            restarted.serve(ECHO, echo)
            with pytest.raises(StreamReset):
                await stream.receive()
            await hears.wait(PeerDisconnected, two.peer_id)
            await one.connect(restarted.addresses)
            async with await one.open_stream(restarted.peer_id, ECHO) as again:
                await again.send(b"x")
                assert await again.receive() == b"x"


@pytest.mark.virtual
async def test_a_restarted_host_that_dials_first_replaces_its_old_connection() -> None:
    async with SimulatedWorld(1, link=EXACT) as world, world.host() as one:
        hears = Recorder(one)
        async with world.host("two") as two:
            await two.connect(one.addresses)
            world.set_link(one, two, LinkProfile(Constant(1.0)))
            world.crash(two, silent=True)
        world.set_link(one, two, EXACT)
        async with world.host("two") as two:
            await two.connect(one.addresses)
            await trio.sleep(5)
            assert set(one.peers) == {two.peer_id}
            assert len(hears.of(PeerConnected, two.peer_id)) == 2
            assert len(hears.of(PeerDisconnected, two.peer_id)) == 1


@pytest.mark.virtual
async def test_a_silent_crash_is_found_out_in_the_end() -> None:
    async with SimulatedWorld(1, dead_after=20) as world, world.host() as one, world.host() as two:
        hears = Recorder(one)
        await one.connect(two.addresses)
        crashed = trio.current_time()
        world.crash(two, silent=True)
        await hears.wait(PeerDisconnected, two.peer_id)
        assert trio.current_time() - crashed == pytest.approx(20)
        with pytest.raises(DialError):
            await one.connect(two.addresses, timeout=3)


@pytest.mark.virtual
async def test_what_a_crash_interrupts_does_not_survive_it() -> None:
    async with SimulatedWorld(1, link=EXACT) as world, world.host() as one, world.host() as two:
        async with trio.open_nursery() as nursery:

            async def dial() -> None:
                with pytest.raises(DialError):
                    await one.connect(two.addresses)

            nursery.start_soon(dial)
            await trio.sleep(0.05)
            world.crash(two)
        assert not one.peers
