"""The SQLite archive: its file, its locks, its plans, and what happens when a disk does not do its work."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from pywaku.archive import ArchiveQuery, RetentionPolicy, StoredMessage, WriterOptions, open_archive_writer
from pywaku.archive.sqlite import SqliteArchive, changes, open_sqlite, queries, schema
from pywaku.errors import ArchiveError
from pywaku.message import WakuMessage
from tests.support.archives import (
    PUBSUB_TOPIC,
    START_NS,
    MemoryArchive,
    pages,
    series,
    stored,
    write_sqlite_version_1,
)

TOPIC = "/test/1/archive/proto"


@asynccontextmanager
async def _opened(path: Path) -> AsyncGenerator[SqliteArchive]:
    archive = await open_sqlite(str(path))
    try:
        yield archive
    finally:
        await archive.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file of a test is to be."""
    return tmp_path / "store.sqlite3"


async def _tables(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            "SELECT type, sql FROM sqlite_schema WHERE sql NOT NULL ORDER BY sql"
        ).fetchall()


# The file


async def test_the_file_tells_what_it_is(path: Path) -> None:
    async with _opened(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (0x57414B55,)
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA page_size").fetchone() == (schema.PAGE_SIZE,)
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)


async def test_closing_leaves_one_file(path: Path) -> None:
    async with _opened(path) as archive:
        await archive.insert(series(10))
        assert len(list(path.parent.iterdir())) == 3
    assert list(path.parent.iterdir()) == [path]


async def test_a_file_of_version_1_is_brought_up_to_date(path: Path) -> None:
    rng = random.Random(1)
    messages = [
        StoredMessage.of(
            f"/waku/2/rs/42/{rng.randrange(3)}",
            WakuMessage(
                rng.randbytes(20),
                f"/test/1/{rng.randrange(5)}/proto",
                timestamp_ns=rng.choice((None, START_NS + rng.randrange(50))),
                meta=rng.choice((None, b"meta")),
                ephemeral=rng.choice((None, False)),
            ),
            rng.randrange(1 << 60),
        )
        for _ in range(300)
    ]
    model = MemoryArchive()
    model.insert_now(messages)
    write_sqlite_version_1(path, messages)
    for _ in range(2):
        async with _opened(path) as archive:
            for query in (
                ArchiveQuery(limit=30),
                ArchiveQuery("/waku/2/rs/42/1", ("/test/1/0/proto", "/test/1/3/proto"), limit=10),
                ArchiveQuery(hashes=tuple(message.message_hash for message in messages[:50])),
            ):
                assert await pages(archive, query) == await pages(model, query)
            assert (await archive.stats()).messages == 300
            assert await archive.insert(messages) == 0
    fresh = path.with_name("fresh.sqlite3")
    async with _opened(fresh):
        pass
    assert await _tables(path) == await _tables(fresh)


async def test_an_upgrade_that_fails_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sqlite_version_1(path, series(10))
    before = await _tables(path)

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DROP INDEX messages_by_topic")
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(schema, "_STEPS", (fail,))
    with pytest.raises(ArchiveError, match="full"):
        await open_sqlite(str(path))
    monkeypatch.undo()
    assert await _tables(path) == before
    async with _opened(path) as archive:
        assert (await archive.stats()).messages == 10


async def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    async with _opened(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(ArchiveError, match=r"store\.sqlite3.*version 99.*newer pywaku") as caught:
        await open_sqlite(str(path))
    assert caught.value.reason == "version"


async def test_a_database_of_something_else_is_refused_and_not_touched(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE message (id BLOB)")
    before = path.read_bytes()
    with pytest.raises(ArchiveError, match="something else"):
        await open_sqlite(str(path))
    assert path.read_bytes() == before


async def test_a_damaged_file_is_refused_by_name(path: Path) -> None:
    async with _opened(path) as archive:
        await archive.insert(series(2_000, size=200))
    whole = path.read_bytes()
    for start, length in ((0, 64), (schema.PAGE_SIZE * 4, schema.PAGE_SIZE * 10)):
        path.write_bytes(whole[:start] + b"\xff" * length + whole[start + length :])
        with pytest.raises(ArchiveError, match=r"store\.sqlite3.*damaged") as caught:
            await open_sqlite(str(path))
        assert caught.value.reason == "corrupt"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ArchiveError, match=r"store\.sqlite3"):
        await open_sqlite(str(path))
    path.write_bytes(whole)
    async with _opened(path) as archive:
        assert (await archive.stats()).messages == 2_000


async def test_of_a_large_file_the_ends_are_checked(path: Path) -> None:
    async with _opened(path) as archive:
        await archive.insert(series(2_000, size=200))
    with closing(sqlite3.connect(path)) as connection:
        schema.check(connection, "it", full_bytes=0)
        root: int = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'messages_by_time'"
        ).fetchone()[0]
    with path.open("r+b") as file:
        file.seek((root - 1) * schema.PAGE_SIZE)
        file.write(b"\xff" * schema.PAGE_SIZE)
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.DatabaseError):
        schema.check(connection, "it", full_bytes=0)


async def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    for where in (tmp_path / "nowhere" / "store.sqlite3", tmp_path):
        with pytest.raises(ArchiveError, match=str(where)) as caught:
            await open_sqlite(str(where))
        assert caught.value.reason == "cannot-open"


# Trouble while it runs


async def test_a_full_disk_is_an_error_until_there_is_room_again(path: Path) -> None:
    async with _opened(path) as archive:
        await archive.insert(series(10))
        pages_now: int = archive._writer.execute("PRAGMA page_count").fetchone()[0]
        archive._writer.execute(f"PRAGMA max_page_count = {pages_now + 2}")
        with pytest.raises(ArchiveError, match=r"store\.sqlite3.*full") as caught:
            await archive.insert(series(1_000, size=1_000))
        assert caught.value.reason == "disk-full"
        assert archive.counters.errors == {"disk-full": 1}
        assert len((await archive.query(ArchiveQuery())).messages) == 10  # all or nothing
        archive._writer.execute("PRAGMA max_page_count = 1000000")
        assert await archive.insert(series(1_000, size=1_000)) == 1_000


async def test_a_new_pubsub_topic_survives_the_failure_of_its_first_insert(path: Path) -> None:
    async with _opened(path) as archive:
        limit: int = archive._writer.execute("PRAGMA page_count").fetchone()[0]
        archive._writer.execute(f"PRAGMA max_page_count = {limit + 1}")
        with pytest.raises(ArchiveError):
            await archive.insert(series(1_000, size=1_000))
        archive._writer.execute("PRAGMA max_page_count = 1000000")
        await archive.insert([stored(1, pubsub_topic="/waku/2/rs/1/1"), stored(2)])
        for topic in ("/waku/2/rs/1/1", PUBSUB_TOPIC):
            assert len((await archive.query(ArchiveQuery(topic))).messages) == 1


async def test_a_file_that_cannot_be_written_is_an_error_and_still_answers(path: Path) -> None:
    async with _opened(path) as archive:
        await archive.insert(series(10))
        archive._writer.execute("PRAGMA query_only = ON")
        with pytest.raises(ArchiveError, match="cannot be written") as caught:
            await archive.insert([stored(99)])
        assert caught.value.reason == "read-only"
        with pytest.raises(ArchiveError, match="cannot be written"):
            await archive.retain(RetentionPolicy(max_messages=1), START_NS)
        assert archive.counters.errors == {"read-only": 2}
        assert len((await archive.query(ArchiveQuery())).messages) == 10


async def test_a_lock_of_another_process_is_an_error_and_readers_read_on(path: Path) -> None:
    async with _opened(path) as archive:
        await archive.insert(series(10))
        archive._writer.execute("PRAGMA busy_timeout = 1")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(ArchiveError, match="locked") as caught:
                await archive.insert([stored(99)])
            assert caught.value.reason == "locked"
            assert len((await archive.query(ArchiveQuery())).messages) == 10
            other.execute("ROLLBACK")
        assert await archive.insert([stored(99)]) == 1


class _FailingConnection(sqlite3.Connection):
    """Fails as SQLite does when the disk does: its transaction is over by then."""

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if "pubsub_topics" in sql:
            super().execute("ROLLBACK")
            raise sqlite3.OperationalError("disk I/O error")
        return super().execute(sql, *arguments)


async def test_a_disk_that_fails_while_it_is_read_is_named_as_such(path: Path) -> None:
    async with _opened(path) as archive:
        await archive.insert(series(3))
    with closing(sqlite3.connect(path, isolation_level=None, factory=_FailingConnection)) as connection:
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            queries.select_page(connection, ArchiveQuery())
        with pytest.raises(sqlite3.OperationalError, match="disk I/O error"):
            queries.select_stats(connection)


async def test_the_writer_rides_out_a_full_disk(path: Path) -> None:
    options = WriterOptions(first_delay_s=0.01, max_delay_s=0.01, attempts=1_000)
    async with _opened(path) as archive:
        limit: int = archive._writer.execute("PRAGMA page_count").fetchone()[0]
        archive._writer.execute(f"PRAGMA max_page_count = {limit}")
        async with open_archive_writer(archive, options, clock=lambda: START_NS) as writer:
            for stored_message in series(100, step_ns=1, size=1_000):
                assert writer.offer(PUBSUB_TOPIC, stored_message.message)
            while not writer.counters.failures:
                await trio.sleep(0.001)
            assert writer.counters.failures.keys() == {"disk-full"}
            async with archive._writing:
                archive._writer.execute("PRAGMA max_page_count = 1000000")
            await writer.flush()
        assert (await archive.stats()).messages == 100


# Who waits for whom


async def _blocked_write(
    archive: SqliteArchive, go: threading.Event, task_status: trio.TaskStatus[None], events: list[str]
) -> None:
    began = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def write() -> None:
        with changes.transaction(archive._writer):
            archive._writer.execute("UPDATE totals SET messages = messages + 1000")
            token.run_sync_soon(began.set)
            assert go.wait(60)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(archive._write, write)
        await began.wait()
        task_status.started()
    events.append("write done")


async def test_readers_do_not_wait_for_a_writer(path: Path) -> None:
    events: list[str] = []
    go = threading.Event()
    async with _opened(path) as archive:
        await archive.insert(series(10))

        async def insert() -> None:
            await archive.insert([stored(99)])
            events.append("insert done")

        try:
            async with trio.open_nursery() as nursery:

                async def write(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
                    await _blocked_write(archive, go, task_status, events)

                await nursery.start(write)
                nursery.start_soon(insert)  # this one has to wait
                async with trio.open_nursery() as readers:
                    for _ in range(20):
                        readers.start_soon(archive.query, ArchiveQuery(PUBSUB_TOPIC, (TOPIC,)))
                events.append("20 queries done")
                assert (await archive.stats()).messages == 10  # what has not been committed is not there
                go.set()
        finally:
            go.set()
        assert events == ["20 queries done", "write done", "insert done"]
        assert (await archive.stats()).messages == 1_011


async def test_inserts_get_their_turn_between_the_steps_of_retention(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "STEP_MESSAGES", 10)
    step, waiting = changes.remove_beyond_count, threading.Event()

    def slow_step(connection: sqlite3.Connection, most: int) -> int:
        waiting.wait(10)  # in its thread
        return step(connection, most)

    monkeypatch.setattr(changes, "remove_beyond_count", slow_step)
    order: list[str] = []
    async with _opened(path) as archive:
        await archive.insert(series(200))
        async with trio.open_nursery() as nursery:

            async def retain() -> None:
                await archive.retain(RetentionPolicy(max_messages=1), START_NS)
                order.append("retained")

            async def insert(number: int) -> None:
                await archive.insert([stored(number, timestamp_ns=START_NS + 1_000_000_000 + number)])
                order.append("inserted")

            nursery.start_soon(retain)
            await trio.testing.wait_all_tasks_blocked()
            for number in range(5):
                nursery.start_soon(insert, number)
            await trio.testing.wait_all_tasks_blocked()
            waiting.set()
        assert order == ["inserted"] * 5 + ["retained"]


async def test_pages_that_retention_freed_go_back_to_the_file_system(path: Path) -> None:
    async with _opened(path) as archive:
        await archive.insert(series(5_000, size=4_000))
        await archive.retain(RetentionPolicy(max_messages=100), START_NS)
        assert (await archive.stats()).bytes < 2_000_000
    assert path.stat().st_size < 6_000_000


# What a page costs


def _explain(connection: sqlite3.Connection, statement: str) -> str:
    count = statement.count("?")
    rows = connection.execute("EXPLAIN QUERY PLAN " + statement, ("",) * count).fetchall()
    return "; ".join(row[3] for row in rows)


def test_every_query_walks_an_index_in_the_order_of_its_answer() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.prepare(connection, "it")
        for ascending in (True, False):
            by_topic = _explain(connection, queries._BY_TOPIC[ascending])
            by_time = _explain(connection, queries._BY_TIME[ascending])
            bounds = "(timestamp,message_hash)>(?,?) AND (timestamp,message_hash)<(?,?)"
            assert by_topic == f"SEARCH messages USING INDEX messages_by_topic (topic_key=? AND {bounds})"
            assert by_time == f"SEARCH messages USING COVERING INDEX messages_by_time (pubsub=? AND {bounds})"
        assert "SCAN" not in _explain(connection, queries._BY_HASH) + _explain(connection, queries._DATA)


def _steps(connection: sqlite3.Connection, work: Callable[[], object]) -> int:
    """How many instructions SQLite's machine takes for the work."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    connection.set_progress_handler(step, 1)
    try:
        work()
    finally:
        connection.set_progress_handler(None, 1)
    return count


@pytest.mark.parametrize("topics", [0, 1, 5])
@pytest.mark.parametrize("ascending", [True, False])
def test_a_late_page_costs_what_the_first_one_costs(topics: int, ascending: bool) -> None:
    messages = [
        stored(i, timestamp_ns=START_NS + i, content_topic=f"/t/1/{i % 7}/proto") for i in range(7_000)
    ]
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.prepare(connection, "it")
        changes.insert_messages(connection, messages, {})
        content_topics = tuple(f"/t/1/{number}/proto" for number in range(topics))
        query = ArchiveQuery(PUBSUB_TOPIC, content_topics, ascending=ascending)
        first = _steps(connection, lambda: queries.select_page(connection, query))
        late = replace(query, cursor=messages[3_500].message_hash)
        assert _steps(connection, lambda: queries.select_page(connection, late)) < 1.2 * first
        few = replace(
            query, content_topics=content_topics or ("/t/1/0/proto",), pubsub_topic="/waku/2/rs/1/9"
        )
        assert _steps(connection, lambda: queries.select_page(connection, few)) < first
