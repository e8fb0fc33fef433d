"""From multiaddrs to byte pipes: TCP, WebSocket and secure WebSocket, dialled and listened on."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import trio

from pywaku.errors import DialError, InvalidInput, ListenError
from pywaku.network.libp2p.pipes import Pipe, PipeBroken, SocketLike, SocketPipe, WebSocketPipe
from pywaku.wire.multiaddr import Multiaddr

_BACKLOG: Final = 512
_HOST_PROTOCOLS: Final = ("ip4", "ip6", "dns", "dns4", "dns6")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a multiaddr says about how to connect."""

    host: str
    host_protocol: str
    port: int
    websocket: bool
    tls: bool
    server_name: str | None = None

    @classmethod
    def of(cls, address: Multiaddr) -> Endpoint | None:
        """The endpoint of an address over a transport that is spoken here; None for all others."""
        parts = list(address.without_peer().components)
        if len(parts) < 2 or parts[0][0] not in _HOST_PROTOCOLS or parts[1][0] != "tcp":
            return None
        (host_protocol, host), (_, port) = parts[0], parts[1]
        rest = parts[2:]
        names = [name for name, _ in rest]
        server_name = next((value for name, value in rest if name == "sni"), None)
        match [name for name in names if name != "sni"]:
            case []:
                websocket, tls = False, False
            case ["ws"]:
                websocket, tls = True, False
            case ["wss"] | ["tls", "ws"]:
                websocket, tls = True, True
            case _:
                return None
        if host is None or port is None or (server_name and not tls):
            return None
        return cls(host, host_protocol, int(port), websocket, tls, server_name)

    def address(self) -> Multiaddr:
        """The endpoint as a multiaddr, in the common spelling."""
        suffix = ("/wss" if self.tls else "/ws") if self.websocket else ""
        return Multiaddr.parse(f"/{self.host_protocol}/{self.host}/tcp/{self.port}{suffix}")


async def dial_pipe(address: Multiaddr, *, tls: ssl.SSLContext | None = None) -> tuple[Pipe, Multiaddr]:
    """Connect to `address`; returns the pipe and the address of the other end. Raises `DialError`.

    Without a context of one's own, `wss` verifies the certificate against the system's authorities.
    """
    endpoint = Endpoint.of(address)
    if endpoint is None:
        raise DialError(f"{address}: not an address for TCP, ws or wss")
    try:
        socket_stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
    except OSError as error:
        raise DialError(f"{address}: {_os_reason(error)}") from error
    except ValueError as error:
        raise DialError(f"{address}: not a name that can be looked up: {error}") from error
    stream: SocketLike = socket_stream
    try:
        remote = remote_address(socket_stream, endpoint)
        if endpoint.tls:
            context = tls if tls is not None else ssl.create_default_context()
            name = endpoint.server_name or endpoint.host
            stream = trio.SSLStream(socket_stream, context, server_hostname=name)
            await stream.do_handshake()
        if endpoint.websocket:
            host = f"[{endpoint.host}]" if endpoint.host_protocol == "ip6" else endpoint.host
            return await WebSocketPipe.connect(stream, f"{host}:{endpoint.port}"), remote
        return SocketPipe(stream), remote
    except (PipeBroken, trio.BrokenResourceError, OSError, ValueError) as error:  # ValueError: a bad sni
        await trio.aclose_forcefully(stream)
        cause = error.__cause__ if isinstance(error, trio.BrokenResourceError) else error
        raise DialError(f"{address}: {cause}") from error
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise


@dataclass(frozen=True, slots=True)
class Listener:
    """Listening sockets, and what to make of the connections they accept."""

    endpoint: Endpoint
    sockets: Sequence[trio.SocketListener]
    tls: ssl.SSLContext | None

    @classmethod
    async def open(cls, address: Multiaddr, *, tls: ssl.SSLContext | None = None) -> Listener:
        """Listen on `address`, which is numeric; port 0 takes a free one.

        A port that is in use is an error also where the system could share it: two nodes behind one port
        would each lose half of their peers.
        """
        endpoint = Endpoint.of(address)
        if endpoint is None or address.peer_id is not None:
            raise InvalidInput(f"{address}: not an address to listen on with TCP, ws or wss")
        if endpoint.host_protocol not in ("ip4", "ip6"):
            raise InvalidInput(f"{address}: listen on an IP address, not on a name")
        if endpoint.tls and tls is None:
            raise InvalidInput(f"{address}: wss needs a certificate and its key")
        try:
            sockets = await trio.open_tcp_listeners(endpoint.port, host=endpoint.host, backlog=_BACKLOG)
        except OSError as error:
            raise ListenError(f"cannot listen on {address}: {_os_reason(error)}") from error
        port = int(sockets[0].socket.getsockname()[1])
        bound = Endpoint(endpoint.host, endpoint.host_protocol, port, endpoint.websocket, endpoint.tls)
        return cls(bound, sockets, tls)

    async def accept_pipe(self, stream: trio.SocketStream) -> Pipe:
        """The byte pipe of an accepted connection. Raises `PipeBroken`."""
        accepted: SocketLike = stream
        if self.endpoint.tls and self.tls is not None:
            accepted = trio.SSLStream(stream, self.tls, server_side=True)
            try:
                await accepted.do_handshake()
            except (trio.BrokenResourceError, OSError) as error:
                raise PipeBroken(f"TLS handshake failed: {error.__cause__ or error}") from error
        if self.endpoint.websocket:
            return await WebSocketPipe.accept(accepted)
        return SocketPipe(accepted)

    def addresses(self) -> list[Multiaddr]:
        """Where the listener can be reached; the unspecified address stands for those of this machine."""
        if not _is_unspecified(self.endpoint.host):
            return [self.endpoint.address()]
        hosts = _local_hosts(self.endpoint.host_protocol)
        return [
            Endpoint(
                host,
                self.endpoint.host_protocol,
                self.endpoint.port,
                self.endpoint.websocket,
                self.endpoint.tls,
            ).address()
            for host in hosts
        ]

    async def close(self) -> None:
        """Stop listening."""
        for listener in self.sockets:
            await listener.aclose()


def remote_address(stream: trio.SocketStream, endpoint: Endpoint) -> Multiaddr:
    """The address of the other end of a socket, as far as the socket knows it."""
    name: tuple[str, int] = stream.socket.getpeername()[:2]
    host, port = name
    protocol = "ip6" if ":" in host else "ip4"
    if protocol == "ip6":
        host = host.partition("%")[0]
        if host.startswith("::ffff:") and "." in host:
            host, protocol = host.removeprefix("::ffff:"), "ip4"
    return Endpoint(str(host), protocol, int(port), endpoint.websocket, endpoint.tls).address()


def _is_unspecified(host: str) -> bool:
    return host == "0.0.0.0" or not host.strip("0:")  # noqa: S104 - recognised, not listened on


def _local_hosts(protocol: str) -> list[str]:
    """The loopback address and the one that packets to the world leave from (none are sent)."""
    family, loopback, elsewhere = (
        (socket.AF_INET, "127.0.0.1", "192.0.2.1")
        if protocol == "ip4"
        else (socket.AF_INET6, "::1", "2001:db8::1")
    )
    hosts = [loopback]
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((elsewhere, 9))
            host = str(probe.getsockname()[0])
    except OSError:
        return hosts
    return hosts if host in hosts else [*hosts, host]


def _os_reason(error: OSError) -> str:
    """What the system says, in its words; of several addresses of a name each reason once."""
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        failures = cast("BaseExceptionGroup[BaseException]", cause).exceptions
        found = [failure for failure in failures if isinstance(failure, OSError)]
        return "; ".join(dict.fromkeys(map(_os_reason, found))) or str(error)
    if isinstance(cause, OSError):
        error = cause
    if error.errno == errno.EADDRINUSE:
        return "the address is in use"
    return error.strerror or str(error) or type(error).__name__
