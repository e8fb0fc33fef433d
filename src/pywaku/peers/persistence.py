"""The peer book on disk: one SQLite file. What is damaged in it is lost; the node starts all the same."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from pywaku.errors import InvalidInput, WakuError
from pywaku.ids import PeerId
from pywaku.peers.entry import Origin, PeerEntry
from pywaku.wire.enr import Enr
from pywaku.wire.multiaddr import Multiaddr

logger = logging.getLogger(__name__)

SCHEMA_VERSION: Final = 1
APPLICATION_ID: Final = 0x5741_4B50  # "WAKP": other programs' databases are left alone
_SCHEMA: Final = """
CREATE TABLE peers (
    peer BLOB PRIMARY KEY,
    origin TEXT NOT NULL,
    first_seen REAL NOT NULL,
    last_seen REAL NOT NULL,
    told TEXT NOT NULL,
    recorded TEXT NOT NULL,
    protocols TEXT,
    agent TEXT NOT NULL,
    cluster_id INTEGER,
    shards TEXT,
    record BLOB,
    failures INTEGER NOT NULL,
    retry_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""
_COLUMNS: Final = (
    "peer, origin, first_seen, last_seen, told, recorded, protocols, agent, cluster_id, shards, record, "
    "failures, retry_at"
)
_INSERT: Final = f"INSERT OR REPLACE INTO peers ({_COLUMNS}) VALUES ({', '.join('?' * 13)})"  # noqa: S608 (constants)
_SELECT: Final = f"SELECT {_COLUMNS} FROM peers ORDER BY last_seen DESC"  # noqa: S608 (constants)

_NOT_THE_FILE_S_FAULT: Final = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)

_Value = str | bytes | float | int | None


class PeerStore:
    """The open file. Its methods block, briefly, and raise `sqlite3.Error` when the disk does not play along.

    It may be used from any thread, by one at a time.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.unreadable = 0
        """Rows that made no sense and were passed over."""

    @classmethod
    def open(cls, path: Path | str) -> PeerStore:
        """Open the file, making it if there is none.

        A damaged one, or one of a later version, is set aside as `<name>.damaged` (one is kept) and replaced
        by an empty one. Raises `InvalidInput` for the database of another program, and `OSError` or
        `sqlite3.Error` where there can be no file.
        """
        path = Path(path)
        try:
            return cls(_open(path))
        except _UnusableError as error:
            aside = path.with_name(path.name + ".damaged")
            os.replace(path, aside)
            Path(f"{path}-journal").unlink(missing_ok=True)
            logger.warning("peer book set aside: file=%s aside=%s reason=%s", path, aside, error)
            return cls(_open(path))

    def load(self) -> Iterator[PeerEntry]:
        """The saved peers, those seen last first."""
        for row in self._connection.execute(_SELECT).fetchall():
            try:
                yield _entry(row)
            except (WakuError, ValueError, TypeError, AttributeError) as error:
                self.unreadable += 1
                logger.debug("saved peer passed over: error=%s", error)

    def save(self, entries: Iterable[PeerEntry], gone: Iterable[PeerId] = ()) -> None:
        """Save these peers and strike those out, all or nothing."""
        with self._connection:
            self._connection.executemany(_INSERT, [_row(entry) for entry in entries])
            self._connection.executemany(
                "DELETE FROM peers WHERE peer = ?", [(bytes(peer),) for peer in gone]
            )

    def fact(self, name: str) -> bytes | None:
        """What was noted under a name, such as this node's own record."""
        row = self._connection.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return row[0] if row is not None and isinstance(row[0], bytes) else None

    def note(self, name: str, value: bytes) -> None:
        """Note something under a name."""
        with self._connection:
            self._connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class _UnusableError(Exception):
    """The file is no peer book of this version."""


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False, timeout=2.0)
    connection.text_factory = _text  # one bad text spoils one row
    with _closed_on_error(connection):
        try:
            _prepare(connection, path)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF in _NOT_THE_FILE_S_FAULT:
                raise
            raise _UnusableError(str(error)) from error
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    application = _number(connection, "application_id")
    version = _number(connection, "user_version")
    with closing(connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")) as cursor:
        tables = {row[0] for row in cursor.fetchall()}
    if not tables:
        connection.executescript(
            f"BEGIN; {_SCHEMA} PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        )
        return
    if application != APPLICATION_ID and tables != {"peers", "facts"}:
        raise InvalidInput(f"{path} is a database, but no peer book: name another file")
    if application != APPLICATION_ID or version != SCHEMA_VERSION:
        raise _UnusableError(f"it has schema version {version}; this program knows {SCHEMA_VERSION}")
    with closing(connection.execute("PRAGMA quick_check(1)")) as cursor:
        found = cursor.fetchone()[0]
    if found != "ok":
        raise _UnusableError(str(found))
    connection.execute(f"{_SELECT} LIMIT 0").close()


def _number(connection: sqlite3.Connection, name: str) -> int:
    with closing(connection.execute(f"PRAGMA {name}")) as cursor:
        return int(cursor.fetchone()[0])


@contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Generator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _row(entry: PeerEntry) -> tuple[_Value, ...]:
    # Who is configured is a matter of the next start's configuration, not of this one's.
    origin = Origin.OUTBOUND if entry.origin.configured else entry.origin
    return (
        bytes(entry.peer),
        origin.value,
        entry.first_seen,
        entry.last_seen,
        _lines(map(str, entry.told)),
        _lines(map(str, entry.recorded)),
        None if entry.protocols is None else _lines(sorted(entry.protocols)),
        entry.agent,
        entry.cluster_id,
        None if entry.shards is None else _lines(map(str, sorted(entry.shards))),
        None if entry.record is None else entry.record.encode(),
        entry.failures,
        entry.retry_at,
    )


def _entry(row: tuple[_Value, ...]) -> PeerEntry:
    """Raises `WakuError`, `ValueError`, `TypeError` or `AttributeError` for a row that makes no sense."""
    (
        peer,
        origin,
        first,
        last,
        told,
        recorded,
        protocols,
        agent,
        cluster_id,
        shards,
        record,
        failures,
        retry,
    ) = row
    known = PeerId.from_bytes(_bytes(peer))
    enr = None if record is None else Enr.decode(_bytes(record))
    if enr is not None and enr.peer_id != known:
        raise ValueError("the node record is another peer's")
    return PeerEntry(
        known,
        Origin(origin),
        first_seen=float(first or 0),
        last_seen=float(last or 0),
        told=tuple(map(Multiaddr.parse, _split(told))),
        recorded=tuple(map(Multiaddr.parse, _split(recorded))),
        protocols=None if protocols is None else frozenset(_split(protocols)),
        agent=str(agent),
        cluster_id=None if cluster_id is None else int(cluster_id),
        shards=None if shards is None else frozenset(map(int, _split(shards))),
        capabilities=None if enr is None else enr.capabilities,
        record=enr,
        failures=int(failures or 0),
        retry_at=float(retry or 0),
    )


def _bytes(value: _Value) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("bytes are expected")
    return value


def _lines(values: Iterable[str]) -> str:
    return "\n".join(values)


def _split(value: _Value) -> list[str]:
    if not isinstance(value, str):
        raise TypeError("text is expected")
    return [line for line in value.split("\n") if line]


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
