"""The world that simulated hosts live in: its clock and agenda, its links, and what befalls them.

Everything happens in the order of one agenda (a heap of times), and chance comes from one generator. trio
itself runs tasks that are ready together in a random order; see `tests/support/replay.py` for how a run is
made to repeat exactly.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import random
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, Self

import trio

from pywaku.errors import InvalidInput
from pywaku.ids import PeerId
from pywaku.keys import PrivateKey
from pywaku.network.simulated.connection import Connection
from pywaku.network.simulated.host import SimulatedNetwork
from pywaku.network.simulated.profile import LinkProfile
from pywaku.tasks import open_service_nursery
from pywaku.wire.multiaddr import Multiaddr

DEAD_AFTER_S: Final = 45.0
TICK_S: Final = 0.001
_TICK_SLACK: Final = 1e-6  # ticks; sums of floats stray a little

Host = SimulatedNetwork | PeerId


@dataclass(slots=True)
class WorldCounters:
    """What has happened so far."""

    deliveries: int = 0
    bytes_delivered: int = 0
    retransmissions: int = 0
    writes_swallowed: int = 0
    connections: int = 0


class SimulatedWorld:
    """Hosts and the links between them. Enter it before its hosts and leave it after them.

    Arrivals are rounded up to the next `tick` seconds, so that the many of a large simulation share wake-ups
    (0: exact). Connections across a partition are lost `dead_after` seconds after it began, on both sides
    (None: never, so that only pings find out). `trace` keeps a hash of all that happens: see `trace`.
    """

    def __init__(
        self,
        seed: int,
        *,
        link: LinkProfile | None = None,
        dead_after: float | None = DEAD_AFTER_S,
        tick: float = TICK_S,
        trace: bool = False,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(f"world {seed}")
        self.counters = WorldCounters()
        self.now: Callable[[], float] = trio.current_time  # from the beginning on, a shorter way to the same
        self._link = link if link is not None else LinkProfile()
        self._dead_after = dead_after
        self._tick = tick
        self._trace = hashlib.blake2b(digest_size=16) if trace else None
        self._agenda: list[tuple[float, int, Callable[[float], None]]] = []
        self._entries = 0
        self._alarm = trio.CancelScope()
        self._links: dict[frozenset[PeerId], LinkProfile] = {}
        self._group: dict[PeerId, int] = {}
        self._stalled: set[PeerId] = set()
        self._dark: set[PeerId] = set()  # crashed without even a reset
        self._numbers: dict[PeerId, int] = {}
        self._peers: dict[int, PeerId] = {}
        self._hosts: dict[PeerId, SimulatedNetwork] = {}
        self._connections: dict[Connection, None] = {}
        self._started = 0.0
        self._nursery: trio.Nursery | None = None
        self._manager: AbstractAsyncContextManager[trio.Nursery] | None = None

    async def __aenter__(self) -> Self:
        self.now = trio.lowlevel.current_clock().current_time
        self._started = self.now()
        self._manager = open_service_nursery()
        self._nursery = await self._manager.__aenter__()
        self._nursery.start_soon(self._keep_time)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._manager is not None
        self._nursery = None
        return await self._manager.__aexit__(kind, error, trace)

    # Time.

    def call_at(self, when: float, callback: Callable[[float], None]) -> None:
        """Call `callback(when)` at that time; calls for the same time keep their order."""
        self._entries += 1
        heapq.heappush(self._agenda, (when, self._entries, callback))
        if self._agenda[0][0] == when:
            self._alarm.deadline = when

    def on_tick(self, when: float, now: float) -> float:
        """`when`, rounded up to the next tick; what happens at once stays so."""
        if not self._tick or when <= now:
            return when
        return math.ceil(when / self._tick - _TICK_SLACK) * self._tick

    async def _keep_time(self) -> None:
        agenda = self._agenda
        while True:
            with trio.CancelScope(deadline=agenda[0][0] if agenda else math.inf) as self._alarm:
                await trio.sleep_forever()
            now = trio.current_time()
            while agenda and agenda[0][0] <= now:
                when, _, callback = heapq.heappop(agenda)
                callback(when)

    # The record.

    @property
    def traces(self) -> bool:
        """Whether a trace is kept."""
        return self._trace is not None

    @property
    def trace(self) -> str:
        """A hash of every delivery and every peer event so far: when, where, what and with which bytes."""
        return "" if self._trace is None else self._trace.hexdigest()

    def note(self, where: str, what: str, argument: object) -> None:
        """Add one happening to the trace."""
        if self._trace is not None:
            data = argument if isinstance(argument, bytes) else repr(argument).encode()
            when = self.now() - self._started
            self._trace.update(f"{when:.6f} {where} {what} {len(data)} {zlib.crc32(data)}\n".encode())

    # Hosts.

    @asynccontextmanager
    async def host(
        self,
        name: str | None = None,
        *,
        key: PrivateKey | None = None,
        peer_id: PeerId | None = None,
        agent: str = "pywaku/simulated",
    ) -> AsyncGenerator[SimulatedNetwork]:
        """A host of this world; leaving the context closes it.

        Its identity is `peer_id`, that of `key`, or one made from the world's seed and `name`. The same
        identity has the same address whenever it comes, so that a host may crash and start again.
        """
        nursery = self._nursery
        if nursery is None:
            raise InvalidInput("hosts live in a world that has been entered: async with world: …")
        name = name if name is not None else f"host-{len(self._numbers) + 1}"
        if peer_id is None:
            secret = random.Random(f"identity {self.seed} {name}").randbytes(32)
            key = key or PrivateKey.from_bytes("secp256k1", secret)
            peer_id = key.peer_id
        elif key is not None and key.peer_id != peer_id:
            key = None  # it could not sign for that peer
        if peer_id in self._hosts:
            raise InvalidInput(f"{peer_id} is in this world already")
        number = self._numbers.setdefault(peer_id, len(self._numbers) + 1)
        self._peers[number] = peer_id
        done = trio.Event()
        handlers = await nursery.start(self._run_handlers, done)
        network = self._hosts[peer_id] = SimulatedNetwork(self, number, name, peer_id, agent, handlers, key)
        self._restarted(peer_id)
        try:
            yield network
        finally:
            if self._hosts.get(peer_id) is network:
                del self._hosts[peer_id]
                network.close()
            handlers.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await done.wait()

    async def _run_handlers(self, done: trio.Event, task_status: trio.TaskStatus[trio.Nursery]) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                task_status.started(nursery)
        finally:
            done.set()

    def address(self, number: int) -> Multiaddr:
        """The address that goes with a host's number."""
        return Multiaddr.parse(f"/memory/{number}")

    def peer_at(self, address: Multiaddr) -> PeerId | None:
        """Who lives, or lived, at an address."""
        number = address.get("memory")
        return self._peers.get(int(number)) if number else None

    def host_of(self, peer: PeerId) -> SimulatedNetwork | None:
        """The host with that identity, if it is up."""
        return self._hosts.get(peer)

    # Links.

    def link(self, one: Host, other: Host) -> LinkProfile:
        """What the way between two hosts is like."""
        return self._links.get(frozenset((_peer(one), _peer(other))), self._link)

    def set_link(self, one: Host, other: Host, profile: LinkProfile) -> None:
        """From now on the way between two hosts is like this."""
        self._links[frozenset((_peer(one), _peer(other)))] = profile
        self._links_changed()

    def set_default_link(self, profile: LinkProfile) -> None:
        """From now on all ways that were not set by `set_link` are like this."""
        self._link = profile
        self._links_changed()

    async def round_trip(self, one: PeerId, other: PeerId | None) -> None:
        """Wait for as long as a question and its answer take; for ever where nothing answers."""
        link = self._link
        if other is not None:
            if other in self._dark or self._silent(one, other):
                await trio.sleep_forever()
            link = self.link(one, other)
        await trio.sleep(link.latency.draw(self.rng) + link.latency.draw(self.rng))

    def connection(self, dialer: SimulatedNetwork, callee: SimulatedNetwork) -> Connection:
        """A new connection, for `dialer` to dial."""
        connection = Connection(self, dialer, callee)
        self._connections[connection] = None
        self.counters.connections += 1
        self._update(connection)
        return connection

    @property
    def open_connections(self) -> int:
        """Connections that stand, fall or are being dialed."""
        return len(self._connections)

    def connection_over(self, connection: Connection) -> None:
        """A connection is of no account any more."""
        self._connections.pop(connection, None)

    # What befalls them.

    def partition(self, *groups: Iterable[Host]) -> None:
        """Part the hosts into groups that cannot reach each other; those in none of them are a group as well.

        Connections between groups fall silent, and new ones get no answer. Replaces an earlier partition.
        """
        self._group = {_peer(host): index for index, group in enumerate(groups) for host in group}
        self._links_changed()

    def heal(self) -> None:
        """End the partition; connections that are not lost yet catch up."""
        self._group = {}
        self._links_changed()

    def cut(self, one: Host, other: Host) -> None:
        """Disconnect two hosts; both see it now."""
        peers = {_peer(one), _peer(other)}
        for connection in tuple(self._connections):
            if set(connection.peers) == peers:
                connection.drop("connection reset")

    def stall(self, host: Host) -> None:
        """The host's process hangs: peers stay connected, but nothing it is sent is read or answered."""
        self._stalled.add(_peer(host))
        self._links_changed()

    def resume(self, host: Host) -> None:
        """A stalled host goes on where it was."""
        self._stalled.discard(_peer(host))
        self._links_changed()

    def crash(self, host: Host, *, silent: bool = False) -> None:
        """The host is gone without a goodbye, and its handlers are cancelled.

        Its peers see their connections reset, as when a process dies. With `silent`, as when a machine loses
        its power, they see nothing until `dead_after`, a ping, or the restart of the host.
        """
        peer = _peer(host)
        network = self._hosts.pop(peer, None)
        if network is None:
            raise InvalidInput(f"{peer} is not up")
        self._stalled.discard(peer)
        if silent:
            self._dark.add(peer)
            for connection in tuple(self._connections):
                if peer in connection.peers:
                    connection.dark = True
                    self._update(connection)
                    if self._dead_after is not None:
                        self.call_at(self.now() + self._dead_after, partial(_lose, connection))
        for end in network.crash():
            end.outgoing.send(0, end.deliver_goodbye, "connection reset by the peer")

    def _restarted(self, peer: PeerId) -> None:
        """The machine is up again, and answers its old connections with a reset."""
        if peer in self._dark:
            self._dark.discard(peer)
            for connection in tuple(self._connections):
                if connection.dark and peer in connection.peers:
                    delay = self.link(*connection.peers).latency.draw(self.rng)
                    self.call_at(self.now() + delay, partial(_reset, connection))

    def _links_changed(self) -> None:
        for connection in tuple(self._connections):
            self._update(connection)

    def _update(self, connection: Connection) -> None:
        one, other = connection.peers
        connection.follow(self.link(one, other), silent=self._silent(one, other))
        parted = self._parted(one, other)
        if parted != connection.parted:
            connection.parted = parted
            connection.partings += 1
            if parted and self._dead_after is not None:
                self.call_at(
                    self.now() + self._dead_after, partial(_lose_if_parted, connection, connection.partings)
                )

    def _parted(self, one: PeerId, other: PeerId) -> bool:
        return self._group.get(one) != self._group.get(other)

    def _silent(self, one: PeerId, other: PeerId) -> bool:
        return one in self._stalled or other in self._stalled or self._parted(one, other)


def _peer(host: Host) -> PeerId:
    return host.peer_id if isinstance(host, SimulatedNetwork) else host


def _lose(connection: Connection, _: float) -> None:
    connection.drop("the peer does not answer")


def _reset(connection: Connection, _: float) -> None:
    connection.drop("connection reset by the peer")


def _lose_if_parted(connection: Connection, parting: int, _: float) -> None:
    if connection.parted and connection.partings == parting:
        connection.drop("the peer does not answer")
