"""The port to the world: what the rest of pywaku needs of a network, and nothing about how it is done.

There are two builds behind it, `network.libp2p` and `network.simulated`; one conformance suite holds both
to what is written here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Protocol, Self

from pywaku.ids import PeerId
from pywaku.wire.multiaddr import Multiaddr


class Direction(Enum):
    """Who opened it: the peer (`INBOUND`) or this node (`OUTBOUND`)."""

    INBOUND = "inbound"
    OUTBOUND = "outbound"


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """What is known of a connected peer. `protocols` is empty until the peer has identified itself.

    `signed_record` is the envelope with its addresses (`pywaku.wire.peer_record`), verified; empty if it gave
    none.
    """

    peer: PeerId
    direction: Direction
    remote_address: Multiaddr | None
    protocols: frozenset[str] = frozenset()
    agent: str = ""
    listen_addresses: tuple[Multiaddr, ...] = ()
    identified: bool = False
    signed_record: bytes = b""


@dataclass(frozen=True, slots=True)
class PeerConnected:
    """The first connection with a peer stands."""

    peer: PeerId
    direction: Direction
    remote_address: Multiaddr | None


@dataclass(frozen=True, slots=True)
class PeerIdentified:
    """A connected peer has said which protocols it speaks; comes again when that changes."""

    peer: PeerId
    protocols: frozenset[str]
    agent: str
    listen_addresses: tuple[Multiaddr, ...]


@dataclass(frozen=True, slots=True)
class PeerDisconnected:
    """The last connection with a peer is gone."""

    peer: PeerId
    reason: str


PeerEvent = PeerConnected | PeerIdentified | PeerDisconnected
PeerListener = Callable[[PeerEvent], None]


class Stream(Protocol):
    """A pair of byte streams with one peer, under one protocol.

    `send` is one write: what is given at once leaves at once. Both directions have flow control and bounds.
    As a context manager a stream is closed on a regular exit and reset on an exception.
    """

    @property
    def peer(self) -> PeerId:
        """The peer at the other end."""
        ...

    @property
    def protocol(self) -> str:
        """The protocol both sides agreed on."""
        ...

    @property
    def direction(self) -> Direction:
        """Which side opened the stream."""
        ...

    async def send(self, data: bytes) -> None:
        """Send all of `data`, in order; waits while the peer is behind.

        Of several tasks that send, one goes first, whole. A `send` that is cancelled half-way resets the
        stream; one that has not begun is as if it had never been.

        Raises `StreamClosed` after `close_write`, `StreamReset` when the stream has failed, and
        `ProtocolNotSupported` when the peer turns out not to speak the protocol.
        """
        ...

    async def receive(self) -> bytes:
        """All bytes that have arrived and were not received yet; waits for at least one; `b""` at the end.

        Raises `StreamReset` when the stream has failed, `ProtocolNotSupported` as `send` does.
        """
        ...

    async def close_write(self) -> None:
        """Say that nothing more will be sent; receiving goes on."""
        ...

    async def close(self) -> None:
        """Close both directions: what was sent is still delivered, what comes in is dropped."""
        ...

    def reset(self) -> None:
        """Abandon the stream at once; both sides' pending operations raise `StreamReset`."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


StreamHandler = Callable[[Stream], Awaitable[None]]


class Network(Protocol):
    """One node's access to the network. Builds are async context managers; leaving one closes everything.

    Peer listeners are called at once and in order, from the loop; they must not block. What a listener or a
    handler raises is logged and goes no further.
    """

    @property
    def peer_id(self) -> PeerId:
        """This node."""
        ...

    @property
    def addresses(self) -> tuple[Multiaddr, ...]:
        """Where this node listens, each with its peer id; sorted."""
        ...

    @property
    def peers(self) -> Mapping[PeerId, PeerInfo]:
        """The connected peers."""
        ...

    def serve(self, protocol: str, handler: StreamHandler, *, max_streams_per_peer: int = 32) -> None:
        """Answer `protocol`: each inbound stream runs `handler` in a task of its own.

        A stream is closed when its handler returns and reset when it raises. Streams of one peer beyond the
        maximum are reset. Raises `InvalidInput` if the protocol is served already.
        """
        ...

    def unserve(self, protocol: str) -> None:
        """Answer `protocol` no longer; streams under way go on."""
        ...

    def watch(self, listener: PeerListener) -> Callable[[], None]:
        """Hear of peers coming and going from now on; returns the call that ends it."""
        ...

    async def connect(self, addresses: Sequence[Multiaddr] | Multiaddr, *, timeout: float = 10.0) -> PeerId:
        """Connect to the peer that listens at `addresses` (tried in turn), or return at once if connected.

        An address that ends in `/p2p/…` is only accepted with that peer. Raises `DialError`.
        """
        ...

    async def open_stream(
        self, peer: PeerId, protocols: Sequence[str] | str, *, timeout: float = 10.0
    ) -> Stream:
        """Open a stream with a connected peer under the first of `protocols` that it speaks.

        With a single protocol the first `send` may carry the negotiation, so that a peer's refusal shows only
        in the next operation. With a `timeout` of infinity the time is the caller's matter. Raises
        `NotConnected`, `ProtocolNotSupported`, `StreamReset`, `LimitExceeded`.
        """
        ...

    async def disconnect(self, peer: PeerId, *, reason: str = "closed by us") -> None:
        """Close all connections with `peer`; nothing happens if there is none."""
        ...
