"""How many messages a node sends in an epoch, over all of its channels (RELIABLE-CHANNEL-API, Rate limiting).

Regular messages, segments and retries wait for the next epoch once the limit is reached, retries from the
threshold on. Ephemeral messages, and sync messages, are dropped from the threshold on. Times are seconds of
Unix time, for epochs are counted in it (17/WAKU2-RLN-RELAY); the clock may jump, in either direction.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

from pywaku.channels.ratequeue import Kind, RateQueue, Transmission
from pywaku.channels.ratevalues import (
    Charges,
    Delayed,
    Dropped,
    NodeLimit,
    RateCounters,
    RateLimitConfig,
    RateStep,
    Reason,
    Usage,
)

_REMEMBERED_EPOCHS: Final = 16
"""More than one only because a clock may go back, into epochs in which messages were sent already."""


class RateLimiter:
    """Says what may be sent when. What waits is not stored: it is in SDS's outgoing buffer, which is."""

    def __init__(self, config: RateLimitConfig | None = None, charges: Charges | None = None) -> None:
        self.config = config or RateLimitConfig()
        self.counters = RateCounters()
        self._node_limit: NodeLimit | None = None
        self._queue = RateQueue()
        self._period = charges.epoch_period_sec if charges else self.config.epoch_period_sec
        self._used: OrderedDict[int, int] = OrderedDict(charges.epochs if charges else ())
        self._last_at = charges.last_at if charges else None

    @property
    def limit(self) -> int | None:
        """Messages in an epoch: the node's limit or the configured one, if lower; None if neither is on."""
        configured = self.config.messages_per_epoch if self.config.enabled else None
        node = self._node_limit
        if node is None:
            return configured
        if configured is None or node.epoch_period_sec != self.config.epoch_period_sec:
            return node.messages_per_epoch
        return min(configured, node.messages_per_epoch)

    def usage(self, now: float) -> Usage:
        """How far the limit is used."""
        epoch = self._epoch(now)
        return Usage(
            self.limit, self._used.get(epoch, 0), len(self._queue), float((epoch + 1) * self._period)
        )

    def request(self, transmission: Transmission, now: float) -> RateStep:
        """May this be sent? The answer has it in one of its lists, unless it waits already."""
        step = RateStep([], [], [], None)
        epoch = self._epoch(now)
        if not transmission.kind.waits:
            reason = self._no_room_to_spare(epoch)
            if reason is None:
                self._send(step, transmission, epoch, now)
            else:
                self.counters.ephemeral_dropped += transmission.kind is Kind.EPHEMERAL
                self.counters.sync_dropped += transmission.kind is Kind.SYNC
                step.dropped.append(Dropped(transmission, reason))
            return self._done(step)
        if transmission in self._queue:
            self.counters.repeated += 1
            return step
        self._release(step, now)
        hindrance = self._hindrance(transmission.kind, epoch, now)
        if hindrance is None:  # what waits still has less right, or it would have been hindered likewise
            self._send(step, transmission, epoch, now)
            return self._done(step)
        if len(self._queue) >= self.config.max_queued:
            self.counters.queue_full += 1
            displaced = self._queue.displace_for(transmission.kind)
            step.dropped.append(Dropped(displaced or transmission, Reason.QUEUE_FULL))
            if displaced is None:
                return self._done(step)
        self._queue.push(transmission)
        self.counters.delayed += 1
        step.delayed.append(Delayed(transmission, hindrance, self.next_tick(now)))
        return self._done(step)

    def tick(self, now: float) -> RateStep:
        """Time has passed: what may be sent now? See `next_tick`."""
        step = RateStep([], [], [], None)
        self._release(step, now)
        return self._done(step)

    def next_tick(self, now: float) -> float:
        """When something that waits may be sent; infinity if nothing waits.

        By the clock as it is: who sleeps until then looks at the clock now and then, for it may jump.
        """
        kind = self._queue.best
        if kind is None:
            return math.inf
        epoch = self._epoch(now)
        match self._hindrance(kind, epoch, now):
            case None:
                return now
            case Reason.SPACING:
                return self._spaced_until(now)
            case _:
                return max(float((epoch + 1) * self._period), self._spaced_until(now))

    def withdraw(self, channel_id: str, key: str) -> bool:
        """It need not be sent any more (acknowledged meanwhile); did it wait?"""
        found = self._queue.discard(channel_id, key)
        self.counters.withdrawn += found
        return found

    def withdraw_channel(self, channel_id: str) -> int:
        """The channel is closed; how much of it waited?"""
        found = self._queue.discard_channel(channel_id)
        self.counters.withdrawn += found
        return found

    def node_limit_changed(self, node_limit: NodeLimit | None, now: float) -> RateStep:
        """The node attaches proofs within this limit from now on, or (None) no longer."""
        self._node_limit = node_limit
        step = RateStep([], [], [], None)
        epoch = self._epoch(now)
        if node_limit is not None and node_limit.used > self._used.get(epoch, 0):
            self._charge(epoch, node_limit.used)
            step = step._replace(charges=self._charges())
        self._release(step, now)
        return self._done(step, charged=step.charges is not None)

    # Within

    def _epoch(self, now: float) -> int:
        """The epoch; where its length has changed, what was sent in any that overlaps counts for this one."""
        node = self._node_limit
        period = self.config.epoch_period_sec if node is None else node.epoch_period_sec
        epoch = int(now // period)
        if period != self._period:
            start, end, old = epoch * period, (epoch + 1) * period, self._period
            carried = sum(
                used
                for number, used in self._used.items()
                if number * old < end and (number + 1) * old > start
            )
            self._used = OrderedDict({epoch: carried} if carried else {})
            self._period = period
        if self._last_at is not None and self._last_at > now:
            self._last_at = now  # the clock went back: one interval from now, not from then
        return epoch

    def _approached(self, used: int) -> bool:
        limit = self.limit
        return limit is not None and used >= self.config.approach_threshold * limit

    def _no_room_to_spare(self, epoch: int) -> Reason | None:
        """Why what cannot wait is not sent: what does wait comes first, and is counted as if it were sent."""
        used, limit = self._used.get(epoch, 0), self.limit
        if limit is not None and used >= limit:
            return Reason.RATE_LIMIT_REACHED
        return Reason.RATE_LIMIT_APPROACHED if self._approached(used + len(self._queue)) else None

    def _hindrance(self, kind: Kind, epoch: int, now: float) -> Reason | None:
        """Why what can wait has to, even if nothing waited before it."""
        used, limit = self._used.get(epoch, 0), self.limit
        if limit is None:
            return None
        if used >= limit:
            return Reason.RATE_LIMIT_REACHED
        if kind is Kind.RETRY and self._approached(used):
            return Reason.RATE_LIMIT_APPROACHED
        return Reason.SPACING if now < self._spaced_until(now) else None

    def _spaced_until(self, now: float) -> float:
        limit = self.limit
        if not self.config.space_evenly or self._last_at is None or not limit:
            return now
        return self._last_at + self._period / limit

    def _release(self, step: RateStep, now: float) -> None:
        epoch = self._epoch(now)
        while (kind := self._queue.best) is not None and self._hindrance(kind, epoch, now) is None:
            self._send(step, self._queue.pop(), epoch, now)

    def _send(self, step: RateStep, transmission: Transmission, epoch: int, now: float) -> None:
        self.counters.sent += 1
        step.send.append(transmission)
        if self.limit is not None:
            self._charge(epoch, self._used.get(epoch, 0) + 1)
            self._last_at = now

    def _charge(self, epoch: int, used: int) -> None:
        self._used[epoch] = used
        self._used.move_to_end(epoch)
        if len(self._used) > _REMEMBERED_EPOCHS:
            self._used.popitem(last=False)

    def _charges(self) -> Charges:
        return Charges(self._period, tuple(self._used.items()), self._last_at)

    def _done(self, step: RateStep, *, charged: bool = False) -> RateStep:
        charged = charged or (bool(step.send) and self.limit is not None)
        return step._replace(charges=self._charges()) if charged else step
