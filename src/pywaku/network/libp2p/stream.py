"""One stream of a muxed connection, as the port promises it."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import trio

from pywaku.errors import DecodeError, ProtocolNotSupported, StreamClosed, StreamReset
from pywaku.ids import PeerId
from pywaku.network.port import Direction

if TYPE_CHECKING:
    from pywaku.network.libp2p.connection import Connection
    from pywaku.network.libp2p.multistream import Dialer
    from pywaku.network.libp2p.muxer import StreamId

_SMALL: Final = 512  # pieces below this are put together: as objects they weigh more than their bytes
_SLICE: Final = 1024 * 1024  # what the muxer is offered at once, so that remainders are not copied around


class MuxedStream:
    """See `pywaku.network.port.Stream`. Made by `Connection`, which also feeds it."""

    __slots__ = (
        "_chunks",
        "_closed",
        "_ended",
        "_failure",
        "_negotiation",
        "_preface",
        "_readable",
        "_returned",
        "_sending",
        "_window_open",
        "_write_closed",
        "connection",
        "direction",
        "peer",
        "protocol",
        "stream_id",
    )

    def __init__(self, connection: Connection, stream_id: StreamId, direction: Direction) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.peer: PeerId = connection.peer
        self.direction = direction
        self.protocol = ""
        self._chunks: list[bytes | bytearray] = []
        self._ended = False
        self._sending = False
        self._failure: str | None = None
        self._write_closed = False
        self._closed = False
        self._preface = b""
        self._returned = b""
        self._negotiation: Dialer | None = None
        self._readable = trio.lowlevel.ParkingLot()
        self._window_open = trio.lowlevel.ParkingLot()

    @property
    def has_data(self) -> bool:
        """Bytes have arrived that were not received yet."""
        return bool(self._chunks)

    @property
    def over(self) -> bool:
        """Both sides have said that they send no more."""
        return self._ended and self._write_closed

    # What the connection tells the stream.

    def data_received(self, data: bytes) -> None:
        """The next bytes from the peer."""
        chunks = self._chunks
        if chunks and len(data) < _SMALL:
            last = chunks[-1]
            if isinstance(last, bytearray):
                last += data
            elif len(last) < _SMALL:
                chunks[-1] = bytearray(last) + data
            else:
                chunks.append(bytearray(data))
        else:
            chunks.append(data)
        self._readable.unpark_all()

    def peer_closed_write(self) -> None:
        """The peer sends no more."""
        self._ended = True
        self._readable.unpark_all()

    def failed(self, reason: str) -> None:
        """The stream is gone."""
        if self._failure is None:
            self._failure = reason
            if not self._ended:  # what came before a proper end is still read
                self._chunks.clear()
        self._readable.unpark_all()
        self._window_open.unpark_all()

    def window_opened(self) -> None:
        """More can be sent again."""
        self._window_open.unpark_all()

    # Negotiation.

    def negotiate_lazily(self, negotiation: Dialer, preface: bytes) -> None:
        """Send `preface` together with the first bytes, and check the peer's answer when it comes."""
        self._negotiation = negotiation
        self._preface = preface

    def queue(self, data: bytes) -> None:
        """Queue a few bytes of a negotiation without giving way to other tasks."""
        self._check_writable()
        if self.connection.muxer.send(self.stream_id, data) < len(data):
            raise StreamReset("no room for a negotiation")
        self.connection.wake_writer()

    def put_back(self, data: bytes) -> None:
        """Return bytes that a negotiation took too many: they are what is received next."""
        self._returned = data

    # The port.

    async def send(self, data: bytes) -> None:
        self._check_writable()
        while self._sending:  # another task's write goes first, whole
            await self._window_open.park()
            self._check_writable()
        self._sending = True
        preface = self._preface
        if preface:
            data, self._preface = preface + data, b""
        connection, sent, size = self.connection, 0, len(data)
        begun = False
        try:
            if connection.crowded:  # many streams that each add a little are as much as one that adds a lot
                await connection.wait_queue_space()
                self._check_writable()
            while True:
                part = data if size <= _SLICE else data[sent : sent + _SLICE]
                taken = connection.muxer.send(self.stream_id, part)
                if taken:
                    begun = True
                    sent += taken
                connection.wake_writer()
                if sent >= size:
                    break
                if taken < len(part):
                    data, sent, size = data[sent:], 0, size - sent
                    await self._window_open.park()
                    self._check_writable()
                else:
                    await connection.wait_queue_space()
                    self._check_writable()
            await connection.wait_queue_space()
        except trio.Cancelled:
            if not begun:
                self._preface = preface
            elif sent < size:
                self.reset()  # the peer has part of it and would take what comes next for the rest
            raise
        finally:
            self._sending = False
            if self._window_open:
                self._window_open.unpark_all()

    async def receive(self) -> bytes:
        if self._returned:
            # No checkpoint, once in a stream's life: a handler that answers at once answers in the same write
            # as the agreement on its protocol.
            data, self._returned = self._returned, b""
            return data
        if self._preface and not self._chunks and self._failure is None:
            preface, self._preface = self._preface, b""
            self.queue(preface)  # the peer may be the one to speak first
        while True:
            if self._chunks:
                data = bytes(self._chunks[0]) if len(self._chunks) == 1 else b"".join(self._chunks)
                self._chunks.clear()
                self.connection.consumed(self.stream_id, len(data))
                if self._negotiation is not None:
                    data = self._check_negotiation(self._negotiation, data)
                    if not data:
                        continue
                await trio.lowlevel.checkpoint()
                return data
            if self._closed:
                raise StreamClosed("the stream is closed")
            if self._ended:  # properly, whatever became of the connection since
                await trio.lowlevel.checkpoint()
                if self._negotiation is not None:
                    raise StreamReset(
                        f"{self.peer.short()} closed the stream before agreeing on {self.protocol}"
                    )
                return b""
            if self._failure is not None:
                raise StreamReset(self._failure)
            await self._readable.park()

    async def close_write(self) -> None:
        if self._write_closed or self._failure is not None:
            await trio.lowlevel.checkpoint()
            return
        if self._preface:
            await self.send(b"")
        self._write_closed = True
        self.connection.close_write(self)
        await trio.lowlevel.checkpoint()

    async def close(self) -> None:
        if self._closed:
            await trio.lowlevel.checkpoint()
            return
        self._closed = True
        self._chunks.clear()
        self._returned = b""
        if self._failure is None:
            if not self._write_closed:
                self._write_closed = True
                if self._preface:  # nobody was told of the stream
                    self.connection.reset(self)
                else:
                    self.connection.close_write(self)
            self.connection.discard(self)
        self._readable.unpark_all()
        self._window_open.unpark_all()
        await trio.lowlevel.checkpoint()

    def reset(self) -> None:
        if self._failure is None and not (self._closed and self._ended):
            self.connection.reset(self)
            self._chunks.clear()
            self._returned = b""
            self._ended = False
            self.failed("reset by us")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.reset()
        else:
            await self.close()

    def _check_writable(self) -> None:
        if self._write_closed:
            raise StreamClosed("the stream was closed for writing")
        if self._failure is not None:
            raise StreamReset(self._failure)

    def _check_negotiation(self, negotiation: Dialer, data: bytes) -> bytes:
        """Take the peer's answer off the front of what it sent; returns what follows it."""
        try:
            negotiation.receive(data)
        except DecodeError as error:
            self.reset()
            raise StreamReset(f"{self.peer.short()} does not negotiate properly: {error}") from error
        if negotiation.refused:
            self.reset()
            raise ProtocolNotSupported(f"{self.peer.short()} does not speak {self.protocol}")
        if negotiation.agreed is None:
            return b""
        self._negotiation = None
        return negotiation.leftover
