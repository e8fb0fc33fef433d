"""Pools of reliable service nodes, demand by demand (REQ-RES-RELIABILITY)."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import InvalidInput
from pywaku.ids import PeerId
from pywaku.peers.pool import Connect, Discover, Ping, Replace, ServicePool, Use
from pywaku.peers.services import (
    CONNECTION_LOST,
    FILTER_POLICY,
    LIGHTPUSH_POLICY,
    OK,
    POLICIES,
    TIMED_OUT,
    UNCONFIRMED,
    UNSUITABLE,
    WITHOUT_CODE,
    Outcome,
    PoolPolicy,
    Result,
    Service,
)
from pywaku.wire.lightpush import Status
from tests.support.peers import peer_of

A, B, C, D, E = (peer_of(name) for name in "ABCDE")
PING_OK = Outcome(Result.OK, 200, ping=True)
PING_FAILED = Outcome(Result.TIMED_OUT, ping=True)


def pool_of(
    policy: PoolPolicy, offered: tuple[PeerId, ...] = (A, B, C, D), *, now: float = 0.0
) -> ServicePool:
    """A pool whose nodes are all connected already; what it wished for at first is forgotten."""
    pool = ServicePool(policy)
    pool.offer(offered, offered, now)
    pool.take_wishes()
    return pool


# Pool of reliable service nodes


def test_light_nodes_maintain_a_pool_of_two_service_nodes_by_default() -> None:
    pool = ServicePool(LIGHTPUSH_POLICY)
    pool.offer((A, B, C), (), 0)
    assert pool.take_wishes() == [Connect(A), Connect(B)]
    assert pool.in_use == ()
    pool.ready(A, 1)
    pool.ready(B, 2)
    assert pool.take_wishes() == [Use(A), Use(B)]
    assert pool.in_use == (A, B)


@pytest.mark.parametrize("service", [Service.LIGHTPUSH, Service.FILTER, Service.STORE])
def test_each_protocol_has_a_pool_of_its_own_with_two_nodes(service: Service) -> None:
    assert POLICIES[service].size == 2


def test_nodes_that_are_connected_already_are_used_at_once() -> None:
    pool = ServicePool(LIGHTPUSH_POLICY)
    pool.offer((A, B), (B,), 0)
    assert pool.take_wishes() == [Use(B), Connect(A)]


@pytest.mark.parametrize(
    "outcome",
    [
        CONNECTION_LOST,
        TIMED_OUT,
        WITHOUT_CODE,
        Outcome.of_status(Status.UNSUPPORTED_PUBSUB_TOPIC),
        Outcome.of_status(Status.INTERNAL_SERVER_ERROR),
        Outcome.of_status(Status.NO_PEERS_TO_RELAY),
        Outcome.of_status(505),
    ],
    ids=str,
)
def test_a_lightpush_node_is_replaced_right_after_the_first_failure(outcome: Outcome) -> None:
    pool = pool_of(LIGHTPUSH_POLICY)
    pool.report(A, outcome, 10)
    assert pool.take_wishes() == [Replace(A, C, outcome), Use(C)]
    assert pool.in_use == (B, C)


@pytest.mark.parametrize(
    "outcome",
    [
        OK,
        *map(
            Outcome.of_status, (Status.TOO_MANY_REQUESTS, Status.BAD_REQUEST, Status.PAYLOAD_TOO_LARGE, 418)
        ),
    ],
    ids=str,
)
def test_a_lightpush_node_stays_on_what_is_no_failure_of_the_node(outcome: Outcome) -> None:
    pool = pool_of(LIGHTPUSH_POLICY)
    pool.report(A, outcome, 10)
    assert pool.take_wishes() == []
    assert pool.in_use == (A, B)


def test_a_lightpush_node_whose_connection_is_lost_is_replaced_at_once() -> None:
    pool = pool_of(LIGHTPUSH_POLICY)
    pool.disconnected(A, 10)
    assert pool.take_wishes() == [Replace(A, C, CONNECTION_LOST), Use(C)]


@pytest.mark.parametrize(
    "outcome",
    [TIMED_OUT, WITHOUT_CODE, CONNECTION_LOST, *map(Outcome.of_status, (400, 404, 429, 500, 503))],
    ids=str,
)
def test_a_filter_node_is_replaced_when_a_request_for_subscription_fails(outcome: Outcome) -> None:
    pool = pool_of(FILTER_POLICY)
    pool.report(B, outcome, 10)
    assert pool.take_wishes() == [Replace(B, C, outcome), Use(C)]


@pytest.mark.parametrize("outcome", [PING_FAILED, Outcome.of_status(404, ping=True)], ids=str)
def test_a_filter_node_is_replaced_when_pings_failed_two_times_in_a_row(outcome: Outcome) -> None:
    pool = pool_of(FILTER_POLICY)
    pool.report(A, outcome, 60)
    assert pool.take_wishes() == []
    assert pool.in_use == (A, B)
    pool.report(A, outcome, 120)
    assert pool.take_wishes() == [Replace(A, C, outcome), Use(C)]


def test_a_ping_that_succeeds_in_between_starts_the_count_over() -> None:
    pool = pool_of(FILTER_POLICY)
    for outcome in (PING_FAILED, PING_OK, PING_FAILED, PING_OK, PING_FAILED):
        pool.report(A, outcome, 60)
    assert pool.in_use == (A, B)


def test_right_after_a_replace_the_new_node_is_to_be_subscribed_at() -> None:
    pool = ServicePool(FILTER_POLICY)
    pool.offer((A, B, C), (A, B), 0)
    pool.take_wishes()
    pool.report(A, TIMED_OUT, 1)
    assert pool.take_wishes() == [Replace(A, C, TIMED_OUT), Connect(C)]
    assert pool.in_use == (B,)
    pool.ready(C, 2)
    assert pool.take_wishes() == [Use(C)]


def test_a_replacement_that_cannot_be_reached_is_replaced_itself() -> None:
    pool = ServicePool(LIGHTPUSH_POLICY)
    pool.offer((A, B, C), (), 0)
    pool.take_wishes()
    pool.connect_failed(A, 1)
    assert pool.take_wishes() == [Replace(A, C, CONNECTION_LOST), Connect(C)]


def test_failures_of_nodes_that_left_the_pool_change_nothing() -> None:
    pool = pool_of(LIGHTPUSH_POLICY)
    pool.report(A, TIMED_OUT, 1)
    pool.take_wishes()
    pool.report(A, TIMED_OUT, 1)
    pool.disconnected(A, 2)
    pool.connect_failed(A, 2)
    assert pool.take_wishes() == []
    assert pool.in_use == (B, C)


def test_a_failed_node_comes_back_last() -> None:
    pool = pool_of(LIGHTPUSH_POLICY, (A, B, C))
    pool.report(A, TIMED_OUT, 0)
    pool.report(B, TIMED_OUT, 100)
    assert pool.in_use == (C, A), "there was nobody else"
    pool.offer((A, B, C, D), (A, B, C, D), 101)
    pool.report(A, TIMED_OUT, 102)
    assert pool.in_use == (C, D)


def test_a_failed_node_rests_even_if_it_is_the_only_one_ever_longer() -> None:
    policy = PoolPolicy(size=1, rest_s=1, longest_rest_s=8)
    pool = pool_of(policy, (A,))
    now, rests = 0.0, list[float]()
    for _ in range(6):
        pool.report(A, TIMED_OUT, now)
        assert pool.in_use == ()
        pool.take_wishes()
        failed = now
        while not pool.in_use:
            now = pool.next_tick(now)
            pool.tick(now)
        rests.append(now - failed)
    assert rests == [1, 2, 4, 8, 8, 8]


def test_a_node_that_serves_again_is_forgiven() -> None:
    pool = pool_of(PoolPolicy(size=1, rest_s=1), (A,))
    for start in (0.0, 10.0):
        pool.report(A, TIMED_OUT, start)
        pool.tick(start + 1)
        assert pool.in_use == (A,)
        pool.report(A, OK, start + 2)
    assert pool.remembered == 0


def test_discovery_is_asked_when_nodes_are_missing_but_not_all_the_time() -> None:
    pool = ServicePool(LIGHTPUSH_POLICY)
    pool.offer((A,), (A,), 0)
    assert pool.take_wishes() == [Use(A), Discover(1)]
    for now in range(1, 10):
        pool.tick(now)
    assert pool.take_wishes() == []
    assert pool.next_tick(9.0) == 10
    pool.tick(10)
    assert pool.take_wishes() == [Discover(1)]


def test_a_node_that_turns_out_not_to_be_suitable_is_not_used() -> None:
    pool = pool_of(LIGHTPUSH_POLICY)
    pool.unsuitable(A, 1)
    pool.unsuitable(C, 1)
    assert pool.take_wishes() == [Replace(A, C, UNSUITABLE), Use(C), Replace(C, D, UNSUITABLE), Use(D)]
    assert pool.in_use == (B, D)


# Regular pings


def test_pings_are_sent_once_per_minute() -> None:
    pool = pool_of(FILTER_POLICY)
    now, pings = 0.0, list[float]()
    while now < 300:
        now = pool.next_tick(now)
        pool.tick(now)
        for wish in pool.take_wishes():
            assert isinstance(wish, Ping)
            if wish.peer == A:
                pings.append(now)
            pool.report(wish.peer, PING_OK, now)
    assert pings == [60, 120, 180, 240, 300]


def test_a_ping_under_way_is_not_repeated() -> None:
    pool = pool_of(FILTER_POLICY)
    pool.tick(60)
    assert pool.take_wishes() == [Ping(A), Ping(B)]
    pool.tick(120)
    assert pool.take_wishes() == []
    assert pool.next_tick(120) == math.inf


def test_lightpush_nodes_are_not_pinged() -> None:
    pool = pool_of(LIGHTPUSH_POLICY)
    assert pool.next_tick(0) == math.inf


# Offline recoverability


def test_while_offline_pings_are_stopped() -> None:
    pool = pool_of(FILTER_POLICY)
    pool.went_offline(10)
    assert pool.offline
    pool.tick(70)
    pool.tick(1000)
    assert pool.take_wishes() == []
    assert pool.next_tick(1000) == math.inf


def test_while_offline_no_node_is_to_blame() -> None:
    pool = pool_of(FILTER_POLICY)
    pool.went_offline(10)
    pool.report(A, TIMED_OUT, 11)
    pool.report(B, PING_FAILED, 11)
    pool.report(B, PING_FAILED, 11)
    pool.disconnected(A, 12)
    assert pool.members == (A, B)
    assert pool.in_use == (B,)
    assert pool.take_wishes() == [Connect(A)]
    pool.connect_failed(A, 13)
    assert pool.take_wishes() == []
    assert pool.next_tick(13) == 14
    pool.tick(14)
    assert pool.take_wishes() == [Connect(A)]
    assert pool.members == (A, B)


def test_when_the_network_returns_nodes_in_use_are_pinged_at_once() -> None:
    pool = pool_of(FILTER_POLICY)
    pool.went_offline(10)
    pool.came_online(20)
    assert pool.take_wishes() == [Ping(A), Ping(B)]


def test_a_failed_ping_after_the_return_has_the_node_replaced_without_waiting_for_more() -> None:
    pool = pool_of(FILTER_POLICY)
    pool.went_offline(10)
    pool.came_online(20)
    pool.take_wishes()
    pool.report(A, PING_OK, 21)
    pool.report(B, PING_FAILED, 21)
    assert pool.take_wishes() == [Replace(B, C, PING_FAILED), Use(C)]
    pool.report(A, PING_FAILED, 80)
    assert pool.in_use == (A, C), "the one that answered has its two pings again"


def test_a_node_that_was_in_use_is_pinged_once_it_is_connected_again() -> None:
    pool = pool_of(FILTER_POLICY)
    pool.went_offline(10)
    pool.disconnected(A, 11)
    pool.take_wishes()
    pool.came_online(20)
    assert pool.take_wishes() == [Ping(B)]
    pool.ready(A, 21)
    assert pool.take_wishes() == [Ping(A)]


def test_a_node_that_is_not_reached_after_the_return_is_replaced() -> None:
    pool = pool_of(LIGHTPUSH_POLICY)
    pool.went_offline(10)
    pool.disconnected(A, 11)
    pool.came_online(12)
    pool.take_wishes()
    pool.connect_failed(A, 22)
    assert pool.take_wishes() == [Replace(A, C, CONNECTION_LOST), Use(C)]


# Bounds and arguments


def test_what_is_remembered_is_bounded() -> None:
    pool = ServicePool(PoolPolicy(remember=8, rest_s=0.001))
    peers = [peer_of(n) for n in range(100)]
    for start in range(0, 100, 10):
        offered = peers[start : start + 10]
        pool.offer(offered, offered, start)
        for peer in pool.in_use:
            pool.report(peer, TIMED_OUT, start)
    assert pool.remembered <= 8


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 0},
        {"pings_in_a_row": 0},
        {"remember": 1},
        {"rest_s": 0.0},
        {"rest_s": 61.0},
        {"discover_every_s": 0.0},
        {"ping_interval_s": 0.0},
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        PoolPolicy(**wrong)  # pyright: ignore[reportArgumentType]


OUTCOMES = [
    OK,
    TIMED_OUT,
    UNCONFIRMED,
    CONNECTION_LOST,
    WITHOUT_CODE,
    *map(Outcome.of_status, (421, 429, 500, 503)),
    PING_OK,
]


@given(
    st.randoms(use_true_random=False), st.sampled_from([LIGHTPUSH_POLICY, FILTER_POLICY]), st.integers(1, 8)
)
def test_whatever_happens_the_pool_stays_what_it_promises(
    rng: random.Random, policy: PoolPolicy, count: int
) -> None:
    """Never more nodes than its size, only nodes that were offered, each use and replace in turn, and after
    peace has returned it is full again (as far as there are nodes)."""
    peers = [peer_of(n) for n in range(count)]
    pool = ServicePool(policy)
    connected: set[PeerId] = set()
    used: list[PeerId] = []
    now = 0.0

    def obey() -> bool:
        wishes = pool.take_wishes()
        for wish in wishes:
            match wish:
                case Connect(peer) if peer not in pool.members:
                    pass
                case Connect(peer):
                    if rng.random() < 0.7:
                        connected.add(peer)
                        pool.ready(peer, now)
                    else:
                        pool.connect_failed(peer, now)
                case Use(peer):
                    assert peer not in used
                    used.append(peer)
                case Replace(old, new, _):
                    assert old != new
                    if old in used:
                        used.remove(old)
                case Ping(peer):
                    pool.report(peer, rng.choice([PING_OK, PING_FAILED]), now)
                case Discover(missing):
                    assert 0 < missing <= policy.size
        return bool(wishes)

    for _ in range(60):
        now += rng.choice([0.0, 0.1, 1.0, 30.0])
        peer = rng.choice(peers)
        match rng.randrange(8):
            case 0:
                pool.offer(rng.sample(peers, rng.randint(0, count)), connected, now)
            case 1:
                connected.add(peer)
                pool.ready(peer, now)
            case 2:
                connected.discard(peer)
                pool.disconnected(peer, now)
            case 3 | 4:
                pool.report(peer, rng.choice(OUTCOMES), now)
            case 5:
                pool.went_offline(now)
            case 6:
                pool.came_online(now)
            case _:
                pool.tick(now)
        while obey():
            pass
        assert len(pool.members) <= policy.size
        assert set(pool.in_use) <= set(pool.members) <= set(peers)
        assert set(pool.in_use) <= set(used)
        assert pool.next_tick(now) >= now

    pool.came_online(now)
    for _ in range(200):
        now += 70
        pool.offer(peers, connected, now)
        pool.tick(now)
        for wish in pool.take_wishes():
            match wish:
                case Connect(peer):
                    connected.add(peer)
                    pool.ready(peer, now)
                case Ping(peer):
                    pool.report(peer, PING_OK, now)
                case _:
                    pass
    assert len(pool.in_use) == min(policy.size, count)


# Retry missing messages: "using a different service node"


def test_a_node_whose_work_nobody_has_seen_makes_place_for_another() -> None:
    pool = pool_of(LIGHTPUSH_POLICY)
    pool.doubt(A, 1)
    assert pool.take_wishes() == [Replace(A, C, UNCONFIRMED), Use(C)]
    assert pool.in_use == (B, C)


def test_a_doubted_node_stays_where_there_is_no_other() -> None:
    pool = pool_of(LIGHTPUSH_POLICY, (A, B))
    pool.doubt(A, 1)
    assert pool.take_wishes() == []
    assert pool.in_use == (A, B)


def test_doubt_never_empties_a_pool_for_nodes_that_are_not_connected_yet() -> None:
    pool = ServicePool(LIGHTPUSH_POLICY)
    pool.offer((A, B, C, D), (A, B), 0)
    pool.take_wishes()
    pool.doubt(A, 1)
    assert pool.take_wishes() == [Replace(A, C, UNCONFIRMED), Connect(C)]
    pool.doubt(B, 1)  # C may not be there
    assert pool.take_wishes() == []
    assert pool.in_use == (B,)


def test_nobody_is_doubted_while_offline_or_not_in_use() -> None:
    pool = pool_of(LIGHTPUSH_POLICY)
    pool.doubt(C, 1)
    pool.went_offline(2)
    pool.doubt(A, 3)
    assert pool.take_wishes() == []
    assert pool.in_use == (A, B)
