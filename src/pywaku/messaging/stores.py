"""The store nodes to ask: configured ones first, then those that were found (MESSAGING-API, storeNodes)."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from pywaku.errors import NetworkError
from pywaku.ids import PeerId
from pywaku.messaging.outcomes import need_of, outcome_of
from pywaku.peers.pools import NodePool, Pools
from pywaku.peers.services import Outcome, Service
from pywaku.protocols.store import (
    StoreClient,
    StoreEntry,
    StoreQuery,
    StoreQueryFailed,
    StoresExhausted,
)

logger = logging.getLogger(__name__)

BATCH: Final = 100
"""Hashes that are asked for at a time, the most that stores take."""
_AVOID_S: Final = 60.0  # a store that failed is asked after the others for as long
_MAX_FAILED: Final = 64


@dataclass(frozen=True, slots=True)
class Presence:
    """What stores have said of some messages; of the others none has answered."""

    stored: dict[bytes, PeerId] = field(default_factory=dict[bytes, PeerId])
    lacking: set[bytes] = field(default_factory=set[bytes])
    """A store has answered that it lacks these, and none that it has them."""


class Stores:
    """Asks store nodes of a shard, and tells the pools how they did."""

    def __init__(
        self,
        client: StoreClient,
        pools: Pools,
        configured: Sequence[PeerId],
        connected: Callable[[PeerId], bool],
    ) -> None:
        self._client = client
        self._pools = pools
        self._configured = tuple(configured)
        self._connected = connected
        self._failed_at: OrderedDict[PeerId, float] = OrderedDict()

    def _pool(self, pubsub_topic: str) -> NodePool:
        return self._pools.open(need_of(Service.STORE, pubsub_topic))

    def look_out(self, pubsub_topics: Iterable[str]) -> None:
        """Have store nodes of these shards at hand when they are needed."""
        for topic in pubsub_topics:
            self._pool(topic)

    def peers(self, pubsub_topic: str, *, avoid: Collection[PeerId] = ()) -> list[PeerId]:
        """The store nodes to ask, best first; those to `avoid` last, after those that failed lately."""
        configured = [peer for peer in self._configured if self._connected(peer)]
        found = list(dict.fromkeys((*configured, *self._pool(pubsub_topic).in_use)))
        lately = trio.current_time() - _AVOID_S
        return sorted(found, key=lambda peer: (peer in avoid, self._failed_at.get(peer, -math.inf) > lately))

    async def where_stored(
        self, pubsub_topic: str, hashes: Sequence[bytes], *, avoid: Collection[PeerId] = ()
    ) -> Presence:
        """Which of the messages are stored, and where; what one store does not have the next is asked for."""
        presence = Presence()
        for peer in self.peers(pubsub_topic, avoid=avoid):
            missing = [value for value in hashes if value not in presence.stored]
            for start in range(0, len(missing), BATCH):
                batch = missing[start : start + BATCH]
                query = StoreQuery(message_hashes=tuple(batch), include_data=False)
                try:
                    async for page in self._client.pages(query, [peer]):
                        presence.stored.update((entry.message_hash, peer) for entry in page.entries)
                except StoresExhausted as error:
                    self._failed(peer, error, pubsub_topic)
                    break  # the others would only wait for it as well
                self._answered(peer, pubsub_topic)
                presence.lacking.update(batch)
        presence.lacking.difference_update(presence.stored)
        return presence

    async def fetch(
        self, pubsub_topic: str, hashes: Sequence[bytes], *, batch: int
    ) -> AsyncGenerator[tuple[PeerId, StoreEntry], None]:
        """These messages, `batch` at a time, from whichever store has them."""
        missing = dict.fromkeys(hashes)
        for peer in self.peers(pubsub_topic):
            wanted = list(missing)
            for start in range(0, len(wanted), batch):
                query = StoreQuery(message_hashes=tuple(wanted[start : start + batch]))
                async for entry in self._ask(peer, query, pubsub_topic):
                    missing.pop(entry.message_hash, None)
                    yield peer, entry
            if not missing:
                return

    async def list_hashes(
        self, peer: PeerId, query: StoreQuery, pubsub_topic: str
    ) -> AsyncGenerator[list[bytes], None]:
        """The hashes of a content query at one store, page by page. Raises `StoresExhausted` if it fails."""
        pages = self._client.pages(query, [peer])
        try:
            async for page in pages:
                yield [entry.message_hash for entry in page.entries]
        except StoresExhausted as error:
            self._failed(peer, error, pubsub_topic)
            raise
        self._answered(peer, pubsub_topic)

    async def _ask(
        self, peer: PeerId, query: StoreQuery, pubsub_topic: str
    ) -> AsyncGenerator[StoreEntry, None]:
        """The entries that one store gives; none, if it fails."""
        try:
            async for page in self._client.pages(query, [peer]):
                for entry in page.entries:
                    yield entry
        except StoresExhausted as error:
            self._failed(peer, error, pubsub_topic)
            return
        self._answered(peer, pubsub_topic)

    def _answered(self, peer: PeerId, pubsub_topic: str) -> None:
        self._failed_at.pop(peer, None)
        self._pool(pubsub_topic).report(peer, Outcome.of_status(200))

    def _failed(self, peer: PeerId, error: StoresExhausted, pubsub_topic: str) -> None:
        cause = error.failures.get(peer)
        logger.debug("store failed: peer=%s error=%s", peer.short(), cause)
        self._failed_at[peer] = trio.current_time()
        if len(self._failed_at) > _MAX_FAILED:
            self._failed_at.popitem(last=False)
        match cause:
            case StoreQueryFailed(status_code=code):
                outcome = Outcome.of_status(code)
            case NetworkError():
                outcome = outcome_of(cause)
            case _:
                outcome = outcome_of(NetworkError(str(cause)))
        self._pool(pubsub_topic).report(peer, outcome)
