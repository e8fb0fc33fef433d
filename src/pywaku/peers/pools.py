"""The pools, live: each keeps connections with a few service nodes and tells its client which ones to use."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import trio

from pywaku.errors import NodeClosed
from pywaku.ids import PeerId
from pywaku.network.port import Network, PeerConnected, PeerDisconnected, PeerEvent, PeerIdentified
from pywaku.peers.manager import PeerManager
from pywaku.peers.pool import Connect, Discover, Ping, PoolCounters, Replace, ServicePool, Use
from pywaku.peers.selection import Need, suits
from pywaku.peers.services import POLICIES, Outcome, PoolPolicy, Service
from pywaku.tasks import open_service_nursery, run_guarded

logger = logging.getLogger(__name__)

_OTHER_WAY: Final = {Service.FILTER: Service.LIGHTPUSH, Service.LIGHTPUSH: Service.FILTER}

PoolEvent = Use | Replace | Ping
PoolListener = Callable[[PoolEvent], None]

_REFRESH_S: Final = 30.0  # candidates are selected anew at least as often: back-offs end, times pass
_REFRESH_PAUSE_S: Final = 0.1
_IDENTIFY_S: Final = 10.0
_TOGETHER_S: Final = 5.0  # the loss of all connections within this time is the network's doing
_OFFLINE_S: Final = 30.0  # then the nodes are to blame after all


@asynccontextmanager
async def open_pools(manager: PeerManager) -> AsyncGenerator[Pools, None]:
    """Room for pools, which end with it."""
    async with open_service_nursery() as nursery:
        pools = Pools(manager, nursery)
        unwatch = manager.network.watch(pools.peer_event)
        try:
            yield pools
        finally:
            unwatch()
            pools.close_all()


class Pools:
    """The pools of a node, one per service and shard. Made by `open_pools`.

    It also tells them when the network is away. That is assumed when the last connection goes, shortly after
    others, and until a connection stands; whoever knows better says `went_offline` and `came_online`.
    """

    def __init__(self, manager: PeerManager, nursery: trio.Nursery) -> None:
        self._manager = manager
        self._nursery = nursery
        self._open: dict[Need, NodePool] = {}
        self._lost: deque[float] = deque(maxlen=2)
        self._offline_until: float | None = None

    def open(self, need: Need, policy: PoolPolicy | None = None) -> NodePool:
        """The pool of nodes for a need, made if there is none; `policy` is the service's own by default."""
        pool = self._open.get(need)
        if pool is None:
            policy = policy or POLICIES[need.service]
            pool = NodePool(self._manager, self._nursery, need, policy, lambda: self._others(need))
            self._open[need] = pool
            pool.start()
        return pool

    def _others(self, need: Need) -> frozenset[PeerId]:
        """The nodes that the same shards use for the other way: sending, or receiving.

        What one node was given to send is best confirmed by another that pushes it (REQ-RES-RELIABILITY,
        "Retry missing messages"), and a node that fails is then lost for one way only.
        """
        other = _OTHER_WAY.get(need.service)
        pool = None if other is None else self._open.get(replace(need, service=other))
        return frozenset() if pool is None else frozenset(pool.members)

    def close(self, pool: NodePool) -> None:
        """End a pool; connections stay."""
        pool.close()
        for need in [need for need, other in self._open.items() if other is pool]:
            del self._open[need]

    def close_all(self) -> None:
        """End all pools; `open_pools` does this."""
        for pool in tuple(self._open.values()):
            self.close(pool)

    @property
    def offline(self) -> bool:
        """Is the network taken to be away?"""
        return self._offline_until is not None

    def went_offline(self) -> None:
        """The network is away."""
        if self._offline_until is None:
            logger.info("network away: pools wait")
            self._offline_until = trio.current_time() + _OFFLINE_S
            for pool in self._open.values():
                pool.went_offline()
            self._nursery.start_soon(self._doubt, self._offline_until)

    def came_online(self) -> None:
        """The network is back."""
        if self._offline_until is not None:
            logger.info("network back: pools go on")
            self._offline_until = None
            for pool in self._open.values():
                pool.came_online()

    async def _doubt(self, until: float) -> None:
        await trio.sleep_until(until)
        if self._offline_until == until:
            self.came_online()

    def peer_event(self, event: PeerEvent) -> None:
        """Hear of a peer from the network."""
        now = trio.current_time()
        match event:
            case PeerConnected():
                self.came_online()
            case PeerDisconnected():
                self._lost.append(now)
                together = len(self._lost) == 2 and now - self._lost[0] <= _TOGETHER_S
                if together and not self._manager.network.peers:
                    self.went_offline()
            case _:
                pass
        for pool in tuple(self._open.values()):
            pool.peer_event(event)


class NodePool:
    """One pool: nodes to use, and events about them. Made by `Pools.open`.

    Who uses it sends its requests to `in_use`, reports every outcome, and hears through `watch` of nodes that
    come into use (`Use`: subscribe there), are replaced (`Replace`) and are to be pinged (`Ping`).
    """

    def __init__(
        self,
        manager: PeerManager,
        nursery: trio.Nursery,
        need: Need,
        policy: PoolPolicy,
        busy: Callable[[], frozenset[PeerId]],
    ) -> None:
        self.need = need
        self._busy = busy
        self._manager = manager
        self._nursery = nursery
        self._tasks: trio.Nursery | None = None
        self._pool = ServicePool(policy)
        self._listeners: list[PoolListener] = []
        self._awaited: dict[PeerId, trio.Event] = {}
        self._changed = trio.Event()
        self._grown = trio.Event()
        self._scope = trio.CancelScope()
        self._closed = False
        self._unwatch = manager.watch(self._wake)

    @property
    def in_use(self) -> tuple[PeerId, ...]:
        """The nodes to send requests to, all connected."""
        return self._pool.in_use

    @property
    def members(self) -> tuple[PeerId, ...]:
        """These, and the nodes that are about to be connected."""
        return self._pool.members

    @property
    def counters(self) -> PoolCounters:
        """What has happened so far."""
        return self._pool.counters

    @property
    def network(self) -> Network:
        """Where the nodes are."""
        return self._manager.network

    def watch(self, listener: PoolListener) -> Callable[[], None]:
        """Hear of the pool's nodes, from those now in use on; returns the call that ends it.

        Listeners are called at once, from the loop, and must not block.
        """
        self._listeners.append(listener)
        for peer in self.in_use:
            listener(Use(peer))

        def unwatch() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unwatch

    def report(self, peer: PeerId, outcome: Outcome) -> None:
        """What became of a request to a node; the pool, and the order of the book, follow from it."""
        if outcome.ok:
            self._manager.succeeded(peer)
        elif outcome.ping or self._pool.policy.replaces_at_once(outcome):
            self._manager.failed(peer)
        self._pool.report(peer, outcome, trio.current_time())
        self._settle()

    def doubt(self, peer: PeerId) -> None:
        """A node says that it did what it was asked, and nobody has seen anything of it: use another one."""
        self._pool.doubt(peer, trio.current_time())
        self._settle()

    async def wait_for(self, count: int = 1) -> tuple[PeerId, ...]:
        """The nodes in use, once there are as many. Raises `NodeClosed` if the pool is closed before."""
        while len(self.in_use) < count:
            if self._closed:
                raise NodeClosed("the pool is closed")
            await self._grown.wait()
        await trio.lowlevel.checkpoint()
        return self.in_use

    # Live

    def start(self) -> None:
        """Begin; `Pools.open` does this."""
        self._nursery.start_soon(self._run)

    def close(self) -> None:
        """End; `Pools.close` does this."""
        self._closed = True
        self._unwatch()
        self._scope.cancel()
        self._grown.set()

    def went_offline(self) -> None:
        """The network is away."""
        self._pool.went_offline(trio.current_time())

    def came_online(self) -> None:
        """The network is back."""
        self._pool.came_online(trio.current_time())
        self._settle()

    def peer_event(self, event: PeerEvent) -> None:
        """Hear of a peer from the network, after the book has."""
        match event:
            case PeerIdentified(peer=peer):
                self._judge(peer)
            case PeerDisconnected(peer=peer):
                self._pool.disconnected(peer, trio.current_time())
            case _:
                return
        if (heard := self._awaited.get(event.peer)) is not None:
            heard.set()
        self._settle()

    async def _run(self) -> None:
        with self._scope:
            async with trio.open_nursery() as self._tasks:
                try:
                    await self._look_after()
                finally:
                    self._tasks = None  # what is wished for from now on, nobody does

    async def _look_after(self) -> None:
        refreshed = -math.inf
        while True:
            self._changed = trio.Event()
            now = trio.current_time()
            if now - refreshed >= _REFRESH_S or len(self._pool.members) < self._pool.policy.size:
                refreshed = now
                self._refresh(now)
            else:
                self._judge_members()
            self._pool.tick(now)
            self._grant()
            await trio.sleep(_REFRESH_PAUSE_S)  # what changes the book rarely comes alone
            with trio.move_on_at(min(self._pool.next_tick(now), refreshed + _REFRESH_S)):
                await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()

    def _refresh(self, now: float) -> None:
        """Offer the pool who there is by now, and take from it who does not do."""
        self._judge_members()
        chosen = [entry.peer for entry in self._manager.select(self.need, busy=self._busy())]
        identified = {peer for peer, info in self.network.peers.items() if info.identified}
        self._pool.offer(chosen, identified.intersection(chosen), now)

    def _judge_members(self) -> None:
        for peer in self._pool.members:
            self._judge(peer)

    def _judge(self, peer: PeerId) -> None:
        """What a connected peer has said of itself decides whether it is ready, or has no place here."""
        entry = self._manager.book.get(peer)
        info = self.network.peers.get(peer)
        if entry is not None and info is not None and info.identified:
            if suits(entry, self.need):
                self._pool.ready(peer, trio.current_time())
            else:
                self._pool.unsuitable(peer, trio.current_time())

    def _settle(self) -> None:
        """Something has happened: do what follows from it at once, and look again what is due when."""
        self._grant()
        self._changed.set()

    def _grant(self) -> None:
        """Do what the pool wishes."""
        tasks = self._tasks
        if tasks is None or self._closed:
            return  # `_run` will, when it begins
        for wish in self._pool.take_wishes():
            match wish:
                case Connect(peer):
                    tasks.start_soon(run_guarded, self._connect, peer)
                case Discover():
                    self._manager.need_more()
                case Replace(old, new, outcome):
                    logger.info(
                        "service node replaced: service=%s old=%s new=%s outcome=%s",
                        self.need.service.value,
                        old.short(),
                        "none" if new is None else new.short(),
                        outcome,
                    )
                    self._tell(wish)
                case Use(_):
                    self._grown.set()
                    self._grown = trio.Event()
                    self._tell(wish)
                case Ping(_):
                    self._tell(wish)

    def _tell(self, event: PoolEvent) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception:
                logger.exception("a pool listener failed: event=%s", type(event).__name__)

    async def _connect(self, peer: PeerId) -> None:
        """Connect, and see that the peer says what it speaks."""
        if await self._manager.connect(peer):
            info = self.network.peers.get(peer)
            if info is not None and not info.identified:
                heard = self._awaited[peer] = trio.Event()
                with trio.move_on_after(_IDENTIFY_S):
                    await heard.wait()
                self._awaited.pop(peer, None)
        info = self.network.peers.get(peer)
        if info is not None and info.identified:
            self._judge(peer)
        if peer not in self._pool.in_use:
            self._pool.connect_failed(peer, trio.current_time())
        self._settle()
