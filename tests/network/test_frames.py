"""Frames on streams, and requests made of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import cast

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import (
    DecodeError,
    NetworkError,
    NotConnected,
    ProtocolNotSupported,
    RequestTimeout,
    StreamReset,
)
from pywaku.network.frames import FrameReader, read_frame, request, write_frame
from pywaku.network.port import Network, Stream
from pywaku.network.simulated import SimulatedWorld
from pywaku.wire.framing import frame

PROTOCOL = "/test/request/1.0.0"
pytestmark = pytest.mark.virtual


@asynccontextmanager
async def hosts() -> AsyncGenerator[tuple[SimulatedWorld, Network, Network]]:
    async with SimulatedWorld(1) as world, world.host() as one, world.host() as two:
        await one.connect(two.addresses)
        yield world, one, two


async def read_what_was_sent(writes: list[bytes], *, max_size: int = 100, pause: float = 0.0) -> list[bytes]:
    """What a reader at the other end makes of these writes."""
    frames: list[bytes] = []
    failures: list[Exception] = []

    async def collect(stream: Stream) -> None:
        reader = FrameReader(stream, max_size)
        try:
            while (data := await reader.read()) is not None:
                frames.append(data)
        except (DecodeError, StreamReset) as error:
            failures.append(error)

    async with hosts() as (_, one, two):
        two.serve(PROTOCOL, collect)
        async with await one.open_stream(two.peer_id, PROTOCOL) as stream:
            for data in writes:
                await stream.send(data)
                await trio.sleep(pause)
        await trio.sleep(1)
    if failures:
        raise failures[0]
    return frames


async def test_frames_are_read_in_order() -> None:
    writes = [frame(b"one") + frame(b"") + frame(b"two"), frame(b"three")]
    assert await read_what_was_sent(writes) == [b"one", b"", b"two", b"three"]


async def test_frames_in_pieces_are_put_together() -> None:
    data = frame(b"a" * 90) + frame(b"b")
    assert await read_what_was_sent([bytes([byte]) for byte in data], pause=0.01) == [b"a" * 90, b"b"]


async def test_frames_larger_than_the_maximum_are_refused() -> None:
    assert await read_what_was_sent([frame(b"a" * 100)]) == [b"a" * 100]
    with pytest.raises(DecodeError):
        await read_what_was_sent([frame(b"a" * 101)])


async def test_a_stream_must_not_end_within_a_frame() -> None:
    with pytest.raises(DecodeError):
        await read_what_was_sent([frame(b"abc")[:-1]])


async def test_all_that_has_arrived_is_read_at_once() -> None:
    batches: list[list[bytes]] = []

    async def collect(stream: Stream) -> None:
        reader = FrameReader(stream, 100)
        first = await reader.read()
        assert first is not None
        batches.append([first])
        while batch := await reader.read_all_available():
            batches.append(batch)

    async with hosts() as (_, one, two):
        two.serve(PROTOCOL, collect)
        async with await one.open_stream(two.peer_id, PROTOCOL) as stream:
            for _ in range(2):
                for number in range(3):
                    await write_frame(stream, bytes([number]))
                await trio.sleep(1)
        await trio.sleep(1)
    assert batches == [[b"\0"], [b"\1", b"\2"], [b"\0", b"\1", b"\2"]]


class Chunks:
    """As much of a stream as is read here."""

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = [chunk for chunk in chunks if chunk]

    async def receive(self) -> bytes:
        """The next bytes; none at the end."""
        await trio.lowlevel.checkpoint()
        return self._chunks.pop(0) if self._chunks else b""


@given(
    data=st.one_of(st.integers(0, 300).map(lambda size: frame(bytes(size))), st.binary(max_size=20)),
    more=st.binary(max_size=3),
    cuts=st.lists(st.integers(0, 310), max_size=3),
    max_size=st.sampled_from([0, 100, 127, 128, 300]),
)
async def test_the_one_frame_of_a_stream_is_what_a_reader_reads_first(
    *, data: bytes, more: bytes, cuts: list[int], max_size: int
) -> None:
    """However it is cut, whatever follows, and whether or not it is a frame."""
    edges = sorted({0, *cuts, len(data + more)})
    chunks = [(data + more)[start:end] for start, end in pairwise(edges)]

    async def outcome(read: Callable[[Stream], Awaitable[bytes | None]]) -> bytes | str | None:
        try:
            return await read(cast(Stream, Chunks(chunks)))
        except DecodeError as error:
            return str(error)

    expected = await outcome(lambda stream: FrameReader(stream, max_size).read())
    assert await outcome(lambda stream: read_frame(stream, max_size)) == expected


async def test_a_cancelled_read_loses_nothing() -> None:
    read: list[bytes | None] = []

    async def collect(stream: Stream) -> None:
        reader = FrameReader(stream, 100)
        while len(read) < 2:
            with trio.move_on_after(0.007):
                read.append(await reader.read())

    async with hosts() as (_, one, two):
        two.serve(PROTOCOL, collect)
        stream = await one.open_stream(two.peer_id, PROTOCOL)
        for byte in frame(b"abc") + frame(b"def"):
            await stream.send(bytes([byte]))
            await trio.sleep(0.05)
        await trio.sleep(1)
    assert read == [b"abc", b"def"]


async def answer_with(network: Network, response: bytes) -> None:
    """Serve requests by these bytes."""

    async def answer(stream: Stream) -> None:
        assert await FrameReader(stream, 100).read() == b"question"
        await stream.send(response)

    network.serve(PROTOCOL, answer)


async def ask(one: Network, two: Network, *, timeout: float = 5.0) -> bytes:
    return await request(one, two.peer_id, PROTOCOL, b"question", max_response=100, timeout=timeout)


async def test_a_request_returns_the_answer() -> None:
    async with hosts() as (_, one, two):
        await answer_with(two, frame(b"answer"))
        assert await ask(one, two) == b"answer"
        protocols = ["/test/newer", PROTOCOL]
        assert await request(one, two.peer_id, protocols, b"question", max_response=100) == b"answer"


@pytest.mark.parametrize("response", [frame(b"x" * 101), frame(b"abc")[:-1], b"\xff" * 11])
async def test_a_broken_answer_is_a_decode_error(response: bytes) -> None:
    async with hosts() as (_, one, two):
        await answer_with(two, response)
        with pytest.raises(DecodeError):
            await ask(one, two)


async def test_an_end_without_an_answer_is_a_network_error() -> None:
    async with hosts() as (_, one, two):
        await answer_with(two, b"")
        with pytest.raises(NetworkError, match="without an answer"):
            await ask(one, two)


async def test_a_silent_peer_is_a_request_timeout() -> None:
    async with hosts() as (world, one, two):
        await answer_with(two, frame(b"answer"))
        world.stall(two.peer_id)
        for protocols in (PROTOCOL, [PROTOCOL, "/test/other"]):
            started = trio.current_time()
            with pytest.raises(RequestTimeout):
                await request(one, two.peer_id, protocols, b"question", max_response=100, timeout=3)
            assert trio.current_time() - started == pytest.approx(3)


async def test_the_trouble_of_streams_is_passed_on() -> None:
    async def fail(stream: Stream) -> None:
        raise ValueError("a bad handler")

    async with hosts() as (world, one, two):
        with pytest.raises(ProtocolNotSupported):
            await ask(one, two)
        two.serve(PROTOCOL, fail)
        with pytest.raises(StreamReset):
            await ask(one, two)
        world.cut(one.peer_id, two.peer_id)
        with pytest.raises(NotConnected):
            await ask(one, two)


async def test_cancelling_a_request_cancels_it() -> None:
    async with hosts() as (world, one, two):
        world.stall(two.peer_id)
        with trio.move_on_after(1) as scope:
            await ask(one, two)
        assert scope.cancelled_caught
