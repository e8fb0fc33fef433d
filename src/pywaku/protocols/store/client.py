"""The client of the store protocol: single queries, whole results, and whether messages are stored."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pywaku.errors import DecodeError, InvalidInput, NetworkError, RequestTimeout
from pywaku.ids import PeerId
from pywaku.network.frames import request as send_request
from pywaku.network.port import Network
from pywaku.protocols.request_id import new_request_id
from pywaku.protocols.store.errors import (
    StoreAnswerInvalid,
    StoreQueryFailed,
    StoresExhausted,
    StoreStatus,
)
from pywaku.protocols.store.pages import StoreMessages, StorePages
from pywaku.protocols.store.query import MAX_PAGE_SIZE, StoreQuery
from pywaku.protocols.store.verify import verify_page
from pywaku.wire import store as wire
from pywaku.wire.store import StoreQueryRequest, StoreQueryResponse

logger = logging.getLogger(__name__)

MAX_RESPONSE: Final = 16 * 1024 * 1024
"""Bytes taken of one response: a page of 100 messages of 150 KiB, as nwaku may send, fits."""


@dataclass(frozen=True, slots=True)
class StoreClientOptions:
    """How patient a client is.

    A response has up to `max_response` bytes and comes within `timeout_s`. In a query of several pages, a
    store that fails is asked again, after the others and no sooner than `retry_wait_s`, up to `attempts`
    times in a row. When only stores are left that have had too many requests, they are asked again after
    `limited_wait_s`, twice that, and so on, for `limited_patience_s` in all without a page in between.
    """

    timeout_s: float = 10.0
    max_response: int = MAX_RESPONSE
    attempts: int = 2
    retry_wait_s: float = 1.0
    limited_wait_s: float = 1.0
    limited_patience_s: float = 120.0

    def __post_init__(self) -> None:
        if not (self.timeout_s > 0 and self.limited_wait_s > 0):
            raise InvalidInput("timeout_s and limited_wait_s are positive")
        if not 0 <= self.retry_wait_s < math.inf or not 0 <= self.limited_patience_s < math.inf:
            raise InvalidInput("retry_wait_s and limited_patience_s are not negative, and finite")
        if self.max_response < 1 or self.attempts < 1:
            raise InvalidInput("max_response and attempts are at least 1")


@dataclass(slots=True)
class StoreClientCounters:
    """What has happened since the client was made; each number only grows."""

    queries: int = 0
    """Requests sent, or tried to."""
    answered: int = 0
    entries: int = 0
    limited: int = 0
    """Answers of 429."""
    refused: int = 0
    """Answers with any other error code."""
    invalid: int = 0
    """Answers that could not be decoded, or cannot be true."""
    timed_out: int = 0
    failed: int = 0
    """Requests that failed in another way."""
    switched: int = 0
    """Queries that went on at another store."""
    detours: int = 0
    """Pages asked for in another way because a store did not know the cursor."""


BadPeerListener = Callable[[PeerId, str], None]


class StoreClient:
    """Asks stores. It keeps nothing but counters, and any number of tasks may use it.

    `on_bad_peer` hears of each store that answered with what cannot be true, and why.
    """

    def __init__(
        self,
        network: Network,
        *,
        options: StoreClientOptions | None = None,
        on_bad_peer: BadPeerListener | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.options = options or StoreClientOptions()
        self.counters = StoreClientCounters()
        self._network = network
        self._on_bad_peer = on_bad_peer
        self._rng = rng or random.Random()

    async def query(
        self, peer: PeerId, request: StoreQueryRequest | StoreQuery, *, timeout: float | None = None
    ) -> StoreQueryResponse:
        """One page from one connected store, held to the request.

        Raises `StoreQueryFailed` with the code that the store answered, `StoreAnswerInvalid` when the page
        cannot be the answer, `DecodeError`, and what `network.frames.request` raises.
        """
        if isinstance(request, StoreQuery):
            request = request.request(new_request_id(self._rng))
        counters = self.counters
        counters.queries += 1
        try:
            response = wire.decode_response(
                await send_request(
                    self._network,
                    peer,
                    wire.PROTOCOL,
                    wire.encode_request(request),
                    max_response=self.options.max_response,
                    timeout=self.options.timeout_s if timeout is None else timeout,
                )
            )
            if response.status_code is None:
                raise StoreAnswerInvalid("the answer has no status code")
            if response.is_success:
                verify_page(request, response)
        except (DecodeError, StoreAnswerInvalid) as error:
            self.report(peer, error)
            raise
        except RequestTimeout:
            counters.timed_out += 1
            raise
        except NetworkError:
            counters.failed += 1
            raise
        if not response.is_success:
            limited = response.status_code == StoreStatus.TOO_MANY_REQUESTS
            counters.limited += limited
            counters.refused += not limited
            raise StoreQueryFailed(peer, response.status_code, response.status_desc or "")
        counters.answered += 1
        counters.entries += len(response.messages)
        return response

    def pages(
        self, query: StoreQuery, peers: Iterable[PeerId], *, max_pages: int | None = None
    ) -> StorePages:
        """The result of a query, page by page, from the first of `peers` that answers; see `StorePages`."""
        return StorePages(self, query, peers, max_pages=max_pages)

    def messages(
        self,
        query: StoreQuery,
        peers: Iterable[PeerId],
        *,
        limit: int | None = None,
        max_pages: int | None = None,
    ) -> StoreMessages:
        """The result of a query, entry by entry in its direction, up to `limit`; see `StoreMessages`."""
        return StoreMessages(StorePages(self, query, peers, max_pages=max_pages, limit=limit))

    async def which_stored(self, hashes: Iterable[bytes], peers: Sequence[PeerId]) -> set[bytes]:
        """Which of the messages are stored at one of `peers` (13/WAKU2-STORE, Presence queries).

        The hashes are asked for a hundred at a time; what one store does not have the next is asked for.
        Raises `StoresExhausted` if there are hashes about which no store has answered.
        """
        wanted = list(dict.fromkeys(hashes))
        stored: set[bytes] = set()
        for start in range(0, len(wanted), MAX_PAGE_SIZE):
            missing = wanted[start : start + MAX_PAGE_SIZE]
            answered = False
            failures: dict[PeerId, Exception] = {}
            for peer in peers:
                query = StoreQuery(message_hashes=tuple(missing), include_data=False)
                pages = self.pages(query, [peer])
                try:
                    async for page in pages:
                        stored.update(entry.message_hash for entry in page.entries)
                    answered = True
                except StoresExhausted as error:
                    failures |= error.failures
                missing = [value for value in missing if value not in stored]
                if not missing:
                    break
            if missing and not answered:
                raise StoresExhausted(failures)
        return stored

    def report(self, peer: PeerId, error: Exception) -> None:
        """Note that a store has answered with what cannot be true."""
        self.counters.invalid += 1
        logger.debug("store answer refused peer=%s error=%s", peer.short(), error)
        if self._on_bad_peer is not None:
            self._on_bad_peer(peer, str(error))
