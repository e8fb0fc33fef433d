"""What retention does not keep leaves the file in short steps, between which others get to write."""

from __future__ import annotations

from typing import Any, Final

from pywaku.archive.sqlite.changes import transaction
from pywaku.messaging.records.port import Retention
from pywaku.messaging.records.sqlite.rows import places_of
from pywaku.messaging.records.sqlite.writer import Writer

STEP: Final = 500
"""Records that one transaction removes."""

_TOO_OLD: Final = (
    "SELECT r.id, r.message_hash, s.places, r.created FROM records AS r INDEXED BY records_by_time "
    "CROSS JOIN states AS s ON s.id = r.id WHERE (r.created, r.id) > (?, ?) AND r.created < ? "
    "AND s.updated < ? AND NOT s.flags & 1 ORDER BY r.created, r.id LIMIT ?"
)
_TOO_MANY: Final = (
    "SELECT r.id, r.message_hash, s.places, r.created FROM records AS r NOT INDEXED "
    "CROSS JOIN states AS s ON s.id = r.id WHERE r.id > ? AND NOT s.flags & 1 ORDER BY r.id LIMIT ?"
)
_DELETE_RECEIPTS: Final = "DELETE FROM receipts WHERE subscription = ? AND place IN "


class Pruning:
    """One turn of retention. Each step goes on where the last one came to, past what has to stay."""

    def __init__(self, writer: Writer, retention: Retention, now_ns: int) -> None:
        self._writer = writer
        self._retention = retention
        self._oldest = retention.oldest_kept_ns(now_ns)
        self._reached_time = (-(1 << 63), 0)
        self._reached = 0

    def remove_too_old(self) -> int:
        """Remove a step's worth of what changed last too long ago; how many."""
        if self._oldest is None:
            return 0
        connection = self._writer.connection
        with transaction(connection):
            bounds = (*self._reached_time, self._oldest, self._oldest, STEP)
            gone = connection.execute(_TOO_OLD, bounds).fetchall()
            self._remove(gone)
        if gone:
            self._reached_time = (gone[-1][3], gone[-1][0])
        return len(gone)

    def remove_too_many(self) -> int:
        """Remove a step's worth of the oldest beyond the number to keep; how many."""
        most = self._retention.max_records
        if most is None:
            return 0
        connection = self._writer.connection
        with transaction(connection):
            count: int = connection.execute("SELECT records FROM totals").fetchone()[0]
            gone = connection.execute(_TOO_MANY, (self._reached, max(0, min(STEP, count - most)))).fetchall()
            self._remove(gone)
        if gone:
            self._reached = gone[-1][0]
        return len(gone)

    def finish(self) -> None:
        """Drop the names of topics and subscriptions that nothing is left of."""
        with transaction(self._writer.connection):
            self._writer.names.drop_unused()

    def _remove(self, gone: list[Any]) -> None:
        if not gone:
            return
        connection = self._writer.connection
        records = _listed([number for number, *_ in gone])
        for table in ("records", "states"):
            connection.execute(f"DELETE FROM {table} WHERE id IN {records}")  # noqa: S608 (numbers)
        places: dict[int, list[int]] = {}
        for _, _, blob, _ in gone:
            for subscription, place in places_of(blob):
                places.setdefault(subscription, []).append(place)
        for subscription, some in places.items():
            connection.execute(_DELETE_RECEIPTS + _listed(some), (subscription,))
        connection.execute("UPDATE totals SET records = records - ?", (len(gone),))
        for _, message_hash, _, _ in gone:
            self._writer.recent.drop(message_hash)


def _listed(numbers: list[int]) -> str:
    return f"({', '.join(map(str, numbers))})"
