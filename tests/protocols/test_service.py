"""Requests of light protocols, within rates and bounds."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import DecodeError, InvalidInput, NetworkError, RequestTimeout
from pywaku.ids import PeerId
from pywaku.network.frames import request
from pywaku.network.simulated import SimulatedNetwork, SimulatedWorld
from pywaku.protocols.service import RateLimit, RequestService, ServiceLimits, TokenBucket
from pywaku.wire.framing import frame

PROTOCOL = "/test/upper/1"

FREE = ServiceLimits(per_peer=None, total=None, max_request=1000, timeout_s=5.0)


class Bench:
    """A host that answers in capitals, and one that asks."""

    def __init__(self, world: SimulatedWorld, server: SimulatedNetwork, client: SimulatedNetwork) -> None:
        self.world = world
        self.server = server
        self.client = client
        self.asked: list[PeerId] = []

    async def upper(self, peer: PeerId, data: bytes) -> bytes | None:
        """Answers; some requests have a meaning of their own."""
        self.asked.append(peer)
        match data:
            case b"undecodable":
                raise DecodeError("not this")
            case b"broken":
                raise ValueError("the handler is broken")
            case b"network":
                raise NetworkError("elsewhere")
            case b"nothing":
                return None
            case b"slow":
                await trio.sleep(3)
            case b"stuck":
                await trio.sleep_forever()
            case b"large":
                return bytes(1_000_000)
            case _:
                pass
        return data.upper()

    async def ask(self, data: bytes, *, client: SimulatedNetwork | None = None) -> bytes:
        """Ask the server."""
        return await request(
            client or self.client, self.server.peer_id, PROTOCOL, data, max_response=10_000, timeout=60
        )


@asynccontextmanager
async def open_bench(limits: ServiceLimits = FREE) -> AsyncGenerator[tuple[Bench, RequestService]]:
    """The two, connected, and the service."""
    async with (
        SimulatedWorld(1) as world,
        world.host("server") as server,
        world.host("client") as client,
    ):
        await client.connect(server.addresses)
        bench = Bench(world, server, client)
        service = RequestService(
            server,
            PROTOCOL,
            bench.upper,
            limits=limits,
            on_limited=lambda data: b"429 " + data,
            on_undecodable=lambda data, error: f"400 {error}: ".encode() + data,
            on_failed=lambda data, error: b"500 " + data + b" " + type(error).__name__.encode(),
        )
        service.start()
        yield bench, service
        service.close()


@pytest.mark.virtual
async def test_a_request_has_one_response() -> None:
    """Request, response, end of stream."""
    async with open_bench() as (bench, service):
        assert await bench.ask(b"hello") == b"HELLO"
        assert bench.asked == [bench.client.peer_id]
        await trio.sleep(1)
        counters = service.counters
        assert (counters.requests, counters.answered, counters.bytes_in, counters.bytes_out) == (1, 1, 5, 5)
        assert service.open_streams == 0


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (b"undecodable", b"400 not this: undecodable"),
        (b"broken", b"500 broken ValueError"),
        (b"network", b"500 network NetworkError"),
    ],
)
async def test_errors_of_a_handler_are_answered_and_go_no_further(asked: bytes, answer: bytes) -> None:
    """The next request is served."""
    async with open_bench() as (bench, service):
        assert await bench.ask(asked) == answer
        assert await bench.ask(b"next") == b"NEXT"
        counters = service.counters
        assert counters.undecodable + counters.failed == 1
        assert counters.answered == 2


@pytest.mark.virtual
async def test_without_an_answer_the_stream_ends() -> None:
    """The asker is not left waiting."""
    async with open_bench() as (bench, _):
        with pytest.raises(NetworkError):
            await bench.ask(b"nothing")


@pytest.mark.virtual
async def test_an_oversized_request_is_refused_unread() -> None:
    """A thousand bytes are allowed."""
    async with open_bench() as (bench, service):
        assert await bench.ask(b"x" * 1000) == b"X" * 1000
        with pytest.raises(NetworkError):
            await bench.ask(b"x" * 1001)
        assert (service.counters.undecodable, service.counters.requests) == (1, 1)
        assert len(bench.asked) == 1


@pytest.mark.virtual
async def test_a_request_that_stops_half_way_is_let_go() -> None:
    """Five seconds are given."""
    async with open_bench() as (bench, service):
        stream = await bench.client.open_stream(bench.server.peer_id, PROTOCOL)
        await stream.send(frame(b"hello")[:3])
        started = trio.current_time()
        with pytest.raises(NetworkError):
            await stream.receive()
        assert trio.current_time() - started == pytest.approx(5.0, abs=1.0)
        assert service.counters.timed_out == 1
        assert service.open_streams == 0


@pytest.mark.virtual
async def test_a_stream_that_ends_within_a_request_is_let_go() -> None:
    """At once."""
    async with open_bench() as (bench, service):
        stream = await bench.client.open_stream(bench.server.peer_id, PROTOCOL)
        await stream.send(frame(b"hello")[:3])
        await stream.close_write()
        with pytest.raises(NetworkError):
            await stream.receive()
        assert service.counters.undecodable == 1
        assert service.open_streams == 0


@pytest.mark.virtual
async def test_a_handler_that_hangs_is_given_up() -> None:
    """Five seconds are given to it as well."""
    async with open_bench() as (bench, service):
        started = trio.current_time()
        with pytest.raises(NetworkError):
            await bench.ask(b"stuck")
        assert trio.current_time() - started == pytest.approx(5.0, abs=1.0)
        assert service.counters.timed_out == 1


@pytest.mark.virtual
async def test_a_peer_that_does_not_read_its_answer_is_given_up() -> None:
    """The answer is larger than what the stream takes unread."""
    async with open_bench() as (bench, service):
        stream = await bench.client.open_stream(bench.server.peer_id, PROTOCOL)
        await stream.send(frame(b"large"))
        await trio.sleep(20)
        assert service.open_streams == 0
        assert service.counters.timed_out == 1
        assert service.counters.answered == 0


@pytest.mark.virtual
async def test_answers_that_wait_for_a_peer_are_bounded() -> None:
    """While it does not read, a peer is refused; others are served."""
    limits = ServiceLimits(per_peer=None, timeout_s=60.0, max_unsent_bytes=4_000_000)
    async with open_bench(limits) as (bench, _), bench.world.host("other") as other:
        await other.connect(bench.server.addresses)
        stream = await bench.client.open_stream(bench.server.peer_id, PROTOCOL)
        await stream.send(frame(b"large"))
        await trio.sleep(1)
        assert await bench.ask(b"more") == b"429 more"
        assert await bench.ask(b"more", client=other) == b"MORE"
        stream.reset()
        await trio.sleep(1)
        assert await bench.ask(b"more") == b"MORE"


@pytest.mark.virtual
async def test_answers_that_wait_for_many_peers_are_bounded_together() -> None:
    """Each of them has less than a peer may have; nothing is left when they are gone."""
    limits = ServiceLimits(per_peer=None, timeout_s=20.0, max_unsent_bytes=4_000_000)
    async with open_bench(limits) as (bench, service), AsyncExitStack() as stack:
        for _ in range(4):
            other = await stack.enter_async_context(bench.world.host())
            await other.connect(bench.server.addresses)
            stream = await other.open_stream(bench.server.peer_id, PROTOCOL)
            await stream.send(frame(b"large"))
        await trio.sleep(1)
        assert await bench.ask(b"more") == b"429 more"
        await trio.sleep(30)
        assert await bench.ask(b"more") == b"MORE"
        await trio.sleep(1)
        assert service.unsent_bytes == {}


@pytest.mark.virtual
async def test_each_step_of_a_request_has_its_own_time() -> None:
    """Reading takes four of five seconds, handling three."""
    async with open_bench() as (bench, service):
        stream = await bench.client.open_stream(bench.server.peer_id, PROTOCOL)
        request_ = frame(b"slow")
        await stream.send(request_[:2])
        await trio.sleep(4)
        await stream.send(request_[2:])
        assert await stream.receive() == frame(b"SLOW")
        assert service.counters.timed_out == 0


@pytest.mark.virtual
async def test_a_peer_over_its_rate_is_answered_so() -> None:
    """Another peer is not concerned, and in time it is served again."""
    limits = ServiceLimits(per_peer=RateLimit(3, 30.0))
    async with open_bench(limits) as (bench, service), bench.world.host("other") as other:
        await other.connect(bench.server.addresses)
        for _ in range(3):
            assert await bench.ask(b"a") == b"A"
        assert await bench.ask(b"a") == b"429 a"
        assert await bench.ask(b"a", client=other) == b"A"
        await trio.sleep(10)
        assert await bench.ask(b"a") == b"A"
        assert await bench.ask(b"a") == b"429 a"
        assert service.counters.limited == 2


@pytest.mark.virtual
async def test_all_peers_together_are_held_to_the_total() -> None:
    """What a peer asks beyond its own rate costs the others nothing."""
    limits = ServiceLimits(per_peer=RateLimit(2, 1000.0), total=RateLimit(3, 1000.0))
    async with open_bench(limits) as (bench, _), bench.world.host("other") as other:
        await other.connect(bench.server.addresses)
        answers = [await bench.ask(b"a") for _ in range(5)]
        assert answers == [b"A", b"A", b"429 a", b"429 a", b"429 a"]
        answers = [await bench.ask(b"a", client=other) for _ in range(2)]
        assert answers == [b"A", b"429 a"]


@pytest.mark.virtual
async def test_requests_beyond_the_concurrent_ones_are_refused() -> None:
    """They are not queued without end."""
    limits = ServiceLimits(per_peer=None, max_concurrent=2)
    async with open_bench(limits) as (bench, service):
        answers: list[bytes] = []

        async def ask() -> None:
            answers.append(await bench.ask(b"slow"))

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask)
        assert sorted(answers) == [b"429 slow"] * 3 + [b"SLOW"] * 2
        assert service.counters.limited == 3


@pytest.mark.virtual
async def test_the_peers_whose_rates_are_known_are_bounded() -> None:
    """The one heard of longest ago is forgotten."""
    limits = ServiceLimits(per_peer=RateLimit(1, 1000.0), max_tracked_peers=3)
    async with open_bench(limits) as (bench, service):
        for _ in range(5):
            async with bench.world.host() as other:
                await other.connect(bench.server.addresses)
                assert await bench.ask(b"a", client=other) == b"A"
                assert await bench.ask(b"a", client=other) == b"429 a"
        assert service.tracked_peers == 3


@pytest.mark.virtual
async def test_a_peer_that_asks_again_and_again_is_not_forgotten() -> None:
    """However many others come."""
    limits = ServiceLimits(per_peer=RateLimit(1, 1000.0), max_tracked_peers=3)
    async with open_bench(limits) as (bench, _):
        assert await bench.ask(b"a") == b"A"
        for _ in range(5):
            async with bench.world.host() as other:
                await other.connect(bench.server.addresses)
                assert await bench.ask(b"a", client=other) == b"A"
            assert await bench.ask(b"a") == b"429 a"


@pytest.mark.virtual
async def test_streams_of_one_peer_are_bounded() -> None:
    """Those beyond are reset."""
    limits = ServiceLimits(per_peer=None, max_streams_per_peer=2)
    async with open_bench(limits) as (bench, service):
        for _ in range(5):
            stream = await bench.client.open_stream(bench.server.peer_id, PROTOCOL)
            await stream.send(b"\x10")
        await trio.sleep(1)
        assert service.open_streams == 2


@pytest.mark.virtual
async def test_requests_that_never_arrive_whole_are_bounded_and_keep_nobody_out() -> None:
    """Of several peers together; the one that takes longest goes, and who finishes is served."""
    limits = ServiceLimits(per_peer=None, max_unread=6)
    async with open_bench(limits) as (bench, service), AsyncExitStack() as stack:
        for count in range(1, 5):
            other = await stack.enter_async_context(bench.world.host())
            await other.connect(bench.server.addresses)
            for _ in range(3):
                unfinished = await other.open_stream(bench.server.peer_id, PROTOCOL)
                await unfinished.send(b"\x10half")
            await trio.sleep(0.5)
            assert await bench.ask(b"hello") == b"HELLO"
            assert service.open_streams <= 6, count
        assert service.counters.given_up == 7  # of twelve: five are left, besides the one just answered
        assert service.counters.timed_out == 0
        await trio.sleep(30)
        assert service.open_streams == 0


@pytest.mark.virtual
async def test_a_closed_service_abandons_what_is_under_way() -> None:
    """The asker hears of it at once."""
    async with open_bench() as (bench, service):
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(NetworkError):
                    await bench.ask(b"stuck")

            nursery.start_soon(ask)
            await trio.sleep(1)
            service.close()
        assert service.open_streams == 0
        with pytest.raises(NetworkError):
            await bench.ask(b"a")


@pytest.mark.virtual
async def test_without_words_of_its_own_a_protocol_resets() -> None:
    """No callbacks, no answers; nothing is raised."""
    async with open_bench() as (bench, full):
        full.close()
        service = RequestService(
            bench.server, PROTOCOL, bench.upper, limits=ServiceLimits(per_peer=RateLimit(3, 100.0))
        )
        service.start()
        for data in (b"undecodable", b"broken", b"nothing", b"over the rate"):
            with pytest.raises(NetworkError) as caught:
                await bench.ask(data)
            assert not isinstance(caught.value, RequestTimeout)
        assert service.counters.limited == 1
        service.close()


@pytest.mark.parametrize(
    ("count", "period"), [(0, 1.0), (-1, 1.0), (1, 0.0), (1, -1.0), (1, float("inf")), (1, float("nan"))]
)
def test_impossible_rates_are_refused(count: int, period: float) -> None:
    """With the reason."""
    with pytest.raises(InvalidInput):
        RateLimit(count, period)


@pytest.mark.parametrize(
    "name", ["timeout_s", "max_request", "max_concurrent", "max_unsent_bytes", "max_tracked_peers"]
)
def test_impossible_limits_are_refused(name: str) -> None:
    """Zero is not a limit."""
    values: dict[str, Any] = {name: 0}
    with pytest.raises(InvalidInput, match=name):
        ServiceLimits(**values)


def test_a_bucket_is_full_at_first() -> None:
    """All may come at once."""
    bucket = TokenBucket(RateLimit(3, 6.0), 100.0)
    assert [bucket.take(100.0) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(101.9)
    assert bucket.take(102.0)
    assert not bucket.take(103.0, 2)
    assert bucket.take(104.0)
    assert bucket.available(1000.0) == 3


RATES = st.builds(RateLimit, st.integers(1, 50), st.floats(0.1, 100.0))
STEPS = st.lists(st.tuples(st.floats(0.0, 50.0), st.integers(1, 10)), max_size=60)


@given(RATES, STEPS)
def test_in_no_span_more_is_given_than_burst_and_rate(
    limit: RateLimit, steps: list[tuple[float, int]]
) -> None:
    """At most count * (1 + w / period) in any w seconds."""
    now = 1000.0
    bucket = TokenBucket(limit, now)
    given_at: list[tuple[float, int]] = []
    for wait, wanted in steps:
        now += wait
        if bucket.take(now, wanted):
            given_at.append((now, wanted))
    for first, (start, _) in enumerate(given_at):
        total = 0
        for end, count in given_at[first:]:
            total += count
            assert total <= limit.count * (1 + (end - start) / limit.period_s) * (1 + 1e-9) + 1e-6


@given(RATES, STEPS)
def test_who_keeps_to_the_rate_is_never_refused(limit: RateLimit, steps: list[tuple[float, int]]) -> None:
    """Waiting for as long as the tokens take, whatever was before."""
    now = 0.0
    bucket = TokenBucket(limit, now)
    for wait, wanted in steps:
        now += wait
        bucket.take(now, wanted)
        now += limit.period_s / limit.count * 1.0001 + 1e-6
        assert bucket.take(now)


@given(RATES, st.lists(st.floats(-50.0, 50.0), max_size=40))
def test_a_clock_that_goes_back_gives_nothing(limit: RateLimit, moves: list[float]) -> None:
    """Not more than with the furthest time alone."""
    now = furthest = 1000.0
    bucket = TokenBucket(limit, now)
    taken = 0
    for move in moves:
        now += move
        furthest = max(furthest, now)
        while bucket.take(now):
            taken += 1
    assert taken <= limit.count * (1 + (furthest - 1000.0) / limit.period_s) + 1e-6
