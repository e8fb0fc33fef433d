"""What is written to the SQLite archive: plain functions of a connection, run in a thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from pywaku.archive.keys import LAST, SortKey, flags_of, topic_key
from pywaku.archive.port import StoredMessage
from pywaku.archive.sqlite.queries import select_oldest, used_bytes

STEP_MESSAGES: Final = 200
"""Messages that one transaction removes; between two of them others get to write."""
STEP_PAGES: Final = 256
"""Free pages that one transaction gives back to the file system."""

INSERT: Final = (
    "INSERT INTO messages VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (message_hash) DO NOTHING"
)
_DELETE: Final = "DELETE FROM messages WHERE id = ?"

Row = tuple[bytes, int, int, int, str, bytes, bytes | None, int | None, bytes | None, int, int]


@contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """All or nothing; SQLite may have rolled back by itself when something fails."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def insert_messages(
    connection: sqlite3.Connection, messages: Sequence[StoredMessage], pubsub_ids: dict[str, int]
) -> int:
    """Insert those that are not there; returns how many. `pubsub_ids` remembers the ids of pubsub topics."""
    with transaction(connection):
        rows = rows_of(connection, messages, pubsub_ids)
        before = connection.total_changes
        connection.executemany(INSERT, rows)
        new = connection.total_changes - before
        if new:
            connection.execute("UPDATE totals SET messages = messages + ?", (new,))
    # Only now: had the transaction failed, these ids would not be in the file.
    for message, row in zip(messages, rows, strict=True):
        if message.pubsub_topic not in pubsub_ids:
            pubsub_ids[message.pubsub_topic] = row[2]
    return new


def rows_of(
    connection: sqlite3.Connection, messages: Sequence[StoredMessage], pubsub_ids: dict[str, int]
) -> list[Row]:
    """What to insert for the messages; a pubsub topic that is not known yet is inserted on the way."""
    return [_row(message, pubsub_ids.get(message.pubsub_topic), connection) for message in messages]


def _row(stored: StoredMessage, pubsub_id: int | None, connection: sqlite3.Connection) -> Row:
    message = stored.message
    return (
        stored.message_hash,
        message.timestamp_ns or 0,
        _pubsub_id(connection, stored.pubsub_topic) if pubsub_id is None else pubsub_id,
        topic_key(stored.pubsub_topic, message.content_topic),
        message.content_topic,
        message.payload,
        message.meta,
        message.version,
        message.rate_limit_proof,
        flags_of(message),
        stored.received_ns,
    )


def _pubsub_id(connection: sqlite3.Connection, name: str) -> int:
    connection.execute("INSERT INTO pubsub_topics (name) VALUES (?) ON CONFLICT DO NOTHING", (name,))
    number: int = connection.execute("SELECT id FROM pubsub_topics WHERE name = ?", (name,)).fetchone()[0]
    return number


def remove_before(connection: sqlite3.Connection, key: SortKey) -> int:
    """Remove a step's worth of the oldest messages that lie before a key."""
    with transaction(connection):
        return _remove_oldest(connection, STEP_MESSAGES, key)


def remove_beyond_count(connection: sqlite3.Connection, most: int) -> int:
    """Remove a step's worth of the oldest messages while there are more than `most`."""
    with transaction(connection):
        count: int = connection.execute("SELECT messages FROM totals").fetchone()[0]
        return _remove_oldest(connection, min(STEP_MESSAGES, count - most), LAST)


def remove_beyond_size(connection: sqlite3.Connection, most: int) -> int:
    """Remove a step's worth of the oldest messages while they take more than `most` bytes."""
    with transaction(connection):
        used = used_bytes(connection)
        count: int = connection.execute("SELECT messages FROM totals").fetchone()[0]
        if used <= most or count == 0:
            return 0
        # About as many as it takes, for messages of average size; what is missing, the next step finds.
        excess = -(-(used - most) * count // used)
        return _remove_oldest(connection, min(STEP_MESSAGES, excess), LAST)


def give_back_pages(connection: sqlite3.Connection) -> bool:
    """Give back some free pages while a quarter of the file is free; whether there was anything to do."""
    pages, free = connection.execute(
        "SELECT page_count, freelist_count FROM pragma_page_count, pragma_freelist_count"
    ).fetchone()
    if free < STEP_PAGES or free * 4 < pages:
        return False
    connection.execute(f"PRAGMA incremental_vacuum({STEP_PAGES})").fetchall()
    left: int = connection.execute("PRAGMA freelist_count").fetchone()[0]
    return left < free


def _remove_oldest(connection: sqlite3.Connection, limit: int, before: SortKey) -> int:
    if limit <= 0:
        return 0
    gone = select_oldest(connection, limit, before)
    connection.executemany(_DELETE, [(number,) for _, _, number in gone])
    connection.execute("UPDATE totals SET messages = messages - ?", (len(gone),))
    return len(gone)
