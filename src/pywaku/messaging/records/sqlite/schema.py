"""The tables of the records, their versions, and what is checked when a file is opened.

The version is the file's `user_version`, the mark that it holds records its `application_id`. A file of an
older version is brought up to date in one transaction; one of a newer version is refused.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from typing import Final

from pywaku.errors import RecordError
from pywaku.messaging.records.sqlite.errors import clear_errors

VERSION: Final = 1
APPLICATION_ID: Final = int.from_bytes(b"WAKR", "big")
FULL_CHECK_BYTES: Final = 256 << 20
"""Up to this size the whole file is checked when it is opened, which reads all of it."""

# What a message is lies in `records` and is written once, what is known of it in `states` and is written
# over in place: a change writes a few bytes, however large the message. Rows are numbered in the order of
# arrival, and so are the entries of every index but that of hashes: inserts append.
_TABLES: Final = (
    """CREATE TABLE names (
        id INTEGER PRIMARY KEY,
        kind INTEGER NOT NULL,
        name TEXT NOT NULL,
        UNIQUE (kind, name)
    )""",
    """CREATE TABLE records (
        id INTEGER PRIMARY KEY,
        hash_key INTEGER NOT NULL,
        request_key INTEGER,
        pubsub INTEGER NOT NULL,
        content INTEGER NOT NULL,
        created INTEGER NOT NULL,
        message_hash BLOB NOT NULL,
        request_id TEXT,
        timestamp INTEGER,
        version INTEGER,
        ephemeral INTEGER,
        meta BLOB,
        rate_limit_proof BLOB,
        payload BLOB NOT NULL
    )""",
    """CREATE TABLE states (
        id INTEGER PRIMARY KEY,
        flags INTEGER NOT NULL,
        attempts INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        error TEXT,
        places BLOB
    )""",
    """CREATE TABLE receipts (
        subscription INTEGER NOT NULL,
        place INTEGER NOT NULL,
        record INTEGER NOT NULL,
        PRIMARY KEY (subscription, place)
    ) WITHOUT ROWID""",
    """CREATE TABLE fetched (
        content INTEGER NOT NULL,
        pubsub INTEGER NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY (content, pubsub)
    ) WITHOUT ROWID""",
    """CREATE TABLE totals (
        records INTEGER NOT NULL,
        accepted INTEGER NOT NULL,
        identity BLOB NOT NULL
    )""",
)
_INDEXES: Final = (
    "CREATE INDEX records_by_hash ON records (hash_key)",
    "CREATE INDEX records_by_request ON records (request_key) WHERE request_key IS NOT NULL",
    "CREATE INDEX records_by_content ON records (content)",
    "CREATE INDEX records_by_time ON records (created)",
    "CREATE INDEX states_pending ON states (id) WHERE flags & 1",
)
_ENDS: Final = (
    "SELECT * FROM records ORDER BY id",
    "SELECT * FROM states ORDER BY id",
    "SELECT hash_key FROM records INDEXED BY records_by_hash ORDER BY hash_key",
    "SELECT content FROM records INDEXED BY records_by_content ORDER BY content",
    "SELECT created FROM records INDEXED BY records_by_time ORDER BY created",
    "SELECT * FROM receipts ORDER BY subscription",
)


def prepare(connection: sqlite3.Connection, name: str) -> None:
    """Check the file, then create its tables or bring them up to date; one of another kind is left alone."""
    with clear_errors(name):
        version = _identify(connection, name)
        if version == VERSION:
            check(connection, name)
        elif version:  # all of it is about to be read anyway
            check(connection, name, full_bytes=sys.maxsize)
        else:  # this shapes new files, and comes before anything is written
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if version < VERSION:
            _upgrade(connection, name)


def _identify(connection: sqlite3.Connection, name: str) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    mark: int = connection.execute("PRAGMA application_id").fetchone()[0]
    empty: bool = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    if mark != APPLICATION_ID and not (empty and mark == version == 0):
        raise RecordError(
            f"records {name}: this is a database of something else; choose another file", reason="version"
        )
    if version > VERSION:
        raise RecordError(
            f"records {name}: its tables are of version {version}, this program knows up to {VERSION}; "
            "use a newer pywaku",
            reason="version",
        )
    return version


def check(connection: sqlite3.Connection, name: str, full_bytes: int = FULL_CHECK_BYTES) -> None:
    """Raise where the file is damaged; of files beyond `full_bytes` only the ends of tables and indexes."""
    pages, size = connection.execute(
        "SELECT page_count, page_size FROM pragma_page_count, pragma_page_size"
    ).fetchone()
    if pages * size <= full_bytes:
        found: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise RecordError(
                f"records {name}: it is damaged ({found}); restore a copy, or move it away to start anew",
                reason="corrupt",
            )
        return
    for statement in _ENDS:
        for direction in ("ASC", "DESC"):
            connection.execute(f"{statement} {direction} LIMIT 1").fetchone()


def _upgrade(connection: sqlite3.Connection, name: str) -> None:
    connection.execute("BEGIN EXCLUSIVE")
    try:
        version = _identify(connection, name)
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
    connection.execute("INSERT INTO totals VALUES (0, 0, ?)", (os.urandom(16),))


_STEPS: tuple[Callable[[sqlite3.Connection], None], ...] = ()
"""The step at n - 1 leads from version n to n + 1."""
