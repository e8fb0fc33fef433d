"""IDONTWANT (gossipsub v1.2)."""

from __future__ import annotations

from dataclasses import replace

from pywaku.gossip import GossipParams, Verdict
from pywaku.wire.relay import IHave, Rpc
from tests.support.gossip_lone import TOPIC, Lone, id_of

LARGE = b"x" * 1_024
SMALL = b"x" * 1_023


def test_idontwant_is_sent_to_the_mesh_before_validation_but_not_to_the_sender() -> None:
    lone = Lone()
    sender, *others = lone.mesh_peers(5)
    lone.peers(3)
    lone.sent()
    lone.message(sender, LARGE)
    assert set(lone.sent()) == set(others)
    assert all(lone.control(peer).idontwant == (id_of(LARGE),) for peer in others)
    assert all(lone.got(peer) == [] for peer in others)


def test_idontwant_is_not_sent_for_small_messages_or_duplicates() -> None:
    lone = Lone()
    first, second, *_ = lone.mesh_peers(5)
    lone.message(first, SMALL)
    assert lone.sent() == {}
    lone.message(first, LARGE)
    lone.sent()
    lone.message(second, LARGE)
    assert lone.sent() == {}


def test_messages_must_not_be_relayed_to_peers_that_said_idontwant() -> None:
    lone = Lone()
    sender, unwilling, *others = lone.mesh_peers(5)
    lone.message(sender, LARGE)
    lone.say(unwilling, Rpc(idontwant=(id_of(LARGE),)))
    assert lone.gossip.unwanted(unwilling, id_of(LARGE))
    lone.sent()
    lone.gossip.validated(id_of(LARGE), Verdict.ACCEPT, lone.now)
    assert set(lone.sent()) == set(others)
    assert lone.gossip.counters.idontwant_saved == 1


def test_idontwant_is_obeyed_whatever_the_size() -> None:
    lone = Lone()
    sender, unwilling, *others = lone.mesh_peers(5)
    lone.say(unwilling, Rpc(idontwant=(id_of(SMALL),)))
    lone.deliver(sender, SMALL)
    assert set(lone.sent()) == set(others)


def test_idontwant_cancels_an_iwant() -> None:
    lone = Lone()
    lone.gossip.publish(TOPIC, LARGE, lone.now)
    peer = lone.peer()
    lone.sent()
    lone.say(peer, Rpc(idontwant=(id_of(LARGE),), iwant=(id_of(LARGE),)))
    assert lone.sent() == {}


def test_whom_we_have_asked_is_told_when_the_message_comes_from_another() -> None:
    lone = Lone()
    sender, *_ = lone.mesh_peers(5)
    asked = lone.peer()
    lone.say(asked, Rpc(ihave=(IHave(TOPIC, (id_of(LARGE),)),)))
    lone.sent()
    lone.message(sender, LARGE)
    lone.sent()
    assert lone.control(asked).idontwant == (id_of(LARGE),)


def test_sending_after_idontwant_is_not_penalised() -> None:
    lone = Lone()
    first, second, *_ = lone.mesh_peers(5)
    lone.message(first, LARGE)
    lone.sent()
    lone.message(second, LARGE)
    assert lone.score(second) >= 0


def test_old_entries_are_pruned_during_heartbeats() -> None:
    lone = Lone()
    peer = lone.peer()
    lone.say(peer, Rpc(idontwant=(id_of(LARGE),)))
    lone.beat(2)
    lone.say(peer, Rpc(idontwant=(id_of(LARGE), id_of(SMALL))))  # saying it again does not make it young
    assert lone.gossip.unwanted(peer, id_of(LARGE))
    lone.beat()
    assert not lone.gossip.unwanted(peer, id_of(LARGE))
    assert lone.gossip.unwanted(peer, id_of(SMALL))
    lone.beat(2)
    assert not lone.gossip.unwanted(peer, id_of(SMALL))


def test_idontwant_ids_are_limited_per_heartbeat() -> None:
    lone = Lone(replace(GossipParams(), max_idontwant_ids_per_heartbeat=3))
    peer = lone.peer()
    ids = tuple(id_of(bytes([n])) for n in range(5))
    lone.say(peer, Rpc(idontwant=ids))
    assert [lone.gossip.unwanted(peer, message_id) for message_id in ids] == [True, True, True, False, False]
    assert lone.gossip.counters.idontwant_ignored == 2
    lone.beat()
    lone.say(peer, Rpc(idontwant=ids[3:]))
    assert lone.gossip.unwanted(peer, ids[4])
