"""The service of the store protocol: answers the queries of peers from an archive."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from pywaku.archive import Archive
from pywaku.errors import ArchiveError, DecodeError
from pywaku.ids import PeerId
from pywaku.network.port import Network
from pywaku.protocols.request_id import request_id_of
from pywaku.protocols.service import RateLimit, RequestService, ServiceLimits
from pywaku.protocols.store.answer import PageLimits, answer_query, refuse
from pywaku.protocols.store.errors import StoreStatus
from pywaku.protocols.store.turns import QueryTurns
from pywaku.tasks import open_service_nursery
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
    async with open_service_nursery() as nursery:
        service = StoreService(network, archive, nursery, limits, pages or PageLimits(), max_queries)
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
        self,
        network: Network,
        archive: Archive,
        nursery: trio.Nursery,
        limits: ServiceLimits,
        pages: PageLimits,
        max_queries: int,
    ) -> None:
        self.counters = StoreCounters()
        self._turns = QueryTurns(archive, max_queries)
        self._nursery = nursery
        self._pages = pages
        self.requests = RequestService(
            network,
            wire.PROTOCOL,
            self._answer,
            limits=limits,
            on_limited=_too_many,
            on_undecodable=_undecodable,
            on_failed=_failed,
        )
        """The serving of requests, to look at its counters."""

    def start(self) -> None:
        """Begin; `open_store_service` does this."""
        self._nursery.start_soon(self._turns.run)
        self.requests.start()

    def close(self) -> None:
        """Stop; `open_store_service` does this."""
        self.requests.close()

    async def _answer(self, peer: PeerId, data: bytes) -> bytes:
        request = wire.decode_request(data)
        counters = self.counters
        try:
            response = await answer_query(self._turns, request, self._pages)
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
    return _refusal(data, StoreStatus.TOO_MANY_REQUESTS)


def _undecodable(data: bytes, error: DecodeError) -> bytes:
    return _refusal(data, StoreStatus.BAD_REQUEST, f"the request does not decode: {error}")


def _failed(data: bytes, _error: Exception) -> bytes:
    return _refusal(data, StoreStatus.INTERNAL_SERVER_ERROR)


def _refusal(data: bytes, status: StoreStatus, cause: str = "") -> bytes:
    """To a request that is not decoded."""
    return wire.encode_response(refuse(request_id_of(data) or "", status, cause))
