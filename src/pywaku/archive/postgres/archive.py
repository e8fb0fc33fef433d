"""The archive in PostgreSQL: one connection that writes, a few that read, one that clears away, in threads.

An insert is one statement, and so a transaction. What it has acknowledged survives what the server's
settings (`fsync`, `synchronous_commit`) say, which by default includes a power cut.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
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
from pywaku.archive.postgres import changes, queries, schema
from pywaku.archive.postgres.connections import Connection, Lane, Server
from pywaku.errors import ArchiveError

READERS: Final = 3

T = TypeVar("T")


class _Lanes:
    """Lanes of one purpose, each used by one task at a time."""

    def __init__(self, server: Server, count: int) -> None:
        self.lanes = [Lane(server) for _ in range(count)]
        self.idle = list(self.lanes)
        self.turn = trio.Semaphore(count)

    @asynccontextmanager
    async def borrow(self) -> AsyncGenerator[Lane]:
        """A lane, when there is one."""
        async with self.turn:
            lane = self.idle.pop()
            try:
                yield lane
            finally:
                self.idle.append(lane)


class PostgresArchive:
    """The port on a PostgreSQL database, which other nodes may use at the same time."""

    def __init__(self, server: Server) -> None:
        self.name = server.name
        self._server = server
        self._counters = ArchiveCounters()
        self._writing = _Lanes(server, 1)
        self._reading = _Lanes(server, READERS)
        self._clearing = _Lanes(server, 1)
        self._threads = trio.CapacityLimiter(READERS + 2)
        self._known = changes.Known()
        self._closed = False

    @property
    def counters(self) -> ArchiveCounters:
        """What has happened so far."""
        lanes = [*self._writing.lanes, *self._reading.lanes, *self._clearing.lanes]
        self._counters.reconnects = sum(lane.reconnects for lane in lanes)
        return self._counters

    async def prepare(self) -> None:
        """Connect, and see to the tables."""
        await self._run(self._writing, lambda connection: schema.prepare(connection, self.name))

    async def insert(self, messages: Sequence[StoredMessage]) -> int:
        """Keep the messages, in one transaction."""
        if not messages:
            return 0
        start = time.perf_counter()
        new = await self._run(
            self._writing,
            lambda connection: changes.insert_messages(connection, self.name, messages, self._known),
        )
        counters = self._counters
        counters.inserts += 1
        counters.inserted += new
        counters.duplicates += len(messages) - new
        counters.insert_seconds += time.perf_counter() - start
        return new

    async def query(self, query: ArchiveQuery) -> ArchivePage:
        """The page."""
        start = time.perf_counter()
        page = await self._run(
            self._reading,
            lambda connection: queries.select_page(connection, query, self._known.pubsub_ids),
        )
        self._counters.queries += 1
        self._counters.query_seconds += time.perf_counter() - start
        return page

    async def stats(self) -> ArchiveStats:
        """What is kept now."""
        return await self._run(self._reading, queries.select_stats)

    async def retain(self, policy: RetentionPolicy, now_ns: int) -> int:
        """Remove what the policy does not keep: whole partitions first, then what is left in short steps.

        By size only whole partitions go. Partitions for the time to come are made on the way.
        """
        number = schema.partition_of(now_ns)
        await self._clear(lambda c: schema.create_partitions(c, self.name, (number, number + 1)))
        removed = 0
        oldest = policy.oldest_kept_ns(now_ns)
        if oldest is not None:
            removed += await self._drop(lambda c, _: changes.drop_before(c, oldest))
            removed += await self._remove(lambda c, _: changes.remove_oldest(c, before=(oldest, b"")))
        most_messages, most_bytes = policy.max_messages, policy.max_bytes
        if most_messages is not None:
            excess = await self._clear(changes.count_messages) - most_messages
            dropped = await self._drop(lambda c, gone: changes.drop_beyond_count(c, excess - gone))
            removed += dropped
            removed += await self._remove(lambda c, gone: changes.remove_oldest(c, excess - dropped - gone))
        if most_bytes is not None:
            removed += await self._drop(lambda c, _: changes.drop_beyond_size(c, most_bytes))
        await self._drop(lambda c, _: changes.drop_empty(c, number - 1))
        return removed

    async def close(self) -> None:
        """Close the connections once they are idle."""
        if self._closed:
            return
        self._closed = True
        with trio.CancelScope(shield=True):
            for lanes in (self._writing, self._reading, self._clearing):
                for _ in lanes.lanes:
                    await lanes.turn.acquire()  # and never released
                for lane in lanes.lanes:
                    await trio.to_thread.run_sync(lane.close, limiter=self._threads)

    async def _drop(self, work: Callable[[Connection, int], int | None]) -> int:
        """Do the work, which drops a partition, until there is no further one; how many messages went.

        The work is told how many have gone so far.
        """
        total = 0
        while (gone := await self._clear(partial(_told, work, total))) is not None:
            total += gone
            self._counters.removed += gone
        return total

    async def _remove(self, work: Callable[[Connection, int], int]) -> int:
        total = 0
        while gone := await self._clear(partial(_told, work, total)):
            total += gone
            self._counters.removed += gone
        return total

    async def _clear(self, work: Callable[[Connection], T]) -> T:
        return await self._run(self._clearing, work)

    async def _run(self, lanes: _Lanes, work: Callable[[Connection], T]) -> T:
        self._require_open()
        async with lanes.borrow() as lane:
            self._require_open()  # it may have been closed while this call waited for its turn
            try:
                return await trio.to_thread.run_sync(lane.run, work, limiter=self._threads)
            except ArchiveError as error:
                self._counters.count_error(error.reason)
                raise

    def _require_open(self) -> None:
        if self._closed:
            raise ArchiveError(f"archive {self.name} is closed", reason="closed")


def _told(work: Callable[[Connection, int], T], total: int, connection: Connection) -> T:
    return work(connection, total)


async def open_postgres(url: str) -> PostgresArchive:
    """Connect to the database, and create its tables or bring them up to date. It is to be closed."""
    archive = PostgresArchive(Server(url))
    try:
        await archive.prepare()
    except BaseException:
        await archive.close()
        raise
    return archive
