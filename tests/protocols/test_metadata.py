"""Metadata between simulated hosts (66/WAKU2-METADATA; 64/WAKU2-NETWORK, Network shards)."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from pywaku.errors import InvalidInput, NetworkError
from pywaku.ids import PeerId
from pywaku.network.port import Direction, PeerConnected, PeerDisconnected, Stream
from pywaku.network.simulated import SimulatedNetwork, SimulatedWorld
from pywaku.protocols.metadata import PROTOCOL, Metadata, MetadataOptions, open_metadata
from pywaku.protocols.service import RateLimit
from pywaku.wire.framing import FrameDecoder, frame
from pywaku.wire.metadata import Metadata as Said
from pywaku.wire.metadata import decode_metadata, encode_metadata
from tests.support.damage import damaged
from tests.support.light import TracedMemory

HOUR = 3600.0


@asynccontextmanager
async def open_pair(
    *, options: MetadataOptions | None = None
) -> AsyncGenerator[tuple[SimulatedNetwork, Metadata, SimulatedNetwork], None]:
    """A host of cluster 42 on shards 3 and 1 that speaks metadata, and a bare one, not yet connected."""
    async with (
        SimulatedWorld(1) as world,
        world.host("node") as network,
        world.host("other") as other,
        open_metadata(network, cluster_id=42, shards=lambda: [3, 1], options=options) as metadata,
    ):
        yield network, metadata, other


def answers(network: SimulatedNetwork, answer: bytes, *, pause: float = 0.0) -> list[Said]:
    """Let a host answer metadata requests with these bytes; gives the list of what it is told."""
    told: list[Said] = []

    async def handle(stream: Stream) -> None:
        decoder = FrameDecoder(10_000)
        for part in decoder.feed(await stream.receive()):
            told.append(decode_metadata(part))
        await trio.sleep(pause)
        await stream.send(answer)

    network.serve(PROTOCOL, handle)
    return told


def said(cluster_id: int | None, *shards: int) -> bytes:
    """A frame with metadata."""
    return frame(encode_metadata(Said(cluster_id, shards)))


async def connect(one: SimulatedNetwork, other: SimulatedNetwork) -> None:
    """Connect, and give metadata time."""
    await one.connect(other.addresses)
    await trio.sleep(1)


@pytest.mark.virtual
@pytest.mark.parametrize("dialer", list(Direction))
async def test_both_sides_learn_cluster_and_shards(dialer: Direction) -> None:
    async with (
        open_pair() as (network, metadata, other),
        open_metadata(other, cluster_id=42, shards=lambda: [7]) as theirs,
    ):
        if dialer is Direction.OUTBOUND:
            await connect(network, other)
        else:
            await connect(other, network)
        assert metadata.of(other.peer_id) == Said(42, (7,))
        assert theirs.of(network.peer_id) == Said(42, (1, 3))
        assert other.peer_id in network.peers


@pytest.mark.virtual
async def test_the_request_carries_what_the_receiver_needs_to_know() -> None:
    async with open_pair() as (network, metadata, other):
        await other.connect(network.addresses)
        stream = await other.open_stream(network.peer_id, PROTOCOL)
        await stream.send(said(42, 5))
        (answer,) = FrameDecoder(1000).feed(await stream.receive())
        assert decode_metadata(answer) == Said(42, (1, 3))
        await trio.sleep(1)
        assert metadata.of(other.peer_id) == Said(42, (5,))
        assert metadata.counters.asked == 0, "there is nothing left to ask"


@pytest.mark.virtual
async def test_a_peer_may_ask_several_times_at_once() -> None:
    async with open_pair() as (network, _, other):
        await other.connect(network.addresses)
        streams = [await other.open_stream(network.peer_id, PROTOCOL) for _ in range(8)]
        await trio.sleep(1)
        for stream in streams:
            await stream.send(said(42))
        for stream in streams:
            (answer,) = FrameDecoder(1000).feed(await stream.receive())
            assert decode_metadata(answer) == Said(42, (1, 3))


@pytest.mark.virtual
async def test_without_relay_no_shards_are_told() -> None:
    async with SimulatedWorld(1) as world, world.host("light") as network, world.host("other") as other:
        told = answers(other, said(42))
        async with open_metadata(network, cluster_id=42):
            await connect(network, other)
        assert told == [Said(42, ())]


@pytest.mark.virtual
@pytest.mark.parametrize("require", [True, False])
async def test_a_peer_of_another_cluster_is_disconnected(require: bool) -> None:
    async with open_pair(options=MetadataOptions(require=require)) as (network, metadata, other):
        answers(other, said(1))
        await connect(network, other)
        assert other.peer_id not in network.peers
        assert metadata.of(other.peer_id) == Said(1)
        assert metadata.counters.disconnected == 1


@pytest.mark.virtual
async def test_a_peer_that_asks_from_another_cluster_is_answered_and_disconnected() -> None:
    async with open_pair() as (network, metadata, other):
        await other.connect(network.addresses)
        stream = await other.open_stream(network.peer_id, PROTOCOL)
        await stream.send(said(1))
        (answer,) = FrameDecoder(1000).feed(await stream.receive())
        assert decode_metadata(answer).cluster_id == 42
        await trio.sleep(1)
        assert network.peer_id not in other.peers
        assert metadata.counters.disconnected == 1


@pytest.mark.virtual
async def test_shards_are_no_reason_to_disconnect() -> None:
    async with open_pair(options=MetadataOptions(require=True)) as (network, _, other):
        answers(other, said(42, 1000))
        await connect(network, other)
        assert other.peer_id in network.peers


@pytest.mark.virtual
@pytest.mark.parametrize("require", [True, False])
async def test_an_empty_cluster_id_disconnects_where_metadata_is_required(require: bool) -> None:
    async with open_pair(options=MetadataOptions(require=require)) as (network, _, other):
        answers(other, said(None))
        await connect(network, other)
        assert (other.peer_id in network.peers) != require


@pytest.mark.virtual
@pytest.mark.parametrize("require", [True, False])
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(frame(b"\xff\xff"), id="no protobuf"),
        pytest.param(b"\xff\xff\xff\x7f", id="too large"),
        pytest.param(b"\x05\x08", id="cut off"),
        pytest.param(frame(encode_metadata(Said(42, tuple(range(1025))))), id="too many shards"),
    ],
)
async def test_an_answer_that_is_none_disconnects_where_metadata_is_required(
    answer: bytes, require: bool
) -> None:
    async with open_pair(options=MetadataOptions(require=require)) as (network, metadata, other):
        answers(other, answer)
        await connect(network, other)
        assert metadata.counters.failed == 1
        assert metadata.of(other.peer_id) is None
        assert (other.peer_id in network.peers) != require


@pytest.mark.virtual
@pytest.mark.parametrize("require", [True, False])
async def test_a_peer_that_does_not_answer_is_not_waited_for_longer_than_the_timeout(require: bool) -> None:
    async with open_pair(options=MetadataOptions(require=require, timeout_s=5)) as (network, metadata, other):
        answers(other, said(42), pause=100)
        await connect(network, other)
        assert other.peer_id in network.peers
        await trio.sleep(5)
        assert metadata.counters.failed == 1
        assert (other.peer_id in network.peers) != require


@pytest.mark.virtual
@pytest.mark.parametrize("require", [True, False])
async def test_a_peer_that_does_not_speak_the_protocol_is_disconnected_where_it_is_required(
    require: bool,
) -> None:
    async with open_pair(options=MetadataOptions(require=require, timeout_s=5)) as (network, _, other):
        await connect(network, other)
        assert other.peer_id in network.peers, "it has some time to tell by itself"
        await trio.sleep(5)
        assert (other.peer_id in network.peers) != require


@pytest.mark.virtual
async def test_a_light_client_that_only_asks_is_tolerated_where_metadata_is_required() -> None:
    async with open_pair(options=MetadataOptions(require=True, timeout_s=5)) as (network, _, other):
        await other.connect(network.addresses)
        stream = await other.open_stream(network.peer_id, PROTOCOL)
        await stream.send(said(42))
        await trio.sleep(60)
        assert other.peer_id in network.peers


@pytest.mark.virtual
async def test_a_peer_that_reconnects_has_its_time_again() -> None:
    async with open_pair(options=MetadataOptions(require=True, timeout_s=5)) as (network, _, other):
        await connect(network, other)
        await trio.sleep(2)
        await network.disconnect(other.peer_id)
        await trio.sleep(0.5)
        await connect(network, other)
        await trio.sleep(3)
        assert other.peer_id in network.peers
        await trio.sleep(2)
        assert other.peer_id not in network.peers


@pytest.mark.virtual
async def test_a_peer_that_comes_and_goes_at_once_ends_nothing() -> None:
    async with open_pair(options=MetadataOptions(require=True)) as (network, metadata, other):
        for _ in range(2):
            # Both events before any task had its turn.
            metadata._heard(PeerConnected(other.peer_id, Direction.INBOUND, None))
            metadata._heard(PeerDisconnected(other.peer_id, "gone"))
        await trio.sleep(60)
        await connect(network, other)
        assert other.peer_id in network.peers


@pytest.mark.virtual
async def test_a_stream_that_is_reset_is_not_held_against_a_peer_that_is_still_there() -> None:
    asked = 0

    async def handle(stream: Stream) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            stream.reset()  # as the loss of one of two connections does
        else:
            await stream.receive()
            await stream.send(said(42, 7))

    async with open_pair(options=MetadataOptions(require=True)) as (network, metadata, other):
        other.serve(PROTOCOL, handle)
        await connect(network, other)
        assert metadata.of(other.peer_id) == Said(42, (7,))
        assert other.peer_id in network.peers
        assert metadata.counters.disconnected == 0


@pytest.mark.virtual
async def test_metadata_is_kept_for_6_hours_and_refreshed_while_connected() -> None:
    assert MetadataOptions().ttl_s == 6 * HOUR
    async with open_pair() as (network, metadata, other):
        told = answers(other, said(42, 1))
        await connect(network, other)
        await trio.sleep(5.9 * HOUR)
        assert len(told) == 1
        await trio.sleep(0.7 * HOUR)
        assert len(told) == 2
        assert metadata.of(other.peer_id) == Said(42, (1,))
        await network.disconnect(other.peer_id)
        await trio.sleep(5 * HOUR)
        assert metadata.of(other.peer_id) == Said(42, (1,))
        await trio.sleep(1.1 * HOUR)
        assert metadata.of(other.peer_id) is None
        assert len(told) == 2


@pytest.mark.virtual
async def test_what_is_remembered_is_bounded() -> None:
    async with open_pair(options=MetadataOptions(remember=3)) as (network, metadata, other):
        known: list[PeerId] = [other.peer_id]
        answers(other, said(42))
        await connect(network, other)
        for number in range(4):
            async with network.world.host(f"guest-{number}") as guest:
                answers(guest, said(42))
                await connect(network, guest)
                known.append(guest.peer_id)
        assert [metadata.of(peer) is not None for peer in known] == [False, False, True, True, True]


@pytest.mark.virtual
@pytest.mark.parametrize("request_bytes", [b"\xff" * 11, frame(b"\xff"), b"\xff\xff\x7f", b"\x05\x08"])
async def test_hostile_requests_are_refused_and_the_peer_stays(request_bytes: bytes) -> None:
    async with open_pair() as (network, metadata, other):
        await other.connect(network.addresses)
        stream = await other.open_stream(network.peer_id, PROTOCOL)
        await stream.send(request_bytes)
        await stream.close_write()
        await trio.sleep(1)
        assert metadata.counters.invalid == 1
        assert metadata.counters.served == 0
        assert other.peer_id in network.peers


@pytest.mark.virtual
async def test_requests_that_never_come_do_not_hold_streams() -> None:
    async with open_pair(options=MetadataOptions(timeout_s=5)) as (network, metadata, other):
        await other.connect(network.addresses)
        for _ in range(4):
            await other.open_stream(network.peer_id, PROTOCOL)
        await trio.sleep(6)
        stream = await other.open_stream(network.peer_id, PROTOCOL)
        await stream.send(said(42))
        await trio.sleep(1)
        assert metadata.counters.served == 1


async def ask(asking: SimulatedNetwork, asked: PeerId, data: bytes = b"") -> bytes:
    """What comes back for some bytes; nothing where the stream is reset."""
    with suppress(NetworkError):
        async with await asking.open_stream(asked, PROTOCOL) as stream:
            await stream.send(data or said(42))
            await stream.close_write()
            return await stream.receive()
    return b""


@pytest.mark.virtual
async def test_a_peer_over_its_rate_is_refused_and_others_are_answered() -> None:
    options = MetadataOptions(per_peer=RateLimit(5, 50.0))
    async with open_pair(options=options) as (network, metadata, other), other.world.host("third") as third:
        for host in (other, third):
            await host.connect(network.addresses)
        assert [bool(await ask(other, network.peer_id)) for _ in range(7)] == [True] * 5 + [False] * 2
        assert metadata.counters.limited == 2
        assert await ask(third, network.peer_id)
        await trio.sleep(10)
        assert await ask(other, network.peer_id)
        assert other.peer_id in network.peers


@pytest.mark.virtual
async def test_all_peers_together_have_a_rate_as_well() -> None:
    options = MetadataOptions(per_peer=RateLimit(3, 50.0), total=RateLimit(4, 1000.0))
    async with open_pair(options=options) as (network, metadata, other), other.world.host("third") as third:
        for host in (other, third):
            await host.connect(network.addresses)
        answered = [bool(await ask(host, network.peer_id)) for host in (other, third) for _ in range(3)]
        assert answered == [True] * 4 + [False] * 2
        assert metadata.counters.limited == 2


@pytest.mark.virtual
@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.long)])
async def test_malformed_requests_leave_the_node_as_it_was(count: int) -> None:
    rng = random.Random(1)
    options = MetadataOptions(per_peer=None, total=None)
    async with open_pair(options=options) as (network, metadata, other):
        await other.connect(network.addresses)

        async def throw(count: int) -> None:
            for _ in range(count):
                data = damaged(said(42, *range(20)), said(42, 7), rng)
                if rng.random() < 0.5:
                    data = frame(rng.randbytes(rng.randrange(60)))
                with suppress(NetworkError):
                    async with await other.open_stream(network.peer_id, PROTOCOL) as stream:
                        await stream.send(data)
                        await stream.close_write()
                        while await stream.receive():
                            pass
                if other.peer_id not in network.peers:  # the damaged bytes named another cluster
                    await other.connect(network.addresses)

        await throw(300)
        memory = TracedMemory()
        await throw(count)
        assert memory.held() < 200_000
        assert metadata.counters.invalid > count / 3
        assert await ask(other, network.peer_id)


@pytest.mark.virtual
async def test_peers_connected_before_are_asked_and_closing_leaves_nothing_behind() -> None:
    async with SimulatedWorld(1) as world, world.host("node") as network, world.host("other") as other:
        told = answers(other, said(42))
        await connect(network, other)
        for _ in range(2):
            async with open_metadata(network, cluster_id=42) as metadata:
                await trio.sleep(1)
                assert metadata.of(other.peer_id) == Said(42)
        assert len(told) == 2
        with pytest.raises(ZeroDivisionError):
            async with open_metadata(network, cluster_id=42):
                raise ZeroDivisionError


@pytest.mark.virtual
async def test_options_without_sense_are_refused() -> None:
    for wrong in ({"timeout_s": 0}, {"ttl_s": -1}, {"remember": 0}, {"max_size": 0}):
        with pytest.raises(InvalidInput):
            MetadataOptions(**wrong)  # pyright: ignore[reportArgumentType]
    async with SimulatedWorld(1) as world, world.host("node") as network:
        with pytest.raises(InvalidInput):
            async with open_metadata(network, cluster_id=1 << 16):
                pass
