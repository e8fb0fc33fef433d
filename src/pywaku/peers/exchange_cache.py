"""The records that peer exchange gives away, as a plain table (34/WAKU2-PEER-EXCHANGE)."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pywaku.errors import InvalidInput
from pywaku.ids import PeerId
from pywaku.wire.enr import Enr


@dataclass(frozen=True, slots=True)
class CacheLimits:
    """How large the cache is, and how fast it changes (Exchange Peer Cache Size).

    It holds `size` records, or a tenth of the requests of the last cycle, up to `longest`. In a cycle of
    `cycle_s` every record is replaced, as far as there are others.
    """

    size: int = 60
    longest: int = 1000
    cycle_s: float = 3600.0

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.longest or self.cycle_s <= 0:
            raise InvalidInput("a cache of records takes 1 ≤ size ≤ longest and cycle_s > 0")


class ExchangeCache:
    """Records, each with the time it came; the oldest are replaced first."""

    def __init__(self, limits: CacheLimits, rng: random.Random) -> None:
        self.limits = limits
        self.replaced = 0
        self._rng = rng
        self._records: OrderedDict[PeerId, tuple[Enr, float]] = OrderedDict()  # the oldest first
        self._requests = 0
        self._capacity = limits.size
        self._cycle_ends = -1.0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def capacity(self) -> int:
        """Records that it holds at most, at present."""
        return self._capacity

    def refresh(self, known: Iterable[Enr], now: float) -> None:
        """Take over what is known by now: fill up, bring up to date, replace the oldest.

        What is no longer known is given away no longer.
        """
        self._adapt(now)
        offered = {record.peer_id: record for record in known}
        for peer in [peer for peer in self._records if peer not in offered]:
            del self._records[peer]
        for peer, (record, since) in self._records.items():
            if offered[peer].seq > record.seq:
                self._records[peer] = offered[peer], since
        fresh = [record for peer, record in offered.items() if peer not in self._records]
        self._rng.shuffle(fresh)
        while len(self._records) > self._capacity:
            self._records.popitem(last=False)
        for record in fresh:
            if len(self._records) >= self._capacity:
                oldest, (_, since) = next(iter(self._records.items()))
                if now - since < self.limits.cycle_s:
                    break
                del self._records[oldest]
                self.replaced += 1
            # Those that come together are not all to go together.
            self._records[record.peer_id] = record, now - self._rng.random() * self.limits.cycle_s / 2
        self._records = OrderedDict(sorted(self._records.items(), key=lambda item: item[1][1]))

    def sample(self, count: int, exclude: Collection[PeerId] = ()) -> list[Enr]:
        """Some records by chance, up to `count`, none of these peers."""
        self._requests += 1
        usable = [record for peer, (record, _) in self._records.items() if peer not in exclude]
        return self._rng.sample(usable, min(count, len(usable)))

    def _adapt(self, now: float) -> None:
        """After each cycle the size follows from the requests in it."""
        if now >= self._cycle_ends:
            limits = self.limits
            self._capacity = min(limits.longest, max(limits.size, self._requests // 10))
            self._requests = 0
            self._cycle_ends = now + limits.cycle_s
