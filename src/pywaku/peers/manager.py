"""The peer book, live: kept current by what the network and discoveries tell, saved, and asked for peers."""

from __future__ import annotations

import logging
import random
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from pywaku.errors import DialError, InvalidInput, WakuError
from pywaku.ids import PeerId
from pywaku.network.port import (
    Direction,
    Network,
    PeerConnected,
    PeerDisconnected,
    PeerEvent,
    PeerIdentified,
)
from pywaku.peers.book import BookLimits, PeerBook
from pywaku.peers.discovery import Discovery
from pywaku.peers.entry import Candidate, PeerEntry
from pywaku.peers.persistence import PeerStore
from pywaku.peers.selection import TRANSPORTS, Need, dialable, select
from pywaku.tasks import open_service_nursery
from pywaku.wire.metadata import Metadata

logger = logging.getLogger(__name__)

MetadataOf = Callable[[PeerId], Metadata | None]
"""What is known of a peer's cluster and shards, such as `pywaku.protocols.metadata.Metadata.of`."""


@dataclass(frozen=True, slots=True)
class PeersOptions:
    """How the book is kept.

    - `transports`: what this node can dial.
    - `save_every_s`: how often changes are written to the file.
    - `metadata_every_s`: how often is looked for metadata that peers have sent.
    - `discover_count`: how many peers a search looks for, and `discover_pause_s`: how long a discovery rests
      after one at least; twice as long after each one that brought nobody new, up to `longest_pause_s`.
    - `dial_timeout_s`: for one connection.
    - `max_dials`: connections that are attempted at a time.
    """

    limits: BookLimits = field(default_factory=BookLimits)
    transports: frozenset[str] = TRANSPORTS
    save_every_s: float = 30.0
    metadata_every_s: float = 2.0
    discover_count: int = 20
    discover_pause_s: float = 10.0
    longest_pause_s: float = 600.0
    dial_timeout_s: float = 10.0
    max_dials: int = 8

    def __post_init__(self) -> None:
        if min(self.save_every_s, self.metadata_every_s, self.discover_pause_s, self.dial_timeout_s) <= 0:
            raise InvalidInput("the times of PeersOptions are positive")
        if min(self.discover_count, self.max_dials) < 1:
            raise InvalidInput("discover_count and max_dials are at least 1")


@dataclass(slots=True)
class PeersCounters:
    """What has happened so far."""

    dials: int = 0
    failed_dials: int = 0
    searches: int = 0
    failed_searches: int = 0
    discovered: int = 0
    """Peers that discoveries named and the book did not know."""
    saves: int = 0
    failed_saves: int = 0


@asynccontextmanager
async def open_peers(
    network: Network,
    *,
    path: Path | str | None = None,
    metadata: MetadataOf | None = None,
    options: PeersOptions | None = None,
    rng: random.Random | None = None,
    clock: Callable[[], float] = time.time,
) -> AsyncGenerator[PeerManager, None]:
    """A peer book for `network`; with `path`, one that outlives the node. Leaving saves it.

    A damaged file is set aside, and without a usable one the node runs all the same. `clock` gives the
    seconds since 1970, by which times in the book are kept. Raises `InvalidInput` if the file belongs to
    another program.
    """
    options = options or PeersOptions()
    store = None if path is None else await trio.to_thread.run_sync(_open_store, Path(path))
    try:
        async with open_service_nursery() as nursery:
            manager = PeerManager(network, nursery, store, metadata, options, rng or random.Random(), clock)
            await manager.start()
            try:
                yield manager
            finally:
                await manager.close()
    finally:
        if store is not None:
            store.close()


def _open_store(path: Path) -> PeerStore | None:
    try:
        return PeerStore.open(path)
    except (OSError, sqlite3.Error) as error:
        logger.warning("peer book not persistent: file=%s error=%s", path, error)
        return None


class PeerManager:
    """Who there is, whom to use, and how to reach them. Made by `open_peers`."""

    def __init__(
        self,
        network: Network,
        nursery: trio.Nursery,
        store: PeerStore | None,
        metadata: MetadataOf | None,
        options: PeersOptions,
        rng: random.Random,
        clock: Callable[[], float],
    ) -> None:
        self.network = network
        self.options = options
        self.book = PeerBook(options.limits, rng=rng)
        self.counters = PeersCounters()
        self._nursery = nursery
        self._store = store
        self._disk = trio.CapacityLimiter(1)  # one at a time; the connection is not shared
        self._metadata = metadata
        self._heard_metadata: dict[PeerId, Metadata] = {}
        self._rng = rng
        self._clock = clock
        self._dials = trio.CapacityLimiter(options.max_dials)
        self._listeners: list[Callable[[], None]] = []
        self._needed: list[trio.Event] = []
        self._unwatch: Callable[[], None] | None = None

    # Live

    async def start(self) -> None:
        """Begin; `open_peers` does this."""
        if self._store is not None:
            store = self._store
            try:
                entries = await trio.to_thread.run_sync(lambda: list(store.load()), limiter=self._disk)
                self.book.restore(entries)
                logger.info("peer book loaded: peers=%d unreadable=%d", len(self.book), store.unreadable)
            except sqlite3.Error as error:
                logger.warning("peer book not loaded: error=%s", error)
        self._unwatch = self.network.watch(self._heard)
        for peer, info in tuple(self.network.peers.items()):
            self.book.connected(peer, self._clock(), inbound=info.direction is Direction.INBOUND)
            if info.identified:
                self._identified(peer)
        self._nursery.start_soon(self._keep_current)

    async def close(self) -> None:
        """Save; `open_peers` does this."""
        if self._unwatch is not None:
            self._unwatch()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 5):
            await self.save()

    def watch(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` when the book has changed, from the loop; returns the call that ends it."""
        self._listeners.append(listener)

        def unwatch() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unwatch

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    # What becomes known

    def learn(self, candidates: Iterable[Candidate]) -> int:
        """Take these peers into the book; returns how many were not known."""
        now = self._clock()
        new = 0
        for candidate in candidates:
            if candidate.peer != self.network.peer_id:
                known = candidate.peer in self.book
                new += self.book.learn(candidate, now) and not known
        self._tell()
        return new

    def failed(self, peer: PeerId) -> None:
        """A peer did not do what it should: others go before it, and it is dialed less eagerly."""
        self.book.failed(peer, self._clock())

    def succeeded(self, peer: PeerId) -> None:
        """A peer did what it should."""
        self.book.succeeded(peer)

    def _heard(self, event: PeerEvent) -> None:
        now = self._clock()
        match event:
            case PeerConnected(peer=peer, direction=direction):
                self.book.connected(peer, now, inbound=direction is Direction.INBOUND)
            case PeerIdentified(peer=peer):
                self._identified(peer)
            case PeerDisconnected(peer=peer):
                self.refresh_metadata(peer)
                self._heard_metadata.pop(peer, None)
                self.book.disconnected(peer, now)
        self._tell()

    def _identified(self, peer: PeerId) -> None:
        info = self.network.peers.get(peer)
        if info is not None:
            self.book.identified(peer, info.protocols, info.listen_addresses, self._clock(), agent=info.agent)
            self.refresh_metadata(peer)

    def refresh_metadata(self, peer: PeerId) -> bool:
        """Take over what the peer has said of its cluster and shards; whether that was new."""
        found = None if self._metadata is None else self._metadata(peer)
        if found is None or self._heard_metadata.get(peer) is found:
            return False
        self._heard_metadata[peer] = found
        self.book.metadata(peer, found.cluster_id, found.shards)
        return True

    # Whom to use

    def select(
        self,
        need: Need,
        *,
        exclude: frozenset[PeerId] = frozenset(),
        busy: frozenset[PeerId] = frozenset(),
    ) -> list[PeerEntry]:
        """The known peers that do for `need`, best first; see `selection.select`."""
        now = self._clock()
        return select(
            self.book,
            need,
            rng=self._rng,
            transports=self.options.transports,
            may_dial=lambda entry: self.book.may_dial(entry, now),
            exclude=exclude | {self.network.peer_id},
            busy=busy,
        )

    async def connect(self, peer: PeerId) -> bool:
        """Connect to a peer of the book; whether there is a connection. A failure is noted in the book."""
        if peer in self.network.peers:
            await trio.lowlevel.checkpoint()
            return True
        entry = self.book.get(peer)
        addresses = () if entry is None else dialable(entry, self.options.transports)
        if not addresses:
            await trio.lowlevel.checkpoint()
            return False
        async with self._dials:
            self.counters.dials += 1
            try:
                await self.network.connect(addresses, timeout=self.options.dial_timeout_s)
            except Exception as error:
                self.counters.failed_dials += 1
                self.failed(peer)
                unexpected = not isinstance(error, WakuError)
                level = logging.DEBUG if isinstance(error, DialError) else logging.INFO
                logger.log(
                    logging.ERROR if unexpected else level,
                    "dial failed: peer=%s error=%s",
                    peer.short(),
                    error,
                    exc_info=unexpected,
                )
                return False
        self.succeeded(peer)
        return True

    # Discovery

    def add_discovery(self, discovery: Discovery) -> None:
        """Search with `discovery`: now, every so often, and when peers are needed."""
        needed = trio.Event()
        self._needed.append(needed)
        self._nursery.start_soon(self._discover, discovery, len(self._needed) - 1)

    def need_more(self) -> None:
        """Peers are needed: discoveries that rest search again as soon as they may."""
        for needed in self._needed:
            needed.set()

    async def _discover(self, discovery: Discovery, place: int) -> None:
        options = self.options
        pause = options.discover_pause_s
        while True:
            new = await self._search(discovery)
            if discovery.every_s is None:
                return
            pause = options.discover_pause_s if new else min(2 * pause, options.longest_pause_s)
            await trio.sleep(pause)
            with trio.move_on_after(max(0.0, discovery.every_s - pause)):
                await self._needed[place].wait()
            self._needed[place] = trio.Event()

    async def _search(self, discovery: Discovery) -> int:
        """One search; how many unknown peers it has brought."""
        self.counters.searches += 1
        new = found = 0
        try:
            async with aclosing(discovery.find(self.options.discover_count)) as candidates:
                async for candidate in candidates:
                    found += 1
                    new += self.learn((candidate,))
        except Exception as error:
            self.counters.failed_searches += 1
            level = logging.DEBUG if isinstance(error, WakuError) else logging.ERROR
            logger.log(level, "discovery failed: discovery=%s error=%r", discovery.name, error)
        self.counters.discovered += new
        logger.debug("discovery done: discovery=%s found=%d new=%d", discovery.name, found, new)
        return new

    # The file

    async def _keep_current(self) -> None:
        due = trio.current_time() + self.options.save_every_s
        while True:
            await trio.sleep(self.options.metadata_every_s)
            learned = [self.refresh_metadata(peer) for peer in tuple(self.network.peers)]
            if any(learned):
                self._tell()
            if trio.current_time() >= due:
                due = trio.current_time() + self.options.save_every_s
                await self.save()

    async def save(self) -> None:
        """Write what has changed to the file, if there is one; failing is counted and logged, no more."""
        changed = self.book.take_changed()
        store = self._store
        if store is None or not changed:
            await trio.lowlevel.checkpoint()
            return
        entries = [entry for peer in changed if (entry := self.book.get(peer)) is not None]
        gone = [peer for peer in changed if peer not in self.book]
        saved = False
        try:
            await trio.to_thread.run_sync(store.save, entries, gone, limiter=self._disk)
            saved = True
            self.counters.saves += 1
        except sqlite3.Error as error:
            self.counters.failed_saves += 1
            logger.warning("peer book not saved: error=%s", error)
        finally:
            if not saved:  # failed, or cancelled while it waited for its turn
                self.book.put_back_changed(changed)

    async def fact(self, name: str) -> bytes | None:
        """What was noted under a name in an earlier run."""
        store = self._store
        if store is not None:
            try:
                return await trio.to_thread.run_sync(store.fact, name, limiter=self._disk)
            except sqlite3.Error as error:
                logger.warning("peer book not read: error=%s", error)
        return None

    async def note(self, name: str, value: bytes) -> None:
        """Note something for the next run, such as this node's own record."""
        store = self._store
        if store is not None:
            try:
                await trio.to_thread.run_sync(store.note, name, value, limiter=self._disk)
            except sqlite3.Error as error:
                self.counters.failed_saves += 1
                logger.warning("peer book not saved: error=%s", error)
