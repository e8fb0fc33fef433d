"""Lookups of many peers at one archive: together, and yet each as if it were alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pywaku.archive import ArchivePage, ArchiveQuery
from pywaku.errors import ArchiveError, InvalidInput
from pywaku.protocols.store.turns import QueryTurns
from tests.support.archives import MemoryArchive
from tests.support.stores import hashes_of, history

HISTORY = history(50, per_time=3)


class SlowArchive(MemoryArchive):
    """Takes a second for a query, and notes them."""

    def __init__(self) -> None:
        super().__init__()
        self.insert_now(HISTORY)
        self.asked: list[ArchiveQuery] = []

    async def query(self, query: ArchiveQuery) -> ArchivePage:
        """The page, in a second."""
        self.asked.append(query)
        await trio.sleep(1)
        return await super().query(query)


@asynccontextmanager
async def open_turns(archive: MemoryArchive, max_queries: int = 8) -> AsyncGenerator[QueryTurns]:
    """The turns, at work."""
    turns = QueryTurns(archive, max_queries)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        yield turns
        nursery.cancel_scope.cancel()


def lookup(*numbers: int, limit: int = 100, ascending: bool = True) -> ArchiveQuery:
    """Whether these are there."""
    hashes = tuple([HISTORY[number].message_hash for number in numbers])
    return ArchiveQuery(hashes=hashes, limit=limit, ascending=ascending, include_data=False)


@st.composite
def lookups(draw: st.DrawFn) -> ArchiveQuery:
    """Any."""
    numbers = draw(st.lists(st.integers(0, 49), min_size=1, max_size=20))
    return lookup(*numbers, limit=draw(st.integers(1, 10)), ascending=draw(st.booleans()))


@given(st.lists(lookups(), min_size=1, max_size=12), st.sets(st.integers(0, 49)))
def test_each_gets_what_it_would_get_by_itself(queries: list[ArchiveQuery], lacking: set[int]) -> None:
    """Order, limit, cursor and all."""
    archive = MemoryArchive()
    archive.insert_now([one for number, one in enumerate(HISTORY) if number not in lacking])
    pages: dict[int, ArchivePage] = {}

    async def ask() -> None:
        async with open_turns(archive) as turns, trio.open_nursery() as nursery:

            async def one(number: int) -> None:
                pages[number] = await turns.query(queries[number])

            for number in range(len(queries)):
                nursery.start_soon(one, number)

    trio.run(ask)
    assert pages == {number: archive.query_now(query) for number, query in enumerate(queries)}


@pytest.mark.virtual
async def test_lookups_that_wait_go_together() -> None:
    """The first by itself or with those that come with it, all others in the next query."""
    archive = SlowArchive()
    async with open_turns(archive) as turns:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turns.query, lookup(1))
            await trio.sleep(0.5)
            for number in range(2, 30):
                nursery.start_soon(turns.query, lookup(number, number + 1))
        assert [len(query.hashes) for query in archive.asked] == [1, 29]


@pytest.mark.virtual
async def test_one_query_asks_for_no_more_than_an_archive_takes() -> None:
    """A thousand hashes."""
    archive = SlowArchive()
    async with open_turns(archive) as turns:
        async with trio.open_nursery() as nursery:
            for part in range(5):
                hashes = tuple([(1000 * part + number).to_bytes(32) for number in range(400)])
                nursery.start_soon(turns.query, ArchiveQuery(hashes=hashes, include_data=False))
        assert [len(query.hashes) for query in archive.asked] == [800, 800, 400]


@pytest.mark.virtual
async def test_a_lookup_larger_than_an_archive_takes_holds_nobody_up() -> None:
    """It goes by itself, whatever the archive makes of it."""
    archive = SlowArchive()
    hashes = tuple([number.to_bytes(32) for number in range(1001)])
    async with open_turns(archive) as turns, trio.open_nursery() as nursery:
        nursery.start_soon(turns.query, ArchiveQuery(hashes=hashes, include_data=False))
        nursery.start_soon(turns.query, lookup(1))
    assert sorted(len(query.hashes) for query in archive.asked) == [1, 1001]


@pytest.mark.virtual
async def test_other_queries_have_their_own_turn() -> None:
    """With data, by content, or from a cursor."""
    archive = SlowArchive()
    queries = [
        ArchiveQuery(hashes=(HISTORY[0].message_hash,)),
        ArchiveQuery(include_data=False),
        ArchiveQuery(hashes=tuple(hashes_of(HISTORY)), cursor=HISTORY[3].message_hash, include_data=False),
    ]
    async with open_turns(archive) as turns, trio.open_nursery() as nursery:
        for query in queries:
            nursery.start_soon(turns.query, query)
    assert set(archive.asked) == set(queries)


@pytest.mark.virtual
async def test_a_failure_is_that_of_all_who_asked_together() -> None:
    """The next query is not concerned."""
    archive = SlowArchive()
    archive.failure = ArchiveError("locked", reason="locked")
    failed = 0
    async with open_turns(archive) as turns:

        async def fail() -> None:
            nonlocal failed
            with pytest.raises(ArchiveError):
                await turns.query(lookup(1))
            failed += 1

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(fail)
        assert failed == 5
        archive.failure = None
        page = await turns.query(lookup(1))
        assert [entry.message_hash for entry in page.messages] == [HISTORY[1].message_hash]


@pytest.mark.virtual
async def test_who_gives_up_leaves_the_others_alone() -> None:
    """Before its query is asked, and while it is."""
    archive = SlowArchive()
    async with open_turns(archive) as turns:
        found: list[int] = []

        async def impatient(patience: float) -> None:
            with trio.move_on_after(patience):
                await turns.query(lookup(1))

        async def patient() -> None:
            found.append(len((await turns.query(lookup(2, 3))).messages))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(impatient, 0.3)
            nursery.start_soon(patient)
            await trio.sleep(0.5)
            nursery.start_soon(impatient, 0.2)
            nursery.start_soon(patient)
        assert found == [2, 2]
        assert [len(query.hashes) for query in archive.asked][1:] == [2]
        with trio.move_on_after(0.1):
            await turns.query(lookup(4))
        assert len((await turns.query(lookup(5))).messages) == 1


@pytest.mark.parametrize("most", [0, -1])
def test_there_is_at_least_one_turn(most: int) -> None:
    with pytest.raises(InvalidInput):
        QueryTurns(MemoryArchive(), most)
