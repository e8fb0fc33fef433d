"""Rows that wait: numbers without gaps but where rows were lost, and there a row that says so."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pywaku.journal import JOURNAL_DROPPED
from pywaku.journal.buffer import RowBuffer
from pywaku.journal.entry import EVENT, MONOTONIC, SEQUENCE, TOTAL, Row
from tests.journal.rows import event

BOUND = 5


def _stands_for(row: Row) -> int:
    return row[TOTAL] if row[EVENT] == JOURNAL_DROPPED else 1


class BufferMachine(RuleBasedStateMachine):
    """Rows come, are written, or cannot be written."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = RowBuffer(BOUND)
        self.now = 0
        self.offered = 0
        self.lost = 0
        self.taken: list[int] = []
        self.in_files: list[Row] = []

    @rule()
    def add(self) -> None:
        self.now += 1
        room = len(self.buffer) < BOUND
        assert self.buffer.add(event(self.offered), self.now, self.now) == (len(self.buffer) if room else 0)
        if not room:
            self.lost += 1
        self.offered += 1

    @precondition(lambda self: len(self.buffer) > 0)
    @rule(count=st.integers(1, BOUND + 1))
    def write(self, count: int) -> None:
        rows = self.buffer.first(count)
        self.in_files += rows
        self.now += 1
        self.buffer.remove(len(rows), self.now, self.now)

    @precondition(lambda self: len(self.buffer) > 0)
    @rule(count=st.integers(1, BOUND + 1))
    def give_up(self, count: int) -> None:
        rows = self.buffer.first(count)
        self.lost += sum(row[EVENT] != JOURNAL_DROPPED for row in rows)
        self.now += 1
        self.buffer.give_up(len(rows), self.now, self.now)

    @invariant()
    def bounded(self) -> None:
        assert len(self.buffer) <= BOUND

    @invariant()
    def counted(self) -> None:
        assert self.buffer.dropped == self.lost
        assert self.buffer.next_sequence == self.offered

    @invariant()
    def every_number_is_accounted_for(self) -> None:
        rows = self.in_files + self.buffer.first(BOUND + 1)
        before = -1
        for row in rows:
            assert row[SEQUENCE] == before + _stands_for(row)
            if row[EVENT] != JOURNAL_DROPPED:
                assert row[EVENT:] == event(row[SEQUENCE])
            before = row[SEQUENCE]
        times = [row[MONOTONIC] for row in rows]
        assert times == sorted(times)

    def teardown(self) -> None:
        self.buffer.add_last(event(self.offered), self.now, self.now)
        rows = self.in_files + self.buffer.first(BOUND + 2)
        assert sum(map(_stands_for, rows)) == self.offered + 1
        left = self.buffer.first(BOUND + 2)
        assert self.buffer.clear() == sum(row[EVENT] != JOURNAL_DROPPED for row in left)
        assert len(self.buffer) == 0


TestBuffer = BufferMachine.TestCase


def test_what_was_lost_is_noted_once_there_is_room() -> None:
    buffer = RowBuffer(2)
    for number in range(5):
        buffer.add(event(number), number, number)
    buffer.remove(1, 9, 9)
    (kept, note) = buffer.first(9)
    assert kept[EVENT:] == event(1)
    assert (note[SEQUENCE], note[EVENT], note[TOTAL]) == (4, JOURNAL_DROPPED, 3)
    buffer.remove(2, 9, 9)
    assert buffer.add(event(5), 9, 9)
    assert buffer.first(1)[0][SEQUENCE] == 5


def test_rows_beyond_the_end_can_be_given_up() -> None:
    buffer = RowBuffer(2)
    buffer.give_up(3, 0, 0)
    assert len(buffer) == 0
