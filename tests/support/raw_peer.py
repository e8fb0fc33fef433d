"""A libp2p peer that does as it is told, not as it should: handshakes properly, then sends whatever bytes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from pywaku.keys import PrivateKey
from pywaku.network.libp2p.muxer import MuxerLimits
from pywaku.network.libp2p.pipes import Pipe, PipeBroken
from pywaku.network.libp2p.transports import dial_pipe
from pywaku.network.libp2p.upgrade import Upgraded, Upgrader
from pywaku.wire.multiaddr import Multiaddr

YAMUX = "/yamux/1.0.0"
MPLEX = "/mplex/6.7.0"


class RawPeer:
    """A handshaken connection whose plaintext is ours to write."""

    def __init__(self, upgraded: Upgraded) -> None:
        self._pipe: Pipe = upgraded.pipe
        self._cipher = upgraded.cipher
        self._early = upgraded.leftover
        self.muxer = upgraded.muxer
        self.peer = upgraded.peer

    async def send_plaintext(self, data: bytes) -> None:
        """Bytes where the muxer's frames should be."""
        await self._pipe.send(self._cipher.encrypt([data]))

    async def send_ciphertext(self, data: bytes) -> None:
        """Bytes where noise messages should be."""
        await self._pipe.send(data)

    async def flush(self) -> None:
        """Send what the muxer has queued."""
        chunks = self.muxer.take_output()
        if chunks:
            await self._pipe.send(self._cipher.encrypt(chunks))

    async def receive_plaintext(self) -> bytes:
        """What the host sends; `b""` when it has closed the connection."""
        if self._early:
            data, self._early = self._early, b""
            return data
        while True:
            try:
                received = await self._pipe.receive()
            except PipeBroken:
                return b""
            if not received:
                return b""
            data = self._cipher.decrypt(received)
            if data:
                return data

    async def wait_closed(self) -> int:
        """Read until the host has closed the connection; returns how much came."""
        size = 0
        while data := await self.receive_plaintext():
            size += len(data)
        return size


@asynccontextmanager
async def raw_peer(address: Multiaddr, *, muxer: str = YAMUX) -> AsyncGenerator[RawPeer]:
    """Connect to a host and handshake; then all is up to the test."""
    pipe, _ = await dial_pipe(address)
    try:
        upgraded = await Upgrader(PrivateKey.generate(), [muxer], MuxerLimits()).outbound(
            pipe, address.peer_id
        )
        yield RawPeer(upgraded)
    finally:
        with trio.CancelScope(shield=True):
            await pipe.close()


async def tcp_to(address: Multiaddr) -> trio.SocketStream:
    """A plain TCP connection to where a host listens."""
    return await trio.open_tcp_stream(address.get("ip4") or "", int(address.get("tcp") or 0))


async def closed_by_host(stream: trio.SocketStream) -> bytes:
    """Read until the host has closed the connection; returns what came."""
    received = bytearray()
    try:
        async for data in stream:
            received += data
    except trio.BrokenResourceError:
        pass
    return bytes(received)
