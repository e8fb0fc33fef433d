"""What yamux and mplex have in common: the table of streams, bodies that arrive in pieces, and the bounds.

A multiplexer on top of this reads its own headers (`_header`) and writes its own frames (`_say_…`).
"""

from __future__ import annotations

from typing import Generic, TypeVar

from pywaku.errors import LimitExceeded, StreamClosed, StreamReset
from pywaku.network.libp2p.muxer import (
    DataReceived,
    Event,
    MuxerLimits,
    SessionEnded,
    StreamId,
    StreamOpened,
    StreamWasReset,
    WriteClosed,
)
from pywaku.network.libp2p.muxer_parts import NEVER, Ending, StreamState, UsedIds

LINGERING = 1024
"""Streams we have reset whose late frames are still recognized."""

PATIENCE = 16
"""Frames without progress that each call of `receive` forgives."""

S = TypeVar("S", bound=StreamState)


class MuxerCore(Generic[S]):
    """The part of a `Muxer` that does not depend on its wire format."""

    HEADER_SIZE: int
    """The longest a header can be: no more than that is ever held back."""

    def __init__(self, *, limits: MuxerLimits, stream_bound: int, used_ids: UsedIds) -> None:
        self._limits = limits
        self._stream_bound = stream_bound
        self._used_ids = used_ids
        self._streams: dict[StreamId, S] = {}
        self._lingering: dict[StreamId, int] = {}
        self._inbound = 0
        self._output: list[bytes | memoryview] = []
        self._queued: int = 0
        self._answers = 0
        self._idle = 0
        self._partial = b""
        self._body: S | None = None
        self._body_left = 0
        self._body_closes = False
        self._delivered = 0
        self.buffered_bytes = 0
        self.ended = False
        self.refused_streams = 0
        self.overflowed_streams = 0
        self.ignored_frames = 0

    # What a wire format adds.

    def _header(self, data: bytes, position: int, events: list[Event]) -> int:
        """Act on the header at `position` and return where it ends, or `position` if it is incomplete.

        A payload that follows is announced by `_expect`. Raises `Ending`.
        """
        raise NotImplementedError

    def _new_stream(self, stream_id: StreamId, *, inbound: bool) -> S:
        raise NotImplementedError

    def _say_close(self, stream: S) -> None:
        raise NotImplementedError

    def _say_reset(self, stream: S) -> None:
        raise NotImplementedError

    def _say_farewell(self, *, violation: bool) -> None:
        """Nothing, where the wire format has no word for it."""

    def _window_moved(self, stream: S) -> None:
        """The application took bytes of a stream that the peer has not closed."""

    def _dropped(self, stream: S) -> None:
        """The stream was forgotten."""

    # What the shell reads.

    @property
    def queued_bytes(self) -> int:
        """See `Muxer`."""
        return self._queued

    @property
    def open_streams(self) -> int:
        """See `Muxer`."""
        return len(self._streams)

    def _put(self, chunk: bytes | memoryview) -> None:
        self._output.append(chunk)
        self._queued += len(chunk)

    def take_output(self) -> list[bytes | memoryview]:
        """See `Muxer`."""
        output = self._output
        self._output = []
        self._queued = 0
        self._answers = 0
        return output

    # What the peer does.

    def receive(self, data: bytes) -> list[Event]:
        """See `Muxer`."""
        events: list[Event] = []
        if self.ended:
            return events
        try:
            self._parse(data, events)
        except Ending as ending:
            self._finish(say=ending.farewell, violation=not ending.clean)
            events.append(SessionEnded(ending.reason, ending.clean))
        forgiven = PATIENCE + (self._delivered >> 10)
        self._delivered = 0
        self._idle = self._idle - forgiven if self._idle > forgiven else 0
        return events

    def _parse(self, data: bytes, events: list[Event]) -> None:
        position = 0
        size = len(data)
        partial = self._partial
        if partial:
            # Only as much is joined as may complete the header: a large chunk is not copied for it.
            joined = partial + data[: self.HEADER_SIZE - len(partial)]
            end = self._header(joined, 0, events)
            if end == 0:
                self._partial = joined
                return
            self._partial = b""
            position = end - len(partial)
        while position < size:
            if self._body_left:
                position = self._take_body(data, position, size, events)
                continue
            end = self._header(data, position, events)
            if end == position:
                self._partial = data[position:]
                return
            position = end

    def _expect(self, stream: S | None, length: int, *, closes: bool = False) -> None:
        """A payload comes next, for `stream` or to be dropped; with `closes` the stream ends with it."""
        self._body = stream
        self._body_left = length
        self._body_closes = closes

    def _take_body(self, data: bytes, position: int, size: int, events: list[Event]) -> int:
        """Deliver what has arrived of a payload, without waiting for the rest of it."""
        end = position + self._body_left
        if end > size:
            end = size
        taken = end - position
        self._body_left -= taken
        stream = self._body
        if stream is None:
            return end
        stream.received += taken
        self._delivered += taken
        if stream.fresh:
            stream.fresh = False
            self._idle -= 1
        if stream.discard_until == NEVER:
            self.buffered_bytes += taken
            events.append(DataReceived(stream.stream_id, data if taken == size else data[position:end]))
            if (
                stream.received - stream.consumed > self._stream_bound
                or self.buffered_bytes > self._limits.max_buffered_total
            ):
                self._overflow(stream, "receive buffer exceeded", events)
                return end
        else:
            stream.consumed += taken
            if stream.received > stream.discard_until:
                self._overflow(stream, "kept sending on a stream that is not read", events)
                return end
            self._window_moved(stream)
        if not self._body_left:
            self._body = None
            if self._body_closes:
                self._peer_closes(stream, events)
        return end

    def _peer_opens(self, stream_id: StreamId, wire_id: int, events: list[Event]) -> S | None:
        """The peer wants a stream: here it is, or None if it is one too many."""
        if not self._used_ids.use(wire_id):
            raise Ending(f"stream id {wire_id} used twice")
        self._waste()
        if self._inbound >= self._limits.max_inbound_streams:
            self.refused_streams += 1
            return None
        stream = self._new_stream(stream_id, inbound=True)
        self._streams[stream_id] = stream
        self._inbound += 1
        events.append(StreamOpened(stream_id))
        return stream

    def _peer_closes(self, stream: S, events: list[Event]) -> None:
        if stream.peer_closed:
            self._ignore()
            return
        stream.peer_closed = True
        events.append(WriteClosed(stream.stream_id))
        self._forget_if_done(stream)

    def _peer_resets(self, stream: S, events: list[Event]) -> None:
        self._forget(stream)
        events.append(StreamWasReset(stream.stream_id, "reset by the peer"))

    def _overflow(self, stream: S, reason: str, events: list[Event]) -> None:
        """A stream broke a bound of ours: it goes, the session stays."""
        self.overflowed_streams += 1
        self._answer()
        self.reset(stream.stream_id)
        events.append(StreamWasReset(stream.stream_id, reason))

    def _late(self, stream_id: StreamId, length: int, *, last: bool) -> bool:
        """Is this a frame that was under way when we reset its stream? Counted as ignored if not."""
        allowed = self._lingering.get(stream_id, -1)
        if last:
            self._lingering.pop(stream_id, None)
        if allowed < length or (length == 0 and not last):
            self._ignore()
            return allowed >= 0
        if not last:
            self._lingering[stream_id] = allowed - length
        return True

    def _ignore(self) -> None:
        self.ignored_frames += 1
        self._waste()

    def _waste(self) -> None:
        """A frame without progress: borne in moderation."""
        self._idle += 1
        if self._idle > self._limits.max_idle_frames:
            raise Ending("too many frames without progress")

    def _answer(self, size: int = 16) -> None:
        """The peer makes us queue an answer: borne as long as it reads what we write."""
        self._answers += size
        if self._answers > self._limits.max_queued_control:
            raise Ending("too many frames to answer")

    # What the application does.

    def _writable(self, stream_id: StreamId) -> S:
        stream = self._streams.get(stream_id)
        if stream is None:
            raise StreamReset(f"stream {stream_id} is gone")
        if stream.closed:
            raise StreamClosed(f"stream {stream_id} was closed for writing")
        return stream

    def _check_open(self) -> None:
        if self.ended:
            raise LimitExceeded("the connection's session has ended")
        if len(self._streams) - self._inbound >= self._limits.max_outbound_streams:
            raise LimitExceeded(f"{self._limits.max_outbound_streams} streams are open on the connection")

    def consumed(self, stream_id: StreamId, count: int) -> None:
        """See `Muxer`."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.discard_until != NEVER:
            return
        count = min(count, stream.received - stream.consumed)
        stream.consumed += count
        self.buffered_bytes -= count
        if stream.peer_closed:
            self._forget_if_done(stream)
        else:
            self._window_moved(stream)

    def discard(self, stream_id: StreamId) -> None:
        """See `Muxer`."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.discard_until != NEVER:
            return
        self.consumed(stream_id, stream.received - stream.consumed)
        stream.discard_until = stream.received + self._limits.max_discarded

    def close_write(self, stream_id: StreamId) -> None:
        """See `Muxer`."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.closed:
            return
        stream.closed = True
        self._say_close(stream)
        self._forget_if_done(stream)

    def reset(self, stream_id: StreamId) -> None:
        """See `Muxer`."""
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        # A peer that has seen both ends close has forgotten the stream; nim-libp2p then ends the session.
        if not (stream.closed and stream.peer_closed):
            self._say_reset(stream)
            if not stream.peer_closed:
                self._linger(stream_id)
        self._forget(stream)

    def end(self) -> None:
        """See `Muxer`."""
        if not self.ended:
            self._finish(say=True, violation=False)

    # Forgetting.

    def _linger(self, stream_id: StreamId) -> None:
        self._lingering[stream_id] = self._limits.max_discarded
        if len(self._lingering) > LINGERING:
            del self._lingering[next(iter(self._lingering))]

    def _forget_if_done(self, stream: S) -> None:
        if stream.closed and stream.peer_closed and stream.received == stream.consumed:
            self._forget(stream)

    def _forget(self, stream: S) -> None:
        del self._streams[stream.stream_id]
        self.buffered_bytes -= stream.received - stream.consumed
        if stream.inbound:
            self._inbound -= 1
        if self._body is stream:
            self._body = None
        self._dropped(stream)

    def _finish(self, *, say: bool, violation: bool) -> None:
        self.ended = True
        self._streams.clear()
        self._lingering.clear()
        self._inbound = 0
        self.buffered_bytes = 0
        self._partial = b""
        self._expect(None, 0)
        if say:
            self._say_farewell(violation=violation)
