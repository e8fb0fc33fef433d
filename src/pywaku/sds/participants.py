"""Who was heard in a channel, and what each has acknowledged."""

from __future__ import annotations

from pywaku.sds.changes import Rows, Touch, pack, unpack
from pywaku.sds.clock import Clock
from pywaku.sds.types import Participant


class Heard:
    """What is known of somebody else."""

    __slots__ = ("acknowledged", "bloom_lamport", "heard_ms", "lamport", "messages", "order")

    def __init__(self) -> None:
        self.order = 0
        self.heard_ms = 0
        self.lamport = 0
        self.messages = 0
        self.acknowledged: tuple[int, str] | None = None
        self.bloom_lamport = -1
        """The timestamp of its newest bloom filter that was looked at: each counts once."""


class Participants:
    """At most `limit`; who was not heard for the longest time is forgotten first."""

    __slots__ = ("_clock", "_heard", "_limit", "_touch", "evicted")

    def __init__(self, limit: int, clock: Clock, touch: Touch) -> None:
        self._limit = limit
        self._clock = clock
        self._touch = touch
        self._heard: dict[str, Heard] = {}  # who was heard last is last
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._heard)

    def hear(self, sender_id: str, lamport: int, now_ms: int) -> Heard:
        """A message of a participant has come."""
        heard = self._heard.pop(sender_id, None)
        if heard is None:
            heard = Heard()
            if len(self._heard) >= self._limit:
                self._evict()
        self._heard[sender_id] = heard
        heard.order = self._clock.next_order()
        heard.heard_ms = now_ms
        heard.lamport = max(heard.lamport, lamport)
        heard.messages += 1
        self._touch(sender_id)
        return heard

    def _evict(self) -> None:
        oldest = next(iter(self._heard))
        del self._heard[oldest]
        self._touch(oldest)
        self.evicted += 1

    def all(self) -> tuple[Participant, ...]:
        """All of them, who was heard last first."""
        return tuple(
            Participant(
                sender_id,
                heard.heard_ms,
                heard.lamport,
                heard.messages,
                None if heard.acknowledged is None else heard.acknowledged[1],
                0 if heard.acknowledged is None else heard.acknowledged[0],
            )
            for sender_id, heard in reversed(self._heard.items())
        )

    def record(self, key: str) -> bytes | None:
        """A row of the saved state."""
        heard = self._heard.get(key)
        if heard is None:
            return None
        return pack(
            heard.order,
            heard.heard_ms,
            heard.lamport,
            heard.messages,
            heard.bloom_lamport,
            heard.acknowledged,
        )

    def load(self, rows: Rows) -> None:
        """Take the saved state."""
        for sender_id, values in sorted(
            ((key, unpack(row)) for key, row in rows.items()), key=lambda item: item[1][0]
        ):
            heard = self._heard[sender_id] = Heard()
            heard.order, heard.heard_ms, heard.lamport, heard.messages, heard.bloom_lamport, last = values
            heard.acknowledged = None if last is None else (last[0], last[1])
        while len(self._heard) > self._limit:
            self._evict()
