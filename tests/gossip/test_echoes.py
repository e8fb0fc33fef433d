"""Messages of our own that peers send us: what the router says of them, and how much of it it keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pywaku.gossip import Echo, GossipParams
from pywaku.wire.relay import RelayMessage, Rpc
from tests.support.gossip_lone import OTHER, TOPIC, Lone, id_of


@pytest.fixture
def lone() -> Lone:
    """A router that listens for echoes."""
    lone = Lone()
    lone.gossip.listen_for_echoes(True)
    return lone


def test_a_message_of_our_own_that_a_peer_sends_is_an_echo_and_still_a_duplicate(lone: Lone) -> None:
    one, two = lone.peers(2)
    lone.gossip.publish(TOPIC, b"own", lone.now)
    assert lone.message(one, b"own") == []
    assert lone.message(two, b"own") == []
    assert lone.gossip.take_echoes() == [Echo(id_of(b"own"), one), Echo(id_of(b"own"), two)]
    assert lone.gossip.take_echoes() == ()
    assert (lone.gossip.counters.echoes, lone.gossip.counters.duplicates) == (2, 2)


def test_duplicates_of_what_others_have_published_are_no_echoes(lone: Lone) -> None:
    one, two = lone.peers(2)
    lone.deliver(one, b"theirs")
    lone.message(two, b"theirs")
    assert lone.gossip.publish(TOPIC, b"theirs", lone.now).duplicate  # so it was not published by us
    lone.message(two, b"theirs")
    assert lone.gossip.counters.duplicates == 2
    assert lone.gossip.take_echoes() == ()


def test_what_is_sent_in_any_case_is_our_own_even_if_a_peer_had_it_first(lone: Lone) -> None:
    one, two = lone.peers(2)
    lone.deliver(one, b"hello")
    lone.gossip.publish(TOPIC, b"hello", lone.now, resend=True)
    lone.message(two, b"hello")
    assert lone.gossip.take_echoes() == [Echo(id_of(b"hello"), two)]


def test_echoes_are_heard_on_joined_topics_and_unsigned(lone: Lone) -> None:
    peer = lone.peer(topics=[TOPIC, OTHER])
    lone.gossip.publish(OTHER, b"own", lone.now)
    lone.message(peer, b"own", topic=OTHER)
    lone.message(peer, b"own", signed=True)
    assert lone.gossip.take_echoes() == ()
    assert (lone.gossip.counters.unjoined, lone.gossip.counters.signed_refused) == (1, 1)


def test_echoes_are_heard_for_as_long_as_messages_are_remembered(lone: Lone) -> None:
    peer = lone.peer()
    lone.gossip.publish(TOPIC, b"own", lone.now)
    lone.beat(119)
    lone.message(peer, b"own")
    assert len(lone.gossip.take_echoes()) == 1
    lone.beat(3)
    assert lone.gossip.sizes().own == 0
    assert len(lone.message(peer, b"own")) == 1  # a new message, as any router takes it by then
    assert lone.gossip.take_echoes() == ()


def test_a_router_that_does_not_listen_gathers_nothing_but_remembers_what_it_published(lone: Lone) -> None:
    peer = lone.peer()
    lone.gossip.publish(TOPIC, b"own", lone.now)
    lone.message(peer, b"own")
    lone.gossip.listen_for_echoes(False)
    assert lone.gossip.take_echoes() == ()
    lone.message(peer, b"own")
    assert lone.gossip.sizes().echoes == 0
    assert lone.gossip.counters.echoes == 1
    lone.gossip.listen_for_echoes(True)
    lone.message(peer, b"own")
    assert lone.gossip.take_echoes() == [Echo(id_of(b"own"), peer)]


def test_what_is_published_is_remembered_within_a_bound() -> None:
    lone = Lone(replace(GossipParams(), max_own=3))
    lone.gossip.listen_for_echoes(True)
    peer = lone.peer()
    for n in range(10):
        lone.gossip.publish(TOPIC, bytes([n]), lone.now)
    assert lone.gossip.sizes().own == 3
    assert lone.gossip.counters.own_evicted == 7
    lone.message(peer, bytes([6]))
    lone.message(peer, bytes([7]))
    assert lone.gossip.take_echoes() == [Echo(id_of(bytes([7])), peer)]


def test_echoes_that_nobody_takes_are_bounded() -> None:
    lone = Lone(replace(GossipParams(), max_echoes=3))
    lone.gossip.listen_for_echoes(True)
    peer = lone.peer()
    lone.gossip.publish(TOPIC, b"own", lone.now)
    lone.say(peer, Rpc(publish=(RelayMessage(TOPIC, b"own", signed=False),) * 10))
    assert lone.gossip.sizes().echoes == 3
    assert lone.gossip.counters.echoes_dropped == 7
    assert lone.gossip.take_echoes() == [Echo(id_of(b"own"), peer)] * 3
