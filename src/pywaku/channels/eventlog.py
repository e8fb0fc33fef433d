"""Events of a channel on their way to the application: those that matter are kept until they were read."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self
from weakref import ref

import trio

from pywaku.channels.eventrows import decode_events, encode_events, groups_of
from pywaku.channels.events import EVENT_NAMES, ChannelEvent, EventName, MessageReceived
from pywaku.channels.rows import EVENTS, Row, RowChange
from pywaku.errors import DecodeError, InvalidInput
from pywaku.protocols.relay.failures import Failures

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 10_000
"""Received messages that wait to be read; beyond it none are taken in. So many final events are kept besides,
and events of progress wait in a stream that has no more entries than that; further ones are dropped."""
MAX_WAITING_BYTES: Final = 64 << 20
"""The same for received messages by their payloads: of the largest, three are as many."""
_CHECKPOINT_EVERY: Final = 32

EventListener = Callable[[ChannelEvent], None]


@dataclass(frozen=True, slots=True)
class _Entry:
    event: ChannelEvent
    row: str | None
    """Where it is kept; None for one of progress."""

    @property
    def holds_up(self) -> bool:
        """Is it one of those that no more are taken in for?"""
        return self.row is not None and isinstance(self.event, MessageReceived)

    @property
    def size(self) -> int:
        """The bytes of a payload that is kept until it was read."""
        return len(self.event.payload) if self.row and isinstance(self.event, MessageReceived) else 0


class _Line:
    """What waits for one stream. It outlives a stream that was dropped without being closed."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.queue: deque[_Entry] = deque()
        self.received = 0
        self.bytes = 0
        self.dropped = 0
        self.last: _Entry | None = None  # given out, and not done with
        self.closed = False
        self.waiting = trio.lowlevel.ParkingLot()

    def offer(self, entry: _Entry) -> bool:
        """Take an event, if there is room."""
        # More final ones than are kept wait only where another stream reads faster.
        room = MAX_WAITING if entry.row is None else 3 * MAX_WAITING
        if len(self.queue) >= room and not entry.holds_up:
            self.dropped += 1
            return False
        self.put(entry)
        return True

    def put(self, entry: _Entry) -> None:
        """Take an event."""
        self.queue.append(entry)
        self.received += entry.holds_up
        self.bytes += entry.size
        if self.waiting:
            self.waiting.unpark()

    def take(self) -> ChannelEvent:
        """The next event."""
        self.last = self.queue.popleft()
        self.received -= self.last.holds_up
        self.bytes -= self.last.size
        return self.last.event

    @property
    def crowded(self) -> bool:
        """Do too many received messages wait?"""
        return self.received >= MAX_WAITING or self.bytes >= MAX_WAITING_BYTES

    def end(self) -> None:
        """No further events come."""
        self.closed = True
        self.waiting.unpark_all()


class EventStream:
    """Events as they happen: `async for event in channel.events()`. Made by `ReliableChannel.events`."""

    def __init__(self, log: EventLog, line: _Line) -> None:
        self._log = log
        self._line = line
        self._taken = 0

    def __len__(self) -> int:
        return len(self._line.queue)

    @property
    def names(self) -> frozenset[str]:
        """The names of its events."""
        return self._line.names

    @property
    def dropped(self) -> int:
        """Events that found too many waiting."""
        return self._line.dropped

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChannelEvent:
        line = self._line
        self._log.done(line)
        self._taken += 1
        if self._taken % _CHECKPOINT_EVERY == 0:
            await trio.lowlevel.checkpoint()
        while not line.queue:
            if line.closed:
                raise StopAsyncIteration
            await line.waiting.park()
        return line.take()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._log.done(self._line)
        self.close()

    def close(self) -> None:
        """Hear no more; what was not read waits for the next one who asks."""
        if not self._line.closed:
            self._line.end()
            self._log.left(self._line)


class EventLog:
    """Hands events out. Those of messages received, and final ones, are rows until they were read."""

    def __init__(self, saved: Iterable[Row], on_read: Callable[[], None]) -> None:
        self.unkept = 0
        """Final events that were not kept because too many were not read."""
        self._on_read = on_read
        self._failures: dict[str, Failures] = {}  # of listeners, by name
        self._lines: list[tuple[ref[EventStream], _Line]] = []
        self._listeners: dict[str, list[EventListener]] = {}
        self._backlog: dict[str, list[_Entry]] = {}  # by row: what no stream or listener has heard
        self._kept: dict[str, int | None] = {}  # by row: the size of a received message; None: it is none
        self._kept_received = 0
        self._kept_bytes = 0
        self._done: list[RowChange] = []
        self._next = 0
        for row in sorted(saved, key=lambda row: row.key):
            if not (row.key.isascii() and row.key.isdecimal()):
                raise DecodeError(f"a saved event of a channel has no number, but {row.key!r}")
            self._next = int(row.key) + 1
            entries = [_Entry(event, row.key) for event in decode_events(row.value)]
            self._keep(row.key, entries[0].event)
            self._backlog[row.key] = entries

    @property
    def crowded(self) -> bool:
        """Do too many received messages wait to be read?"""
        return (
            self._kept_received >= MAX_WAITING
            or self._kept_bytes >= MAX_WAITING_BYTES
            or any(line.crowded for stream, line in self._lines if stream() is not None)
        )

    def stream(self, names: Iterable[EventName]) -> EventStream:
        """The events of these names, or all; first those that nobody has read yet."""
        wanted = frozenset(names) or EVENT_NAMES
        if unknown := wanted - EVENT_NAMES:
            raise InvalidInput(f"name: {min(unknown)!r} is none of {', '.join(sorted(EVENT_NAMES))}")
        self._let_go()
        line = _Line(wanted)
        stream = EventStream(self, line)
        self._lines.append((ref(stream), line))
        for entry in self._take_backlog(wanted):
            line.put(entry)
        return stream

    def listen(self, name: EventName, listener: EventListener) -> None:
        """Call `listener` with each event of a name; ignored where the name is unknown."""
        if not callable(listener):
            raise InvalidInput(f"listener: is a function of one event, not {listener!r}")
        if name in EVENT_NAMES:
            listeners = self._listeners.setdefault(name, [])
            if listener not in listeners:
                listeners.append(listener)
                self._let_go()
                for entry in self._take_backlog({name}):
                    self._call(listener, entry)
                    self.read(entry)

    def ignore(self, name: EventName, listener: EventListener) -> None:
        """Call it no more."""
        listeners = self._listeners.get(name, [])
        if listener in listeners:
            listeners.remove(listener)

    # Within the channel

    def rows(self, events: Sequence[ChannelEvent]) -> tuple[list[RowChange], list[_Entry]]:
        """The rows of events that matter, to be saved with their cause; and the entries to tell then."""
        changes: list[RowChange] = []
        entries: list[_Entry] = []
        for group in groups_of(events):
            value = encode_events(group)
            key: str | None = None
            received = isinstance(group[0], MessageReceived)
            if value is not None and not received and len(self._kept) - self._kept_received >= MAX_WAITING:
                self.unkept += 1
            elif value is not None:
                key = f"{self._next:020}"
                self._next += 1
                self._keep(key, group[0])
                changes.append(RowChange(EVENTS, key, value))
            entries += [_Entry(event, key) for event in group]
        return changes, entries

    def tell(self, entries: Iterable[_Entry]) -> None:
        """Hand events out, which are saved by now."""
        self._let_go()
        for entry in entries:
            name = entry.event.name
            heard = False
            for _, line in self._lines:
                if name in line.names and line.offer(entry):
                    heard = True
            called = tuple(self._listeners.get(name, ()))
            for listener in called:
                self._call(listener, entry)
            if called and not heard:
                self.read(entry)
            elif not heard and entry.row is not None and entry.row in self._kept:
                self._backlog.setdefault(entry.row, []).append(entry)

    def read(self, entry: _Entry) -> None:
        """An event was read: it need not be kept any more, by whichever of its names."""
        if entry.row is not None and entry.row in self._kept:
            size = self._kept.pop(entry.row)
            if size is not None:
                self._kept_received -= 1
                self._kept_bytes -= size
            self._backlog.pop(entry.row, None)
            self._done.append(RowChange(EVENTS, entry.row, None))
            self._on_read()

    def done(self, line: _Line) -> None:
        """Who asks for the next event, or leaves in peace, is done with the last."""
        last, line.last = line.last, None
        if last is not None:
            self.read(last)

    def take_changes(self) -> list[RowChange]:
        """The rows to delete."""
        done, self._done = self._done, []
        return done

    def left(self, line: _Line) -> None:
        """A stream has ended; what it has not read waits for the next."""
        self._lines = [each for each in self._lines if each[1] is not line]
        for entry in ([] if line.last is None else [line.last]) + list(line.queue):
            if entry.row is not None and entry.row in self._kept:
                self._backlog.setdefault(entry.row, []).append(entry)
        line.last = None
        line.queue.clear()

    def end(self) -> None:
        """The channel is closed. What was not read waits for whoever creates it again."""
        for _, line in self._lines:
            line.queue.clear()
            line.end()

    # Within

    def _keep(self, key: str, event: ChannelEvent) -> None:
        self._kept[key] = None
        if isinstance(event, MessageReceived):
            size = self._kept[key] = len(event.payload)
            self._kept_received += 1
            self._kept_bytes += size

    def _take_backlog(self, names: Iterable[str]) -> list[_Entry]:
        """What nobody has heard of these names, in order."""
        taken: list[_Entry] = []
        backlog, self._backlog = self._backlog, {}
        for row in sorted(backlog):
            own = [entry for entry in backlog[row] if entry.event.name in names]
            taken += own
            others = [entry for entry in backlog[row] if entry not in own]
            if others:
                self._backlog[row] = others
        return taken

    def _let_go(self) -> None:
        """What waits for a stream that nobody has any more, as after `break`, waits for the next.

        What it gave out last counts as read: nothing was wrong with it.
        """
        for stream, line in [each for each in self._lines if each[0]() is None]:
            assert stream() is None
            self.done(line)
            self.left(line)

    def _call(self, listener: EventListener, entry: _Entry) -> None:
        try:
            listener(entry.event)
        except Exception as error:
            name = entry.event.name
            self._failures.setdefault(name, Failures()).log(logger, f"channel listener of {name}", error)
