"""Peers, node records and book entries for tests."""

from __future__ import annotations

import random
from ipaddress import IPv4Address

from pywaku.ids import PeerId
from pywaku.keys import PrivateKey
from pywaku.peers.entry import Candidate, Origin, PeerEntry
from pywaku.wire.enr import Capability, Enr, RelayShards
from pywaku.wire.multiaddr import Multiaddr

CLUSTER = 42
ALL = Capability.RELAY | Capability.STORE | Capability.FILTER | Capability.LIGHTPUSH


def key_of(name: str | int) -> PrivateKey:
    """A key that belongs to a name."""
    return PrivateKey.from_bytes("secp256k1", random.Random(f"key {name}").randbytes(32))


def peer_of(name: str | int) -> PeerId:
    """A peer that belongs to a name; much cheaper than a key."""
    return PeerId(b"\x00\x25\x08\x02\x12\x21\x02" + random.Random(f"peer {name}").randbytes(32))


def record_of(
    name: str | int,
    *,
    cluster_id: int = CLUSTER,
    shards: tuple[int, ...] = (0,),
    capabilities: Capability = ALL,
    seq: int = 1,
    port: int = 60000,
    multiaddrs: tuple[Multiaddr, ...] = (),
) -> Enr:
    """The record of a node."""
    return Enr.create(
        key_of(name),
        seq=seq,
        ip=IPv4Address("192.0.2.1"),
        tcp=port,
        capabilities=capabilities,
        shards=RelayShards(cluster_id, shards),
        multiaddrs=multiaddrs,
    )


def address_of(peer: PeerId, text: str = "/ip4/192.0.2.9/tcp/60000") -> Multiaddr:
    """An address of a peer."""
    return Multiaddr.parse(text).with_peer(peer)


def candidate_of(
    name: str | int, origin: Origin = Origin.DNS, text: str = "/ip4/192.0.2.9/tcp/60000"
) -> Candidate:
    """A peer that was found, by its address only."""
    peer = peer_of(name)
    return Candidate(peer, (address_of(peer, text),), origin)


def entry_of(name: str | int, origin: Origin = Origin.DNS, **changes: object) -> PeerEntry:
    """A peer of a book, on shard 0 of the cluster, that can be dialed."""
    peer = peer_of(name)
    fields: dict[str, object] = {
        "first_seen": 0.0,
        "last_seen": 0.0,
        "recorded": (address_of(peer),),
        "cluster_id": CLUSTER,
        "shards": frozenset({0}),
        "capabilities": ALL,
    }
    return PeerEntry(peer, origin, **(fields | changes))  # pyright: ignore[reportArgumentType]
