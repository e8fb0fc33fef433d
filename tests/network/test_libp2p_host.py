"""The libp2p build on real sockets: what the conformance suite, which knows no sockets, cannot ask."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from pywaku.errors import DialError, InvalidInput, LimitExceeded, ListenError, NodeClosed
from pywaku.keys import PrivateKey
from pywaku.network.libp2p import pipes
from pywaku.network.libp2p.host import Libp2pNetwork, open_network
from pywaku.network.libp2p.limits import HostLimits
from pywaku.network.libp2p.multistream import lazy_open
from pywaku.network.libp2p.muxer import MuxerLimits
from pywaku.network.libp2p.pipes import SocketPipe
from pywaku.network.port import PeerDisconnected, PeerEvent, PeerIdentified, Stream
from pywaku.wire.framing import frame
from pywaku.wire.identify import Identify, encode_identify
from pywaku.wire.multiaddr import Multiaddr
from tests.support.certificates import client_context, server_context, write_certificate

TCP = Multiaddr.parse("/ip4/127.0.0.1/tcp/0")
WS = Multiaddr.parse("/ip4/127.0.0.1/tcp/0/ws")
WSS = Multiaddr.parse("/ip4/127.0.0.1/tcp/0/wss")
ECHO = "/test/echo/1.0.0"


async def echo(stream: Stream) -> None:
    while data := await stream.receive():
        await stream.send(data)


@asynccontextmanager
async def echoing_host(*listen: Multiaddr, limits: HostLimits | None = None) -> AsyncGenerator[Libp2pNetwork]:
    async with open_network(listen=listen or [TCP], limits=limits) as host:
        host.serve(ECHO, echo, max_streams_per_peer=2000)
        yield host


async def say_nothing(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def assert_echo(network: Libp2pNetwork, address: Multiaddr) -> None:
    peer = await network.connect(address)
    async with await network.open_stream(peer, ECHO) as stream:
        await stream.send(b"hello")
        assert await stream.receive() == b"hello"


@pytest.mark.parametrize("kind", ["secp256k1", "ed25519"])
async def test_both_kinds_of_identities_connect(kind: str) -> None:
    key = PrivateKey.generate("ed25519" if kind == "ed25519" else "secp256k1")
    async with echoing_host() as host, open_network(key=key) as network:
        await assert_echo(network, host.addresses[0])
        assert list(host.peers) == [key.public.peer_id]


async def test_tcp_and_websocket_are_listened_on_side_by_side() -> None:
    async with echoing_host(TCP, WS) as host:
        assert [address.has("ws") for address in sorted(host.addresses, key=lambda a: a.has("ws"))] == [
            False,
            True,
        ]
        for address in host.addresses:
            async with open_network() as network:
                await assert_echo(network, address)


async def test_addresses_are_sorted_and_name_the_peer() -> None:
    async with echoing_host(WS, TCP) as host:
        assert list(host.addresses) == sorted(host.addresses, key=str)
        assert {address.peer_id for address in host.addresses} == {host.peer_id}


async def test_announced_addresses_replace_those_listened_on() -> None:
    outside = Multiaddr.parse("/dns4/node.example/tcp/443/wss")
    async with open_network(listen=[TCP], announce=[outside]) as host:
        assert host.addresses == (outside.with_peer(host.peer_id),)


async def test_websocket_connections_show_the_remote_address() -> None:
    async with echoing_host(WS) as host, open_network() as network:
        await assert_echo(network, host.addresses[0])
        (info,) = host.peers.values()
        assert info.remote_address is not None
        assert info.remote_address.get("ip4") == "127.0.0.1"
        assert info.remote_address.has("ws")


async def test_secure_websocket_with_a_certificate(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    async with (
        open_network(listen=[WSS], tls_server=server_context(cert, key)) as host,
        open_network(tls_client=client_context(cert)) as network,
    ):
        host.serve(ECHO, echo)
        await assert_echo(network, host.addresses[0])
        assert host.addresses[0].has("wss")


async def test_a_certificate_that_is_not_trusted_is_a_dial_error(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    async with (
        open_network(listen=[WSS], tls_server=server_context(cert, key)) as host,
        open_network() as network,
    ):
        with pytest.raises(DialError, match="certificate"):
            await network.connect(host.addresses[0])


async def test_plain_bytes_on_a_secure_port_leave_it_serving(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    async with (
        open_network(listen=[WSS], tls_server=server_context(cert, key)) as host,
        open_network(tls_client=client_context(cert)) as network,
    ):
        host.serve(ECHO, echo)
        address = host.addresses[0]
        async with await trio.open_tcp_stream("127.0.0.1", int(address.get("tcp") or 0)) as stream:
            await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
            with pytest.raises(trio.BrokenResourceError):
                while await stream.receive_some():
                    pass
                raise trio.BrokenResourceError("closed in the regular way")
        await assert_echo(network, address)


async def test_wss_without_a_certificate_is_refused() -> None:
    with pytest.raises(InvalidInput, match="certificate"):
        async with open_network(listen=[WSS]):
            pass


async def test_a_port_that_is_taken_is_an_error_that_names_it() -> None:
    async with echoing_host() as host:
        taken = host.addresses[0].without_peer()
        with pytest.raises(ListenError, match=f"{taken}.*in use"):
            async with open_network(listen=[taken]):
                pass
        with pytest.raises(ListenError):
            async with open_network(listen=[Multiaddr.parse(f"{taken}/ws")]):
                pass


async def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    with pytest.raises(ListenError, match=r"203\.0\.113\.1"):
        async with open_network(listen=[Multiaddr.parse("/ip4/203.0.113.1/tcp/0")]):
            pass


async def test_names_and_other_transports_cannot_be_listened_on() -> None:
    for text in ("/dns4/localhost/tcp/0", "/ip4/127.0.0.1/udp/0", "/ip4/127.0.0.1/udp/0/quic-v1"):
        with pytest.raises(InvalidInput):
            async with open_network(listen=[Multiaddr.parse(text)]):
                pass


async def test_ipv6_loopback() -> None:
    try:
        async with echoing_host(Multiaddr.parse("/ip6/::1/tcp/0")) as host, open_network() as network:
            await assert_echo(network, host.addresses[0])
    except ListenError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")


async def test_the_unspecified_address_is_announced_as_addresses_of_this_machine() -> None:
    async with echoing_host(Multiaddr.parse("/ip4/0.0.0.0/tcp/0")) as host, open_network() as network:
        hosts = [address.get("ip4") for address in host.addresses]
        assert "127.0.0.1" in hosts
        assert "0.0.0.0" not in hosts
        await assert_echo(network, host.addresses[0])


async def test_names_are_dialled() -> None:
    async with echoing_host() as host, open_network() as network:
        port = host.addresses[0].get("tcp")
        await assert_echo(network, Multiaddr.parse(f"/dns4/localhost/tcp/{port}").with_peer(host.peer_id))


async def test_a_peer_that_accepts_and_never_answers_is_given_up_in_time() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    async with listeners[0], open_network() as network:
        with pytest.raises(DialError, match="within"):
            await network.connect(Multiaddr.parse(f"/ip4/127.0.0.1/tcp/{port}"), timeout=0.1)


async def test_a_stalled_address_does_not_keep_the_next_from_being_tried() -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    limits = HostLimits(handshake_timeout_s=0.3)
    async with listeners[0], echoing_host() as host, open_network(limits=limits) as network:
        stalled = Multiaddr.parse(f"/ip4/127.0.0.1/tcp/{port}").with_peer(host.peer_id)
        assert await network.connect([stalled, host.addresses[0]]) == host.peer_id


async def test_a_failed_dial_does_not_block_the_peer() -> None:
    key = PrivateKey.generate()
    async with open_network(key=key, listen=[TCP]) as host:
        address = host.addresses[0]
    async with open_network() as network:
        with pytest.raises(DialError):
            await network.connect(address)
        async with open_network(key=key, listen=[address.without_peer()]) as host:
            assert await network.connect(address) == host.peer_id


async def test_dialling_one_s_own_address_is_refused() -> None:
    async with open_network(listen=[TCP]) as network:
        with pytest.raises(DialError, match="itself"):
            await network.connect(network.addresses[0])
        with pytest.raises(DialError):
            await network.connect(network.addresses[0].without_peer())


async def test_addresses_of_other_transports_are_a_dial_error_that_says_so() -> None:
    async with open_network() as network:
        for text in ("/ip4/127.0.0.1/udp/1/quic-v1", "/dnsaddr/example.org", "/unix/tmp", "/ip4/1.2.3.4"):
            with pytest.raises(DialError, match="not an address for TCP, ws or wss"):
                await network.connect(Multiaddr.parse(text))


@pytest.mark.parametrize("name", ["a..b", "x" * 64])
async def test_a_name_that_is_none_is_a_dial_error(name: str) -> None:
    async with open_network() as network:
        with pytest.raises(DialError, match="not a name"):
            await network.connect(Multiaddr.parse(f"/dns4/{name}/tcp/443/wss"))


async def test_a_server_name_that_is_none_is_a_dial_error() -> None:
    async with echoing_host() as host, open_network() as network:
        address = host.addresses[0].without_peer()
        with pytest.raises(DialError):
            await network.connect(Multiaddr.parse(f"{address}/tls/sni/.example/ws"))


async def test_concurrent_dials_share_one_connection() -> None:
    async with echoing_host() as host, open_network() as network, trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(network.connect, host.addresses[0])
        while not network.peers:
            await trio.testing.wait_all_tasks_blocked(0.005)
        assert network.connection_count == 1


async def test_streams_beyond_the_peer_s_limit_wait_for_room() -> None:
    limits = HostLimits(muxer=MuxerLimits(max_outbound_streams=10))
    done = 0

    async with echoing_host() as host, open_network(limits=limits) as network:
        peer = await network.connect(host.addresses[0])

        async def converse() -> None:
            nonlocal done
            async with await network.open_stream(peer, ECHO) as stream:
                await stream.send(b"hello")
                assert await stream.receive() == b"hello"
                await stream.close_write()
                assert await stream.receive() == b""
            done += 1

        async with trio.open_nursery() as nursery:
            for _ in range(300):
                nursery.start_soon(converse)
        assert done == 300


async def test_no_room_for_a_stream_is_a_clear_error_in_time() -> None:
    limits = HostLimits(muxer=MuxerLimits(max_outbound_streams=1))
    async with echoing_host() as host, open_network(limits=limits) as network:
        peer = await network.connect(host.addresses[0])
        async with await network.open_stream(peer, ECHO):
            with pytest.raises(LimitExceeded, match="room"):
                await network.open_stream(peer, ECHO, timeout=0.05)


async def test_a_thousand_concurrent_streams() -> None:
    async with echoing_host() as host, open_network() as network:
        peer = await network.connect(host.addresses[0])
        answers: list[bytes] = []

        async def converse(number: int) -> None:
            async with await network.open_stream(peer, ECHO) as stream:
                await stream.send(b"%d" % number)
                await stream.close_write()
                answer = b""
                while data := await stream.receive():
                    answer += data
                answers.append(answer)

        async with trio.open_nursery() as nursery:
            for number in range(1000):
                nursery.start_soon(converse, number)
        assert sorted(answers, key=int) == [b"%d" % number for number in range(1000)]


async def test_one_request_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    send = SocketPipe.send

    async def counted(self: SocketPipe, data: bytes) -> None:
        sizes.append(len(data))
        await send(self, data)

    async def answer(stream: Stream) -> None:
        await stream.receive()
        await stream.send(b"y" * 200)

    async with echoing_host() as host, open_network() as network:
        host.serve("/test/answer/1.0.0", answer)
        peer = await network.connect(host.addresses[0])
        await trio.testing.wait_all_tasks_blocked(0.02)  # identify has said all
        monkeypatch.setattr(pipes.SocketPipe, "send", counted)
        async with await network.open_stream(peer, "/test/answer/1.0.0") as stream:
            await stream.send(b"x" * 200)
            assert not sizes
            assert await stream.receive() == b"y" * 200
            # Stream, proposal and request left in one write; so did the agreement and the answer.
            assert sizes[0] > 200 + len(lazy_open("/test/answer/1.0.0"))
            assert sizes[1] > 200 + len(lazy_open("/test/answer/1.0.0"))


async def test_protocols_served_later_reach_connected_peers() -> None:
    events: list[PeerEvent] = []
    later = trio.Event()

    def watch(event: PeerEvent) -> None:
        events.append(event)
        if isinstance(event, PeerIdentified) and "/test/later/1.0.0" in event.protocols:
            later.set()

    async with echoing_host() as host, open_network() as network:
        network.watch(watch)
        await network.connect(host.addresses[0])
        while not (host.peers[network.peer_id].identified and network.peers[host.peer_id].identified):
            await trio.testing.wait_all_tasks_blocked(0.005)
        host.serve("/test/later/1.0.0", echo)
        await later.wait()
        assert "/test/later/1.0.0" in network.peers[host.peer_id].protocols


async def test_a_peer_that_identifies_late_hears_of_protocols_served_meanwhile() -> None:
    may_answer = trio.Event()

    async def answer_late(stream: Stream) -> None:
        await may_answer.wait()
        message = Identify(protocols=("/ipfs/id/push/1.0.0",), listen_addresses=())
        await stream.send(frame(encode_identify(message)))

    async with echoing_host() as host, open_network() as network:
        network.unserve("/ipfs/id/1.0.0")
        network.serve("/ipfs/id/1.0.0", answer_late)
        await network.connect(host.addresses[0])
        while not network.peers[host.peer_id].identified:
            await trio.testing.wait_all_tasks_blocked(0.005)
        host.serve("/test/later/1.0.0", echo)
        await trio.sleep(0.1)  # until the change was announced to those that are known to listen
        may_answer.set()
        with trio.fail_after(5):
            while "/test/later/1.0.0" not in network.peers[host.peer_id].protocols:
                await trio.testing.wait_all_tasks_blocked(0.005)


async def test_a_peer_is_identified_also_when_the_first_of_its_connections_goes() -> None:
    asked, may_answer = trio.Event(), trio.Event()

    async def hold_back(stream: Stream) -> None:
        asked.set()
        await may_answer.wait()
        await stream.send(frame(encode_identify(Identify(protocols=(ECHO,), listen_addresses=()))))

    async with echoing_host() as host, open_network() as network:
        host.unserve("/ipfs/id/1.0.0")
        host.serve("/ipfs/id/1.0.0", hold_back)
        peer = await network.connect(host.addresses[0])
        await asked.wait()
        await network.connect(host.addresses[0].without_peer())
        assert network.connection_count == 2
        network._connections[peer][0].abandon("lost")
        may_answer.set()
        with trio.fail_after(5):
            while not network.peers[peer].identified:
                await trio.testing.wait_all_tasks_blocked(0.005)


async def test_a_stream_that_the_peer_never_closes_goes_away() -> None:
    limits = HostLimits(linger_s=0.05)
    stalled = trio.Event()

    async def never_closes(_: Stream) -> None:
        await stalled.wait()

    async with echoing_host() as host, open_network(limits=limits) as network:
        host.serve("/test/stall/1.0.0", never_closes)
        peer = await network.connect(host.addresses[0])
        async with await network.open_stream(peer, "/test/stall/1.0.0") as stream:
            await stream.send(b"hello")
            connection = stream.connection
        while connection.stream_count:
            await trio.testing.wait_all_tasks_blocked(0.01)
        stalled.set()


async def test_leaving_the_context_leaves_no_task_socket_or_thread() -> None:
    before = (
        trio.lowlevel.current_statistics().tasks_living,
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
    )
    for _ in range(3):
        async with echoing_host(TCP, WS) as host, open_network() as tcp, open_network() as ws:
            await assert_echo(tcp, host.addresses[0])
            await assert_echo(ws, host.addresses[1])
            await host.open_stream(tcp.peer_id, "/ipfs/id/1.0.0")
    after = (
        trio.lowlevel.current_statistics().tasks_living,
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
    )
    assert after == before


async def test_an_error_in_the_block_comes_out_as_it_is_and_closes_everything() -> None:
    with pytest.raises(ZeroDivisionError):
        async with echoing_host():
            _ = 1 / 0


async def test_streams_open_on_a_connection_that_stays() -> None:
    async with echoing_host() as host, open_network() as network:
        peer = await network.connect(host.addresses[0])
        await network.connect(host.addresses[0].without_peer())
        connections = network._connections[peer]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connections[-1].close, "one too many")
            while not connections[-1].closing:
                await trio.lowlevel.checkpoint()
            async with await network.open_stream(peer, ECHO) as stream:
                await stream.send(b"hello")
                assert await stream.receive() == b"hello"


@pytest.mark.parametrize("limit", ["max_connections", "linger_s", "handshake_timeout_s"])
def test_limits_without_sense_are_refused(limit: str) -> None:
    with pytest.raises(InvalidInput, match=limit):
        replace(HostLimits(), **{limit: 0})


async def test_closing_ends_dials_under_way() -> None:
    ended: list[NodeClosed] = []
    async with trio.open_nursery() as nursery:
        silent = await nursery.start(partial(trio.serve_tcp, say_nothing, 0, host="127.0.0.1"))
        async with open_network() as network:
            port = silent[0].socket.getsockname()[1]

            async def dial() -> None:
                with pytest.raises(NodeClosed) as caught:
                    await network.connect(Multiaddr.parse(f"/ip4/127.0.0.1/tcp/{port}"))
                ended.append(caught.value)

            nursery.start_soon(dial)
            await trio.testing.wait_all_tasks_blocked(0.02)
        with trio.fail_after(1):
            while not ended:
                await trio.testing.wait_all_tasks_blocked(0.005)
        nursery.cancel_scope.cancel()


async def test_closing_takes_leave_of_the_peers() -> None:
    gone = trio.Event()
    reasons: list[str] = []

    def watch(event: PeerEvent) -> None:
        if isinstance(event, PeerDisconnected):
            reasons.append(event.reason)
            gone.set()

    async with open_network() as network:
        async with echoing_host() as host:
            network.watch(watch)
            await assert_echo(network, host.addresses[0])
        await gone.wait()
        assert not network.peers
    assert len(reasons) == 1


async def test_a_refused_dial_says_so() -> None:
    async with open_network(listen=[TCP]) as one:
        (address,) = one.addresses
    async with open_network() as two:
        with pytest.raises(DialError, match="Connection refused"):
            await two.connect(address)


async def test_a_task_of_the_host_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(reason: str) -> None:
        raise RuntimeError(reason)

    async with open_network(listen=[TCP]) as one, open_network() as two:
        one.start_task(fail, "a fault")
        assert await two.connect(one.addresses) == one.peer_id
    assert "task failed: task=" in caplog.text
    assert "a fault" in caplog.text
