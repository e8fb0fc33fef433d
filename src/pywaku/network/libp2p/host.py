"""The libp2p build of the network port: sockets, connections and the protocols served on them."""

from __future__ import annotations

import logging
import math
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import trio

from pywaku._version import __version__
from pywaku.errors import (
    DecodeError,
    DialError,
    InvalidInput,
    LimitExceeded,
    NetworkError,
    NodeClosed,
    NotConnected,
    StreamReset,
    WakuError,
)
from pywaku.ids import PeerId
from pywaku.keys import PrivateKey
from pywaku.network.libp2p.connection import Connection
from pywaku.network.libp2p.identify import Identify
from pywaku.network.libp2p.limits import HostLimits
from pywaku.network.libp2p.negotiate import agree_outbound, propose_lazily
from pywaku.network.libp2p.serving import Serving
from pywaku.network.libp2p.stream import MuxedStream
from pywaku.network.libp2p.transports import Endpoint, Listener, dial_pipe, remote_address
from pywaku.network.libp2p.upgrade import Upgrader
from pywaku.network.port import (
    Direction,
    PeerConnected,
    PeerDisconnected,
    PeerEvent,
    PeerIdentified,
    PeerInfo,
    PeerListener,
    StreamHandler,
)
from pywaku.tasks import open_service_nursery, run_guarded
from pywaku.wire.multiaddr import Multiaddr

logger = logging.getLogger(__name__)

DEFAULT_AGENT: Final = f"pywaku/{__version__}"
MUXERS: Final = ("/yamux/1.0.0", "/mplex/6.7.0")


@asynccontextmanager
async def open_network(
    *,
    key: PrivateKey | None = None,
    listen: Sequence[Multiaddr] = (),
    announce: Sequence[Multiaddr] = (),
    muxers: Sequence[str] = MUXERS,
    agent: str = DEFAULT_AGENT,
    tls_server: ssl.SSLContext | None = None,
    tls_client: ssl.SSLContext | None = None,
    limits: HostLimits | None = None,
) -> AsyncGenerator[Libp2pNetwork]:
    """A libp2p host, listening; leaving the context closes its connections, sockets and tasks.

    `announce` replaces the addresses that peers are told (behind a NAT or a proxy). Raises `ListenError` for
    an address that is in use and `InvalidInput` for one that cannot be listened on.
    """
    limits = limits if limits is not None else HostLimits()
    key = key if key is not None else PrivateKey.generate()
    listeners: list[Listener] = []
    try:
        for address in listen:
            listeners.append(await Listener.open(address, tls=tls_server))
        async with open_service_nursery() as nursery:
            network = Libp2pNetwork(
                key=key,
                listeners=listeners,
                announce=announce,
                upgrader=Upgrader(key, tuple(muxers), limits.muxer),
                agent=agent,
                tls_client=tls_client,
                limits=limits,
                nursery=nursery,
            )
            for listener in listeners:
                nursery.start_soon(network.accept_from, listener)
            try:
                yield network
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 2 * limits.close_timeout_s):
                    await network.close()
    finally:
        with trio.CancelScope(shield=True):
            for listener in listeners:
                await listener.close()


class Libp2pNetwork:
    """See `pywaku.network.port.Network`. Made by `open_network`."""

    def __init__(
        self,
        *,
        key: PrivateKey,
        listeners: Sequence[Listener],
        announce: Sequence[Multiaddr],
        upgrader: Upgrader,
        agent: str,
        tls_client: ssl.SSLContext | None,
        limits: HostLimits,
        nursery: trio.Nursery,
    ) -> None:
        self._peer_id = key.public.peer_id
        self._listeners = listeners
        self._announce = tuple(announce)
        self._upgrader = upgrader
        self._tls_client = tls_client
        self._limits = limits
        self._nursery = nursery
        self._closed = False
        self._listening: list[trio.CancelScope] = []
        self._watchers: list[PeerListener] = []
        self._peers: dict[PeerId, PeerInfo] = {}
        self._connections: dict[PeerId, list[Connection]] = {}
        self._pending_inbound: dict[int, trio.CancelScope] = {}
        self._dialling: dict[PeerId, trio.Event] = {}
        self._dials: set[trio.CancelScope] = set()
        self._serving = Serving(nursery, negotiation_timeout_s=limits.negotiation_timeout_s)
        self._identify = Identify(self, key, agent)
        self._identify.serve()

    @property
    def peer_id(self) -> PeerId:
        return self._peer_id

    @property
    def addresses(self) -> tuple[Multiaddr, ...]:
        known = self._announce or [
            address for listener in self._listeners for address in listener.addresses()
        ]
        return tuple(sorted((address.with_peer(self._peer_id) for address in known), key=str))

    @property
    def peers(self) -> Mapping[PeerId, PeerInfo]:
        return MappingProxyType(self._peers)

    @property
    def protocols(self) -> tuple[str, ...]:
        """What is served, sorted."""
        return self._serving.protocols

    @property
    def connection_count(self) -> int:
        """Connections that stand."""
        return sum(map(len, self._connections.values()))

    # Serving.

    def serve(self, protocol: str, handler: StreamHandler, *, max_streams_per_peer: int = 32) -> None:
        self._serving.add(protocol, handler, max_streams_per_peer)
        self._identify.protocols_changed()

    def unserve(self, protocol: str) -> None:
        if self._serving.remove(protocol):
            self._identify.protocols_changed()

    def watch(self, listener: PeerListener) -> Callable[[], None]:
        self._watchers.append(listener)

        def unwatch() -> None:
            if listener in self._watchers:
                self._watchers.remove(listener)

        return unwatch

    def start_task(self, function: Callable[..., Awaitable[None]], *arguments: object) -> None:
        """Run a task of the host's own, for as long as the host; what it raises is logged."""
        self._nursery.start_soon(run_guarded, function, *arguments)

    def identified(
        self,
        peer: PeerId,
        protocols: frozenset[str],
        agent: str,
        listen_addresses: tuple[Multiaddr, ...],
        signed_record: bytes,
    ) -> None:
        """A peer has said what it speaks."""
        known = self._peers.get(peer)
        if known is None:
            return
        told = replace(
            known,
            protocols=protocols,
            agent=agent,
            listen_addresses=listen_addresses,
            identified=True,
            signed_record=signed_record,
        )
        if told != known:
            self._peers[peer] = told
            self._tell(PeerIdentified(peer, protocols, agent, listen_addresses))

    def _tell(self, event: PeerEvent) -> None:
        for watcher in tuple(self._watchers):
            try:
                watcher(event)
            except Exception:
                logger.exception("a peer listener failed: event=%s", type(event).__name__)

    # Inbound.

    async def accept_from(self, listener: Listener) -> None:
        """Accept connections for as long as the host runs."""

        async def handle(stream: trio.SocketStream) -> None:
            try:
                await self._accepted(stream, listener)
            except Exception as error:  # one connection's trouble never ends the listener
                logger.debug("inbound connection failed: %r", error)
            finally:
                await trio.aclose_forcefully(stream)

        with trio.CancelScope() as scope:
            self._listening.append(scope)
            # Closes the sockets on its way out.
            await trio.serve_listeners(handle, list(listener.sockets), handler_nursery=self._nursery)

    async def _accepted(self, stream: trio.SocketStream, listener: Listener) -> None:
        if self._closed or self.connection_count >= self._limits.max_connections:
            logger.debug("inbound connection refused: connections=%d", self.connection_count)
            return
        while len(self._pending_inbound) >= self._limits.max_pending_inbound:
            # The oldest has had the most time: whoever sends silent connections loses those first.
            self._pending_inbound.pop(next(iter(self._pending_inbound))).cancel()
        key = id(stream)
        connection: Connection | None = None
        with trio.move_on_after(self._limits.handshake_timeout_s) as scope:
            self._pending_inbound[key] = scope
            try:
                remote = remote_address(stream, listener.endpoint)
                pipe = await listener.accept_pipe(stream)
                upgraded = await self._upgrader.inbound(pipe)
                connection = Connection(
                    upgraded,
                    direction=Direction.INBOUND,
                    remote_address=remote,
                    limits=self._limits,
                    on_stream=self._serving.accept,
                )
            except (WakuError, OSError) as error:
                logger.debug("inbound handshake failed: %s", error)
            finally:
                self._pending_inbound.pop(key, None)
        if connection is not None:
            await self._carry(connection)

    async def _carry(
        self, connection: Connection, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Announce a connection, run it, and take it off the books."""
        peer = connection.peer
        known = self._connections.setdefault(peer, [])
        first = not known
        try:
            if self._closed or peer == self._peer_id:
                connection.abandon("the peer is this node itself" if peer == self._peer_id else "closed")
            elif (
                len(known) >= self._limits.max_connections_per_peer
                or self.connection_count >= self._limits.max_connections
            ):
                connection.abandon("too many connections")
            else:
                known.append(connection)
                if first:
                    self._peers[peer] = PeerInfo(peer, connection.direction, connection.remote_address)
                    self._tell(PeerConnected(peer, connection.direction, connection.remote_address))
                    self._identify.connected(peer)
            task_status.started()
            await connection.run()
        finally:
            if connection in known:
                known.remove(connection)
            if not known and self._connections.get(peer) is known:
                del self._connections[peer]
                if self._peers.pop(peer, None) is not None:
                    self._tell(PeerDisconnected(peer, connection.reason))

    # Outbound.

    async def connect(self, addresses: Sequence[Multiaddr] | Multiaddr, *, timeout: float = 10.0) -> PeerId:
        candidates = [addresses] if isinstance(addresses, Multiaddr) else list(addresses)
        expected = {address.peer_id for address in candidates if address.peer_id is not None}
        if not candidates or len(expected) > 1:
            raise InvalidInput("connect takes one or more addresses of one peer")
        peer = expected.pop() if expected else None
        if peer == self._peer_id:
            raise DialError("this node does not connect to itself")
        scope = trio.CancelScope()
        self._dials.add(scope)
        try:
            with scope, trio.fail_after(timeout):
                while peer is not None and (under_way := self._dialling.get(peer)) is not None:
                    await under_way.wait()
                if peer is not None and peer in self._peers:
                    await trio.lowlevel.checkpoint()
                    return peer
                done = trio.Event()
                if peer is not None:
                    self._dialling[peer] = done
                try:
                    return await self._dial(candidates, peer)
                finally:
                    if peer is not None:
                        del self._dialling[peer]
                    done.set()
        except trio.TooSlowError:
            raise DialError(f"{candidates[0]}: no connection within {timeout:g} s") from None
        finally:
            self._dials.discard(scope)
        raise NodeClosed("the network was closed meanwhile")

    async def _dial(self, candidates: Sequence[Multiaddr], peer: PeerId | None) -> PeerId:
        failures: list[str] = []
        for address in candidates:
            if self._closed:
                raise NodeClosed("the network is closed")
            if self.connection_count >= self._limits.max_connections:
                raise LimitExceeded(f"{self.connection_count} connections are open: the maximum")
            if Endpoint.of(address) is None:
                failures.append(f"{address}: not an address for TCP, ws or wss")
                continue
            try:
                with trio.fail_after(self._limits.handshake_timeout_s):
                    return await self._dial_one(address, peer)
            except trio.TooSlowError:
                failures.append(f"{address}: no handshake within {self._limits.handshake_timeout_s:g} s")
            except NetworkError as error:
                failures.append(str(error))
        raise DialError("; ".join(failures))

    async def _dial_one(self, address: Multiaddr, peer: PeerId | None) -> PeerId:
        pipe, remote = await dial_pipe(address, tls=self._tls_client)
        try:
            upgraded = await self._upgrader.outbound(pipe, peer)
        except BaseException as error:
            with trio.CancelScope(shield=True):
                await pipe.close()
            if isinstance(error, NetworkError):
                raise DialError(f"{address}: {error}") from error
            raise
        connection = Connection(
            upgraded,
            direction=Direction.OUTBOUND,
            remote_address=remote,
            limits=self._limits,
            on_stream=self._serving.accept,
        )
        await self._nursery.start(self._carry, connection)
        if connection.reason:  # it was not taken on
            raise DialError(f"{address}: {connection.reason}")
        return connection.peer

    async def open_stream(
        self, peer: PeerId, protocols: Sequence[str] | str, *, timeout: float = 10.0
    ) -> MuxedStream:
        names = (protocols,) if isinstance(protocols, str) else tuple(protocols)
        if not names:
            raise InvalidInput("open_stream takes at least one protocol")
        connection = self._connection_of(peer)
        stream: MuxedStream | None = None
        try:
            # A scope is a good part of what a small request costs, and whoever gives no time has one already.
            with trio.fail_after(timeout) if timeout < math.inf else nullcontext():
                stream = await connection.open_stream()
                if len(names) == 1:
                    # Nothing to choose: the proposal leaves with the first bytes, and saves a round trip.
                    propose_lazily(stream, names[0])
                    await trio.lowlevel.checkpoint()
                else:
                    await agree_outbound(stream, names)
        except trio.TooSlowError:
            if stream is None:
                raise LimitExceeded(f"{peer.short()} leaves no room for another stream") from None
            stream.reset()
            raise StreamReset(f"{peer.short()} did not agree on a protocol within {timeout:g} s") from None
        except DecodeError as error:
            if stream is not None:
                stream.reset()
            raise StreamReset(f"{peer.short()} does not negotiate properly: {error}") from error
        except BaseException:
            if stream is not None:
                stream.reset()
            raise
        return stream

    def _connection_of(self, peer: PeerId) -> Connection:
        connections = self._connections.get(peer)
        if self._closed:
            raise NodeClosed("the network is closed")
        if not connections:
            raise NotConnected(f"{peer.short()} is not connected")
        return next((one for one in reversed(connections) if not one.closing), connections[-1])

    async def disconnect(self, peer: PeerId, *, reason: str = "closed by us") -> None:
        async with trio.open_nursery() as nursery:
            for connection in tuple(self._connections.get(peer, ())):
                nursery.start_soon(connection.close, reason)
        await trio.lowlevel.checkpoint()

    async def close(self) -> None:
        """Accept nothing more and take leave of every peer."""
        self._closed = True
        for scope in (*self._listening, *self._dials):
            scope.cancel()
        async with trio.open_nursery() as nursery:
            for connections in tuple(self._connections.values()):
                for connection in tuple(connections):
                    nursery.start_soon(connection.close, "the node is closing")
