"""The way of messages (gossipsub v1.0: Message Processing, Message Cache; pubsub: StrictNoSign)."""

from __future__ import annotations

from hashlib import sha256

import pytest

from pywaku.gossip import Candidate, GossipParams, Verdict
from pywaku.gossip.types import Published
from pywaku.wire.relay import IHave, RelayMessage, Rpc, decode_rpc, encode_rpc
from tests.support.gossip_lone import NO_FLOOD, OTHER, TOPIC, Lone, id_of


def test_a_new_message_awaits_a_verdict_and_goes_nowhere_before_it() -> None:
    lone = Lone()
    sender, *_ = lone.mesh_peers(5)
    assert lone.message(sender, b"hello") == [Candidate(id_of(b"hello"), TOPIC, b"hello", sender)]
    assert lone.sent() == {}


def test_the_message_id_is_the_sha256_of_the_data() -> None:
    lone = Lone()
    assert lone.gossip.publish(TOPIC, b"hello", lone.now).message_id == sha256(b"hello").digest()


def test_an_accepted_message_is_forwarded_to_the_mesh_but_not_to_its_sender() -> None:
    lone = Lone()
    sender, *others = lone.mesh_peers(5)
    lone.peers(10)
    lone.sent()
    assert lone.deliver(sender, b"hello")
    assert set(lone.sent()) == set(others)
    assert all(lone.got(peer) == [id_of(b"hello")] for peer in others)


def test_what_is_forwarded_is_the_message_and_nothing_else() -> None:
    lone = Lone()
    sender, other, *_ = lone.mesh_peers(5)
    lone.deliver(sender, b"hello")
    control, messages = lone.sent()[other]
    assert decode_rpc(encode_rpc(control) + b"".join(part for _, part in messages)) == Rpc(
        publish=(RelayMessage(TOPIC, b"hello", signed=False),)
    )


def test_rejected_and_ignored_messages_are_not_forwarded() -> None:
    for verdict in (Verdict.REJECT, Verdict.IGNORE):
        lone = Lone()
        sender, *_ = lone.mesh_peers(5)
        assert not lone.deliver(sender, b"hello", verdict)
        assert lone.sent() == {}


def test_a_message_is_seen_before_it_is_validated() -> None:
    lone = Lone()
    first, second, *others = lone.mesh_peers(5)
    lone.message(first, b"hello")
    assert lone.message(second, b"hello") == []
    assert lone.gossip.counters.duplicates_while_pending == 1
    lone.gossip.validated(id_of(b"hello"), Verdict.ACCEPT, lone.now)
    assert set(lone.sent()) == set(others)  # the second has it too, as it has shown


@pytest.mark.parametrize("verdict", list(Verdict))
def test_a_message_is_never_validated_twice_whatever_the_verdict(verdict: Verdict) -> None:
    lone = Lone()
    first, second, *_ = lone.mesh_peers(5)
    lone.deliver(first, b"hello", verdict)
    assert lone.message(second, b"hello") == []
    assert not lone.gossip.validated(id_of(b"hello"), Verdict.ACCEPT, lone.now)
    assert lone.gossip.counters.duplicates == 1


def test_a_verdict_on_nothing_changes_nothing() -> None:
    lone = Lone()
    lone.mesh_peers(5)
    assert not lone.gossip.validated(b"?" * 32, Verdict.ACCEPT, lone.now)
    assert lone.sent() == {}


def test_the_seen_cache_forgets_after_its_time_to_live() -> None:
    lone = Lone()
    peer, *_ = lone.mesh_peers(4)
    lone.deliver(peer, b"hello")
    lone.beat(119)
    assert lone.message(peer, b"hello") == []
    lone.beat(3)
    assert len(lone.message(peer, b"hello")) == 1


def test_our_own_message_is_not_delivered_or_forwarded_when_it_comes_back() -> None:
    lone = Lone()
    peer, *_ = lone.mesh_peers(4)
    lone.gossip.publish(TOPIC, b"hello", lone.now)
    lone.sent()
    assert lone.message(peer, b"hello") == []
    assert lone.sent() == {}


def test_publishing_what_was_seen_is_a_duplicate_and_sends_nothing() -> None:
    lone = Lone()
    peer, *_ = lone.mesh_peers(4)
    lone.deliver(peer, b"hello")
    lone.sent()
    assert lone.gossip.publish(TOPIC, b"hello", lone.now) == Published(id_of(b"hello"), (), True)
    assert lone.sent() == {}


def test_publishing_again_what_no_peer_has_taken_sends_it() -> None:
    lone = Lone()
    first = lone.gossip.publish(TOPIC, b"hello", lone.now)
    assert (first.peers, first.duplicate, first.again) == ((), False, False)
    assert lone.gossip.publish(TOPIC, b"hello", lone.now) == Published(id_of(b"hello"), (), False, again=True)
    assert lone.gossip.publish(OTHER, b"hello", lone.now).duplicate, "it is of another topic"
    lone.beat(30)
    peer = lone.peer()
    lone.sent()
    again = lone.gossip.publish(TOPIC, b"hello", lone.now)
    assert (again.peers, again.duplicate, again.again) == ((peer,), False, True)
    lone.sent()
    assert lone.got(peer) == [id_of(b"hello")]
    assert lone.gossip.publish(TOPIC, b"hello", lone.now).duplicate
    assert lone.gossip.sizes().untaken == 0


def test_what_no_outbox_took_may_be_published_again() -> None:
    lone = Lone()
    peer = lone.peer()
    published = lone.gossip.publish(TOPIC, b"hello", lone.now)
    lone.gossip.not_taken(published.message_id, TOPIC)
    assert lone.gossip.publish(TOPIC, b"hello", lone.now).peers == (peer,)
    assert lone.gossip.publish(TOPIC, b"hello", lone.now).duplicate


def test_what_a_peer_has_asked_for_or_sent_is_taken() -> None:
    lone = Lone()
    for data in (b"asked for", b"sent"):
        lone.gossip.publish(TOPIC, data, lone.now)
    peer = lone.peer()
    lone.say(peer, Rpc(iwant=(id_of(b"asked for"),)))
    lone.message(peer, b"sent")
    for data in (b"asked for", b"sent"):
        assert lone.gossip.publish(TOPIC, data, lone.now).duplicate


def test_so_many_messages_that_no_peer_has_taken_are_remembered() -> None:
    lone = Lone(GossipParams(max_untaken=2))
    for data in (b"1", b"2", b"3"):
        lone.gossip.publish(TOPIC, data, lone.now)
    assert lone.gossip.sizes().untaken == 2
    assert lone.gossip.counters.untaken_evicted == 1
    assert lone.gossip.publish(TOPIC, b"1", lone.now).duplicate
    assert lone.gossip.publish(TOPIC, b"3", lone.now).again


def test_publish_encodes_once_and_shares_the_bytes() -> None:
    lone = Lone()
    lone.peers(10)
    lone.gossip.publish(TOPIC, b"hello", lone.now)
    parts = [outgoing.messages[0][1] for outgoing in lone.sent().values()]
    assert len(parts) == 10
    assert all(part is parts[0] for part in parts)


def test_publish_without_flood_goes_to_the_mesh_of_a_joined_topic() -> None:
    lone = Lone(NO_FLOOD)
    mesh = lone.mesh_peers(5)
    lone.peers(10)
    assert lone.gossip.publish(TOPIC, b"hello", lone.now).peers == tuple(mesh)


def test_publish_to_a_topic_nobody_is_in_says_so() -> None:
    lone = Lone()
    lone.peers(5)
    assert lone.gossip.publish(OTHER, b"hello", lone.now) == Published(id_of(b"hello"), (), False)


def test_signed_messages_are_rejected() -> None:
    lone = Lone()
    sender, *_ = lone.mesh_peers(5)
    assert lone.message(sender, b"hello", signed=True) == []
    assert lone.sent() == {}
    assert lone.gossip.counters.signed_refused == 1
    assert lone.score(sender) == -100.0
    assert len(lone.message(sender, b"hello")) == 1  # the data itself has not been seen by that


def test_published_messages_have_no_from_seqno_signature_or_key() -> None:
    lone = Lone()
    peer = lone.peer()
    lone.gossip.publish(TOPIC, b"hello", lone.now)
    ((_, part),) = lone.sent()[peer].messages
    assert part == b"\x12\x18" + b"\x12\x05hello" + b"\x22\x0f" + TOPIC.encode()


def test_messages_of_topics_not_joined_are_dropped() -> None:
    lone = Lone()
    peer = lone.peer(topics=(TOPIC, OTHER))
    assert lone.message(peer, b"hello", topic=OTHER) == []
    assert lone.gossip.counters.unjoined == 1
    lone.gossip.join(OTHER, lone.now)
    assert len(lone.message(peer, b"hello", topic=OTHER)) == 1


def test_a_verdict_after_leaving_the_topic_delivers_nothing() -> None:
    lone = Lone()
    peer, *_ = lone.mesh_peers(5)
    lone.message(peer, b"hello")
    lone.gossip.leave(TOPIC, lone.now)
    lone.sent()
    assert not lone.gossip.validated(id_of(b"hello"), Verdict.ACCEPT, lone.now)
    assert lone.sent() == {}


def test_heartbeat_gossips_to_peers_outside_the_mesh() -> None:
    lone = Lone()
    mesh = lone.mesh_peers(5)
    others = lone.peers(10)
    lone.deliver(mesh[0], b"hello")
    lone.sent()
    lone.beat()
    lone.sent()
    heard = [peer for peer in others if lone.control(peer).ihave]
    assert len(heard) == 6  # d_lazy
    assert all(lone.control(peer).ihave == (IHave(TOPIC, (id_of(b"hello"),)),) for peer in heard)
    assert not any(lone.control(peer).ihave for peer in mesh)


def test_gossip_covers_three_windows_and_the_cache_six() -> None:
    lone = Lone()
    mesh = lone.mesh_peers(5)
    (other,) = lone.peers(1)
    lone.deliver(mesh[0], b"hello")
    for _ in range(3):
        lone.beat()
        lone.sent()
        assert lone.control(other).ihave
    for _ in range(2):
        lone.beat()
        lone.sent()
        assert not lone.control(other).ihave
        lone.say(other, Rpc(iwant=(id_of(b"hello"),)))
        lone.sent()
        assert lone.got(other) == [id_of(b"hello")]
    lone.beat()
    lone.say(other, Rpc(iwant=(id_of(b"hello"),)))
    lone.sent()
    assert lone.got(other) == []


def test_ihave_is_answered_with_iwant_for_what_was_not_seen() -> None:
    lone = Lone()
    peer, *_ = lone.mesh_peers(5)
    lone.deliver(peer, b"old")
    lone.sent()
    other = lone.peer()
    lone.say(other, Rpc(ihave=(IHave(TOPIC, (id_of(b"old"), id_of(b"new"))),)))
    lone.sent()
    assert lone.control(other).iwant == (id_of(b"new"),)


def test_ihave_of_a_topic_not_joined_is_ignored() -> None:
    lone = Lone()
    peer = lone.peer(topics=(TOPIC, OTHER))
    lone.sent()
    lone.say(peer, Rpc(ihave=(IHave(OTHER, (id_of(b"new"),)),)))
    assert lone.sent() == {}


def test_iwant_is_answered_from_the_message_cache() -> None:
    lone = Lone()
    lone.gossip.publish(TOPIC, b"hello", lone.now)
    peer = lone.peer()
    lone.sent()
    lone.say(peer, Rpc(iwant=(id_of(b"?"), id_of(b"hello"))))
    lone.sent()
    assert lone.got(peer) == [id_of(b"hello")]
    assert lone.gossip.counters.iwant_served == 1


def test_messages_not_accepted_are_not_in_the_message_cache() -> None:
    lone = Lone()
    peer = lone.peer()
    for data, verdict in ((b"a", Verdict.REJECT), (b"b", Verdict.IGNORE)):
        lone.deliver(peer, data, verdict)
        lone.sent()
        lone.say(lone.peer(), Rpc(iwant=(id_of(data),)))
        assert all(not outgoing.messages for outgoing in lone.sent().values())


def test_a_message_is_asked_for_from_one_peer_at_a_time() -> None:
    lone = Lone()
    first, second = lone.peers(2)
    lone.sent()
    gossip = Rpc(ihave=(IHave(TOPIC, (id_of(b"new"),)),))
    lone.say(first, gossip)
    lone.say(second, gossip)
    lone.sent()
    assert lone.control(first).iwant == (id_of(b"new"),)
    assert lone.control(second).iwant == ()
    lone.beat()
    lone.sent()
    assert lone.control(second).iwant == (id_of(b"new"),)  # the first did not send it
    lone.deliver(second, b"new")
    lone.beat(5)
    assert lone.score(second) > 0
