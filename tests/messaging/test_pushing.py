"""Sending through service nodes: redundancy, verdicts, replacement (REQ-RES-RELIABILITY, LightPush)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, cast

import pytest
import trio

from pywaku.errors import NetworkError, NotConnected, RequestTimeout, StreamReset
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.messaging.attempts import Verdict
from pywaku.messaging.pushing import Pushing
from pywaku.peers.selection import Need
from pywaku.peers.services import Service
from pywaku.protocols.lightpush import LightpushClient, PushResult
from pywaku.wire.lightpush import Status
from tests.support.peers import CLUSTER, peer_of
from tests.support.staged_pools import StagedPool, StagedPools

SHARD = "/waku/2/rs/42/0"
MESSAGE = WakuMessage(b"hello", "/test/1/pushing/proto")
NEED = Need(Service.LIGHTPUSH, CLUSTER, frozenset({0}))
A, B, C = (peer_of(name) for name in "abc")

Answer = Callable[[], Awaitable[PushResult]]


def after(seconds: float, status: int | None = Status.SUCCESS, text: str = "") -> Answer:
    """An answer that takes its time."""

    async def answer() -> PushResult:
        await trio.sleep(seconds)
        return PushResult(status, text)

    return answer


def failing(error: NetworkError) -> Answer:
    """No answer."""

    async def answer() -> PushResult:
        await trio.sleep(0.1)
        raise error

    return answer


class Scene(NamedTuple):
    """A light node that sends; `asked` are the nodes that were given the message, in order."""

    pushing: Pushing
    pool: StagedPool
    asked: list[PeerId]


@asynccontextmanager
async def open_scene(answers: dict[PeerId, Answer], *known: PeerId) -> AsyncGenerator[Scene]:
    """Service nodes that answer like this."""
    asked: list[PeerId] = []

    class Client:
        async def push(self, peer: PeerId, pubsub_topic: str, message: WakuMessage) -> PushResult:
            assert (pubsub_topic, message) == (SHARD, MESSAGE)
            asked.append(peer)
            return await answers[peer]()

    pools = StagedPools(*(known or tuple(answers)))
    async with trio.open_nursery() as nursery:
        pushing = Pushing(pools.pools, cast("LightpushClient", Client()), nursery)
        pool = pools.staged(NEED)
        nursery.start_soon(pool.run)
        yield Scene(pushing, pool, asked)
        nursery.cancel_scope.cancel()


@pytest.mark.virtual
async def test_a_message_is_sent_through_two_service_nodes_at_the_same_time() -> None:
    async with open_scene({A: after(1), B: after(1), C: after(1)}) as (pushing, _, asked):
        handover = await pushing.push(SHARD, MESSAGE)
        assert sorted(asked) == sorted([A, B])
        assert handover.verdict is Verdict.TAKEN
        assert set(handover.through) == {A, B}
        assert trio.current_time() == 1


@pytest.mark.virtual
async def test_it_succeeds_as_soon_as_one_of_them_takes_it() -> None:
    async with open_scene({A: after(9, Status.INTERNAL_SERVER_ERROR), B: after(1)}) as (pushing, pool, _):
        handover = await pushing.push(SHARD, MESSAGE)
        assert trio.current_time() == 1
        assert (handover.verdict, handover.taken_by, handover.error) == (Verdict.TAKEN, (B,), None)
        await trio.sleep(10)  # what the other says goes to the pool
        assert [peer for peer, outcome in pool.reports if not outcome.ok] == [A]


@pytest.mark.virtual
async def test_the_response_of_a_service_node_is_awaited() -> None:
    async with open_scene({A: after(5)}) as (pushing, _, _asked):
        await pushing.push(SHARD, MESSAGE)
        assert trio.current_time() == 5


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (failing(RequestTimeout("no answer within 10 s")), "no answer within 10 s"),
        (failing(StreamReset("the stream was reset")), "reset"),
        (failing(NotConnected("not connected")), "not connected"),
        (after(0, Status.TOO_MANY_REQUESTS, "slow down"), "429 slow down"),
        (after(0, Status.UNSUPPORTED_PUBSUB_TOPIC), "421"),
        (after(0, Status.INTERNAL_SERVER_ERROR), "500"),
        (after(0, Status.NO_PEERS_TO_RELAY), "503"),
        (after(0, None, "no reason"), "failed no reason"),
    ],
)
async def test_an_error_that_can_be_temporary_or_of_the_node_is_worth_a_retry(
    answer: Answer, text: str
) -> None:
    async with open_scene({A: answer}) as (pushing, _, _asked):
        handover = await pushing.push(SHARD, MESSAGE)
        assert handover.verdict is Verdict.FAILED
        assert text in (handover.error or "")
        assert handover.taken_by == ()
        assert handover.through == (A,)


@pytest.mark.virtual
@pytest.mark.parametrize("code", [Status.BAD_REQUEST, Status.PAYLOAD_TOO_LARGE])
async def test_an_error_that_says_something_of_the_message_is_final_if_all_agree(code: Status) -> None:
    async with open_scene({A: after(0, code), B: after(1, code)}) as (pushing, _, _asked):
        assert (await pushing.push(SHARD, MESSAGE)).verdict is Verdict.REFUSED
    async with open_scene({A: after(0, code), B: after(1, Status.NO_PEERS_TO_RELAY)}) as (pushing, _, _asked):
        assert (await pushing.push(SHARD, MESSAGE)).verdict is Verdict.FAILED


@pytest.mark.virtual
@pytest.mark.parametrize(
    "answer",
    [
        failing(RequestTimeout("no answer")),
        failing(StreamReset("reset")),
        failing(NotConnected("gone")),
        failing(NetworkError("garbage")),
        after(0, Status.UNSUPPORTED_PUBSUB_TOPIC),
        after(0, Status.INTERNAL_SERVER_ERROR),
        after(0, Status.NO_PEERS_TO_RELAY),
        after(0, 505),
        after(0, None),
    ],
)
async def test_a_service_node_is_replaced_right_after_the_first_failure(answer: Answer) -> None:
    async with open_scene({A: answer, B: after(0), C: after(0)}) as (pushing, pool, _):
        await pushing.push(SHARD, MESSAGE)
        await trio.sleep(1)
        assert pool.in_use == (B, C)


@pytest.mark.virtual
@pytest.mark.parametrize("code", [Status.TOO_MANY_REQUESTS, Status.BAD_REQUEST, Status.PAYLOAD_TOO_LARGE])
async def test_a_service_node_is_not_replaced_for_what_is_not_its_fault(code: Status) -> None:
    async with open_scene({A: after(0, code), B: after(0), C: after(0)}) as (pushing, pool, _):
        await pushing.push(SHARD, MESSAGE)
        await trio.sleep(1)
        assert pool.in_use == (A, B)


@pytest.mark.virtual
async def test_a_retry_goes_through_the_node_that_has_come_in_place_of_the_failed_one() -> None:
    bad = after(0, Status.NO_PEERS_TO_RELAY)
    async with open_scene({A: bad, B: bad, C: after(0)}) as (pushing, _, asked):
        assert (await pushing.push(SHARD, MESSAGE)).verdict is Verdict.FAILED
        assert (await pushing.push(SHARD, MESSAGE)).verdict is Verdict.TAKEN
        assert C in asked[2:]


@pytest.mark.virtual
async def test_without_a_service_node_it_waits_for_one_a_while() -> None:
    async with open_scene({A: after(0)}, peer_of("nobody")) as (pushing, pool, asked):
        pool.disconnect(peer_of("nobody"))
        pool.offer()
        handover = await pushing.push(SHARD, MESSAGE)
        assert (handover.verdict, handover.error) == (Verdict.FAILED, "no light push node within 10 s")
        assert trio.current_time() == 10
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_offer_later, pool)
            assert (await pushing.push(SHARD, MESSAGE)).verdict is Verdict.TAKEN
        assert asked == [A]


async def _offer_later(pool: StagedPool) -> None:
    await trio.sleep(3)
    pool.offer(A)


@pytest.mark.virtual
async def test_a_push_that_fails_in_an_unforeseen_way_ends_nothing_but_itself() -> None:
    async def fail() -> PushResult:
        await trio.sleep(0.1)
        raise ValueError("nobody thought of this")

    async with open_scene({A: fail, B: after(1)}) as (pushing, _, _asked):
        handover = await pushing.push(SHARD, MESSAGE)
        assert handover.verdict is Verdict.TAKEN
        assert handover.taken_by == (B,)
    async with open_scene({A: fail, B: fail}) as (pushing, _, _asked):
        assert (await pushing.push(SHARD, MESSAGE)).verdict is Verdict.FAILED
