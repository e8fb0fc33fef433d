"""Who hears of what happens: listeners, and streams of events (MESSAGING-API, Event Source)."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, overload

import trio

from pywaku.errors import InvalidInput
from pywaku.messaging.event import (
    EVENT_NAMES,
    ContentTopicHealthEventName,
    Detail,
    Event,
    EventName,
    HealthEventName,
    MessageEventName,
    ShardHealthEventName,
    event_of_health,
    names_of_change,
)
from pywaku.messaging.health import ContentTopicHealthChange, HealthChange, HealthStatus, ShardHealthChange
from pywaku.messaging.listeners import EventCounters, EventHandler, EventStream, Listener
from pywaku.messaging.record import MessageRecord
from pywaku.tasks import open_service_nursery

NESTED_BACKLOG: Final = 10_000
"""How many events may happen while handlers of one are called; what comes then is dropped."""


class Events:
    """Tells those who listen what has happened. Made by `open_events`.

    An event reaches handlers and streams in the order in which they were added, and each of them hears of
    events in the order in which they happened: what a handler causes is dispatched after the event at hand.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self.counters = EventCounters()
        self._nursery = nursery
        self._listeners: dict[str, tuple[Listener, ...]] = {}
        self._streams: dict[EventStream[Any], None] = {}
        self._queue: deque[Event[Detail]] = deque()
        self._dispatching = False
        self._closed = False

    @overload
    def add_event_listener(self, name: MessageEventName, handler: EventHandler[MessageRecord]) -> None: ...
    @overload
    def add_event_listener(self, name: HealthEventName, handler: EventHandler[HealthStatus]) -> None: ...
    @overload
    def add_event_listener(
        self, name: ContentTopicHealthEventName, handler: EventHandler[ContentTopicHealthChange]
    ) -> None: ...
    @overload
    def add_event_listener(
        self, name: ShardHealthEventName, handler: EventHandler[ShardHealthChange]
    ) -> None: ...
    def add_event_listener(self, name: EventName, handler: EventHandler[Any]) -> None:
        """Call `handler` with each event of that name; one that is there already is not added again.

        What a handler raises is logged and ignored. Where it is asynchronous, it runs in the node's
        background, for one event after the other. A name that is not supported is ignored.
        """
        if not callable(handler):
            raise InvalidInput(f"handler: is a function of one event, not {handler!r}")
        known = self._listeners.get(name, ())
        if name in EVENT_NAMES and all(listener.handler != handler for listener in known):
            self._add(name, handler)

    def remove_event_listener(self, name: EventName, handler: EventHandler[Any]) -> None:
        """Call `handler` no more; also not for events that wait for it. Ignored if it is not there."""
        known = self._listeners.get(name, ())
        for listener in known:
            if listener.handler == handler:
                self._remove(listener)

    @overload
    def stream(  # pyright: ignore[reportOverlappingOverload] - the most exact one is the first
        self, name: MessageEventName, /, *names: MessageEventName, capacity: int = 1000
    ) -> EventStream[MessageRecord]: ...
    @overload
    def stream(
        self, name: HealthEventName, /, *names: HealthEventName, capacity: int = 1000
    ) -> EventStream[HealthStatus]: ...
    @overload
    def stream(
        self, name: ContentTopicHealthEventName, /, *names: ContentTopicHealthEventName, capacity: int = 1000
    ) -> EventStream[ContentTopicHealthChange]: ...
    @overload
    def stream(
        self, name: ShardHealthEventName, /, *names: ShardHealthEventName, capacity: int = 1000
    ) -> EventStream[ShardHealthChange]: ...
    @overload
    def stream(self, *names: EventName, capacity: int = 1000) -> EventStream[Detail]: ...
    def stream(self, *names: EventName, capacity: int = 1000) -> EventStream[Any]:
        """The events of these names, or of all, as an async iterator.

        Raises `InvalidInput` for a name that is not supported: such a stream would never yield.
        """
        for name in names:
            if name not in EVENT_NAMES:
                raise InvalidInput(f"name: {name!r} is none of {', '.join(sorted(EVENT_NAMES))}")
        listeners: list[Listener] = []

        def leave(ending: EventStream[Any]) -> None:
            self._streams.pop(ending, None)
            for listener in listeners:
                self._remove(listener)

        stream: EventStream[Any] = EventStream(capacity, leave, ended=self._closed)

        def offer(event: Event[Any]) -> None:
            if not stream.offer(event):
                self.counters.stream_dropped += 1

        if not self._closed:
            for name in dict.fromkeys(names or sorted(EVENT_NAMES)):
                listeners.append(self._add(name, offer))
            self._streams[stream] = None
        return stream

    def wanted(self, name: EventName) -> bool:
        """Would anybody hear of an event of that name?"""
        return name in self._listeners

    def emit(self, event: Event[Detail]) -> None:
        """Tell all who listen; handlers that are not asynchronous have been called when it returns."""
        if event.name in self._listeners:
            self._queue_up(event)
            self._dispatch()

    def emit_change(self, before: MessageRecord | None, after: MessageRecord, at_ns: int) -> None:
        """Tell of a record that changed, once the change is stored; next to free while nobody listens."""
        listeners = self._listeners
        if not listeners:
            return
        for name in names_of_change(before, after):
            if name in listeners:
                self._queue_up(Event(name, after, at_ns))
        self._dispatch()

    def emit_health(self, changes: Iterable[HealthChange], at_ns: int) -> None:
        """Tell of changes of health."""
        for change in changes:
            event = event_of_health(change, at_ns)
            if event.name in self._listeners:
                self._queue_up(event)
        self._dispatch()

    def close(self) -> None:
        """Tell nobody any more, and end the streams; `open_events` does this."""
        self._closed = True
        self._queue.clear()
        for stream in list(self._streams):
            stream.close()
        for listeners in list(self._listeners.values()):
            for listener in listeners:
                self._remove(listener)

    def _queue_up(self, event: Event[Detail]) -> None:
        if len(self._queue) < NESTED_BACKLOG:
            self._queue.append(event)
        else:
            self.counters.nested_dropped += 1

    def _dispatch(self) -> None:
        if self._dispatching:  # a handler caused it: it gets its turn in the loop below
            return
        self._dispatching = True
        try:
            while self._queue:
                event = self._queue.popleft()
                self.counters.dispatched += 1
                for listener in self._listeners.get(event.name, ()):
                    if listener.active:
                        listener.call(event)
        finally:
            self._dispatching = False

    def _add(self, name: str, handler: EventHandler[Any]) -> Listener:
        listener = Listener(name, handler, self.counters, self._nursery)
        if not self._closed:
            self._listeners[name] = (*self._listeners.get(name, ()), listener)
        return listener

    def _remove(self, listener: Listener) -> None:
        listener.end()
        left = tuple(known for known in self._listeners.get(listener.name, ()) if known is not listener)
        if left:
            self._listeners[listener.name] = left
        else:
            self._listeners.pop(listener.name, None)


@asynccontextmanager
async def open_events() -> AsyncGenerator[Events]:
    """Events of a node; leaving it ends the streams and cancels the handlers that still run."""
    async with open_service_nursery() as nursery:
        events = Events(nursery)
        try:
            yield events
        finally:
            events.close()
