"""Faults that were seen in other implementations of SDS by running them: each is absent here."""

from __future__ import annotations

import random

import pytest

from pywaku.sds import (
    Acknowledged,
    Delivered,
    MessageIds,
    MessagesLost,
    NotAcknowledged,
    Outcome,
    Purpose,
    SdsChannel,
    SdsOptions,
    Table,
)
from pywaku.sds.bloom import BloomShape
from tests.support.sds_channels import CHANNEL, SHAPE, START_MS, Side, bloom, content, decoded, entries, sync


def test_nothing_is_delivered_on_arrival_before_what_it_depends_on() -> None:
    side = Side("alice")
    side.hear(content("b", "a", lamport=START_MS + 1))
    assert side.delivered() == []
    side.hear(content("a"))
    assert side.delivered() == ["a", "b"]


def test_nothing_is_delivered_again_for_duplicates() -> None:
    side = Side("alice")
    side.hear(*[content("b", "a"), content("a")] * 3)
    assert side.delivered() == ["a", "b"]


def test_own_messages_are_not_delivered() -> None:
    side = Side("alice")
    sent = side.send()
    side.hear(sent.data, content("echo", sender="alice"))
    assert side.delivered() == []


@pytest.mark.parametrize("size", [0, 7, 8, SHAPE.size - 8])
def test_a_short_or_empty_bloom_filter_does_not_keep_a_message_from_delivery(size: int) -> None:
    side = Side("alice")
    side.send()
    assert side.hear(content("a", bloom_filter=bytes(size))) is Outcome.DELIVERED
    assert side.delivered() == ["a"]


def test_a_message_that_can_never_be_sent_is_not_retried() -> None:
    side = Side("alice", sync_min_interval_ms=0)
    made = side.sds.send(b"too large, say", side.now_ns)
    side.sds.withdraw(made.message_id)
    assert side.tick(10**9) == []
    assert not side.events


def test_a_transmission_that_was_not_made_does_not_count_as_sent() -> None:
    side = Side("alice", sync_min_interval_ms=0)
    side.sds.send(b"waits for its turn", side.now_ns)
    assert side.tick(10**9) == []
    assert not side.take(NotAcknowledged)


def test_giving_up_is_told() -> None:
    side = Side("alice", max_retransmissions=0)
    sent = side.send().message_id
    side.tick(5_000)
    assert [event.message_id for event in side.take(NotAcknowledged)] == [sent]


def test_exhausted_retransmissions_are_no_success() -> None:
    side = Side("alice", max_retransmissions=0)
    side.send()
    side.tick(5_000)
    assert not side.take(Acknowledged)
    assert side.sds.counters.acknowledged == 0


def test_a_resend_sends() -> None:
    side = Side("alice", sync_min_interval_ms=0)
    sent = side.send()
    assert [(one.purpose, one.data) for one in side.tick(5_000)] == [(Purpose.RETRANSMISSION, sent.data)]


def test_irretrievable_messages_are_reported_and_what_waited_for_them_is_delivered() -> None:
    side = Side("alice", timeout_for_lost_messages_ms=1_000)
    side.hear(content("a", "gone"))
    side.tick(1_000)
    assert [event.entries for event in side.take(MessagesLost)] == [entries("gone")]
    assert side.delivered() == ["a"]


def test_a_repair_is_requested_more_than_once() -> None:
    side = Side("alice", sync_min_interval_ms=0, timeout_for_lost_messages_ms=None)
    side.hear(content("a", "x"), content("b"))
    requests = 0
    for now in range(0, 3_600_000, 10_000):
        side.at(now)
        requests += len(decoded(side.sync()).repair_request)
    assert requests > 2


def test_sync_messages_with_missing_dependencies_do_not_pile_up() -> None:
    side = Side("alice", max_missing=50)
    for number in range(500):
        side.hear(sync(f"missing-{number}", "missing", lamport=START_MS + number))
    sizes = side.sds.sizes()
    assert (sizes.incoming, sizes.missing) == (0, 25)
    assert side.sds.counters.missing_dropped == 476


def test_what_sync_messages_name_leaves_room_for_what_messages_wait_for() -> None:
    side = Side("alice", max_missing=50)
    for number in range(500):
        side.hear(sync(f"missing-{number}", lamport=START_MS + number))
    for number in range(25):
        side.hear(content(f"m{number}", f"needed-{number}"))
    assert side.delivered() == []
    assert side.sds.sizes().missing == 50


def test_a_causal_history_size_of_zero_sends_no_history() -> None:
    side = Side("alice", causal_history_size=0)
    side.hear(content("a"), content("b"))
    side.send()
    assert decoded(side.send()).causal_history == ()
    assert decoded(side.sync()).causal_history == ()


def test_what_a_channel_knows_can_be_saved() -> None:
    side = Side("alice")
    sent = side.send()
    side.hear(content("a"), content("c", "b", lamport=START_MS + 5))
    rows = [(one.table, one.key, one.value) for one in side.sds.take_changes() if one.value is not None]
    back = SdsChannel.restore(
        CHANNEL, "alice", rows=rows, rng=random.Random(1), now_ns=side.now_ns, track_changes=False
    )
    assert back.log(9) == side.sds.log(9)
    assert back.unacknowledged() == (sent.message_id,)
    assert back.sizes() == side.sds.sizes()
    assert {table for table, _, _ in rows} >= {Table.LOG, Table.OUTGOING, Table.INCOMING, Table.MISSING}


def test_sending_acknowledged_content_again_does_not_name_itself_in_its_history() -> None:
    side = Side("alice", message_ids=MessageIds.CONTENT)
    first = side.send(b"same").message_id
    side.hear(sync(first))
    second = decoded(side.send(b"same"))
    assert second.message_id not in second.history_ids
    other = Side("bob")
    other.hear(side.sync())
    assert [event.content for event in other.take(Delivered)] == []


def test_the_filter_does_not_fill_up() -> None:
    options = SdsOptions(bloom_filter_capacity=100, bloom_filter_error_rate=0.001)
    side = Side("alice", bloom_filter_capacity=100)
    side.hear(*[content(f"m{number}", lamport=START_MS + number) for number in range(2_000)])
    made = decoded(side.send()).bloom_filter
    assert made is not None
    shape = BloomShape(options.bloom_filter_capacity, options.bloom_filter_error_rate)
    assert len(made) == shape.size
    assert shape.false_positive_rate(made) < 0.002


def test_a_propagated_message_that_nobody_confirms_does_not_vanish() -> None:
    side = Side("alice")
    sent = side.send().message_id
    for step in range(1, 100):
        for one in side.tick(step * 5_000):
            side.sds.sent(one.message_id, side.now_ns)
    assert [event.message_id for event in side.take(NotAcknowledged)] == [sent]


def test_bloom_filters_of_one_message_do_not_acknowledge_twice() -> None:
    side = Side("alice")
    sent = side.send().message_id
    message = content("a", bloom_filter=bloom([sent]))
    side.hear(message, message, message)
    assert not side.take(Acknowledged)
