"""A connection between two simulated hosts: its two ends, and how they come to stand and to fall."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

import trio

from pywaku.ids import PeerId
from pywaku.network.port import Direction
from pywaku.network.simulated.channel import Channel
from pywaku.network.simulated.profile import LinkProfile
from pywaku.network.simulated.stream import SimulatedStream
from pywaku.wire.multiaddr import Multiaddr

if TYPE_CHECKING:
    from pywaku.network.simulated.host import SimulatedNetwork
    from pywaku.network.simulated.world import SimulatedWorld

HANDSHAKE_BYTES: Final = 300  # about what noise, the muxer's negotiation and identify take
CONTROL_BYTES: Final = 12  # a muxer's header

Identity = tuple[tuple[str, ...], str, tuple[Multiaddr, ...], bytes]
"""Protocols (sorted), agent, listen addresses, signed record."""


class State(Enum):
    """How far one end of a connection has come."""

    NEW = "new"  # the other end is dialing; nothing has arrived here yet
    CONNECTING = "connecting"
    OPEN = "open"
    CLOSED = "closed"


class Endpoint:
    """One end of a connection: the host's view of it. Of the other end it learns by the channel."""

    __slots__ = (
        "connection",
        "direction",
        "failure",
        "host",
        "outbound_streams",
        "outgoing",
        "settled",
        "state",
        "streams",
        "twin",
        "waiters",
    )

    twin: Endpoint

    def __init__(
        self, connection: Connection, host: SimulatedNetwork, outgoing: Channel, direction: Direction
    ) -> None:
        self.connection = connection
        self.host = host
        self.outgoing = outgoing
        self.direction = direction
        self.state = State.CONNECTING if direction is Direction.OUTBOUND else State.NEW
        self.streams: dict[SimulatedStream, None] = {}
        self.outbound_streams = 0
        self.settled = trio.Event()  # an outbound end: it is open now, or never will be
        self.failure = ""
        self.waiters = 0

    @property
    def peer(self) -> PeerId:
        """The peer at the other end."""
        return self.twin.host.peer_id

    @property
    def is_open(self) -> bool:
        """Whether the connection stands, as far as this end knows."""
        return self.state is State.OPEN

    def dial(self) -> None:
        """Ask the other host for the connection."""
        self.outgoing.send(HANDSHAKE_BYTES, self.deliver_dial, self.host.peer_id)

    def deliver_dial(self, _: PeerId) -> None:
        """The dial arrives at the other host (unless it was given up: then `end_closed` cleared the way)."""
        other = self.twin
        if other.host.closed:
            other.state = State.CLOSED
            other.outgoing.send(CONTROL_BYTES, other.deliver_refusal, "connection refused")
            return
        other.state = State.OPEN
        other.outgoing.send(HANDSHAKE_BYTES, other.deliver_acceptance, other.host.peer_id)
        other.host.connection_opened(other)
        other.tell_identity()

    def deliver_acceptance(self, _: PeerId) -> None:
        """The other host's yes arrives at the dialer."""
        dialer = self.twin
        if dialer.state is State.CONNECTING:
            dialer.state = State.OPEN
            dialer.host.connection_opened(dialer)
            dialer.settled.set()
            dialer.tell_identity()

    def deliver_refusal(self, reason: str) -> None:
        """The other host's no arrives at the dialer."""
        self.twin.drop(reason)

    def tell_identity(self) -> None:
        """Tell the peer what this host speaks."""
        if self.state is State.OPEN:
            self.outgoing.send(HANDSHAKE_BYTES, self.deliver_identity, self.host.identity())

    def deliver_identity(self, identity: Identity) -> None:
        """What this host speaks arrives at the peer."""
        if self.twin.state is State.OPEN:
            self.twin.host.peer_identified(self.twin, identity)

    def deliver_goodbye(self, reason: str) -> None:
        """The peer hears that the connection is over."""
        self.twin.drop(reason)

    def close(self, reason: str, *, told: str = "closed by the peer") -> None:
        """End the connection at this end, and let the peer know in due course."""
        if self.state is not State.CLOSED:
            self.drop(reason)
            self.outgoing.send(CONTROL_BYTES, self.deliver_goodbye, told)

    def drop(self, reason: str) -> None:
        """The connection is over at this end. The peer is told nothing."""
        before, self.state = self.state, State.CLOSED
        if before is State.CLOSED:
            return
        self.failure = reason
        self.settled.set()
        for stream in tuple(self.streams):
            stream.fail(reason)
        self.streams.clear()
        if before is State.OPEN:
            self.host.connection_closed(self, reason)
        elif before is State.CONNECTING:
            self.host.dial_over(self)
        self.connection.end_closed()


class Connection:
    """What the world knows of a connection: both ends, and what has become of the way between them."""

    __slots__ = ("_world", "callee", "dark", "dialer", "parted", "partings")

    def __init__(self, world: SimulatedWorld, dialer: SimulatedNetwork, callee: SimulatedNetwork) -> None:
        self._world = world
        self.dark = False  # one end vanished without a word
        self.parted = False  # the hosts are in different partitions
        self.partings = 0  # how often that changed, so that a timer knows whether it is still meant
        profile = world.link(dialer.peer_id, callee.peer_id)
        there = Channel(world, f"{dialer.number}>{callee.number}", profile)
        back = Channel(world, f"{callee.number}>{dialer.number}", profile)
        self.dialer = Endpoint(self, dialer, there, Direction.OUTBOUND)
        self.callee = Endpoint(self, callee, back, Direction.INBOUND)
        self.dialer.twin, self.callee.twin = self.callee, self.dialer

    @property
    def peers(self) -> tuple[PeerId, PeerId]:
        """The dialer and the other one."""
        return self.dialer.host.peer_id, self.callee.host.peer_id

    def follow(self, profile: LinkProfile, *, silent: bool) -> None:
        """Take on what the world says of the way between the hosts."""
        for end in (self.dialer, self.callee):
            end.outgoing.profile = profile
            if silent or self.dark:
                end.outgoing.fall_silent()
            else:
                end.outgoing.speak()

    def drop(self, reason: str) -> None:
        """Both ends lose it, now."""
        for end in (self.dialer, self.callee):
            end.drop(reason)

    def end_closed(self) -> None:
        """Leave the world's books when no end of it stands or is about to."""
        states = {self.dialer.state, self.callee.state}
        if states <= {State.CLOSED, State.NEW}:
            for end in (self.dialer, self.callee):
                end.outgoing.clear()
            self._world.connection_over(self)
