"""The subscription table against a naive model; the queue and the patience of the service."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pywaku.ids import PeerId
from pywaku.protocols.filter.patience import Patience
from pywaku.protocols.filter.queue import PushQueue, QueueLimits
from pywaku.protocols.filter.table import Criterion, Subscribed, SubscriptionTable

PEERS = [PeerId(bytes((0, 1, n))) for n in range(5)]
PUBSUB = ["/waku/2/rs/1/0", "/waku/2/rs/1/1"]
CONTENT = [*(f"/a/1/{n}/proto" for n in range(3)), "/a/1/longer than the others, ö/proto"]
MAX_PEERS, MAX_CRITERIA, MAX_BYTES, LIFETIME = 3, 5, 70, 10.0


class Naive:
    """The same, as one would write it down."""

    def __init__(self) -> None:
        self.criteria: dict[PeerId, list[Criterion]] = {}
        self.seen: dict[PeerId, float] = {}

    def expire(self, now: float) -> set[PeerId]:
        gone = {peer for peer, seen in self.seen.items() if seen + LIFETIME <= now}
        for peer in gone:
            self.remove(peer)
        return gone

    def subscribe(self, peer: PeerId, pubsub: str, content: list[str], now: float) -> Subscribed:
        if peer not in self.criteria and len(self.criteria) == MAX_PEERS:
            return Subscribed.TOO_MANY_PEERS
        held = list(self.criteria.get(peer, []))
        for topic in content:
            if Criterion(pubsub, topic) not in held:
                held.append(Criterion(pubsub, topic))
        if len(held) > MAX_CRITERIA:
            return Subscribed.TOO_MANY_CRITERIA
        if sum(len(criterion.content_topic.encode()) for criterion in held) > MAX_BYTES:
            return Subscribed.TOO_MANY_BYTES
        self.criteria[peer] = held
        self.seen[peer] = now
        return Subscribed.DONE

    def unsubscribe(self, peer: PeerId, pubsub: str, content: list[str], now: float) -> int:
        held = self.criteria.get(peer, [])
        gone = {Criterion(pubsub, topic) for topic in content} & set(held)
        if gone:
            self.criteria[peer] = [criterion for criterion in held if criterion not in gone]
            self.seen[peer] = now
            if not self.criteria[peer]:
                self.remove(peer)
        return len(gone)

    def remove(self, peer: PeerId) -> bool:
        self.seen.pop(peer, None)
        return self.criteria.pop(peer, None) is not None

    def refresh(self, peer: PeerId, now: float) -> bool:
        if peer in self.criteria:
            self.seen[peer] = now
        return peer in self.criteria


def agree(table: SubscriptionTable, naive: Naive) -> None:
    assert len(table) == len(naive.criteria)
    assert table.criteria == sum(map(len, naive.criteria.values()))
    assert set(table.peers) == set(naive.criteria)
    assert set(table.pubsub_topics) == {
        criterion.pubsub_topic for held in naive.criteria.values() for criterion in held
    }
    assert table.next_expiry == min(naive.seen.values(), default=math.inf) + LIFETIME
    for peer in PEERS:
        assert list(table.of(peer)) == naive.criteria.get(peer, [])
        assert (peer in table) == (peer in naive.criteria)
    for pubsub in PUBSUB:
        for content in CONTENT:
            wanted = {peer for peer, held in naive.criteria.items() if Criterion(pubsub, content) in held}
            found = list(table.matching(pubsub, content))
            assert len(found) == len(set(found))
            assert set(found) == wanted


Step = Callable[[SubscriptionTable | Naive, float], Any]


def steps() -> st.SearchStrategy[tuple[float, Step]]:
    peer = st.sampled_from(PEERS)
    pubsub = st.sampled_from(PUBSUB)
    content = st.lists(st.sampled_from(CONTENT), min_size=1, max_size=4)

    def subscribe(p: PeerId, t: str, c: list[str]) -> Step:
        return lambda table, now: table.subscribe(p, t, c, now)

    def unsubscribe(p: PeerId, t: str, c: list[str]) -> Step:
        return lambda table, now: table.unsubscribe(p, t, c, now)

    def refresh(p: PeerId) -> Step:
        return lambda table, now: table.refresh(p, now)

    def remove(p: PeerId) -> Step:
        return lambda table, _: table.remove(p)

    def expire() -> Step:
        return lambda table, now: set(table.expire(now))

    action = st.one_of(
        st.builds(subscribe, peer, pubsub, content),
        st.builds(subscribe, peer, pubsub, content),
        st.builds(unsubscribe, peer, pubsub, content),
        st.builds(refresh, peer),
        st.builds(remove, peer),
        st.builds(expire),
    )
    return st.tuples(st.sampled_from([0.0, 0.5, 3.0, 10.0]), action)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps(), max_size=40))
def test_the_table_does_what_a_naive_one_does(happenings: list[tuple[float, Step]]) -> None:
    table = SubscriptionTable(
        max_peers=MAX_PEERS, max_criteria=MAX_CRITERIA, max_bytes=MAX_BYTES, lifetime_s=LIFETIME
    )
    naive = Naive()
    now = 0.0
    for pause, step in happenings:
        now += pause
        assert step(table, now) == step(naive, now)
        agree(table, naive)


def test_subscribers_are_found_in_the_order_in_which_they_came() -> None:
    table = SubscriptionTable()
    for peer in (PEERS[2], PEERS[0], PEERS[1]):
        table.subscribe(peer, PUBSUB[0], [CONTENT[0]], 0.0)
    table.subscribe(PEERS[2], PUBSUB[0], [CONTENT[0]], 1.0)  # a refresh changes nothing
    assert list(table.matching(PUBSUB[0], CONTENT[0])) == [PEERS[2], PEERS[0], PEERS[1]]


def test_topics_are_in_memory_once_for_all_peers() -> None:
    table = SubscriptionTable()
    for peer in PEERS:
        table.subscribe(peer, "".join(PUBSUB), ["".join(CONTENT)], 0.0)
    for part in (0, 1):
        assert len({id(table.of(peer)[0][part]) for peer in PEERS}) == 1


@given(st.lists(st.one_of(st.binary(min_size=1, max_size=60), st.none()), max_size=80))
def test_a_queue_gives_what_it_took_in_order_and_keeps_its_bounds(actions: list[bytes | None]) -> None:
    limits = QueueLimits(messages=10, bytes=200, write_size=100)
    queue = PushQueue(limits)
    expected: list[bytes] = []
    for action in actions:
        if action is None:
            data, count = queue.take()
            assert data == b"".join(expected[:count])
            assert count == 0 or count == 1 or len(data) <= limits.write_size
            assert not expected or count
            del expected[:count]
        else:
            room = len(expected) < 10 and sum(map(len, expected)) + len(action) <= 200
            assert queue.put(action) == room
            if room:
                expected.append(action)
        assert len(queue) == len(expected) <= limits.messages
        assert queue.size == sum(map(len, expected)) <= limits.bytes


def test_what_waits_leaves_in_one_write() -> None:
    queue = PushQueue(QueueLimits())
    for number in range(100):
        queue.put(b"%03d" % number)
    data, count = queue.take()
    assert count == 100
    assert data == b"".join(b"%03d" % number for number in range(100))


def test_patience_doubles_its_pauses_and_ends() -> None:
    patience = Patience(pause_s=1.0, limit_s=10.0)
    assert patience.failed(0.0) == 1.0
    assert patience.failed(1.0) == 2.0
    assert patience.failed(3.0) == 4.0
    assert patience.failed(7.0) == 3.0  # the last attempt is at its end
    assert patience.failed(10.0) is None


def test_success_makes_patience_forget() -> None:
    patience = Patience(pause_s=1.0, limit_s=10.0)
    assert patience.failed(0.0) == 1.0
    assert patience.failed(5.0) == 2.0
    patience.succeeded()
    assert patience.left(9.0) == 10.0
    assert patience.failed(9.0) == 1.0
    assert patience.left(12.0) == 7.0
