"""The peer book: who there is and what is known of each, bounded, as a plain table.

REQ-RES-RELIABILITY, Continuous discovery: a peer that is discovered a second time brings what is known of it
up to date, its node record and its addresses.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from pywaku.errors import InvalidInput
from pywaku.ids import PeerId
from pywaku.network.backoff import BackoffPolicy
from pywaku.peers.entry import Candidate, Origin, PeerEntry, addresses_of
from pywaku.wire.multiaddr import Multiaddr


@dataclass(frozen=True, slots=True)
class BookLimits:
    """The bounds, and the delays between dials to a peer that fails.

    At most `max_peers` are known, of which at most `max_exchanged` became known by peer exchange only, so
    that one lying peer cannot push the others out. When there is no room, the entry goes that is worth least:
    never a connected or a configured one; the one with most failures first, then the least trusted origin,
    then the one that was seen longest ago.
    """

    max_peers: int = 1000
    max_exchanged: int = 500
    backoff: BackoffPolicy = field(default_factory=lambda: BackoffPolicy(base_s=5.0, longest_s=3600.0))

    def __post_init__(self) -> None:
        if self.max_peers < 1 or not 0 <= self.max_exchanged <= self.max_peers:
            raise InvalidInput("a peer book takes max_peers ≥ 1 and 0 ≤ max_exchanged ≤ max_peers")


@dataclass(slots=True)
class BookCounters:
    """What has happened so far."""

    learned: int = 0
    updated: int = 0
    evicted: int = 0
    refused: int = 0
    """Peers that found no place."""
    stale_records: int = 0
    """Node records that were older than the one known."""


class PeerBook:
    """The table. Entries are values; `get` and iteration give the present ones."""

    def __init__(self, limits: BookLimits | None = None, *, rng: random.Random | None = None) -> None:
        self.limits = limits or BookLimits()
        self.counters = BookCounters()
        self._rng = rng or random.Random()
        self._entries: dict[PeerId, PeerEntry] = {}
        self._exchanged = 0
        self._changed: set[PeerId] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[PeerEntry]:
        return iter(tuple(self._entries.values()))

    def __contains__(self, peer: object) -> bool:
        return peer in self._entries

    def get(self, peer: PeerId) -> PeerEntry | None:
        """What is known of a peer."""
        return self._entries.get(peer)

    def take_changed(self) -> frozenset[PeerId]:
        """The peers whose entries changed, came or went since the last call: what is to be saved."""
        changed, self._changed = frozenset(self._changed), set()
        return changed

    def put_back_changed(self, peers: Collection[PeerId]) -> None:
        """These were taken by `take_changed` but could not be saved: they are to be saved next time.

        While a disk fails, peers come and go: of those that went no more are noted than there may be in the
        book. The others come back with the next start.
        """
        there = self._entries.keys()
        gone = [peer for peer in peers if peer not in there]
        self._changed.update(peer for peer in peers if peer in there)
        self._changed.update(gone[: self.limits.max_peers])

    # What becomes known

    def restore(self, entries: Iterable[PeerEntry]) -> None:
        """Take in what was saved. Nobody is connected yet. Who finds no place is struck out."""
        for entry in entries:
            if entry.peer not in self._entries:
                if self._make_room(entry):
                    self._put(replace(entry, connected=False))
                else:
                    self._changed.add(entry.peer)
        self._changed -= self._entries.keys()

    def learn(self, candidate: Candidate, now: float) -> bool:
        """A discovery, or the configuration, names a peer; whether it is known from now on."""
        peer, origin, record = candidate.peer, candidate.origin, candidate.record
        known = self._entries.get(peer)
        entry = known or PeerEntry(peer, origin, first_seen=now, last_seen=now)
        if known is not None:
            entry = replace(entry, last_seen=max(now, entry.last_seen))
            if origin.rank < entry.origin.rank:
                entry = replace(entry, origin=origin)
        if record is not None and record.peer_id == peer:
            if known is not None and record.seq < entry.record_seq:
                self.counters.stale_records += 1
            elif record != entry.record:
                shards = record.shards
                entry = replace(
                    entry,
                    record=record,
                    recorded=addresses_of(peer, record.dial_addresses),
                    capabilities=record.capabilities,
                    cluster_id=entry.cluster_id if shards is None else shards.cluster_id,
                    shards=entry.shards if shards is None else frozenset(shards.shards),
                )
                if known is not None and set(entry.addresses) != set(known.addresses):
                    entry = replace(entry, retry_at=0.0)  # it may have moved
        if origin.configured:
            entry = replace(entry, configured=addresses_of(peer, (*candidate.addresses, *entry.configured)))
        elif record is None and candidate.addresses:
            entry = replace(entry, recorded=addresses_of(peer, candidate.addresses))
        if known is None:
            if not self._make_room(entry):
                self.counters.refused += 1
                return False
            self.counters.learned += 1
        elif entry != known:
            self.counters.updated += 1
        self._put(entry)
        return True

    def connected(self, peer: PeerId, now: float, *, inbound: bool) -> None:
        """A connection with the peer stands."""
        known = self._entries.get(peer)
        if known is None:
            origin = Origin.INBOUND if inbound else Origin.OUTBOUND
            entry = PeerEntry(peer, origin, first_seen=now, last_seen=now, connected=True)
            if not self._make_room(entry):
                self.counters.refused += 1
                return
            self.counters.learned += 1
            self._put(entry)
        elif inbound:
            self._put(replace(known, last_seen=now, connected=True))  # it shows nothing of our dials
        else:
            self._put(replace(known, last_seen=now, connected=True, failures=0, retry_at=0.0))

    def identified(
        self,
        peer: PeerId,
        protocols: frozenset[str],
        addresses: Iterable[Multiaddr],
        now: float,
        *,
        agent: str = "",
    ) -> None:
        """A connected peer has said what it speaks and where it listens."""
        known = self._entries.get(peer)
        if known is not None:
            told = addresses_of(peer, addresses)
            self._put(replace(known, protocols=protocols, told=told, agent=agent, last_seen=now))

    def metadata(self, peer: PeerId, cluster_id: int | None, shards: Iterable[int]) -> None:
        """A peer has said which cluster and shards it is on (66/WAKU2-METADATA).

        A node without relay names no shards, which says nothing about the ones it serves.
        """
        known = self._entries.get(peer)
        if known is None:
            return
        named = frozenset(shards) or known.shards
        entry = replace(
            known, cluster_id=known.cluster_id if cluster_id is None else cluster_id, shards=named
        )
        if entry != known:
            self._put(entry)

    def disconnected(self, peer: PeerId, now: float) -> None:
        """The last connection with the peer is gone."""
        known = self._entries.get(peer)
        if known is not None and known.connected:
            self._put(replace(known, connected=False, last_seen=now))

    def failed(self, peer: PeerId, now: float) -> None:
        """A dial, or the service of the peer, has failed: it is left alone for a while, ever longer."""
        known = self._entries.get(peer)
        if known is not None:
            policy = self.limits.backoff
            span = min(policy.longest_s, policy.base_s * policy.factor ** min(known.failures, 64))
            delay = span * (1 - policy.jitter * self._rng.random())
            self._put(replace(known, failures=known.failures + 1, retry_at=now + delay))

    def succeeded(self, peer: PeerId) -> None:
        """The peer did what it was asked to."""
        known = self._entries.get(peer)
        if known is not None and (known.failures or known.retry_at):
            self._put(replace(known, failures=0, retry_at=0.0))

    def may_dial(self, entry: PeerEntry, now: float) -> bool:
        """Is the peer's back-off over? A clock that was set back does not prolong it."""
        return not now < entry.retry_at <= now + self.limits.backoff.longest_s

    def forget(self, peer: PeerId) -> None:
        """Strike the peer out."""
        self._take(peer)

    # Room

    def _put(self, entry: PeerEntry) -> None:
        known = self._entries.get(entry.peer)
        before = known is not None and known.origin is Origin.PEER_EXCHANGE
        self._exchanged += (entry.origin is Origin.PEER_EXCHANGE) - before
        self._entries[entry.peer] = entry
        self._changed.add(entry.peer)

    def _take(self, peer: PeerId) -> None:
        entry = self._entries.pop(peer, None)
        if entry is not None:
            self._exchanged -= entry.origin is Origin.PEER_EXCHANGE
            self._changed.add(peer)

    def _make_room(self, new: PeerEntry) -> bool:
        exchanged = new.origin is Origin.PEER_EXCHANGE
        if exchanged and self._exchanged >= self.limits.max_exchanged:
            return self._evict(Origin.PEER_EXCHANGE, new)
        return len(self._entries) < self.limits.max_peers or self._evict(None, new)

    def _evict(self, origin: Origin | None, new: PeerEntry) -> bool:
        worst = max(
            (
                entry
                for entry in self._entries.values()
                if not entry.connected
                and not entry.origin.configured
                and (origin is None or entry.origin is origin)
            ),
            key=_expendable,
            default=None,
        )
        # Whom nobody vouches for does not push out peers that are known to be good.
        if worst is None or (
            not new.connected and not worst.failures and worst.origin.rank < new.origin.rank
        ):
            return False
        self._take(worst.peer)
        self.counters.evicted += 1
        return True


def _expendable(entry: PeerEntry) -> tuple[int, int, float]:
    return entry.failures, entry.origin.rank, -entry.last_seen
