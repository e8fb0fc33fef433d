"""yamux: streams with flow control over one connection (yamux.md), as a pure state machine.

What the spec leaves open is decided like this:

- SYN and ACK ride on the first frame that a stream sends anyway, be it data. A stream that was opened, or
  whose first bytes were consumed, and that sends nothing is announced by the next `take_output` with a
  window update of 0. Ids go out in ascending order.
- A new stream sends 256,000 bytes, not 262,144, until the peer has granted more: nim-libp2p's first window
  is that small, and it ends the session over the difference.
- Windows are returned once half of them is owed. A stream whose application has taken all there was by then
  gets twice the window, up to `max_window`: whoever reads fast may be sent more. All growth
  together is bounded by half of `max_buffered_total`.
- The peer's go-away ends the session: streams under way are not waited for (as in js-libp2p).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from pywaku.errors import InvalidInput, LimitExceeded
from pywaku.network.libp2p.muxer import Event, MuxerLimits, PongReceived, StreamId, WindowOpened
from pywaku.network.libp2p.muxer_core import MuxerCore
from pywaku.network.libp2p.muxer_parts import Ending, StreamState, UsedIds

PROTOCOL: Final = "/yamux/1.0.0"

DATA, WINDOW_UPDATE, PING, GO_AWAY = range(4)
SYN, ACK, FIN, RST = 1, 2, 4, 8
NORMAL_TERMINATION, PROTOCOL_ERROR, INTERNAL_ERROR = range(3)

SPEC_WINDOW = 256 * 1024
FIRST_SEND_WINDOW = 256_000
MAX_UINT32 = 0xFFFFFFFF
SMALL_PAYLOAD = 2048

# Version (always 0) and type are read and written as one 16-bit number.
_FRAME: Final = Struct(">HHII")
_pack = _FRAME.pack
_unpack_from = _FRAME.unpack_from


class YamuxStream(StreamState):
    """One stream with both its windows."""

    __slots__ = ("acknowledged", "due", "granted", "send_window", "starved", "window")

    def __init__(self, stream_id: StreamId, *, inbound: bool, window: int) -> None:
        super().__init__(stream_id, inbound=inbound)
        self.due = ACK if inbound else SYN
        self.acknowledged = inbound
        self.send_window = FIRST_SEND_WINDOW
        self.starved = False
        self.window = window
        self.granted = SPEC_WINDOW


class Yamux(MuxerCore[YamuxStream]):
    """A `Muxer` that speaks yamux."""

    HEADER_SIZE = 12
    protocol: str = PROTOCOL

    def __init__(self, *, initiator: bool, limits: MuxerLimits | None = None) -> None:
        limits = limits or MuxerLimits()
        self._window = max(limits.initial_window, SPEC_WINDOW)
        self._max_window = max(limits.max_window, self._window)
        self._growth_left = limits.max_buffered_total // 2
        super().__init__(
            limits=limits,
            stream_bound=self._max_window,
            used_ids=UsedIds(2, 0 if initiator else -1),
        )
        self._peer_parity = 0 if initiator else 1
        self._next_id = 1 if initiator else 2
        self._backlog = 0
        self._unsaid: dict[StreamId, YamuxStream] = {}
        self._pings: set[int] = set()

    @property
    def queued_bytes(self) -> int:
        """See `Muxer`. Counts the announcements that `take_output` would add."""
        return self._queued + 12 * len(self._unsaid)

    # What the peer does.

    def _header(self, data: bytes, position: int, events: list[Event]) -> int:
        if len(data) - position < 12:
            return position
        kind, flags, stream_id, length = _unpack_from(data, position)
        if kind > WINDOW_UPDATE:
            self._session_frame(kind, flags, stream_id, length, events)
            return position + 12
        stream = self._streams.get(stream_id)
        if flags or stream is None:
            stream = self._flagged(stream, kind, flags, stream_id, length, events)
        if kind == DATA:
            if length:
                self._data(stream, length, events, closes=flags & FIN != 0)
                return position + 12
            if stream is not None and not flags:
                self._ignore()
        elif stream is not None:
            self._send_window_grows(stream, length, flags, events)
        if flags & FIN and stream is not None:
            self._peer_closes(stream, events)
        return position + 12

    def _flagged(
        self,
        stream: YamuxStream | None,
        kind: int,
        flags: int,
        stream_id: StreamId,
        length: int,
        events: list[Event],
    ) -> YamuxStream | None:
        """Apply SYN, ACK and RST; the stream that the rest of the frame is for, if there still is one."""
        if stream_id == 0:
            raise Ending("a stream frame on id 0")
        if flags & SYN:
            if stream_id & 1 != self._peer_parity:
                raise Ending(f"stream id {stream_id} is not the peer's to open")
            if flags & RST and self._used_ids.use(stream_id):
                self._ignore()
                return None
            stream = self._peer_opens(stream_id, stream_id, events)
            if stream is None:
                self._say_rejected(stream_id)
                self._linger(stream_id)
                return None
        elif stream is None:
            payload = length if kind == DATA else 0
            late = self._late(stream_id, payload, last=flags & (FIN | RST) != 0)
            if payload and not late and not flags & RST:
                self._say_rejected(stream_id)
            return None
        if flags & ACK and not stream.acknowledged:
            stream.acknowledged = True
            self._backlog -= 1
        if flags & RST:
            self._peer_resets(stream, events)
            return None
        return stream

    def _data(self, stream: YamuxStream | None, length: int, events: list[Event], *, closes: bool) -> None:
        if stream is not None:
            if stream.peer_closed:
                self._overflow(stream, "data after its end", events)
                stream = None
            elif length > stream.granted - stream.received:
                raise Ending(f"stream {stream.stream_id}: {length} bytes are beyond the receive window")
        self._expect(stream, length, closes=closes)

    def _send_window_grows(self, stream: YamuxStream, delta: int, flags: int, events: list[Event]) -> None:
        if delta == 0:
            if not flags:
                self._ignore()
            return
        stream.send_window += delta
        if stream.send_window > MAX_UINT32:
            raise Ending(f"stream {stream.stream_id}: window beyond 32 bits")
        if stream.starved:
            stream.starved = False
            events.append(WindowOpened(stream.stream_id))

    def _session_frame(self, kind: int, flags: int, stream_id: int, length: int, events: list[Event]) -> None:
        if kind > GO_AWAY:
            raise Ending(f"frame of unknown version or type {kind:#06x}")
        if stream_id != 0:
            raise Ending(f"a session frame on stream {stream_id}")
        if kind == GO_AWAY:
            reason = {
                NORMAL_TERMINATION: "the peer went away",
                PROTOCOL_ERROR: "the peer went away: it saw a protocol error",
                INTERNAL_ERROR: "the peer went away: it had an internal error",
            }.get(length, f"the peer went away: code {length}")
            raise Ending(reason, clean=length == NORMAL_TERMINATION, farewell=False)
        if flags == SYN:
            self._waste()
            self._answer()
            self._put(_pack(PING, ACK, 0, length))
        elif flags == ACK:
            if length in self._pings:
                self._pings.remove(length)
                events.append(PongReceived(length))
            else:
                self._ignore()
        else:
            raise Ending(f"a ping with flags {flags:#06x}")

    # What the application does.

    def open(self) -> StreamId:
        """See `Muxer`."""
        self._check_open()
        if self._backlog >= self._limits.max_ack_backlog:
            raise LimitExceeded(f"{self._backlog} streams wait for the peer's acknowledgement")
        stream_id = self._next_id
        if stream_id > MAX_UINT32:
            raise LimitExceeded("the connection has used up its stream ids")
        self._next_id += 2
        self._backlog += 1
        self._streams[stream_id] = self._unsaid[stream_id] = self._new_stream(stream_id, inbound=False)
        return stream_id

    def send(self, stream_id: StreamId, data: bytes | memoryview) -> int:
        """See `Muxer`."""
        stream = self._writable(stream_id)
        size = len(data)
        taken = min(size, stream.send_window)
        if taken < size:
            stream.starved = True
        if taken == 0:
            return 0
        stream.send_window -= taken
        flags = self._first_flags(stream) if stream.due else 0
        if taken <= SMALL_PAYLOAD:
            # One small chunk is cheaper to write than two.
            self._put(_pack(DATA, flags, stream_id, taken) + (data if taken == size else data[:taken]))
            return taken
        largest = self._limits.max_frame_sent
        if size <= largest and taken == size:
            self._put(_pack(DATA, flags, stream_id, taken))
            self._put(data)
            return taken
        view = memoryview(data)
        for start in range(0, taken, largest):
            end = min(start + largest, taken)
            self._put(_pack(DATA, flags, stream_id, end - start))
            self._put(view[start:end])
            flags = 0
        return taken

    def ping(self, opaque: int) -> bool:
        """See `Muxer`."""
        if not 0 <= opaque <= MAX_UINT32:
            raise InvalidInput(f"a ping carries a number from 0 to 2**32 - 1, not {opaque}")
        if self.ended or opaque in self._pings or len(self._pings) >= self._limits.max_pending_pings:
            return False
        self._pings.add(opaque)
        self._put(_pack(PING, SYN, 0, opaque))
        return True

    def take_output(self) -> list[bytes | memoryview]:
        """See `Muxer`."""
        if self._unsaid:
            for stream in list(self._unsaid.values()):
                self._say_update(stream, 0, 0)
        return super().take_output()

    # What we say.

    def _first_flags(self, stream: YamuxStream) -> int:
        """The SYN or ACK for a stream's first frame; streams that were opened earlier are announced first."""
        flags = stream.due
        stream.due = 0
        if flags == SYN:
            for earlier in list(self._unsaid.values()):
                if earlier is stream:
                    break
                if earlier.due == SYN:
                    self._say_update(earlier, 0, 0)
        self._unsaid.pop(stream.stream_id, None)
        if stream.window > stream.granted:
            extra = stream.window - stream.granted
            stream.granted = stream.window
            self._put(_pack(WINDOW_UPDATE, flags, stream.stream_id, extra))
            return 0
        return flags

    def _say_update(self, stream: YamuxStream, delta: int, flags: int) -> None:
        first = self._first_flags(stream) if stream.due else 0
        self._put(_pack(WINDOW_UPDATE, flags | first, stream.stream_id, delta))

    def _say_close(self, stream: YamuxStream) -> None:
        self._say_update(stream, 0, FIN)

    def _say_reset(self, stream: YamuxStream) -> None:
        if stream.due != SYN:
            self._put(_pack(WINDOW_UPDATE, RST, stream.stream_id, 0))

    def _say_rejected(self, stream_id: StreamId) -> None:
        self._answer()
        self._put(_pack(WINDOW_UPDATE, RST, stream_id, 0))

    def _say_farewell(self, *, violation: bool) -> None:
        self._unsaid.clear()
        self._pings.clear()
        self._put(_pack(GO_AWAY, 0, 0, PROTOCOL_ERROR if violation else NORMAL_TERMINATION))

    # Windows and the table.

    def _new_stream(self, stream_id: StreamId, *, inbound: bool) -> YamuxStream:
        return YamuxStream(stream_id, inbound=inbound, window=self._window)

    def _window_moved(self, stream: YamuxStream) -> None:
        owed = stream.consumed + stream.window - stream.granted
        if owed * 2 >= stream.window:
            self._grant(stream)
        elif stream.due == ACK:
            self._unsaid[stream.stream_id] = stream

    def _grant(self, stream: YamuxStream) -> None:
        if stream.consumed == stream.received:
            growth = min(stream.window, self._max_window - stream.window, self._growth_left)
            stream.window += growth
            self._growth_left -= growth
        delta = stream.consumed + stream.window - stream.granted
        stream.granted += delta
        self._say_update(stream, delta, 0)

    def _dropped(self, stream: YamuxStream) -> None:
        self._growth_left += stream.window - self._window
        self._unsaid.pop(stream.stream_id, None)
        if not stream.acknowledged:
            self._backlog -= 1
