"""How much traffic a shard carries, and the free-bandwidth rule that follows from it (64/WAKU2-NETWORK)."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

_BUCKETS: Final = 20


class BandwidthMeter:
    """Bits per second over a sliding window, kept in a few buckets."""

    __slots__ = ("_bucket_s", "_counts", "_current", "_sum", "_window_s")

    def __init__(self, window_s: float = 10.0) -> None:
        self._window_s = window_s
        self._bucket_s = window_s / _BUCKETS
        self._counts = [0] * _BUCKETS
        self._current = 0
        self._sum = 0

    def add(self, size: int, now: float) -> None:
        """Count `size` bytes at `now`."""
        self._advance(now)
        self._counts[self._current % _BUCKETS] += size
        self._sum += size

    def bits_per_second(self, now: float) -> float:
        """The mean over the window that ends at `now`."""
        self._advance(now)
        return self._sum * 8 / self._window_s

    def _advance(self, now: float) -> None:
        bucket = int(now / self._bucket_s)
        passed = bucket - self._current
        if passed <= 0:
            return
        for step in range(1, min(passed, _BUCKETS) + 1):
            index = (self._current + step) % _BUCKETS
            self._sum -= self._counts[index]
            self._counts[index] = 0
        self._current = bucket


class FreeBandwidth:
    """The rule "Free bandwidth exceeded": without a proof, a message passes only while its shard has room.

    Utilization is what the shard really carries, with and without proofs: messages that were accepted. What
    was ignored or rejected does not count. Topics beyond `max_topics` replace the one longest not heard of.
    """

    __slots__ = ("_limit", "_max_topics", "_meters", "_window_s")

    def __init__(
        self, limit_bits_per_s: float = 1_000_000, *, window_s: float = 10.0, max_topics: int = 1024
    ) -> None:
        self._limit = limit_bits_per_s
        self._window_s = window_s
        self._max_topics = max_topics
        self._meters: OrderedDict[str, BandwidthMeter] = OrderedDict()

    def has_room(self, topic: str, now: float) -> bool:
        """Is the shard below the limit (one that equals it is not)?"""
        meter = self._meters.get(topic)
        return meter is None or meter.bits_per_second(now) < self._limit

    def carried(self, topic: str, size: int, now: float) -> None:
        """A message of `size` bytes was accepted on `topic`."""
        meter = self._meters.get(topic)
        if meter is None:
            if len(self._meters) >= self._max_topics:
                self._meters.popitem(last=False)
            meter = self._meters[topic] = BandwidthMeter(self._window_s)
        else:
            self._meters.move_to_end(topic)
        meter.add(size, now)
