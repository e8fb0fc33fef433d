"""A whole result, page by page, from whichever store answers."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import trio

from pywaku.errors import DecodeError, InvalidInput, NetworkError, ProtocolNotSupported
from pywaku.ids import PeerId
from pywaku.protocols.store.errors import (
    StoreAnswerInvalid,
    StoreQueryFailed,
    StoresExhausted,
    StoreStatus,
)
from pywaku.protocols.store.position import Course, Position
from pywaku.protocols.store.query import StoreQuery
from pywaku.wire.store import StoreEntry

if TYPE_CHECKING:
    from pywaku.protocols.store.client import StoreClient

logger = logging.getLogger(__name__)

_LONGEST_WAIT_S: Final = 30.0
_CURSOR_KNOWN: Final = frozenset({StoreStatus.TOO_MANY_REQUESTS, StoreStatus.SERVICE_UNAVAILABLE})
"""Codes that do not come from a cursor that the store does not know; all others may."""


@dataclass(frozen=True, slots=True)
class StorePage:
    """A part of a result: new entries in ascending order, and the store that gave them."""

    peer: PeerId
    entries: tuple[StoreEntry, ...]


class StorePages:
    """The pages of a query: `async for page in client.pages(query, peers)`. One page is held at a time.

    A store that fails is left for the next one, which goes on behind the entry that came last: no entry is
    lost, none comes twice. A store whose answers cannot be true, or that refuses the query, is not asked
    again. When none is left, `StoresExhausted` is raised; its `cursor` says where another query can go on.
    The iteration ends after the last page, or after `max_pages`.

    A store that does not have the entry of the cursor is asked by time instead, or, for hashes without
    messages, from an earlier entry that it does have.
    """

    def __init__(
        self,
        client: StoreClient,
        query: StoreQuery,
        peers: Iterable[PeerId],
        *,
        max_pages: int | None = None,
        limit: int | None = None,
    ) -> None:
        if max_pages is not None and max_pages < 0:
            raise InvalidInput(f"max_pages is not negative, not {max_pages}")
        if limit is not None and limit < 0:
            raise InvalidInput(f"limit is not negative, not {limit}")
        self.query = query
        self.failures: dict[PeerId, Exception] = {}
        """What was last wrong with each store that failed."""
        self._client = client
        self._position = Position(query)
        self._peers = deque(dict.fromkeys(peers))
        self._strikes: dict[PeerId, int] = {}
        self._limited: deque[PeerId] = deque()
        self._waited = 0.0
        self._wait = client.options.limited_wait_s
        self._pages_left = max_pages
        self._entries_left = limit
        self._last: PeerId | None = None

    @property
    def cursor(self) -> bytes | None:
        """The entry that the next page begins after: for a query later on."""
        return self._position.cursor

    @property
    def complete(self) -> bool:
        """Whether there is nothing more."""
        return self._position.complete

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StorePage:
        while not self._position.complete and self._pages_left != 0 and self._entries_left != 0:
            page = await self._page()
            if self._pages_left is not None:
                self._pages_left -= 1
            if page.entries or self._position.complete:
                if self._entries_left is not None:
                    self._entries_left -= len(page.entries)
                return page
        await trio.lowlevel.checkpoint()
        raise StopAsyncIteration

    async def _page(self) -> StorePage:
        while True:
            peer = await self._pick()
            try:
                entries = await self._ask(peer)
            except (NetworkError, DecodeError) as error:
                self._failed(peer, error)
                continue
            if self._last is not None and self._last != peer:
                self._client.counters.switched += 1
            self._last = peer
            self._strikes.pop(peer, None)
            self._waited, self._wait = 0.0, self._client.options.limited_wait_s
            return StorePage(peer, entries)

    async def _pick(self) -> PeerId:
        """The store to ask, which stays at the head of the queue while it answers."""
        options = self._client.options
        if not self._peers:
            patience = options.limited_patience_s - self._waited
            if not self._limited or patience <= 0:
                raise StoresExhausted(self.failures, self._position.cursor)
            wait = min(self._wait, patience)
            await trio.sleep(wait)
            self._waited += wait
            self._wait = min(2 * self._wait, _LONGEST_WAIT_S)
            self._peers, self._limited = self._limited, self._peers
        peer = self._peers[0]
        if self._strikes.get(peer):
            await trio.sleep(options.retry_wait_s)
        return peer

    def _failed(self, peer: PeerId, error: NetworkError | DecodeError) -> None:
        self.failures[peer] = error
        self._peers.remove(peer)
        match error:
            case StoreQueryFailed(status_code=StoreStatus.TOO_MANY_REQUESTS):
                self._limited.append(peer)
            case StoreAnswerInvalid() | DecodeError() | ProtocolNotSupported():
                pass
            case StoreQueryFailed(status_code=code) if code < StoreStatus.INTERNAL_SERVER_ERROR:
                pass
            case _:
                strikes = self._strikes[peer] = self._strikes.get(peer, 0) + 1
                if strikes < self._client.options.attempts:
                    self._peers.append(peer)
        logger.debug("store left peer=%s error=%s", peer.short(), error)

    async def _ask(self, peer: PeerId) -> tuple[StoreEntry, ...]:
        size = self._entries_left
        try:
            return await self._follow(peer, self._position.next(size))
        except StoreQueryFailed as error:
            if error.status_code in _CURSOR_KNOWN:
                raise
            refusal = error
        for detour in self._position.detours(size):
            self._client.counters.detours += 1
            try:
                return await self._follow(peer, detour)
            except StoreQueryFailed as error:
                if error.status_code in _CURSOR_KNOWN:
                    raise
        raise refusal

    async def _follow(self, peer: PeerId, course: Course) -> tuple[StoreEntry, ...]:
        response = await self._client.query(peer, course.query)
        try:
            return self._position.accept(course, response)
        except StoreAnswerInvalid as error:
            self._client.report(peer, error)
            raise


class StoreMessages:
    """The entries of a query: `async for entry in client.messages(query, peers)`.

    They come in the direction of the query: oldest first, or newest first. All else is as with `StorePages`.
    """

    def __init__(self, pages: StorePages) -> None:
        self.pages = pages
        """Where they come from; knows of failures and of the cursor."""
        self._entries: deque[StoreEntry] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StoreEntry:
        while not self._entries:
            page = await anext(self.pages)
            self._entries.extend(page.entries if self.pages.query.forward else reversed(page.entries))
        return self._entries.popleft()
