"""The service of the store protocol: answers the queries of peers from an archive."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from pywaku.archive import Archive
from pywaku.errors import ArchiveError, DecodeError, InvalidInput
from pywaku.ids import PeerId
from pywaku.network.port import Network
from pywaku.protocols.service import RateLimit, RequestService, ServiceCounters, ServiceLimits
from pywaku.protocols.store.answer import PageLimits, answer_query, refuse
from pywaku.protocols.store.errors import StoreStatus
from pywaku.wire import store as wire

logger = logging.getLogger(__name__)

STORE_LIMITS: Final = ServiceLimits(
    per_peer=RateLimit(100, 10.0),
    total=RateLimit(1000, 10.0),
    # A thousand hashes, or a thousand content topics of a hundred bytes.
    max_request=128 * 1024,
    max_streams_per_peer=8,
)


@dataclass(slots=True)
class StoreCounters:
    """What queries came to; each number only grows."""

    answered: int = 0
    entries: int = 0
    refused: int = 0
    """Queries that no store may answer, and those with an unknown cursor."""
    unavailable: int = 0
    """Queries on which the archive failed."""
    errors: dict[str, int] = field(default_factory=dict[str, int])
    """Failures of the archive by reason."""


@asynccontextmanager
async def open_store_service(
    network: Network,
    archive: Archive,
    *,
    limits: ServiceLimits = STORE_LIMITS,
    pages: PageLimits | None = None,
    max_queries: int = 8,
) -> AsyncGenerator[StoreService]:
    """Answer the queries of peers from `archive`, of which `max_queries` at a time are put to it."""
    service = StoreService(network, archive, limits, pages or PageLimits(), max_queries)
    service.start()
    try:
        yield service
    finally:
        service.close()


class StoreService:
    """Answers queries. Made by `open_store_service`.

    An archive that fails is answered for with 503, which sends clients to another store; the node goes on.
    """

    def __init__(
        self, network: Network, archive: Archive, limits: ServiceLimits, pages: PageLimits, max_queries: int
    ) -> None:
        if max_queries < 1:
            raise InvalidInput(f"max_queries is at least 1, not {max_queries}")
        self.counters = StoreCounters()
        self._archive = archive
        self._pages = pages
        # What waits here is small; what comes out of the archive may be 15 MB for one query.
        self._turn = trio.CapacityLimiter(max_queries)
        self._service = RequestService(
            network,
            wire.PROTOCOL,
            self._answer,
            limits=limits,
            on_limited=_too_many,
            on_undecodable=_undecodable,
            on_failed=_failed,
        )

    @property
    def requests(self) -> ServiceCounters:
        """What the service has counted of requests of any kind."""
        return self._service.counters

    def start(self) -> None:
        """Begin; `open_store_service` does this."""
        self._service.start()

    def close(self) -> None:
        """Stop; `open_store_service` does this."""
        self._service.close()

    async def _answer(self, peer: PeerId, data: bytes) -> bytes:
        request = wire.decode_request(data)
        counters = self.counters
        try:
            async with self._turn:
                response = await answer_query(self._archive, request, self._pages)
        except ArchiveError as error:
            counters.unavailable += 1
            counters.errors[error.reason] = counters.errors.get(error.reason, 0) + 1
            logger.warning("store query failed reason=%s error=%s", error.reason, error)
            response = refuse(request.request_id, StoreStatus.SERVICE_UNAVAILABLE)
        else:
            if response.is_success:
                counters.answered += 1
                counters.entries += len(response.messages)
            else:
                counters.refused += 1
                logger.debug("store query refused peer=%s reason=%s", peer.short(), response.status_desc)
        return wire.encode_response(response)


def _too_many(data: bytes) -> bytes:
    request = wire.decode_request(data)
    return wire.encode_response(refuse(request.request_id, StoreStatus.TOO_MANY_REQUESTS))


def _undecodable(error: DecodeError) -> bytes:
    return wire.encode_response(refuse("", StoreStatus.BAD_REQUEST, f"the request does not decode: {error}"))


def _failed(data: bytes, _error: Exception) -> bytes:
    request = wire.decode_request(data)
    return wire.encode_response(refuse(request.request_id, StoreStatus.INTERNAL_SERVER_ERROR))
