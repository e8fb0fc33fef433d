"""Receiving through service nodes: subscriptions, pings, replacement (REQ-RES-RELIABILITY, Filter)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Literal, NamedTuple, cast

import pytest
import trio

from pywaku.errors import RequestTimeout
from pywaku.ids import PeerId
from pywaku.messaging.filtered import Filtered
from pywaku.peers.selection import Need
from pywaku.peers.services import Service
from pywaku.protocols.filter import FilterClient, FilterResult
from tests.support.peers import CLUSTER, peer_of
from tests.support.staged_pools import StagedPool, StagedPools

SHARD = "/waku/2/rs/42/0"
NEED = Need(Service.FILTER, CLUSTER, frozenset({0}))
A, B, C = (peer_of(name) for name in "abc")

Kind = Literal["subscribe", "unsubscribe", "ping"]


class Nodes:
    """Service nodes, as the filter client knows them: what each has agreed to push, and how it answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, Kind, PeerId]] = []
        self.subscribed: dict[PeerId, set[str]] = {}
        self.forgotten: list[PeerId] = []
        self.answer: Callable[[Kind, PeerId], Awaitable[int]] = self.agree

    async def agree(self, kind: Kind, peer: PeerId) -> int:
        """Answer after a tenth of a second; a ping without a subscription is a 404."""
        await trio.sleep(0.1)
        return 404 if kind == "ping" and not self.subscribed.get(peer) else 200

    async def _ask(self, kind: Kind, peer: PeerId) -> FilterResult:
        self.asked.append((trio.current_time(), kind, peer))
        return FilterResult(await self.answer(kind, peer))

    async def subscribe(self, peer: PeerId, pubsub_topic: str, content_topics: list[str]) -> FilterResult:
        """What `FilterClient` has."""
        result = await self._ask("subscribe", peer)
        if result.is_success:
            self.subscribed.setdefault(peer, set()).update(content_topics)
        return result

    async def unsubscribe(self, peer: PeerId, pubsub_topic: str, content_topics: list[str]) -> FilterResult:
        """What `FilterClient` has."""
        result = await self._ask("unsubscribe", peer)
        self.subscribed.get(peer, set[str]()).difference_update(content_topics)
        return result

    async def ping(self, peer: PeerId) -> FilterResult:
        """What `FilterClient` has."""
        return await self._ask("ping", peer)

    def forget(self, peer: PeerId) -> None:
        """What `FilterClient` has."""
        self.forgotten.append(peer)

    def times(self, kind: Kind, peer: PeerId) -> list[float]:
        """When a node was asked for something, in seconds from the start."""
        return [round(at, 1) for at, what, who in self.asked if (what, who) == (kind, peer)]


class Scene(NamedTuple):
    """A light node that has to do with service nodes."""

    filtered: Filtered
    pool: StagedPool
    nodes: Nodes


@asynccontextmanager
async def open_scene(*peers: PeerId) -> AsyncGenerator[Scene]:
    """See `Scene`; the time begins at 0."""
    pools = StagedPools(*peers)
    nodes = Nodes()
    async with trio.open_nursery() as nursery:
        filtered = Filtered(pools.pools, cast("FilterClient", nodes), nursery)
        pool = pools.staged(NEED)
        nursery.start_soon(pool.run)
        yield Scene(filtered, pool, nodes)
        filtered.close()
        nursery.cancel_scope.cancel()


def broken(*which: PeerId, kinds: tuple[Kind, ...] = ("subscribe", "ping")) -> Callable[..., Awaitable[int]]:
    """These do not answer requests of these kinds; all others agree."""

    async def answer(kind: Kind, peer: PeerId) -> int:
        await trio.sleep(0.1)
        if peer in which and kind in kinds:
            raise RequestTimeout("no answer")
        return 200

    return answer


@pytest.mark.virtual
async def test_a_content_topic_is_subscribed_to_at_two_service_nodes() -> None:
    async with open_scene(A, B, C) as (filtered, _, nodes):
        filtered.want(SHARD, "t")
        await filtered.established(SHARD, "t")
        await trio.sleep(1)
        assert nodes.subscribed == {A: {"t"}, B: {"t"}}


@pytest.mark.virtual
async def test_what_is_wanted_twice_is_subscribed_to_once_and_until_nobody_wants_it() -> None:
    async with open_scene(A) as (filtered, _, nodes):
        filtered.want(SHARD, "t")
        filtered.want(SHARD, "t")
        await trio.sleep(1)
        filtered.want_no_more(SHARD, "t")
        await trio.sleep(1)
        assert nodes.subscribed == {A: {"t"}}
        filtered.want_no_more(SHARD, "t")
        await trio.sleep(1)
        assert nodes.subscribed == {A: set()}
        assert [kind for _, kind, _ in nodes.asked] == ["subscribe", "unsubscribe"]


@pytest.mark.virtual
async def test_content_topics_that_are_wanted_at_once_go_in_few_requests() -> None:
    async with open_scene(A) as (filtered, _, nodes):
        for number in range(500):
            filtered.want(SHARD, f"t{number}")
        await trio.sleep(1)
        assert len(nodes.subscribed[A]) == 500
        assert len(nodes.asked) == 1


@pytest.mark.virtual
@pytest.mark.parametrize("first", ["unsubscribe", "subscribe"])
async def test_the_last_word_counts_whichever_request_is_slow(first: Kind) -> None:
    async with open_scene(A) as (filtered, _, nodes):
        if first == "unsubscribe":
            filtered.want(SHARD, "t")
            await trio.sleep(1)

        async def answer(kind: Kind, peer: PeerId) -> int:
            await trio.sleep(5 if kind == first else 0.1)
            return 200

        nodes.answer = answer
        if first == "unsubscribe":
            filtered.want_no_more(SHARD, "t")
            filtered.want(SHARD, "t")
            await trio.sleep(20)
            assert nodes.subscribed == {A: {"t"}}
        else:
            filtered.want(SHARD, "t")
            await trio.sleep(1)
            filtered.want_no_more(SHARD, "t")
            await trio.sleep(20)
            assert nodes.subscribed == {A: set()}


@pytest.mark.virtual
async def test_a_node_that_refuses_a_subscription_is_replaced_and_the_new_one_subscribed_to_at_once() -> None:
    async with open_scene(A, B, C) as (filtered, pool, nodes):
        nodes.answer = broken(A)
        filtered.want(SHARD, "t")
        await trio.sleep(1)
        assert pool.in_use == (B, C)
        assert nodes.forgotten == [A]
        assert nodes.subscribed == {B: {"t"}, C: {"t"}}
        assert (nodes.times("subscribe", A), nodes.times("subscribe", C)) == ([0.0], [0.1])


@pytest.mark.virtual
async def test_pings_are_sent_once_per_minute() -> None:
    async with open_scene(A, B) as (filtered, _, nodes):
        filtered.want(SHARD, "t")
        await trio.sleep(300)
        for peer in (A, B):
            times = nodes.times("ping", peer)
            assert len(times) == 4
            assert all(59.9 <= later - sooner <= 60.2 for sooner, later in pairwise(times))


@pytest.mark.virtual
async def test_nobody_is_pinged_without_a_subscription() -> None:
    async with open_scene(A) as (filtered, _, nodes):
        filtered.want(SHARD, "t")
        await trio.sleep(1)
        filtered.want_no_more(SHARD, "t")
        await trio.sleep(300)
        assert nodes.times("ping", A) == []


@pytest.mark.virtual
async def test_a_node_that_fails_two_pings_in_a_row_is_replaced_and_the_new_one_subscribed_to_at_once() -> (
    None
):
    async with open_scene(A, B, C) as (filtered, pool, nodes):
        filtered.want(SHARD, "t")
        await trio.sleep(1)
        nodes.answer = broken(A)
        await trio.sleep(70)
        assert pool.in_use == (A, B)
        await trio.sleep(60)
        assert pool.in_use == (B, C)
        [failed] = nodes.times("ping", A)[1:]
        assert nodes.times("subscribe", C) == [round(failed + 0.1, 1)]
        assert nodes.forgotten == [A]


@pytest.mark.virtual
async def test_one_failed_ping_between_good_ones_replaces_nobody() -> None:
    async with open_scene(A, B, C) as (filtered, pool, nodes):
        filtered.want(SHARD, "t")
        await trio.sleep(1)
        for _ in range(3):
            nodes.answer = broken(A)
            await trio.sleep(60)
            nodes.answer = nodes.agree
            await trio.sleep(60)
        assert pool.in_use == (A, B)


@pytest.mark.virtual
async def test_a_node_that_has_lost_the_subscription_gets_it_again_at_once() -> None:
    async with open_scene(A, B) as (filtered, pool, nodes):
        filtered.want(SHARD, "t")
        await trio.sleep(30)
        nodes.subscribed[A].clear()  # it was restarted, say
        await trio.sleep(31)
        assert pool.in_use == (A, B)
        assert nodes.subscribed == {A: {"t"}, B: {"t"}}


@pytest.mark.virtual
async def test_pings_stop_while_offline_and_nodes_in_use_are_pinged_at_once_on_return() -> None:
    async with open_scene(A, B) as (filtered, pool, nodes):
        filtered.want(SHARD, "t")
        await trio.sleep(30)
        pool.set_offline(True)
        await trio.sleep(600)
        assert nodes.times("ping", A) == []
        pool.set_offline(False)
        await trio.sleep(1)
        assert nodes.times("ping", A) == nodes.times("ping", B) == [630]
        assert pool.in_use == (A, B)


@pytest.mark.virtual
async def test_on_return_a_single_failed_ping_replaces_a_node_without_waiting_for_more() -> None:
    async with open_scene(A, B, C) as (filtered, pool, nodes):
        filtered.want(SHARD, "t")
        await trio.sleep(30)
        pool.set_offline(True)
        nodes.answer = broken(A)
        await trio.sleep(10)
        pool.set_offline(False)
        await trio.sleep(1)
        assert pool.in_use == (B, C)
        assert nodes.subscribed[C] == {"t"}


@pytest.mark.virtual
async def test_what_could_not_be_subscribed_to_while_offline_is_when_the_node_answers_again() -> None:
    async with open_scene(A) as (filtered, pool, nodes):
        filtered.want(SHARD, "early")
        await trio.sleep(1)
        nodes.answer = broken(A)
        pool.set_offline(True)
        filtered.want(SHARD, "late")
        await trio.sleep(10)
        nodes.answer = nodes.agree
        pool.set_offline(False)
        await trio.sleep(1)
        assert pool.in_use == (A,)
        assert nodes.subscribed == {A: {"early", "late"}}


@pytest.mark.virtual
async def test_a_node_that_is_taken_into_use_again_is_subscribed_to_again() -> None:
    async with open_scene(A) as (filtered, pool, nodes):
        filtered.want(SHARD, "t")
        await trio.sleep(1)
        nodes.subscribed[A].clear()
        pool.disconnect(A)
        await trio.sleep(5)
        assert pool.in_use == (A,)
        assert nodes.subscribed == {A: {"t"}}


@pytest.mark.virtual
async def test_an_answer_to_a_request_of_an_earlier_use_says_nothing_of_the_next_one() -> None:
    async with open_scene(A) as (filtered, pool, nodes):

        async def slowly(kind: Kind, peer: PeerId) -> int:
            await trio.sleep(4)
            return 200

        nodes.answer = slowly
        filtered.want(SHARD, "t")
        await trio.sleep(0.5)
        pool.disconnect(A)
        await trio.sleep(2)
        assert pool.in_use == (A,)
        await trio.sleep(10)
        assert len(nodes.times("subscribe", A)) == 2  # the first one was for a connection that is gone


@pytest.mark.virtual
async def test_established_ends_when_nobody_wants_it_any_more() -> None:
    async with open_scene() as (filtered, _, _nodes):
        filtered.want(SHARD, "t")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(filtered.established, SHARD, "t")
            await trio.sleep(10)
            filtered.want_no_more(SHARD, "t")


@pytest.mark.virtual
async def test_a_request_that_fails_in_an_unforeseen_way_ends_nothing_but_itself() -> None:
    async with open_scene(A, B) as (filtered, _, nodes):

        async def answer(kind: Kind, peer: PeerId) -> int:
            if peer == A and trio.current_time() < 200:
                raise ValueError("nobody thought of this")
            return await nodes.agree(kind, peer)

        nodes.answer = answer
        filtered.want(SHARD, "/test/1/one/proto")
        await filtered.established(SHARD, "/test/1/one/proto")
        assert nodes.subscribed == {B: {"/test/1/one/proto"}}
        await trio.sleep(100)  # pings fail alike
        filtered.want(SHARD, "/test/1/two/proto")
        await trio.sleep(1)
        assert nodes.subscribed == {B: {"/test/1/one/proto", "/test/1/two/proto"}}
