"""What a node record can be made to say, as the keys and values of EIP-778 and 31/WAKU2-ENR."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Final, TypedDict

from pywaku.errors import InvalidInput
from pywaku.ids import PeerId
from pywaku.wire import rlp
from pywaku.wire.enr_waku import (
    Capability,
    RelayShards,
    encode_capabilities,
    encode_multiaddrs,
    encode_shards,
)
from pywaku.wire.multiaddr import Multiaddr

_CIRCUIT: Final = "p2p-circuit"


class EnrFields(TypedDict, total=False):
    """The fields to set; None takes one away."""

    ip: IPv4Address | None
    tcp: int | None
    udp: int | None
    ip6: IPv6Address | None
    tcp6: int | None
    udp6: int | None
    multiaddrs: Iterable[Multiaddr] | None
    capabilities: Capability | None
    shards: RelayShards | None


def apply_fields(pairs: Mapping[bytes, rlp.Item], own: PeerId, fields: EnrFields) -> dict[bytes, rlp.Item]:
    """`pairs` with `fields` in them; raises `InvalidInput`."""
    values = dict[bytes, bytes | None]()
    if "ip" in fields:
        values[b"ip"] = fields["ip"].packed if fields["ip"] is not None else None
    if "ip6" in fields:
        values[b"ip6"] = fields["ip6"].packed if fields["ip6"] is not None else None
    if "tcp" in fields:
        values[b"tcp"] = _port(fields["tcp"])
    if "udp" in fields:
        values[b"udp"] = _port(fields["udp"])
    if "tcp6" in fields:
        values[b"tcp6"] = _port(fields["tcp6"])
    if "udp6" in fields:
        values[b"udp6"] = _port(fields["udp6"])
    if "capabilities" in fields:
        flags = fields["capabilities"]
        values[b"waku2"] = None if flags is None else encode_capabilities(flags)
    if "shards" in fields:
        values |= {b"rs": None, b"rsv": None}  # never both
        if fields["shards"] is not None:
            key, value = encode_shards(fields["shards"])
            values[key] = value
    result = dict(pairs) | values
    if "multiaddrs" in fields:
        stored = dict.fromkeys(_stored(address, own) for address in fields["multiaddrs"] or ())
        kept = [address for address in stored if not _said_by_others(address, result)]
        result[b"multiaddrs"] = encode_multiaddrs(kept) if kept else None
    return {key: value for key, value in result.items() if value is not None}


def whole(address: Multiaddr, own: PeerId) -> Multiaddr:
    """A stored address as it is dialled: one with a peer in it is a relay's, unless the peer is the node.

    31/WAKU2-ENR, "Many connection types".
    """
    peer = address.peer_id
    if peer == own:
        return address.without_peer()
    return address if peer is None else Multiaddr.parse(f"{address}/{_CIRCUIT}")


def _stored(address: Multiaddr, own: PeerId) -> Multiaddr:
    """An address as `multiaddrs` stores it: without the node's peer id, and without what follows a relay."""
    if address.has(_CIRCUIT):
        relay = Multiaddr.parse(str(address).partition(f"/{_CIRCUIT}")[0])
        if relay.peer_id is None:
            raise InvalidInput(f"{address} does not name its relay")
        return relay
    bare = address.without_peer() if address.peer_id == own else address
    if bare.has("p2p"):
        raise InvalidInput(f"{address} is the address of another peer")
    return bare


def _said_by_others(address: Multiaddr, pairs: Mapping[bytes, rlp.Item | None]) -> bool:
    """Do the keys of EIP-778 say this address already? Then `multiaddrs` need not repeat it."""
    match address.components:
        case (("ip4", _), ("tcp" | "udp" as transport, port)):
            host = pairs.get(b"ip") == address.encode()[1:5]
            found = pairs.get(transport.encode())
        case (("ip6", _), ("tcp" | "udp" as transport, port)):
            host = pairs.get(b"ip6") == address.encode()[1:17]
            found = pairs.get(transport.encode() + b"6") or pairs.get(transport.encode())
        case _:
            return False
    return host and isinstance(found, bytes) and str(int.from_bytes(found)) == port


def _port(port: int | None) -> bytes | None:
    if port is None:
        return None
    if not 0 < port < 1 << 16:
        raise InvalidInput(f"a port lies between 1 and 65535, not {port}")
    return rlp.encode_int(port)
