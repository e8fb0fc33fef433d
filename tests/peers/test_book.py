"""The peer book: what it learns, what it forgets, and that it stays within its bounds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import InvalidInput
from pywaku.ids import PeerId
from pywaku.network.backoff import BackoffPolicy
from pywaku.peers.book import BookLimits, PeerBook
from pywaku.peers.entry import MAX_ADDRESSES, Candidate, Origin, PeerEntry
from pywaku.wire.enr import Capability
from pywaku.wire.multiaddr import Multiaddr
from tests.support.peers import CLUSTER, address_of, candidate_of, entry_of, key_of, peer_of, record_of


def book_of(limits: BookLimits | None = None) -> PeerBook:
    return PeerBook(limits, rng=random.Random(1))


def got(book: PeerBook, peer: PeerId) -> PeerEntry:
    entry = book.get(peer)
    assert entry is not None
    return entry


def test_a_node_record_tells_addresses_cluster_shards_and_services() -> None:
    book = book_of()
    record = record_of("a", shards=(1, 3), capabilities=Capability.STORE)
    assert book.learn(Candidate.of_record(record, Origin.DNS), 5)
    entry = got(book, record.peer_id)
    assert entry == PeerEntry(
        record.peer_id,
        Origin.DNS,
        first_seen=5,
        last_seen=5,
        recorded=record.dial_addresses,
        cluster_id=CLUSTER,
        shards=frozenset({1, 3}),
        capabilities=Capability.STORE,
        record=record,
    )


def test_a_second_discovery_brings_the_record_and_the_addresses_up_to_date() -> None:
    book = book_of()
    book.learn(Candidate.of_record(record_of("a", seq=1, port=1), Origin.DNS), 0)
    newer = record_of("a", seq=2, port=2, shards=(7,), capabilities=Capability.RELAY)
    book.learn(Candidate.of_record(newer, Origin.DNS), 1)
    entry = got(book, newer.peer_id)
    assert entry.record == newer
    assert entry.addresses == newer.dial_addresses
    assert (entry.shards, entry.capabilities) == (frozenset({7}), Capability.RELAY)
    assert (entry.first_seen, entry.last_seen) == (0, 1)


def test_an_older_record_does_not_undo_a_newer_one() -> None:
    book = book_of()
    newer = record_of("a", seq=2, port=2)
    book.learn(Candidate.of_record(newer, Origin.DNS), 0)
    book.learn(Candidate.of_record(record_of("a", seq=1, port=1), Origin.DNS), 1)
    assert got(book, newer.peer_id).record == newer
    assert book.counters.stale_records == 1


def test_a_record_with_new_addresses_ends_the_back_off() -> None:
    book = book_of()
    record = record_of("a", seq=1)
    book.learn(Candidate.of_record(record, Origin.DNS), 0)
    book.failed(record.peer_id, 0)
    assert not book.may_dial(got(book, record.peer_id), 0)
    book.learn(Candidate.of_record(record, Origin.DNS), 1)
    assert not book.may_dial(got(book, record.peer_id), 1)
    book.learn(Candidate.of_record(record_of("a", seq=2, port=7), Origin.DNS), 1)
    assert book.may_dial(got(book, record.peer_id), 1)


def test_a_candidate_with_the_record_of_another_peer_teaches_nothing_of_it() -> None:
    book = book_of()
    liar = Candidate(peer_of("liar"), (address_of(peer_of("liar")),), Origin.PEER_EXCHANGE, record_of("a"))
    book.learn(liar, 0)
    assert got(book, peer_of("liar")).record is None
    assert got(book, peer_of("liar")).cluster_id is None


def test_addresses_of_other_peers_are_left_out_and_their_number_is_bounded() -> None:
    book = book_of()
    peer = peer_of("a")
    many = [address_of(peer, f"/ip4/192.0.2.1/tcp/{port}") for port in range(1, 100)]
    book.learn(Candidate(peer, (address_of(peer_of("b")), *many), Origin.STATIC), 0)
    assert got(book, peer).addresses == tuple(many[:MAX_ADDRESSES])


def test_configured_addresses_come_first_and_stay() -> None:
    book = book_of()
    record = record_of("a")
    configured = address_of(record.peer_id, "/dns4/node.example/tcp/443/wss")
    book.learn(Candidate(record.peer_id, (configured,), Origin.STATIC), 0)
    book.learn(Candidate.of_record(record, Origin.DNS), 1)
    book.identified(record.peer_id, frozenset({"/a"}), [Multiaddr.parse("/ip4/10.0.0.1/tcp/1")], 2)
    entry = got(book, record.peer_id)
    assert entry.addresses[0] == configured
    assert set(record.dial_addresses) < set(entry.addresses)
    assert entry.origin is Origin.STATIC


def test_the_most_trusted_origin_holds() -> None:
    book = book_of()
    book.learn(candidate_of("a", Origin.PEER_EXCHANGE), 0)
    book.learn(candidate_of("a", Origin.DNS), 0)
    book.learn(candidate_of("a", Origin.PEER_EXCHANGE), 0)
    assert got(book, peer_of("a")).origin is Origin.DNS


def test_connections_and_what_peers_say_are_noted() -> None:
    book = book_of()
    peer = peer_of("a")
    book.connected(peer, 1, inbound=True)
    book.identified(peer, frozenset({"/a/1"}), [Multiaddr.parse("/ip4/192.0.2.1/tcp/1")], 2, agent="x/1")
    book.metadata(peer, 42, (1, 2))
    entry = got(book, peer)
    assert entry.connected
    assert (entry.origin, entry.protocols, entry.agent) == (Origin.INBOUND, frozenset({"/a/1"}), "x/1")
    assert (entry.cluster_id, entry.shards) == (42, frozenset({1, 2}))
    book.disconnected(peer, 9)
    assert got(book, peer) == replace(entry, connected=False, last_seen=9)


def test_metadata_without_shards_says_nothing_of_shards() -> None:
    book = book_of()
    record = record_of("a", shards=(5,))
    book.learn(Candidate.of_record(record, Origin.DNS), 0)
    book.metadata(record.peer_id, CLUSTER, ())
    assert got(book, record.peer_id).shards == frozenset({5})
    book.metadata(record.peer_id, CLUSTER, (6,))
    assert got(book, record.peer_id).shards == frozenset({6})


def test_what_is_said_of_unknown_peers_is_left_alone() -> None:
    book = book_of()
    book.identified(peer_of("a"), frozenset(), (), 0)
    book.metadata(peer_of("a"), 1, ())
    book.disconnected(peer_of("a"), 0)
    book.failed(peer_of("a"), 0)
    book.succeeded(peer_of("a"))
    book.forget(peer_of("a"))
    assert len(book) == 0


def test_a_peer_that_fails_is_left_alone_ever_longer() -> None:
    book = book_of(BookLimits(backoff=BackoffPolicy(base_s=5, factor=2, longest_s=60, jitter=0)))
    book.learn(candidate_of("a"), 0)
    delays = list[float]()
    for _ in range(6):
        book.failed(peer_of("a"), 100)
        delays.append(got(book, peer_of("a")).retry_at - 100)
    assert delays == [5, 10, 20, 40, 60, 60]
    assert not book.may_dial(got(book, peer_of("a")), 159)
    assert book.may_dial(got(book, peer_of("a")), 160)
    book.succeeded(peer_of("a"))
    assert got(book, peer_of("a")).failures == 0


def test_a_clock_that_was_set_back_does_not_prolong_a_back_off() -> None:
    book = book_of()
    book.learn(candidate_of("a"), 1e9)
    book.failed(peer_of("a"), 1e9)
    assert book.may_dial(got(book, peer_of("a")), 0)


def test_an_inbound_connection_does_not_prove_the_addresses() -> None:
    book = book_of()
    book.learn(candidate_of("a"), 0)
    book.failed(peer_of("a"), 0)
    book.connected(peer_of("a"), 1, inbound=True)
    assert got(book, peer_of("a")).failures == 1
    book.connected(peer_of("a"), 1, inbound=False)
    assert got(book, peer_of("a")).failures == 0


# Bounds


def test_when_full_the_peer_with_most_failures_goes_then_the_least_trusted_then_the_oldest() -> None:
    book = book_of(BookLimits(max_peers=4, max_exchanged=4))
    book.learn(candidate_of("dns", Origin.DNS), 0)
    book.learn(candidate_of("old", Origin.PEER_EXCHANGE), 1)
    book.learn(candidate_of("new", Origin.PEER_EXCHANGE), 2)
    book.learn(candidate_of("failing", Origin.DISCV5), 3)
    book.failed(peer_of("failing"), 3)
    gone = list[str]()
    for n, name in enumerate(("x", "y", "z")):
        book.connected(peer_of(name), 4 + n, inbound=False)
        gone += [
            name
            for name in ("dns", "old", "new", "failing")
            if peer_of(name) not in book and name not in gone
        ]
    assert gone == ["failing", "old", "new"]
    assert book.counters.evicted == 3


def test_connected_and_configured_peers_are_never_evicted() -> None:
    book = book_of(BookLimits(max_peers=2, max_exchanged=1))
    book.learn(candidate_of("static", Origin.STATIC), 0)
    book.connected(peer_of("connected"), 0, inbound=True)
    assert not book.learn(candidate_of("a", Origin.DNS), 1)
    assert {entry.peer for entry in book} == {peer_of("static"), peer_of("connected")}
    assert book.counters.refused == 1


def test_a_peer_that_lies_cannot_push_others_out() -> None:
    book = book_of(BookLimits(max_peers=20, max_exchanged=10))
    for n in range(10):
        book.learn(candidate_of(n, Origin.DNS), 0)
    for n in range(100, 300):
        book.learn(candidate_of(n, Origin.PEER_EXCHANGE), n)
    assert sum(entry.origin is Origin.DNS for entry in book) == 10
    assert sum(entry.origin is Origin.PEER_EXCHANGE for entry in book) == 10


def test_limits_that_cannot_be_meant_are_refused() -> None:
    for wrong in ({"max_peers": 0}, {"max_exchanged": -1}, {"max_peers": 3, "max_exchanged": 4}):
        with pytest.raises(InvalidInput):
            BookLimits(**wrong)  # pyright: ignore[reportArgumentType]


# Saving


def test_what_changed_is_told_once() -> None:
    book = book_of()
    book.learn(candidate_of("a"), 0)
    book.learn(candidate_of("b"), 0)
    assert book.take_changed() == {peer_of("a"), peer_of("b")}
    book.forget(peer_of("a"))
    book.failed(peer_of("b"), 0)
    assert book.take_changed() == {peer_of("a"), peer_of("b")}
    assert book.take_changed() == frozenset()


def test_restored_peers_are_not_connected_and_not_changed() -> None:
    book = book_of()
    book.restore([entry_of("a", connected=True), entry_of("b")])
    assert not any(entry.connected for entry in book)
    assert book.take_changed() == frozenset()


def test_no_more_is_restored_than_there_is_room_for() -> None:
    book = book_of(BookLimits(max_peers=5, max_exchanged=2))
    book.restore(entry_of(n, Origin.PEER_EXCHANGE if n % 2 else Origin.DNS) for n in range(100))
    assert len(book) == 5


def test_who_finds_no_place_when_restored_is_struck_out_of_what_was_saved() -> None:
    book = book_of(BookLimits(max_peers=5, max_exchanged=2))
    saved = [entry_of(n, Origin.DNS) for n in range(8)]
    book.restore(saved)
    assert book.take_changed() == {entry.peer for entry in saved} - {entry.peer for entry in book}
    assert len(book) == 5


def test_what_could_not_be_saved_is_put_back_within_bounds() -> None:
    book = book_of(BookLimits(max_peers=5, max_exchanged=2))
    for number in range(20):
        book.learn(candidate_of(number), 0)
        book.forget(peer_of(number))
    book.learn(candidate_of("stays"), 0)
    book.put_back_changed(book.take_changed())
    changed = book.take_changed()
    assert peer_of("stays") in changed
    assert len(changed) == 1 + 5


ACTIONS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 30), st.sampled_from(list(Origin))), min_size=1, max_size=120
)


@given(ACTIONS)
def test_whatever_happens_the_book_keeps_its_bounds(actions: list[tuple[int, int, Origin]]) -> None:
    limits = BookLimits(max_peers=8, max_exchanged=3)
    book = book_of(limits)
    connected: set[PeerId] = set()
    static: set[PeerId] = set()
    saved: dict[PeerId, PeerEntry] = {}
    for now, (action, number, origin) in enumerate(actions):
        peer = peer_of(number)
        match action:
            case 0:
                book.connected(peer, now, inbound=number % 2 == 0)
                if peer in book:
                    connected.add(peer)
            case 1:
                book.disconnected(peer, now)
                connected.discard(peer)
            case 2 | 3:
                book.failed(peer, now)
            case 4:
                book.metadata(peer, number, (1,))
            case 5:
                book.succeeded(peer)
            case _:
                if (origin is not Origin.STATIC or len(static) < 4) and book.learn(
                    candidate_of(number, origin), now
                ):
                    static |= {peer} if origin is Origin.STATIC else set()
        if now % 3 == 0:
            for changed in book.take_changed():
                entry = book.get(changed)
                if entry is None:
                    saved.pop(changed, None)
                else:
                    saved[changed] = entry
            assert saved == {entry.peer: entry for entry in book}
        assert len(book) <= limits.max_peers
        assert sum(entry.origin is Origin.PEER_EXCHANGE for entry in book) <= limits.max_exchanged
        assert {entry.peer for entry in book if entry.connected} == connected
        assert static <= {entry.peer for entry in book}
    assert key_of(0).peer_id not in book
