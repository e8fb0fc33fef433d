"""libp2p ping: answered on any network, and sent to every peer that speaks it, to find out who is dead."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from pywaku.errors import NetworkError, NodeClosed, ProtocolNotSupported
from pywaku.ids import PeerId
from pywaku.network.port import Network, PeerConnected, PeerEvent, PeerIdentified, Stream
from pywaku.tasks import open_service_nursery, run_guarded

logger = logging.getLogger(__name__)

PING_PROTOCOL: Final = "/ipfs/ping/1.0.0"
BLOCK: Final = 32
PING_INTERVAL_S: Final = 30.0
PING_TIMEOUT_S: Final = 20.0
_STREAMS_PER_PEER: Final = 2  # libp2p, "Ping": a peer keeps one; a second may come before the first is gone


@asynccontextmanager
async def open_liveness(
    network: Network,
    *,
    interval: float = PING_INTERVAL_S,
    timeout: float = PING_TIMEOUT_S,
    rng: random.Random | None = None,
) -> AsyncGenerator[Liveness]:
    """Answer pings, and disconnect peers that leave one unanswered for `timeout` seconds.

    A peer is pinged as soon as it has said that it speaks ping, then every `interval` seconds, always on the
    same stream. Peers that do not speak it are left alone; one that has said nothing of itself after
    `interval` seconds is pinged to find out.
    """
    async with open_service_nursery() as nursery:
        liveness = Liveness(network, nursery, interval, timeout, rng if rng is not None else random.Random())
        network.serve(PING_PROTOCOL, answer_pings, max_streams_per_peer=_STREAMS_PER_PEER)
        unwatch = network.watch(liveness.peer_event)
        try:
            for peer in tuple(network.peers):
                liveness.start(peer)
            yield liveness
        finally:
            unwatch()
            network.unserve(PING_PROTOCOL)


async def answer_pings(stream: Stream) -> None:
    """Send every block of 32 bytes back (libp2p, "Ping")."""
    kept = b""
    while data := await stream.receive():
        data = kept + data
        whole = len(data) - len(data) % BLOCK
        kept = data[whole:]
        if whole:
            await stream.send(data[:whole])


class Liveness:
    """The pings under way. Made by `open_liveness`; holds one task and one number for each connected peer."""

    def __init__(
        self, network: Network, nursery: trio.Nursery, interval: float, timeout: float, rng: random.Random
    ) -> None:
        self.pings = 0
        self.dead_peers = 0
        self._network = network
        self._nursery = nursery
        self._interval = interval
        self._timeout = timeout
        self._rng = rng
        self._watches: dict[PeerId, _Watch] = {}
        self._rtt: dict[PeerId, float] = {}

    def rtt(self, peer: PeerId) -> float | None:
        """Seconds that the last ping of a connected peer took there and back."""
        return self._rtt.get(peer)

    def start(self, peer: PeerId) -> None:
        """Begin to watch a peer."""
        if peer not in self._watches:
            watch = self._watches[peer] = _Watch()
            info = self._network.peers.get(peer)
            if info is not None and info.identified:
                watch.told(info.protocols)
            self._nursery.start_soon(run_guarded, self._watch, peer, watch)

    def peer_event(self, event: PeerEvent) -> None:
        """Hear of a peer from the network."""
        if isinstance(event, PeerConnected):
            self.start(event.peer)
        elif isinstance(event, PeerIdentified):
            watch = self._watches.get(event.peer)
            if watch is not None:
                watch.told(event.protocols)
        else:
            self._stop(event.peer)

    def _stop(self, peer: PeerId) -> None:
        self._rtt.pop(peer, None)
        watch = self._watches.pop(peer, None)
        if watch is not None:
            watch.scope.cancel()

    async def _watch(self, peer: PeerId, watch: _Watch) -> None:
        stream: Stream | None = None
        with watch.scope:
            if watch.speaks_ping is None:
                with trio.move_on_after(self._interval):
                    await watch.changed.wait()
            while True:
                if watch.speaks_ping is False:
                    await watch.changed.wait()  # it may come to speak it later
                    continue
                started = trio.current_time()
                try:
                    with trio.fail_after(self._timeout):
                        stream = await self._ping(peer, stream)
                except NodeClosed:
                    return
                except ProtocolNotSupported:
                    watch.speaks_ping, stream = False, None
                    continue
                except NetworkError as error:
                    logger.debug("ping failed: peer=%s error=%s", peer.short(), error)
                    stream = None  # a peer that ends its streams is alive
                except trio.TooSlowError:
                    self._give_up(peer)
                    await trio.sleep_forever()  # until the network says that the peer is gone
                await trio.sleep_until(started + self._interval)
        if stream is not None:
            stream.reset()

    async def _ping(self, peer: PeerId, stream: Stream | None) -> Stream:
        """Ping once; returns the stream to use next time."""
        self.pings += 1
        started = trio.current_time()
        if stream is not None:
            try:
                await self._echo(stream)
            except NetworkError:
                stream = None  # the peer has ended it meanwhile: it gets another chance on a new one
        if stream is None:
            started = trio.current_time()
            stream = await self._network.open_stream(peer, PING_PROTOCOL, timeout=self._timeout)
            await self._echo(stream)
        if peer in self._watches:
            self._rtt[peer] = trio.current_time() - started
        return stream

    async def _echo(self, stream: Stream) -> None:
        block = self._rng.randbytes(BLOCK)
        echo = b""
        try:
            await stream.send(block)
            while len(echo) < BLOCK:
                data = await stream.receive()
                if not data:
                    raise NetworkError("the peer ended its ping stream")
                echo += data
            if echo != block:
                raise NetworkError("the peer answers its pings wrongly")
        except BaseException:
            stream.reset()
            raise

    def _give_up(self, peer: PeerId) -> None:
        self.dead_peers += 1
        reason = f"no answer to a ping within {self._timeout:g} s"
        logger.debug("peer is dead: peer=%s reason=%s", peer.short(), reason)
        # In a task of its own, because the disconnection ends the one that pinged.
        self._nursery.start_soon(run_guarded, partial(self._network.disconnect, peer, reason=reason))


class _Watch:
    """One peer's state: its task's scope, and whether it speaks ping (None: it has not said)."""

    __slots__ = ("changed", "scope", "speaks_ping")

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.changed = trio.Event()
        self.speaks_ping: bool | None = None

    def told(self, protocols: frozenset[str]) -> None:
        """The peer has said which protocols it speaks."""
        self.speaks_ping = PING_PROTOCOL in protocols
        self.changed.set()
        self.changed = trio.Event()
