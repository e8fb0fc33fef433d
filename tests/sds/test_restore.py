"""What a channel saves is all that it is: restored at any step, it goes on as if nothing had happened."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pywaku.errors import DecodeError, InvalidInput, LimitExceeded
from pywaku.sds import (
    Acknowledged,
    Change,
    Delivered,
    MessagesLost,
    NotAcknowledged,
    Purpose,
    RepairOptions,
    SdsChannel,
    SdsEvent,
    SdsOptions,
    Table,
)
from pywaku.sds.bloom import BloomFilter, BloomShape
from pywaku.sds.changes import pack
from pywaku.wire.sds import HistoryEntry, SdsMessage, encode_sds
from tests.support.sds_channels import CHANNEL, START_MS, Side, content, decoded, sync

OPTIONS = SdsOptions(
    bloom_filter_capacity=6,
    bloom_filter_error_rate=0.1,
    timeout_for_lost_messages_ms=20_000,
    max_retransmissions=2,
    max_log=12,
    max_outgoing=4,
    max_incoming=4,
    max_missing=6,
    max_lost=4,
    max_participants=3,
    repair=RepairOptions(
        t_min_ms=1_000, t_max_ms=8_000, max_cached=5, max_responses=2, num_response_groups=2
    ),
)
Rows = dict[tuple[Table, str], bytes]

# Small worlds meet themselves: few ids, few senders, timestamps that are a matter of the id.
NUMBERS = st.integers(0, 25)
SENDERS = st.sampled_from(["bob", "carol", "dave", "erin", "alice"])


def lamport_of(number: int) -> int:
    return START_MS + number * 700


def entry_of(number: int) -> HistoryEntry:
    return HistoryEntry(
        f"m{number}", b"h%d" % number if number % 2 else None, ["bob", None, "alice"][number % 3]
    )


def apply(rows: Rows, changes: list[Change]) -> None:
    """Write a transaction."""
    for table, key, value in changes:
        if value is None:
            rows.pop((table, key), None)
        else:
            rows[table, key] = value


class SavedChannel(RuleBasedStateMachine):
    """Each step is taken twice: by the channel, and by one restored from what it has saved until then."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = random.Random(1)
        self.now_ms = START_MS
        self.rows: Rows = {}
        self.delivered: set[str] = set()
        self.ended: set[str] = set()

    @initialize(seed=st.integers(0, 1_000))
    def begin(self, seed: int) -> None:
        self.rng.seed(seed)
        self.sds = SdsChannel(CHANNEL, "alice", OPTIONS, rng=self.rng, now_ns=self.now_ns, track_changes=True)
        apply(self.rows, self.sds.take_changes())

    @property
    def now_ns(self) -> int:
        return self.now_ms * 1_000_000

    def step(self, action: Callable[[SdsChannel], Any]) -> None:
        rng = random.Random()
        rng.setstate(self.rng.getstate())
        rows = dict(self.rows)
        other = SdsChannel.restore(
            CHANNEL,
            "alice",
            OPTIONS,
            rows=[(table, key, value) for (table, key), value in rows.items()],
            rng=rng,
            now_ns=self.now_ns,
            resume=False,
        )
        expected = self.outcome(self.sds, self.rows, action)
        assert self.outcome(other, rows, action) == expected
        assert rows == self.rows
        for event in expected[1]:
            if isinstance(event, Delivered):
                assert event.message_id not in self.delivered
                self.delivered.add(event.message_id)
            elif isinstance(event, Acknowledged | NotAcknowledged):
                assert event.message_id not in self.ended
                self.ended.add(event.message_id)

    def outcome(
        self, sds: SdsChannel, rows: Rows, action: Callable[[SdsChannel], Any]
    ) -> tuple[Any, list[SdsEvent], Any, Any]:
        """All that can be seen of a step."""
        try:
            result = action(sds)
        except (InvalidInput, LimitExceeded) as error:
            result = type(error)
        events, transmissions = sds.take_events(), sds.take_transmissions()
        apply(rows, sds.take_changes())
        state = (
            sds.sizes(),
            sds.next_tick(),
            sds.participants(),
            sds.missing(),
            sds.unacknowledged(),
            sds.log(100),
            sds.lamport_timestamp,
        )
        return result, events, transmissions, state

    @rule(recipients=st.none() | st.sets(SENDERS, max_size=2), text=st.binary(max_size=3))
    def send(self, recipients: set[str] | None, text: bytes) -> None:
        self.step(lambda sds: sds.send(text, self.now_ns, recipients=recipients))

    @rule(place=st.integers(0, 5), hint=st.none() | st.binary(max_size=4))
    def sent(self, place: int, hint: bytes | None) -> None:
        def report(sds: SdsChannel) -> None:
            for message_id in sds.unacknowledged()[place : place + 1]:
                sds.sent(message_id, self.now_ns, retrieval_hint=hint)

        self.step(report)

    @rule(place=st.integers(0, 5))
    def withdraw(self, place: int) -> None:
        self.step(lambda sds: [sds.withdraw(one) for one in sds.unacknowledged()[place : place + 1]])

    @rule(number=NUMBERS, after=st.lists(NUMBERS, max_size=4), sender=SENDERS, acks=st.booleans())
    def hear_content(self, number: int, after: list[int], sender: str, acks: bool) -> None:
        self.hear(f"m{number}", lamport_of(number), after, sender, acks=acks, text=b"content")

    @rule(
        number=st.integers(0, 40),
        after=st.lists(NUMBERS, max_size=4),
        sender=SENDERS,
        acks=st.booleans(),
        bloom=st.booleans(),
        requests=st.lists(NUMBERS, max_size=3),
    )
    def hear_sync(
        self, number: int, after: list[int], sender: str, acks: bool, bloom: bool, requests: list[int]
    ) -> None:
        self.hear("sync", lamport_of(number), after, sender, acks=acks, bloom=bloom, requests=requests)

    def hear(
        self,
        message_id: str,
        lamport: int,
        after: list[int],
        sender: str,
        *,
        acks: bool,
        bloom: bool = False,
        requests: list[int] | None = None,
        text: bytes | None = None,
    ) -> None:
        own = [HistoryEntry(one) for one in self.sds.unacknowledged()[:2]] if acks else []
        message = SdsMessage(
            sender,
            message_id,
            CHANNEL,
            lamport,
            (*own, *map(entry_of, after)),
            filter_of(self.sds) if bloom else None,
            (*own, *map(entry_of, requests or [])),
            text,
        )
        self.step(lambda sds: sds.receive(encode_sds(message), self.now_ns, retrieval_hint=b"hint"))

    @rule(delay_ms=st.sampled_from([0, 1, 500, 3_000, 5_000, 9_000, 25_000]))
    def tick(self, delay_ms: int) -> None:
        self.now_ms += delay_ms
        self.step(lambda sds: sds.tick(self.now_ns))

    @rule()
    def sync(self) -> None:
        self.step(lambda sds: sds.sync(self.now_ns))

    @rule(numbers=st.lists(NUMBERS, max_size=3))
    def abandon(self, numbers: list[int]) -> None:
        self.step(lambda sds: sds.abandon([f"m{number}" for number in numbers]))

    @rule(number=NUMBERS)
    def set_hint(self, number: int) -> None:
        self.step(lambda sds: sds.set_retrieval_hint(f"m{number}", b"new"))

    @invariant()
    def everything_is_within_its_bounds(self) -> None:
        if not self.rows:
            return
        sizes = self.sds.sizes()
        repair = OPTIONS.repair
        assert repair is not None
        assert sizes.log <= OPTIONS.max_log
        assert sizes.outgoing <= OPTIONS.max_outgoing
        assert sizes.incoming <= OPTIONS.max_incoming
        assert sizes.missing <= OPTIONS.max_missing
        assert sizes.lost <= OPTIONS.max_lost
        assert sizes.participants <= OPTIONS.max_participants
        assert sizes.cached <= repair.max_cached
        assert sizes.responses <= repair.max_responses
        assert sizes.bloom_filter <= OPTIONS.bloom_filter_capacity

    @invariant()
    def no_body_is_saved_that_nobody_needs(self) -> None:
        holders = {Table.OUTGOING, Table.INCOMING, Table.CACHE}
        held = {key for table, key in self.rows if table in holders}
        assert {key for table, key in self.rows if table is Table.BODY} == held


def filter_of(sds: SdsChannel) -> bytes:
    """A filter that has the first of what is not acknowledged."""
    made = BloomFilter(BloomShape(OPTIONS.bloom_filter_capacity, OPTIONS.bloom_filter_error_rate))
    for message_id in sds.unacknowledged()[:1]:
        made.insert(message_id)
    return made.to_bytes()


TestSavedChannel = SavedChannel.TestCase
TestSavedChannel.settings = settings(stateful_step_count=40)


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
        apply(rows, side.sds.take_changes())
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
