"""Length-delimited frames on streams: how all request protocols of Waku talk."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import trio

from pywaku.errors import NetworkError, RequestTimeout
from pywaku.ids import PeerId
from pywaku.network.port import Network, Stream
from pywaku.wire.framing import FrameDecoder, frame


class FrameReader:
    """Reads frames of up to `max_size` bytes from a stream, taking at once all that has arrived.

    Raises `DecodeError` for a larger frame (before its body is kept) and for a stream that ends within one.
    What had arrived together with the beginning of such a frame is lost.
    """

    __slots__ = ("_decoder", "_frames", "_stream")

    def __init__(self, stream: Stream, max_size: int) -> None:
        self._stream = stream
        self._decoder = FrameDecoder(max_size)
        self._frames: deque[bytes] = deque()

    async def read(self) -> bytes | None:
        """The next frame; None at the end of the stream. Cancelling it loses nothing."""
        if not self._frames:
            self._frames.extend(await self._more())
            if not self._frames:
                return None
        else:
            await trio.lowlevel.checkpoint_if_cancelled()
        return self._frames.popleft()

    async def read_all_available(self) -> list[bytes]:
        """All frames that have arrived, waiting for at least one; an empty list at the end of the stream."""
        if not self._frames:
            return await self._more()
        await trio.lowlevel.checkpoint_if_cancelled()
        frames = list(self._frames)
        self._frames.clear()
        return frames

    async def _more(self) -> list[bytes]:
        while data := await self._stream.receive():
            frames = self._decoder.feed(data)
            if frames:
                return frames
        self._decoder.finish()
        return []


async def read_frame(stream: Stream, max_size: int) -> bytes | None:
    """The one frame that a stream is to bring; None if it ends before. Raises what `FrameReader` raises.

    As a rule it has arrived as a whole, and needs no decoder.
    """
    data = await stream.receive()
    if not data:
        return None
    size, start = data[0], 1
    if size >= 0x80 and len(data) > 1 and 0 < data[1] < 0x80:
        size, start = size & 0x7F | data[1] << 7, 2
    whole = len(data) == start + size and (size < 0x80 or start == 2)
    if whole and size <= max_size:
        return data[start:]
    decoder = FrameDecoder(max_size)
    while data:
        if frames := decoder.feed(data):
            return frames[0]
        data = await stream.receive()
    decoder.finish()
    return None


async def write_frame(stream: Stream, payload: bytes) -> None:
    """Send one frame, as one write."""
    await stream.send(frame(payload))


async def request(
    network: Network,
    peer: PeerId,
    protocols: Sequence[str] | str,
    payload: bytes,
    *,
    max_response: int,
    timeout: float = 10.0,
) -> bytes:
    """Send one frame to a connected peer on a stream of its own and return the frame it answers with.

    Raises what `Network.open_stream` raises, `RequestTimeout` when all of it takes longer than `timeout`
    seconds, `NetworkError` when the peer ends the stream without an answer, and `DecodeError` when the answer
    is no frame of up to `max_response` bytes.
    """
    with trio.CancelScope(deadline=trio.current_time() + timeout):
        async with await network.open_stream(peer, protocols, timeout=math.inf) as stream:
            await stream.send(frame(payload))
            # Our half is closed now, not after the answer: js-libp2p forgets a stream once it has answered,
            # and over mplex it hangs up on peers that send more than a few frames for streams it has
            # forgotten.
            await stream.close_write()
            response = await read_frame(stream, max_response)
        if response is None:
            raise NetworkError(f"{peer.short()} ended the stream without an answer")
        return response
    raise RequestTimeout(f"{peer.short()} did not answer within {timeout:g} s")
