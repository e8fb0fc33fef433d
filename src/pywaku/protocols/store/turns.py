"""How the queries of many peers get to one archive: a few at a time, and lookups of hashes together."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import trio

from pywaku.archive import Archive, ArchiveEntry, ArchivePage, ArchiveQuery
from pywaku.archive.port import MAX_LIMIT
from pywaku.errors import InvalidInput


@dataclass(slots=True)
class _Lookup:
    """A query that waits for its page."""

    query: ArchiveQuery
    task: trio.lowlevel.Task | None
    page: ArchivePage | None = None
    error: Exception | None = None


class QueryTurns:
    """Puts queries to an archive, up to `max_queries` at a time.

    What light nodes ask all the time is whether messages are stored (Presence queries). A query of that kind
    costs the archive next to nothing, compared with the way there: to another thread, or another machine.
    So those that wait go there together, as one query for all their hashes, and each gets its part of the
    answer.
    """

    def __init__(self, archive: Archive, max_queries: int) -> None:
        if max_queries < 1:
            raise InvalidInput(f"max_queries is at least 1, not {max_queries}")
        self._archive = archive
        # What waits here is small; what comes out of the archive may be 15 MB for one query.
        self._turn = trio.CapacityLimiter(max_queries)
        self._lookups: deque[_Lookup] = deque()
        self._waiting = trio.lowlevel.ParkingLot()

    async def query(self, query: ArchiveQuery) -> ArchivePage:
        """The page; raises what the archive raises."""
        alone = query.include_data or query.cursor is not None or len(query.hashes) > MAX_LIMIT
        if alone or not query.hashes:
            async with self._turn:
                return await self._archive.query(query)
        lookup = _Lookup(query, trio.lowlevel.current_task())
        self._lookups.append(lookup)
        self._waiting.unpark()

        def abandon(_: object) -> trio.lowlevel.Abort:
            lookup.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abandon)
        if lookup.page is None:
            raise lookup.error or RuntimeError("a lookup ended without an answer")
        return lookup.page

    async def run(self) -> None:
        """Answer the lookups, for ever."""
        while True:
            while not self._lookups:
                await self._waiting.park()
            batch = self._next_batch()
            if not batch:
                continue
            try:
                await self._answer(batch)
            except Exception as error:
                for lookup in batch:
                    lookup.error = error
            for lookup in batch:
                if lookup.task is not None:
                    trio.lowlevel.reschedule(lookup.task)

    def _next_batch(self) -> list[_Lookup]:
        """Those that wait, in their order, as far as one query of the archive can take them."""
        batch: list[_Lookup] = []
        room = MAX_LIMIT
        while self._lookups and len(self._lookups[0].query.hashes) <= room:
            lookup = self._lookups.popleft()
            if lookup.task is not None:
                room -= len(lookup.query.hashes)
                batch.append(lookup)
        return batch

    async def _answer(self, batch: list[_Lookup]) -> None:
        hashes = tuple(dict.fromkeys([value for lookup in batch for value in lookup.query.hashes]))
        async with self._turn:
            found = await self._archive.query(
                replace(batch[0].query, hashes=hashes, ascending=True, limit=len(hashes))
            )
        places = {entry.message_hash: place for place, entry in enumerate(found.messages)}
        for lookup in batch:
            lookup.page = _part(found.messages, places, lookup.query)


def _part(entries: tuple[ArchiveEntry, ...], places: dict[bytes, int], query: ArchiveQuery) -> ArchivePage:
    """What one of the queries would have got by itself."""
    own = [place for value in query.hashes if (place := places.get(value)) is not None]
    if len(own) > 1:
        own = sorted(set(own))
    page = own[: query.limit] if query.ascending else own[-query.limit :]
    edge = None
    if len(page) < len(own):
        edge = entries[page[-1 if query.ascending else 0]].message_hash
    return ArchivePage(tuple([entries[place] for place in page]), edge)
