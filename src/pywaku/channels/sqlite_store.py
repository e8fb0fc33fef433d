"""Channels in an SQLite file: rows of tables by key, one transaction per step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import trio

from pywaku.archive.sqlite.errors import why
from pywaku.channels.rows import Row, RowChange
from pywaku.channels.store import Scope
from pywaku.errors import RecordError
from pywaku.files import create_private
from pywaku.journal import RunBlocking, in_thread

VERSION: Final = 1
APPLICATION_ID: Final = int.from_bytes(b"WAKC", "big")
_SCOPE: Final = "scope "
_TABLE: Final = "table "

T = TypeVar("T")


async def open_channel_store(
    path: Path | str, *, run_blocking: RunBlocking = in_thread
) -> SqliteChannelStore:
    """The store in a file, created if need be; it is to be closed.

    Raises `RecordError` where another process has it open, and where it is damaged or something else.
    """
    name = str(path)
    connection = await run_blocking(lambda: _open(name))
    return SqliteChannelStore(name, connection, run_blocking)


class SqliteChannelStore:
    """The port on an SQLite file in WAL mode, which no other process may open meanwhile."""

    def __init__(self, name: str, connection: sqlite3.Connection, run_blocking: RunBlocking) -> None:
        self.name = name
        self._connection = connection
        self._run_blocking = run_blocking
        self._lock = trio.Lock()
        self._closed = False
        self._scopes: dict[Scope, int] = {}
        self._tables: dict[str, int] = {}

    async def load(self, scope: Scope) -> list[Row]:
        """All rows of a scope."""
        return await self._run(lambda: self._load(scope))

    async def apply(self, scope: Scope, changes: Sequence[RowChange]) -> None:
        """Make the changes, in one transaction."""
        if changes:
            await self._run(lambda: self._apply(scope, changes))

    async def forget(self, scope: Scope) -> None:
        """Remove them."""
        await self._run(lambda: self._forget(scope))

    async def close(self) -> None:
        """Close the file."""
        with trio.CancelScope(shield=True):
            async with self._lock:
                if not self._closed:
                    self._closed = True
                    await self._run_blocking(self._connection.close)

    async def _run(self, work: Callable[[], T]) -> T:
        # A transaction that has begun is seen to its end, whoever gives up waiting for it.
        with trio.CancelScope(shield=True):
            async with self._lock:
                if self._closed:
                    raise RecordError(f"channels {self.name}: closed", reason="closed")
                return await self._run_blocking(lambda: _clear(self.name, work))
        raise AssertionError("a shielded scope is not left otherwise")

    # In a thread

    def _load(self, scope: Scope) -> list[Row]:
        found = self._connection.execute(
            "SELECT names.name, rows.key, rows.value FROM rows JOIN names ON names.id = rows.place "
            "WHERE rows.scope = (SELECT id FROM names WHERE name = ?)",
            (_SCOPE + scope,),
        )
        return [Row(table.removeprefix(_TABLE), key, value) for table, key, value in found]

    def _apply(self, scope: Scope, changes: Sequence[RowChange]) -> None:
        with self._transaction():
            place = self._name(self._scopes, scope, _SCOPE)
            last: dict[tuple[int, str], bytes | None] = {}
            for table, key, value in changes:
                last[self._name(self._tables, table, _TABLE), key] = value
            self._connection.executemany(
                "DELETE FROM rows WHERE scope = ? AND place = ? AND key = ?",
                [(place, table, key) for (table, key), value in last.items() if value is None],
            )
            self._connection.executemany(
                "INSERT INTO rows VALUES (?, ?, ?, ?) "
                "ON CONFLICT (scope, place, key) DO UPDATE SET value = excluded.value",
                [(place, table, key, value) for (table, key), value in last.items() if value is not None],
            )

    def _forget(self, scope: Scope) -> None:
        with self._transaction():
            self._connection.execute(
                "DELETE FROM rows WHERE scope = (SELECT id FROM names WHERE name = ?)", (_SCOPE + scope,)
            )
            self._connection.execute("DELETE FROM names WHERE name = ?", (_SCOPE + scope,))
        self._scopes.pop(scope, None)

    @contextmanager
    def _transaction(self) -> Generator[None]:
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            self._scopes.clear()
            self._tables.clear()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _name(self, known: dict[str, int], name: str, kind: str) -> int:
        """Names are long and often the same: rows have a number instead."""
        number = known.get(name)
        if number is None:
            self._connection.execute("INSERT OR IGNORE INTO names (name) VALUES (?)", (kind + name,))
            found = self._connection.execute("SELECT id FROM names WHERE name = ?", (kind + name,)).fetchone()
            number = known[name] = found[0]
        return number


def _open(name: str) -> sqlite3.Connection:
    def opening() -> sqlite3.Connection:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        create_private(name)
        connection = sqlite3.connect(name, timeout=1.0, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection, name)
        except BaseException:
            connection.close()
            raise
        return connection

    return _clear(name, opening)


def _prepare(connection: sqlite3.Connection, name: str) -> None:
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    _version(connection, name)  # before anything is written, for it may be somebody else's
    connection.execute("PRAGMA journal_mode = WAL").fetchone()
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("BEGIN EXCLUSIVE")
    version = _version(connection, name)
    if version == 0:
        connection.execute("CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)")
        connection.execute(
            "CREATE TABLE rows (scope INTEGER NOT NULL, place INTEGER NOT NULL, key TEXT NOT NULL, "
            "value BLOB NOT NULL, PRIMARY KEY (scope, place, key))"
        )
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("COMMIT")
    found: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise RecordError(
            f"channels {name}: it is damaged ({found}); restore a copy, or move it away to start anew",
            reason="corrupt",
        )


def _version(connection: sqlite3.Connection, name: str) -> int:
    """The version of the tables, 0 where there are none yet."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    mark: int = connection.execute("PRAGMA application_id").fetchone()[0]
    empty: bool = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0
    if mark != APPLICATION_ID and not (empty and mark == version == 0):
        raise RecordError(
            f"channels {name}: this is a database of something else; choose another file", reason="version"
        )
    if version > VERSION:
        raise RecordError(
            f"channels {name}: its tables are of version {version}, this program knows up to {VERSION}; "
            "use a newer pywaku",
            reason="version",
        )
    return version


def _clear(name: str, work: Callable[[], T]) -> T:
    """Do it, and say in words what goes wrong."""
    try:
        return work()
    except sqlite3.Error as error:
        reason, words = why(error)
        if reason == "locked":
            words = "another process has it open; each node needs a file of its own"
        raise RecordError(f"channels {name}: {words}", reason=reason) from error
    except OSError as error:
        raise RecordError(f"channels {name}: {error}", reason="cannot-open") from error
