"""Every table of the router has a bound, and what it does at the bound is counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pywaku.errors import InvalidInput
from pywaku.gossip import GossipParams, ScoreParams, TopicScoreParams, Verdict
from pywaku.gossip.backoff import Backoffs
from pywaku.gossip.mcache import MessageCache
from pywaku.gossip.promises import Promises
from pywaku.gossip.seen import SeenCache
from pywaku.wire.relay import Rpc, Subscription
from tests.support.gossip_lone import OTHER, TOPIC, Lone, id_of
from tests.support.gossip_net import peer_id


def test_topics_per_peer_are_bounded() -> None:
    lone = Lone(replace(GossipParams(), max_topics_per_peer=3))
    peer = lone.peer(topics=[f"/topic/{n}" for n in range(5)])
    assert [len(lone.gossip.peers_of(f"/topic/{n}")) for n in range(5)] == [1, 1, 1, 0, 0]
    assert lone.gossip.counters.subscriptions_refused == 2
    lone.say(peer, Rpc(subscriptions=(Subscription(False, "/topic/0"), Subscription(True, TOPIC))))
    assert lone.gossip.peers_of(TOPIC) == {peer}


def test_topic_names_are_bounded() -> None:
    lone = Lone()
    lone.peer(topics=["t" * 257])
    assert lone.gossip.counters.subscriptions_refused == 1


def test_topics_nobody_is_in_are_forgotten() -> None:
    lone = Lone()
    for _ in range(3):
        peer = lone.peer(topics=[f"/topic/{n}" for n in range(100)])
        lone.gossip.remove_peer(peer, lone.now)
    assert lone.gossip.peers_of("/topic/1") == frozenset()


def test_control_entries_are_bounded_per_heartbeat() -> None:
    lone = Lone(replace(GossipParams(), max_control_per_heartbeat=5))
    peer = lone.peer(topics=[f"/topic/{n}" for n in range(7)])
    assert lone.gossip.counters.control_ignored == 2
    lone.say(peer, Rpc(graft=(TOPIC,)))
    assert lone.gossip.mesh(TOPIC) == frozenset()
    lone.beat()
    lone.say(peer, Rpc(graft=(TOPIC,)))
    assert lone.gossip.mesh(TOPIC) == {peer}


def test_messages_under_validation_are_bounded_and_may_come_again() -> None:
    lone = Lone(replace(GossipParams(), max_pending=2, max_pending_bytes=10))
    peer = lone.peer()
    assert len(lone.message(peer, b"one")) == 1
    assert lone.message(peer, b"12345678") == []  # too many bytes
    assert len(lone.message(peer, b"two")) == 1
    assert lone.message(peer, b"three") == []  # too many
    assert lone.gossip.counters.pending_full == 2
    lone.gossip.validated(id_of(b"one"), Verdict.ACCEPT, lone.now)
    assert len(lone.message(peer, b"three")) == 1


def test_messages_that_never_get_a_verdict_are_forgotten() -> None:
    lone = Lone()
    lone.message(lone.peer(), b"one")
    lone.beat(120)
    assert lone.gossip.counters.pending_expired == 1
    assert not lone.gossip.validated(id_of(b"one"), Verdict.ACCEPT, lone.now)


def test_a_queue_that_nobody_takes_from_loses_its_oldest() -> None:
    lone = Lone(replace(GossipParams(), max_outgoing_messages=10))
    peer = lone.peer()
    lone.sent()
    ids = [lone.gossip.publish(TOPIC, bytes([n]), lone.now).message_id for n in range(25)]
    lone.sent()
    got = lone.got(peer)
    assert len(got) <= 10
    assert got == ids[-len(got) :]
    assert lone.gossip.counters.outgoing_dropped == 25 - len(got)


def test_a_peer_that_wastes_our_work_is_not_read_until_the_next_heartbeat() -> None:
    lone = Lone(replace(GossipParams(), max_waste_per_heartbeat=10))
    peer = lone.peer()
    for _ in range(14):
        lone.message(peer, b"nothing of ours", topic=OTHER)
    assert lone.message(peer, b"hello") == []
    assert lone.gossip.counters.flooded == 4
    assert lone.score(peer) == -10.0  # once
    lone.beat()
    assert len(lone.message(peer, b"hello")) == 1


def test_duplicates_are_no_waste_where_there_is_as_much_that_is_new() -> None:
    lone = Lone(replace(GossipParams(), max_waste_per_heartbeat=10))
    first, second = lone.peers(2)
    for n in range(1_000):
        lone.deliver(first, n.to_bytes(2))
        lone.message(second, n.to_bytes(2))
    lone.beat()
    for n in range(1_000):
        lone.message(second, n.to_bytes(2))
    assert lone.gossip.counters.flooded == 0


def test_own_messages_that_come_back_are_no_waste() -> None:
    lone = Lone(replace(GossipParams(), max_waste_per_heartbeat=10))
    peer = lone.peer()
    for n in range(1_000):
        lone.gossip.publish(TOPIC, n.to_bytes(2), lone.now)
        lone.message(peer, n.to_bytes(2))
    lone.beat()
    for n in range(1_000):
        lone.message(peer, n.to_bytes(2))
    assert lone.gossip.counters.flooded == 0
    assert lone.score(peer) == 0


def test_rpcs_that_say_nothing_are_waste() -> None:
    lone = Lone(replace(GossipParams(), max_waste_per_heartbeat=10))
    peer = lone.peer()
    for _ in range(10):
        lone.say(peer, Rpc())
    assert lone.gossip.counters.flooded == 0
    for _ in range(10):
        lone.say(peer, Rpc())
    assert lone.gossip.counters.flooded == 9
    assert lone.score(peer) == -10.0


def test_seen_ids_are_bounded() -> None:
    seen = SeenCache(120.0, 100)
    for n in range(300):
        seen.add(n.to_bytes(2), n / 10)
        assert len(seen) <= 100
    assert (299).to_bytes(2) in seen
    assert all((n.to_bytes(2) in seen) == (n >= 200) for n in range(300))
    assert seen.evicted == 200
    seen.expire(29.9 + 121.1)
    assert len(seen) == 0


def test_seen_ids_are_kept_for_at_least_their_time() -> None:
    seen = SeenCache(120.0, 1_000)
    times = [n * 0.37 for n in range(500)]
    for n, now in enumerate(times):
        seen.add(n.to_bytes(2), now)
        seen.expire(now)
        for older, then in enumerate(times[: n + 1]):
            if now - then < 120:
                assert older.to_bytes(2) in seen
            if now - then > 122:
                assert older.to_bytes(2) not in seen


def test_cached_bytes_are_bounded_and_the_oldest_go_first() -> None:
    cache = MessageCache(6, 3, 1_000)
    for n in range(100):
        cache.put(bytes([n]), TOPIC, b"x" * 50)
        assert cache.size <= 1_000
        assert cache.get(bytes([n])) is not None
        if n % 10 == 9:
            cache.shift()
    assert cache.get(bytes([0])) is None
    assert cache.evicted + len(cache) == 100
    for _ in range(6):
        cache.shift()
    assert (cache.size, len(cache)) == (0, 0)


def test_a_message_too_large_for_the_cache_is_not_kept() -> None:
    cache = MessageCache(6, 3, 10)
    cache.put(b"id", TOPIC, b"x" * 11)
    assert (cache.size, len(cache)) == (0, 0)
    assert cache.gossip_ids(TOPIC) == []


def test_backoffs_are_bounded_and_forgotten() -> None:
    backoffs = Backoffs(2.0, 10)
    for n in range(15):
        backoffs.add(TOPIC if n % 2 else OTHER, peer_id(n), 100.0 + n)
    assert backoffs.count == 10
    assert backoffs.evicted == 5
    backoffs.expire(1_000.0)
    assert backoffs.count == 0


def test_promises_are_bounded() -> None:
    promises = Promises(3.0, 0.3, 10)
    for n in range(25):
        assert promises.ask(bytes([n]), peer_id(n), 1.0)
        promises.promise(bytes([n]), peer_id(n), 1.0)
        assert len(promises) <= 10
    assert promises.evicted == 15
    assert promises.broken(10.0) == []  # what was evicted is forgiven
    assert len(promises) == 0


def test_a_request_is_passed_on_to_those_who_offered_meanwhile() -> None:
    promises = Promises(3.0, 0.3, 100)
    assert promises.ask(b"id", peer_id(1), 1.0)
    assert not promises.ask(b"id", peer_id(2), 1.1)
    assert not promises.ask(b"id", peer_id(3), 1.1)
    assert promises.retry(1.2) == []
    assert promises.retry(1.4) == [(peer_id(2), b"id")]
    assert promises.ask(b"id", peer_id(3), 1.8)
    assert promises.retry(5.0) == []
    assert promises.ask(b"id", peer_id(1), 2.5)  # nobody else is left
    assert promises.arrived(b"id") == [peer_id(1), peer_id(2), peer_id(3), peer_id(1)]
    assert promises.arrived(b"id") is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"d": 3},
        {"d_high": 5},
        {"d_out": 4},
        {"d_low": 3},
        {"d_score": 7},
        {"d_lazy": -1},
        {"gossip_factor": 1.5},
        {"history_gossip": 7},
        {"heartbeat_interval_s": 0.0},
        {"seen_ttl_s": -1.0},
        {"iwant_retry_s": 4.0},
        {"max_seen": 0},
        {"max_ihave_ids": -1},
    ],
)
def test_parameters_that_contradict_the_spec_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="gossip parameter"):
        GossipParams(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"gossip_threshold": 0.0},
        {"publish_threshold": -50.0},
        {"graylist_threshold": -1_000.0},
        {"accept_px_threshold": -1.0},
        {"opportunistic_graft_threshold": -1.0},
        {"ip_colocation_factor_weight": 1.0},
        {"ip_colocation_factor_threshold": 0},
        {"ip_colocation_allowed": ("nowhere",)},
        {"behaviour_penalty_weight": 1.0},
        {"behaviour_penalty_decay": 1.0},
        {"decay_to_zero": 0.0},
        {"topic_score_cap": 0.0},
    ],
)
def test_score_parameters_that_contradict_the_spec_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        ScoreParams(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"time_in_mesh_quantum_s": 0.0},
        {"invalid_message_deliveries_weight": 1.0},
        {"mesh_message_deliveries_weight": 1.0},
        {"mesh_message_deliveries_cap": 1.0},
        {"first_message_deliveries_decay": 1.0},
    ],
)
def test_topic_score_parameters_that_contradict_the_spec_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        TopicScoreParams(**wrong)


def test_the_defaults_are_those_of_the_waku_network() -> None:
    params = GossipParams()
    assert (params.d, params.d_low, params.d_high, params.d_out, params.d_score, params.d_lazy) == (
        6,
        4,
        8,
        3,
        4,
        6,
    )
    assert (params.gossip_factor, params.heartbeat_interval_s, params.flood_publish) == (0.25, 1.0, True)
    assert (params.history_length, params.history_gossip) == (6, 3)
    assert (params.fanout_ttl_s, params.seen_ttl_s) == (60.0, 120.0)
    assert (params.prune_backoff_s, params.unsubscribe_backoff_s) == (60.0, 5.0)
    score = params.score
    assert (score.gossip_threshold, score.publish_threshold, score.graylist_threshold) == (
        -100,
        -1_000,
        -10_000,
    )
    assert (score.ip_colocation_factor_weight, score.ip_colocation_factor_threshold) == (-50, 5)
    assert (score.behaviour_penalty_weight, score.behaviour_penalty_decay) == (-10, 0.986)
    assert (score.decay_interval_s, score.decay_to_zero, score.retain_score_s) == (12, 0.01, 600)
    topic = score.topic
    assert (topic.time_in_mesh_weight, topic.time_in_mesh_quantum_s, topic.time_in_mesh_cap) == (0.01, 1, 10)
    assert topic.first_message_deliveries_weight == 1
    assert (topic.first_message_deliveries_decay, topic.first_message_deliveries_cap) == (0.5, 10)
    assert (topic.invalid_message_deliveries_weight, topic.invalid_message_deliveries_decay) == (-100, 0.5)
