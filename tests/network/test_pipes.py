"""WebSocket pipes over a pair of sockets."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.events import BytesMessage, CloseConnection, Ping, Request

from pywaku.network.libp2p.pipes import WebSocketPipe


@asynccontextmanager
async def accepted() -> AsyncGenerator[tuple[WebSocketPipe, trio.SocketStream, WSConnection]]:
    """A pipe that has accepted a client, which is a socket and a machine that makes its frames."""
    ours, theirs = map(trio.SocketStream, trio.socket.socketpair())
    client = WSConnection(ConnectionType.CLIENT)
    async with ours, theirs:
        await theirs.send_all(client.send(Request(host="host", target="/")))
        pipe = await WebSocketPipe.accept(ours)
        client.receive_data(await theirs.receive_some())
        assert len(list(client.events())) == 1
        yield pipe, theirs, client


async def test_bytes_that_come_together_with_the_close_are_received_and_then_the_end() -> None:
    async with accepted() as (pipe, socket, client):
        await socket.send_all(client.send(BytesMessage(b"bye")) + client.send(CloseConnection(1000)))
        with trio.fail_after(5):
            assert await pipe.receive() == b"bye"
            assert await pipe.receive() == b""
            assert await pipe.receive() == b""


async def test_a_message_in_fragments_with_a_ping_in_between_is_received_whole() -> None:
    async with accepted() as (pipe, socket, client):
        await socket.send_all(
            client.send(BytesMessage(b"a" * 100_000, message_finished=False))
            + client.send(Ping(b"?"))
            + client.send(BytesMessage(b"b", message_finished=True))
        )
        received = b""
        with trio.fail_after(5):
            while len(received) < 100_001:
                received += await pipe.receive()
        assert received == b"a" * 100_000 + b"b"
