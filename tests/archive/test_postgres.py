"""The PostgreSQL archive: partitions, versions, other nodes, and servers that come and go."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import pytest
import trio

pytest.importorskip("psycopg", reason="the package psycopg is not installed")

import psycopg
from psycopg.errors import lookup

from pywaku.archive import ArchiveQuery, RetentionPolicy
from pywaku.archive.postgres import PostgresArchive, changes, connections, open_postgres, queries, schema
from pywaku.archive.postgres.connections import Connection, Server
from pywaku.archive.postgres.errors import Redaction, clear_error
from pywaku.errors import ArchiveError
from tests.support.archives import PUBSUB_TOPIC, START_NS, pages, series, stored
from tests.support.postgres import PASSWORD, PostgresServer

T = TypeVar("T")

_HOUR = 3_600 * 1_000_000_000


@asynccontextmanager
async def _opened(url: str) -> AsyncGenerator[PostgresArchive]:
    opened = await open_postgres(url)
    try:
        yield opened
    finally:
        await opened.close()


async def _partitions(opened: PostgresArchive) -> list[int]:
    return await opened._run(opened._clearing, schema.list_partitions)


async def test_a_connection_that_cannot_be_set_up_is_closed(
    postgres_server: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold one of the server's places until it is collected."""
    monkeypatch.setattr(connections, "_SETTINGS", b"SET no_such_setting = on")
    name = f"{postgres_url}&application_name=unlucky"
    with pytest.raises(ArchiveError) as caught:
        async with _opened(name):
            pass
    assert isinstance(caught.value.__context__, psycopg.Error)  # and with it what holds the connection
    with trio.fail_after(5):
        while postgres_server.execute(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'unlucky' LIMIT 1"
        ):
            await trio.sleep(0.02)


async def test_a_topic_that_comes_between_two_statements_of_a_query_has_a_name(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = queries.select_pubsub_topics
    asked = 0

    def select(connection: Connection) -> dict[str, int]:
        nonlocal asked
        asked += 1
        return {} if asked == 1 else real(connection)

    async with _opened(postgres_url) as opened:
        one = stored(1)
        await opened.insert([one])
        monkeypatch.setattr(queries, "select_pubsub_topics", select)
        page = await opened.query(ArchiveQuery(hashes=(one.message_hash,)))
        assert page.messages[0].pubsub_topic == PUBSUB_TOPIC


# Partitions


async def test_partitions_are_made_ahead_of_time(postgres_url: str) -> None:
    now = schema.partition_of(START_NS)
    async with _opened(postgres_url) as opened:
        await opened.retain(RetentionPolicy(), START_NS)
        assert await _partitions(opened) == [now, now + 1]
        await opened.insert([stored(1), stored(2, timestamp_ns=START_NS + 100 * _HOUR)])
        later = schema.partition_of(START_NS + 100 * _HOUR)
        assert await _partitions(opened) == [now, now + 1, later]


async def test_partitions_that_are_too_old_are_dropped_whole(postgres_url: str) -> None:
    async with _opened(postgres_url) as opened:
        await opened.insert(series(100, step_ns=_HOUR))
        before = len(await _partitions(opened))
        now = START_NS + 99 * _HOUR
        assert await opened.retain(RetentionPolicy(max_age_s=24 * 3_600), now) == 75
        assert len(await _partitions(opened)) < before // 2
        await opened.insert(series(100, step_ns=_HOUR))  # what was dropped is made again
        assert (await opened.stats()).messages == 100


@pytest.mark.parametrize("policy", [RetentionPolicy(max_messages=2), RetentionPolicy(max_bytes=1 << 30)])
async def test_empty_partitions_of_the_past_are_dropped(postgres_url: str, policy: RetentionPolicy) -> None:
    """Under a policy without times, too: every query would look into all of them for ever."""
    now = START_NS + 99 * _HOUR
    current = schema.partition_of(now)
    async with _opened(postgres_url) as opened:
        await opened.insert(series(100, step_ns=_HOUR))
        await opened._run(opened._clearing, lambda c: c.execute("DELETE FROM waku_archive_messages"))
        await opened.insert([stored(1, timestamp_ns=START_NS + 50 * _HOUR), stored(2, timestamp_ns=now)])
        assert await opened.retain(policy, now) == 0
        filled = schema.partition_of(START_NS + 50 * _HOUR)
        assert await _partitions(opened) == [filled, current - 1, current, current + 1]
        assert (await opened.stats()).messages == 2


async def test_tables_that_an_operator_attaches_are_left_alone(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    """Such as a default partition."""
    async with _opened(postgres_url) as opened:
        await opened.insert([stored(1)])
        before = await _partitions(opened)
        postgres_server.execute(
            "CREATE TABLE waku_archive_messages_default PARTITION OF waku_archive_messages DEFAULT",
            postgres_url,
        )
        assert await _partitions(opened) == before
        await opened.insert([stored(2, timestamp_ns=START_NS + 1000)])
        assert await opened.retain(RetentionPolicy(max_messages=1), START_NS) == 1
        assert (await opened.stats()).messages == 1


async def test_too_many_partitions_are_refused(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "MAX_PARTITIONS", 3)
    async with _opened(postgres_url) as opened:
        await opened.insert(series(3, step_ns=10 * _HOUR))
        with pytest.raises(ArchiveError, match="3 partitions"):
            await opened.insert([stored(9, timestamp_ns=0)])
        assert await opened.insert([stored(9)]) == 1


async def test_pages_go_through_partitions_in_order(postgres_url: str) -> None:
    messages = series(60, step_ns=_HOUR)
    async with _opened(postgres_url) as opened:
        await opened.insert(messages)
        query = ArchiveQuery(PUBSUB_TOPIC, ("/test/1/archive/proto",), limit=7)
        found = [entry.message_hash for page in await pages(opened, query) for entry in page.messages]
        assert found == [message.message_hash for message in messages]


@pytest.mark.parametrize("analyzed", [True, False])
async def test_pages_come_off_the_indexes(postgres_url: str, analyzed: bool) -> None:
    """In the order of the answer: the only sort is that of the page itself."""
    messages = [
        stored(i, timestamp_ns=START_NS + i * _HOUR // 20, content_topic=f"/t/1/{i % 3}/proto")
        for i in range(2_000)
    ]
    arguments: dict[str, Any] = queries.oldest_arguments({PUBSUB_TOPIC: 1}, 20)
    arguments |= {"keys": [1], "topics": [b"/t/1/0/proto"], "hashes": [bytes(32)]}

    def explain(connection: Connection, statement: str) -> str:
        rows = connection.execute(f"EXPLAIN (COSTS off) {statement}".encode(), arguments).fetchall()
        return "\n".join(row[0] for row in rows)

    async with _opened(postgres_url) as opened:
        await opened.insert(messages)
        if analyzed:
            await opened._run(opened._clearing, lambda c: c.execute("ANALYZE waku_archive_messages").rowcount)
        for name, statements in (("pubsub", queries._BY_TIME), ("topic_key", queries._BY_TOPIC)):
            for keys in statements.values():
                for statement in (keys, queries._DATA.format(keys=keys)):
                    plan = await opened._run(opened._clearing, partial(explain, statement=statement))
                    assert f"using waku_archive_messages_p78703_{name}_timestamp" in plan, plan
                    assert "Seq Scan" not in plan, plan
                    assert "Bitmap" not in plan, plan
                    assert plan.count("Sort Key") == 1, plan
                    assert "Merge Append" not in plan, plan
        plan = await opened._run(opened._clearing, partial(explain, statement=queries._BY_HASH[True]))
        assert "Seq Scan" not in plan, plan
        assert "message_hash = ANY" in plan, plan


# Versions


async def test_an_upgrade_happens_once_and_in_one_transaction(postgres_url: str) -> None:
    def add(connection: Connection) -> None:
        connection.execute("ALTER TABLE waku_archive_messages ADD COLUMN extra integer")

    def fail(connection: Connection) -> None:
        add(connection)
        raise RuntimeError("no")

    def columns(connection: Connection) -> int:
        cursor = connection.execute("SELECT * FROM waku_archive_messages LIMIT 0")
        return len(cursor.description or ())

    async with _opened(postgres_url) as opened:

        async def run(work: Callable[[Connection], T]) -> T:
            return await opened._run(opened._clearing, work)

        before = await run(columns)
        with pytest.raises(RuntimeError):
            await run(lambda c: schema.prepare(c, "it", (*schema.STEPS, fail)))
        assert await run(columns) == before
        for _ in range(2):
            await run(lambda c: schema.prepare(c, "it", (*schema.STEPS, add)))
        assert await run(columns) == before + 1
    with pytest.raises(ArchiveError, match=r"version 2.*newer pywaku") as caught:
        await open_postgres(postgres_url)
    assert caught.value.reason == "version"


async def test_nodes_that_start_together_create_the_tables_once(postgres_url: str) -> None:
    new: list[int] = []

    async def node() -> None:
        async with _opened(postgres_url) as opened:
            for start in range(0, 100, 10):
                new.append(await opened.insert(series(100)[start:] + series(100)[:start]))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(node)
    assert sum(new) == 100


# Other nodes


async def test_a_node_sees_what_another_one_stores(postgres_url: str) -> None:
    async with _opened(postgres_url) as one, _opened(postgres_url) as other:
        assert (await other.query(ArchiveQuery(PUBSUB_TOPIC))).messages == ()
        await one.insert([stored(1), stored(2, pubsub_topic="/waku/2/rs/9/9")])
        assert len((await other.query(ArchiveQuery())).messages) == 2
        assert len((await other.query(ArchiveQuery("/waku/2/rs/9/9"))).messages) == 1


async def test_a_partition_that_another_node_dropped_is_made_again(postgres_url: str) -> None:
    async with _opened(postgres_url) as one, _opened(postgres_url) as other:
        await one.insert([stored(1), stored(2, timestamp_ns=START_NS + 100 * _HOUR)])
        assert await other.retain(RetentionPolicy(max_age_s=3_600), START_NS + 100 * _HOUR) == 1
        assert await one.insert([stored(1)]) == 1


# Servers that come and go


async def test_a_server_that_restarts_is_connected_again(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with _opened(postgres_url) as opened:
        await opened.insert(series(5))
        await opened.query(ArchiveQuery())
        await trio.to_thread.run_sync(postgres_server.stop)
        try:
            for _ in range(2):
                with pytest.raises(ArchiveError) as caught:
                    await opened.insert(series(6))
                assert caught.value.reason == "connection"
                assert PASSWORD not in str(caught.value)
            assert opened.counters.errors == {"connection": 2}
        finally:
            await trio.to_thread.run_sync(postgres_server.start)
        with trio.fail_after(30):
            while True:
                try:
                    assert await opened.insert(series(6)) == 1
                    break
                except ArchiveError:
                    await trio.sleep(0.05)
        assert len((await opened.query(ArchiveQuery())).messages) == 6


async def test_a_connection_that_was_cut_is_replaced_unnoticed(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with _opened(postgres_url) as opened:
        await opened.insert(series(5))
        postgres_server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pywaku'"
        )
        assert await opened.insert(series(6)) == 1
        assert len((await opened.query(ArchiveQuery())).messages) == 6
        assert opened.counters.errors == {}
        assert opened.counters.reconnects >= 1


def test_a_server_that_is_down_is_asked_less_and_less() -> None:
    now = 0.0
    server = Server("postgres://u:p@127.0.0.1:1/d", lambda: now)
    waits: list[float] = []
    for _ in range(9):
        with pytest.raises(ArchiveError, match="connection"):
            server.connect()
        waits.append(server._not_before - now)
        with pytest.raises(ArchiveError, match="next attempt in"):
            server.connect()
        now = server._not_before
    assert waits == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10])


async def test_a_wrong_password_is_named_as_such_and_not_repeated(postgres_server: PostgresServer) -> None:
    with pytest.raises(ArchiveError, match=r"127\.0\.0\.1.*password") as caught:
        await open_postgres(postgres_server.url(password="hunter2:@/ x"))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ArchiveError, match="does not exist"):
        await open_postgres(postgres_server.url("no_such_database"))


async def test_a_database_that_may_not_be_written_is_an_error_and_still_answers(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with _opened(postgres_url) as opened:
        await opened.insert(series(5))
        await opened._run(
            opened._writing, lambda c: c.execute("SET default_transaction_read_only = on").statusmessage
        )
        with pytest.raises(ArchiveError, match="cannot be written") as caught:
            await opened.insert([stored(9)])
        assert caught.value.reason == "read-only"
        assert len((await opened.query(ArchiveQuery())).messages) == 5


async def test_a_statement_that_takes_too_long_is_an_error(postgres_url: str) -> None:
    async with _opened(postgres_url) as opened:

        def wait(connection: Connection) -> None:
            connection.execute("SET statement_timeout = 1")
            connection.execute("SELECT pg_sleep(60)")

        with pytest.raises(ArchiveError, match="too long") as caught:
            await opened._run(opened._reading, wait)
        assert caught.value.reason == "timeout"


async def test_readers_do_not_wait_for_a_writer(postgres_url: str) -> None:
    async with _opened(postgres_url) as opened, _opened(postgres_url) as other:
        await opened.insert(series(5))

        def write(connection: Connection) -> None:
            connection.execute("BEGIN")
            changes.insert_messages(connection, "it", [stored(99)], changes.Known())

        await other._run(other._writing, write)
        assert len((await opened.query(ArchiveQuery())).messages) == 5
        await other._run(other._writing, lambda c: c.execute("COMMIT").statusmessage)
        assert len((await opened.query(ArchiveQuery())).messages) == 6


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("53100", "disk-full"),
        ("53200", "overloaded"),
        ("53300", "overloaded"),
        ("40P01", "locked"),
        ("55P03", "locked"),
        ("57P01", "connection"),
        ("57014", "timeout"),
        ("42501", "denied"),
        ("28P01", "denied"),
        ("XX001", "corrupt"),
        ("22003", "other"),
    ],
)
def test_errors_of_the_server_get_a_reason(state: str, reason: str) -> None:
    redact = Redaction("hunter2:/ x")
    error = lookup(state)("it broke\n  for hunter2:/ x and hunter2%3A%2F%20x")
    clear = clear_error("postgres://h/d", error, redact)
    assert clear.reason == reason
    assert str(clear).startswith("archive postgres://h/d: ")
    assert str(clear).endswith("(it broke for *** and ***)")
