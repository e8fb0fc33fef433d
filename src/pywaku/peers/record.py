"""This node's own record, kept up to date as its addresses, services and shards change (31/WAKU2-ENR).

64/WAKU2-NETWORK, Bootstrapping and discovery: a relay node encodes its shards into its record, which is
updated when they change.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from pywaku.errors import DecodeError, InvalidInput
from pywaku.keys import PrivateKey
from pywaku.wire.enr import Capability, Enr, EnrFields, RelayShards
from pywaku.wire.multiaddr import Multiaddr

MAX_MULTIADDRS: Final = 8


class NodeRecord:
    """Makes the record of the node with `key`; each change gets the next sequence number.

    `saved` is what `encode` gave in an earlier run: the record goes on from there, with the same number as
    long as it says the same. Without it `seq` is where to start; the time in seconds is a good choice, as it
    is above what an earlier run used that left nothing behind. `udp` is the port of discv5, if it is spoken.
    """

    def __init__(
        self, key: PrivateKey, *, saved: bytes | None = None, seq: int = 1, udp: int | None = None
    ) -> None:
        if key.kind != "secp256k1":
            raise InvalidInput("a node record needs a secp256k1 key")
        self._key = key
        self.left_out: tuple[Multiaddr, ...] = ()
        """Addresses that found no room in the record."""
        self._record = self._restored(saved) or Enr.create(key, seq=seq)
        self._others = self._record.multiaddrs  # addresses beyond those of ip and tcp, whether there is room
        if udp is not None:
            self._record = self._record.update(key, udp=udp)

    def _restored(self, saved: bytes | None) -> Enr | None:
        if saved is None:
            return None
        try:
            record = Enr.decode(saved)
        except DecodeError:
            return None
        return record if record.public_key == self._key.public else None

    @property
    def record(self) -> Enr:
        """The record as it is now."""
        return self._record

    @property
    def text(self) -> str:
        """The record as text, `enr:…`."""
        return self._record.text

    @property
    def seq(self) -> int:
        """Its sequence number."""
        return self._record.seq

    def encode(self) -> bytes:
        """The record, to save and to restore from."""
        return self._record.encode()

    def set_shards(self, cluster_id: int, shards: Iterable[int]) -> bool:
        """The shards that the node relays; whether that changed the record."""
        return self._update({"shards": RelayShards(cluster_id, tuple(sorted(set(shards))))})

    def set_capabilities(self, capabilities: Capability) -> bool:
        """What the node serves; whether that changed the record."""
        return self._update({"capabilities": capabilities})

    def set_addresses(self, addresses: Iterable[Multiaddr]) -> bool:
        """Where the node can be reached; whether that changed the record.

        The first TCP address of each IP version goes into `ip` and `tcp`, all others into `multiaddrs`, as
        far as the 300 bytes of a record reach: the last ones are left out first. Addresses that mean any or
        none (0.0.0.0, port 0) say nothing to others and are left out as well.
        """
        fields: EnrFields = {"ip": None, "tcp": None, "ip6": None, "tcp6": None}
        others: list[Multiaddr] = []
        for address in dict.fromkeys(addresses):
            if address.peer_id not in (None, self._key.peer_id):
                raise InvalidInput(f"{address} is the address of another peer")
            if not _is_somewhere(address):
                continue
            match address.without_peer().components:
                case (("ip4", str(host)), ("tcp", str(port))) if fields.get("ip") is None:
                    fields["ip"], fields["tcp"] = IPv4Address(host), int(port)
                case (("ip6", str(host)), ("tcp", str(port))) if fields.get("ip6") is None:
                    fields["ip6"], fields["tcp6"] = IPv6Address(host), int(port)
                case _:
                    others.append(address)
        if fields.get("tcp6") == fields.get("tcp"):
            fields["tcp6"] = None  # tcp holds for both
        self._others = tuple(others)
        return self._update(fields)

    def _update(self, fields: EnrFields) -> bool:
        """Change the record, and fit in as many of the other addresses as there is room for."""
        before = self._record
        kept = self._others[:MAX_MULTIADDRS]
        while True:
            fields["multiaddrs"] = kept
            try:
                self._record = before.update(self._key, **fields)
                break
            except InvalidInput:
                if not kept:
                    raise
                kept = kept[:-1]
        self.left_out = self._others[len(kept) :]
        return self._record is not before


def _is_somewhere(address: Multiaddr) -> bool:
    for name, value in address.components:
        match name, value:
            case ("tcp" | "udp", "0") | ("memory", _):
                return False
            case ("ip4" | "ip6", str(text)) if text in ("0.0.0.0", "::"):  # noqa: S104 (compared to)
                return False
            case _:
                pass
    return True
