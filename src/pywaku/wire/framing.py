"""Length-delimited frames: a varint length and as many bytes, as all Waku protocols use on a stream."""

from __future__ import annotations

from pywaku.errors import DecodeError
from pywaku.wire import varint


def frame(payload: bytes) -> bytes:
    """`payload` with its length before it."""
    return varint.encode(len(payload)) + payload


class FrameDecoder:
    """Takes bytes as they arrive, gives the frames that are complete.

    At most `max_size` bytes of body (and a length) are held. A length above `max_size`, or one that is not a
    minimal varint, is refused as soon as it is read, before anything of its body is kept; from then on the
    decoder refuses everything.
    """

    __slots__ = ("_body", "_error", "_length", "_length_size", "_max_size", "_missing")

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._length = b""  # of the next frame, as far as it has arrived
        self._body = bytearray()  # of the frame under way, as far as it has arrived
        self._length_size = 0  # bytes that the length of the frame under way had
        self._missing = 0  # bytes that the frame under way still lacks
        self._error: str | None = None

    @property
    def pending(self) -> int:
        """Bytes that have arrived of the frame that is not complete yet; 0 between frames."""
        return len(self._length) + self._length_size + len(self._body)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes, in order."""
        if self._error is not None:
            raise DecodeError(self._error)
        frames: list[bytes] = []
        offset = 0
        if self._missing:
            if len(data) < self._missing:
                self._body += data
                self._missing -= len(data)
                return frames
            offset = self._missing
            self._body += data[:offset]
            self._missing = self._length_size = 0
            frames.append(bytes(self._body))
            self._body = bytearray()
        elif self._length:
            data = self._length + data
            self._length = b""
        end = len(data)
        while offset < end:
            size = data[offset]
            start = offset + 1
            if size >= 0x80:
                if start < end and 0 < data[start] < 0x80:  # two bytes, as most lengths have
                    size = size & 0x7F | data[start] << 7
                    start += 1
                else:
                    length = self._read_length(data, offset)
                    if length is None:
                        self._length = data[offset:]
                        break
                    size, start = length
            if size > self._max_size:
                raise self._refusal(f"a frame of {size} bytes is larger than {self._max_size}")
            stop = start + size
            if stop > end:
                self._length_size = start - offset
                self._body += data[start:]
                self._missing = stop - end
                break
            frames.append(data[start:stop])
            offset = stop
        return frames

    def finish(self) -> None:
        """The stream has ended; raises `DecodeError` if it did so within a frame."""
        if self._missing or self._length:
            raise DecodeError("the stream ended within a frame")

    def _read_length(self, data: bytes, offset: int) -> tuple[int, int] | None:
        try:
            return varint.decode(data, offset)
        except DecodeError as error:
            raise self._refusal(str(error)) from None

    def _refusal(self, reason: str) -> DecodeError:
        self._error = reason
        return DecodeError(reason)
