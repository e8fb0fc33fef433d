"""How far a query has come, so that any store can go on with it. Pure: queries and pages in, queries out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from pywaku.protocols.store.errors import StoreAnswerInvalid
from pywaku.protocols.store.query import LATEST, StoreQuery
from pywaku.protocols.store.verify import SortKey, sort_key
from pywaku.wire.store import MAX_MESSAGE_HASHES, StoreEntry, StoreQueryResponse

REMEMBERED: Final = MAX_MESSAGE_HASHES
"""Hashes kept of the entries that came last."""


@dataclass(frozen=True, slots=True)
class Course:
    """A query for the next page; `overlap` is how many entries it may bring that were had before."""

    query: StoreQuery
    overlap: int = 0


class Position:
    """Where a query stands between two pages.

    The next page is normally asked for with the cursor of the last one. A store that does not have the entry
    of that cursor cannot use it; `detours` are other ways to the same place. What comes twice by that is left
    out, so that every entry comes once. A store that goes back, or in circles, is found out.
    """

    def __init__(self, query: StoreQuery) -> None:
        self._course = Course(query)
        self._complete = False
        self._reached: SortKey | None = None  # the entry furthest on, where messages are there to tell
        self._chain: SortKey | None = None  # the same, for the pages since the last detour
        self._recent: dict[bytes, None] = {}  # in the order of the query

    @property
    def complete(self) -> bool:
        """Whether the last page was the last of all."""
        return self._complete

    @property
    def cursor(self) -> bytes | None:
        """The entry after which to go on."""
        return self._course.query.cursor

    def next(self, page_size: int | None = None) -> Course:
        """The way to the next page."""
        course = self._course
        if page_size is not None and page_size < course.query.page_size:
            return replace(course, query=replace(course.query, page_size=page_size))
        return course

    def detours(self, page_size: int | None = None) -> Iterator[Course]:
        """Other ways to the next page, for a store that does not know the cursor; best first."""
        for course in self._detours():
            if page_size is not None and page_size < course.query.page_size:
                yield replace(course, query=replace(course.query, page_size=page_size))
            else:
                yield course

    def _detours(self) -> Iterator[Course]:
        query = self._course.query
        if query.cursor is None:
            return
        if query.message_hashes:
            left = tuple([value for value in query.message_hashes if value not in self._recent])
            if self._recent and left:
                yield Course(replace(query, message_hashes=left, cursor=None))
        elif self._reached is not None:
            timestamp = self._reached[0]
            if query.forward:
                yield Course(replace(query, time_start=timestamp, cursor=None))
            elif 0 <= timestamp < LATEST:
                yield Course(replace(query, time_end=timestamp + 1, cursor=None))
        else:
            recent = list(self._recent)
            back = 2
            while back <= len(recent):
                yield Course(replace(query, cursor=recent[-back]), overlap=back - 1)
                back *= 2

    def accept(self, course: Course, response: StoreQueryResponse) -> tuple[StoreEntry, ...]:
        """Take the page that was found on a course; returns what is new, in the order of the page.

        The page has been held to its request. Raises `StoreAnswerInvalid` if it does not lead on, and then
        the position is what it was.
        """
        entries = response.messages
        overlap = course.overlap
        chain = self._chain if course.query.cursor == self._course.query.cursor else None
        if course.query.include_data and not course.query.message_hashes:
            entries, chain = self._ahead(course.query.forward, entries, chain)
        else:
            known = sum(entry.message_hash in self._recent for entry in entries)
            if known > overlap:
                raise StoreAnswerInvalid("the page leads back")
            overlap -= known
            entries = tuple([entry for entry in entries if entry.message_hash not in self._recent])
        self._chain = chain
        if chain is not None and (self._reached is None or self._beyond(chain, self._reached)):
            self._reached = chain
        self._remember(entries if course.query.forward else entries[::-1])
        cursor = response.pagination_cursor
        hashes = course.query.message_hashes
        self._complete = cursor is None or (bool(hashes) and self._recent.keys() >= set(hashes))
        if cursor is None and response.messages:
            edge = response.messages[-1 if course.query.forward else 0]
            cursor = edge.message_hash
        query = course.query
        self._course = Course(query if cursor is None else replace(query, cursor=cursor), overlap)
        return entries

    def _ahead(
        self, forward: bool, entries: tuple[StoreEntry, ...], chain: SortKey | None
    ) -> tuple[tuple[StoreEntry, ...], SortKey | None]:
        """The entries beyond what was reached, and how far the page goes."""
        if not entries:
            return entries, chain
        keys = [key for entry in entries if (key := sort_key(entry)) is not None]
        nearest, furthest = (keys[0], keys[-1]) if forward else (keys[-1], keys[0])
        if chain is not None and not self._beyond(nearest, chain):
            raise StoreAnswerInvalid("the page leads back")
        reached = self._reached
        if reached is None:
            return entries, furthest
        new = [entry for entry, key in zip(entries, keys, strict=True) if self._beyond(key, reached)]
        return tuple(new), furthest

    def _beyond(self, key: SortKey, other: SortKey) -> bool:
        return key > other if self._course.query.forward else key < other

    def _remember(self, entries: tuple[StoreEntry, ...]) -> None:
        recent = self._recent
        for entry in entries:
            recent[entry.message_hash] = None
        while len(recent) > REMEMBERED:
            del recent[next(iter(recent))]
