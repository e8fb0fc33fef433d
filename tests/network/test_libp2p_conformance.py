"""The libp2p build keeps the promises of the port, over each transport and muxer."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio

from pywaku.errors import StreamReset
from pywaku.network.libp2p.host import MUXERS, Libp2pNetwork, open_network
from pywaku.network.libp2p.mplex import Mplex
from pywaku.network.port import Network, Stream
from pywaku.wire.multiaddr import Multiaddr
from tests.network.conformance import CONFORMANCE, Check
from tests.support.networks import echo, receive_exactly

MPLEX = Mplex.protocol


class Libp2pFactory:
    """Hosts on loopback over one transport and one muxer."""

    virtual = False

    def __init__(self, suffix: str, muxer: str) -> None:
        self._listen = Multiaddr.parse(f"/ip4/127.0.0.1/tcp/0{suffix}")
        self._muxer = muxer

    def host(self) -> AbstractAsyncContextManager[Libp2pNetwork]:
        return open_network(listen=[self._listen], muxers=[self._muxer])

    @asynccontextmanager
    async def silent_address(self) -> AsyncGenerator[Multiaddr]:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with listener:
            port = listener.socket.getsockname()[1]
            yield Multiaddr.parse(f"/ip4/127.0.0.1/tcp/{port}")

    async def refusing_address(self) -> Multiaddr:
        async with self.silent_address() as address:
            return address


def build(host: Libp2pNetwork) -> Network:
    """Holds the build to the port's types."""
    return host


# mplex has no flow control (mplex.md): where yamux makes a sender wait, the stream that overflows is reset;
# to stop reading would hold up all others. That is tested below.
NEEDS_FLOW_CONTROL = {
    "a_sender_waits_for_a_receiver_that_does_not_read",
    "a_stuck_stream_holds_up_no_other",
    "a_cancelled_send_leaves_the_connection_usable",
}
CASES = [
    pytest.param(
        suffix, muxer, check, id=f"{suffix.strip('/') or 'tcp'}-{muxer.split('/')[1]}-{check.__name__}"
    )
    for suffix in ("", "/ws")
    for muxer in MUXERS
    for check in CONFORMANCE
    if muxer != MPLEX or check.__name__ not in NEEDS_FLOW_CONTROL
]


@pytest.mark.parametrize(("suffix", "muxer", "check"), CASES)
async def test_conformance(suffix: str, muxer: str, check: Check) -> None:
    await check(Libp2pFactory(suffix, muxer))


@pytest.mark.parametrize("suffix", ["", "/ws"], ids=["tcp", "ws"])
async def test_over_mplex_a_stream_that_is_not_read_is_reset_and_holds_up_no_other(suffix: str) -> None:
    factory = Libp2pFactory(suffix, MPLEX)
    stalled = trio.Event()

    async def never_reads(_: Stream) -> None:
        await stalled.wait()

    async with factory.host() as network, factory.host() as other:
        other.serve("/test/stall", never_reads)
        other.serve("/test/echo", echo)
        await network.connect(other.addresses)
        async with trio.open_nursery() as nursery:

            async def overflow() -> None:
                stream = await network.open_stream(other.peer_id, "/test/stall")
                with pytest.raises(StreamReset):
                    while True:
                        await stream.send(bytes(64 * 1024))

            nursery.start_soon(overflow)
            async with await network.open_stream(other.peer_id, "/test/echo") as stream:
                for _ in range(100):
                    await stream.send(b"hello")
                    assert await receive_exactly(stream, 5) == b"hello"
        stalled.set()
