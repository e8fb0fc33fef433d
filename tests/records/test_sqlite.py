"""Records in an SQLite file: the file, its versions, its plans, and what happens when a disk fails."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from pywaku.errors import RecordError
from pywaku.messaging.records import Change, Changed, RecorderOptions, Retention, open_recorder
from pywaku.messaging.records.sqlite import (
    SqliteRecordStore,
    open_sqlite_records,
    pruning,
    queries,
    schema,
    writer,
)
from pywaku.messaging.records.sqlite.bulk import select_in, write_rows
from pywaku.messaging.records.sqlite.recent import Recent
from pywaku.messaging.records.sqlite.rows import Entry, hash_key, request_key
from tests.support.records import (
    PUBSUB_TOPIC,
    SECOND_NS,
    START_NS,
    TOPIC,
    adding,
    guid,
    hash_of,
    receiving,
    record,
)


@asynccontextmanager
async def _opened(path: Path, retention: Retention | None = None) -> AsyncGenerator[SqliteRecordStore]:
    store = await open_sqlite_records(path, retention)
    try:
        yield store
    finally:
        await store.close()


def _connection(store: SqliteRecordStore) -> sqlite3.Connection:
    return store._writer.connection


# The file


async def test_the_file_tells_what_it_is(path: Path) -> None:
    async with _opened(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (0x57414B52,)
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)


async def test_closing_leaves_one_file(path: Path) -> None:
    async with _opened(path) as store:
        await store.apply([adding(1)])
        assert len(list(path.parent.iterdir())) == 5
    assert list(path.parent.iterdir()) == [path]


async def test_what_was_accepted_and_not_applied_outlives_a_close(path: Path) -> None:
    async with _opened(path) as store:
        for number in range(3):
            store.accept(record(number, number))
        await store.apply([adding(0), adding(2)])
    async with _opened(path) as store:
        assert store.counters.replayed == 2  # one is there already, and not added again
        assert [found.request_id for found in await store.pending()] == [guid(0), guid(2), guid(1)]
    async with _opened(path) as store:
        assert store.counters.replayed == 0
        assert len(await store.pending()) == 3


async def test_sends_that_were_finished_and_pruned_are_not_taken_up_again(path: Path) -> None:
    store = await open_sqlite_records(path, Retention(max_age_s=1))
    for number in range(5):
        store.accept(record(number, number))
    await store.apply([adding(number) for number in range(5)])
    await store.apply([Change(hash_of(n), START_NS, request_id=guid(n), sent=True) for n in range(5)])
    assert await store.prune(START_NS + 100 * SECOND_NS) == 5
    copies = {found: found.read_bytes() for found in path.parent.iterdir()}  # as if it were killed here
    await store.close()
    for found, data in copies.items():
        found.write_bytes(data)
    async with _opened(path) as store:
        assert store.counters.replayed == 0
        assert await store.by_content_topic(TOPIC) == []


async def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    async with _opened(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(RecordError, match=r"records\.sqlite3.*version 99.*newer pywaku") as caught:
        await open_sqlite_records(path)
    assert caught.value.reason == "version"
    assert list(path.parent.iterdir()) == [path]


async def test_a_database_of_something_else_is_refused_and_not_touched(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE message (id BLOB)")
    before = path.read_bytes()
    with pytest.raises(RecordError, match="something else"):
        await open_sqlite_records(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


async def _shape(path: Path) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            "SELECT type, name, sql FROM sqlite_schema WHERE sql NOT NULL ORDER BY name"
        ).fetchall()


async def test_an_older_version_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _opened(path) as store:
        await store.apply([adding(1)])
    steps: list[int] = []

    def add_column(connection: sqlite3.Connection) -> None:
        steps.append(connection.execute("PRAGMA user_version").fetchone()[0])
        connection.execute("ALTER TABLE fetched ADD COLUMN note TEXT")

    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    monkeypatch.setattr(schema, "_STEPS", (*schema._STEPS, add_column))
    for _ in range(2):
        async with _opened(path) as store:
            assert len(await store.pending()) == 1
    assert steps == [schema.VERSION - 1]
    assert any("note TEXT" in sql for *_, sql in await _shape(path))


async def test_an_upgrade_that_fails_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _opened(path) as store:
        await store.apply([adding(1)])
    before = await _shape(path)

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DROP INDEX records_by_hash")
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(schema, "VERSION", schema.VERSION + 1)
        patch.setattr(schema, "_STEPS", (*schema._STEPS, fail))
        with pytest.raises(RecordError, match="full"):
            await open_sqlite_records(path)
    assert await _shape(path) == before
    async with _opened(path) as store:
        assert len(await store.pending()) == 1


async def test_a_damaged_file_is_refused_by_name(path: Path) -> None:
    async with _opened(path) as store:
        await store.apply([adding(number, size=200) for number in range(2_000)])
    whole = path.read_bytes()
    for start, length in ((0, 64), (4096 * 12, 4096 * 10)):
        path.write_bytes(whole[:start] + b"\xff" * length + whole[start + length :])
        with pytest.raises(RecordError, match=r"records\.sqlite3.*damaged") as caught:
            await open_sqlite_records(path)
        assert caught.value.reason == "corrupt"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecordError, match=r"records\.sqlite3"):
        await open_sqlite_records(path)
    path.write_bytes(whole)
    async with _opened(path) as store:
        assert len(await store.pending()) == 2_000


async def test_of_a_large_file_the_ends_are_checked(path: Path) -> None:
    async with _opened(path) as store:
        await store.apply([adding(number, size=200) for number in range(2_000)])
    with closing(sqlite3.connect(path)) as connection:
        schema.check(connection, "it", full_bytes=0)
        root: int = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'records_by_time'"
        ).fetchone()[0]
    with path.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xff" * 4096)
    with closing(sqlite3.connect(path)) as connection, pytest.raises(sqlite3.DatabaseError):
        schema.check(connection, "it", full_bytes=0)


async def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for where in (tmp_path / "nowhere" / "records.sqlite3", tmp_path / "file" / "records.sqlite3", tmp_path):
        with pytest.raises(RecordError, match=str(where)) as caught:
            await open_sqlite_records(where)
        assert caught.value.reason == "cannot-open"


# Trouble while it runs


async def test_a_full_disk_is_an_error_and_nothing_of_the_batch_is_applied(path: Path) -> None:
    batch = [adding(number, size=1_000) for number in range(500)]
    async with _opened(path) as store:
        await store.apply([receiving(1_000, "a")])
        limit: int = _connection(store).execute("PRAGMA page_count").fetchone()[0] + 2
        _connection(store).execute(f"PRAGMA max_page_count = {limit}")
        for number in range(500):
            store.accept(record(number, number, size=1_000))
        changes = [*batch, Change(hash_of(1_000), 5, stored=True, subscription_ids=("b",))]
        for _ in range(2):
            with pytest.raises(RecordError, match=r"records\.sqlite3.*full") as caught:
                await store.apply(changes)
            assert caught.value.reason == "disk-full"
            assert await store.pending() == []
            (known,) = await store.by_content_topic(TOPIC)
            assert not known.stored
            assert await store.by_subscription_id("b") == []
        assert store.counters.errors == {"disk-full": 2}
        assert store.counters.applied == 1
        _connection(store).execute("PRAGMA max_page_count = 1000000")
        assert len(await store.apply(changes)) == 501
        assert len(await store.pending()) == 500
        assert len(await store.by_subscription_id("b")) == 1


async def test_names_of_a_batch_that_failed_are_added_with_the_next(path: Path) -> None:
    batch = [adding(number, size=1_000, content_topic=f"/{number % 3}/1/b/c") for number in range(500)]
    async with _opened(path) as store:
        limit: int = _connection(store).execute("PRAGMA page_count").fetchone()[0] + 2
        _connection(store).execute(f"PRAGMA max_page_count = {limit}")
        with pytest.raises(RecordError):
            await store.apply(batch)
        _connection(store).execute("PRAGMA max_page_count = 1000000")
        await store.apply([adding(1, content_topic="/another/1/b/c")])  # it would get one of the numbers
        await store.apply(batch)
        for topic, count in (("/another/1/b/c", 1), ("/0/1/b/c", 167), ("/2/1/b/c", 166)):
            assert len(await store.by_content_topic(topic)) == count


async def test_a_file_that_cannot_be_written_is_an_error_and_still_answers(path: Path) -> None:
    async with _opened(path) as store:
        await store.apply([adding(1)])
        _connection(store).execute("PRAGMA query_only = ON")
        with pytest.raises(RecordError, match="cannot be written") as caught:
            await store.apply([adding(2)])
        assert caught.value.reason == "read-only"
        with pytest.raises(RecordError, match="cannot be written"):
            await store.note_fetched(PUBSUB_TOPIC, [TOPIC], 1)
        assert len(await store.by_content_topic(TOPIC)) == 1


async def test_a_lock_of_another_program_is_an_error_and_readers_read_on(path: Path) -> None:
    async with _opened(path) as store:
        await store.apply([adding(1)])
        _connection(store).execute("PRAGMA busy_timeout = 1")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(RecordError, match="locked") as caught:
                await store.apply([adding(2)])
            assert caught.value.reason == "locked"
            assert len(await store.pending()) == 1
            other.execute("ROLLBACK")
        assert len(await store.apply([adding(2)])) == 1


async def test_the_event_loop_does_not_wait_for_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, go = threading.Event(), threading.Event()

    def slow(*arguments: object) -> None:
        began.set()
        assert go.wait(60)

    async with _opened(path) as store:
        await store.apply([adding(1)])
        monkeypatch.setattr(writer, "write_rows", slow)
        done: list[str] = []

        async def apply() -> None:
            await store.apply([adding(2)])
            done.append("applied")

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(apply)
                assert await trio.to_thread.run_sync(began.wait, 60)
                store.accept(record(3, 3))
                assert len(await store.pending()) == 1  # readers do not wait either
                done.append("read")
                go.set()
        finally:
            go.set()
        assert done == ["read", "applied"]


# The index of recent messages


async def test_changes_to_messages_long_gone_from_memory_are_looked_up(path: Path) -> None:
    async with _opened(path) as store:
        store._writer.recent = Recent(max_messages=10)
        await store.apply([adding(number) for number in range(100)])
        before = store.counters.looked_up
        told = await store.apply(
            [Change(hash_of(number), 7, request_id=guid(number), sent=True) for number in range(100)]
        )
        assert store.counters.looked_up - before == 90
        assert [change.after.request_id for change in told] == [guid(number) for number in range(100)]
        assert all(change.before is not None and change.before.sending for change in told)


async def test_hashes_that_share_a_key_are_told_apart(path: Path) -> None:
    first = hash_of(1)
    second = first[:8] + bytes(24)
    assert hash_key(first) == hash_key(second)
    async with _opened(path) as store:
        twin = receiving(2).record
        assert twin is not None
        for _ in range(2):
            store._writer.recent = Recent()
            await store.apply(
                [
                    receiving(1),
                    *[receiving(number) for number in range(10, 80)],
                    Change(second, 1, replace(twin, message_hash=second), stored=True),
                ]
            )
        assert [found.message_hash for found in await store.all_by_hash(first)] == [first]
        assert [found.message_hash for found in await store.all_by_hash(second)] == [second]
        assert await store.missing([first, second]) == [second]


def test_recent_keeps_within_its_bounds() -> None:
    recent = Recent(max_messages=3, max_bytes=1 << 20)
    for number in range(5):
        recent.put(hash_of(number), (Entry(number, record(number), ()),))
    recent.put(hash_of(2), (Entry(2, record(2), ()),))
    recent.put(hash_of(9), (Entry(9, record(9), ()),))
    assert [recent.get(hash_of(n)) is not None for n in (1, 2, 3, 4, 9)] == [False, True, False, True, True]
    for number in range(20):
        recent.put(hash_of(number), (Entry(number, record(number, size=400_000), ()),))
    assert len(recent) == 2
    recent.put(hash_of(1), ())
    for number in range(20):
        recent.drop(hash_of(number))
    assert len(recent) == recent._bytes == 0


def test_keys_of_guids_are_in_their_order() -> None:
    numbers = [0, 1 << 64, 5 << 64, 1 << 100, (1 << 127) - 1, (1 << 128) - 1]
    keys = [request_key(guid(number)) for number in numbers]
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    for other in ("", "no guid", "-1", "0" * 64, "f" * 64, "-" * 20):
        assert -(1 << 63) <= request_key(other) < 1 << 63


@pytest.mark.parametrize("count", [0, 1, 7, 8, 63, 64, 65, 200])
def test_rows_go_in_few_statements(count: int) -> None:
    statements: list[str] = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
        connection.set_trace_callback(statements.append)
        rows = [(number, str(number)) for number in range(count)]
        write_rows(connection, "INSERT INTO t VALUES", rows)
        connection.set_trace_callback(None)
        assert connection.execute("SELECT * FROM t").fetchall() == rows
        assert len(statements) == count // 64 + count % 64 // 8 + count % 8
        keys = [number * 2 for number in range(count)]
        found = select_in(connection, "SELECT a FROM t WHERE a IN", keys)
        assert sorted(found) == [(number,) for number in keys if number < count]


# Retention


async def test_names_go_with_the_last_record_that_bears_them(path: Path) -> None:
    async with _opened(path, Retention(max_age_s=None, max_records=1)) as store:
        await store.apply([receiving(1, "a"), receiving(2, "a", "b", content_topic="/x/1/y/z")])
        await store.note_fetched(PUBSUB_TOPIC, ["/fetched/1/y/z"], 1)

        def names() -> list[str]:
            rows = _connection(store).execute("SELECT name FROM names ORDER BY name").fetchall()
            return [name for (name,) in rows]

        assert names() == sorted(["/fetched/1/y/z", PUBSUB_TOPIC, TOPIC, "/x/1/y/z", "a", "b"])
        assert await store.prune(START_NS) == 1
        assert names() == sorted(["/fetched/1/y/z", PUBSUB_TOPIC, "/x/1/y/z", "a", "b"])
        await store.apply([receiving(3, "c")])
        assert await store.prune(START_NS) == 1
        assert names() == sorted(["/fetched/1/y/z", PUBSUB_TOPIC, TOPIC, "c"])
        assert [found.message_hash for found in await store.by_subscription_id("c")] == [hash_of(3)]


async def test_changes_get_their_turn_between_the_steps_of_retention(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "STEP", 10)
    order: list[str] = []
    async with _opened(path, Retention(max_age_s=None, max_records=1)) as store:
        await store.apply([receiving(number) for number in range(200)])
        async with trio.open_nursery() as nursery:

            async def prune() -> None:
                await store.prune(START_NS)
                order.append("pruned")

            async def apply(number: int) -> None:
                await store.apply([adding(number)])
                order.append("applied")

            nursery.start_soon(prune)
            await trio.testing.wait_all_tasks_blocked()
            for number in range(5):
                nursery.start_soon(apply, 1_000 + number)
        assert order == ["applied"] * 5 + ["pruned"]


async def test_space_of_what_was_pruned_goes_back_to_the_file_system(path: Path) -> None:
    async with _opened(path, Retention(max_age_s=None, max_records=10)) as store:
        batch = [Change.adding(record(number, size=4_000)) for number in range(2_000)]
        await store.apply(batch)
        assert await store.prune(START_NS) == 1_990
        total = _connection(store).execute("SELECT records FROM totals").fetchone()
        assert total == _connection(store).execute("SELECT count(*) FROM states").fetchone() == (10,)
    assert path.stat().st_size < 3_000_000


# What a query costs


def _plan(connection: sqlite3.Connection, statement: str) -> list[str]:
    rows = connection.execute("EXPLAIN QUERY PLAN " + statement, [1] * statement.count("?")).fetchall()
    return [row[3] for row in rows]


@pytest.mark.parametrize(
    "statement",
    [
        queries.BY_REQUEST,
        queries.BY_HASH,
        queries.BY_CONTENT,
        queries.BY_SUBSCRIPTION,
        queries.PENDING,
        queries.KNOWN_OF + " (?, ?, ?)",
        queries.KNOWN_SINCE,
        queries.FETCHED,
        writer._LOOK_UP + " (?, ?, ?)",
        pruning._TOO_OLD,
        pruning._TOO_MANY,
        pruning._DELETE_RECEIPTS + "(?, ?)",
    ],
)
def test_every_statement_walks_an_index_in_the_order_of_its_answer(statement: str) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        schema.prepare(connection, "it")
        plan = _plan(connection, statement)
        assert not [step for step in plan if "TEMP B-TREE" in step or "AUTOMATIC" in step]
        scans = [step for step in plan if step.startswith("SCAN")]
        # Read from end to end are a page, the keys of a list, the index of what is pending: all short.
        short = ("SCAN page", "SCAN states USING INDEX states_pending")
        assert not [step for step in scans if not step.startswith(short)]


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


async def test_queries_and_changes_cost_the_same_however_many_records_there_are(path: Path) -> None:
    async with _opened(path) as store:
        connection = _connection(store)
        costs: list[list[int]] = []
        for size in (200, 20_000):
            for start in range(0, size, 1_000):
                await store.apply([receiving(n, "a") for n in range(start, min(start + 1_000, size))])
            await store.apply([adding(size + 1), receiving(size + 1, "a")])
            asked = size // 2
            costs.append(
                [
                    _steps(connection, work)
                    for work in (
                        lambda number=size + 1: queries.select_by_request_id(connection, guid(number)),
                        lambda number=asked: queries.select_by_hash(connection, hash_of(number)),
                        lambda: queries.select_by_content_topic(connection, TOPIC, 0, 20),
                        lambda: queries.select_by_subscription_id(connection, "a", 0, 20),
                        lambda: queries.select_pending(connection),
                        lambda: queries.select_known_since(connection, 0, 20),
                        lambda: queries.select_missing(connection, [hash_of(n) for n in range(20)]),
                        lambda number=size + 5: store._writer.apply([adding(number)], 0),
                        lambda number=size + 5: store._writer.apply([receiving(number, "a")], 0),
                    )
                ]
            )
            await store.apply([Change(hash_of(size + n), 1, received=True, sent=True) for n in (1, 5)])
        few, many = costs
        assert [more < 1.5 * less for less, more in zip(few, many, strict=True)] == [True] * len(few)


async def test_a_reader_goes_on_while_changes_are_made(path: Path) -> None:
    async with _opened(path) as store:
        await store.apply([adding(number) for number in range(500)])
        deadline = time.monotonic() + 60
        counts: list[int] = []
        async with trio.open_nursery() as nursery:

            async def apply() -> None:
                for start in range(500, 2_500, 100):
                    await store.apply([adding(number) for number in range(start, start + 100)])
                nursery.cancel_scope.cancel()

            nursery.start_soon(apply)
            while time.monotonic() < deadline:
                counts.append(len(await store.by_content_topic(TOPIC)))
        assert counts == sorted(counts)
        assert all(count % 100 == 0 for count in counts)  # whole batches, or none of them


# Under the recorder


async def test_a_recorder_rides_out_a_full_disk(path: Path) -> None:
    options = RecorderOptions(first_delay_s=0.01, max_delay_s=0.01)
    told: list[Changed] = []
    async with _opened(path) as store, open_recorder(store, told.extend, options) as recorder:
        limit: int = _connection(store).execute("PRAGMA page_count").fetchone()[0]
        _connection(store).execute(f"PRAGMA max_page_count = {limit}")
        for number in range(100):
            recorder.accept(record(number, number, size=1_000))
        while not recorder.counters.failures:
            await trio.sleep(0.001)
        assert recorder.counters.failures.keys() == {"disk-full"}
        async with store._writing:
            _connection(store).execute("PRAGMA max_page_count = 1000000")
        await recorder.flush()
        assert [change.after.request_id for change in told] == [guid(number) for number in range(100)]
        assert await store.pending() == [change.after for change in told]


async def test_accepted_sends_outlive_a_recorder_whose_store_fails_to_the_end(path: Path) -> None:
    async with _opened(path) as store:
        async with open_recorder(store, lambda told: None, RecorderOptions(closing_s=0.05)) as recorder:
            async with store._writing:
                _connection(store).execute("PRAGMA query_only = ON")
            for number in range(10):
                recorder.accept(record(number, number))
        assert recorder.counters.lost == 10
    async with _opened(path) as store:
        assert store.counters.replayed == 10
        assert [found.request_id for found in await store.pending()] == [guid(n) for n in range(10)]
