"""Peer exchange: ask a node for the records of others, and answer who asks (34/WAKU2-PEER-EXCHANGE).

A responder gives away only records that discovery has found, never those of peers it is connected with: that
would show its neighbourhood.
"""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from pywaku.errors import DecodeError, InvalidInput, NetworkError, RequestTimeout
from pywaku.ids import PeerId
from pywaku.network.frames import request
from pywaku.network.port import Network
from pywaku.peers.entry import Candidate, Origin, PeerEntry
from pywaku.peers.exchange_cache import CacheLimits, ExchangeCache
from pywaku.peers.services import OK, TIMED_OUT, WITHOUT_CODE, Outcome
from pywaku.protocols.service import RateLimit, RequestService, ServiceLimits
from pywaku.tasks import open_service_nursery
from pywaku.wire import peer_exchange as wire
from pywaku.wire import varint
from pywaku.wire.enr import Enr
from pywaku.wire.peer_exchange import PROTOCOL, PeerExchangeQuery, PeerExchangeResponse
from pywaku.wire.protobuf_lite import bytes_field, read_fields, text_field

__all__ = [
    "PROTOCOL",
    "ExchangeAnswer",
    "PeerExchangeClient",
    "PeerExchangeDiscovery",
    "PeerExchangeOptions",
    "PeerExchangeService",
    "open_peer_exchange",
    "records_to_give",
]

logger = logging.getLogger(__name__)

_BAD_REQUEST: Final = 400
_TOO_MANY_REQUESTS: Final = 429
_RESPONSE_FIELD: Final = 2
_STATUS_FIELD: Final = 10
_DESCRIPTION_FIELD: Final = 11
_RECORD_ROOM: Final = wire.MAX_ENR_SIZE + 16  # what a record takes in a response, at most
_SMALL_ROOM: Final = 1024


@dataclass(frozen=True, slots=True)
class PeerExchangeOptions:
    """At most `most_peers` records are in an answer, from a cache that is refreshed every `refresh_s`."""

    most_peers: int = 60
    refresh_s: float = 60.0
    cache: CacheLimits = field(default_factory=CacheLimits)
    limits: ServiceLimits = field(
        default_factory=lambda: ServiceLimits(
            per_peer=RateLimit(10, 60.0), total=RateLimit(1200, 60.0), max_request=1024
        )
    )

    def __post_init__(self) -> None:
        if not 1 <= self.most_peers <= wire.MAX_PEERS or self.refresh_s <= 0:
            raise InvalidInput(f"peer exchange takes 1 ≤ most_peers ≤ {wire.MAX_PEERS} and refresh_s > 0")


@dataclass(slots=True)
class PeerExchangeCounters:
    """What has happened so far."""

    records_sent: int = 0
    queries: int = 0
    failed_queries: int = 0
    records_received: int = 0
    invalid_records: int = 0
    """Received, but not of a valid form, not signed by their node, or repeated."""


def records_to_give(entries: Iterable[PeerEntry], cluster_id: int | None = None) -> list[Enr]:
    """The records of a peer book that may be given away.

    They are of Waku nodes of the cluster that discovery found, that are not connected, and did not fail.
    """
    return [
        entry.record
        for entry in entries
        if entry.record is not None
        and entry.record.is_waku
        and entry.origin.discovered
        and not entry.connected
        and not entry.failures
        and cluster_id in (None, entry.cluster_id)
    ]


# The service


@asynccontextmanager
async def open_peer_exchange(
    network: Network,
    *,
    records: Callable[[], Iterable[Enr]],
    options: PeerExchangeOptions | None = None,
    rng: random.Random | None = None,
) -> AsyncGenerator[PeerExchangeService, None]:
    """Answer peer exchange; `records` gives those that may be given away, such as `records_to_give`'s."""
    async with open_service_nursery() as nursery:
        service = PeerExchangeService(
            network, records, options or PeerExchangeOptions(), rng or random.Random()
        )
        service.start(nursery)
        try:
            yield service
        finally:
            service.close()


class PeerExchangeService:
    """Gives away random records out of a cache. Made by `open_peer_exchange`."""

    def __init__(
        self,
        network: Network,
        records: Callable[[], Iterable[Enr]],
        options: PeerExchangeOptions,
        rng: random.Random,
    ) -> None:
        self.counters = PeerExchangeCounters()
        self.cache = ExchangeCache(options.cache, rng)
        self._network = network
        self._records = records
        self._options = options
        self.service = RequestService(
            network,
            PROTOCOL,
            self._answer,
            limits=options.limits,
            on_limited=lambda _: _refusal(_TOO_MANY_REQUESTS, "TOO_MANY_REQUESTS"),
            on_undecodable=lambda _request, _error: _refusal(_BAD_REQUEST, "BAD_REQUEST"),
        )
        """What carries the requests, with its counters."""

    def start(self, nursery: trio.Nursery) -> None:
        """Begin; `open_peer_exchange` does this."""
        self.refresh()
        self.service.start()
        nursery.start_soon(self._keep_fresh)

    def close(self) -> None:
        """Stop; `open_peer_exchange` does this."""
        self.service.close()

    def refresh(self) -> None:
        """Take over the records that are known by now."""
        self.cache.refresh(self._records(), trio.current_time())

    async def _keep_fresh(self) -> None:
        while True:
            # An empty cache is of no use to anybody, so that it fills up sooner.
            await trio.sleep(self._options.refresh_s if len(self.cache) else self._options.refresh_s / 10)
            try:
                self.refresh()
            except Exception as error:
                logger.exception("peer exchange cache not refreshed error=%s", type(error).__name__)

    async def _answer(self, peer: PeerId, data: bytes) -> bytes:
        query = wire.decode_query(data)
        await trio.lowlevel.checkpoint()
        count = min(query.num_peers, self._options.most_peers)
        found = self.cache.sample(count, self._network.peers.keys() | {peer})
        self.counters.records_sent += len(found)
        return wire.encode_response(PeerExchangeResponse(tuple(record.encode() for record in found)))


def _refusal(code: int, description: str) -> bytes:
    """A response without records, and with the status that nwaku puts into its responses."""
    status = (
        varint.encode(_STATUS_FIELD << 3) + varint.encode(code) + text_field(_DESCRIPTION_FIELD, description)
    )
    return bytes_field(_RESPONSE_FIELD, status)


# The client


@dataclass(frozen=True, slots=True)
class ExchangeAnswer:
    """What a node answered: valid records, each of another node; or the status with which it refused."""

    records: tuple[Enr, ...]
    status: int | None = None

    @property
    def outcome(self) -> Outcome:
        """What it means to a pool of nodes."""
        return OK if self.status is None else Outcome.of_status(self.status)


class PeerExchangeClient:
    """Asks nodes for the records of others."""

    def __init__(self, network: Network) -> None:
        self.counters = PeerExchangeCounters()
        self._network = network

    async def query(self, peer: PeerId, count: int, *, timeout: float = 10.0) -> ExchangeAnswer:
        """Ask a connected node for up to `count` records; only valid ones are returned.

        Raises `NetworkError` where it does not answer (`RequestTimeout`, `NotConnected`,
        `ProtocolNotSupported`, …) or answers what cannot be understood.
        """
        if not 1 <= count <= wire.MAX_PEERS:
            raise InvalidInput(f"peer exchange asks for 1 to {wire.MAX_PEERS} records, not {count}")
        self.counters.queries += 1
        try:
            data = await request(
                self._network,
                peer,
                PROTOCOL,
                wire.encode_query(PeerExchangeQuery(count)),
                max_response=_SMALL_ROOM + count * _RECORD_ROOM,
                timeout=timeout,
            )
            response = wire.decode_response(data)
            status = _status_of(data)
        except DecodeError as error:
            self.counters.failed_queries += 1
            raise NetworkError(f"{peer.short()} answered what cannot be understood: {error}") from error
        except NetworkError:
            self.counters.failed_queries += 1
            raise
        return ExchangeAnswer(self._checked(response.enrs[:count]), status)

    def _checked(self, encoded: Sequence[bytes]) -> tuple[Enr, ...]:
        records: dict[PeerId, Enr] = {}
        for data in encoded:
            try:
                record = Enr.decode(data)
            except DecodeError as error:
                self.counters.invalid_records += 1
                logger.debug("node record refused error=%s", error)
                continue
            if record.peer_id == self._network.peer_id or record.peer_id in records:
                self.counters.invalid_records += record.peer_id in records
                continue
            records[record.peer_id] = record
        self.counters.records_received += len(records)
        return tuple(records.values())


def _status_of(response: bytes) -> int | None:
    """The status with which a node refused; None where it gives none, or one of success."""
    for number, value in read_fields(response):
        if number == _RESPONSE_FIELD and isinstance(value, bytes):
            for inner, status in read_fields(value):
                if inner == _STATUS_FIELD and isinstance(status, int) and not 200 <= status < 300:
                    return status
    return None


class PeerExchangeDiscovery:
    """Discovery by peer exchange: asks a few nodes, and takes some of what each of them says.

    As a responder may name peers of its own only, several are asked and their answers mixed (Security
    Considerations, Requester). `nodes` gives connected nodes that answer peer exchange, such as a pool's
    `in_use`, and `report` hears how each did. Records of other clusters are left out.
    """

    name = "peer-exchange"
    every_s: float | None = 300.0

    def __init__(
        self,
        client: PeerExchangeClient,
        nodes: Callable[[], Sequence[PeerId]],
        *,
        cluster_id: int | None = None,
        report: Callable[[PeerId, Outcome], None] | None = None,
        ask: int = 2,
        timeout: float = 10.0,
        rng: random.Random | None = None,
    ) -> None:
        if ask < 1:
            raise InvalidInput(f"peer exchange asks at least 1 node, not {ask}")
        self._client = client
        self._nodes = nodes
        self._cluster_id = cluster_id
        self._report = report
        self._ask = ask
        self._timeout = timeout
        self._rng = rng or random.Random()

    async def find(self, count: int) -> AsyncGenerator[Candidate, None]:
        """Up to `count` nodes, of all who were asked."""
        nodes = list(self._nodes())[: self._ask]
        answers: list[tuple[Enr, ...]] = []
        async with trio.open_nursery() as nursery:
            for peer in nodes:
                nursery.start_soon(self._query, peer, min(count, wire.MAX_PEERS), answers)
        found: dict[PeerId, Enr] = {}
        for record in (record for records in answers for record in records):
            known = found.get(record.peer_id)
            if self._suits(record) and (known is None or known.seq < record.seq):
                found[record.peer_id] = record
        for record in self._rng.sample(list(found.values()), min(count, len(found))):
            yield Candidate.of_record(record, Origin.PEER_EXCHANGE)

    def _suits(self, record: Enr) -> bool:
        shards = record.shards
        named = None if shards is None else shards.cluster_id
        return record.is_waku and bool(record.dial_addresses) and self._cluster_id in (None, named)

    async def _query(self, peer: PeerId, count: int, answers: list[tuple[Enr, ...]]) -> None:
        try:
            answer = await self._client.query(peer, count, timeout=self._timeout)
        except RequestTimeout:
            outcome = TIMED_OUT
        except NetworkError as error:
            logger.debug("peer exchange failed peer=%s error=%s", peer.short(), error)
            outcome = WITHOUT_CODE
        else:
            answers.append(answer.records)
            outcome = answer.outcome
        if self._report is not None:
            self._report(peer, outcome)
