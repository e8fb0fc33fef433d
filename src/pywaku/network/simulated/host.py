"""One simulated node's network: the port's promises kept on connections that live in memory."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import trio

from pywaku.errors import (
    DialError,
    InvalidInput,
    LimitExceeded,
    NetworkError,
    NodeClosed,
    NotConnected,
    StreamReset,
)
from pywaku.ids import PeerId
from pywaku.keys import PrivateKey
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
from pywaku.network.simulated.connection import CONTROL_BYTES, Endpoint, Identity
from pywaku.network.simulated.stream import SimulatedStream
from pywaku.wire.multiaddr import Multiaddr
from pywaku.wire.peer_record import PeerRecord, seal_record

if TYPE_CHECKING:
    from pywaku.network.simulated.world import SimulatedWorld

logger = logging.getLogger(__name__)

MAX_OUTBOUND_STREAMS: Final = 1024  # open at once, per connection


class SimulatedNetwork:
    """See `pywaku.network.port.Network`. Made by `SimulatedWorld.host`."""

    def __init__(
        self,
        world: SimulatedWorld,
        number: int,
        name: str,
        peer_id: PeerId,
        agent: str,
        nursery: trio.Nursery,
        key: PrivateKey | None,
    ) -> None:
        self.world = world
        self.number = number
        self.name = name
        self.closed = False
        self.handler_failures = 0
        self.listener_failures = 0
        self.streams_refused = 0
        self._peer_id = peer_id
        self._agent = agent
        self._nursery = nursery
        self._addresses = (world.address(number).with_peer(peer_id),)
        self._key = key
        self._record = b""
        self._handlers: dict[str, tuple[StreamHandler, int]] = {}
        self._serving: dict[tuple[PeerId, str], int] = {}
        self._peers: dict[PeerId, PeerInfo] = {}
        self._endpoints: dict[PeerId, Endpoint] = {}
        self._dialing: dict[PeerId, Endpoint] = {}
        self._listeners: list[PeerListener] = []
        self._events: deque[PeerEvent] = deque()
        self._telling = False
        self._identity_stale = False

    @property
    def peer_id(self) -> PeerId:
        """This node."""
        return self._peer_id

    @property
    def addresses(self) -> tuple[Multiaddr, ...]:
        """Its one address, `/memory/<number>/p2p/<peer id>`."""
        return self._addresses

    @property
    def peers(self) -> Mapping[PeerId, PeerInfo]:
        """The connected peers."""
        return MappingProxyType(self._peers)

    # Serving.

    def serve(self, protocol: str, handler: StreamHandler, *, max_streams_per_peer: int = 32) -> None:
        """Answer `protocol`."""
        if protocol in self._handlers:
            raise InvalidInput(f"{protocol} is served already")
        self._handlers[protocol] = (handler, max_streams_per_peer)
        self._protocols_changed()

    def unserve(self, protocol: str) -> None:
        """Answer `protocol` no longer."""
        if self._handlers.pop(protocol, None) is not None:
            self._protocols_changed()

    def watch(self, listener: PeerListener) -> Callable[[], None]:
        """Hear of peers coming and going."""
        self._listeners.append(listener)

        def unwatch() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unwatch

    def identity(self) -> Identity:
        """What peers are told of this node."""
        if not self._record and self._key is not None:
            self._record = seal_record(PeerRecord(self._peer_id, 1, self._addresses), self._key)
        return tuple(sorted(self._handlers)), self._agent, self._addresses, self._record

    def stream_arrived(
        self, endpoint: Endpoint, dialer: SimulatedStream, protocols: tuple[str, ...]
    ) -> SimulatedStream | None:
        """A peer opens a stream: this end of it, if it is accepted, with its handler started."""
        protocol = next((name for name in protocols if name in self._handlers), None)
        if protocol is None:
            text = f"{self._peer_id.short()} does not speak {' or '.join(protocols)}"
            endpoint.outgoing.send(CONTROL_BYTES, dialer.deliver_refusal, text)
            return None
        handler, most = self._handlers[protocol]
        key = endpoint.peer, protocol
        if self._serving.get(key, 0) >= most:
            self.streams_refused += 1
            endpoint.outgoing.send(
                CONTROL_BYTES, dialer.deliver_rejection, "reset by the peer: too many streams"
            )
            return None
        self._serving[key] = self._serving.get(key, 0) + 1
        stream = SimulatedStream(endpoint, Direction.INBOUND, protocol)
        stream.accept(dialer, answer=len(protocols) > 1)
        self._nursery.start_soon(self._handle, stream, handler, key)
        return stream

    async def _handle(self, stream: SimulatedStream, handler: StreamHandler, key: tuple[PeerId, str]) -> None:
        try:
            async with stream:
                await handler(stream)
        except* Exception as failures:  # alone or in a group; cancellation passes
            self.handler_failures += 1
            usual = all(isinstance(error, NetworkError) for error in failures.exceptions)
            level = logging.DEBUG if usual else logging.WARNING
            logger.log(
                level, "stream handler failed: protocol=%s errors=%r", stream.protocol, failures.exceptions
            )
        finally:
            self._serving[key] -= 1
            if not self._serving[key]:
                del self._serving[key]

    # Connections.

    async def connect(self, addresses: Sequence[Multiaddr] | Multiaddr, *, timeout: float = 10.0) -> PeerId:
        """Connect to a peer. Each address gets its share of the time that is left."""
        tries = (addresses,) if isinstance(addresses, Multiaddr) else tuple(addresses)
        if not tries:
            raise InvalidInput("there is no address to connect to")
        await trio.lowlevel.checkpoint_if_cancelled()
        for address in tries:
            peer = address.peer_id or self.world.peer_at(address)
            if peer is not None and peer in self._endpoints:
                return peer
        deadline = trio.current_time() + timeout
        failures: list[str] = []
        for left, address in zip(range(len(tries), 0, -1), tries, strict=True):
            now = trio.current_time()
            with trio.move_on_at(now + (deadline - now) / left):
                try:
                    return await self._dial(address)
                except DialError as error:
                    failures.append(f"{address}: {error}")
                    continue
            failures.append(f"{address}: no answer in time")
        raise DialError("; ".join(failures))

    async def _dial(self, address: Multiaddr) -> PeerId:
        if self.closed:
            raise NodeClosed("the network is closed")
        if not address.has("memory"):
            raise DialError("a simulated network has /memory addresses only")
        target = self.world.peer_at(address)
        if target == self._peer_id:
            raise DialError("that is this node")
        host = None if target is None else self.world.host_of(target)
        if target is None or host is None or address.peer_id not in (None, target):
            await self.world.round_trip(self._peer_id, target)
            raise DialError("connection refused" if host is None else f"the peer there is {target}")
        if target in self._endpoints:
            return target
        endpoint = self._dialing.get(target)
        if endpoint is None:
            endpoint = self._dialing[target] = self.world.connection(self, host).dialer
            endpoint.dial()
        endpoint.waiters += 1
        try:
            await endpoint.settled.wait()
        finally:
            endpoint.waiters -= 1
            if not endpoint.waiters and not endpoint.settled.is_set():
                endpoint.close("given up")
        if target not in self._endpoints and not endpoint.is_open:
            raise DialError(endpoint.failure)
        return target

    def connection_opened(self, endpoint: Endpoint) -> None:
        """One end of a connection stands. There is only ever one with a peer."""
        peer = endpoint.peer
        former = self._endpoints.pop(peer, None)
        if former is not None:  # its other end is gone: a peer dials only where it has no connection
            former.drop("replaced by a new connection")
        self._endpoints[peer] = endpoint
        dial = self._dialing.pop(peer, None)
        if dial is not None and dial is not endpoint:
            dial.close("the peer connected first")
        outbound = endpoint.direction is Direction.OUTBOUND
        remote = endpoint.twin.host.addresses[0].without_peer() if outbound else None
        self._peers[peer] = PeerInfo(peer, endpoint.direction, remote)
        self._tell(PeerConnected(peer, endpoint.direction, remote))

    def peer_identified(self, endpoint: Endpoint, identity: Identity) -> None:
        """A connected peer says what it speaks."""
        protocols, agent, addresses, record = identity
        peer = endpoint.peer
        known = self._peers[peer]
        told = replace(
            known,
            protocols=frozenset(protocols),
            agent=agent,
            listen_addresses=addresses,
            identified=True,
            signed_record=record,
        )
        if told != known:
            self._peers[peer] = told
            self._tell(PeerIdentified(peer, told.protocols, agent, addresses))

    def connection_closed(self, endpoint: Endpoint, reason: str) -> None:
        """One end of a connection stands no longer."""
        if self._endpoints.get(endpoint.peer) is endpoint:
            del self._endpoints[endpoint.peer]
        if self._peers.pop(endpoint.peer, None) is not None:
            self._tell(PeerDisconnected(endpoint.peer, reason))

    def dial_over(self, endpoint: Endpoint) -> None:
        """A dial has come to nothing."""
        if self._dialing.get(endpoint.peer) is endpoint:
            del self._dialing[endpoint.peer]

    async def open_stream(
        self, peer: PeerId, protocols: Sequence[str] | str, *, timeout: float = 10.0
    ) -> SimulatedStream:
        """Open a stream with a connected peer."""
        names = (protocols,) if isinstance(protocols, str) else tuple(protocols)
        if not names:
            raise InvalidInput("there is no protocol to open a stream for")
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.closed:
            raise NodeClosed("the network is closed")
        endpoint = self._endpoints.get(peer)
        if endpoint is None:
            raise NotConnected(f"{peer.short()} is not connected")
        if endpoint.outbound_streams >= MAX_OUTBOUND_STREAMS:
            raise LimitExceeded(f"{MAX_OUTBOUND_STREAMS} streams are open with {peer.short()}")
        stream = SimulatedStream(endpoint, Direction.OUTBOUND, names[0])
        stream.open(names)
        if len(names) == 1:
            return stream
        with trio.move_on_after(timeout):
            try:
                await stream.agreed()
            except BaseException:
                stream.reset()
                raise
            return stream
        raise StreamReset(f"{peer.short()} did not agree on a protocol within {timeout:g} s")

    async def disconnect(self, peer: PeerId, *, reason: str = "closed by us") -> None:
        """Close the connection with `peer`."""
        endpoint = self._endpoints.get(peer)
        if endpoint is not None:
            endpoint.close(reason)
        await trio.lowlevel.checkpoint_if_cancelled()

    # The end.

    def close(self) -> None:
        """Take leave of every peer; nothing works from here on."""
        self.closed = True
        for endpoint in (*self._endpoints.values(), *self._dialing.values()):
            endpoint.close("the node is closing")

    def crash(self) -> list[Endpoint]:
        """Stop dead: nobody is told, not even this node's listeners. Returns the ends that stood."""
        self.closed = True
        self._listeners.clear()
        self._nursery.cancel_scope.cancel()
        endpoints = [*self._endpoints.values(), *self._dialing.values()]
        for endpoint in endpoints:
            endpoint.drop("crashed")
        return endpoints

    # Telling.

    def _tell(self, event: PeerEvent) -> None:
        self._events.append(event)
        if self._telling:
            return  # a listener made this happen: it is told after the event it was told of
        self._telling = True
        try:
            while self._events:
                event = self._events.popleft()
                self.world.note(str(self.number), type(event).__name__, event.peer)
                for listener in tuple(self._listeners):
                    try:
                        listener(event)
                    except Exception:
                        self.listener_failures += 1
                        logger.exception("a peer listener failed: event=%s", type(event).__name__)
        finally:
            self._telling = False

    def _protocols_changed(self) -> None:
        if not self._identity_stale and self._endpoints:
            self._identity_stale = True
            self.world.call_at(self.world.now(), self._tell_identity)

    def _tell_identity(self, _: float) -> None:
        self._identity_stale = False
        for endpoint in self._endpoints.values():
            endpoint.tell_identity()
