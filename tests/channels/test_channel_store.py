"""Where channels keep what they must not forget: both builds, then the file and its troubles."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import pywaku
from pywaku.channels.events import MessageReceived
from pywaku.channels.rows import Row, RowChange
from pywaku.channels.sqlite_store import APPLICATION_ID, VERSION, SqliteChannelStore, open_channel_store
from pywaku.channels.store import NODE_SCOPE, ChannelStore, MemoryChannelStore, scope_of
from pywaku.errors import RecordError
from tests.support.waku_nodes import TOPIC, open_waku_world, until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file is."""
    return tmp_path / "channels.sqlite3"


class Stores:
    """A store that is closed and opened again."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._memory = MemoryChannelStore()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[ChannelStore]:
        """The store, until the end of the block."""
        store = self._memory if self._path is None else await open_channel_store(self._path)
        try:
            yield store
        finally:
            await store.close()


@pytest.fixture(params=["memory", "sqlite"])
def stores(request: pytest.FixtureRequest, path: Path) -> Stores:
    """Each of the two builds."""
    return Stores(path if request.param == "sqlite" else None)


def put(table: str, key: str, value: bytes = b"x") -> RowChange:
    """A row to be put."""
    return RowChange(table, key, value)


async def test_rows_outlive_the_store(stores: Stores) -> None:
    async with stores.open() as store:
        await store.apply("a", [put("t", "1"), put("t", "2", b""), put("u", "1", b"\x00\xff")])
    async with stores.open() as store:
        assert sorted(await store.load("a")) == [
            Row("t", "1", b"x"),
            Row("t", "2", b""),
            Row("u", "1", b"\x00\xff"),
        ]


async def test_changes_are_made_in_order(stores: Stores) -> None:
    async with stores.open() as store:
        await store.apply("a", [put("t", "1", b"old"), put("t", "2")])
        await store.apply(
            "a",
            [
                RowChange("t", "1", None),
                put("t", "1", b"new"),
                put("t", "2"),
                RowChange("t", "2", None),
                RowChange("t", "unheard-of", None),
            ],
        )
        assert await store.load("a") == [Row("t", "1", b"new")]


async def test_scopes_do_not_see_each_other(stores: Stores) -> None:
    names = [NODE_SCOPE, scope_of("a", "b"), scope_of("a/b", ""), "t"]
    async with stores.open() as store:
        for number, scope in enumerate(names):
            await store.apply(scope, [put("t", "1", bytes([number]))])
        for number, scope in enumerate(names):
            assert await store.load(scope) == [Row("t", "1", bytes([number]))]
        await store.forget(names[1])
        await store.forget(names[3])
        await store.forget("unheard-of")
        assert [len(await store.load(scope)) for scope in names] == [1, 0, 1, 0]
    async with stores.open() as store:
        assert [len(await store.load(scope)) for scope in names] == [1, 0, 1, 0]
        await store.apply(names[3], [put("t", "2")])
        assert await store.load(names[3]) == [Row("t", "2", b"x")]
        assert await store.load(names[0]) == [Row("t", "1", b"\0")]


async def test_nothing_to_change_is_nothing_to_do(stores: Stores) -> None:
    async with stores.open() as store:
        await store.apply("a", [])
        assert await store.load("a") == []


@given(
    st.text(min_size=1, max_size=6), st.text(max_size=6), st.text(min_size=1, max_size=6), st.text(max_size=6)
)
def test_two_sides_of_channels_never_share_a_scope(a: str, b: str, c: str, d: str) -> None:
    assert (scope_of(a, b) == scope_of(c, d)) == ((a, b) == (c, d))
    assert scope_of(a, b) != NODE_SCOPE


_changes = st.lists(
    st.builds(RowChange, st.sampled_from("tuv"), st.sampled_from("1234"), st.none() | st.binary(max_size=3)),
    max_size=8,
)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.one_of(_changes, st.none())), max_size=12))
def test_both_builds_keep_the_same(steps: list[tuple[str, list[RowChange] | None]]) -> None:
    async def main() -> None:
        one, other = MemoryChannelStore(), await open_channel_store(":memory:")
        for scope, changes in steps:
            for store in (one, other):
                if changes is None:
                    await store.forget(scope)
                else:
                    await store.apply(scope, changes)
        for scope in "ab":
            assert sorted(await one.load(scope)) == sorted(await other.load(scope))
        await other.close()

    trio.run(main)


# The file


def _connection(store: SqliteChannelStore) -> sqlite3.Connection:
    return store._connection


async def test_the_file_and_its_directory_are_created(tmp_path: Path) -> None:
    path = tmp_path / "of" / "its" / "own" / "channels.sqlite3"
    await (await open_channel_store(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        assert connection.execute("PRAGMA user_version").fetchone()[0] == VERSION


async def test_a_channel_that_is_forgotten_leaves_nothing(path: Path) -> None:
    store = await open_channel_store(path)
    for number in range(20):
        await store.apply(f"{number}", [put("t", f"{key}") for key in range(20)])
        await store.forget(f"{number}")
    names = _connection(store).execute("SELECT name FROM names").fetchall()
    assert names == [("table t",)]
    assert _connection(store).execute("SELECT count(*) FROM rows").fetchone()[0] == 0
    await store.close()


_OTHER_PROCESS = """
import sys, trio
from pywaku.channels.sqlite_store import open_channel_store
from pywaku.errors import RecordError
try:
    trio.run(open_channel_store, sys.argv[1])
except RecordError as error:
    print(error.reason, error)
"""


async def test_a_second_process_is_refused(path: Path) -> None:
    store = await open_channel_store(path)
    await store.apply("a", [put("t", "1")])
    done = await trio.run_process(
        [sys.executable, "-c", _OTHER_PROCESS, str(path)], capture_stdout=True, stderr=subprocess.STDOUT
    )
    said = done.stdout.decode()
    assert said.startswith("locked ")
    assert "another process has it open" in said
    assert str(path) in said
    assert await store.load("a") == [Row("t", "1", b"x")]
    await store.close()
    again = await open_channel_store(path)
    assert await again.load("a") == [Row("t", "1", b"x")]
    await again.close()


async def test_a_file_of_something_else_is_refused_and_left_as_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.commit()
    before = path.read_bytes()
    with pytest.raises(RecordError, match="something else") as caught:
        await open_channel_store(path)
    assert caught.value.reason == "version"
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


async def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    await (await open_channel_store(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(RecordError, match="newer pywaku") as caught:
        await open_channel_store(path)
    assert caught.value.reason == "version"


async def test_a_damaged_file_is_refused_by_name(path: Path) -> None:
    store = await open_channel_store(path)
    await store.apply("a", [put("t", f"{number}", bytes(200)) for number in range(2_000)])
    await store.close()
    whole = path.read_bytes()
    for start, length in ((0, 64), (4096 * 12, 4096 * 10)):
        path.write_bytes(whole[:start] + b"\xff" * length + whole[start + length :])
        with pytest.raises(RecordError, match=r"channels\.sqlite3.*damaged") as caught:
            await open_channel_store(path)
        assert caught.value.reason == "corrupt"
    path.write_bytes(whole)
    store = await open_channel_store(path)
    assert len(await store.load("a")) == 2_000
    await store.close()


async def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for where in (tmp_path / "file" / "channels.sqlite3", tmp_path):
        with pytest.raises(RecordError, match=str(where)) as caught:
            await open_channel_store(where)
        assert caught.value.reason == "cannot-open"


async def test_a_full_disk_is_an_error_and_nothing_of_the_step_is_kept(path: Path) -> None:
    store = await open_channel_store(path)
    await store.apply("a", [put("t", "1")])
    pages: int = _connection(store).execute("PRAGMA page_count").fetchone()[0]
    _connection(store).execute(f"PRAGMA max_page_count = {pages + 2}")
    many = [put("new table", f"{number}", bytes(1000)) for number in range(100)]
    for _ in range(2):
        with pytest.raises(RecordError, match=r"channels\.sqlite3.*full") as caught:
            await store.apply("another", [RowChange("t", "1", None), *many])
        assert caught.value.reason == "disk-full"
        assert await store.load("a") == [Row("t", "1", b"x")]
        assert await store.load("another") == []
    _connection(store).execute("PRAGMA max_page_count = 1000000")
    await store.apply("b", [put("u", "1")])  # this would get one of the numbers of the failed step
    await store.apply("another", many)
    assert await store.load("b") == [Row("u", "1", b"x")]
    assert {row.table for row in await store.load("another")} == {"new table"}
    await store.close()


async def test_a_closed_store_says_so(path: Path) -> None:
    store = await open_channel_store(path)
    await store.close()
    await store.close()
    with pytest.raises(RecordError) as caught:
        await store.load("a")
    assert caught.value.reason == "closed"


async def test_a_transaction_that_has_begun_is_seen_to_its_end(path: Path) -> None:
    store = await open_channel_store(path)
    with trio.move_on_after(0):
        await store.apply("a", [put("t", f"{number}") for number in range(1000)])
    assert len(await store.load("a")) in (0, 1000)
    await store.close()


@pytest.mark.virtual
async def test_while_the_disk_is_full_nothing_is_sent_or_told_and_afterwards_all_is(path: Path) -> None:
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        await pywaku.open_channels(a, path=path)
        await pywaku.open_channels(b, path=None)
        alice = await pywaku.create_reliable_channel(
            a, channel_id="c", sender_id="alice", content_topic=TOPIC
        )
        bob = await pywaku.create_reliable_channel(b, channel_id="c", sender_id="bob", content_topic=TOPIC)
        await until(lambda: alice.healthy and bob.healthy)
        store = alice._hub.store
        assert isinstance(store, SqliteChannelStore)
        pages: int = _connection(store).execute("PRAGMA page_count").fetchone()[0]
        _connection(store).execute(f"PRAGMA max_page_count = {pages + 1}")
        heard = alice.events("sending-message", "reliable:message:delivered")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(alice.send, bytes(50_000))
            await trio.sleep(10)
            assert alice.counters.not_saved > 1
            assert len(heard) == 0
            assert len(bob.events("message-received")) == 0
            _connection(store).execute("PRAGMA max_page_count = 1000000")
        assert len(alice.unacknowledged) == 1
        async for event in bob.events("message-received"):
            assert event == MessageReceived(bytes(50_000), "alice")
            break
        await bob.send(b"got it")
        assert (await anext(heard)).name == "sending-message"
        assert (await anext(heard)).name == "reliable:message:delivered"
