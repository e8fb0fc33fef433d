"""SDS, Review ACK Status and Periodic Outgoing Buffer Sweep."""

from __future__ import annotations

import pytest

from pywaku.sds import (
    Acknowledged,
    AcknowledgedBy,
    NotAcknowledged,
    PossiblyAcknowledged,
    Purpose,
    SdsOptions,
)
from tests.support.sds_channels import SHAPE, START_MS, Side, bloom, content, sync


def test_messages_in_a_received_causal_history_are_acknowledged() -> None:
    side = Side("alice")
    sent = [side.send(b"%d" % number).message_id for number in range(3)]
    side.hear(content("a", sent[0], sent[2], lamport=START_MS + 9))
    assert side.take(Acknowledged) == [
        Acknowledged(sent[0], ("bob",), True),
        Acknowledged(sent[2], ("bob",), True),
    ]
    assert side.sds.unacknowledged() == (sent[1],)


def test_messages_in_a_received_bloom_filter_are_possibly_acknowledged() -> None:
    side = Side("alice")
    first, second = side.send(b"1").message_id, side.send(b"2").message_id
    side.hear(sync(bloom_filter=bloom([first])))
    assert side.take(PossiblyAcknowledged) == [PossiblyAcknowledged(first, "bob", 1)]
    assert side.sds.unacknowledged() == (first, second)


@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_a_message_in_several_bloom_filters_is_acknowledged_from_a_threshold_on(threshold: int) -> None:
    side = Side("alice", possible_acks_threshold=threshold)
    sent = side.send().message_id
    for number in range(1, threshold):
        side.hear(sync(lamport=START_MS + number, bloom_filter=bloom([sent])))
        assert side.take(PossiblyAcknowledged) == [PossiblyAcknowledged(sent, "bob", number)]
    side.hear(sync(lamport=START_MS, sender="carol", bloom_filter=bloom([sent])))
    (acknowledged,) = side.take(Acknowledged)
    assert (acknowledged.message_id, acknowledged.certain) == (sent, False)
    assert side.sds.unacknowledged() == ()


def test_the_same_bloom_filter_counts_once_however_often_it_comes() -> None:
    side = Side("alice")
    sent = side.send().message_id
    message = sync(lamport=START_MS + 5, bloom_filter=bloom([sent]))
    side.hear(message, message, sync(lamport=START_MS + 4, bloom_filter=bloom([sent])))
    assert len(side.take(PossiblyAcknowledged)) == 1
    assert not side.take(Acknowledged)


def test_messages_that_wait_for_others_acknowledge_too() -> None:
    side = Side("alice")
    sent = side.send().message_id
    side.hear(content("a", sent, "unknown", lamport=START_MS + 9))
    assert side.take(Acknowledged)


def test_own_messages_acknowledge_nothing() -> None:
    side = Side("alice")
    first = side.send(b"1").message_id
    second = side.send(b"2")
    side.hear(second.data, second.data, sync(first, sender="alice", bloom_filter=bloom([first])))
    assert not side.events
    assert len(side.sds.unacknowledged()) == 2


def test_a_filter_that_is_too_full_acknowledges_nothing() -> None:
    side = Side("alice")
    side.send()
    for number in range(3):
        side.hear(sync(lamport=START_MS + number, bloom_filter=b"\xff" * SHAPE.size))
    assert not side.events
    assert side.sds.counters.bloom_filters_too_full == 3


@pytest.mark.parametrize("size", [0, 1, SHAPE.size - 8, SHAPE.size - 1, SHAPE.size + 1, 100_000])
def test_a_filter_of_another_size_acknowledges_nothing_and_the_message_is_delivered(size: int) -> None:
    side = Side("alice")
    side.send()
    side.hear(content("a", bloom_filter=b"\xff" * size))
    assert side.delivered() == ["a"]
    assert not side.events
    assert side.sds.counters.bloom_filters_malformed == 1


def test_each_of_the_recipients_has_to_acknowledge() -> None:
    side = Side("alice")
    sent = side.send(recipients=["bob", "carol"]).message_id
    side.hear(
        sync(sent, sender="dave"), sync(sent, sender="bob"), sync(sent, sender="bob", lamport=START_MS + 1)
    )
    assert side.take(AcknowledgedBy) == [AcknowledgedBy(sent, "bob", True)]
    assert not side.take(Acknowledged)
    for number in range(2):
        side.hear(sync(sender="dave", lamport=START_MS + 5 + number, bloom_filter=bloom([sent])))
        side.hear(sync(sender="carol", lamport=START_MS + number, bloom_filter=bloom([sent])))
    assert side.take(PossiblyAcknowledged) == [PossiblyAcknowledged(sent, "carol", 1)]
    assert side.take(AcknowledgedBy) == [AcknowledgedBy(sent, "carol", False)]
    assert side.take(Acknowledged) == [Acknowledged(sent, ("bob", "carol"), False)]


def test_who_of_the_recipients_has_not_acknowledged_can_be_seen_in_the_end() -> None:
    side = Side("alice", max_retransmissions=0)
    sent = side.send(recipients=["bob", "carol"]).message_id
    side.hear(sync(sent))
    side.tick(5_000)
    assert side.take(NotAcknowledged) == [NotAcknowledged(sent, 1, ("bob",))]


def test_unacknowledged_messages_are_rebroadcast_after_a_set_period_with_the_same_bytes() -> None:
    side = Side("alice", sync_min_interval_ms=0)
    sent = side.send()
    assert side.tick(4_999) == []
    (again,) = side.tick(5_000)
    assert again == (sent.message_id, sent.data, Purpose.RETRANSMISSION, 2)


def test_possibly_acknowledged_messages_have_a_longer_period() -> None:
    side = Side("alice", sync_min_interval_ms=0)
    sent = side.send().message_id
    side.hear(sync(bloom_filter=bloom([sent])))
    assert side.tick(9_999) == []
    assert [one.message_id for one in side.tick(10_000)] == [sent]


def test_unacknowledged_messages_are_rebroadcast_before_possibly_acknowledged_ones() -> None:
    side = Side("alice", sync_min_interval_ms=0)
    first, second = side.send(b"1").message_id, side.send(b"2").message_id
    side.hear(sync(bloom_filter=bloom([first])))
    assert [one.message_id for one in side.tick(60_000)] == [second, first]


def test_the_period_begins_when_the_transmission_is_reported() -> None:
    side = Side("alice", sync_min_interval_ms=0)
    made = side.sds.send(b"queued", side.now_ns)
    assert side.tick(1_000_000) == []
    side.sds.sent(made.message_id, side.now_ns)
    assert side.tick(1_004_999) == []
    assert len(side.tick(1_005_000)) == 1
    assert side.tick(2_000_000) == [], "the retransmission is not reported yet"


def test_retransmissions_are_bounded_and_their_end_is_told() -> None:
    side = Side("alice", sync_min_interval_ms=0)
    sent = side.send().message_id
    attempts: list[int] = []
    for step in range(1, 20):
        for one in side.tick(step * 5_000):
            attempts.append(one.attempt)
            side.sds.sent(one.message_id, side.now_ns)
    assert attempts == [2, 3, 4, 5, 6]
    assert side.take(NotAcknowledged) == [NotAcknowledged(sent, 6, ())]
    assert side.sds.unacknowledged() == ()
    assert side.sds.next_tick() is None


def test_a_message_has_one_final_event() -> None:
    side = Side("alice", max_retransmissions=0)
    told, acknowledged = side.send(b"1").message_id, side.at(1).send(b"2").message_id
    side.hear(sync(acknowledged))
    side.tick(10_000)
    side.hear(sync(told, acknowledged, lamport=START_MS + 9, bloom_filter=bloom([told, acknowledged])))
    side.tick(100_000)
    finals = [*side.take(Acknowledged), *side.take(NotAcknowledged)]
    assert [event.message_id for event in finals] == [acknowledged, told]


def test_an_acknowledged_message_is_not_rebroadcast() -> None:
    side = Side("alice", sync_min_interval_ms=0)
    side.hear(sync(side.send().message_id))
    assert side.tick(60_000) == []


def test_the_retries_of_both_reliable_channel_apis_are_options() -> None:
    second, first = SdsOptions(), SdsOptions.js_waku()
    assert (second.acknowledgement_timeout_ms, second.max_retransmissions) == (5_000, 5)
    assert (first.acknowledgement_timeout_ms, first.max_retransmissions) == (30_000, 10)
    assert (second.causal_history_size, first.causal_history_size) == (2, 200)
    assert first.possible_acks_threshold == second.possible_acks_threshold == 2


def test_where_each_of_several_has_to_acknowledge_the_time_doubles_with_each_transmission() -> None:
    side = Side("alice", sync_min_interval_ms=0, max_retransmissions=3)
    side.send(recipients={"bob", "carol"})
    times: list[int] = []
    for now_ms in range(0, 200_000, 1_000):
        for one in side.tick(now_ms):
            times.append(now_ms)
            side.sds.sent(one.message_id, side.now_ns)
    assert times == [5_000, 15_000, 35_000]
    assert [type(event) for event in side.events] == [NotAcknowledged]
