"""What a connection needs of a stream multiplexer, whichever it is: many streams over one encrypted pipe.

A muxer is a pure state machine. The shell feeds it what the socket brought (`receive`) and acts on the
events; it tells the muxer what the application wants (`open`, `send`, `consumed`, `close_write`, `reset`,
`discard`); after either it writes what the muxer has to say (`take_output`) to the socket, in order.

Ids are the shell's handles for streams, unique within one connection and never used again. A stream is
forgotten as soon as either side has reset it, or both have closed it and all that was received is consumed:
so what a peer makes us hold is always counted, and the shell must `consumed`, `discard` or `reset` in the
end. Whatever it still says about a forgotten stream is without effect (`send` raises `StreamReset`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

StreamId = int


class StreamOpened(NamedTuple):
    """The peer has opened a stream."""

    stream_id: StreamId


class DataReceived(NamedTuple):
    """The next bytes of a stream, in order. `consumed` is due once the application has taken them."""

    stream_id: StreamId
    data: bytes


class WriteClosed(NamedTuple):
    """The peer sends no more on this stream; it may still read."""

    stream_id: StreamId


class StreamWasReset(NamedTuple):
    """The stream is gone: the peer has reset it, or a bound was exceeded. Its last event."""

    stream_id: StreamId
    reason: str


class WindowOpened(NamedTuple):
    """A stream whose `send` took less than it was given can take more again."""

    stream_id: StreamId


class PongReceived(NamedTuple):
    """The peer has answered the `ping` with this value."""

    opaque: int


class SessionEnded(NamedTuple):
    """Nothing more comes on this connection, and all its streams are gone; always the last event.

    `clean` is true when the peer took its leave in the regular way. The output that is still queued (a
    go-away with our reason) should be written before the socket is closed.
    """

    reason: str
    clean: bool


Event = (
    StreamOpened | DataReceived | WriteClosed | StreamWasReset | WindowOpened | PongReceived | SessionEnded
)


@dataclass(frozen=True, slots=True)
class MuxerLimits:
    """The bounds that one connection is held to."""

    max_inbound_streams: int = 1024
    """Streams the peer may have open at a time; those beyond are reset."""
    max_outbound_streams: int = 1024
    """Streams we may have open at a time; `open` raises `LimitExceeded` beyond."""
    max_ack_backlog: int = 256
    """Streams we opened that the peer has not acknowledged yet (yamux.md, ACK backlog)."""
    initial_window: int = 256 * 1024
    """yamux: what the peer may send on a new stream. At least the 256 KiB of the spec."""
    max_window: int = 1024 * 1024
    """yamux: what the window of a busy stream may grow to."""
    max_buffered_per_stream: int = 4 * 1024 * 1024
    """mplex: bytes received and not consumed on one stream; beyond that the stream is reset."""
    max_buffered_total: int = 16 * 1024 * 1024
    """Bytes received and not consumed on all streams; the stream that brings more is reset."""
    max_frame: int = 1024 * 1024
    """mplex: the largest message accepted (mplex.md: 1 MiB)."""
    max_frame_sent: int = 64 * 1024
    """The largest payload of a frame we send, so that streams take turns."""
    max_queued_control: int = 64 * 1024
    """Bytes of answers (resets, pongs) the peer may make us queue while it does not read its socket."""
    max_discarded: int = 4 * 1024 * 1024
    """Bytes accepted on a stream after `discard`, and after our reset; beyond that the peer is refused."""
    max_idle_frames: int = 10_000
    """Frames without progress that are borne; beyond that the session ends.

    Opening a stream, a ping, an empty frame, a frame for no stream cost one. A stream's first payload, every
    KiB of payload pay one back, and each `receive` a few: what comes piecemeal is no flood.
    """
    max_pending_pings: int = 8
    """Our pings under way at a time."""


class Muxer(Protocol):
    """One connection's multiplexer. See the module for how it is driven."""

    def __init__(self, *, initiator: bool, limits: MuxerLimits = ...) -> None: ...

    @property
    def protocol(self) -> str:
        """The name it is negotiated under."""
        ...

    @property
    def queued_bytes(self) -> int:
        """Size of the output that was not taken yet."""
        ...

    @property
    def open_streams(self) -> int:
        """Streams that are not forgotten yet, of either side."""
        ...

    @property
    def buffered_bytes(self) -> int:
        """Bytes received and not consumed yet, over all streams."""
        ...

    @property
    def ended(self) -> bool:
        """The session is over: by `end`, by the peer's leave, or by a violation."""
        ...

    @property
    def refused_streams(self) -> int:
        """Streams of the peer that were beyond `max_inbound_streams`."""
        ...

    @property
    def overflowed_streams(self) -> int:
        """Streams that were reset because they brought more than the bounds allow."""
        ...

    @property
    def ignored_frames(self) -> int:
        """Frames of the peer that belonged to no stream or made no progress."""
        ...

    def open(self) -> StreamId:
        """Open a stream.

        The peer hears of it with the first frame on the stream (`send`, `close_write`) or, without one, with
        the next `take_output`: what is opened and sent to before the output is taken is one frame.
        Raises `LimitExceeded` when too many streams are open or the session has ended.
        """
        ...

    def receive(self, data: bytes) -> list[Event]:
        """Take what the peer sent, cut anywhere. Never raises: a violation ends with `SessionEnded`."""
        ...

    def send(self, stream_id: StreamId, data: bytes | memoryview) -> int:
        """Queue as much of `data` as may be sent now and return how much that was.

        After less than all of it, `WindowOpened` tells when to go on. `data` must not change until the output
        was written. Raises `StreamClosed` after `close_write`, `StreamReset` when the stream is forgotten.
        """
        ...

    def consumed(self, stream_id: StreamId, count: int) -> None:
        """The application took `count` received bytes (also after `WriteClosed`): the peer may send more."""
        ...

    def close_write(self, stream_id: StreamId) -> None:
        """Say that nothing more will be sent."""
        ...

    def reset(self, stream_id: StreamId) -> None:
        """Abandon the stream; no event follows."""
        ...

    def discard(self, stream_id: StreamId) -> None:
        """The application reads no more: what it did not consume and all that comes counts as consumed.

        `DataReceived` no longer comes for the stream, `WriteClosed` and `StreamWasReset` still do. With
        `close_write` it is the close of both directions; a peer that never closes its own keeps the stream in
        the table, so the shell should `reset` it after a while.
        """
        ...

    def ping(self, opaque: int) -> bool:
        """Ask the peer for a sign of life. False if it cannot be asked (no ping, too many under way)."""
        ...

    def end(self) -> None:
        """Take leave: all streams are forgotten, and what can be said about it is queued."""
        ...

    def take_output(self) -> list[bytes | memoryview]:
        """All that is to be written, in order, since the last call."""
        ...
