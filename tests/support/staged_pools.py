"""Pools of service nodes that are there by decree: the real policy, and no network."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import trio

from pywaku.ids import PeerId
from pywaku.peers.pool import Connect, Discover, ServicePool, Use
from pywaku.peers.pools import NodePool, PoolListener, Pools
from pywaku.peers.selection import Need
from pywaku.peers.services import POLICIES, Outcome


class StagedPool:
    """What `NodePool` is to its users. Every node that is offered can be connected to at once."""

    def __init__(self, need: Need, peers: tuple[PeerId, ...]) -> None:
        self.need = need
        self.core = ServicePool(POLICIES[need.service])
        self.reports: list[tuple[PeerId, Outcome]] = []
        self._listeners: list[PoolListener] = []
        self._stirred = trio.Event()
        self.offer(*peers)

    def offer(self, *peers: PeerId) -> None:
        """These nodes there are from now on."""
        self.core.offer(peers, peers, trio.current_time())
        self._settle()

    @property
    def in_use(self) -> tuple[PeerId, ...]:
        """As of the policy."""
        return self.core.in_use

    def watch(self, listener: PoolListener) -> Callable[[], None]:
        """Hear of nodes, and first of those in use."""
        self._listeners.append(listener)
        for peer in self.in_use:
            listener(Use(peer))
        return lambda: self._listeners.remove(listener)

    def report(self, peer: PeerId, outcome: Outcome) -> None:
        """What became of a request."""
        self.reports.append((peer, outcome))
        self.core.report(peer, outcome, trio.current_time())
        self._settle()

    async def wait_for(self, count: int = 1) -> tuple[PeerId, ...]:
        """Nodes in use, once there are as many."""
        while len(self.in_use) < count:
            await self._stirred.wait()
        return self.in_use

    def disconnect(self, peer: PeerId) -> None:
        """The connection is gone."""
        self.core.disconnected(peer, trio.current_time())
        self._settle()

    def set_offline(self, offline: bool) -> None:
        """The network is away, or back."""
        change = self.core.went_offline if offline else self.core.came_online
        change(trio.current_time())
        self._settle()

    async def run(self) -> None:
        """Let time pass for it."""
        while True:
            now = trio.current_time()
            self.core.tick(now)
            self._settle()
            self._stirred = trio.Event()
            with trio.move_on_at(min(self.core.next_tick(now), now + 1e6)):
                await self._stirred.wait()

    def _settle(self) -> None:
        while wishes := self.core.take_wishes():
            for wish in wishes:
                match wish:
                    case Connect(peer):
                        self.core.ready(peer, trio.current_time())
                    case Discover():
                        pass
                    case _:
                        for listener in tuple(self._listeners):
                            listener(wish)
        self._stirred.set()


class StagedPools:
    """What `Pools` is to its users."""

    def __init__(self, *peers: PeerId) -> None:
        self._peers = peers
        self.opened: dict[Need, StagedPool] = {}
        self.offline = False

    def open(self, need: Need) -> NodePool:
        """The pool of a need."""
        return cast("NodePool", self.staged(need))

    def staged(self, need: Need) -> StagedPool:
        """The same, to look at."""
        if need not in self.opened:
            self.opened[need] = StagedPool(need, self._peers)
        return self.opened[need]

    @property
    def pools(self) -> Pools:
        """As the code under test sees it."""
        return cast("Pools", self)
