"""What is written to the records: plain functions of the one connection that writes, run in a thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from pywaku.archive.sqlite.changes import transaction
from pywaku.messaging.records.port import MAX_FETCH_RECORDS, Change, Changed, RecordCounters
from pywaku.messaging.records.sqlite.bulk import Value, select_in, write_rows
from pywaku.messaging.records.sqlite.names import CONTENT, PUBSUB, SUBSCRIPTION, Names
from pywaku.messaging.records.sqlite.recent import Recent
from pywaku.messaging.records.sqlite.rows import (
    COLUMNS,
    JOINS,
    Entry,
    entry_of,
    hash_key,
    record_row,
    state_row,
)
from pywaku.messaging.records.transitions import added, changed, fits

# OR FAIL: a statement that fails leaves what it had done, and the transaction is rolled back anyway. Without
# it SQLite keeps a journal for each statement of many rows.
INSERT_RECORDS: Final = "INSERT OR FAIL INTO records VALUES"
WRITE_STATES: Final = "REPLACE INTO states VALUES"
INSERT_RECEIPTS: Final = "INSERT OR FAIL INTO receipts VALUES"
_LOOK_UP: Final = f"SELECT {COLUMNS} FROM records AS r {JOINS} WHERE r.hash_key IN"  # noqa: S608 (constants)
_ADD_TO_TOTALS: Final = "UPDATE totals SET records = records + ?, accepted = max(accepted, ?)"
_NOTE: Final = "REPLACE INTO fetched VALUES"
_FORGET_FETCHED: Final = (
    "DELETE FROM fetched WHERE (content, pubsub) IN "
    "(SELECT content, pubsub FROM fetched ORDER BY until DESC LIMIT -1 OFFSET ?)"
)


class Writer:
    """Makes changes, a batch in each transaction. In one thread at a time."""

    def __init__(self, connection: sqlite3.Connection, recent: Recent, counters: RecordCounters) -> None:
        self.connection = connection
        self.recent = recent
        self.names = Names(connection)
        self._counters = counters
        self._last: int = connection.execute("SELECT max(id) FROM records").fetchone()[0] or 0

    def apply(self, changes: Sequence[Change], taken: int) -> list[Changed]:
        """Make the changes; accepted sends up to the number `taken` are among the records then."""
        batch = _Batch(self.names, self._found(changes), self._last)
        try:
            with transaction(self.connection):
                for change in changes:
                    batch.make(change)
                batch.write(self.connection, taken)
        except BaseException:
            self.names.rolled_back()
            raise
        self.names.committed()
        self._last = batch.last
        for message_hash, entries in batch.entries.items():
            self.recent.put(message_hash, entries)
        counters = self._counters
        counters.added += len(batch.records)
        counters.changed += len(batch.told) - len(batch.records)
        counters.unmatched += batch.unmatched
        counters.applied += len(changes)
        counters.batches += 1
        return batch.told

    def note_fetched(self, pubsub_topic: str, content_topics: Sequence[str], until_ns: int) -> None:
        """Note up to when messages of the topics have been fetched."""
        try:
            with transaction(self.connection):
                pubsub = self.names.number(PUBSUB, pubsub_topic)
                rows = [(self.names.number(CONTENT, name), pubsub, until_ns) for name in content_topics]
                write_rows(self.connection, _NOTE, rows)
                self.connection.execute(_FORGET_FETCHED, (MAX_FETCH_RECORDS,))
        except BaseException:
            self.names.rolled_back()
            raise
        self.names.committed()

    def _found(self, changes: Sequence[Change]) -> dict[bytes, tuple[Entry, ...]]:
        """All records of the messages that the changes are about."""
        found: dict[bytes, tuple[Entry, ...]] = {}
        unknown: dict[Value, None] = {}
        for change in changes:
            message_hash = change.message_hash
            if message_hash not in found:
                entries = self.recent.get(message_hash)
                if entries is None:
                    unknown[hash_key(message_hash)] = None
                    entries = ()
                found[message_hash] = entries
        if unknown:
            self._counters.looked_up += len(unknown)
            entries = map(entry_of, select_in(self.connection, _LOOK_UP, list(unknown)))
            for entry in sorted(entries, key=lambda entry: entry.number):
                message_hash = entry.record.message_hash
                if message_hash in found and self.recent.get(message_hash) is None:  # or it shares the key
                    found[message_hash] += (entry,)
        return found


class _Batch:
    """What a batch of changes comes to."""

    def __init__(self, names: Names, entries: dict[bytes, tuple[Entry, ...]], last: int) -> None:
        self.entries = entries
        self.last = last
        self.told: list[Changed] = []
        self.records: list[Sequence[Value]] = []
        self.unmatched = 0
        self._names = names
        self._states: dict[int, Entry] = {}
        self._receipts: list[Sequence[Value]] = []

    def make(self, change: Change) -> None:
        """Make a change to what the batch has come to so far."""
        entries = self.entries[change.message_hash]
        fitting = False
        for index, entry in enumerate(entries):
            before = entry.record
            if fits(before, change):
                fitting = True
                after = changed(before, change)
                places = self._listed(entry, change) if change.subscription_ids else entry.places
                if after is not before:
                    self.told.append(Changed(before, after))
                elif places is entry.places:
                    continue
                new = Entry(entry.number, after, places)
                self._states[new.number] = new
                entries = (*entries[:index], new, *entries[index + 1 :]) if len(entries) > 1 else (new,)
                self.entries[change.message_hash] = entries
        if fitting:
            return
        if change.record is None:
            self.unmatched += 1
            return
        record = added(change.record, change)
        pubsub = self._names.number(PUBSUB, record.pubsub_topic)
        content = self._names.number(CONTENT, record.content_topic)
        self.last += 1
        self.records.append(record_row(self.last, record, pubsub, content))
        new = Entry(self.last, record, ())
        if change.subscription_ids:
            new = Entry(self.last, record, self._listed(new, change))
        self.entries[change.message_hash] = (*entries, new)
        self._states[new.number] = new
        self.told.append(Changed(None, record))

    def write(self, connection: sqlite3.Connection, taken: int) -> None:
        """Write it."""
        write_rows(connection, INSERT_RECORDS, self.records)
        write_rows(connection, WRITE_STATES, [state_row(entry) for entry in self._states.values()])
        write_rows(connection, INSERT_RECEIPTS, self._receipts)
        if self.records or taken:
            connection.execute(_ADD_TO_TOTALS, (len(self.records), taken))

    def _listed(self, entry: Entry, change: Change) -> tuple[tuple[int, int], ...]:
        """Where the entry is listed once the change is made."""
        places = entry.places
        for subscription_id in change.subscription_ids:
            subscription = self._names.number(SUBSCRIPTION, subscription_id)
            if all(subscription != known for known, _ in places):
                place = self._names.next_place(subscription)
                self._receipts.append((subscription, place, entry.number))
                places = (*places, (subscription, place))
        return places
