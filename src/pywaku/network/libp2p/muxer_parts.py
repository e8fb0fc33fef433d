"""What both multiplexers are made of: a stream's counters, the memory of used ids, the end of a session."""

from __future__ import annotations

from typing import Final

from pywaku.network.libp2p.muxer import StreamId

NEVER: Final = 1 << 62


class Ending(Exception):
    """The session ends here: a violation by the peer, or its leave. Does not get past `receive`."""

    def __init__(self, reason: str, *, clean: bool = False, farewell: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.clean = clean
        self.farewell = farewell


class UsedIds:
    """Which ids the peer has used for streams: exact for the last 1,024, and all that came before are used.

    Ids ascend, but a peer with several threads may announce streams slightly out of order.
    """

    __slots__ = ("_highest", "_mask", "_step")

    SPAN = 1024

    def __init__(self, step: int, before_first: int) -> None:
        self._step = step
        self._highest = before_first
        self._mask = 1

    def use(self, wire_id: int) -> bool:
        """Take an id; False if it was taken before."""
        distance = (wire_id - self._highest) // self._step
        if distance > 0:
            self._mask = (self._mask << distance | 1) & ((1 << self.SPAN) - 1) if distance < self.SPAN else 1
            self._highest = wire_id
            return True
        if -distance >= self.SPAN or self._mask >> -distance & 1:
            return False
        self._mask |= 1 << -distance
        return True


class StreamState:
    """One stream that is not forgotten."""

    __slots__ = (
        "closed",
        "consumed",
        "discard_until",
        "fresh",
        "inbound",
        "peer_closed",
        "received",
        "stream_id",
    )

    def __init__(self, stream_id: StreamId, *, inbound: bool) -> None:
        self.stream_id = stream_id
        self.inbound = inbound
        self.fresh = inbound
        self.closed = False
        self.peer_closed = False
        self.received = 0
        self.consumed = 0
        self.discard_until = NEVER
