"""Records in an SQLite file: one connection that writes, two that read, all of them in threads.

The file is in WAL mode: readers see the last commit while the writer writes, and neither waits for the
other. A commit is a write to the log, not yet forced to the disk: it outlives the process however that
ends, while a power cut may take the last of them away (never damage the file).
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import trio

from pywaku.archive.sqlite.changes import give_back_pages
from pywaku.errors import RecordError
from pywaku.files import create_private
from pywaku.journal import RunBlocking
from pywaku.messaging.record import MessageRecord, RequestId, SubscriptionId
from pywaku.messaging.records.port import (
    Change,
    Changed,
    RecordCounters,
    Retention,
    require_page,
    require_text,
)
from pywaku.messaging.records.sqlite import queries
from pywaku.messaging.records.sqlite.errors import clear_error, clear_errors
from pywaku.messaging.records.sqlite.intents import Intents
from pywaku.messaging.records.sqlite.pruning import Pruning
from pywaku.messaging.records.sqlite.recent import Recent
from pywaku.messaging.records.sqlite.schema import prepare
from pywaku.messaging.records.sqlite.writer import Writer

_log = logging.getLogger(__name__)

BUSY_TIMEOUT_MS: Final = 5_000
"""How long a lock of another program is waited for."""
READERS: Final = 2
_WRITER_CACHE_KIB: Final = 32 * 1024
_READER_CACHE_KIB: Final = 8 * 1024
_LOG_PAGES: Final = 4_000
"""How long the log gets before a commit takes it into the file. Pages of the index of hashes come often."""
_LOG_LIMIT: Final = 64 << 20
_REPLAYED_AT_ONCE: Final = 1_000

T = TypeVar("T")


class SqliteRecordStore:
    """The port on an SQLite file, and two small ones beside it for what `accept` made sure of."""

    def __init__(
        self,
        name: str,
        writer: Writer,
        readers: Sequence[sqlite3.Connection],
        intents: Intents,
        retention: Retention,
        counters: RecordCounters,
        run_blocking: RunBlocking | None,
    ) -> None:
        self.name = name
        self.counters = counters
        self._writer = writer
        self._readers = list(readers)
        self._idle = list(readers)
        self._intents = intents
        self._retention = retention
        self._run_blocking = run_blocking
        self._taken = 0
        self._writing = trio.Lock()
        self._reading = trio.Semaphore(len(self._readers))
        self._threads = trio.CapacityLimiter(1 + len(self._readers))
        self._closed = False

    def accept(self, record: MessageRecord) -> None:
        """Make sure of a send at once, by a write to the file beside the database."""
        self._require_open()
        try:
            self._intents.accept(record)
        except RecordError as error:
            self.counters.count_error(error.reason)
            raise
        self.counters.accepted += 1

    async def apply(self, changes: Sequence[Change]) -> list[Changed]:
        """Make the changes, in one transaction."""
        if not changes:
            return []
        self._require_open()
        async with self._writing:
            added = {change.request_id for change in changes if change.record and change.request_id}
            taken = self._intents.taken_with(added)
            told = await self._run(lambda: self._writer.apply(changes, taken if taken > self._taken else 0))
            self._taken = taken
            self._intents.forget(added, taken)
            return told

    async def by_request_id(self, request_id: RequestId) -> MessageRecord | None:
        """The record of a send."""
        return await self._read(lambda connection: queries.select_by_request_id(connection, request_id))

    async def by_hash(self, message_hash: bytes) -> MessageRecord | None:
        """The (oldest) record of a message."""
        found = await self._read(lambda connection: queries.select_by_hash(connection, message_hash, 1))
        return found[0] if found else None

    async def all_by_hash(self, message_hash: bytes) -> list[MessageRecord]:
        """Every record of a message."""
        return await self._read(lambda connection: queries.select_by_hash(connection, message_hash))

    async def by_content_topic(
        self, content_topic: str, skip: int = 0, take: int | None = None
    ) -> list[MessageRecord]:
        """The records of a content topic."""
        require_page(skip, take)
        return await self._read(
            lambda connection: queries.select_by_content_topic(connection, content_topic, skip, take)
        )

    async def by_subscription_id(
        self, subscription_id: SubscriptionId, skip: int = 0, take: int | None = None
    ) -> list[MessageRecord]:
        """What was received under a subscription."""
        require_page(skip, take)
        return await self._read(
            lambda connection: queries.select_by_subscription_id(connection, subscription_id, skip, take)
        )

    async def missing(self, hashes: Sequence[bytes]) -> list[bytes]:
        """Those that have not been received."""
        return await self._read(lambda connection: queries.select_missing(connection, hashes))

    async def known_since(self, since_ns: int, limit: int) -> list[bytes]:
        """The latest received."""
        return await self._read(lambda connection: queries.select_known_since(connection, since_ns, limit))

    async def pending(self) -> list[MessageRecord]:
        """The sends that are not finished."""
        return await self._read(queries.select_pending)

    async def fetched_until(self, pubsub_topic: str, content_topic: str) -> int | None:
        """Up to when messages of the topics have been fetched."""
        return await self._read(
            lambda connection: queries.select_fetched_until(connection, pubsub_topic, content_topic)
        )

    async def note_fetched(self, pubsub_topic: str, content_topics: Sequence[str], until_ns: int) -> None:
        """Note up to when they have been fetched."""
        require_text(pubsub_topic, *content_topics)
        topics = list(dict.fromkeys(content_topics))
        await self._write(lambda: self._writer.note_fetched(pubsub_topic, topics, until_ns))

    async def prune(self, now_ns: int) -> int:
        """Remove what retention does not keep; changes get their turn after each step."""
        pruning = Pruning(self._writer, self._retention, now_ns)
        removed = 0
        for step in (pruning.remove_too_old, pruning.remove_too_many):
            while gone := await self._write(step):
                removed += gone
                self.counters.pruned += gone
        if removed:
            await self._write(pruning.finish)
        while await self._write(lambda: give_back_pages(self._writer.connection)):
            pass
        return removed

    async def close(self) -> None:
        """Close the connections once they are idle; the last one takes the log into the file."""
        if self._closed:
            return
        self._closed = True
        with trio.CancelScope(shield=True):
            for _ in self._readers:
                await self._reading.acquire()
            async with self._writing:
                for connection in (*self._readers, self._writer.connection):
                    await self._do(connection.close)
                self._intents.close()

    async def _write(self, work: Callable[[], T]) -> T:
        self._require_open()
        async with self._writing:
            return await self._run(work)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._require_open()
        async with self._reading:
            connection = self._idle.pop()
            try:
                return await self._run(lambda: work(connection))
            finally:
                self._idle.append(connection)

    async def _run(self, work: Callable[[], T]) -> T:
        self._require_open()  # it may have been closed while this call waited for its turn
        try:
            return await self._do(work)
        except sqlite3.Error as error:
            clear = clear_error(self.name, error)
            self.counters.count_error(clear.reason)
            raise clear from error

    async def _do(self, work: Callable[[], T]) -> T:
        run_blocking = self._run_blocking
        if run_blocking is None:
            return await trio.to_thread.run_sync(work, limiter=self._threads)
        results: list[T] = []
        with trio.CancelScope(shield=True):  # a connection is not left in the middle of something
            results.append(await run_blocking(work))
        return results[0]

    def _require_open(self) -> None:
        if self._closed:
            self.counters.count_error("closed")
            raise RecordError(f"records {self.name} are closed", reason="closed")


async def open_sqlite_records(
    path: Path | str, retention: Retention | None = None, *, run_blocking: RunBlocking | None = None
) -> SqliteRecordStore:
    """Open the file, after a check of what is in it, with what was accepted and is not in it yet.

    The disk is read and written in threads, or by `run_blocking` where that is given.
    It is to be closed. Raises `RecordError` where another process has it open, and where it cannot be used.
    """
    if run_blocking is None:
        return await trio.to_thread.run_sync(_open, str(path), retention or Retention(), None)
    return await run_blocking(lambda: _open(str(path), retention or Retention(), run_blocking))


def _open(path: str, retention: Retention, run_blocking: RunBlocking | None) -> SqliteRecordStore:
    intents = Intents(path, path)
    connections: list[sqlite3.Connection] = []
    try:
        with clear_errors(path):
            create_private(path)
            connection = _connect(path, connections, _WRITER_CACHE_KIB)
            prepare(connection, path)
            connection.execute(f"PRAGMA journal_size_limit = {_LOG_LIMIT}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
            counters = RecordCounters()
            writer = Writer(connection, Recent(), counters)
            _replay(writer, intents, counters)
            readers = [_connect(path, connections, _READER_CACHE_KIB) for _ in range(READERS)]
            for reader in readers:
                reader.execute("PRAGMA query_only = ON")
        return SqliteRecordStore(path, writer, readers, intents, retention, counters, run_blocking)
    except BaseException:
        for connection in connections:
            connection.close()
        intents.abandon()
        raise


def _replay(writer: Writer, intents: Intents, counters: RecordCounters) -> None:
    identity, taken = writer.connection.execute("SELECT identity, accepted FROM totals").fetchone()
    found = intents.replay(identity, taken)
    for start in range(0, len(found), _REPLAYED_AT_ONCE):
        some = found[start : start + _REPLAYED_AT_ONCE]
        writer.apply([Change.adding(record) for _, record in some], some[-1][0])
    if found:
        counters.replayed = len(found)
        _log.info("accepted sends taken up again records=%s sends=%d", intents.name, len(found))
    intents.restart(identity)


def _connect(path: str, connections: list[sqlite3.Connection], cache_kib: int) -> sqlite3.Connection:
    # A connection goes from thread to thread, but is never in two at once. Nothing is asked of the file yet.
    connection = sqlite3.connect(
        str(Path(path)), timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
    )
    connections.append(connection)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")
    return connection
