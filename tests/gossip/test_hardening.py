"""Back-off, peer exchange, flood publishing, quotas and spam limits (gossipsub v1.1)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pywaku.gossip import GossipParams, Verdict
from pywaku.ids import PeerId
from pywaku.wire.relay import IHave, PeerRecord, Prune, Rpc
from tests.support.gossip_lone import NO_FLOOD, OTHER, TOPIC, Lone, id_of, with_score
from tests.support.gossip_net import peer_id

# explicit peering agreements


def test_direct_peers_are_sent_every_valid_message_outside_the_mesh() -> None:
    direct = peer_id(1)
    lone = Lone(NO_FLOOD, direct=[direct])
    assert lone.peer() == direct
    sender, *_ = lone.mesh_peers(5)
    lone.beat()
    lone.sent()
    assert direct not in lone.gossip.mesh(TOPIC)
    lone.deliver(sender, b"theirs")
    lone.sent()
    assert lone.got(direct) == [id_of(b"theirs")]
    assert direct in lone.gossip.publish(TOPIC, b"ours", lone.now).peers


def test_rpcs_of_direct_peers_are_always_accepted() -> None:
    direct = peer_id(1)
    lone = Lone(direct=[direct])
    lone.peer()
    lone.gossip.penalize(direct, lone.now, 1_000)
    assert len(lone.message(direct, b"hello")) == 1


def test_a_graft_from_a_direct_peer_is_refused_with_a_prune() -> None:
    direct = peer_id(1)
    lone = Lone(direct=[direct])
    lone.peer()
    lone.say(direct, Rpc(graft=(TOPIC,)))
    lone.sent()
    assert lone.control(direct).prune == (Prune(TOPIC, (), 60),)
    assert lone.gossip.mesh(TOPIC) == frozenset()


def test_connections_to_direct_peers_are_wished_for_at_first_and_every_five_minutes() -> None:
    direct = peer_id(1)
    lone = Lone(direct=[direct])
    lone.beat()
    assert [wish.peer for wish in lone.gossip.take_wishes()] == [direct]
    lone.beat(299)
    assert lone.gossip.take_wishes() == []
    lone.beat()
    assert [wish.peer for wish in lone.gossip.take_wishes()] == [direct]


# prune backoff


def test_prune_says_how_long_the_backoff_is() -> None:
    lone = Lone()
    lone.mesh_peers(9, outbound=True)
    lone.beat()
    prunes = [outgoing.control.prune for outgoing in lone.sent().values() if outgoing.control.prune]
    assert len(prunes) == 3
    assert all(prune.backoff_s == 60 for (prune,) in prunes)


def test_a_pruned_peer_is_not_grafted_before_the_backoff_and_some_slack() -> None:
    lone = Lone()
    (peer,) = lone.mesh_peers(1)
    lone.say(peer, Rpc(prune=(Prune(TOPIC),)))
    lone.beat(61)
    assert lone.gossip.mesh(TOPIC) == frozenset()
    lone.beat()
    assert lone.gossip.mesh(TOPIC) == {peer}


def test_the_backoff_in_a_prune_is_obeyed() -> None:
    lone = Lone()
    (peer,) = lone.mesh_peers(1)
    lone.say(peer, Rpc(prune=(Prune(TOPIC, (), 10),)))
    lone.beat(11)
    assert lone.gossip.mesh(TOPIC) == frozenset()
    lone.beat()
    assert lone.gossip.mesh(TOPIC) == {peer}


def test_a_backoff_without_end_is_cut_to_an_hour() -> None:
    lone = Lone()
    (peer,) = lone.mesh_peers(1)
    lone.say(peer, Rpc(prune=(Prune(TOPIC, (), 2**64 - 1),)))
    lone.now += 3_602
    lone.gossip.heartbeat(lone.now)
    assert lone.gossip.mesh(TOPIC) == {peer}


def test_a_graft_within_the_backoff_is_pruned_penalised_and_extends_the_backoff() -> None:
    lone = Lone()
    (peer,) = lone.mesh_peers(1)
    lone.say(peer, Rpc(prune=(Prune(TOPIC),)))
    lone.now += 30
    lone.say(peer, Rpc(graft=(TOPIC,)))
    lone.sent()
    assert lone.control(peer).prune == (Prune(TOPIC, (), 60),)
    assert lone.gossip.mesh(TOPIC) == frozenset()
    assert lone.score(peer) == -10.0
    assert lone.gossip.counters.backoff_violations == 1
    lone.now += 59  # the first backoff is over, the second is not
    lone.say(peer, Rpc(graft=(TOPIC,)))
    assert lone.gossip.mesh(TOPIC) == frozenset()


def test_a_graft_right_after_the_prune_is_penalised_twice() -> None:
    lone = Lone()
    (peer,) = lone.mesh_peers(1)
    lone.say(peer, Rpc(prune=(Prune(TOPIC),)))
    lone.now += 1
    lone.say(peer, Rpc(graft=(TOPIC,)))
    assert lone.score(peer) == -40.0


def test_a_graft_after_the_backoff_is_welcome() -> None:
    lone = Lone()
    (peer,) = lone.mesh_peers(1)
    lone.say(peer, Rpc(prune=(Prune(TOPIC),)))
    lone.now += 60
    lone.say(peer, Rpc(graft=(TOPIC,)))
    assert lone.gossip.mesh(TOPIC) == {peer}


def test_the_backoff_outlives_the_connection() -> None:
    lone = Lone()
    (peer,) = lone.mesh_peers(1)
    lone.say(peer, Rpc(prune=(Prune(TOPIC),)))
    lone.gossip.remove_peer(peer, lone.now)
    lone.gossip.add_peer(peer, lone.now, outbound=False)
    lone.say(peer, Rpc(graft=(TOPIC,)))
    assert lone.gossip.mesh(TOPIC) == frozenset()


# peer exchange


def test_peers_pruned_for_oversubscription_are_offered_others() -> None:
    lone = Lone()
    mesh = lone.mesh_peers(9, outbound=True)
    lone.peers(20)
    lone.gossip.learn_record(mesh[0], b"record")
    lone.beat()
    for peer, outgoing in lone.sent().items():
        for prune in outgoing.control.prune:
            assert len(prune.peers) == 16
            assert all(offered.peer_id != peer for offered in prune.peers)
            for offered in prune.peers:
                assert offered.signed_record == (b"record" if offered.peer_id == mesh[0] else b"")


def test_only_peers_of_non_negative_score_are_offered() -> None:
    lone = Lone()
    lone.mesh_peers(9, outbound=True)
    bad = lone.peers(5)
    for peer in bad:
        lone.gossip.penalize(peer, lone.now)
    lone.beat()
    offered = {
        record.peer_id
        for out in lone.sent().values()
        for prune in out.control.prune
        for record in prune.peers
    }
    assert offered
    assert not offered & set(bad)


def test_peers_of_negative_score_are_pruned_without_peer_exchange() -> None:
    lone = Lone()
    mesh = lone.mesh_peers(5)
    lone.gossip.penalize(mesh[0], lone.now)
    lone.beat()
    lone.sent()
    assert lone.control(mesh[0]).prune == (Prune(TOPIC, (), 60),)
    assert lone.gossip.mesh(TOPIC) == set(mesh[1:])


def test_peer_exchange_can_be_switched_off() -> None:
    lone = Lone(replace(GossipParams(), peer_exchange=False))
    lone.mesh_peers(9, outbound=True)
    lone.beat()
    assert not any(prune.peers for out in lone.sent().values() for prune in out.control.prune)


def _trusted(lone: Lone) -> PeerId:
    (peer,) = lone.mesh_peers(1)
    lone.gossip.set_application_score(peer, 10.0, lone.now)
    return peer


def test_peers_offered_by_a_peer_of_good_score_are_wished_for() -> None:
    lone = Lone()
    peer = _trusted(lone)
    known = lone.peer()
    offered = (PeerRecord(peer_id(900), b"record"), PeerRecord(known, b""), PeerRecord(b"junk", b""))
    lone.say(peer, Rpc(prune=(Prune(TOPIC, offered),)))
    assert lone.gossip.take_wishes() == [(peer_id(900), b"record")]
    assert lone.gossip.take_wishes() == []
    assert lone.gossip.counters.px_ignored == 1


def test_peer_exchange_below_the_threshold_is_ignored() -> None:
    lone = Lone()
    (peer,) = lone.mesh_peers(1)
    lone.say(peer, Rpc(prune=(Prune(TOPIC, (PeerRecord(peer_id(900), b""),)),)))
    assert lone.gossip.take_wishes() == []
    assert lone.gossip.counters.px_ignored == 1


def test_wishes_are_bounded_per_prune_and_per_heartbeat() -> None:
    lone = Lone()
    peer = _trusted(lone)
    for round_ in range(5):
        offered = tuple(PeerRecord(peer_id(1_000 + 100 * round_ + n), b"") for n in range(100))
        lone.say(peer, Rpc(prune=(Prune(TOPIC, offered),)))
    assert len(lone.gossip.take_wishes()) == 16
    assert lone.gossip.counters.wishes_dropped == 64


# flood publishing


def test_own_messages_go_to_all_peers_of_the_topic() -> None:
    lone = Lone()
    mesh = lone.mesh_peers(5)
    others = lone.peers(20)
    lone.peer(topics=(OTHER,))
    assert lone.gossip.publish(TOPIC, b"hello", lone.now).peers == (*mesh, *others)


def test_own_messages_flood_topics_not_joined_without_a_fanout() -> None:
    lone = Lone(join=False)
    peers = lone.peers(20)
    assert lone.gossip.publish(TOPIC, b"hello", lone.now).peers == tuple(peers)
    assert lone.gossip.fanout(TOPIC) == frozenset()


def test_own_messages_do_not_go_to_peers_below_the_publish_threshold() -> None:
    for params in (GossipParams(), NO_FLOOD):
        lone = Lone(params, join=params.flood_publish)
        good, bad = lone.peers(2)
        lone.gossip.penalize(bad, lone.now, 10.1)  # -10 × 10.1² < -1000
        assert lone.gossip.publish(TOPIC, b"hello", lone.now).peers == (good,)


# adaptive gossip


def test_gossip_goes_to_a_quarter_of_the_peers_if_that_is_more_than_d_lazy() -> None:
    lone = Lone()
    mesh = lone.mesh_peers(5)
    lone.peers(100)
    lone.deliver(mesh[0], b"hello")
    lone.beat()
    assert sum(1 for outgoing in lone.sent().values() if outgoing.control.ihave) == 25


def test_no_gossip_to_or_from_peers_below_the_gossip_threshold() -> None:
    lone = Lone()
    mesh = lone.mesh_peers(5)
    (bad,) = lone.peers(1)
    lone.deliver(mesh[0], b"hello")
    lone.gossip.penalize(bad, lone.now, 3.2)  # -10 × 3.2² < -100
    lone.sent()
    lone.beat()
    lone.say(bad, Rpc(ihave=(IHave(TOPIC, (id_of(b"new"),)),), iwant=(id_of(b"hello"),)))
    assert bad not in lone.sent()
    assert lone.gossip.counters.ihave_ignored == 1
    assert lone.gossip.counters.iwant_ignored == 1


# outbound quotas


def test_pruning_for_oversubscription_keeps_d_out_outbound_peers() -> None:
    for seed in range(20):
        lone = Lone(seed=seed)
        inbound = lone.mesh_peers(8)
        outbound = lone.mesh_peers(3, outbound=True)
        for peer in inbound:  # the better ones, so that nothing but the quota speaks for the others
            lone.deliver(peer, bytes(peer))
        lone.beat()
        mesh = lone.gossip.mesh(TOPIC)
        assert len(mesh) == 6
        assert set(outbound) <= mesh


def test_a_graft_at_d_high_is_accepted_from_outbound_peers_only() -> None:
    lone = Lone()
    lone.mesh_peers(8)
    inbound, outbound = lone.peer(), lone.peer(outbound=True)
    lone.sent()
    lone.say(inbound, Rpc(graft=(TOPIC,)))
    lone.say(outbound, Rpc(graft=(TOPIC,)))
    assert outbound in lone.gossip.mesh(TOPIC)
    assert inbound not in lone.gossip.mesh(TOPIC)
    lone.sent()
    (prune,) = lone.control(inbound).prune
    assert prune.backoff_s == 60
    assert prune.peers


def test_heartbeat_grafts_outbound_peers_that_are_missing() -> None:
    lone = Lone()
    inbound = lone.mesh_peers(5)
    outbound = lone.peers(10, outbound=True)
    lone.beat()
    mesh = lone.gossip.mesh(TOPIC)
    assert set(inbound) <= mesh
    assert len(mesh & set(outbound)) == 3


def test_a_heartbeat_never_leaves_a_mesh_above_d_high() -> None:
    lone = Lone()
    lone.mesh_peers(8)
    outbound = lone.peers(10, outbound=True)
    lone.beat()
    mesh = lone.gossip.mesh(TOPIC)
    assert len(mesh) == 6
    assert len(mesh & set(outbound)) == 3


# spam protection


def test_a_mesh_link_that_only_we_hold_is_given_up() -> None:
    lone = Lone()
    mesh = lone.mesh_peers(5)
    gossip = Rpc(ihave=(IHave(TOPIC, (id_of(b"new"),)),))
    lone.beat(3)
    lone.say(mesh[0], gossip)  # may have crossed our GRAFT
    assert mesh[0] in lone.gossip.mesh(TOPIC)
    lone.beat()
    lone.sent()
    lone.say(mesh[0], gossip)
    assert lone.gossip.mesh(TOPIC) == set(mesh[1:])
    lone.sent()
    assert lone.control(mesh[0]).prune == (Prune(TOPIC, (), 60),)
    assert lone.gossip.counters.one_sided == 1


def test_gossip_with_a_graft_does_not_end_the_link_that_it_makes() -> None:
    lone = Lone()
    mesh = lone.mesh_peers(5)
    lone.beat(30)
    lone.say(mesh[0], Rpc(graft=(TOPIC,), ihave=(IHave(TOPIC, (id_of(b"1"),)),)))  # its PRUNE was lost before
    lone.now += 1
    lone.say(mesh[0], Rpc(ihave=(IHave(TOPIC, (id_of(b"2"),)),)))  # what found no room in the same frame
    assert lone.gossip.mesh(TOPIC) == set(mesh)
    lone.beat(5)
    lone.say(mesh[0], Rpc(ihave=(IHave(TOPIC, (id_of(b"3"),)),)))
    assert lone.gossip.mesh(TOPIC) == set(mesh[1:])


def test_a_graft_for_an_unknown_topic_is_ignored() -> None:
    lone = Lone()
    peer = lone.peer()
    lone.sent()
    lone.say(peer, Rpc(graft=(OTHER,)))
    assert lone.sent() == {}


def test_a_graft_from_a_peer_of_negative_score_is_refused_without_peer_exchange() -> None:
    lone = Lone()
    lone.peers(5)
    bad = lone.peer()
    lone.gossip.penalize(bad, lone.now)
    lone.say(bad, Rpc(graft=(TOPIC,)))
    lone.sent()
    assert lone.control(bad).prune == (Prune(TOPIC, (), 60),)


def test_iwant_is_answered_three_times_per_peer_and_message() -> None:
    lone = Lone()
    lone.gossip.publish(TOPIC, b"hello", lone.now)
    greedy, other = lone.peers(2)
    lone.sent()
    for _ in range(5):
        lone.say(greedy, Rpc(iwant=(id_of(b"hello"),)))
    lone.say(other, Rpc(iwant=(id_of(b"hello"),)))
    lone.sent()
    assert len(lone.got(greedy)) == 3
    assert len(lone.got(other)) == 1
    assert lone.gossip.counters.iwant_ignored == 2


def test_iwant_is_answered_with_so_many_bytes_per_heartbeat() -> None:
    lone = Lone(replace(GossipParams(), max_iwant_bytes=2_500))
    ids = [lone.gossip.publish(TOPIC, bytes([n]) * 1_000, lone.now).message_id for n in range(4)]
    peer = lone.peer()
    lone.sent()
    lone.say(peer, Rpc(iwant=tuple(ids)))
    lone.sent()
    assert lone.got(peer) == ids[:2]
    lone.beat()
    lone.say(peer, Rpc(iwant=tuple(ids[2:])))
    lone.sent()
    assert lone.got(peer) == ids[2:]


def test_ihave_is_read_ten_times_per_heartbeat() -> None:
    lone = Lone()
    peer = lone.peer()
    lone.sent()
    for n in range(15):
        lone.say(peer, Rpc(ihave=(IHave(TOPIC, (id_of(bytes([n])),)),)))
    lone.sent()
    assert len(lone.control(peer).iwant) == 10
    assert lone.gossip.counters.ihave_ignored == 5
    lone.beat()
    lone.say(peer, Rpc(ihave=(IHave(TOPIC, (id_of(b"next"),)),)))
    lone.sent()
    assert lone.control(peer).iwant == (id_of(b"next"),)


def test_ihave_is_read_for_5000_ids_per_heartbeat() -> None:
    lone = Lone()
    peer = lone.peer()
    lone.sent()
    ids = tuple(n.to_bytes(32) for n in range(6_000))
    lone.say(peer, Rpc(ihave=(IHave(TOPIC, ids[:3_000]),)))
    lone.say(peer, Rpc(ihave=(IHave(TOPIC, ids[3_000:]),)))
    lone.sent()
    assert lone.control(peer).iwant == ids[:5_000]


def test_ihave_is_sent_for_5000_ids_per_heartbeat_different_ones_to_different_peers() -> None:
    lone = Lone(replace(GossipParams(), max_ihave_ids=10))
    mesh = lone.mesh_peers(5)
    lone.peers(6)
    ids = {id_of(data) for data in (bytes([n]) for n in range(40)) if lone.deliver(mesh[0], data)}
    lone.sent()
    lone.beat()
    heard = [ihave.message_ids for out in lone.sent().values() for ihave in out.control.ihave]
    assert [len(set(message_ids)) for message_ids in heard] == [10] * 6
    assert len(set(heard)) > 1
    assert {message_id for message_ids in heard for message_id in message_ids} <= ids


def test_a_promise_not_kept_is_penalised_after_three_seconds() -> None:
    lone = Lone()
    (peer,) = lone.peers(1)
    lone.say(peer, Rpc(ihave=(IHave(TOPIC, tuple(id_of(bytes([n])) for n in range(100))),)))
    lone.beat(2)
    assert lone.score(peer) >= 0.0
    lone.beat(1)
    assert lone.score(peer) == -10.0  # one promise for each IHAVE
    assert lone.gossip.counters.promises_broken == 1


def test_a_promise_is_kept_by_whoever_sends_the_message() -> None:
    lone = Lone()
    promiser, sender = lone.peers(2)
    lone.say(promiser, Rpc(ihave=(IHave(TOPIC, (id_of(b"new"),)),)))
    lone.deliver(sender, b"new")
    lone.beat(5)
    assert lone.score(promiser) >= 0.0
    assert lone.gossip.counters.promises_broken == 0


def test_a_broken_promise_is_penalised_after_the_peer_has_gone_too() -> None:
    lone = Lone()
    (peer,) = lone.mesh_peers(1)
    lone.say(peer, Rpc(ihave=(IHave(TOPIC, (id_of(b"new"),)),)))
    lone.gossip.penalize(peer, lone.now, 1.0)
    lone.gossip.remove_peer(peer, lone.now)
    lone.beat(4)
    assert lone.score(peer) == -40.0


# extended validators


@pytest.mark.parametrize(
    ("verdict", "score"), [(Verdict.ACCEPT, 1.0), (Verdict.REJECT, -100.0), (Verdict.IGNORE, 0.0)]
)
def test_validation_accepts_rejects_or_ignores(verdict: Verdict, score: float) -> None:
    lone = Lone()
    (peer,) = lone.peers(1)
    assert lone.deliver(peer, b"hello", verdict) == (verdict is Verdict.ACCEPT)
    assert lone.score(peer) == score


def test_opportunistic_grafting_adds_better_peers_every_sixty_heartbeats() -> None:
    lone = Lone(with_score(opportunistic_graft_threshold=1.0))
    mesh = lone.mesh_peers(5, outbound=True)
    good = lone.peers(3)
    lone.peers(3)
    for peer in good:
        lone.gossip.set_application_score(peer, 5.0, lone.now)
    lone.beat(59)
    assert lone.gossip.mesh(TOPIC) == set(mesh)
    lone.beat()
    added = lone.gossip.mesh(TOPIC) - set(mesh)
    assert len(added) == 2
    assert added <= set(good)


def test_no_opportunistic_grafting_when_the_mesh_is_good_enough() -> None:
    lone = Lone(with_score(opportunistic_graft_threshold=1.0))
    mesh = lone.mesh_peers(5, outbound=True)
    for peer in mesh[:3]:
        lone.gossip.set_application_score(peer, 2.0, lone.now)
    for peer in lone.peers(3):
        lone.gossip.set_application_score(peer, 5.0, lone.now)
    lone.beat(60)
    assert lone.gossip.mesh(TOPIC) == set(mesh)
