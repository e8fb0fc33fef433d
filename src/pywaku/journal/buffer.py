"""Rows that wait to be written: numbered, bounded, and with a row wherever some were lost. Pure.

Each event takes a number. One row stands for one event, except that a row `journal:dropped` stands for
`total` of them: it has the number of the last one, and those of the others are missing right before it. So
whoever adds up the rows of a boot sees any other loss, such as a file that was removed, as a gap.
"""

from __future__ import annotations

from pywaku.journal.entry import (
    EVENT,
    MAX_TEXT,
    MONOTONIC,
    SEQUENCE,
    TOTAL,
    WALL_TIME,
    JournalEntry,
    Row,
    with_short_texts,
)
from pywaku.journal.events import JOURNAL_DROPPED


class RowBuffer:
    """The rows of one boot that are in no file yet; when it is full, what comes is dropped."""

    __slots__ = ("_bound", "_lost", "_rows", "dropped", "next_sequence")

    def __init__(self, bound: int) -> None:
        self.next_sequence = 0
        self.dropped = 0
        """Events lost."""
        self._bound = bound
        self._rows: list[Row] = []
        self._lost = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, entry: JournalEntry, wall_time_ns: int, monotonic_ns: int) -> int:
        """Take an entry if there is room; returns how many rows there are then, 0 where it was dropped."""
        if len(self._rows) >= self._bound:
            self.dropped += 1
            self._lost += 1
            self.next_sequence += 1
            return 0
        self._append(entry, wall_time_ns, monotonic_ns)
        return len(self._rows)

    def add_last(self, entry: JournalEntry, wall_time_ns: int, monotonic_ns: int) -> None:
        """Take an entry also when there is no room, after a row for what has been lost."""
        self._note_losses(wall_time_ns, monotonic_ns)
        self._append(entry, wall_time_ns, monotonic_ns)

    def first(self, count: int) -> list[Row]:
        """The rows, up to `count` of them, that are next to be written; they stay here."""
        return self._rows[:count]

    def has_before(self, sequence: int) -> bool:
        """Whether rows of lower numbers are left."""
        return bool(self._rows) and self._rows[0][SEQUENCE] < sequence

    def remove(self, count: int, wall_time_ns: int, monotonic_ns: int) -> None:
        """The first `count` rows are in a file. Now that there is room, note what has been lost meanwhile."""
        del self._rows[:count]
        self._note_losses(wall_time_ns, monotonic_ns)

    def give_up(self, count: int, wall_time_ns: int, monotonic_ns: int) -> None:
        """The first `count` rows will never be in a file."""
        given_up = self._rows[:count]
        if not given_up:
            return
        self.dropped += _events(given_up)
        lost = sum(row[TOTAL] if row[EVENT] == JOURNAL_DROPPED else 1 for row in given_up)
        last = given_up[-1]
        notice = JournalEntry(JOURNAL_DROPPED, total=lost)
        self._rows[:count] = [(last[SEQUENCE], last[WALL_TIME], last[MONOTONIC], *notice)]
        if len(self._rows) < self._bound:
            self._note_losses(wall_time_ns, monotonic_ns)

    def clear(self) -> int:
        """Give up all rows for good; returns how many events that loses."""
        lost = _events(self._rows)
        self.dropped += lost
        self._rows.clear()
        return lost

    def _append(self, entry: JournalEntry, wall_time_ns: int, monotonic_ns: int) -> None:
        if (
            len(entry.error or "") > MAX_TEXT
            or len(entry.content_topic or "") > MAX_TEXT
            or len(entry.channel_id or "") > MAX_TEXT
            or len(entry.sender_id or "") > MAX_TEXT
            or len(entry.channel_message_id or "") > MAX_TEXT
        ):
            entry = with_short_texts(entry)
        self._rows.append((self.next_sequence, wall_time_ns, monotonic_ns, *entry))
        self.next_sequence += 1

    def _note_losses(self, wall_time_ns: int, monotonic_ns: int) -> None:
        if self._lost:
            lost, self._lost = self._lost, 0
            self.next_sequence -= 1
            self._append(JournalEntry(JOURNAL_DROPPED, total=lost), wall_time_ns, monotonic_ns)


def _events(rows: list[Row]) -> int:
    """Rows that are not about losses: those have been counted."""
    return sum(row[EVENT] != JOURNAL_DROPPED for row in rows)
