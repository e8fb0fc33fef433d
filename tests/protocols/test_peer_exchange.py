"""Peer exchange between simulated hosts (34/WAKU2-PEER-EXCHANGE)."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress

import pytest
import trio

from pywaku.errors import InvalidInput, NetworkError, ProtocolNotSupported, RequestTimeout
from pywaku.ids import PeerId
from pywaku.network.frames import request
from pywaku.network.port import Network, Stream
from pywaku.network.simulated import SimulatedNetwork, SimulatedWorld
from pywaku.peers.entry import Candidate, Origin
from pywaku.peers.manager import PeersOptions, open_peers
from pywaku.peers.services import OK, TIMED_OUT, WITHOUT_CODE, Outcome
from pywaku.protocols.peer_exchange import (
    PROTOCOL,
    PeerExchangeClient,
    PeerExchangeDiscovery,
    PeerExchangeOptions,
    PeerExchangeService,
    open_peer_exchange,
    records_to_give,
)
from pywaku.protocols.service import RateLimit, ServiceLimits
from pywaku.wire.enr import Enr
from pywaku.wire.framing import frame
from pywaku.wire.peer_exchange import (
    PeerExchangeQuery,
    PeerExchangeResponse,
    decode_response,
    encode_query,
    encode_response,
)
from tests.support.damage import damaged
from tests.support.peers import CLUSTER, entry_of, key_of, peer_of, record_of

RECORDS = [record_of(n) for n in range(80)]
UNLIMITED = ServiceLimits(per_peer=None, total=None, max_request=1024)


@asynccontextmanager
async def open_pair(
    records: Iterable[Enr] = RECORDS, *, options: PeerExchangeOptions | None = None
) -> AsyncGenerator[tuple[SimulatedNetwork, PeerExchangeService, PeerExchangeClient], None]:
    """A node that answers, and one connected with it that asks."""
    async with (
        SimulatedWorld(1) as world,
        world.host("service") as serving,
        world.host("client") as asking,
        open_peer_exchange(
            serving, records=lambda: records, options=options, rng=random.Random(1)
        ) as service,
    ):
        await asking.connect(serving.addresses)
        await trio.sleep(1)
        yield serving, service, PeerExchangeClient(asking)


async def ask_raw(asking: Network, peer: PeerId, data: bytes) -> bytes:
    return await request(asking, peer, PROTOCOL, data, max_response=100_000)


@pytest.mark.virtual
async def test_a_query_is_answered_with_as_many_records_at_most() -> None:
    async with open_pair() as (serving, service, client):
        for count in (1, 6, 60):
            answer = await client.query(serving.peer_id, count)
            assert len(answer.records) == count
            assert set(answer.records) <= set(RECORDS)
            assert answer.outcome == OK
        assert service.counters.records_sent == client.counters.records_received == 67


@pytest.mark.virtual
async def test_the_number_of_records_in_a_response_is_bounded() -> None:
    async with open_pair() as (serving, _, client):
        assert len((await client.query(serving.peer_id, 1000)).records) == 60


@pytest.mark.virtual
async def test_responses_to_the_same_peer_differ() -> None:
    async with open_pair() as (serving, _, client):
        answers = {(await client.query(serving.peer_id, 5)).records for _ in range(5)}
        assert len(answers) == 5


@pytest.mark.virtual
async def test_a_node_that_knows_nobody_answers_with_nobody() -> None:
    async with open_pair(()) as (serving, _, client):
        assert (await client.query(serving.peer_id, 5)).records == ()


@pytest.mark.virtual
async def test_connected_peers_and_the_requester_are_not_given_away() -> None:
    async with SimulatedWorld(1) as world:
        keys = [key_of(n) for n in range(4)]
        async with (
            world.host("service") as serving,
            world.host("client", key=keys[0]) as asking,
            world.host("neighbour", key=keys[1]) as neighbour,
            open_peer_exchange(serving, records=lambda: [record_of(n) for n in range(4)]),
        ):
            for host in (asking, neighbour):
                await host.connect(serving.addresses)
            await trio.sleep(1)
            answer = await PeerExchangeClient(asking).query(serving.peer_id, 10)
            assert {record.peer_id for record in answer.records} == {key.peer_id for key in keys[2:]}


def test_only_records_of_discovered_unconnected_nodes_that_work_are_given_away() -> None:
    record = record_of("a")

    def given(origin: Origin = Origin.DNS, **changes: object) -> list[Enr]:
        entry = entry_of("a", origin, **({"record": record} | changes))
        return records_to_give([entry], CLUSTER)

    assert given() == [record]
    assert given(Origin.DISCV5) == given(Origin.PEER_EXCHANGE) == [record]
    assert given(Origin.STATIC) == given(Origin.INBOUND) == given(Origin.OUTBOUND) == []
    assert given(connected=True) == given(failures=1) == given(cluster_id=1) == given(record=None) == []
    assert given(record=Enr.create(key_of("a"))) == [], "not a Waku node"


@pytest.mark.virtual
async def test_the_cache_is_refreshed_over_time() -> None:
    records: list[Enr] = []
    async with open_pair(records) as (serving, _, client):
        assert (await client.query(serving.peer_id, 5)).records == ()
        records += RECORDS[:5]
        await trio.sleep(10)
        assert len((await client.query(serving.peer_id, 5)).records) == 5
        records[:] = RECORDS[5:8]
        await trio.sleep(61)
        assert set((await client.query(serving.peer_id, 5)).records) == set(RECORDS[5:8])


@pytest.mark.virtual
async def test_a_source_of_records_that_fails_does_not_end_the_service() -> None:
    calls = 0

    def source() -> Sequence[Enr]:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise RuntimeError("no records today")
        return RECORDS

    async with (
        SimulatedWorld(1) as world,
        world.host() as serving,
        world.host() as asking,
        open_peer_exchange(serving, records=source),
    ):
        await asking.connect(serving.addresses)
        await trio.sleep(200)
        assert calls > 2
        assert len((await PeerExchangeClient(asking).query(serving.peer_id, 5)).records) == 5


# Limits


@pytest.mark.virtual
async def test_a_peer_over_its_rate_is_answered_with_429_and_no_records() -> None:
    limits = ServiceLimits(per_peer=RateLimit(3, 60.0), max_request=1024)
    async with open_pair(options=PeerExchangeOptions(limits=limits)) as (serving, service, client):
        for _ in range(3):
            assert (await client.query(serving.peer_id, 5)).records
        refused = await client.query(serving.peer_id, 5)
        assert (refused.records, refused.status) == ((), 429)
        assert refused.outcome == Outcome.of_status(429)
        assert service.service.counters.limited == 1
        await trio.sleep(60)
        assert (await client.query(serving.peer_id, 5)).records


@pytest.mark.virtual
async def test_a_refusal_is_a_response_that_others_understand_as_well() -> None:
    async with open_pair() as (serving, _, client):
        answer = await ask_raw(client._network, serving.peer_id, b"\xff")
        assert decode_response(answer) == PeerExchangeResponse(())


@pytest.mark.virtual
async def test_all_peers_together_have_a_rate_as_well() -> None:
    limits = ServiceLimits(per_peer=None, total=RateLimit(5, 60.0), max_request=1024)
    async with open_pair(options=PeerExchangeOptions(limits=limits)) as (serving, _, client):
        statuses = [(await client.query(serving.peer_id, 1)).status for _ in range(8)]
        assert statuses == [None] * 5 + [429] * 3


@pytest.mark.virtual
@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.long)])
async def test_malformed_requests_leave_the_service_as_it_was(count: int) -> None:
    rng = random.Random(1)
    good = encode_query(PeerExchangeQuery(5))
    async with open_pair(options=PeerExchangeOptions(limits=UNLIMITED)) as (serving, service, client):
        asking = client._network

        async def send(data: bytes) -> None:
            with suppress(NetworkError):
                async with await asking.open_stream(serving.peer_id, PROTOCOL) as stream:
                    await stream.send(data)
                    await stream.close_write()
                    while await stream.receive():
                        pass

        def malformed(number: int) -> bytes:
            match number % 5:
                case 0:
                    return frame(rng.randbytes(rng.randrange(50)))
                case 1:
                    return rng.randbytes(rng.randrange(1, 50))
                case 2:
                    return frame(damaged(good, encode_response(PeerExchangeResponse((b"x",))), rng))
                case 3:
                    return frame(encode_response(PeerExchangeResponse(())))
                case _:
                    return frame(good)[: rng.randrange(1, len(good))]

        async def barrage(count: int) -> None:
            for start in range(0, count, 10):
                async with trio.open_nursery() as nursery:
                    for number in range(start, start + 10):
                        nursery.start_soon(send, malformed(number))

        await barrage(500)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        await barrage(count)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert service.service.counters.undecodable > count / 2
        assert service.service.counters.failed == 0
        assert service.service.open_streams == 0
        assert grown < 200_000
        assert len((await client.query(serving.peer_id, 5)).records) == 5


# The client


def answers_with(network: SimulatedNetwork, answer: bytes, *, pause: float = 0.0) -> None:
    async def handle(stream: Stream) -> None:
        await stream.receive()
        await trio.sleep(pause)
        await stream.send(answer)
        await stream.close()

    network.serve(PROTOCOL, handle)


@asynccontextmanager
async def open_liar(
    answer: bytes, *, pause: float = 0.0
) -> AsyncGenerator[tuple[PeerId, PeerExchangeClient]]:
    async with SimulatedWorld(1) as world, world.host("liar") as liar, world.host("client") as asking:
        answers_with(liar, answer, pause=pause)
        await asking.connect(liar.addresses)
        await trio.sleep(1)
        yield liar.peer_id, PeerExchangeClient(asking)


def response(*enrs: bytes) -> bytes:
    return frame(encode_response(PeerExchangeResponse(enrs)))


@pytest.mark.virtual
async def test_records_that_are_not_valid_are_left_out() -> None:
    good = RECORDS[0].encode()
    forged = bytearray(good)
    forged[-1] ^= 1
    async with open_liar(response(b"", b"junk", bytes(forged), good, good, bytes(300))) as (liar, client):
        answer = await client.query(liar, 10)
        assert answer.records == (RECORDS[0],)
        assert client.counters.invalid_records == 5


@pytest.mark.virtual
async def test_no_more_records_are_taken_than_were_asked_for() -> None:
    async with open_liar(response(*(record.encode() for record in RECORDS[:8]))) as (liar, client):
        assert (await client.query(liar, 3)).records == tuple(RECORDS[:3])


@pytest.mark.virtual
async def test_a_response_larger_than_what_was_asked_for_can_be_is_refused() -> None:
    async with open_liar(response(*[bytes(300)] * 50)) as (liar, client):
        with pytest.raises(NetworkError):
            await client.query(liar, 1)


@pytest.mark.virtual
@pytest.mark.parametrize(
    "answer",
    [
        b"",
        frame(b""),
        frame(b"\xff\xff"),
        b"\x80",
        response(bytes(301)),
        frame(encode_query(PeerExchangeQuery(1))),
    ],
)
async def test_what_is_no_response_is_a_network_error(answer: bytes) -> None:
    async with open_liar(answer) as (liar, client):
        with pytest.raises(NetworkError):
            await client.query(liar, 5)
        assert client.counters.failed_queries == 1


@pytest.mark.virtual
async def test_a_node_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    async with open_liar(response(), pause=100) as (liar, client):
        start = trio.current_time()
        with pytest.raises(RequestTimeout):
            await client.query(liar, 5, timeout=3)
        assert trio.current_time() - start == pytest.approx(3)


@pytest.mark.virtual
async def test_a_node_without_the_protocol_is_told_from_one_that_fails() -> None:
    async with SimulatedWorld(1) as world, world.host() as other, world.host() as asking:
        await asking.connect(other.addresses)
        with pytest.raises(ProtocolNotSupported):
            await PeerExchangeClient(asking).query(other.peer_id, 1)


@pytest.mark.virtual
async def test_a_number_that_cannot_be_meant_is_refused() -> None:
    async with open_pair() as (serving, _, client):
        for wrong in (0, -1, 1001):
            with pytest.raises(InvalidInput):
                await client.query(serving.peer_id, wrong)
    with pytest.raises(InvalidInput):
        PeerExchangeOptions(most_peers=0)
    with pytest.raises(InvalidInput):
        PeerExchangeDiscovery(client, list, ask=0)


# Discovery


async def found_by(discovery: PeerExchangeDiscovery, count: int) -> list[Candidate]:
    async with aclosing(discovery.find(count)) as candidates:
        return [candidate async for candidate in candidates]


@asynccontextmanager
async def open_several(*answers: bytes) -> AsyncGenerator[tuple[list[PeerId], PeerExchangeClient], None]:
    async with SimulatedWorld(1) as world, world.host("client") as asking, trio.open_nursery() as nursery:
        peers: list[PeerId] = []
        for answer in answers:

            async def run(task_status: trio.TaskStatus[SimulatedNetwork], answer: bytes = answer) -> None:
                async with world.host() as network:
                    answers_with(network, answer)
                    task_status.started(network)
                    await trio.sleep_forever()

            network: SimulatedNetwork = await nursery.start(run)
            await asking.connect(network.addresses)
            peers.append(network.peer_id)
        await trio.sleep(1)
        yield peers, PeerExchangeClient(asking)
        nursery.cancel_scope.cancel()


@pytest.mark.virtual
async def test_several_nodes_are_asked_and_their_answers_mixed() -> None:
    one = response(*(record.encode() for record in RECORDS[:10]))
    other = response(*(record.encode() for record in RECORDS[10:20]))
    third = response(*(record.encode() for record in RECORDS[20:30]))
    async with open_several(one, other, third) as (peers, client):
        discovery = PeerExchangeDiscovery(client, lambda: peers, cluster_id=CLUSTER, rng=random.Random(1))
        candidates = await found_by(discovery, 10)
        assert len(candidates) == 10
        found = {candidate.record for candidate in candidates}
        assert found & set(RECORDS[:10])
        assert found & set(RECORDS[10:20])
        assert not found & set(RECORDS[20:30]), "two are asked"
        assert all(candidate.origin is Origin.PEER_EXCHANGE for candidate in candidates)


@pytest.mark.virtual
async def test_records_that_are_of_no_use_are_left_out() -> None:
    useless = (
        record_of("other cluster", cluster_id=7),
        Enr.create(key_of("no waku"), tcp=1),
    )
    newer = record_of(0, seq=5)
    answer = response(*(record.encode() for record in (*useless, RECORDS[0])))
    async with open_several(answer, response(newer.encode())) as (peers, client):
        discovery = PeerExchangeDiscovery(client, lambda: peers, cluster_id=CLUSTER)
        assert [candidate.record for candidate in await found_by(discovery, 10)] == [newer]


@pytest.mark.virtual
async def test_how_nodes_did_is_reported() -> None:
    reported: dict[PeerId, Outcome] = {}
    async with open_several(response(), frame(b"\xff")) as (peers, client):

        def report(peer: PeerId, outcome: Outcome) -> None:
            reported[peer] = outcome

        discovery = PeerExchangeDiscovery(client, lambda: peers, report=report, timeout=2)
        assert await found_by(discovery, 5) == []
        assert reported == {peers[0]: OK, peers[1]: WITHOUT_CODE}
    async with open_liar(response(), pause=50) as (liar, client):
        discovery = PeerExchangeDiscovery(client, lambda: [liar], report=report, timeout=2)
        assert await found_by(discovery, 5) == []
        assert reported[liar] == TIMED_OUT
    assert await found_by(PeerExchangeDiscovery(client, list), 5) == []


@pytest.mark.virtual
async def test_what_is_found_comes_into_the_peer_book() -> None:
    async with open_pair() as (serving, _, client):
        options = PeersOptions(transports=frozenset({"memory"}), discover_count=10)
        async with open_peers(client._network, options=options, clock=trio.current_time) as manager:
            discovery = PeerExchangeDiscovery(client, lambda: [serving.peer_id], cluster_id=CLUSTER)
            manager.add_discovery(discovery)
            await trio.sleep(1)
            found = [entry for entry in manager.book if entry.origin is Origin.PEER_EXCHANGE]
            assert len(found) == 10
            assert all(entry.shards == frozenset({0}) for entry in found)
            assert peer_of("x") not in manager.book
