"""The archive in an SQLite file: one connection that writes, a few that read, all of them in threads.

The file is in WAL mode: readers see the last commit while the writer writes, and neither waits for the
other. A commit is a write to the log, not yet forced to the disk: it outlives the process however that
ends, while a power cut may take the last of them away (never damage the file).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import trio

from pywaku.archive.port import (
    ArchiveCounters,
    ArchivePage,
    ArchiveQuery,
    ArchiveStats,
    RetentionPolicy,
    StoredMessage,
)
from pywaku.archive.sqlite import changes, queries
from pywaku.archive.sqlite.errors import clear_error, clear_errors
from pywaku.archive.sqlite.schema import prepare
from pywaku.errors import ArchiveError

BUSY_TIMEOUT_MS: Final = 5_000
"""How long a lock of another process is waited for."""
READERS: Final = 3
_WRITER_CACHE_KIB: Final = 32 * 1024
_READER_CACHE_KIB: Final = 8 * 1024
_LOG_LIMIT: Final = 64 << 20

T = TypeVar("T")


class SqliteArchive:
    """The port on an SQLite file (or on memory, which has one connection for everything)."""

    def __init__(self, name: str, writer: sqlite3.Connection, readers: Sequence[sqlite3.Connection]) -> None:
        self.name = name
        self.counters = ArchiveCounters()
        self._writer = writer
        self._readers = list(readers)
        self._idle = list(readers)
        self._pubsub_ids: dict[str, int] = {}
        self._writing = trio.Lock()
        self._reading = trio.Semaphore(len(self._readers)) if self._readers else self._writing
        self._threads = trio.CapacityLimiter(1 + len(self._readers))
        self._closed = False

    async def insert(self, messages: Sequence[StoredMessage]) -> int:
        """Keep the messages, in one transaction."""
        if not messages:
            return 0
        start = time.perf_counter()
        new = await self._write(lambda: changes.insert_messages(self._writer, messages, self._pubsub_ids))
        self.counters.inserts += 1
        self.counters.inserted += new
        self.counters.duplicates += len(messages) - new
        self.counters.insert_seconds += time.perf_counter() - start
        return new

    async def query(self, query: ArchiveQuery) -> ArchivePage:
        """The page, from the last commit."""
        start = time.perf_counter()
        page = await self._read(lambda connection: queries.select_page(connection, query))
        self.counters.queries += 1
        self.counters.query_seconds += time.perf_counter() - start
        return page

    async def stats(self) -> ArchiveStats:
        """What is kept now."""
        return await self._read(queries.select_stats)

    async def retain(self, policy: RetentionPolicy, now_ns: int) -> int:
        """Remove what the policy does not keep; inserts get their turn after each step."""
        steps: list[Callable[[], int]] = []
        oldest = policy.oldest_kept_ns(now_ns)
        most_messages, most_bytes = policy.max_messages, policy.max_bytes
        if oldest is not None:
            steps.append(lambda: changes.remove_before(self._writer, (oldest, b"")))
        if most_messages is not None:
            steps.append(lambda: changes.remove_beyond_count(self._writer, most_messages))
        if most_bytes is not None:
            steps.append(lambda: changes.remove_beyond_size(self._writer, most_bytes))
        removed = 0
        for step in steps:
            while gone := await self._write(step):
                removed += gone
                self.counters.removed += gone
        while await self._write(lambda: changes.give_back_pages(self._writer)):
            pass
        return removed

    async def close(self) -> None:
        """Close the connections once they are idle; the last one takes the log into the file."""
        self._closed = True
        with trio.CancelScope(shield=True):
            for _ in self._readers:
                await self._reading.acquire()
            async with self._writing:
                connections = [*self._readers, self._writer]
                self._readers.clear()
                for connection in connections:
                    await trio.to_thread.run_sync(connection.close, limiter=self._threads)

    async def _write(self, work: Callable[[], T]) -> T:
        self._require_open()
        async with self._writing:
            return await self._run(work)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._require_open()
        async with self._reading:
            if not self._idle:
                return await self._run(lambda: work(self._writer))
            connection = self._idle.pop()
            try:
                return await self._run(lambda: work(connection))
            finally:
                self._idle.append(connection)

    async def _run(self, work: Callable[[], T]) -> T:
        self._require_open()  # it may have been closed while this call waited for its turn
        try:
            return await trio.to_thread.run_sync(work, limiter=self._threads)
        except sqlite3.Error as error:
            clear = clear_error(self.name, error)
            self.counters.count_error(clear.reason)
            raise clear from error
        except ArchiveError as error:
            self.counters.count_error(error.reason)
            raise

    def _require_open(self) -> None:
        if self._closed:
            raise ArchiveError(f"archive {self.name} is closed", reason="closed")


async def open_sqlite(path: str) -> SqliteArchive:
    """Open the file (`:memory:` for none), after a check of what is in it. It is to be closed."""
    return await trio.to_thread.run_sync(_open, path)


def _open(path: str) -> SqliteArchive:
    name = f"sqlite://{path}"
    connections: list[sqlite3.Connection] = []
    try:
        with clear_errors(name):
            writer = _connect(path, connections, _WRITER_CACHE_KIB)
            prepare(writer, name)
            writer.execute(f"PRAGMA journal_size_limit = {_LOG_LIMIT}")
            if path == ":memory:":
                return SqliteArchive(name, writer, ())
            readers = [_connect(path, connections, _READER_CACHE_KIB) for _ in range(READERS)]
            for reader in readers:
                reader.execute("PRAGMA query_only = ON")
            return SqliteArchive(name, writer, readers)
    except BaseException:
        for connection in connections:
            connection.close()
        raise


def _connect(path: str, connections: list[sqlite3.Connection], cache_kib: int) -> sqlite3.Connection:
    # A connection goes from thread to thread, but is never in two at once. Nothing is asked of the file yet.
    where = path if path == ":memory:" else str(Path(path))
    connection = sqlite3.connect(
        where, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
    )
    connections.append(connection)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    return connection
