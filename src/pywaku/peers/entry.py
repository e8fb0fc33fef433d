"""What is known of one peer, and where it is known from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pywaku.ids import PeerId
from pywaku.wire.enr import Enr
from pywaku.wire.enr_waku import Capability
from pywaku.wire.multiaddr import Multiaddr

MAX_ADDRESSES: Final = 16
"""Addresses that are kept of one peer and kind; the first ones."""


class Origin(Enum):
    """How a peer became known; in the order of trust, highest first."""

    PREFERRED = "preferred"
    """Configured as a node to be used before others."""
    STATIC = "static"
    """Configured in another way, such as a bootstrap node."""
    DISCV5 = "discv5"
    DNS = "dns"
    RENDEZVOUS = "rendezvous"
    INBOUND = "inbound"
    """It connected to this node."""
    OUTBOUND = "outbound"
    """This node connected to it for other reasons, such as relay's recommendations."""
    PEER_EXCHANGE = "peer-exchange"

    @property
    def rank(self) -> int:
        """0 for the most trusted."""
        return _RANK[self]

    @property
    def configured(self) -> bool:
        """Did the user name it?"""
        return self in (Origin.PREFERRED, Origin.STATIC)

    @property
    def discovered(self) -> bool:
        """Was it found by ambient discovery: may it be told to others? (34/WAKU2-PEER-EXCHANGE)"""
        return self in _AMBIENT


_RANK: Final = {origin: rank for rank, origin in enumerate(Origin)}
_AMBIENT: Final = frozenset({Origin.DISCV5, Origin.DNS, Origin.RENDEZVOUS, Origin.PEER_EXCHANGE})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A peer that some discovery has found. Made from a node record by `of_record`."""

    peer: PeerId
    addresses: tuple[Multiaddr, ...]
    origin: Origin
    record: Enr | None = None

    @classmethod
    def of_record(cls, record: Enr, origin: Origin) -> Candidate:
        """What a node record says."""
        return cls(record.peer_id, record.dial_addresses, origin, record)


@dataclass(frozen=True, slots=True)
class PeerEntry:
    """A peer of the book. Times are seconds of the book's clock; what is not known is None or empty.

    Of each kind of address the latest statement holds: `configured` by the user, `recorded` by the node
    record with the highest sequence number, `told` by the peer itself over a connection (identify).
    """

    peer: PeerId
    origin: Origin
    first_seen: float
    last_seen: float
    """When it was last connected, or found by a discovery."""
    configured: tuple[Multiaddr, ...] = ()
    recorded: tuple[Multiaddr, ...] = ()
    told: tuple[Multiaddr, ...] = ()
    protocols: frozenset[str] | None = None
    """What it said it speaks, when it was connected last."""
    agent: str = ""
    cluster_id: int | None = None
    shards: frozenset[int] | None = None
    capabilities: Capability | None = None
    record: Enr | None = None
    failures: int = 0
    """Dials and services that failed since one succeeded."""
    retry_at: float = 0.0
    """Not to be dialed before."""
    connected: bool = False

    @property
    def addresses(self) -> tuple[Multiaddr, ...]:
        """Where to connect to it, each with its peer id."""
        return tuple(dict.fromkeys((*self.configured, *self.told, *self.recorded)))

    @property
    def record_seq(self) -> int:
        """The sequence number of its node record; -1 without one."""
        return -1 if self.record is None else self.record.seq


def addresses_of(peer: PeerId, addresses: Iterable[Multiaddr]) -> tuple[Multiaddr, ...]:
    """Addresses with the peer id at their end, without repetition; those of other peers are left out."""
    own = (address for address in addresses if address.peer_id in (None, peer))
    return tuple(dict.fromkeys(address.with_peer(peer) for address in own))[:MAX_ADDRESSES]
