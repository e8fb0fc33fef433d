"""Connecting to peers that others recommend, within bounds (GossipSub v1.1, Peer Exchange)."""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final

import trio

from pywaku.errors import DecodeError, NetworkError
from pywaku.gossip import Wish
from pywaku.ids import PeerId
from pywaku.network.port import Network
from pywaku.protocols.relay.counters import RelayCounters
from pywaku.protocols.relay.options import RelayOptions
from pywaku.wire.multiaddr import Multiaddr

logger = logging.getLogger(__name__)

_REMEMBERED: Final = 1024  # peers whose last attempt is remembered
_MOST_ADDRESSES: Final = 8  # of one peer that are tried


class PeerExchange:
    """Dials the peers that the router wishes for: a few at a time, each only now and then.

    Whoever recommends a peer may say anything, so only addresses from its signed record are used; reading
    that is the matter of `RelayOptions.read_peer_record`.
    """

    def __init__(
        self, network: Network, nursery: trio.Nursery, options: RelayOptions, counters: RelayCounters
    ) -> None:
        self._network = network
        self._nursery = nursery
        self._options = options
        self._counters = counters
        self._queue: deque[tuple[PeerId, Sequence[Multiaddr]]] = deque()
        self._attempts: OrderedDict[PeerId, float] = OrderedDict()
        self._running = 0

    def consider(self, wish: Wish, now: float) -> None:
        """Connect to a recommended peer, soon, unless it was tried lately or too many wait already."""
        options = self._options
        if options.read_peer_record is None or not options.peer_exchange_dials:
            return
        peer = wish.peer
        if peer == self._network.peer_id or peer in self._network.peers:
            return
        last = self._attempts.get(peer)
        if last is not None and now - last < options.peer_exchange_retry_s:
            return
        try:
            addresses = options.read_peer_record(peer, wish.signed_record)[:_MOST_ADDRESSES]
        except DecodeError as error:
            logger.debug("peer record refused: peer=%s error=%s", peer.short(), error)
            addresses = ()
        if not addresses or len(self._queue) >= options.peer_exchange_queue:
            self._counters.exchange_dropped += 1
            return
        self._attempts[peer] = now
        self._attempts.move_to_end(peer)
        if len(self._attempts) > _REMEMBERED:
            self._attempts.popitem(last=False)
        self._queue.append((peer, [address.with_peer(peer) for address in addresses]))
        if self._running < options.peer_exchange_dials:
            self._running += 1
            self._nursery.start_soon(self._dial)

    async def _dial(self) -> None:
        try:
            while self._queue:
                peer, addresses = self._queue.popleft()
                self._counters.exchange_dials += 1
                try:
                    await self._network.connect(addresses)
                except NetworkError as error:
                    logger.debug("recommended peer not reached: peer=%s error=%s", peer.short(), error)
                except Exception as error:
                    logger.exception("dial failed: peer=%s error=%s", peer.short(), type(error).__name__)
        finally:
            self._running -= 1
