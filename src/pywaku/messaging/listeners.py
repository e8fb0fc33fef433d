"""Where events go: handlers, and streams with a bound."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, cast

import trio

from pywaku.errors import InvalidInput
from pywaku.messaging.event import Event
from pywaku.protocols.relay.failures import Failures

logger = logging.getLogger(__name__)

HANDLER_BACKLOG: Final = 1000
"""How many events may wait for one asynchronous handler; what comes while it is full is dropped."""
_CHECKPOINT_EVERY: Final = 32  # a consumer that never waits lets others run after as many events

D = TypeVar("D")
EventHandler = Callable[[Event[D]], object]
"""Called with an event; what it returns is awaited if it can be."""


@dataclass(slots=True)
class EventCounters:
    """What has happened since the events were opened; each number only grows."""

    dispatched: int = 0
    """Events that somebody wanted."""
    handler_errors: int = 0
    """What handlers have raised."""
    handler_dropped: int = 0
    """Events that an asynchronous handler missed because `HANDLER_BACKLOG` of them waited for it."""
    stream_dropped: int = 0
    """Events that a full stream missed."""
    nested_dropped: int = 0
    """Events that nobody heard of because handlers caused `NESTED_BACKLOG` of them at once."""


class EventStream(Generic[D]):
    """Events as they happen: `async for event in stream`, as an async context manager or until `close`.

    At most `capacity` events wait. When it is full, the newest event is dropped and counted in `dropped`.
    After `close`, or when the node closes, the iteration ends with the events that waited. Several tasks may
    share one stream; each event goes to one of them.
    """

    def __init__(
        self, capacity: int, leave: Callable[[EventStream[D]], None], *, ended: bool = False
    ) -> None:
        if capacity < 1:
            raise InvalidInput(f"capacity: is at least 1, not {capacity}")
        self.capacity = capacity
        self.dropped = 0
        """Events that found the stream full."""
        self._leave = leave
        self._queue: deque[Event[D]] = deque()
        self._closed = ended
        self._taken = 0
        self._waiting = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return len(self._queue)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event[D]:
        self._taken += 1
        if self._taken % _CHECKPOINT_EVERY == 0:
            await trio.lowlevel.checkpoint()
        while not self._queue:
            if self._closed:
                raise StopAsyncIteration
            await self._waiting.park()
        return self._queue.popleft()

    def close(self) -> None:
        """Take no further events."""
        if not self._closed:
            self._closed = True
            self._waiting.unpark_all()
            self._leave(self)

    async def aclose(self) -> None:
        """What `close` does, as a checkpoint."""
        self.close()
        await trio.lowlevel.checkpoint()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def offer(self, event: Event[D]) -> bool:
        """Take an event, if there is room (`Events` calls this)."""
        if len(self._queue) >= self.capacity:
            self.dropped += 1
            return False
        self._queue.append(event)
        if self._waiting:
            self._waiting.unpark()
        return True


class Listener:
    """One handler of one name. What it returns to be awaited is awaited in order, one after the other."""

    __slots__ = ("_counters", "_failures", "_nursery", "_running", "_waiting", "active", "handler", "name")

    def __init__(
        self, name: str, handler: EventHandler[Any], counters: EventCounters, nursery: trio.Nursery
    ) -> None:
        self.name = name
        self.handler = handler
        self.active = True
        self._counters = counters
        self._nursery = nursery
        self._failures = Failures()
        self._waiting: deque[Awaitable[object]] = deque()
        self._running = False

    def call(self, event: Event[Any]) -> None:
        """Hand it an event. What it raises is logged and ignored."""
        try:
            result = self.handler(event)
        except Exception as error:
            self._failed(error)
            return
        if result is not None and isinstance(result, Awaitable):
            self._queue(cast("Awaitable[object]", result))

    def end(self) -> None:
        """Call it no more, and forget what waits for it."""
        self.active = False
        while self._waiting:
            _forget(self._waiting.popleft())

    def _queue(self, awaitable: Awaitable[object]) -> None:
        if not self.active:  # it has just removed itself, or closed the node
            _forget(awaitable)
        elif len(self._waiting) >= HANDLER_BACKLOG:
            self._counters.handler_dropped += 1
            _forget(awaitable)
        else:
            self._waiting.append(awaitable)
            if not self._running:
                self._running = True
                self._nursery.start_soon(self._run)

    async def _run(self) -> None:
        try:
            while self._waiting:
                awaitable = self._waiting.popleft()
                try:
                    await awaitable
                except Exception as error:
                    self._failed(error)
        finally:
            self._running = False

    def _failed(self, error: Exception) -> None:
        self._counters.handler_errors += 1
        self._failures.log(logger, f"handler of {self.name}", error)


def _forget(awaitable: object) -> None:
    """Drop something that will not be awaited; a coroutine would complain of that."""
    if isinstance(awaitable, Coroutine):
        cast("Coroutine[Any, Any, Any]", awaitable).close()
