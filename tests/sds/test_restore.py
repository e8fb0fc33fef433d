"""What a channel saves is all that it is: restored at any step, it goes on as if nothing had happened."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pywaku.errors import DecodeError, InvalidInput
from pywaku.sds import (
    Change,
    MessagesLost,
    NotAcknowledged,
    Purpose,
    RepairOptions,
    SdsChannel,
    SdsOptions,
    Table,
)
from pywaku.sds.changes import pack
from tests.support.sds_channels import CHANNEL, START_MS, Rows, Side, content, decoded, save, sync


def saved(side: Side) -> list[tuple[Table, str, bytes]]:
    return [(one.table, one.key, one.value) for one in side.sds.take_changes() if one.value is not None]


def restored(side: Side, rows: list[tuple[Table, str, bytes]], **options: Any) -> Side:
    channel = SdsChannel.restore(
        CHANNEL, "alice", SdsOptions(**options), rows=rows, rng=random.Random(1), now_ns=side.now_ns
    )
    back = Side("alice", channel=channel)
    back.now_ms = side.now_ms
    return back


def test_without_rows_a_channel_is_new() -> None:
    side = restored(Side("alice"), [])
    assert side.sds.lamport_timestamp == START_MS
    assert side.sds.next_tick() is not None
    assert decoded(side.send()).causal_history == ()


def test_a_message_that_was_being_sent_when_the_program_ended_is_sent_again() -> None:
    side = Side("alice")
    made = side.sds.send(b"on its way", side.now_ns)
    reported = side.send(b"sent")
    back = restored(side, saved(side), sync_min_interval_ms=0)
    assert back.tick() == [(made.message_id, made.data, Purpose.CONTENT, 1)]
    assert [one.message_id for one in back.tick(5_000)] == [reported.message_id]


def test_attempts_that_restarts_cut_short_are_not_counted() -> None:
    options: dict[str, Any] = {"sync_min_interval_ms": 0, "max_retransmissions": 2}
    side = Side("alice", **options)
    rows: Rows = {}

    def restart() -> None:
        nonlocal side
        save(rows, side.sds.take_changes())
        side = restored(side, [(table, key, value) for (table, key), value in rows.items()], **options)

    made = side.sds.send(b"on its way", side.now_ns)
    for _ in range(10):
        restart()
        assert side.tick() == [(made.message_id, made.data, Purpose.CONTENT, 1)]
    side.sds.sent(made.message_id, side.now_ns)
    for attempt, now_ms in ((2, 5_000), (3, 10_000)):
        assert side.tick(now_ms) == [(made.message_id, made.data, Purpose.RETRANSMISSION, attempt)]
        restart()
        assert side.tick() == [(made.message_id, made.data, Purpose.RETRANSMISSION, attempt)]
        side.sds.sent(made.message_id, side.now_ns)
    assert side.tick(15_000) == []
    assert [type(event) for event in side.events] == [NotAcknowledged]


def test_what_is_missing_has_all_of_its_time_once_more_after_a_restart() -> None:
    options: dict[str, Any] = {"sync_min_interval_ms": 0, "timeout_for_lost_messages_ms": 10_000}
    side = Side("alice", **options)
    side.hear(content("late", "gone"))
    side.now_ms = 3_600_000
    back = restored(side, saved(side), **options)
    back.tick()
    assert back.delivered() == []
    back.tick(3_609_999)
    assert back.delivered() == []
    back.hear(content("gone", lamport=START_MS - 1))
    assert back.delivered() == ["gone", "late"]
    assert not any(isinstance(event, MessagesLost) for event in back.events)


def test_a_clock_that_was_set_back_makes_nobody_wait_for_long() -> None:
    side = Side("alice", sync_min_interval_ms=0)
    side.at(10**9).hear(content("a", "gone", lamport=START_MS + 10**9))
    side.send()
    back = restored(side.at(0), saved(side), sync_min_interval_ms=0)
    due_ns = back.sds.next_tick()
    assert due_ns is not None
    assert due_ns <= (START_MS + 2 * 600_000) * 1_000_000
    back.tick(2 * 600_000)
    assert back.delivered() == ["a"]
    assert decoded(back.send()).lamport_timestamp == START_MS + 10**9 + 1


def test_smaller_bounds_hold_for_what_was_saved_under_larger_ones() -> None:
    side = Side("alice")
    side.hear(
        *[content(f"m{number}", lamport=START_MS + number, sender=f"s{number}") for number in range(30)]
    )
    for number in range(10):
        side.hear(content(f"w{number}", f"x{number}", lamport=START_MS + 50))
    repair = RepairOptions(max_cached=3)
    back = restored(
        side,
        saved(side),
        max_log=5,
        max_participants=4,
        bloom_filter_capacity=8,
        max_incoming=2,
        max_missing=2,
        repair=repair,
    )
    back.hear(content("w", "x", lamport=START_MS + 51))
    sizes = back.sds.sizes()
    assert (sizes.log, sizes.participants, sizes.cached) == (5, 4, 3)
    assert sizes.bloom_filter <= 8
    assert sizes.incoming <= 2
    assert sizes.missing <= 2


def test_changes_are_taken_once_and_say_what_is_gone() -> None:
    side = Side("alice")
    sent = side.send().message_id
    assert side.sds.take_changes()
    assert side.sds.take_changes() == []
    side.hear(sync(sent))
    changes = side.sds.take_changes()
    assert Change(Table.OUTGOING, sent, None) in changes
    assert all(change.table is not Table.BODY for change in changes), "a body is written once"


def test_a_message_that_was_released_early_leaves_no_row() -> None:
    side = Side("alice", max_incoming=1)
    side.hear(content("a", "x", lamport=START_MS + 1))
    side.sds.take_changes()
    side.hear(content("b", "x", lamport=START_MS + 2, sender="carol", content=bytes(5_000)))
    changed = {(one.table, one.key): one.value for one in side.sds.take_changes()}
    assert side.delivered() == ["b"], "what carol sent takes more room"
    assert changed[Table.INCOMING, "b"] is None
    assert changed[Table.LOG, "b"] is not None


def test_rows_of_another_filter_size_are_replaced() -> None:
    side = Side("alice", bloom_filter_capacity=20)
    side.hear(*[content(f"m{number}", lamport=START_MS + number) for number in range(15)])
    back = restored(side, saved(side), bloom_filter_capacity=6)
    changes = [one for one in back.sds.take_changes() if one.table is Table.BLOOM]
    assert {one.key for one in changes if one.value is None} == {str(slot) for slot in range(6, 15)}
    assert {one.key for one in changes if one.value} == {"", *map(str, range(6))}


def test_a_body_that_nobody_needs_any_more_is_deleted_after_a_restart() -> None:
    side = Side("alice")
    side.hear(content("a"))
    back = restored(side, saved(side), repair=None)
    assert Change(Table.BODY, "a", None) in back.sds.take_changes()


def test_nothing_is_noted_where_nobody_saves() -> None:
    channel = SdsChannel(CHANNEL, "alice", rng=random.Random(1), now_ns=START_MS * 1_000_000)
    channel.send(b"1", START_MS * 1_000_000)
    assert channel.take_changes() == []


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ((Table.CLOCK, "", pack(2, 0, 0)), InvalidInput),
        ((Table.CLOCK, "", b"\xff"), DecodeError),
        ((Table.LOG, "a", b"{"), DecodeError),
        ((Table.OUTGOING, "a", pack(1, None, [], True, {}, 1, None)), InvalidInput),
        ((Table.INCOMING, "a", pack(1, "bob", 1, None, 1, ["x"], [], 5)), InvalidInput),
    ],
)
def test_rows_that_cannot_be_are_refused(row: tuple[Table, str, bytes], error: type[Exception]) -> None:
    with pytest.raises(error):
        restored(Side("alice"), [row])
