"""Whatever others send, memory is bounded, nothing raises, and honest messages get through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.sds import (
    Delivered,
    LossReason,
    MessagesLost,
    Outcome,
    RefusalReason,
    Refused,
)
from pywaku.wire.sds import HistoryEntry, SdsMessage
from tests.support.decoders import DECODERS
from tests.support.sds_channels import CHANNEL, SHAPE, START_MS, Side, bloom, content, entries, sync

SDS_ENCODINGS = next(decoder for decoder in DECODERS if decoder.name == "sds").encodings


@given(st.lists(SDS_ENCODINGS | st.binary(max_size=100), max_size=5))
def test_nothing_that_is_received_raises(messages: list[bytes]) -> None:
    side = Side("alice")
    side.send()
    side.hear(*messages)
    side.tick(1_000_000)


@given(st.data())
def test_no_message_of_the_channel_raises(data: st.DataObject) -> None:
    ids = st.sampled_from(["a", "b", "c", "", "sync-1"])
    history = st.lists(st.builds(HistoryEntry, ids, st.none() | st.just(b"h"), st.none() | ids), max_size=4)
    side = Side("alice", bloom_filter_capacity=1)
    side.send(message_id="a")
    messages = data.draw(
        st.lists(
            st.builds(
                SdsMessage,
                st.sampled_from(["bob", "carol", "alice", ""]),
                ids,
                st.sampled_from([CHANNEL, CHANNEL, "other"]),
                st.none() | st.integers(0, 2**64 - 1) | st.integers(START_MS - 2, START_MS + 2),
                history.map(tuple),
                st.none() | st.binary(max_size=9),
                history.map(tuple),
                st.none() | st.just(b"x"),
            ),
            max_size=12,
        )
    )
    for message in messages:
        side.hear(message)
    side.tick(10_000_000)
    delivered = side.delivered()
    assert len(delivered) == len(set(delivered))


def test_a_flood_of_messages_with_unmet_dependencies_is_bounded_and_delivered_with_its_gaps() -> None:
    side = Side("alice", max_incoming=100, max_missing=10_000)
    for number in range(1_000):
        side.hear(content(f"m{number}", f"x{number}", lamport=START_MS + number))
    sizes = side.sds.sizes()
    assert (sizes.incoming, sizes.missing) == (100, 100)
    released = side.take(Delivered)
    assert [event.message_id for event in released] == [f"m{number}" for number in range(900)]
    assert all(event.missed for event in released)
    assert {event.reason for event in side.take(MessagesLost)} == {LossReason.BUFFER_FULL}
    assert side.sds.counters.released_early == 900


def test_the_bytes_of_waiting_messages_are_bounded() -> None:
    side = Side("alice", max_incoming_bytes=1_000_000)
    for number in range(100):
        side.hear(content(f"m{number}", f"x{number}", content=bytes(50_000)))
        assert side.sds.sizes().incoming_bytes <= 1_000_000
    assert len(side.delivered()) > 75


def test_missing_messages_are_bounded_however_many_one_message_names() -> None:
    side = Side("alice", max_missing=100)
    for number in range(20):
        side.hear(content(f"m{number}", *[f"x{number}-{one}" for one in range(900)]))
        assert side.sds.sizes().missing <= 100
    assert len(side.delivered()) == 20, "none of them fits"


def test_a_flooder_does_not_push_out_what_others_wait_for() -> None:
    side = Side("alice", max_incoming=100)
    side.hear(content("honest", "on-its-way", lamport=START_MS + 5))
    for number in range(2_000):
        side.hear(content(f"m{number}", f"x{number}", lamport=START_MS + number, sender="mallory"))
        side.hear(content(f"s{number}", "on-its-way", f"x{number}", sender=f"sybil{number}"))
    delivered = side.delivered()
    assert "honest" not in delivered
    side.hear(content("on-its-way", lamport=START_MS + 4))
    assert side.delivered()[:2] == ["on-its-way", "honest"]


def test_ids_and_hints_of_any_length_are_not_kept() -> None:
    side = Side("alice")
    for message in (
        content("x" * 513),
        content("a", sender="s" * 513),
        content("a", "d" * 513),
        content("a", causal_history=entries("b", hint=bytes(513))),
        content("a", repair_request=entries("b", sender_id="s" * 513)),
    ):
        assert side.hear(message) is Outcome.MALFORMED
    assert side.sds.sizes().participants == 0


@pytest.mark.parametrize("lamport", [2**63, 2**64 - 2, 2**64 - 1])
def test_timestamps_near_the_end_of_time_do_not_become_ours(lamport: int) -> None:
    side = Side("alice")
    side.hear(content("a", lamport=lamport), sync(lamport=lamport))
    assert [event.reason for event in side.take(Refused)] == [RefusalReason.TOO_FAR_AHEAD] * 2
    side.send()
    assert side.sds.lamport_timestamp == START_MS + 1
    assert side.sds.log(5)[-1] != "a"


def test_timestamps_of_zero_are_the_oldest_of_all() -> None:
    side = Side("alice")
    side.hear(content("b"), content("a", lamport=0))
    assert side.sds.log(5) == ("a", "b")


def test_messages_that_depend_on_each_other_in_a_circle_are_delivered_in_the_end() -> None:
    side = Side("alice", timeout_for_lost_messages_ms=10_000)
    side.hear(content("a", "b"), content("b", "c"), content("c", "a"))
    assert side.sds.missing() == ()
    side.tick(19_999)
    assert not side.delivered()
    side.tick(20_000)
    first, second, third = side.take(Delivered)
    assert (first.message_id, [one.message_id for one in first.missed]) == ("a", ["b"])
    assert {second.message_id, third.message_id} == {"b", "c"}
    assert not second.missed
    assert not third.missed
    assert side.sds.sizes().incoming == 0


def test_a_chain_that_grows_by_a_link_before_each_timeout_does_not_hold_its_end_for_ever() -> None:
    side = Side("alice", timeout_for_lost_messages_ms=10_000)
    side.hear(content("m0", "m1"))
    for number in range(1, 10):
        side.tick(number * 9_000)
        side.hear(content(f"m{number}", f"m{number + 1}", sender="mallory"))
        if side.sds.sizes().incoming < number + 1:
            break
    assert side.now_ms <= 27_000
    assert side.delivered()[0] == "m0"


def test_a_deep_chain_is_delivered_without_recursion() -> None:
    side = Side("alice", max_incoming=10_000)
    for number in range(5_000, 0, -1):
        side.hear(content(f"m{number}", f"m{number - 1}", lamport=START_MS + number))
    side.hear(content("m0"))
    assert side.delivered() == [f"m{number}" for number in range(5_001)]


def test_a_large_history_of_duplicates_is_one_dependency() -> None:
    side = Side("alice")
    side.hear(content("a", *["x"] * 1_000))
    assert len(side.sds.missing()) == 1
    side.hear(content("x"))
    assert side.delivered() == ["x", "a"]


def test_requests_for_everything_are_answered_once_in_a_while_each() -> None:
    side = Side("alice", sync_min_interval_ms=0, acknowledgement_timeout_ms=10**9)
    own = [side.send(b"%d" % number).message_id for number in range(3)]
    sent = 0
    for number in range(1_000):
        request = sync(sender=f"s{number}", lamport=START_MS + number, repair_request=entries(*own))
        side.at(number * 10).hear(request)
        sent += len(side.tick())
    assert sent == 3


def test_who_pretends_to_be_a_participant_cannot_acknowledge_for_ever_with_one_filter() -> None:
    side = Side("alice", possible_acks_threshold=3)
    sent = side.send().message_id
    message = sync(lamport=START_MS + 9, bloom_filter=bloom([sent]))
    for _ in range(10):
        side.hear(message)
    assert side.sds.unacknowledged() == (sent,)


def test_filters_of_other_capacities_are_not_believed() -> None:
    side = Side("alice", bloom_filter_capacity=500)
    sent = side.send().message_id
    side.hear(sync(bloom_filter=bloom([sent])))
    assert len(bloom([sent])) == SHAPE.size
    assert not side.events
    assert side.sds.counters.bloom_filters_malformed == 1
