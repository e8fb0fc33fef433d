"""Signed records on their way: by identify, and by the peer exchange of relay (gossipsub v1.1)."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio

from pywaku.gossip import GossipParams
from pywaku.gossip.params import ScoreParams
from pywaku.ids import PeerId
from pywaku.keys import PrivateKey
from pywaku.network.libp2p.host import open_network
from pywaku.network.port import Direction, PeerInfo
from pywaku.network.simulated import SimulatedWorld
from pywaku.protocols.relay import RelayOptions, open_relay
from pywaku.wire.framing import frame
from pywaku.wire.identify import PUSH_PROTOCOL, Identify, encode_identify
from pywaku.wire.multiaddr import Multiaddr
from pywaku.wire.peer_record import PeerRecord, open_record, seal_record
from pywaku.wire.relay import PeerRecord as Recommended
from pywaku.wire.relay import Prune, Rpc, encode_rpc
from tests.support.networks import Recorder, eventually
from tests.support.relays import TOPIC, RawPeer, joins, open_node, open_nodes

TRUSTING = GossipParams(score=ScoreParams(accept_px_threshold=0.0))


async def test_hosts_tell_each_other_their_signed_records() -> None:
    listen = [Multiaddr.parse("/ip4/127.0.0.1/tcp/0")]
    async with open_network(listen=listen) as one, open_network(listen=listen) as other:
        await one.connect(other.addresses)
        await eventually(lambda: _of(one.peers.get(other.peer_id)).identified)
        await eventually(lambda: _of(other.peers.get(one.peer_id)).identified)
        for here, there in ((one, other), (other, one)):
            record = open_record(here.peers[there.peer_id].signed_record)
            assert record.peer == there.peer_id
            assert record.addresses == tuple(address.without_peer() for address in there.addresses)


async def test_the_number_of_the_own_record_grows_when_its_addresses_change() -> None:
    key = PrivateKey.generate()
    seqs: list[int] = []
    async with open_network() as asking:
        for port in (1, 2):
            announce = [Multiaddr.parse(f"/ip4/192.0.2.1/tcp/{port}")]
            listen = [Multiaddr.parse("/ip4/127.0.0.1/tcp/0")]
            async with open_network(key=key, listen=listen, announce=announce) as host:
                (bound,) = host._listeners[0].addresses()
                await asking.connect(bound.with_peer(key.peer_id))
                await eventually(lambda: asking.peers[key.peer_id].identified)
                record = open_record(asking.peers[key.peer_id].signed_record)
                assert record.addresses == tuple(announce)
                seqs.append(record.seq)
            await eventually(lambda: key.peer_id not in asking.peers)
    assert seqs[0] < seqs[1]


async def test_only_a_valid_record_of_the_peer_itself_replaces_the_known_one() -> None:
    key, stranger = PrivateKey.generate(), PrivateKey.generate()
    listen = [Multiaddr.parse("/ip4/127.0.0.1/tcp/0")]
    async with open_network(listen=listen) as host, open_network(key=key) as peer:
        hears = Recorder(host)
        await peer.connect(host.addresses)
        await eventually(lambda: _of(host.peers.get(key.peer_id)).identified)
        first = _of(host.peers.get(key.peer_id)).signed_record
        seq = open_record(first).seq

        async def push(record: bytes, agent: str) -> PeerInfo:
            async with await peer.open_stream(host.peer_id, PUSH_PROTOCOL) as stream:
                await stream.send(
                    frame(encode_identify(Identify(agent_version=agent, signed_peer_record=record)))
                )
                await stream.close_write()
                await eventually(lambda: _of(host.peers.get(key.peer_id)).agent == agent)
            return _of(host.peers.get(key.peer_id))

        newer = seal_record(PeerRecord(key.peer_id, seq + 1), key)
        for number, bad in enumerate(
            (
                b"garbage",
                seal_record(PeerRecord(stranger.peer_id, seq + 9), stranger),
                newer[:-1] + bytes([newer[-1] ^ 1]),
                seal_record(PeerRecord(key.peer_id, seq - 1), key),
            )
        ):
            assert (await push(bad, f"bad {number}")).signed_record == first
        assert (await push(newer, "good")).signed_record == newer
        hears.stop()


def _of(info: PeerInfo | None) -> PeerInfo:
    return info or PeerInfo(PeerId(b"nobody yet"), Direction.INBOUND, None)


@pytest.mark.virtual
async def test_a_prune_carries_the_signed_records_of_other_peers() -> None:
    async with open_nodes(3, params=TRUSTING) as nodes:
        leaves = [node.relay.subscribe_callback(TOPIC, lambda _: None) for node in nodes]
        node, *others = nodes
        async with node.network.world.host("raw") as network:
            raw = RawPeer(network)
            stream = await raw.open(node)
            await stream.send(joins(TOPIC))
            await trio.sleep(2)
            assert node.relay.mesh(TOPIC) == {network.peer_id, *(other.network.peer_id for other in others)}
            leaves[0]()  # which prunes the mesh, with peer exchange
            await trio.sleep(2)
            offered = [entry for rpc in raw.heard for prune in rpc.prune for entry in prune.peers]
            assert {entry.peer_id for entry in offered} == {other.network.peer_id for other in others}
            for entry in offered:
                assert open_record(entry.signed_record).peer == entry.peer_id


@pytest.mark.virtual
async def test_nodes_that_know_only_one_find_each_other_by_what_it_recommends() -> None:
    """A star whose middle keeps a small mesh becomes a network that needs its middle no longer."""
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(SimulatedWorld(3))
        nodes = [
            await stack.enter_async_context(open_node(world, f"node-{n}", params=TRUSTING)) for n in range(16)
        ]
        hub, *leaves = nodes
        for node in nodes:
            node.relay.subscribe_callback(TOPIC, lambda _: None)
        for leaf in leaves:
            await leaf.network.connect(hub.network.addresses)
        await trio.sleep(120)
        connected = [len(leaf.network.peers) for leaf in leaves]
        assert sum(count > 1 for count in connected) >= len(leaves) // 2
        dials = sum(leaf.relay.counters.exchange_dials for leaf in leaves)
        assert 0 < dials <= 16 * len(leaves)


@pytest.mark.virtual
async def test_recommendations_without_a_valid_record_are_not_followed() -> None:
    async with (
        SimulatedWorld(1) as world,
        world.host("friend") as friend,
        world.host("raw") as network,
        open_node(world, "node", params=TRUSTING) as node,
    ):
        node.relay.subscribe(TOPIC)
        stream = await RawPeer(network).open(node)
        await stream.send(joins(TOPIC))
        await trio.sleep(1)
        stranger = PrivateKey.from_bytes("secp256k1", b"\7" * 32)
        records = (
            b"",
            b"garbage",
            seal_record(PeerRecord(stranger.peer_id, 1, friend.addresses), stranger),
        )
        for record in records:
            prune = Prune(TOPIC, (Recommended(friend.peer_id, record),), 60)
            await stream.send(frame(encode_rpc(Rpc(prune=(prune,)))))
            await trio.sleep(5)
        assert friend.peer_id not in node.network.peers
        assert node.relay.counters.exchange_dials == 0
        assert node.relay.counters.exchange_dropped == len(records)
        await network.connect(friend.addresses)
        await trio.sleep(1)
        good = network.peers[friend.peer_id].signed_record
        prune = Prune(TOPIC, (Recommended(friend.peer_id, good),), 60)
        await stream.send(frame(encode_rpc(Rpc(prune=(prune,)))))
        await trio.sleep(5)
        assert friend.peer_id in node.network.peers


@pytest.mark.virtual
async def test_recommendations_of_peers_below_the_score_threshold_are_not_followed() -> None:
    async with (
        SimulatedWorld(1) as world,
        world.host("friend") as friend,
        world.host("raw") as network,
        open_node(world, "node") as node,
    ):
        node.relay.subscribe(TOPIC)
        stream = await RawPeer(network).open(node)
        await network.connect(friend.addresses)
        await stream.send(joins(TOPIC))
        await trio.sleep(1)
        prune = Prune(TOPIC, (Recommended(friend.peer_id, network.peers[friend.peer_id].signed_record),), 60)
        await stream.send(frame(encode_rpc(Rpc(prune=(prune,)))))
        await trio.sleep(5)
        assert friend.peer_id not in node.network.peers
        assert node.relay.router.counters.px_ignored == 1


@pytest.mark.virtual
async def test_following_recommendations_can_be_switched_off() -> None:
    async with (
        SimulatedWorld(1) as world,
        world.host("friend") as friend,
        world.host("raw") as network,
        world.host("node") as host,
        open_relay(host, params=TRUSTING, options=RelayOptions(read_peer_record=None)) as relay,
    ):
        relay.subscribe(TOPIC)
        await network.connect(friend.addresses)
        await network.connect(host.addresses)
        stream = await network.open_stream(host.peer_id, "/vac/waku/relay/2.0.0")
        await stream.send(joins(TOPIC))
        await trio.sleep(1)
        prune = Prune(TOPIC, (Recommended(friend.peer_id, network.peers[friend.peer_id].signed_record),), 60)
        await stream.send(frame(encode_rpc(Rpc(prune=(prune,)))))
        await trio.sleep(5)
        assert friend.peer_id not in host.peers
