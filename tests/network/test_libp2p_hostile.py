"""What strangers can do to a host on real sockets: nothing that others notice."""

from __future__ import annotations

import contextlib
import logging
import random
import resource
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing

from pywaku.errors import DialError, NetworkError
from pywaku.keys import PrivateKey
from pywaku.network.libp2p.host import Libp2pNetwork, open_network
from pywaku.network.libp2p.limits import HostLimits
from pywaku.network.libp2p.multistream import lazy_open
from pywaku.network.libp2p.muxer import MuxerLimits
from pywaku.network.libp2p.pipes import Pipe
from pywaku.network.libp2p.transports import dial_pipe
from pywaku.network.libp2p.upgrade import Upgrader
from pywaku.network.port import PeerConnected, PeerDisconnected, PeerEvent, Stream
from pywaku.wire.multiaddr import Multiaddr
from tests.support.raw_peer import MPLEX, YAMUX, closed_by_host, raw_peer, tcp_to

TCP = Multiaddr.parse("/ip4/127.0.0.1/tcp/0")
WS = Multiaddr.parse("/ip4/127.0.0.1/tcp/0/ws")
ECHO = "/test/echo/1.0.0"
SEED = 20_240_601


async def echo(stream: Stream) -> None:
    while data := await stream.receive():
        await stream.send(data)


@asynccontextmanager
async def echoing_host(
    *, listen: Multiaddr = TCP, limits: HostLimits | None = None
) -> AsyncGenerator[Libp2pNetwork]:
    async with open_network(listen=[listen], limits=limits) as host:
        host.serve(ECHO, echo, max_streams_per_peer=2000)
        yield host


async def assert_serves(host: Libp2pNetwork) -> None:
    """A new, honest peer is served."""
    async with open_network() as honest:
        peer = await honest.connect(host.addresses[0])
        async with await honest.open_stream(peer, ECHO) as stream:
            await stream.send(b"still there?")
            assert await stream.receive() == b"still there?"


@pytest.fixture(autouse=True)
def no_alarm(caplog: pytest.LogCaptureFixture) -> Generator[None]:
    """A stranger's doing is no warning of ours."""
    caplog.set_level(logging.DEBUG)
    yield
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("listen", [TCP, WS], ids=["tcp", "ws"])
@pytest.mark.parametrize("size", [1, 20, 1000, 100_000])
async def test_garbage_instead_of_a_handshake_closes_only_that_connection(
    listen: Multiaddr, size: int
) -> None:
    async with echoing_host(listen=listen) as host:
        stream = await tcp_to(host.addresses[0])
        async with stream:
            try:
                await stream.send_all(random.Random(SEED + size).randbytes(size) + b"\r\n\r\n")
                await stream.send_eof()
            except trio.BrokenResourceError:
                pass  # it was refused before all was sent
            await closed_by_host(stream)
        await assert_serves(host)


async def test_a_http_client_on_the_tcp_port_is_sent_away() -> None:
    async with echoing_host() as host, await tcp_to(host.addresses[0]) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: " + b"x" * 100 + b"\r\n\r\n")
        await closed_by_host(stream)
        await assert_serves(host)


async def test_a_plain_http_request_on_the_websocket_port_is_sent_away() -> None:
    async with echoing_host(listen=WS) as host, await tcp_to(host.addresses[0]) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await closed_by_host(stream)
        await assert_serves(host)


async def test_headers_that_are_not_ascii_in_a_websocket_answer_are_a_dial_error() -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: x\r\nSec-WebSocket-Extensions: \xff\r\n\r\n"
        )
        await closed_by_host(stream)

    async with open_network() as network, trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, answer, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        with pytest.raises(DialError, match="websocket"):
            await network.connect(Multiaddr.parse(f"/ip4/127.0.0.1/tcp/{port}/ws"))
        nursery.cancel_scope.cancel()


async def test_endless_http_headers_on_the_websocket_port_are_cut_off() -> None:
    async with echoing_host(listen=WS) as host, await tcp_to(host.addresses[0]) as stream:
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(b"GET / HTTP/1.1\r\n")
            while True:
                await stream.send_all(b"X-Filler: " + b"y" * 1000 + b"\r\n")
        await assert_serves(host)


async def test_a_protocol_name_that_is_not_utf8_closes_only_that_connection() -> None:
    async with echoing_host() as host, await tcp_to(host.addresses[0]) as stream:
        await stream.send_all(b"\x13/multistream/1.0.0\n\x05\xff\xfe\xfd\xfc\n")
        await closed_by_host(stream)
        await assert_serves(host)


@pytest.mark.parametrize("muxer", [YAMUX, MPLEX])
@pytest.mark.parametrize("size", [1, 12, 1000, 300_000])
async def test_garbage_instead_of_muxer_frames_ends_that_connection(muxer: str, size: int) -> None:
    async with echoing_host() as host:
        async with raw_peer(host.addresses[0], muxer=muxer) as stranger:
            # 0xff is no version of yamux, and no kind of mplex frame.
            with contextlib.suppress(NetworkError):  # it was closed before all was sent
                await stranger.send_plaintext(b"\xff" * size + random.Random(SEED + size).randbytes(size))
            if size >= 12:
                await stranger.wait_closed()
        await assert_serves(host)


async def test_garbage_instead_of_noise_messages_ends_that_connection() -> None:
    async with echoing_host() as host:
        async with raw_peer(host.addresses[0]) as stranger:
            await stranger.send_ciphertext(b"\x00\x20" + b"x" * 32)
            await stranger.wait_closed()
        await assert_serves(host)


@pytest.mark.parametrize("muxer", [YAMUX, MPLEX])
@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x05\xff\xfe\xfd\xfc\n", id="not-utf8"),
        pytest.param(b"\x00" * 100, id="zeros"),
        pytest.param(b"\xff" * 100, id="endless-length"),
        pytest.param(b"\x13/multistream/2.0.0\n", id="unknown-version"),
        pytest.param(lazy_open("/x")[:20] + b"\x03/x\n" * 100, id="hundred-proposals"),
    ],
)
async def test_garbage_instead_of_a_stream_negotiation_resets_that_stream(muxer: str, data: bytes) -> None:
    async with echoing_host() as host, raw_peer(host.addresses[0], muxer=muxer) as stranger:
        stream_id = stranger.muxer.open()
        stranger.muxer.send(stream_id, data)
        await stranger.flush()
        gone = False
        while not gone:
            events = stranger.muxer.receive(await stranger.receive_plaintext())
            gone = any(type(event).__name__ == "StreamWasReset" for event in events)
        # The connection itself is fine: a proper stream on it is served.
        stream_id = stranger.muxer.open()
        stranger.muxer.send(stream_id, lazy_open(ECHO) + b"hello")
        await stranger.flush()
        answer = b""
        while b"hello" not in answer:
            for event in stranger.muxer.receive(await stranger.receive_plaintext()):
                answer += getattr(event, "data", b"")
        await assert_serves(host)


async def test_silent_connections_are_closed_when_the_handshake_takes_too_long() -> None:
    limits = HostLimits(handshake_timeout_s=1)  # honest peers need some of it on a busy machine
    async with echoing_host(limits=limits) as host, await tcp_to(host.addresses[0]) as stream:
        await closed_by_host(stream)
        await assert_serves(host)


async def test_silent_connections_do_not_keep_honest_peers_out() -> None:
    limits = HostLimits(max_pending_inbound=20)
    async with echoing_host(limits=limits) as host, trio.open_nursery() as nursery:

        async def say_nothing() -> None:
            async with await tcp_to(host.addresses[0]) as stream:
                await closed_by_host(stream)

        for _ in range(100):
            nursery.start_soon(say_nothing)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await assert_serves(host)
        nursery.cancel_scope.cancel()


async def test_a_stream_that_never_names_a_protocol_is_reset_in_time() -> None:
    limits = HostLimits(negotiation_timeout_s=0.5)
    async with echoing_host(limits=limits) as host, raw_peer(host.addresses[0]) as stranger:
        stranger.muxer.send(stranger.muxer.open(), b"\x13")
        await stranger.flush()
        while True:
            events = stranger.muxer.receive(await stranger.receive_plaintext())
            if any(type(event).__name__ == "StreamWasReset" for event in events):
                break


async def test_a_peer_that_ignores_flow_control_is_disconnected_before_memory_grows() -> None:
    stalled = trio.Event()

    async def never_reads(stream: Stream) -> None:
        await stalled.wait()

    async with echoing_host() as host:
        host.serve("/test/stall/1.0.0", never_reads)
        async with raw_peer(host.addresses[0]) as stranger:
            stream_id = stranger.muxer.open()
            stranger.muxer.send(stream_id, lazy_open("/test/stall/1.0.0"))
            await stranger.flush()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            chunk = bytes(60_000)
            header = b"\x00\x00\x00\x00" + (1).to_bytes(4) + len(chunk).to_bytes(4)
            with pytest.raises(NetworkError):
                for _ in range(2000):  # 120 MB, where 256 KiB are allowed
                    await stranger.send_plaintext(header + chunk)
            grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown_kib < 40_000
        stalled.set()
        await assert_serves(host)


async def test_a_peer_that_floods_pings_without_reading_is_disconnected() -> None:
    async with echoing_host() as host, raw_peer(host.addresses[0]) as stranger:
        ping = b"\x00\x02\x00\x01" + bytes(4) + b"\x00\x00\x00\x01"
        with pytest.raises(NetworkError):
            for _ in range(10_000):
                await stranger.send_plaintext(ping * 100)
        await assert_serves(host)


@pytest.mark.parametrize("muxer", [YAMUX, MPLEX])
async def test_a_flood_of_streams_is_bounded(muxer: str) -> None:
    limits = HostLimits(muxer=MuxerLimits(max_inbound_streams=16))
    async with echoing_host(limits=limits) as host, raw_peer(host.addresses[0], muxer=muxer) as stranger:
        for _ in range(200):
            stranger.muxer.send(stranger.muxer.open(), lazy_open(ECHO))
        await stranger.flush()
        resets = 0
        while resets < 184:
            events = stranger.muxer.receive(await stranger.receive_plaintext())
            resets += sum(type(event).__name__ == "StreamWasReset" for event in events)
        await assert_serves(host)


async def test_a_peer_that_takes_no_bytes_is_disconnected() -> None:
    gone = trio.Event()
    limits = HostLimits(send_stall_timeout_s=0.3)  # a busy machine keeps honest peers waiting a little

    def watch(event: PeerEvent) -> None:
        if isinstance(event, PeerDisconnected):
            gone.set()

    async def pour(stream: Stream) -> None:
        while True:
            await stream.send(bytes(100_000))

    async with echoing_host(limits=limits) as host:
        host.watch(watch)
        host.serve("/test/pour/1.0.0", pour)
        async with raw_peer(
            host.addresses[0], muxer=MPLEX
        ) as stranger:  # mplex has no window to hold it back
            stranger.muxer.send(stranger.muxer.open(), lazy_open("/test/pour/1.0.0"))
            await stranger.flush()
            await gone.wait()
        await assert_serves(host)


async def test_more_connections_than_allowed_are_refused_and_room_is_reused() -> None:
    limits = HostLimits(max_connections=3)
    async with echoing_host(limits=limits) as host:
        for _ in range(3):  # room is given back each time
            address = host.addresses[0]
            async with raw_peer(address), raw_peer(address), raw_peer(address), open_network() as late:
                with pytest.raises(DialError):
                    await late.connect(address)
            while host.connection_count:
                await trio.testing.wait_all_tasks_blocked(0.005)
        await assert_serves(host)


async def test_a_thousand_successive_inbound_connections_are_served() -> None:
    async with echoing_host() as host:
        gone = 0

        def watch(event: PeerEvent) -> None:
            nonlocal gone
            gone += isinstance(event, PeerDisconnected)

        host.watch(watch)
        tasks = trio.lowlevel.current_statistics().tasks_living
        for _ in range(1000):
            async with raw_peer(host.addresses[0]) as visitor:
                stream_id = visitor.muxer.open()
                visitor.muxer.send(stream_id, lazy_open(ECHO) + b"hello")
                await visitor.flush()
                answer = b""
                while b"hello" not in answer:
                    for event in visitor.muxer.receive(await visitor.receive_plaintext()):
                        answer += getattr(event, "data", b"")
        while gone < 1000:
            await trio.testing.wait_all_tasks_blocked(0.005)
        assert host.connection_count == 0
        assert not host.peers
        assert trio.lowlevel.current_statistics().tasks_living <= tasks + 2
        await assert_serves(host)


async def test_a_peer_may_have_a_few_connections_and_no_more() -> None:
    events: list[PeerEvent] = []
    limits = HostLimits(max_connections_per_peer=2)
    async with echoing_host(limits=limits) as host:
        host.watch(events.append)
        upgrader = Upgrader(PrivateKey.generate(), [YAMUX], MuxerLimits())
        pipes: list[Pipe] = []
        for _ in range(3):
            pipe, _ = await dial_pipe(host.addresses[0])
            pipes.append(pipe)
            await upgrader.outbound(pipe, host.peer_id)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert host.connection_count == 2
        assert [type(event) for event in events] == [PeerConnected]
        for pipe in pipes:
            await pipe.close()
        while host.connection_count:
            await trio.testing.wait_all_tasks_blocked(0.005)
        assert [type(event) for event in events] == [PeerConnected, PeerDisconnected]
