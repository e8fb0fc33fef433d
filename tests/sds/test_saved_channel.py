"""A channel that is restored from what it saved takes every step as the one that saved it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pywaku.errors import InvalidInput, LimitExceeded
from pywaku.sds import (
    Acknowledged,
    Delivered,
    NotAcknowledged,
    RepairOptions,
    SdsChannel,
    SdsEvent,
    SdsOptions,
    Table,
)
from pywaku.sds.bloom import BloomFilter, BloomShape
from pywaku.wire.sds import HistoryEntry, SdsMessage, encode_sds
from tests.support.sds_channels import CHANNEL, START_MS, Rows, save

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

# Small worlds meet themselves: few ids, few senders, timestamps that are a matter of the id.
NUMBERS = st.integers(0, 25)
SENDERS = st.sampled_from(["bob", "carol", "dave", "erin", "alice"])


def lamport_of(number: int) -> int:
    return START_MS + number * 700


def entry_of(number: int, *, known: bool) -> HistoryEntry:
    """A dependency, `known` with its hint and sender: these may be learnt later than that it is missing."""
    if not known:
        return HistoryEntry(f"m{number}")
    return HistoryEntry(f"m{number}", b"h%d" % number, ["bob", "carol", "alice"][number % 3])


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
        save(self.rows, self.sds.take_changes())

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
            rows=[(table, key, value) for (table, key), value in reversed(rows.items())],  # in any order
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
        save(rows, sds.take_changes())
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

    @rule(
        number=NUMBERS,
        after=st.lists(NUMBERS, max_size=4),
        sender=SENDERS,
        acks=st.booleans(),
        known=st.booleans(),
    )
    def hear_content(self, number: int, after: list[int], sender: str, acks: bool, known: bool) -> None:
        self.hear(f"m{number}", lamport_of(number), after, sender, acks=acks, known=known, text=b"content")

    @rule(
        number=st.integers(0, 40),
        after=st.lists(NUMBERS, max_size=4),
        sender=SENDERS,
        acks=st.booleans(),
        known=st.booleans(),
        bloom=st.booleans(),
        requests=st.lists(NUMBERS, max_size=3),
    )
    def hear_sync(
        self,
        number: int,
        after: list[int],
        sender: str,
        acks: bool,
        known: bool,
        bloom: bool,
        requests: list[int],
    ) -> None:
        self.hear(
            "sync", lamport_of(number), after, sender, acks=acks, known=known, bloom=bloom, requests=requests
        )

    def hear(
        self,
        message_id: str,
        lamport: int,
        after: list[int],
        sender: str,
        *,
        acks: bool,
        known: bool,
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
            (*own, *[entry_of(one, known=known) for one in after]),
            filter_of(self.sds) if bloom else None,
            (*own, *[entry_of(one, known=known) for one in requests or []]),
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
