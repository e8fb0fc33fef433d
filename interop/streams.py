"""Protocols over single streams, served and used: echo, request and response, bulk, reset.

`interop/js/common/streams.mjs` is the same in JavaScript.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from pywaku.errors import NetworkError
from pywaku.ids import PeerId
from pywaku.network.port import Network, Stream
from pywaku.wire.framing import FrameDecoder, frame

ECHO: Final = "/pywaku/echo/1.0.0"
"""What comes in goes out, until the end."""
REQUEST: Final = "/pywaku/request/1.0.0"
"""One length-prefixed request, one response of the same bytes."""
BULK: Final = "/pywaku/bulk/1.0.0"
"""Bytes until the end, then their count as eight bytes."""
RESET: Final = "/pywaku/reset/1.0.0"
"""The first bytes that come in make the server reset the stream."""

_MANY: Final = 5000
_LARGEST_REQUEST: Final = 1 << 20


async def _answer_echo(stream: Stream) -> None:
    while data := await stream.receive():
        await stream.send(data)


async def _read_frame(stream: Stream) -> bytes:
    decoder = FrameDecoder(_LARGEST_REQUEST)
    while data := await stream.receive():
        if frames := decoder.feed(data):
            return frames[0]
    raise NetworkError("the stream ended before a whole message had come")


async def _answer_request(stream: Stream) -> None:
    await stream.send(frame(await _read_frame(stream)))


async def _answer_bulk(stream: Stream) -> None:
    count = 0
    while data := await stream.receive():
        count += len(data)
    await stream.send(count.to_bytes(8))


async def _answer_reset(stream: Stream) -> None:
    await stream.receive()
    stream.reset()


def serve_streams(network: Network) -> None:
    """Serve all of them."""
    network.serve(ECHO, _answer_echo, max_streams_per_peer=_MANY)
    network.serve(REQUEST, _answer_request, max_streams_per_peer=_MANY)
    network.serve(BULK, _answer_bulk, max_streams_per_peer=_MANY)
    network.serve(RESET, _answer_reset, max_streams_per_peer=_MANY)


async def read_all(stream: Stream) -> bytes:
    """What comes until the end."""
    parts: list[bytes] = []
    while data := await stream.receive():
        parts.append(data)
    return b"".join(parts)


async def echo_once(network: Network, peer: PeerId, size: int, chunk: int = 16384) -> None:
    """Send `size` random bytes and get the same back; both at once, so that neither side buffers it all."""
    data = os.urandom(size)
    async with await network.open_stream(peer, ECHO) as stream, trio.open_nursery() as nursery:

        async def write() -> None:
            for offset in range(0, size, chunk):
                await stream.send(data[offset : offset + chunk])
            await stream.close_write()

        nursery.start_soon(write)
        if await read_all(stream) != data:
            raise NetworkError("what came back is not what was sent")


async def request_once(network: Network, peer: PeerId, request: bytes) -> None:
    """A stream, a request, a response, and the stream is closed.

    Our half is closed with the request, as js-libp2p's own do it: it forgets what it has closed, and
    over mplex hangs up on peers that send more than five frames a second for forgotten streams.
    """
    async with await network.open_stream(peer, REQUEST) as stream:
        await stream.send(frame(request))
        await stream.close_write()
        response = await _read_frame(stream)
    if response != request:
        raise NetworkError("the response is not the request")


async def bulk_once(network: Network, peer: PeerId, size: int, chunk: int) -> int:
    """Send at least `size` bytes, `chunk` at a time; how many the peer counted."""
    data = os.urandom(chunk)
    async with await network.open_stream(peer, BULK) as stream:
        for _ in range(0, size, chunk):
            await stream.send(data)
        await stream.close_write()
        return int.from_bytes(await read_all(stream))


async def repeat(times: int, concurrency: int, action: Callable[[], Awaitable[None]]) -> None:
    """Do something so many times, so many at a time."""
    left = times

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await action()

    async with trio.open_nursery() as nursery:
        for _ in range(concurrency):
            nursery.start_soon(work)
