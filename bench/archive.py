"""The archive: inserts against the bare driver, and what a page costs as the archive grows."""

from __future__ import annotations

import os
import sqlite3
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from bench.report import Row, compare
from bench.sides import Scale
from pywaku.archive import Archive, ArchiveQuery, StoredMessage, open_archive
from pywaku.archive.sqlite import changes, schema
from pywaku.message import WakuMessage
from tests.support.postgres import PostgresServer, running_postgres, why_no_postgres

_INSERTED = 20_000
_BATCH = 500
_INSERT_SIZE = 1_024
_PAGE_MESSAGE_SIZE = 200
_PAGE = 10
_PAGES_ASKED = 300
SIZES = {"10k": 10_000, "100k": 100_000, "1m": 1_000_000}
LONG_SIZES = {"10k": 10_000, "10m": 10_000_000}
_PUBSUB_TOPIC = "/waku/2/rs/42/0"
_START_NS = 1_700_000_000_000_000_000
_STEP_NS = 10_000_000


def _messages(first: int, count: int, size: int, topics: int) -> list[StoredMessage]:
    payload = os.urandom(size)
    return [
        StoredMessage.of(
            _PUBSUB_TOPIC,
            WakuMessage(
                payload,
                f"/pywaku/1/bench-{number % topics}/proto",
                timestamp_ns=_START_NS + number * _STEP_NS,
            ),
            _START_NS,
        )
        for number in range(first, first + count)
    ]


def _batches(messages: list[StoredMessage]) -> Iterator[list[StoredMessage]]:
    for start in range(0, len(messages), _BATCH):
        yield messages[start : start + _BATCH]


async def _ours(url: str, messages: list[StoredMessage]) -> float:
    async with open_archive(url, retention="none") as archive:
        start = time.perf_counter()
        for batch in _batches(messages):
            await archive.insert(batch)
        return len(messages) / (time.perf_counter() - start)


def _bare_sqlite(path: Path, messages: list[StoredMessage]) -> float:
    """The same rows, made beforehand, into the same tables, with nothing but the driver."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA cache_size = -32768")
        schema.prepare(connection, "bare")
        batches = [changes.rows_of(connection, batch, {_PUBSUB_TOPIC: 1}) for batch in _batches(messages)]
        statement = changes.INSERT.partition(" ON CONFLICT")[0]
        start = time.perf_counter()
        for rows in batches:
            connection.execute("BEGIN")
            connection.executemany(statement, rows)
            connection.execute("COMMIT")
        return len(messages) / (time.perf_counter() - start)


async def insert_sqlite(scale: Scale) -> list[Row]:
    """Messages of 1 KB in batches of 500, as a ratio to `executemany` on prepared rows."""
    messages = _messages(0, scale.of(_INSERTED), _INSERT_SIZE, topics=50)
    ours: list[float] = []
    bare: list[float] = []
    for number in range(scale.rounds + 1):
        with TemporaryDirectory() as directory:
            ours.append(await _ours(f"sqlite://{directory}/ours.sqlite3", messages))
        with TemporaryDirectory() as directory:
            bare.append(await trio.to_thread.run_sync(_bare_sqlite, Path(directory) / "bare", messages))
        if number == 0:  # warm-up
            ours.clear()
            bare.clear()
    return [_inserts("archive-insert-sqlite", ours, bare, "bare sqlite3 executemany")]


def _bare_postgres(url: str, messages: list[StoredMessage]) -> float:
    """The same columns, made beforehand, into the same tables, with nothing but the driver."""
    import psycopg

    from pywaku.archive.postgres import changes as postgres_changes
    from pywaku.archive.postgres import schema as postgres_schema

    with psycopg.connect(url, autocommit=True) as connection:
        postgres_schema.prepare(connection, "bare")
        numbers = {postgres_schema.partition_of(message.timestamp_ns) for message in messages}
        postgres_schema.create_partitions(connection, "bare", numbers)
        batches = [postgres_changes.columns_of(batch, {_PUBSUB_TOPIC: 1}) for batch in _batches(messages)]
        statement = postgres_changes.INSERT.partition(b" ON CONFLICT")[0]
        start = time.perf_counter()
        for columns in batches:
            connection.execute(statement, columns)
        return len(messages) / (time.perf_counter() - start)


async def insert_postgres(scale: Scale) -> list[Row]:
    """The same with PostgreSQL; the bare side sends a batch as one statement too."""
    reason = why_no_postgres()
    if reason is not None:
        print(f"not measuring archive-insert-postgres: {reason}", file=sys.stderr)
        return []
    messages = _messages(0, scale.of(_INSERTED), _INSERT_SIZE, topics=50)
    ours: list[float] = []
    bare: list[float] = []
    async with _postgres() as server:
        for number in range(scale.rounds + 1):
            ours.append(await _ours(server.create_schema(), messages))
            bare.append(await trio.to_thread.run_sync(_bare_postgres, server.create_schema(), messages))
            if number == 0:
                ours.clear()
                bare.clear()
    return [_inserts("archive-insert-postgres", ours, bare, "bare psycopg INSERT of arrays")]


@asynccontextmanager
async def _postgres() -> AsyncGenerator[PostgresServer]:
    running = running_postgres()
    server = await trio.to_thread.run_sync(running.__enter__)
    try:
        yield server
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(running.__exit__, None, None, None)


def _inserts(name: str, ours: list[float], bare: list[float], peer: str) -> Row:
    return compare(
        name,
        ours=statistics.median(ours),
        theirs=statistics.median(bare),
        peer=peer,
        goal=0.7,
        unit="messages/s",
    )


def page_names(sizes: Iterable[str]) -> tuple[str, ...]:
    """The rows of archives of these sizes."""
    return tuple(f"store-page-{page}-{size}" for size in sizes for page in ("first", "1000th"))


async def pages(scale: Scale) -> list[Row]:
    """The first and the 1000th page of a content topic, in archives of growing size; flat within 2×."""
    sizes = dict(SIZES)
    if scale.work < 1:
        del sizes["1m"]
    return await _pages(scale, sizes)


async def pages_long(scale: Scale) -> list[Row]:
    """The same with ten million messages, which takes a while to fill and some 6 GB of disk."""
    return await _pages(scale, LONG_SIZES)


async def _pages(scale: Scale, sizes: dict[str, int]) -> list[Row]:
    rows: list[Row] = []
    base: float | None = None
    for label, size in sizes.items():
        with TemporaryDirectory() as directory:
            async with open_archive(f"sqlite://{directory}/store.sqlite3", retention="none") as archive:
                cursor = await _fill(archive, size)
                for page, start in (("first", None), ("1000th", cursor)):
                    taken = await _page_time(archive, start, scale.of(_PAGES_ASKED))
                    rows.append(
                        compare(
                            f"store-page-{page}-{label}",
                            ours=taken * 1e6,
                            theirs=None if base is None else base * 1e6,
                            peer=None if base is None else "first page of 10k",
                            goal=None if base is None else 0.5,
                            unit="µs",
                            less_is_better=True,
                        )
                    )
                    base = taken if base is None else base
    return rows


async def _fill(archive: Archive, size: int) -> bytes:
    """Messages of one content topic; returns the hash of the last one of page 999."""
    cursor = b""
    for first in range(0, size, _BATCH):
        batch = _messages(first, min(_BATCH, size - first), _PAGE_MESSAGE_SIZE, topics=1)
        await archive.insert(batch)
        last = 999 * _PAGE - 1 - first
        if 0 <= last < len(batch):
            cursor = batch[last].message_hash
    return cursor


async def _page_time(archive: Archive, cursor: bytes | None, count: int) -> float:
    """Seconds that a page takes: the median of many."""
    query = ArchiveQuery(_PUBSUB_TOPIC, ("/pywaku/1/bench-0/proto",), cursor=cursor, limit=_PAGE)
    times: list[float] = []
    for _ in range(20):  # warm-up
        await archive.query(query)
    for _ in range(max(20, count)):
        start = time.perf_counter()
        page = await archive.query(query)
        times.append(time.perf_counter() - start)
        assert len(page.messages) == _PAGE
    return statistics.median(times)
