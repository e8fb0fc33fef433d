"""mplex: streams without flow control over one connection (mplex.md), as a pure state machine.

What the spec leaves open is decided like this:

- A reader that falls behind gets its stream reset (Implementation notes, 2): nothing else stops the sender.
- `send` takes everything; the shell bounds what it queues. There is no ping and no farewell.
- Frames for streams we do not know are dropped in silence, and nothing is said on a stream the peer
  has reset: js-libp2p ends the connection after five frames a second that it has no stream for.
- Our streams have empty names; the names of others are skipped.
"""

from __future__ import annotations

from typing import Final

from pywaku.errors import InvalidInput
from pywaku.network.libp2p.muxer import Event, MuxerLimits, StreamId
from pywaku.network.libp2p.muxer_core import MuxerCore
from pywaku.network.libp2p.muxer_parts import Ending, StreamState, UsedIds

PROTOCOL: Final = "/mplex/6.7.0"

NEW_STREAM, MESSAGE_RECEIVER, MESSAGE_INITIATOR, CLOSE_RECEIVER, CLOSE_INITIATOR = range(5)
RESET_RECEIVER, RESET_INITIATOR = 5, 6

MAX_VARINT = 9
MAX_NAME = 1024
SMALL_PAYLOAD = 2048


class Mplex(MuxerCore[StreamState]):
    """A `Muxer` that speaks mplex.

    Both sides count their streams from 0. Our handle for a stream is its id doubled, plus one if
    it is ours. Who dialled (`initiator`) makes no difference.
    """

    HEADER_SIZE = 2 * MAX_VARINT
    protocol: str = PROTOCOL

    def __init__(self, *, initiator: bool, limits: MuxerLimits | None = None) -> None:
        limits = limits or MuxerLimits()
        super().__init__(
            limits=limits,
            stream_bound=limits.max_buffered_per_stream,
            used_ids=UsedIds(1, -1),
        )
        self._next_id = 0

    # What the peer does.

    def _header(self, data: bytes, position: int, events: list[Event]) -> int:
        size = len(data)
        end = position + 1
        head = data[position]
        if head > 0x7F:
            head, end = _varint(data, position)
        if end == 0 or end == size:
            return position
        length = data[end]
        end += 1
        if length > 0x7F:
            length, end = _varint(data, end - 1)
            if end == 0:
                return position
        if length > self._limits.max_frame:
            raise Ending(f"a message of {length} bytes")
        flag = head & 7
        stream_id = (head >> 3 << 1) | (flag & 1)
        stream = self._streams.get(stream_id)
        if MESSAGE_RECEIVER <= flag <= MESSAGE_INITIATOR and stream is not None:
            self._message(stream, length, events)
        else:
            self._control(stream, flag, stream_id, length, events)
        return end

    def _message(self, stream: StreamState, length: int, events: list[Event]) -> None:
        if stream.peer_closed:
            self._overflow(stream, "data after its end", events)
            self._expect(None, length)
        elif length == 0:
            self._ignore()
        else:
            self._body = stream
            self._body_left = length

    def _control(
        self, stream: StreamState | None, flag: int, stream_id: StreamId, length: int, events: list[Event]
    ) -> None:
        """Everything but a message for a stream that we know. A payload where none belongs is skipped."""
        self._expect(None, length)
        if flag == NEW_STREAM:
            if length > MAX_NAME:
                raise Ending(f"a stream name of {length} bytes")
            if self._peer_opens(stream_id, stream_id >> 1, events) is None:
                self._answer()
                self._say(stream_id, RESET_RECEIVER)
                self._linger(stream_id)
        elif flag > RESET_INITIATOR:
            raise Ending(f"a message with flag {flag}")
        elif stream is None:
            self._late(stream_id, length, last=flag > MESSAGE_INITIATOR)
        elif flag <= CLOSE_INITIATOR:
            self._peer_closes(stream, events)
        else:
            self._peer_resets(stream, events)

    # What the application does.

    def open(self) -> StreamId:
        """See `Muxer`."""
        self._check_open()
        stream_id = self._next_id << 1 | 1
        self._next_id += 1
        self._streams[stream_id] = self._new_stream(stream_id, inbound=False)
        self._put(_encode(stream_id >> 1 << 3 | NEW_STREAM, 0))
        return stream_id

    def send(self, stream_id: StreamId, data: bytes | memoryview) -> int:
        """See `Muxer`. Takes all of it."""
        self._writable(stream_id)
        size = len(data)
        if size == 0:
            return 0
        head = stream_id >> 1 << 3 | (MESSAGE_INITIATOR if stream_id & 1 else MESSAGE_RECEIVER)
        largest = min(self._limits.max_frame_sent, self._limits.max_frame)
        if size <= SMALL_PAYLOAD and size <= largest:
            # One small chunk is cheaper to write than two.
            self._put(_encode(head, size) + data)
        elif size <= largest:
            self._put(_encode(head, size))
            self._put(data)
        else:
            view = memoryview(data)
            for start in range(0, size, largest):
                part = view[start : start + largest]
                self._put(_encode(head, len(part)))
                self._put(part)
        return size

    def ping(self, opaque: int) -> bool:
        """See `Muxer`. mplex has none."""
        if not 0 <= opaque <= 0xFFFFFFFF:
            raise InvalidInput(f"a ping carries a number from 0 to 2**32 - 1, not {opaque}")
        return False

    # What we say.

    def _say(self, stream_id: StreamId, receiver_flag: int) -> None:
        """A frame without payload; the flag for the initiator is the next one after the receiver's."""
        self._put(_encode(stream_id >> 1 << 3 | receiver_flag + (stream_id & 1), 0))

    def _say_close(self, stream: StreamState) -> None:
        self._say(stream.stream_id, CLOSE_RECEIVER)

    def _say_reset(self, stream: StreamState) -> None:
        self._say(stream.stream_id, RESET_RECEIVER)

    def _new_stream(self, stream_id: StreamId, *, inbound: bool) -> StreamState:
        return StreamState(stream_id, inbound=inbound)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The unsigned varint at `position` and where it ends; (0, 0) if it is incomplete."""
    value = 0
    shift = 0
    for end in range(position, min(position + MAX_VARINT, len(data))):
        byte = data[end]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, end + 1
        shift += 7
    if len(data) - position >= MAX_VARINT:
        raise Ending("a header field of more than nine bytes")
    return 0, 0


def _encode(head: int, length: int) -> bytes:
    """A message's header: both fields as varints."""
    if head < 0x80 and length < 0x80:
        return bytes((head, length))
    encoded = bytearray()
    for number in (head, length):
        while number > 0x7F:
            encoded.append(number & 0x7F | 0x80)
            number >>= 7
        encoded.append(number)
    return bytes(encoded)
