"""Conversations with js-libp2p: both transports, both muxers, both kinds of key, either side dialling."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
import trio

from interop.node import open_js_peer, what_is_missing
from interop.peer_process import PeerFailed, PeerProcess
from interop.streams import ECHO, RESET, bulk_once, echo_once, repeat, request_once, serve_streams
from pywaku.errors import ProtocolNotSupported, StreamReset
from pywaku.ids import PeerId
from pywaku.keys import PrivateKey, PublicKey
from pywaku.network.libp2p.host import Libp2pNetwork, open_network
from pywaku.network.liveness import PING_PROTOCOL, Liveness, open_liveness
from pywaku.network.port import PeerDisconnected, PeerEvent, PeerInfo, Stream
from pywaku.wire.multiaddr import Multiaddr

MISSING = what_is_missing()
pytestmark = [pytest.mark.interop, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]

LISTEN = {"tcp": "/ip4/127.0.0.1/tcp/0", "ws": "/ip4/127.0.0.1/tcp/0/ws"}
MUXERS = {"yamux": "/yamux/1.0.0", "mplex": "/mplex/6.7.0"}
UNKNOWN = "/pywaku/unknown/1.0.0"

every_way = pytest.mark.parametrize("dialler", ["js", "py"])
every_stack = pytest.mark.parametrize(
    ("transport", "muxer"), [("tcp", "yamux"), ("tcp", "mplex"), ("ws", "mplex"), ("ws", "yamux")]
)


class Pair(NamedTuple):
    """A JavaScript and a Python host, connected."""

    js: PeerProcess
    network: Libp2pNetwork
    liveness: Liveness

    @property
    def js_id(self) -> PeerId:
        """The JavaScript host, for the Python one."""
        return PeerId.from_text(self.js.peer)

    @property
    def py_id(self) -> str:
        """The Python host, for the JavaScript one."""
        return str(self.network.peer_id)


@asynccontextmanager
async def connected(
    transport: str, muxer: str, dialler: str, *, js_key: str = "secp256k1", key: PrivateKey | None = None
) -> AsyncGenerator[Pair]:
    """A pair of hosts that speak only this transport and muxer, connected by one of them."""
    async with (
        open_js_peer("peer", transport=transport, muxer=muxer, key=js_key) as js,
        open_network(
            key=key or PrivateKey.generate(),
            listen=[Multiaddr.parse(LISTEN[transport])],
            muxers=[MUXERS[muxer]],
            agent="pywaku/interop",
        ) as network,
        open_liveness(network) as liveness,
    ):
        serve_streams(network)
        if dialler == "js":
            assert await js.call("dial", address=str(network.addresses[0])) == str(network.peer_id)
        else:
            assert str(await network.connect(Multiaddr.parse(js.address))) == js.peer
        yield Pair(js, network, liveness)


async def identified(network: Libp2pNetwork, peer: PeerId) -> PeerInfo:
    """What a peer has told of itself, once it has."""
    changed = trio.Event()

    def heard(_event: PeerEvent) -> None:
        changed.set()

    unwatch = network.watch(heard)
    while not (peer in network.peers and network.peers[peer].identified):
        await changed.wait()
        changed = trio.Event()
    unwatch()
    return network.peers[peer]


@every_way
@every_stack
async def test_identify_tells_both_sides_who_the_other_is(transport: str, muxer: str, dialler: str) -> None:
    key = PrivateKey.generate()
    async with connected(transport, muxer, dialler, key=key) as pair:
        ours = await pair.js.call("identified", peer=pair.py_id)
        theirs = await identified(pair.network, pair.js_id)
        addresses = [address.without_peer() for address in pair.network.addresses]
        connections = await pair.js.call("connections")

    assert ours["agent"] == "pywaku/interop"
    assert ours["key"] == key.public.raw.hex()
    assert {ECHO, RESET, PING_PROTOCOL} <= set(ours["protocols"])
    assert [Multiaddr.parse(address).without_peer() for address in ours["addresses"]] == addresses
    assert [one["muxer"] for one in connections] == [MUXERS[muxer]]
    assert [one["encryption"] for one in connections] == ["/noise"]
    assert theirs.agent.startswith("js-peer/1.0")
    assert {ECHO, RESET, PING_PROTOCOL} <= theirs.protocols
    assert Multiaddr.parse(pair.js.address).without_peer() in {
        address.without_peer() for address in theirs.listen_addresses
    }


@every_way
@every_stack
async def test_pings_are_answered_both_ways(transport: str, muxer: str, dialler: str) -> None:
    async with connected(transport, muxer, dialler) as pair:
        for _ in range(3):
            assert await pair.js.call("ping", peer=pair.py_id) >= 0
        while pair.liveness.rtt(pair.js_id) is None:
            await trio.sleep(0.01)
        assert pair.liveness.dead_peers == 0


@every_way
@every_stack
@pytest.mark.parametrize(("streams", "size"), [(1, 200), (50, 2000), (1, 1_000_000)])
async def test_streams_carry_bytes_both_ways(
    transport: str, muxer: str, dialler: str, streams: int, size: int
) -> None:
    async with connected(transport, muxer, dialler) as pair:
        assert await pair.js.call("echo", peer=pair.py_id, streams=streams, size=size) == streams
        await repeat(streams, streams, lambda: echo_once(pair.network, pair.js_id, size))


@pytest.mark.parametrize("py_key", ["secp256k1", "ed25519"])
@pytest.mark.parametrize("js_key", ["secp256k1", "ed25519"])
@every_way
async def test_both_kinds_of_key_are_understood(dialler: str, js_key: str, py_key: str) -> None:
    key = PrivateKey.generate("ed25519" if py_key == "ed25519" else "secp256k1")
    async with connected("tcp", "yamux", dialler, js_key=js_key, key=key) as pair:
        ours = await pair.js.call("identified", peer=pair.py_id)
        theirs = PublicKey.of_peer_id(pair.js_id)
        await echo_once(pair.network, pair.js_id, 200)

    assert ours["key"] == key.public.raw.hex()
    assert ours["keyType"].lower() == py_key
    assert theirs is not None
    assert theirs.kind == js_key


@every_way
@every_stack
async def test_a_half_closed_stream_still_brings_the_answer(transport: str, muxer: str, dialler: str) -> None:
    async with connected(transport, muxer, dialler) as pair:
        assert await pair.js.call("halfClose", peer=pair.py_id, size=5000) == 5000
        assert await bulk_once(pair.network, pair.js_id, 5000, 500) == 5000


@every_way
@every_stack
async def test_requests_one_after_the_other_leave_the_connection_whole(
    transport: str, muxer: str, dialler: str
) -> None:
    # js-libp2p's mplex hangs up on peers that send a few frames a second for streams it has forgotten.
    async with connected(transport, muxer, dialler) as pair:
        for _ in range(100):
            await request_once(pair.network, pair.js_id, bytes(200))
        await repeat(100, 20, lambda: request_once(pair.network, pair.js_id, bytes(200)))
        await pair.js.call("benchRequests", peer=pair.py_id, count=100, concurrency=1)
        await pair.js.call("benchRequests", peer=pair.py_id, count=100, concurrency=20)
        assert len(await pair.js.call("connections")) == 1


@every_way
@every_stack
async def test_a_reset_reaches_the_other_side(transport: str, muxer: str, dialler: str) -> None:
    async with connected(transport, muxer, dialler) as pair:
        assert await pair.js.call("resetByPeer", peer=pair.py_id) == "StreamResetError"

        stream = await pair.network.open_stream(pair.js_id, RESET)
        await stream.send(b"please")
        with pytest.raises(StreamReset):
            await stream.receive()

        resets = trio.Event()

        async def echo_until_reset(stream: Stream) -> None:
            try:
                while data := await stream.receive():
                    await stream.send(data)
            except StreamReset:
                resets.set()

        pair.network.unserve(ECHO)
        pair.network.serve(ECHO, echo_until_reset)
        await pair.js.call("reset", peer=pair.py_id)
        await resets.wait()

        stream = await pair.network.open_stream(pair.js_id, ECHO)
        await stream.send(b"to be abandoned")
        assert await stream.receive() == b"to be abandoned"
        stream.reset()
        await echo_once(pair.network, pair.js_id, 200)


@every_way
@every_stack
async def test_an_unknown_protocol_is_refused(transport: str, muxer: str, dialler: str) -> None:
    async with connected(transport, muxer, dialler) as pair:
        with pytest.raises(PeerFailed) as refused:
            await pair.js.call("open", peer=pair.py_id, protocol=UNKNOWN)
        assert refused.value.name == "UnsupportedProtocolError"

        stream = await pair.network.open_stream(pair.js_id, UNKNOWN)
        await stream.send(b"hello")
        with pytest.raises(ProtocolNotSupported):
            await stream.receive()
        with pytest.raises(ProtocolNotSupported):
            await pair.network.open_stream(pair.js_id, [UNKNOWN, "/pywaku/unknown/2.0.0"])

        chosen = await pair.network.open_stream(pair.js_id, [UNKNOWN, ECHO])
        assert chosen.protocol == ECHO
        await chosen.close()


async def test_a_stream_can_begin_with_listening() -> None:
    # The peer speaks first in identify, for one: waiting for it has to propose the protocol as sending does.
    async with connected("tcp", "yamux", "py") as pair:
        stream = await pair.network.open_stream(pair.js_id, UNKNOWN)
        with trio.fail_after(5), pytest.raises(ProtocolNotSupported):
            await stream.receive()


@every_way
@every_stack
async def test_hanging_up_is_seen_by_the_other_side(transport: str, muxer: str, dialler: str) -> None:
    async with connected(transport, muxer, dialler) as pair:
        gone = trio.Event()

        def heard(event: PeerEvent) -> None:
            if isinstance(event, PeerDisconnected):
                gone.set()

        pair.network.watch(heard)
        await pair.js.call("hangup", peer=pair.py_id)
        await gone.wait()
        assert not pair.network.peers

        assert str(await pair.network.connect(Multiaddr.parse(pair.js.address))) == pair.js.peer
        await echo_once(pair.network, pair.js_id, 200)
        await pair.network.disconnect(pair.js_id)
        while await pair.js.call("connections"):
            await trio.sleep(0.01)


async def test_one_host_serves_both_transports_and_both_muxers() -> None:
    listen = [Multiaddr.parse(address) for address in LISTEN.values()]
    async with (
        open_js_peer("peer", transport="tcp", muxer="yamux") as first,
        open_js_peer("peer", transport="ws", muxer="mplex") as second,
        open_network(key=PrivateKey.generate(), listen=listen) as network,
    ):
        serve_streams(network)
        by_transport = {"ws" if address.has("ws") else "tcp": str(address) for address in network.addresses}
        await first.call("dial", address=by_transport["tcp"])
        await second.call("dial", address=by_transport["ws"])
        for js in (first, second):
            await js.call("echo", peer=str(network.peer_id), streams=10, size=1000)
            await echo_once(network, PeerId.from_text(js.peer), 1000)
        assert len(network.peers) == 2
