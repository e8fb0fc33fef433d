"""The tables of the SQLite archive, their versions, and what is checked when a file is opened.

The version is the file's `user_version`, the mark that it is an archive its `application_id`. A file of an
older version is brought up to date in one transaction; one of a newer version is refused.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from typing import Final

from pywaku.archive.keys import topic_key
from pywaku.archive.sqlite.errors import clear_errors
from pywaku.errors import ArchiveError

VERSION: Final = 2
APPLICATION_ID: Final = int.from_bytes(b"WAKU", "big")
FULL_CHECK_BYTES: Final = 1 << 30
"""Up to this size the whole file is checked when it is opened, which reads all of it."""

PAGE_SIZE: Final = 8192
"""Seven messages of 1 KB share a page; with pages of 4096 bytes it is three, and more goes to waste."""

# Rows lie in the order of arrival, which is nearly that of time, so that inserts append; only the index of
# hashes is written all over the place. The other two serve every query by content in order, without a sort.
_TABLES: Final = (
    """CREATE TABLE pubsub_topics (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE
    )""",
    """CREATE TABLE messages (
        id INTEGER PRIMARY KEY,
        message_hash BLOB NOT NULL UNIQUE,
        timestamp INTEGER NOT NULL,
        pubsub INTEGER NOT NULL,
        topic_key INTEGER NOT NULL,
        content_topic TEXT NOT NULL,
        payload BLOB NOT NULL,
        meta BLOB,
        version INTEGER,
        rate_limit_proof BLOB,
        flags INTEGER NOT NULL,
        received INTEGER NOT NULL
    )""",
    "CREATE TABLE totals (messages INTEGER NOT NULL)",
)
_INDEXES: Final = (
    "CREATE INDEX messages_by_topic ON messages (topic_key, timestamp, message_hash)",
    "CREATE INDEX messages_by_time ON messages (pubsub, timestamp, message_hash)",
)
_ENDS: Final = (
    "SELECT * FROM messages ORDER BY id",
    "SELECT message_hash FROM messages ORDER BY message_hash",
    "SELECT topic_key FROM messages INDEXED BY messages_by_topic ORDER BY topic_key",
    "SELECT pubsub FROM messages INDEXED BY messages_by_time ORDER BY pubsub",
)


def prepare(connection: sqlite3.Connection, name: str) -> None:
    """Check the file, then create its tables or bring them up to date; one of another kind is left alone."""
    with clear_errors(name):
        version = _identify(connection, name)
        if version == VERSION:
            check(connection, name)
        elif version:  # all of it is about to be read anyway
            check(connection, name, full_bytes=sys.maxsize)
        else:  # these two shape new files, and come before anything is written
            connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if version < VERSION:
            _upgrade(connection, name)


def _identify(connection: sqlite3.Connection, name: str) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    mark: int = connection.execute("PRAGMA application_id").fetchone()[0]
    empty: bool = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    if mark != APPLICATION_ID and not (empty and mark == version == 0):
        raise ArchiveError(
            f"archive {name}: this is a database of something else; choose another file", reason="version"
        )
    if version > VERSION:
        raise ArchiveError(
            f"archive {name}: its tables are of version {version}, this program knows up to {VERSION}; "
            "use a newer pywaku",
            reason="version",
        )
    return version


def check(connection: sqlite3.Connection, name: str, full_bytes: int = FULL_CHECK_BYTES) -> None:
    """Raise where the file is damaged; of files beyond `full_bytes` only the ends of table and indexes."""
    pages, size = connection.execute(
        "SELECT page_count, page_size FROM pragma_page_count, pragma_page_size"
    ).fetchone()
    if pages * size <= full_bytes:
        found: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise ArchiveError(
                f"archive {name}: it is damaged ({found}); restore a copy, or move it away to start anew",
                reason="corrupt",
            )
        return
    for statement in _ENDS:
        for direction in ("ASC", "DESC"):
            connection.execute(f"{statement} {direction} LIMIT 1").fetchone()


def _upgrade(connection: sqlite3.Connection, name: str) -> None:
    connection.execute("BEGIN EXCLUSIVE")
    try:
        version = _identify(connection, name)  # again: another process may have been faster
        if version == 0:
            _create(connection)
        for step in _STEPS[version - 1 :] if version else ():
            step(connection)
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _create(connection: sqlite3.Connection) -> None:
    for statement in (*_TABLES, *_INDEXES):
        connection.execute(statement)
    connection.execute("INSERT INTO totals VALUES (0)")


def _from_1_to_2(connection: sqlite3.Connection) -> None:
    """Version 1 had the topics themselves in its indexes, and counted its rows whenever it had to know."""
    connection.execute("ALTER TABLE messages RENAME TO messages_1")
    connection.execute("DROP INDEX messages_by_topic")
    connection.execute("DROP INDEX messages_by_time")
    for statement in _TABLES:
        connection.execute(statement)
    connection.create_function("topic_key", 2, topic_key, deterministic=True)
    connection.execute("INSERT INTO pubsub_topics (name) SELECT DISTINCT pubsub_topic FROM messages_1")
    connection.execute(
        """INSERT INTO messages
        SELECT NULL, old.message_hash, old.timestamp, p.id, topic_key(old.pubsub_topic, old.content_topic),
            old.content_topic, old.payload, old.meta, old.version, old.rate_limit_proof, old.flags,
            old.received
        FROM messages_1 AS old JOIN pubsub_topics AS p ON p.name = old.pubsub_topic
        ORDER BY old.timestamp, old.message_hash"""
    )
    connection.execute("INSERT INTO totals SELECT count(*) FROM messages")
    connection.execute("DROP TABLE messages_1")
    for statement in _INDEXES:
        connection.execute(statement)


_STEPS: Final[tuple[Callable[[sqlite3.Connection], None], ...]] = (_from_1_to_2,)
"""The step at n - 1 leads from version n to n + 1."""
