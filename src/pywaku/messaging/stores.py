"""The store nodes to ask: configured ones first, then those that were found (MESSAGING-API, storeNodes)."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from typing import Final

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

    def _pool(self, pubsub_topic: str) -> NodePool:
        return self._pools.open(need_of(Service.STORE, pubsub_topic))

    def peers(self, pubsub_topic: str, *, avoid: Collection[PeerId] = ()) -> list[PeerId]:
        """The store nodes to ask, best first; those to `avoid` last."""
        configured = [peer for peer in self._configured if self._connected(peer)]
        found = list(dict.fromkeys((*configured, *self._pool(pubsub_topic).in_use)))
        return sorted(found, key=lambda peer: peer in avoid)

    async def where_stored(
        self, pubsub_topic: str, hashes: Sequence[bytes], *, avoid: Collection[PeerId] = ()
    ) -> dict[bytes, PeerId]:
        """Which of the messages are stored, and where; what one store does not have the next is asked for."""
        found: dict[bytes, PeerId] = {}
        for peer in self.peers(pubsub_topic, avoid=avoid):
            missing = [value for value in hashes if value not in found]
            if not missing:
                break
            for start in range(0, len(missing), BATCH):
                query = StoreQuery(message_hashes=tuple(missing[start : start + BATCH]), include_data=False)
                async for entry in self._ask(peer, query, pubsub_topic):
                    found[entry.message_hash] = peer
        return found

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
        self._pool(pubsub_topic).report(peer, Outcome.of_status(200))

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
        self._pool(pubsub_topic).report(peer, Outcome.of_status(200))

    def _failed(self, peer: PeerId, error: StoresExhausted, pubsub_topic: str) -> None:
        cause = error.failures.get(peer)
        logger.debug("store failed: peer=%s error=%s", peer.short(), cause)
        match cause:
            case StoreQueryFailed(status_code=code):
                outcome = Outcome.of_status(code)
            case NetworkError():
                outcome = outcome_of(cause)
            case _:
                outcome = outcome_of(NetworkError(str(cause)))
        self._pool(pubsub_topic).report(peer, outcome)
