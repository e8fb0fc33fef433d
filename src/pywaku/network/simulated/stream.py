"""One stream of a simulated connection, as the port promises it, with flow control."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import trio

from pywaku.errors import NetworkError, ProtocolNotSupported, StreamClosed, StreamReset
from pywaku.ids import PeerId
from pywaku.network.port import Direction

if TYPE_CHECKING:
    from pywaku.network.simulated.channel import Delivery
    from pywaku.network.simulated.connection import Endpoint

WINDOW: Final = 256 * 1024  # bytes under way and unread, per direction: the initial window of yamux
_CREDIT: Final = WINDOW // 2  # bytes read before the sender hears of it
_PART: Final = 64 * 1024  # larger writes travel in parts, so that bandwidth is used while credit comes back
_HEADER: Final = 12  # of a muxer's frame


class SimulatedStream:
    """See `pywaku.network.port.Stream`. The two ends of a stream are two of these, each the other's `_twin`.

    A `deliver_…` method is called, through the connection's channel, when what this end sent has arrived at
    the other end.
    """

    __slots__ = (
        "_agreed",
        "_chunks",
        "_closed",
        "_ended",
        "_endpoint",
        "_failure",
        "_readers",
        "_sending",
        "_twin",
        "_unreported",
        "_window",
        "_write_closed",
        "_writers",
        "direction",
        "peer",
        "protocol",
    )

    def __init__(self, endpoint: Endpoint, direction: Direction, protocol: str) -> None:
        self.peer: PeerId = endpoint.peer
        self.direction = direction
        self.protocol = protocol
        self._endpoint = endpoint
        self._twin: SimulatedStream | None = None
        self._chunks: list[bytes] = []  # arrived and unread; with what is under way, WINDOW bytes at most
        self._unreported = 0  # bytes read that the peer has no credit for yet
        self._window = WINDOW  # bytes that may still be sent
        self._sending = False
        self._agreed: trio.Event | None = None
        self._ended = False
        self._closed = False
        self._write_closed = False
        self._failure: tuple[type[NetworkError], str] | None = None
        self._readers = trio.lowlevel.ParkingLot()
        self._writers = trio.lowlevel.ParkingLot()
        endpoint.streams[self] = None
        if direction is Direction.OUTBOUND:
            endpoint.outbound_streams += 1

    # Opening.

    def open(self, protocols: tuple[str, ...]) -> None:
        """Ask the peer for this stream, under the first of `protocols` that it speaks."""
        self._send(sum(map(len, protocols)) + 32, self.deliver_open, protocols)

    def deliver_open(self, protocols: tuple[str, ...]) -> None:
        """The peer hears of the stream."""
        endpoint = self._endpoint.twin
        if endpoint.is_open:
            self._twin = endpoint.host.stream_arrived(endpoint, self, protocols)

    def accept(self, dialer: SimulatedStream, *, answer: bool) -> None:
        """This end was just made for the peer's `dialer`; tell it so if it waits for that."""
        self._twin = dialer
        if answer:
            self._send(len(self.protocol), self.deliver_agreement, self.protocol)

    def deliver_agreement(self, protocol: str) -> None:
        """The peer hears which of its protocols it is."""
        dialer = self._twin
        if dialer is not None:
            dialer.protocol = protocol
            if dialer._agreed is not None:
                dialer._agreed.set()

    async def agreed(self) -> None:
        """Wait until the peer has said which protocol it is; raises what the stream raises from then on."""
        self._agreed = trio.Event()
        await self._agreed.wait()
        self._check()

    def deliver_refusal(self, text: str) -> None:
        """The answer arrives that the peer speaks none of the protocols."""
        self._fail(ProtocolNotSupported, text)

    def deliver_rejection(self, text: str) -> None:
        """The answer arrives that the peer will not have another stream."""
        self._fail(StreamReset, text)

    # The port.

    async def send(self, data: bytes) -> None:
        """Send all of `data`. A `send` that is cancelled half-way resets the stream."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_writable()
        size = len(data)
        if not size or self._swallowed():
            return
        if size <= self._window and size <= _PART and not self._sending:
            self._window -= size
            self._transmit(data)
            return
        while self._sending:  # another task's write goes first, whole
            await self._writers.park()
            self._check_writable()
        self._sending = True
        sent = 0
        try:
            while sent < size:
                while not self._window:
                    await self._writers.park()
                    self._check_writable()
                part = data[sent : sent + min(self._window, _PART)]
                sent += len(part)
                self._window -= len(part)
                self._transmit(part)
        except trio.Cancelled:
            if sent:
                self.reset()  # the peer has part of it and would take what comes next for the rest
            raise
        finally:
            self._sending = False
            self._writers.unpark_all()

    async def receive(self) -> bytes:
        """All that has arrived."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while True:
            if self._closed:
                raise StreamClosed("the stream is closed")
            if self._chunks:
                return self._take()
            if self._ended:
                await trio.lowlevel.checkpoint()
                return b""
            self._check()
            await self._readers.park()

    async def close_write(self) -> None:
        """Send no more."""
        self._end_writing()
        await trio.lowlevel.checkpoint_if_cancelled()

    async def close(self) -> None:
        """Close both directions."""
        self.close_now()
        await trio.lowlevel.checkpoint_if_cancelled()

    def close_now(self) -> None:
        """Close both directions, without a checkpoint."""
        if self._closed:
            return
        self._closed = True
        self._end_writing()
        if self._chunks:
            self._take()
        self._over()

    def reset(self) -> None:
        """Abandon the stream at once."""
        if self._failure is None and not (self._closed and self._ended):
            self._send(0, self.deliver_reset, None)
            self._chunks.clear()
            self._ended = False
            self._fail(StreamReset, "reset by us")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            self.reset()

    # What arrives.

    def deliver_data(self, data: bytes) -> None:
        """The peer gets `data`."""
        twin = self._twin
        if twin is None or twin._failure is not None:
            return
        twin._chunks.append(data)
        if twin._closed:
            twin._take()
        elif twin._readers:
            twin._readers.unpark_all()

    def deliver_credit(self, size: int) -> None:
        """The peer hears that `size` bytes of what it sent were read."""
        twin = self._twin
        if twin is not None:
            twin._window += size
            twin._writers.unpark_all()

    def deliver_end(self, _: None) -> None:
        """The peer hears that nothing more comes."""
        twin = self._twin
        if twin is not None:
            twin._ended = True
            twin._readers.unpark_all()
            if twin._write_closed:
                twin._over()

    def deliver_reset(self, _: None) -> None:
        """The peer hears that the stream is abandoned."""
        twin = self._twin
        if twin is not None:
            twin._chunks.clear()
            twin._ended = False
            twin._fail(StreamReset, "reset by the peer")

    def fail(self, reason: str) -> None:
        """The connection is gone; what has arrived can still be read."""
        self._fail(StreamReset, reason)

    # Inside.

    def _transmit(self, data: bytes) -> None:
        self._endpoint.outgoing.send(_HEADER + len(data), self.deliver_data, data)

    def _swallowed(self) -> bool:
        profile, world = self._endpoint.outgoing.profile, self._endpoint.host.world
        if profile.write_loss and profile.swallows(self.protocol, world.rng):
            world.counters.writes_swallowed += 1
            return True
        return False

    def _take(self) -> bytes:
        chunks = self._chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.clear()
        self._unreported += len(data)
        if self._unreported >= _CREDIT and not self._ended:
            self._send(0, self.deliver_credit, self._unreported)
            self._unreported = 0
        return data

    def _send(self, size: int, deliver: Delivery, argument: object) -> None:
        if self._endpoint.is_open:
            self._endpoint.outgoing.send(_HEADER + size, deliver, argument)

    def _end_writing(self) -> None:
        if self._write_closed or self._failure is not None:
            return
        self._write_closed = True
        self._send(0, self.deliver_end, None)
        self._writers.unpark_all()
        if self._ended:
            self._over()

    def _fail(self, error: type[NetworkError], text: str) -> None:
        if self._failure is None:
            self._failure = (error, text)
            self._over()
            self._readers.unpark_all()
            self._writers.unpark_all()
            if self._agreed is not None:
                self._agreed.set()

    def _over(self) -> None:
        """Nothing of it matters to the connection any more."""
        if self in self._endpoint.streams:
            del self._endpoint.streams[self]
            if self.direction is Direction.OUTBOUND:
                self._endpoint.outbound_streams -= 1

    def _check(self) -> None:
        if self._failure is not None:
            error, text = self._failure
            raise error(text)

    def _check_writable(self) -> None:
        if self._write_closed:
            raise StreamClosed("the stream was closed for writing")
        self._check()
