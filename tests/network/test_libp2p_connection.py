"""One connection over a pipe whose other end a test controls, on virtual time."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from pywaku.errors import NetworkError, StreamReset
from pywaku.keys import PrivateKey
from pywaku.network.libp2p.connection import Connection
from pywaku.network.libp2p.host import open_network
from pywaku.network.libp2p.limits import HostLimits
from pywaku.network.libp2p.mplex import Mplex
from pywaku.network.libp2p.muxer import Event
from pywaku.network.libp2p.noise import NoiseTransport
from pywaku.network.libp2p.upgrade import _MUXERS, Upgraded
from pywaku.network.port import Direction
from pywaku.wire.multiaddr import Multiaddr
from tests.support.networks import eventually


class SlowPipe:
    """Says nothing, and takes so many bytes a second."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.taken = 0

    async def receive(self) -> bytes:
        await trio.sleep_forever()
        raise AssertionError

    async def send(self, data: bytes) -> None:
        await trio.sleep(len(data) / self.rate)
        self.taken += len(data)

    async def finish(self) -> None:
        await trio.lowlevel.checkpoint()

    async def close(self) -> None:
        """Nothing."""


@asynccontextmanager
async def connection_over(pipe: SlowPipe, limits: HostLimits) -> AsyncGenerator[Connection]:
    """A running connection, with mplex: it has no windows."""
    connection = Connection(
        Upgraded(
            pipe,
            NoiseTransport(bytes(32), bytes(32)),
            Mplex(initiator=True),
            PrivateKey.generate().public.peer_id,
            b"",
        ),
        direction=Direction.OUTBOUND,
        remote_address=Multiaddr.parse("/ip4/127.0.0.1/tcp/1"),
        limits=limits,
        on_stream=lambda _: None,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        yield connection
        connection.abandon("the test is over")


@pytest.mark.virtual
async def test_a_peer_that_takes_its_bytes_slowly_is_not_cut_off() -> None:
    pipe = SlowPipe(rate=32 * 1024)
    async with connection_over(pipe, HostLimits(send_stall_timeout_s=30)) as connection:
        stream = await connection.open_stream()
        for _ in range(8):
            await stream.send(bytes(1024 * 1024))
        assert not connection.ended.is_set()


@pytest.mark.virtual
async def test_a_peer_that_stops_taking_bytes_is_cut_off() -> None:
    pipe = SlowPipe(rate=1024)
    async with connection_over(pipe, HostLimits(send_stall_timeout_s=30)) as connection:
        stream = await connection.open_stream()
        await stream.send(bytes(1024 * 1024))
        with pytest.raises(StreamReset, match="takes no bytes"):
            await stream.send(bytes(8 * 1024 * 1024))
        assert trio.current_time() < 60


@pytest.mark.virtual
async def test_what_many_streams_queue_together_is_bounded() -> None:
    pipe = SlowPipe(rate=1024 * 1024)
    async with (
        connection_over(pipe, HostLimits(max_queued_bytes=1024 * 1024)) as connection,
        trio.open_nursery() as nursery,
    ):
        for _ in range(64):
            nursery.start_soon((await connection.open_stream()).send, bytes(1_000_000))
        while pipe.taken < 64_000_000:
            await trio.sleep(0.1)
            assert connection.muxer.queued_bytes < 3 * 1024 * 1024


@pytest.mark.virtual
async def test_a_close_that_is_cancelled_closes_all_the_same() -> None:
    async with connection_over(SlowPipe(rate=1), HostLimits()) as connection:
        stream = await connection.open_stream()
        await stream.send(b"what takes its time to leave")
        with trio.move_on_after(0.1):
            await connection.close("done")
        await connection.ended.wait()
        assert trio.current_time() < 1


@pytest.mark.virtual
async def test_a_cipher_that_is_used_up_ends_the_connection_and_nothing_else() -> None:
    async with connection_over(SlowPipe(rate=1e9), HostLimits()) as connection:
        connection._cipher._send_nonce = (1 << 64) - 1
        stream = await connection.open_stream()
        await stream.send(b"one too many")
        await connection.ended.wait()
        assert "noise messages" in connection.reason


class BrokenMuxer(Mplex):
    """One that has a fault."""

    def receive(self, data: bytes) -> list[Event]:
        raise RuntimeError("a fault")


async def test_a_fault_of_our_own_costs_the_connection_and_not_the_node(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listen = [Multiaddr.parse("/ip4/127.0.0.1/tcp/0")]
    async with open_network(listen=listen) as one, open_network(listen=listen) as two:
        with monkeypatch.context() as patched:
            patched.setitem(_MUXERS, Mplex.protocol, BrokenMuxer)
            async with (
                open_network(listen=listen, muxers=[Mplex.protocol]) as broken,
                open_network(listen=listen) as dialled_by_it,
            ):
                with pytest.raises(NetworkError):
                    # The fault shows on the first byte of the peer, in the dialler's own task.
                    await broken.connect(one.addresses)
                    await broken.open_stream(one.peer_id, ["/none/1", "/none/2"])
                await dialled_by_it.connect(broken.addresses)
                await eventually(lambda: not dialled_by_it.peers and not broken.peers)
                assert await two.connect(broken.addresses) == broken.peer_id  # it goes on accepting
        assert await two.connect(one.addresses) == one.peer_id
    assert "connection failed: peer=" in caplog.text
    assert "a fault" in caplog.text


@pytest.mark.virtual
async def test_bytes_in_tiny_pieces_take_no_more_memory_than_bytes() -> None:
    async with connection_over(SlowPipe(rate=1), HostLimits()) as connection:
        stream = await connection.open_stream()
        sent = random.Random(1).randbytes(200_000)
        tracemalloc.start(1)
        try:
            for at in range(0, len(sent), 2):
                stream.data_received(sent[at : at + 2])
            assert tracemalloc.get_traced_memory()[0] < 2 * len(sent)
        finally:
            tracemalloc.stop()
        assert await stream.receive() == sent


@pytest.mark.virtual
async def test_pieces_of_all_sizes_are_received_in_order() -> None:
    rng = random.Random(2)
    async with connection_over(SlowPipe(rate=1), HostLimits()) as connection:
        stream = await connection.open_stream()
        for _ in range(200):
            pieces = [
                rng.randbytes(rng.choice((1, 2, 100, 511, 512, 5000))) for _ in range(rng.randint(1, 9))
            ]
            for piece in pieces:
                stream.data_received(piece)
            received = await stream.receive()
            assert received == b"".join(pieces)
            assert type(received) is bytes
