"""Keeps connections with given peers: dials them, and dials them again when they are lost."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from pywaku.errors import InvalidInput, LimitExceeded, WakuError
from pywaku.ids import PeerId
from pywaku.network.backoff import Backoff, BackoffPolicy
from pywaku.network.port import Network, PeerConnected, PeerDisconnected, PeerEvent
from pywaku.tasks import open_service_nursery
from pywaku.wire.multiaddr import Multiaddr

logger = logging.getLogger(__name__)

MAX_DIALS: Final = 8
DIAL_TIMEOUT_S: Final = 10.0
MAX_PEERS: Final = 1024
MAX_ADDRESSES: Final = 16
_PATIENCE_S: Final = 1.0  # a dial that takes longer leaves its place to the next one and goes on beside it


@asynccontextmanager
async def open_keeper(
    network: Network,
    *,
    policy: BackoffPolicy | None = None,
    max_dials: int = MAX_DIALS,
    dial_timeout: float = DIAL_TIMEOUT_S,
    rng: random.Random | None = None,
) -> AsyncGenerator[Keeper]:
    """A keeper for as long as the block runs; the connections outlive it.

    At most `max_dials` dials begin together. One that gets no answer for a second no longer counts, so that
    peers that are silent delay no others.
    """
    async with open_service_nursery() as nursery:
        keeper = Keeper(
            network,
            nursery,
            policy if policy is not None else BackoffPolicy(),
            max_dials,
            dial_timeout,
            rng if rng is not None else random.Random(),
        )
        unwatch = network.watch(keeper.peer_event)
        try:
            yield keeper
        finally:
            unwatch()


class Keeper:
    """The peers that are kept, each with a task of its own. Made by `open_keeper`."""

    def __init__(
        self,
        network: Network,
        nursery: trio.Nursery,
        policy: BackoffPolicy,
        max_dials: int,
        dial_timeout: float,
        rng: random.Random,
    ) -> None:
        self.dials = 0
        self.failed_dials = 0
        self._network = network
        self._nursery = nursery
        self._policy = policy
        self._slots = trio.Semaphore(max_dials)
        self._dial_timeout = dial_timeout
        self._rng = rng
        self._kept: dict[PeerId, _Kept] = {}

    @property
    def peers(self) -> tuple[PeerId, ...]:
        """The peers that are kept, connected or not."""
        return tuple(self._kept)

    def keep(self, addresses: Sequence[Multiaddr] | Multiaddr) -> None:
        """Keep connections with the peers at `addresses`, each of which ends in `/p2p/<peer id>`.

        Several addresses of one peer are tried in turn; new ones join those that are known, first. Raises
        `InvalidInput` for an address without a peer, and `LimitExceeded` beyond 1,024 peers.
        """
        given: dict[PeerId, list[Multiaddr]] = {}
        for address in (addresses,) if isinstance(addresses, Multiaddr) else addresses:
            if address.peer_id is None:
                raise InvalidInput(f"an address to keep ends in /p2p/<peer id>, and {address} does not")
            given.setdefault(address.peer_id, []).append(address)
        if len(self._kept.keys() | given.keys()) > MAX_PEERS:
            raise LimitExceeded(f"{MAX_PEERS} peers are kept at most")
        for peer, new in given.items():
            kept = self._kept.get(peer)
            known = kept.addresses if kept is not None else ()
            merged = tuple(dict.fromkeys((*new, *known)))[:MAX_ADDRESSES]
            if kept is not None:
                kept.addresses = merged
            else:
                kept = self._kept[peer] = _Kept(peer, merged)
                self._nursery.start_soon(self._keep, kept)

    def forget(self, peer: PeerId) -> None:
        """Keep the peer no longer; a connection with it stays as it is."""
        kept = self._kept.pop(peer, None)
        if kept is not None:
            kept.scope.cancel()

    def peer_event(self, event: PeerEvent) -> None:
        """Hear of a peer from the network."""
        kept = self._kept.get(event.peer)
        if kept is not None and isinstance(event, PeerConnected | PeerDisconnected):
            kept.changed.set()
            kept.changed = trio.Event()

    async def _keep(self, kept: _Kept) -> None:
        backoff = Backoff(self._policy, self._rng)
        delay = 0.0
        missing = False
        with kept.scope:
            while True:
                with trio.move_on_after(delay):
                    await self._until(kept, connected=True)  # the peer may be first
                if not self._connected(kept) and (failure := await self._dial(kept)) is not None:
                    # One line at the first of several failures: whoever asked for the peer wants to know.
                    level = logging.DEBUG if missing else logging.INFO
                    logger.log(level, "peer not reached, trying on: peer=%s error=%s", kept.peer, failure)
                    missing = True
                    delay = backoff.failed()
                    continue
                missing = False
                backoff.connected(trio.current_time())
                await self._until(kept, connected=False)
                delay = backoff.lost(trio.current_time())
                logger.debug("kept peer lost: peer=%s next_try_in_s=%.1f", kept.peer.short(), delay)

    def _connected(self, kept: _Kept) -> bool:
        return kept.peer in self._network.peers

    async def _until(self, kept: _Kept, *, connected: bool) -> None:
        while self._connected(kept) is not connected:
            await kept.changed.wait()

    async def _dial(self, kept: _Kept) -> Exception | None:
        """Dial once; returns why there is no connection, if there is none."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._hold_slot)
            self.dials += 1
            try:
                await self._network.connect(kept.addresses, timeout=self._dial_timeout)
            except WakuError as error:
                self.failed_dials += 1
                return error
            except Exception as error:  # a fault of our own: the other peers are kept all the same
                logger.exception("dial failed: peer=%s error=%s", kept.peer.short(), type(error).__name__)
                self.failed_dials += 1
                return error
            finally:
                nursery.cancel_scope.cancel()
        return None

    async def _hold_slot(self, task_status: trio.TaskStatus[None]) -> None:
        async with self._slots:
            task_status.started()
            await trio.sleep(_PATIENCE_S)


class _Kept:
    """One kept peer: where it is, and the scope of its task."""

    __slots__ = ("addresses", "changed", "peer", "scope")

    def __init__(self, peer: PeerId, addresses: tuple[Multiaddr, ...]) -> None:
        self.peer = peer
        self.addresses = addresses
        self.changed = trio.Event()
        self.scope = trio.CancelScope()
