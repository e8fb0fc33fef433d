"""Peer scoring (gossipsub v1.1: The Score Function, Score Thresholds, Parameter Decay)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pywaku.gossip import GossipParams, ScoreParams, TopicScoreParams, Verdict
from pywaku.ids import PeerId
from pywaku.wire.relay import Prune, Rpc
from tests.support.gossip_lone import OTHER, TOPIC, Lone, id_of, with_score, with_topic_score

approx = pytest.approx


def test_a_stranger_has_no_score() -> None:
    lone = Lone()
    assert lone.score(lone.peer()) == 0.0


def test_p1_time_in_mesh_counts_up_to_its_cap() -> None:
    lone = Lone()
    (peer,) = lone.mesh_peers(1)
    lone.now += 5
    assert lone.score(peer) == approx(0.05)
    lone.now += 500
    assert lone.score(peer) == approx(0.1)
    lone.say(peer, Rpc(prune=(Prune(TOPIC),)))
    assert lone.score(peer) == 0.0


def test_p2_first_deliveries_count_up_to_their_cap_and_decay() -> None:
    lone = Lone()
    first, second = lone.peers(2)
    for n in range(15):
        lone.deliver(first, bytes([n]))
        lone.message(second, bytes([n]))
    assert lone.score(first) == 10.0
    assert lone.score(second) == 0.0
    lone.gossip.leave(OTHER, lone.now)
    lone.gossip.heartbeat(lone.now)
    lone.now += 12
    lone.gossip.heartbeat(lone.now)
    assert lone.score(first) == approx(5.0, abs=0.2)
    for _ in range(20):
        lone.now += 12
        lone.gossip.heartbeat(lone.now)
    assert lone.score(first) == approx(0.0, abs=0.2)


P3 = with_topic_score(
    mesh_message_deliveries_weight=-1.0,
    mesh_message_deliveries_threshold=4.0,
    mesh_message_deliveries_cap=6.0,
    mesh_message_deliveries_activation_s=5.0,
    mesh_message_deliveries_window_s=0.01,
    mesh_failure_penalty_weight=-1.0,
    mesh_message_deliveries_decay=0.9,
    time_in_mesh_weight=0.0,
    first_message_deliveries_weight=0.0,
)


def _keep_in_mesh(lone: Lone, peers: list[PeerId]) -> None:
    for peer in peers:
        lone.gossip.set_application_score(peer, 16.0, lone.now)


def _activate(lone: Lone) -> None:
    lone.gossip.heartbeat(lone.now)
    lone.now += 12
    lone.gossip.heartbeat(lone.now)


def test_p3_missing_deliveries_in_the_mesh_count_squared_once_active() -> None:
    lone = Lone(P3)
    (peer,) = lone.mesh_peers(1)
    _keep_in_mesh(lone, [peer])
    assert lone.score(peer) == 16.0
    _activate(lone)
    assert lone.score(peer) == 16.0 - 4.0**2
    lone.deliver(peer, b"one")
    assert lone.score(peer) == 16.0 - 3.0**2


def test_p3_deliveries_up_to_the_window_after_validation_count() -> None:
    lone = Lone(P3)
    first, pending, near, late = lone.mesh_peers(4)
    _keep_in_mesh(lone, [first, pending, near, late])
    _activate(lone)
    lone.message(first, b"one")
    lone.message(pending, b"one")
    lone.message(pending, b"one")  # counts once
    lone.gossip.validated(id_of(b"one"), Verdict.ACCEPT, lone.now)
    lone.now += 0.005
    lone.message(near, b"one")
    lone.now += 0.01
    lone.message(late, b"one")
    assert [lone.score(peer) for peer in (first, pending, near, late)] == [7.0, 7.0, 7.0, 0.0]


def test_p3b_a_deficit_at_the_time_of_pruning_sticks() -> None:
    lone = Lone(P3)
    (peer,) = lone.mesh_peers(1)
    _keep_in_mesh(lone, [peer])
    _activate(lone)
    lone.say(peer, Rpc(prune=(Prune(TOPIC),)))
    assert lone.gossip.mesh(TOPIC) == frozenset()
    assert lone.score(peer) == 0.0


def test_p3_and_p3b_are_off_by_default() -> None:
    lone = Lone()
    (peer,) = lone.mesh_peers(1)
    lone.beat(200)
    assert lone.score(peer) > 0


def test_p4_invalid_messages_count_squared_and_decay() -> None:
    lone = Lone()
    (peer,) = lone.peers(1)
    lone.deliver(peer, b"one", Verdict.REJECT)
    assert lone.score(peer) == -100.0
    lone.deliver(peer, b"two", Verdict.REJECT)
    assert lone.score(peer) == -400.0
    _activate(lone)
    assert lone.score(peer) == -100.0


def test_p4_counts_against_all_who_send_an_invalid_message() -> None:
    lone = Lone()
    first, meanwhile, later = lone.peers(3)
    lone.message(first, b"bad")
    lone.message(meanwhile, b"bad")
    lone.gossip.validated(id_of(b"bad"), Verdict.REJECT, lone.now)
    lone.message(later, b"bad")
    assert [lone.score(peer) for peer in (first, meanwhile, later)] == [-100.0] * 3


def test_p4_counts_against_a_sender_that_has_gone_before_the_verdict() -> None:
    lone = Lone()
    (peer,) = lone.peers(1)
    lone.message(peer, b"bad")
    lone.gossip.remove_peer(peer, lone.now)
    lone.gossip.validated(id_of(b"bad"), Verdict.REJECT, lone.now)
    lone.gossip.add_peer(peer, lone.now, outbound=False)
    assert lone.score(peer) == -100.0


def test_p5_the_application_has_its_say() -> None:
    lone = Lone(with_score(app_specific_weight=2.0))
    (peer,) = lone.peers(1)
    lone.gossip.set_application_score(peer, -3.0, lone.now)
    assert lone.score(peer) == -6.0


def test_p6_more_peers_at_one_address_than_the_threshold_count_squared() -> None:
    lone = Lone()
    peers = [lone.peer(address="203.0.113.7") for _ in range(5)]
    other = lone.peer(address="203.0.113.8")
    assert [lone.score(peer) for peer in peers] == [0.0] * 5
    peers += [lone.peer(address="::ffff:203.0.113.7"), lone.peer(address="203.0.113.7")]
    assert [lone.score(peer) for peer in peers] == [-200.0] * 7
    assert lone.score(other) == 0.0
    for peer in peers[:2]:
        lone.gossip.remove_peer(peer, lone.now)
    assert [lone.score(peer) for peer in peers[2:]] == [0.0] * 5


def test_p6_loopback_is_exempt_by_default_and_other_networks_can_be() -> None:
    lone = Lone(with_score(ip_colocation_allowed=("127.0.0.0/8", "10.0.0.0/8")))
    for address in ("127.0.0.1", "::ffff:127.0.0.1", "10.1.2.3"):
        peers = [lone.peer(address=address) for _ in range(14)]
        assert [lone.score(peer) for peer in peers] == [0.0] * 14


def test_p7_misbehaviour_counts_squared_above_its_threshold_and_decays() -> None:
    lone = Lone()
    (peer,) = lone.peers(1)
    lone.gossip.penalize(peer, lone.now, 2.0)
    assert lone.score(peer) == -40.0
    _activate(lone)
    assert lone.score(peer) == approx(-10 * (2 * 0.986) ** 2)
    lenient = Lone(with_score(behaviour_penalty_threshold=1.5))
    (peer,) = lenient.peers(1)
    lenient.gossip.penalize(peer, lenient.now)
    assert lenient.score(peer) == 0.0


def test_topics_count_by_their_weight_and_up_to_the_cap() -> None:
    topics = {OTHER: TopicScoreParams(topic_weight=3.0)}
    params = GossipParams(score=ScoreParams(topics=topics, topic_score_cap=8.0))
    lone = Lone(params)
    lone.gossip.join(OTHER, lone.now)
    (peer,) = lone.peers(1)
    lone.deliver(peer, b"one")
    (candidate,) = lone.message(peer, b"two", topic=OTHER)
    lone.gossip.validated(candidate.message_id, Verdict.ACCEPT, lone.now)
    assert lone.score(peer) == 4.0
    for n in range(8):
        lone.deliver(peer, bytes([n]))
    assert lone.score(peer) == 8.0


def test_counters_below_decay_to_zero_are_zero() -> None:
    lone = Lone()
    (peer,) = lone.peers(1)
    lone.deliver(peer, b"one")
    for _ in range(8):
        _activate(lone)
    lone.gossip.leave(TOPIC, lone.now)
    assert lone.score(peer) == 0.0


def test_a_score_is_retained_after_disconnection_without_decay() -> None:
    lone = Lone()
    bad, good = lone.peers(2)
    lone.gossip.penalize(bad, lone.now, 3.0)
    lone.deliver(good, b"one")
    for peer in (bad, good):
        lone.gossip.remove_peer(peer, lone.now)
    lone.beat(599)
    for peer in (bad, good):
        lone.gossip.add_peer(peer, lone.now, outbound=False)
    assert lone.score(bad) == -90.0
    assert lone.score(good) == 1.0


def test_a_retained_score_is_forgotten_in_time() -> None:
    lone = Lone()
    (peer,) = lone.peers(1)
    lone.gossip.penalize(peer, lone.now, 3.0)
    lone.gossip.remove_peer(peer, lone.now)
    lone.now += 600
    lone.gossip.add_peer(peer, lone.now, outbound=False)
    assert lone.score(peer) == 0.0


def test_retained_scores_are_bounded() -> None:
    lone = Lone(with_score(max_retained_scores=3))
    peers = lone.peers(5)
    for peer in peers:
        lone.gossip.penalize(peer, lone.now)
        lone.gossip.remove_peer(peer, lone.now)
    assert [lone.score(peer) for peer in peers] == [0.0, 0.0, -10.0, -10.0, -10.0]
    assert lone.gossip.counters.scores_evicted == 2


def test_peers_below_zero_are_pruned_and_not_grafted() -> None:
    lone = Lone()
    mesh = lone.mesh_peers(4)
    bad = lone.peer()
    for peer in (mesh[0], bad):
        lone.gossip.penalize(peer, lone.now)
    lone.beat()
    assert lone.gossip.mesh(TOPIC) == set(mesh[1:])


def test_rpcs_of_graylisted_peers_are_ignored() -> None:
    lone = Lone()
    (peer,) = lone.mesh_peers(1)
    lone.gossip.penalize(peer, lone.now, 31.0)  # -9,610
    assert len(lone.message(peer, b"one")) == 1
    lone.gossip.penalize(peer, lone.now, 1.0)
    assert lone.message(peer, b"two") == []
    assert lone.gossip.counters.graylisted == 1


def test_pruning_for_oversubscription_keeps_the_best_d_score_peers() -> None:
    for seed in range(10):
        lone = Lone(replace(GossipParams(), d_out=0), seed=seed)
        mesh = lone.mesh_peers(12, outbound=True) if seed % 2 else lone.mesh_peers(8)
        mesh += lone.mesh_peers(1, outbound=True)
        best = mesh[-4:]
        for number, peer in enumerate(best):
            for n in range(number + 1):
                lone.deliver(peer, bytes([number, n]))
        lone.beat()
        assert len(lone.gossip.mesh(TOPIC)) == 6
        assert set(best) <= lone.gossip.mesh(TOPIC)


def test_fourteen_peers_on_loopback_keep_their_mesh() -> None:
    lone = Lone()
    for number in range(13):
        lone.peer(outbound=number % 2 == 0, address="127.0.0.1")
    lone.beat()
    assert len(lone.gossip.mesh(TOPIC)) == 6
    mesh = lone.gossip.mesh(TOPIC)
    lone.beat(60)
    assert lone.gossip.mesh(TOPIC) == mesh
