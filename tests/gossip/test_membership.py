"""Topics, mesh and fanout (gossipsub v1.0: Topic Membership, Control Messages, Heartbeat)."""

from __future__ import annotations

from dataclasses import replace

from pywaku.gossip import GossipParams
from pywaku.wire.relay import IHave, Prune, Rpc, Subscription
from tests.support.gossip_lone import NO_FLOOD, OTHER, TOPIC, Lone, id_of


def test_a_new_peer_gets_a_hello_with_all_our_subscriptions() -> None:
    lone = Lone()
    lone.gossip.join(OTHER, lone.now)
    peer = lone.peer(topics=())
    lone.sent()
    assert lone.control(peer).subscriptions == (Subscription(True, TOPIC), Subscription(True, OTHER))


def test_subscription_changes_are_announced_to_all_peers_whatever_their_topics() -> None:
    lone = Lone(join=False)
    stranger = lone.peer(topics=(OTHER,))
    lone.gossip.join(TOPIC, lone.now)
    lone.sent()
    assert lone.control(stranger).subscriptions == (Subscription(True, TOPIC),)
    lone.gossip.leave(TOPIC, lone.now)
    lone.sent()
    assert lone.control(stranger).subscriptions == (Subscription(False, TOPIC),)


def test_join_selects_up_to_d_peers_of_the_topic_and_grafts_them() -> None:
    lone = Lone(join=False)
    peers = lone.peers(20)
    strangers = [lone.peer(topics=(OTHER,)) for _ in range(5)]
    lone.gossip.join(TOPIC, lone.now)
    lone.sent()
    mesh = lone.gossip.mesh(TOPIC)
    assert len(mesh) == 6
    assert mesh <= set(peers)
    for peer in peers + strangers:
        assert lone.control(peer).graft == ((TOPIC,) if peer in mesh else ())


def test_a_new_mesh_has_its_outbound_quota_at_once() -> None:
    for seed in range(10):
        lone = Lone(join=False, seed=seed)
        inbound, outbound = lone.peers(15), lone.peers(4, outbound=True)
        lone.gossip.join(TOPIC, lone.now)
        mesh = lone.gossip.mesh(TOPIC)
        assert len(mesh) == 6
        assert len(mesh & set(outbound)) >= 3
        assert mesh <= {*inbound, *outbound}
        lone.beat()
        assert lone.gossip.mesh(TOPIC) == mesh


def test_joining_twice_and_leaving_what_was_not_joined_do_nothing() -> None:
    lone = Lone()
    lone.peers(6)
    lone.beat()
    lone.sent()
    lone.gossip.join(TOPIC, lone.now)
    lone.gossip.leave(OTHER, lone.now)
    assert lone.sent() == {}
    assert set(lone.gossip.subscriptions) == {TOPIC}


def test_join_moves_the_fanout_into_the_mesh() -> None:
    lone = Lone(NO_FLOOD, join=False)
    lone.peers(20)
    lone.gossip.publish(TOPIC, b"hello", lone.now)
    fanout = lone.gossip.fanout(TOPIC)
    assert len(fanout) == 6
    lone.gossip.join(TOPIC, lone.now)
    assert lone.gossip.mesh(TOPIC) == fanout
    assert lone.gossip.fanout(TOPIC) == frozenset()


def test_join_fills_up_a_fanout_that_is_too_small() -> None:
    lone = Lone(NO_FLOOD, join=False)
    first = lone.peers(2)
    lone.gossip.publish(TOPIC, b"hello", lone.now)
    lone.peers(10)
    lone.gossip.join(TOPIC, lone.now)
    mesh = lone.gossip.mesh(TOPIC)
    assert len(mesh) == 6
    assert mesh >= set(first)


def test_leave_prunes_the_mesh_with_the_unsubscribe_backoff_and_forgets_it() -> None:
    lone = Lone()
    peers = lone.mesh_peers(5)
    lone.gossip.leave(TOPIC, lone.now)
    lone.sent()
    for peer in peers:
        (prune,) = lone.control(peer).prune
        assert (prune.topic, prune.backoff_s) == (TOPIC, 5)
    assert lone.gossip.mesh(TOPIC) == frozenset()
    assert TOPIC not in lone.gossip.subscriptions


def test_after_leave_the_mesh_is_not_grafted_again_before_the_backoff_and_some_slack() -> None:
    lone = Lone()
    peers = lone.mesh_peers(5)
    lone.gossip.leave(TOPIC, lone.now)
    lone.gossip.join(TOPIC, lone.now)
    assert lone.gossip.mesh(TOPIC) == frozenset()
    lone.beat(6)
    assert lone.gossip.mesh(TOPIC) == frozenset()
    lone.beat()
    assert lone.gossip.mesh(TOPIC) == frozenset(peers)


def test_graft_adds_the_sender_to_the_mesh() -> None:
    lone = Lone()
    peer = lone.peer()
    lone.sent()
    lone.say(peer, Rpc(graft=(TOPIC,)))
    assert lone.gossip.mesh(TOPIC) == {peer}
    assert lone.sent() == {}


def test_a_peer_that_is_grafted_hears_once_of_what_was_published_lately() -> None:
    lone = Lone()
    for data in (b"one", b"two"):
        lone.gossip.publish(TOPIC, data, lone.now)
    lone.gossip.publish(OTHER, b"of another topic", lone.now)
    peer = lone.peer()
    lone.beat()
    lone.sent()
    assert lone.control(peer).graft == (TOPIC,)
    (ihave,) = lone.control(peer).ihave
    assert ihave.topic == TOPIC
    assert set(ihave.message_ids) == {id_of(b"one"), id_of(b"two")}
    lone.beat()
    lone.sent()
    assert lone.control(peer).ihave == ()


def test_a_peer_that_grafts_hears_once_of_what_was_published_lately() -> None:
    lone = Lone()
    lone.gossip.publish(TOPIC, b"one", lone.now)
    peer = lone.peer()
    lone.say(peer, Rpc(graft=(TOPIC,)))
    lone.sent()
    assert lone.control(peer).ihave == (IHave(TOPIC, (id_of(b"one"),)),)
    lone.say(peer, Rpc(graft=(TOPIC,), iwant=(id_of(b"one"),)))
    lone.sent()
    assert lone.control(peer).ihave == ()
    assert lone.got(peer) == [id_of(b"one")]


def test_what_a_grafted_peer_hears_of_is_bounded_and_recent() -> None:
    lone = Lone(GossipParams(max_ihave_ids=2))
    lone.gossip.publish(TOPIC, b"old", lone.now)
    lone.beat(3)
    lone.gossip.publish(TOPIC, b"1", lone.now)
    lone.beat()
    for data in (b"2", b"3"):
        lone.gossip.publish(TOPIC, data, lone.now)
    peer = lone.peer()
    lone.say(peer, Rpc(graft=(TOPIC,)))
    lone.sent()
    assert lone.control(peer).ihave == (IHave(TOPIC, (id_of(b"2"), id_of(b"3"))),)


def test_a_graft_without_a_subscription_stands_for_it() -> None:
    lone = Lone()
    peer = lone.peer(topics=())
    lone.say(peer, Rpc(graft=(TOPIC,)))
    assert lone.gossip.mesh(TOPIC) == lone.gossip.peers_of(TOPIC) == {peer}


def test_prune_removes_the_sender_from_the_mesh() -> None:
    lone = Lone()
    peers = lone.mesh_peers(5)
    lone.say(peers[0], Rpc(prune=(Prune(TOPIC),)))
    assert lone.gossip.mesh(TOPIC) == set(peers[1:])


def test_a_peer_that_unsubscribes_leaves_the_mesh() -> None:
    lone = Lone()
    peers = lone.mesh_peers(5)
    lone.say(peers[0], Rpc(subscriptions=(Subscription(False, TOPIC),)))
    assert lone.gossip.mesh(TOPIC) == lone.gossip.peers_of(TOPIC) == set(peers[1:])


def test_a_peer_that_disconnects_leaves_everything() -> None:
    lone = Lone()
    peers = lone.mesh_peers(5)
    lone.gossip.publish(TOPIC, b"hello", lone.now)
    lone.gossip.remove_peer(peers[0], lone.now)
    assert lone.gossip.mesh(TOPIC) == lone.gossip.peers_of(TOPIC) == set(peers[1:])
    assert peers[0] not in lone.gossip.peers
    assert peers[0] not in lone.sent()


def test_what_an_unknown_peer_says_is_ignored() -> None:
    lone = Lone()
    peer = lone.peer()
    lone.gossip.remove_peer(peer, lone.now)
    lone.gossip.remove_peer(peer, lone.now)
    assert lone.message(peer, b"hello") == []
    assert lone.gossip.counters.unknown_peer == 1


def test_heartbeat_grafts_up_to_d_when_the_mesh_is_below_d_low() -> None:
    lone = Lone()
    lone.mesh_peers(3)
    lone.peers(20)
    lone.beat()
    assert len(lone.gossip.mesh(TOPIC)) == 6


def test_heartbeat_leaves_a_mesh_between_d_low_and_d_high_alone() -> None:
    for size in range(4, 9):
        lone = Lone(replace(GossipParams(), d_out=0))
        mesh = lone.mesh_peers(size)
        lone.peers(20)
        lone.beat()
        lone.sent()
        assert lone.gossip.mesh(TOPIC) == set(mesh)
        assert all(
            not lone.control(peer).graft and not lone.control(peer).prune for peer in lone.gossip.peers
        )


def test_heartbeat_prunes_to_d_when_the_mesh_is_above_d_high() -> None:
    lone = Lone()
    mesh = lone.mesh_peers(9, outbound=True)
    lone.beat()
    lone.sent()
    left = lone.gossip.mesh(TOPIC)
    assert len(left) == 6
    for peer in mesh:
        pruned = [prune.topic for prune in lone.control(peer).prune]
        assert pruned == ([] if peer in left else [TOPIC])


def test_publishing_to_a_topic_not_joined_uses_d_peers_of_a_fanout() -> None:
    lone = Lone(NO_FLOOD, join=False)
    peers = lone.peers(20)
    published = lone.gossip.publish(TOPIC, b"hello", lone.now)
    assert len(published.peers) == 6
    assert set(published.peers) <= set(peers)
    assert frozenset(published.peers) == lone.gossip.fanout(TOPIC)
    again = lone.gossip.publish(TOPIC, b"again", lone.now)
    assert again.peers == published.peers


def test_fanout_is_discarded_after_its_time_to_live() -> None:
    lone = Lone(NO_FLOOD, join=False)
    lone.peers(20)
    lone.gossip.publish(TOPIC, b"hello", lone.now)
    lone.beat(60)
    assert len(lone.gossip.fanout(TOPIC)) == 6
    lone.beat()
    assert lone.gossip.fanout(TOPIC) == frozenset()


def test_heartbeat_keeps_the_fanout_at_d_peers_of_the_topic() -> None:
    lone = Lone(NO_FLOOD, join=False)
    lone.peers(8)
    lone.gossip.publish(TOPIC, b"hello", lone.now)
    gone, unsubscribed = sorted(lone.gossip.fanout(TOPIC))[:2]
    lone.gossip.remove_peer(gone, lone.now)
    lone.say(unsubscribed, Rpc(subscriptions=(Subscription(False, TOPIC),)))
    assert len(lone.gossip.fanout(TOPIC)) == 4
    lone.beat()
    fanout = lone.gossip.fanout(TOPIC)
    assert len(fanout) == 6
    assert not fanout & {gone, unsubscribed}


def test_fanout_topics_are_gossiped_about() -> None:
    lone = Lone(NO_FLOOD, join=False)
    peers = lone.peers(20)
    published = lone.gossip.publish(TOPIC, b"hello", lone.now)
    lone.beat()
    lone.sent()
    heard = {peer for peer in peers if lone.control(peer).ihave}
    assert len(heard) == 6
    assert not heard & set(published.peers)
    assert lone.control(next(iter(heard))).ihave[0].message_ids == (id_of(b"hello"),)


def test_several_topics_have_meshes_of_their_own() -> None:
    lone = Lone()
    lone.gossip.join(OTHER, lone.now)
    both = [lone.peer(topics=(TOPIC, OTHER)) for _ in range(10)]
    lone.beat()
    lone.sent()
    for topic in (TOPIC, OTHER):
        mesh = lone.gossip.mesh(topic)
        assert len(mesh) == 6
        assert all((topic in lone.control(peer).graft) == (peer in mesh) for peer in both)
    lone.gossip.leave(OTHER, lone.now)
    assert len(lone.gossip.mesh(TOPIC)) == 6
