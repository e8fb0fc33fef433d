"""One encrypted, muxed connection: a task that reads, a task that writes, and the streams between them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from pywaku.errors import DecodeError, LimitExceeded, StreamReset
from pywaku.network.libp2p.limits import HostLimits
from pywaku.network.libp2p.muxer import (
    DataReceived,
    Event,
    Muxer,
    PongReceived,
    SessionEnded,
    StreamId,
    StreamOpened,
    StreamWasReset,
    WindowOpened,
    WriteClosed,
)
from pywaku.network.libp2p.pipes import PipeBroken
from pywaku.network.libp2p.stream import MuxedStream
from pywaku.network.libp2p.upgrade import Upgraded
from pywaku.network.port import Direction
from pywaku.wire.multiaddr import Multiaddr

logger = logging.getLogger(__name__)

_SWEEP_S: Final = 5.0
_WRITE_SIZE: Final = 256 * 1024  # a peer that takes as much within the stall timeout is merely slow
_QUEUE_OVERFLOW: Final = 16  # times the bound at which senders wait: only a peer's own doing gets there

InboundStream = Callable[[MuxedStream], None]


class Connection:
    """Runs until either side ends it; then every stream has failed and the socket is closed."""

    def __init__(
        self,
        upgraded: Upgraded,
        *,
        direction: Direction,
        remote_address: Multiaddr,
        limits: HostLimits,
        on_stream: InboundStream,
    ) -> None:
        self.peer = upgraded.peer
        self.direction = direction
        self.remote_address = remote_address
        self.muxer: Muxer = upgraded.muxer
        self.ended = trio.Event()
        self.reason = ""
        self._pipe = upgraded.pipe
        self._cipher = upgraded.cipher
        self._early = upgraded.leftover
        self._limits = limits
        self._on_stream = on_stream
        self._streams: dict[StreamId, MuxedStream] = {}
        self._lingering: dict[StreamId, float] = {}
        self._writer_idle = trio.lowlevel.ParkingLot()
        self._queue_space = trio.lowlevel.ParkingLot()
        self._stream_ended = trio.lowlevel.ParkingLot()
        self._closing = False
        self._scope = trio.CancelScope()
        self._writing_since: float | None = None

    async def run(self) -> None:
        """Carry the connection. Never raises but `Cancelled`."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write)
                    nursery.start_soon(self._sweep)
                    await self._read()
                    self._closing = True
                    self.wake_writer()
                    # What is queued, a go-away with the reason among it, gets a moment to leave.
                    nursery.cancel_scope.deadline = trio.current_time() + self._limits.close_timeout_s
                    await self._flushed()
                    nursery.cancel_scope.cancel()
        except Exception as error:  # a fault of our own costs this connection, not the node
            logger.exception("connection failed: peer=%s error=%s", self.peer.short(), type(error).__name__)
            self._set_reason("internal error")
        finally:
            self._finish(self.reason or "closed")
            with trio.CancelScope(shield=True):
                await self._pipe.close()

    # Streams.

    async def open_stream(self) -> MuxedStream:
        """A new stream, not negotiated yet; waits while the peer has too many of ours open.

        Raises `StreamReset` when the connection is gone.
        """
        while True:
            self._check_open()
            try:
                stream_id = self.muxer.open()
            except LimitExceeded:
                self._check_open()
                await self._stream_ended.park()
                continue
            stream = MuxedStream(self, stream_id, Direction.OUTBOUND)
            self._streams[stream_id] = stream
            return stream

    def consumed(self, stream_id: StreamId, count: int) -> None:
        """The application took received bytes."""
        self.muxer.consumed(stream_id, count)
        if self.muxer.queued_bytes:
            self.wake_writer()
        self._room_for_streams()

    def close_write(self, stream: MuxedStream) -> None:
        """Nothing more will be sent on the stream."""
        self.muxer.close_write(stream.stream_id)
        if stream.over:
            self._forget(stream.stream_id)
        self._room_for_streams()
        self.wake_writer()

    def discard(self, stream: MuxedStream) -> None:
        """The stream is read no more; it goes away when the peer closes its side, or after a while."""
        self.muxer.discard(stream.stream_id)  # also where both sides are done: unread bytes count until then
        if stream.stream_id in self._streams:
            self._lingering[stream.stream_id] = trio.current_time() + self._limits.linger_s
        self._room_for_streams()
        self.wake_writer()

    def reset(self, stream: MuxedStream) -> None:
        """Abandon the stream."""
        self.muxer.reset(stream.stream_id)
        self._forget(stream.stream_id)
        self.wake_writer()

    @property
    def closing(self) -> bool:
        """It takes no more streams."""
        return self._closing

    @property
    def stream_count(self) -> int:
        """Streams of either side that are not over."""
        return len(self._streams)

    # Writing.

    def wake_writer(self) -> None:
        """There is output: it leaves with all that is queued until the writer's turn comes."""
        self._writer_idle.unpark()

    async def wait_queue_space(self) -> None:
        """A checkpoint that lasts while too much is queued for the peer."""
        if not self.crowded:
            await trio.lowlevel.checkpoint()
        while self.crowded:  # of those who wait, the first may have taken all the space
            await self._queue_space.park()

    @property
    def crowded(self) -> bool:
        """Is too much queued for the peer?"""
        return self.muxer.queued_bytes > self._limits.max_queued_bytes and not self.ended.is_set()

    async def _write(self) -> None:
        try:
            while True:
                chunks = self.muxer.take_output()
                if not chunks:
                    self._queue_space.unpark_all()
                    await self._writer_idle.park()
                    # One more turn for the others: what they add leaves in the same write.
                    await trio.lowlevel.checkpoint()
                    continue
                data = self._cipher.encrypt(chunks)
                for start in range(0, len(data), _WRITE_SIZE):
                    self._writing_since = trio.current_time()
                    whole = len(data) <= _WRITE_SIZE
                    await self._pipe.send(data if whole else data[start : start + _WRITE_SIZE])
                self._writing_since = None
                if self.muxer.queued_bytes <= self._limits.max_queued_bytes:
                    self._queue_space.unpark_all()
        except PipeBroken as error:
            self._end(str(error))
        except LimitExceeded as error:  # the cipher is used up
            self._end(str(error))

    async def _flushed(self) -> None:
        while self.muxer.queued_bytes or self._writing_since is not None:
            await self._queue_space.park()

    # Reading.

    async def _read(self) -> None:
        try:
            data = self._early
            while True:
                if data and not self._handle(self.muxer.receive(data)):
                    return
                if self.muxer.queued_bytes:
                    self.wake_writer()
                    if self.muxer.queued_bytes > _QUEUE_OVERFLOW * self._limits.max_queued_bytes:
                        self._set_reason("the peer does not read")
                        return
                received = await self._pipe.receive()
                if not received:
                    self._set_reason("closed by the peer")
                    return
                data = self._cipher.decrypt(received)
        except PipeBroken as error:
            self._set_reason(str(error))
        except DecodeError as error:
            self._set_reason(f"bytes that are not of this connection: {error}")

    def _handle(self, events: list[Event]) -> bool:
        """Tell the streams what happened; false when the session is over."""
        streams = self._streams
        for event in events:
            match event:
                case DataReceived(stream_id, data):
                    stream = streams.get(stream_id)
                    if stream is not None:
                        stream.data_received(data)
                case WindowOpened(stream_id):
                    stream = streams.get(stream_id)
                    if stream is not None:
                        stream.window_opened()
                case StreamOpened(stream_id):
                    stream = MuxedStream(self, stream_id, Direction.INBOUND)
                    streams[stream_id] = stream
                    self._on_stream(stream)
                case WriteClosed(stream_id):
                    stream = streams.get(stream_id)
                    if stream is not None:
                        stream.peer_closed_write()
                        if stream.over:
                            self._forget(stream_id)
                case StreamWasReset(stream_id, reason):
                    stream = streams.get(stream_id)
                    if stream is not None:
                        self._forget(stream_id)
                        stream.failed(reason)
                case PongReceived():
                    pass
                case SessionEnded(reason, _):
                    self._set_reason(reason)
                    return False
        self._room_for_streams()
        return True

    # Ending.

    async def close(self, reason: str) -> None:
        """Take leave of the peer and wait until the connection is gone; bounded in time."""
        if not self._closing:
            self._closing = True
            self._set_reason(reason)
            self.muxer.end()
            self.wake_writer()
            try:
                with trio.move_on_after(self._limits.close_timeout_s):
                    await self._flushed()
                    # Closing a socket with unread bytes resets it, and what was sent may not arrive any more:
                    # so say that no more comes, and read on until the peer has seen that.
                    await self._pipe.finish()
                    await self.ended.wait()
            except PipeBroken:
                pass  # the peer was faster
            finally:  # a caller that does not wait for it closes the connection all the same
                self._scope.cancel()
        await self.ended.wait()

    def abandon(self, reason: str) -> None:
        """End the connection without taking leave."""
        self._end(reason)

    def _end(self, reason: str) -> None:
        self._set_reason(reason)
        self._scope.cancel()

    def _set_reason(self, reason: str) -> None:
        if not self.reason:
            self.reason = reason

    def _check_open(self) -> None:
        if self._closing or self.ended.is_set():
            raise StreamReset(f"the connection is closed: {self.reason or 'closing'}")

    def _forget(self, stream_id: StreamId) -> None:
        self._streams.pop(stream_id, None)
        self._lingering.pop(stream_id, None)
        self._room_for_streams()

    def _room_for_streams(self) -> None:
        """Whoever waits to open a stream may try again: the muxer may have forgotten one."""
        if self._stream_ended:
            self._stream_ended.unpark_all()

    def _finish(self, reason: str) -> None:
        self._set_reason(reason)
        streams = list(self._streams.values())
        self._streams.clear()
        self._lingering.clear()
        self.ended.set()
        for stream in streams:
            stream.failed(f"connection closed: {self.reason}")
        self._stream_ended.unpark_all()
        self._queue_space.unpark_all()

    async def _sweep(self) -> None:
        """Reset streams whose peer never closes its side, and end a connection that takes nothing."""
        period = min(_SWEEP_S, self._limits.send_stall_timeout_s, self._limits.linger_s)
        while True:
            await trio.sleep(period)
            now = trio.current_time()
            since = self._writing_since
            if since is not None and now - since > self._limits.send_stall_timeout_s:
                self._end("the peer takes no bytes")
                return
            for stream_id in [id_ for id_, deadline in self._lingering.items() if deadline <= now]:
                self.muxer.reset(stream_id)
                self._forget(stream_id)
                self.wake_writer()
