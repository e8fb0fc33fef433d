"""The pool of reliable service nodes of one protocol, as a plain machine (REQ-RES-RELIABILITY).

What happened goes in with `now`; what is to be done comes out of `take_wishes`. The pool dials nobody and
sends nothing.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from pywaku.ids import PeerId
from pywaku.peers.services import CONNECTION_LOST, UNCONFIRMED, UNSUITABLE, Outcome, PoolPolicy


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to this node, then say `ready` or `connect_failed`."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Use:
    """The node is connected and in use from now on, until `Replace`: a filter client subscribes at it."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Replace:
    """`old` is no longer in use because of `outcome`; `new` takes its place (None: nobody is known yet).

    `new` is usable once `Use` says so. The connection with `old` may be dropped if nobody else needs it.
    """

    old: PeerId
    new: PeerId | None
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Ping:
    """Ping this node, then `report` the outcome."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Discover:
    """Too few nodes are known: look for `missing` more."""

    missing: int


Wish = Connect | Use | Replace | Ping | Discover


@dataclass(slots=True)
class PoolCounters:
    """What has happened so far."""

    replaced: int = 0
    failures: int = 0
    """Requests and pings that failed, whether or not they had a node replaced."""
    pings: int = 0
    pings_failed: int = 0
    discoveries: int = 0


class _Member:
    """A node of the pool: connected and in use, or about to be connected."""

    __slots__ = ("dialing", "failed_pings", "ping_due", "pinging", "ready", "suspect", "used")

    def __init__(self) -> None:
        self.ready = False
        self.used = False  # has been ready before
        self.dialing = False
        self.failed_pings = 0
        self.ping_due = math.inf
        self.pinging = False
        self.suspect = False  # the network was away: the next ping decides


class _Failed:
    """What is remembered of a node that failed."""

    __slots__ = ("at", "failures")

    def __init__(self) -> None:
        self.at = -math.inf
        self.failures = 0


class ServicePool:
    """Keeps `policy.size` nodes in use out of those that are offered, and replaces those that fail."""

    def __init__(self, policy: PoolPolicy) -> None:
        self.policy = policy
        self.counters = PoolCounters()
        self._members: dict[PeerId, _Member] = {}
        self._offered: tuple[PeerId, ...] = ()
        self._ready: frozenset[PeerId] = frozenset()
        self._failed: OrderedDict[PeerId, _Failed] = OrderedDict()
        self._wishes: list[Wish] = []
        self._discover_at = -math.inf
        self._offline = False

    @property
    def members(self) -> tuple[PeerId, ...]:
        """The nodes of the pool, connected or about to be."""
        return tuple(self._members)

    @property
    def in_use(self) -> tuple[PeerId, ...]:
        """The nodes to send requests to: connected, in the order in which they were taken in."""
        return tuple(peer for peer, member in self._members.items() if member.ready)

    @property
    def offline(self) -> bool:
        """Is the network away, as far as the pool was told?"""
        return self._offline

    @property
    def remembered(self) -> int:
        """Failed nodes that are remembered."""
        return len(self._failed)

    def take_wishes(self) -> list[Wish]:
        """What is to be done, in order; each wish is given out once."""
        wishes, self._wishes = self._wishes, []
        return wishes

    # What there is

    def offer(self, candidates: Iterable[PeerId], ready: Iterable[PeerId], now: float) -> None:
        """The nodes that could serve, best first, and those of them that are connected and known to serve.

        It replaces what was offered before. A node in use that is no longer offered stays until it fails.
        """
        self._offered = tuple(dict.fromkeys(candidates))[: self.policy.remember]
        self._ready = frozenset(ready)
        self._fill(now)

    def ready(self, peer: PeerId, now: float) -> None:
        """A connection with the peer stands, and it is known to serve."""
        self._ready |= {peer}
        member = self._members.get(peer)
        if member is not None and not member.ready:
            self._take_into_use(peer, member, now)

    def unsuitable(self, peer: PeerId, now: float) -> None:
        """The peer turns out not to be a node for this pool."""
        self._offered = tuple(other for other in self._offered if other != peer)
        self._ready -= {peer}
        if peer in self._members:
            self._replace(peer, UNSUITABLE, now)

    def connect_failed(self, peer: PeerId, now: float) -> None:
        """The dial that `Connect` asked for came to nothing."""
        member = self._members.get(peer)
        if member is None or member.ready:
            return
        member.dialing = False
        if self._offline:
            self._remember(peer, now)  # it is tried again after a rest; nobody else would do better
        else:
            self._replace(peer, CONNECTION_LOST, now)

    def disconnected(self, peer: PeerId, now: float) -> None:
        """The last connection with the peer is gone."""
        self._ready -= {peer}
        member = self._members.get(peer)
        if member is None or not member.ready:
            return
        if self._offline:
            member.ready = member.pinging = False
            member.ping_due = math.inf
            self._fill(now)
        else:
            self.counters.failures += 1
            self._replace(peer, CONNECTION_LOST, now)

    # What nodes did

    def report(self, peer: PeerId, outcome: Outcome, now: float) -> None:
        """What became of a request, or of a ping that the pool wished for."""
        member = self._members.get(peer)
        if not outcome.ok:
            self.counters.failures += 1
        if outcome.ping:
            self._pinged(peer, member, outcome, now)
        elif member is not None and not self._offline:
            if outcome.ok:
                self._failed.pop(peer, None)
            elif self.policy.replaces_at_once(outcome):
                self._replace(peer, outcome, now)

    def doubt(self, peer: PeerId, now: float) -> None:
        """A node did what it was asked, by its own account, and nothing has come of it.

        Another one takes its place, if that leaves the pool with a node in use: who knows whose fault it was.
        """
        member = self._members.get(peer)
        if member is None or not member.ready or self._offline:
            return
        found = self._choose(1, now)
        if found and (found[0] in self._ready or len(self.in_use) > 1):
            self._replace(peer, UNCONFIRMED, now)

    def _pinged(self, peer: PeerId, member: _Member | None, outcome: Outcome, now: float) -> None:
        self.counters.pings += 1
        self.counters.pings_failed += not outcome.ok
        if member is None:
            return
        member.pinging = False
        if self._offline:
            return
        if outcome.ok:
            member.failed_pings = 0
            member.suspect = False
            self._failed.pop(peer, None)
        else:
            member.failed_pings += 1
            if member.suspect or member.failed_pings >= self.policy.pings_in_a_row:
                self._replace(peer, outcome, now)
                return
        if member.ready:
            member.ping_due = self._next_ping(now)

    # Time and the network

    def tick(self, now: float) -> None:
        """Time has passed: ping whom it is time to ping, fill places that are free. See `next_tick`."""
        if not self._offline:
            for peer, member in self._members.items():
                if member.ping_due <= now and not member.pinging:
                    self._ping(peer, member)
        self._fill(now)

    def next_tick(self, now: float) -> float:
        """When `tick` has something to do at the latest; infinity if nothing is to come."""
        due = min(
            (member.ping_due for member in self._members.values() if not member.pinging), default=math.inf
        )
        if self._offline:
            due = math.inf
        rests = [self._rested_at(peer) for peer in self._members if self._waits(peer)]
        if len(self._members) < self.policy.size:
            rests += [self._rested_at(peer) for peer in self._offered if peer not in self._members]
            rests.append(self._discover_at)
        return max(now, min((due, *(at for at in rests if at > now)), default=math.inf))

    def went_offline(self, now: float) -> None:
        """The network is away: pings stop, and nobody is to blame (Offline recoverability)."""
        if self._offline:
            return
        self._offline = True
        for member in self._members.values():
            member.ping_due = math.inf
            member.pinging = False

    def came_online(self, now: float) -> None:
        """The network is back: nodes in use are pinged, and the first failure has one replaced."""
        if not self._offline:
            return
        self._offline = False
        for peer in self._members:
            self._failed.pop(peer, None)
        for peer, member in self._members.items():
            member.failed_pings = 0
            if self.policy.ping_interval_s is not None:
                member.suspect = True
                if member.ready:
                    self._ping(peer, member)
        self._fill(now)

    # Within

    def _ping(self, peer: PeerId, member: _Member) -> None:
        member.pinging = True
        member.ping_due = math.inf
        self._wishes.append(Ping(peer))

    def _next_ping(self, now: float) -> float:
        interval = self.policy.ping_interval_s
        return math.inf if interval is None or self._offline else now + interval

    def _take_into_use(self, peer: PeerId, member: _Member, now: float) -> None:
        member.ready = True
        member.dialing = False
        if not member.used:
            member.used = True
            member.ping_due = self._next_ping(now)
            self._wishes.append(Use(peer))
        elif member.suspect:  # in use before the network was away
            self._ping(peer, member)

    def _replace(self, peer: PeerId, outcome: Outcome, now: float) -> None:
        del self._members[peer]
        self._remember(peer, now)
        self.counters.replaced += 1
        place = len(self._wishes)
        before = set(self._members)
        self._fill(now)
        new = next((member for member in self._members if member not in before), None)
        self._wishes.insert(place, Replace(peer, new, outcome))

    def _fill(self, now: float) -> None:
        """Take in as many nodes as are missing, and see that those without a connection are dialed."""
        missing = self.policy.size - len(self._members)
        if missing > 0:
            for peer in self._choose(missing, now):
                member = self._members[peer] = _Member()
                missing -= 1
                if peer in self._ready:
                    self._take_into_use(peer, member, now)
        if missing > 0 and now >= self._discover_at and not self._offline:
            self._discover_at = now + self.policy.discover_every_s
            self.counters.discoveries += 1
            self._wishes.append(Discover(missing))
        for peer, member in self._members.items():
            if not member.ready and not member.dialing and self._rested_at(peer) <= now:
                member.dialing = True
                self._wishes.append(Connect(peer))

    def _choose(self, count: int, now: float) -> list[PeerId]:
        """The best that are offered; those that failed lately only where there is nobody else."""
        free = [peer for peer in self._offered if peer not in self._members]
        forget = now - self.policy.forget_s
        fresh = [peer for peer in free if (failed := self._failed.get(peer)) is None or failed.at <= forget]
        chosen = fresh[:count]
        if len(chosen) < count:
            taken = set(fresh)
            rested = [peer for peer in free if peer not in taken and self._rested_at(peer) <= now]
            rested.sort(key=lambda peer: (self._failed[peer].failures, self._failed[peer].at))
            chosen += rested[: count - len(chosen)]
        return chosen

    def _waits(self, peer: PeerId) -> bool:
        member = self._members[peer]
        return not member.ready and not member.dialing

    def _remember(self, peer: PeerId, now: float) -> None:
        failed = self._failed.setdefault(peer, _Failed())
        failed.failures += 1
        failed.at = now
        self._failed.move_to_end(peer)
        if len(self._failed) > self.policy.remember:
            self._failed.popitem(last=False)

    def _rested_at(self, peer: PeerId) -> float:
        failed = self._failed.get(peer)
        if failed is None:
            return -math.inf
        policy = self.policy
        doublings = min(failed.failures - 1, 30)
        return failed.at + min(policy.longest_rest_s, policy.rest_s * 2.0**doublings)
