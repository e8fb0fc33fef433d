"""SDS, Receive Message, Deliver Message, Resolve Conflicts, and the incoming buffer."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.sds import (
    Delivered,
    LossReason,
    MessagesLost,
    MessagesMissing,
    Outcome,
    RefusalReason,
    Refused,
)
from pywaku.wire.sds import HistoryEntry, SdsMessage, encode_sds
from tests.support.sds_channels import CHANNEL, START_MS, Side, bloom, content, decoded, entries, sync


def test_a_message_with_its_own_sender_id_is_ignored() -> None:
    side = Side("alice")
    sent = side.send(b"1")
    assert side.hear(sent.data) is Outcome.OWN
    assert side.hear(sync(sent.message_id, sender="alice")) is Outcome.OWN
    assert not side.events
    assert side.sds.unacknowledged() == (sent.message_id,)


def test_a_message_is_deduplicated_by_its_id() -> None:
    side = Side("alice")
    assert side.hear(content("a")) is Outcome.DELIVERED
    assert side.hear(content("a")) is Outcome.DUPLICATE
    assert side.hear(content("b", "x")) is Outcome.BUFFERED
    assert side.hear(content("b", "x")) is Outcome.DUPLICATE
    assert side.delivered() == ["a"]
    assert side.sds.counters.duplicates == 2


def test_a_message_with_content_is_included_in_the_bloom_filter_also_while_it_waits() -> None:
    side = Side("alice")
    side.hear(content("a"), content("b", "x"), sync("a", lamport=START_MS + 1))
    assert decoded(side.send()).bloom_filter == bloom(["a", "b"])


def test_dependencies_are_met_when_the_ids_of_the_causal_history_are_in_the_log() -> None:
    side = Side("alice")
    assert side.hear(content("a")) is Outcome.DELIVERED
    assert side.hear(content("c", "a", "b", lamport=START_MS + 2)) is Outcome.BUFFERED
    assert side.hear(content("d", "c", lamport=START_MS + 3)) is Outcome.BUFFERED
    assert side.delivered() == ["a"]
    assert side.hear(content("b", "a", lamport=START_MS + 1)) is Outcome.DELIVERED
    assert side.delivered() == ["b", "c", "d"]


def test_delivery_says_everything_about_the_message() -> None:
    side = Side("alice")
    side.hear(content("a", lamport=START_MS + 7), hint=b"hash")
    assert side.events == [Delivered("a", "bob", b"of a", START_MS + 7, b"hash")]


def test_the_local_timestamp_is_updated_to_that_of_a_delivered_message_if_it_is_greater() -> None:
    side = Side("alice")
    side.hear(content("a", lamport=START_MS + 50))
    assert side.sds.lamport_timestamp == START_MS + 50
    side.hear(content("b", lamport=START_MS + 20))
    assert side.sds.lamport_timestamp == START_MS + 50
    side.hear(content("d", "c", lamport=START_MS + 90), sync(lamport=START_MS + 99))
    assert side.sds.lamport_timestamp == START_MS + 50, "neither is delivered"
    assert decoded(side.send()).lamport_timestamp == START_MS + 51


def test_messages_are_inserted_in_the_log_by_lamport_timestamp() -> None:
    side = Side("alice")
    for number in random.Random(3).sample(range(300), 300):
        side.hear(content(f"m{number}", lamport=START_MS + number))
    assert side.sds.log(300) == tuple(f"m{number}" for number in range(300))


def test_equal_timestamps_are_ordered_in_ascending_order_of_message_id() -> None:
    side = Side("alice")
    side.hear(*[content(one, lamport=START_MS) for one in ("c", "a", "d", "b")])
    assert side.sds.log(9) == ("a", "b", "c", "d")


def test_messages_that_become_ready_together_are_delivered_in_the_order_of_the_log() -> None:
    side = Side("alice")
    side.hear(*[content(one, "x", lamport=START_MS + 1) for one in ("c", "a", "b")])
    side.hear(content("x"))
    assert side.delivered() == ["x", "a", "b", "c"]


@given(st.permutations(range(12)), st.randoms(use_true_random=False))
def test_any_order_of_arrival_is_delivered_in_causal_order_and_once(
    order: list[int], rng: random.Random
) -> None:
    history = {
        number: [f"m{one}" for one in rng.sample(range(number), min(number, rng.randrange(4)))]
        for number in range(12)
    }
    side = Side("alice")
    for number in [*order, *order]:
        side.hear(content(f"m{number}", *history[number], lamport=START_MS + number))
    delivered = side.delivered()
    assert sorted(delivered) == sorted(f"m{number}" for number in range(12))
    for place, one in enumerate(delivered):
        assert set(history[int(one[1:])]) <= set(delivered[:place])


def test_missing_dependencies_are_reported_once_with_what_is_known_of_them() -> None:
    side = Side("alice")
    entry = HistoryEntry("x", b"hint", "carol")
    side.hear(content("a", causal_history=(entry,)), content("b", "x", "a"))
    assert side.take(MessagesMissing) == [MessagesMissing((entry,), "a")]
    assert side.sds.missing() == (entry,)
    side.hear(content("x"))
    assert side.sds.missing() == ()


def test_a_hint_that_is_learnt_later_is_added_to_what_is_missing() -> None:
    side = Side("alice")
    side.hear(content("a", "x"), sync(causal_history=entries("x", sender_id="carol", hint=b"hint")))
    assert side.sds.missing() == (HistoryEntry("x", b"hint", "carol"),)


def test_a_received_message_that_waits_is_not_missing() -> None:
    side = Side("alice")
    side.hear(content("b", "a"), content("c", "b"))
    assert [entry.message_id for entry in side.sds.missing()] == ["a"]


def test_dependencies_that_stay_unmet_are_marked_lost_after_a_time_and_what_waited_is_delivered() -> None:
    side = Side("alice", timeout_for_lost_messages_ms=60_000)
    lost = HistoryEntry("x", b"hint", "carol")
    side.hear(content("a", causal_history=(lost,)), content("b", "a", lamport=START_MS + 1))
    assert side.tick(59_999) is not None
    assert not side.delivered()
    side.tick(60_000)
    assert side.take(MessagesLost) == [MessagesLost((lost,), LossReason.TIMEOUT)]
    first, second = side.take(Delivered)
    assert (first.message_id, first.missed, first.late) == ("a", (lost,), False)
    assert (second.message_id, second.missed) == ("b", ())
    assert side.sds.missing() == ()
    assert side.sds.sizes().incoming == 0


def test_a_lost_message_that_comes_after_all_is_delivered_late_and_once() -> None:
    side = Side("alice", timeout_for_lost_messages_ms=1_000)
    side.hear(content("a", "x"))
    side.tick(1_000)
    side.events.clear()
    assert side.hear(content("b", "x")) is Outcome.DELIVERED, "nobody waits for it any more"
    assert side.take(Delivered)[0].missed == (HistoryEntry("x"),)
    assert side.hear(content("x")) is Outcome.DELIVERED
    assert side.take(Delivered)[0].late
    assert side.hear(content("x")) is Outcome.DUPLICATE
    side.hear(content("c", "x"))
    assert side.take(Delivered)[0].missed == ()


def test_without_a_timeout_nothing_is_ever_lost() -> None:
    side = Side("alice", timeout_for_lost_messages_ms=None, sync_min_interval_ms=0)
    side.hear(content("a", "x"))
    assert side.sds.next_tick() is None
    side.tick(10**12)
    assert not side.delivered()


def test_the_application_may_give_up_what_is_missing() -> None:
    side = Side("alice")
    side.hear(content("a", "x", "y"))
    side.sds.abandon(["x", "unknown"])
    side.tick(0)
    assert side.take(MessagesLost) == [MessagesLost(entries("x"), LossReason.ABANDONED)]
    assert not side.delivered()
    side.hear(content("y"))
    assert side.delivered() == ["y", "a"]


def test_bytes_that_are_no_message_are_counted() -> None:
    side = Side("alice")
    for data in (b"", b"\xff" * 50, encode_sds(SdsMessage("bob", "a", CHANNEL))):
        assert side.hear(data) is Outcome.MALFORMED
    assert side.hear(content("")) is Outcome.MALFORMED, "an id is missing"
    assert side.hear(content("a", sender="")) is Outcome.MALFORMED
    assert side.sds.counters.malformed == 5
    assert not side.events


def test_messages_of_other_channels_are_counted_and_change_nothing() -> None:
    side = Side("alice")
    sent = side.send()
    foreign = content("a", sent.message_id, "x", channel="elsewhere", bloom_filter=bloom([sent.message_id]))
    assert side.hear(foreign) is Outcome.FOREIGN
    assert side.sds.counters.foreign == 1
    assert not side.events
    assert side.sds.missing() == ()


def test_a_message_far_ahead_of_the_clock_is_refused_and_reported() -> None:
    side = Side("alice", max_lamport_ahead_ms=1_000)
    assert side.hear(content("a", lamport=START_MS + 1_000)) is Outcome.DELIVERED
    for message in (content("b", lamport=START_MS + 1_001), sync(lamport=2**64 - 1)):
        assert side.hear(message) is Outcome.REFUSED
    assert side.take(Refused)[0] == Refused("b", "bob", RefusalReason.TOO_FAR_AHEAD)
    assert side.sds.lamport_timestamp == START_MS + 1_000


def test_a_message_below_the_log_is_refused_and_reported_rather_than_delivered_twice() -> None:
    side = Side("alice", max_log=10)
    messages = [content(f"m{number:02}", lamport=START_MS + number) for number in range(20)]
    side.hear(*messages)
    assert len(side.delivered()) == 20
    assert side.sds.sizes().log == 10
    assert side.sds.counters.log_evicted == 10
    side.hear(*messages)
    assert side.delivered() == []
    assert [event.reason for event in side.take(Refused)] == [RefusalReason.TOO_OLD] * 10
    assert side.sds.counters.duplicates == 10


def test_who_waits_for_a_message_below_the_log_waits_no_longer_when_it_comes() -> None:
    side = Side("alice", max_log=5)
    side.hear(*[content(f"m{number}", lamport=START_MS + number) for number in range(9)])
    assert side.hear(content("new", "m0", lamport=START_MS + 20)) is Outcome.BUFFERED
    assert side.hear(content("m0", lamport=START_MS)) is Outcome.REFUSED
    assert side.delivered()[-1] == "new"
    assert side.hear(content("newer", "m0", lamport=START_MS + 21)) is Outcome.DELIVERED


def test_own_messages_of_an_earlier_life_meet_dependencies_without_being_delivered() -> None:
    before = Side("alice")
    lost = before.send(b"lost state")
    side = Side("alice")
    assert side.hear(content("a", lost.message_id, lamport=START_MS + 5)) is Outcome.BUFFERED
    assert side.hear(lost.data) is Outcome.OWN
    assert side.delivered() == ["a"]
    assert side.sds.log(5) == (lost.message_id, "a")
    assert side.sds.missing() == ()
    assert decoded(side.send()).bloom_filter == bloom(["a", lost.message_id])
    assert side.sds.counters.own_adopted == 1
    assert lost.message_id not in side.sds.unacknowledged()


def test_own_messages_that_were_given_up_are_lost_no_longer() -> None:
    lost = Side("alice").send(b"lost state")
    side = Side("alice", timeout_for_lost_messages_ms=1_000)
    side.hear(content("a", lost.message_id, lamport=START_MS + 5))
    side.tick(1_000)
    assert side.sds.sizes().lost == 1
    side.hear(lost.data)
    assert side.sds.sizes().lost == 0


def test_own_messages_of_an_earlier_life_count_for_the_clock_and_for_repair() -> None:
    lost = Side("alice").at(500).send(b"lost state")
    side = Side("alice")
    side.hear(lost.data)
    assert side.sds.lamport_timestamp == START_MS + 500
    assert side.sds.sizes().cached == 1
    assert side.sds.counters.own_adopted == 1


def test_counters_say_what_was_received() -> None:
    side = Side("alice", max_log=3)
    own = side.send()
    side.hear(own.data, sync(sender="alice"), SdsMessage("alice", "e", CHANNEL, content=b"x"))
    side.hear(SdsMessage("bob", "e", CHANNEL, content=b"x"), sync(), content("far", lamport=2**63))
    side.hear(
        content("waits", "x"), *[content(f"m{number}", lamport=START_MS + number) for number in range(9)]
    )
    side.hear(content("old", lamport=START_MS))
    found = side.sds.counters
    assert (found.received, found.delivered, found.buffered) == (17, 9, 1)
    assert (found.own_ignored, found.ephemeral_received, found.syncs_received) == (3, 1, 1)
    assert (found.too_far_ahead, found.too_old, found.missing) == (1, 1, 1)


def test_participants_say_who_was_heard_and_what_each_has_of_ours() -> None:
    side = Side("alice")
    first, second = side.send(b"1"), side.send(b"2")
    side.at(100).hear(content("a", first.message_id, lamport=START_MS + 8))
    side.at(200).hear(sync(first.message_id, second.message_id, lamport=START_MS + 9, sender="carol"))
    side.at(300).hear(sync(first.message_id, lamport=START_MS + 10, sender="carol"))
    carol, bob = side.sds.participants()
    assert (carol.sender_id, carol.messages, carol.heard_ms) == ("carol", 2, START_MS + 300)
    assert (carol.acknowledged_id, carol.lamport_timestamp) == (second.message_id, START_MS + 10)
    assert (bob.sender_id, bob.messages, bob.acknowledged_id) == ("bob", 1, first.message_id)


@pytest.mark.parametrize("own", ["a", ""])
def test_a_dependency_on_itself_or_on_nothing_is_none(own: str) -> None:
    side = Side("alice")
    assert side.hear(content("a", own)) is Outcome.DELIVERED
    assert side.sds.missing() == ()
