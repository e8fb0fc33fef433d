"""The bounds a libp2p host is held to, in one place."""

from __future__ import annotations

from dataclasses import dataclass, field

from pywaku.errors import InvalidInput
from pywaku.network.libp2p.muxer import MuxerLimits


@dataclass(frozen=True, slots=True)
class HostLimits:
    """What one host takes on, and how long it waits for others."""

    max_connections: int = 150
    """Connections at a time; inbound ones beyond are closed at once, our own dials are refused."""
    max_connections_per_peer: int = 4
    """Connections with one peer at a time (simultaneous dials, reconnections); those beyond are closed."""
    max_pending_inbound: int = 128
    """Inbound connections that have not finished the handshake; with one more the oldest is closed."""
    handshake_timeout_s: float = 10.0
    """From the first byte to a connection that can carry streams."""
    negotiation_timeout_s: float = 10.0
    """For the peer to name a protocol on a stream it opened."""
    send_stall_timeout_s: float = 30.0
    """A connection whose peer takes no byte for that long is closed."""
    close_timeout_s: float = 0.5
    """For what was sent to leave when a connection is closed."""
    linger_s: float = 30.0
    """After a stream was closed by us, for the peer to close its side; then it is reset."""
    max_queued_bytes: int = 1024 * 1024
    """Bytes queued for a connection before senders wait."""
    muxer: MuxerLimits = field(default_factory=MuxerLimits)

    def __post_init__(self) -> None:
        for name in (
            "max_connections",
            "max_connections_per_peer",
            "max_pending_inbound",
        ):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} is at least 1, not {getattr(self, name)}")
        for name in ("handshake_timeout_s", "negotiation_timeout_s", "send_stall_timeout_s", "linger_s"):
            if getattr(self, name) <= 0:
                raise InvalidInput(f"{name} is positive, not {getattr(self, name)}")
        if self.close_timeout_s < 0 or self.max_queued_bytes < 0:
            raise InvalidInput("close_timeout_s and max_queued_bytes are not negative")
