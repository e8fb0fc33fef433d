"""What the channels of a node share: the file they are kept in, the rate limit, and who sent what."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from pywaku.channels.ratelimit import RateLimiter
from pywaku.channels.ratequeue import Transmission
from pywaku.channels.ratevalues import Charges, Dropped, RateLimitConfig, RateStep
from pywaku.channels.rows import CHARGES, RowChange, pack, unpack
from pywaku.channels.store import NODE_SCOPE, ChannelStore, MemoryChannelStore
from pywaku.errors import DecodeError, RecordError
from pywaku.messaging.event import Event
from pywaku.messaging.node import Node
from pywaku.messaging.record import MessageRecord, RequestId
from pywaku.tasks import open_service_nursery

logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 30.0
_LOOK_AT_THE_CLOCK_S: Final = 10.0  # it may jump

OnOutcome = Callable[[MessageRecord, str], None]
"""Hears what the node says of a message, once: `propagated`, or `error`."""


@dataclass(frozen=True, slots=True)
class ChannelsConfig:
    """What holds for all channels of a node.

    `path` is the file they are kept in; None keeps them in memory, and forgets them with the node.
    """

    path: Path | str | None
    rate_limit: RateLimitConfig


@dataclass(slots=True)
class _Waiting:
    """A transmission that waits for its turn."""

    go: Callable[[], None]
    drop: Callable[[Dropped], None]


class ChannelHub:
    """Made by `open_hub`, once for a node."""

    def __init__(
        self,
        node: Node,
        config: ChannelsConfig,
        store: ChannelStore,
        limiter: RateLimiter,
        nursery: trio.Nursery,
    ) -> None:
        self.node = node
        self.nursery = nursery
        """Where the channels' tasks run."""
        self.config = config
        self.store = store
        self.limiter = limiter
        self.scopes: set[str] = set()
        """The channels that are open, each once."""
        self.endings: dict[str, Callable[[], Awaitable[None]]] = {}
        """What each of them does when the node is closed."""
        self._clock = node.parts.environment.clock
        self._waiting: dict[tuple[str, str], _Waiting] = {}
        self._requests: dict[RequestId, OnOutcome] = {}  # no more than the node has pending
        self._released: list[Callable[[], None]] = []
        self._stirred = trio.Event()
        self._unsaved: Charges | None = None

    # Sending

    def request(
        self, transmission: Transmission, go: Callable[[], None], drop: Callable[[Dropped], None]
    ) -> None:
        """Have `go` called when this may be sent, or `drop` if it may not."""
        key = (transmission.channel_id, transmission.key)
        self._waiting.setdefault(key, _Waiting(go, drop))
        self._follow(self.limiter.request(transmission, self._now()))

    def withdraw(self, channel_id: str) -> None:
        """A channel is closed: what waits for its turn need not be sent."""
        self.limiter.withdraw_channel(channel_id)
        for key in [key for key in self._waiting if key[0] == channel_id]:
            del self._waiting[key]

    def withdraw_one(self, channel_id: str, key: str) -> None:
        """One transmission is not needed any more."""
        if self._waiting.pop((channel_id, key), None) is not None:
            self.limiter.withdraw(channel_id, key)

    def expect(self, request_id: RequestId, on_outcome: OnOutcome) -> None:
        """Hear what becomes of a message given to the node."""
        self._requests[request_id] = on_outcome

    def _follow(self, step: RateStep) -> None:
        for dropped in step.dropped:
            waiting = self._waiting.pop((dropped.transmission.channel_id, dropped.transmission.key), None)
            if waiting is not None:
                waiting.drop(dropped)
        for transmission in step.send:
            waiting = self._waiting.pop((transmission.channel_id, transmission.key), None)
            if waiting is not None:
                self._released.append(waiting.go)
        if step.charges is not None:
            self._unsaved = step.charges
        if self._unsaved is None:  # else what was charged for is released when that is saved
            self._release()
        self._stirred.set()

    def _release(self) -> None:
        released, self._released = self._released, []
        for go in released:
            go()

    def _now(self) -> float:
        return self._clock() / 1e9

    # What the node says

    def propagated(self, event: Event[MessageRecord]) -> None:
        """A message has been taken by a peer, now or (`message:sent`) in an earlier life of the node."""
        record = event.detail
        heard = self._requests.pop(record.request_id or "", None)
        if heard is not None:
            heard(record, "propagated")

    def failed(self, event: Event[MessageRecord]) -> None:
        """A message was given up; perhaps peers have taken it, but stores do not have it."""
        record = event.detail
        heard = self._requests.pop(record.request_id or "", None)
        if heard is not None:
            heard(record, "propagated" if record.propagated else "error")

    # Live

    async def run(self) -> None:
        """Release what waits when it may be sent; charges are saved before."""
        while True:
            self._stirred = trio.Event()
            if self._unsaved is not None:
                await self._save()
            self._follow(self.limiter.tick(self._now()))
            if self._unsaved is not None:
                continue
            wait = min(max(0.0, self.limiter.next_tick(self._now()) - self._now()), _LOOK_AT_THE_CLOCK_S)
            self._stirred = trio.Event()
            with trio.move_on_after(wait if len(self._waiting) else float("inf")):
                await self._stirred.wait()

    async def _save(self) -> None:
        delay = _RETRY_S
        while (charges := self._unsaved) is not None:
            row = pack(charges.epoch_period_sec, charges.epochs, charges.last_at)
            try:
                await self.store.apply(NODE_SCOPE, [RowChange(CHARGES, "", row)])
            except RecordError as error:
                logger.warning("rate limit charges not saved, nothing is sent meanwhile: %s", error)
                await trio.sleep(delay)
                delay = min(2 * delay, _LONGEST_RETRY_S)
                continue
            if self._unsaved is charges:
                self._unsaved = None
        self._release()


@asynccontextmanager
async def open_hub(node: Node, config: ChannelsConfig) -> AsyncGenerator[ChannelHub]:
    """The channels of a node."""
    store = await _open_store(node, config)
    events = node.events
    endings: dict[str, Callable[[], Awaitable[None]]] = {}
    try:
        limiter = RateLimiter(config.rate_limit, await _charges(store))
        async with open_service_nursery() as nursery:
            hub = ChannelHub(node, config, store, limiter, nursery)
            endings = hub.endings
            events.add_event_listener("message:propagated", hub.propagated)
            events.add_event_listener("message:sent", hub.propagated)
            events.add_event_listener("message:error", hub.failed)
            nursery.start_soon(hub.run)
            try:
                yield hub
            finally:
                events.remove_event_listener("message:propagated", hub.propagated)
                events.remove_event_listener("message:sent", hub.propagated)
                events.remove_event_listener("message:error", hub.failed)
    finally:
        try:
            async with trio.open_nursery() as nursery:
                for end in tuple(endings.values()):
                    nursery.start_soon(end)
        finally:
            await store.close()


async def _open_store(node: Node, config: ChannelsConfig) -> ChannelStore:
    if config.path is None:
        return MemoryChannelStore()
    from pywaku.channels.sqlite_store import open_channel_store

    return await open_channel_store(config.path, run_blocking=node.parts.environment.run_blocking)


async def _charges(store: ChannelStore) -> Charges | None:
    for row in await store.load(NODE_SCOPE):
        if row.table == CHARGES:
            try:
                period, epochs, last_at = unpack(row.value)
                return Charges(int(period), tuple((int(epoch), int(used)) for epoch, used in epochs), last_at)
            except (TypeError, ValueError) as error:
                raise DecodeError(f"channels {store.name}: the saved rate limit is damaged") from error
    return None
