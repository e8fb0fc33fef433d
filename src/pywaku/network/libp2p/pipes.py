"""Byte pipes under a connection: a TCP (or TLS) socket, and a WebSocket over one."""

from __future__ import annotations

import contextlib
import ssl
from typing import Final, Protocol

import trio
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    Pong,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import ProtocolError

from pywaku.errors import NetworkError

_SMALL_READ: Final = 64 * 1024
_LARGE_READ: Final = 256 * 1024
_WEBSOCKET_CHUNK: Final = 64 * 1024

SocketLike = trio.SocketStream | trio.SSLStream[trio.SocketStream]


class PipeBroken(NetworkError):
    """The socket failed, or the other end does not speak the protocol of the pipe."""


class Pipe(Protocol):
    """Bytes both ways, in order. One task receives and one task sends."""

    async def receive(self) -> bytes:
        """What has arrived, at least one byte; `b""` at the end. Raises `PipeBroken`."""
        ...

    async def send(self, data: bytes) -> None:
        """Send all of `data`. Raises `PipeBroken`."""
        ...

    async def finish(self) -> None:
        """Say that nothing more will be sent; receiving goes on. Raises `PipeBroken`."""
        ...

    async def close(self) -> None:
        """Close at once; never raises, never waits for the peer."""
        ...


class SocketPipe:
    """A TCP socket, or TLS over one."""

    __slots__ = ("_read_size", "_stream")

    def __init__(self, stream: SocketLike) -> None:
        self._stream = stream
        self._read_size = _SMALL_READ

    async def receive(self) -> bytes:
        try:
            data = bytes(await self._stream.receive_some(self._read_size))
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise PipeBroken(f"socket failed: {_reason(error)}") from error
        # Large reads pay off for bulk data only; small ones keep the buffers small.
        self._read_size = _LARGE_READ if len(data) >= _SMALL_READ else _SMALL_READ
        return data

    async def send(self, data: bytes) -> None:
        try:
            await self._stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise PipeBroken(f"socket failed: {_reason(error)}") from error

    async def finish(self) -> None:
        if not isinstance(self._stream, trio.SocketStream):
            await trio.lowlevel.checkpoint()  # TLS has no half-close that peers expect
            return
        try:
            await self._stream.send_eof()
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError) as error:
            raise PipeBroken(f"socket failed: {_reason(error)}") from error

    async def close(self) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, OSError, ssl.SSLError):
            await trio.aclose_forcefully(self._stream)


class WebSocketPipe:
    """Binary WebSocket messages over a socket, whose boundaries mean nothing (libp2p websockets)."""

    __slots__ = ("_ended", "_pipe", "_write_lock", "_ws")

    def __init__(self, pipe: SocketPipe, ws: WSConnection) -> None:
        self._ended = False
        self._pipe = pipe
        self._ws = ws
        self._write_lock = trio.Lock()

    @classmethod
    async def accept(cls, stream: SocketLike) -> WebSocketPipe:
        """The server's side of the upgrade. Raises `PipeBroken` where the client asks for anything else."""
        pipe = SocketPipe(stream)
        ws = WSConnection(ConnectionType.SERVER)
        while True:
            for event in _feed(ws, await pipe.receive()):
                match event:
                    case Request():
                        await pipe.send(ws.send(AcceptConnection()))
                        return cls(pipe, ws)
                    case RejectConnection() | CloseConnection():
                        raise PipeBroken("websocket upgrade abandoned by the client")
                    case _:
                        raise PipeBroken("not a websocket upgrade")

    @classmethod
    async def connect(cls, stream: SocketLike, host: str) -> WebSocketPipe:
        """The client's side of the upgrade. Raises `PipeBroken` where the server refuses."""
        pipe = SocketPipe(stream)
        ws = WSConnection(ConnectionType.CLIENT)
        await pipe.send(ws.send(Request(host=host, target="/")))
        while True:
            for event in _feed(ws, await pipe.receive()):
                match event:
                    case AcceptConnection():
                        return cls(pipe, ws)
                    case RejectConnection():
                        raise PipeBroken(f"websocket upgrade refused with status {event.status_code}")
                    case _:
                        raise PipeBroken("not a websocket server")

    async def receive(self) -> bytes:
        while not self._ended:
            # Bytes that came with the upgrade are waiting inside, so events come before the next read.
            received = await self._take_events()
            if received is not None:
                return received
            data = await self._pipe.receive()
            if not data:
                return b""
            _feed_only(self._ws, data)
        return b""

    async def _take_events(self) -> bytes | None:
        """The bytes of all events that are there; None if there are none, `b""` at the end."""
        chunks: list[bytes] = []
        try:
            for event in self._ws.events():
                match event:
                    case BytesMessage():
                        chunks.append(bytes(event.data))
                    case Ping():
                        await self._send_now(self._ws.send(event.response()))
                    case Pong():
                        pass
                    case CloseConnection():
                        self._ended = True  # the end comes after what was sent before it
                        if self._ws.state is ConnectionState.REMOTE_CLOSING:
                            await self._send_now(self._ws.send(event.response()))
                        return b"".join(chunks)
                    case TextMessage():
                        raise PipeBroken("text message on a binary websocket")
                    case _:
                        raise PipeBroken("unexpected websocket event")
        except ProtocolError as error:
            raise PipeBroken(f"websocket protocol violated: {error}") from error
        joined = b"".join(chunks)
        return joined or None

    async def send(self, data: bytes) -> None:
        try:
            if len(data) <= _WEBSOCKET_CHUNK:
                frames = self._ws.send(BytesMessage(data=data))
            else:
                frames = b"".join(
                    self._ws.send(BytesMessage(data=data[at : at + _WEBSOCKET_CHUNK]))
                    for at in range(0, len(data), _WEBSOCKET_CHUNK)
                )
        except ProtocolError as error:
            raise PipeBroken("websocket is closing") from error
        await self._send_now(frames)

    async def _send_now(self, frames: bytes) -> None:
        # The receiving task answers pings, so two tasks may want to write.
        async with self._write_lock:
            await self._pipe.send(frames)

    async def finish(self) -> None:
        try:
            frames = self._ws.send(CloseConnection(code=1000))
        except ProtocolError as error:
            raise PipeBroken("websocket is closing") from error
        await self._send_now(frames)

    async def close(self) -> None:
        await self._pipe.close()


def _feed_only(ws: WSConnection, data: bytes) -> None:
    try:
        ws.receive_data(data or None)
    except (ProtocolError, ValueError) as error:  # ValueError: a header that is not ASCII
        raise PipeBroken(f"websocket protocol violated: {error}") from error


def _feed(ws: WSConnection, data: bytes) -> list[object]:
    if not data:
        raise PipeBroken("closed during the websocket upgrade")
    _feed_only(ws, data)
    try:
        event = next(iter(ws.events()), None)
    except (ProtocolError, ValueError) as error:
        raise PipeBroken(f"websocket protocol violated: {error}") from error
    return [] if event is None else [event]


def _reason(error: BaseException) -> str:
    cause = error.__cause__ or error
    return str(cause) or type(cause).__name__
