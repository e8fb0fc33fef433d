"""Which known peers to use for a service (REQ-RES-RELIABILITY, Selection of discovered service nodes)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from pywaku.ids import PeerId
from pywaku.peers.entry import Origin, PeerEntry
from pywaku.peers.services import Service
from pywaku.wire.multiaddr import Multiaddr

CIRCUIT: Final = "p2p-circuit"
TRANSPORTS: Final = frozenset({"tcp", "ws", "wss"})
"""What this build of libp2p dials."""


class Fit(Enum):
    """Whether a peer will do."""

    YES = "yes"
    UNKNOWN = "unknown"
    """It has not said: only a node that the user has configured gets the benefit of the doubt."""
    NO = "no"


@dataclass(frozen=True, slots=True)
class Need:
    """What is looked for: nodes that provide `service` on all of `shards` of `cluster_id` (None: of any)."""

    service: Service
    cluster_id: int | None = None
    shards: frozenset[int] = field(default_factory=frozenset[int])


def transport_of(address: Multiaddr) -> str | None:
    """What an address takes to be dialed: tcp, ws, wss, quic-v1, p2p-circuit…; None where that is unknown."""
    names = [name for name, _ in address.components]
    if names[-1] == "p2p":
        names.pop()
    if CIRCUIT in names:
        return CIRCUIT
    if "wss" in names or ("tls" in names and "ws" in names):
        return "wss"
    for name in ("ws", "webtransport", "quic-v1", "quic", "webrtc-direct", "webrtc", "memory"):
        if name in names:
            return name
    return "tcp" if len(names) == 2 and names[1] == "tcp" else None


def dialable(entry: PeerEntry, transports: frozenset[str]) -> tuple[Multiaddr, ...]:
    """The addresses of a peer to dial, direct ones first."""
    usable = [address for address in entry.addresses if transport_of(address) in transports]
    return tuple(sorted(usable, key=lambda address: address.has(CIRCUIT)))


def placed(entry: PeerEntry, need: Need) -> Fit:
    """Is the peer on the right cluster and shards?"""
    if need.cluster_id is None:
        return Fit.YES
    if entry.cluster_id is None:
        return Fit.UNKNOWN
    if entry.cluster_id != need.cluster_id:
        return Fit.NO
    if not need.service.shard_relevant or not need.shards:
        return Fit.YES
    if entry.shards is None:
        return Fit.UNKNOWN
    return Fit.YES if need.shards <= entry.shards else Fit.NO


def provides(entry: PeerEntry, service: Service) -> Fit:
    """Does the peer provide the service? What it said over a connection counts more than its node record."""
    if entry.protocols is not None:
        return Fit.NO if entry.protocols.isdisjoint(service.protocols) else Fit.YES
    if service.capability is None or entry.capabilities is None:
        return Fit.UNKNOWN
    return Fit.YES if service.capability in entry.capabilities else Fit.NO


def suits(entry: PeerEntry, need: Need) -> bool:
    """May the peer be used for this at all?

    A peer must be on the right cluster and shards, and provide the service. A configured one may yet have to
    say so; any other one must have, in its node record or over a connection. Peer exchange has no flag in
    node records, so that any node of the cluster is asked.
    """
    trusted = entry.origin.configured
    place, service = placed(entry, need), provides(entry, need.service)
    if Fit.NO in (place, service):
        return False
    if trusted:
        return True
    return place is Fit.YES and (service is Fit.YES or need.service.capability is None)


def select(
    entries: Iterable[PeerEntry],
    need: Need,
    *,
    rng: random.Random,
    transports: frozenset[str] = TRANSPORTS,
    may_dial: Callable[[PeerEntry], bool] = lambda _: True,
    exclude: frozenset[PeerId] = frozenset(),
    busy: frozenset[PeerId] = frozenset(),
) -> list[PeerEntry]:
    """The peers to use, best first: those that suit, and are connected or can be dialed now.

    Only addresses of these `transports` are dialed; `p2p-circuit` among them allows those through a relay.

    The newest version of the protocol goes first, then those reached directly, then preferred and other
    configured ones, then those with fewer failures, then those that are not `busy` with something else for
    this node; the rest is left to chance, which spreads the load.
    """
    found: list[tuple[tuple[int, bool, int, int, bool, float], PeerEntry]] = []
    for entry in entries:
        if entry.peer in exclude or not suits(entry, need):
            continue
        addresses = dialable(entry, transports)
        if not entry.connected and (not addresses or not may_dial(entry)):
            continue
        circuit = bool(addresses) and addresses[0].has(CIRCUIT)
        order = (
            _version(entry, need.service),
            circuit,
            entry.origin.rank if entry.origin.configured else len(Origin),
            entry.failures,
            entry.peer in busy,
            rng.random(),
        )
        found.append((order, entry))
    found.sort(key=lambda item: item[0])
    return [entry for _, entry in found]


def _version(entry: PeerEntry, service: Service) -> int:
    """0 for the newest version and for peers that have not said yet, which are likely to be up to date."""
    if entry.protocols is None:
        return 0
    return next((age for age, name in enumerate(service.protocols) if name in entry.protocols), 0)
