"""What is read from the SQLite archive, and how: plain functions of a connection, run in a thread.

Every entry of an answer comes off an index in the order of the answer, from where the cursor says, and no
further than the page is long. So a page costs the same wherever it lies and however much there is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final

from pywaku.archive.keys import FIRST, LAST, SortKey, key_range, message_of, topic_key
from pywaku.archive.port import ArchiveEntry, ArchivePage, ArchiveQuery, ArchiveStats
from pywaku.errors import CursorNotFound

Candidate = tuple[int, bytes, int]
"""Timestamp, hash and row id of an entry: sorts as the entries do."""

_RANGE: Final = "(timestamp, message_hash) > (?, ?) AND (timestamp, message_hash) < (?, ?)"
_COLUMNS: Final = "SELECT timestamp, message_hash, id FROM messages"
# The planner would take either index for either query, as it cannot know what the keys mean.
_FROM_TOPICS: Final = f"{_COLUMNS} INDEXED BY messages_by_topic"
_FROM_TIMES: Final = f"{_COLUMNS} INDEXED BY messages_by_time"
_ORDERS: Final = {
    True: "ORDER BY timestamp, message_hash LIMIT ?",
    False: "ORDER BY timestamp DESC, message_hash DESC LIMIT ?",
}
_BY_TOPIC: Final = {
    ascending: f"{_FROM_TOPICS} WHERE topic_key = ? AND pubsub = ? AND content_topic = ? AND {_RANGE} {order}"
    for ascending, order in _ORDERS.items()
}
_BY_TIME: Final = {
    ascending: f"{_FROM_TIMES} WHERE pubsub = ? AND {_RANGE} {order}" for ascending, order in _ORDERS.items()
}
_BY_HASH: Final = f"{_COLUMNS} WHERE message_hash = ?"
_DATA: Final = (
    "SELECT p.name, content_topic, payload, meta, version, rate_limit_proof, timestamp, flags "
    "FROM messages JOIN pubsub_topics AS p ON p.id = pubsub WHERE messages.id = ?"
)


def select_page(connection: sqlite3.Connection, query: ArchiveQuery) -> ArchivePage:
    """The page, from one snapshot."""
    with _snapshot(connection):
        cursor = None if query.cursor is None else _find_cursor(connection, query.cursor)
        low, high = key_range(query, cursor)
        if query.hashes:
            found = _select_hashes(connection, query, low, high)
        else:
            found = merge(
                connection, _streams(connection, query), low, high, query.limit + 1, ascending=query.ascending
            )
        more = len(found) > query.limit
        page = found[: query.limit]
        edge = page[-1][1] if more else None
        if not query.ascending:
            page.reverse()
        entries = [_entry(connection, candidate, query.include_data) for candidate in page]
    return ArchivePage(tuple(entries), edge)


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Generator[None]:
    """All that is read within is of one moment."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:  # a disk that fails may have ended it
            connection.execute("ROLLBACK")


def select_oldest(connection: sqlite3.Connection, limit: int, before: SortKey = LAST) -> list[Candidate]:
    """The oldest entries of all that lie before a key."""
    streams = _streams(connection, ArchiveQuery())
    return merge(connection, streams, FIRST, before, limit, ascending=True)


def select_stats(connection: sqlite3.Connection) -> ArchiveStats:
    """What is in the file."""
    with _snapshot(connection):
        ends = [
            merge(connection, _streams(connection, ArchiveQuery()), FIRST, LAST, 1, ascending=ascending)
            for ascending in (True, False)
        ]
        count: int = connection.execute("SELECT messages FROM totals").fetchone()[0]
        oldest, newest = (end[0][0] if end else None for end in ends)
        return ArchiveStats(count, used_bytes(connection), oldest, newest)


def used_bytes(connection: sqlite3.Connection) -> int:
    """The size of the file without the pages that are free."""
    pages, free, size = connection.execute(
        "SELECT page_count, freelist_count, page_size "
        "FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    ).fetchone()
    return (pages - free) * size


Stream = tuple[str, str, tuple[int | str, ...]]
"""Two statements, ascending and descending, and their first arguments."""


def _streams(connection: sqlite3.Connection, query: ArchiveQuery) -> Iterator[Stream]:
    """The parts of the index that hold the answer, each of them in order."""
    pubsub_topics: list[tuple[int, str]]
    if query.pubsub_topic is None:
        pubsub_topics = connection.execute("SELECT id, name FROM pubsub_topics").fetchall()
    else:
        pubsub_topics = connection.execute(
            "SELECT id, name FROM pubsub_topics WHERE name = ?", (query.pubsub_topic,)
        ).fetchall()
    for number, name in pubsub_topics:
        if not query.content_topics:
            yield _BY_TIME[True], _BY_TIME[False], (number,)
        for content_topic in dict.fromkeys(query.content_topics):
            yield _BY_TOPIC[True], _BY_TOPIC[False], (topic_key(name, content_topic), number, content_topic)


def merge(
    connection: sqlite3.Connection,
    streams: Iterator[Stream],
    low: SortKey,
    high: SortKey,
    limit: int,
    *,
    ascending: bool,
) -> list[Candidate]:
    """The first `limit` entries of all streams together, in the direction asked for.

    What has been found bounds what the following streams are asked for, so many streams cost little more
    than a seek each.
    """
    found: list[Candidate] = []
    for forward, backward, arguments in streams:
        found += connection.execute(
            forward if ascending else backward, (*arguments, *low, *high, limit)
        ).fetchall()
        found.sort(reverse=not ascending)
        del found[limit:]
        if len(found) == limit:
            worst = found[-1][:2]
            low, high = (low, worst) if ascending else (worst, high)
    return found


def _select_hashes(
    connection: sqlite3.Connection, query: ArchiveQuery, low: SortKey, high: SortKey
) -> list[Candidate]:
    found: list[Candidate] = []
    for message_hash in dict.fromkeys(query.hashes):
        candidate: Candidate | None = connection.execute(_BY_HASH, (message_hash,)).fetchone()
        if candidate is not None and low < candidate[:2] < high:
            found.append(candidate)
    found.sort(reverse=not query.ascending)
    return found[: query.limit + 1]


def _find_cursor(connection: sqlite3.Connection, message_hash: bytes) -> SortKey:
    candidate: Candidate | None = connection.execute(_BY_HASH, (message_hash,)).fetchone()
    if candidate is None:
        raise CursorNotFound(f"the archive has no message {message_hash.hex()} to go on from")
    return candidate[:2]


def _entry(connection: sqlite3.Connection, candidate: Candidate, include_data: bool) -> ArchiveEntry:
    timestamp, message_hash, number = candidate
    if not include_data:
        return ArchiveEntry(message_hash, timestamp)
    pubsub_topic, *columns = connection.execute(_DATA, (number,)).fetchone()
    return ArchiveEntry(message_hash, timestamp, pubsub_topic, message_of(*columns))
