"""Events of a channel on their way to the application: those that matter are kept until they were read."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import trio

from pywaku.channels.events import (
    EVENT_NAMES,
    ChannelEvent,
    ChunkInfo,
    EphemeralMessageDropped,
    EventName,
    IrretrievableMessage,
    MessageReceived,
    ReliableMessageDelivered,
    ReliableMessageDeliveryError,
    ReliableMessageReceived,
    ReliableMessageSendError,
    SendingMessageIrrecoverableError,
)
from pywaku.channels.rows import EVENTS, Row, RowChange, pack, unpack
from pywaku.errors import DecodeError, InvalidInput

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 10_000
"""Events that wait to be read. Beyond it those of progress are dropped, and no messages are taken in."""
_CHECKPOINT_EVERY: Final = 32

EventListener = Callable[[ChannelEvent], None]


@dataclass(frozen=True, slots=True)
class _Entry:
    event: ChannelEvent
    row: str | None
    """Where it is kept; None for one of progress."""


class EventStream:
    """Events as they happen: `async for event in channel.events()`. Made by `ReliableChannel.events`."""

    def __init__(self, log: EventLog, names: frozenset[str]) -> None:
        self._log = log
        self.names = names
        self.dropped = 0
        """Events of progress that found too many waiting."""
        self._queue: deque[_Entry] = deque()
        self._waiting = trio.lowlevel.ParkingLot()
        self._read: _Entry | None = None
        self._taken = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._queue)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChannelEvent:
        self._done()
        self._taken += 1
        if self._taken % _CHECKPOINT_EVERY == 0:
            await trio.lowlevel.checkpoint()
        while not self._queue:
            if self._closed:
                raise StopAsyncIteration
            await self._waiting.park()
        self._read = self._queue.popleft()
        return self._read.event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._done()
        self.close()

    def close(self) -> None:
        """Hear no more; what was not read waits for the next one who asks."""
        if not self._closed:
            self._closed = True
            self._log.left(self)
            self._waiting.unpark_all()

    def offer(self, entry: _Entry) -> None:
        """Take an event; the channel calls this."""
        if entry.row is None and len(self._queue) >= MAX_WAITING:
            self.dropped += 1
            return
        self._queue.append(entry)
        self._waiting.unpark()

    def unread(self) -> list[_Entry]:
        """What was not read."""
        left = ([] if self._read is None else [self._read]) + list(self._queue)
        self._queue.clear()
        return left

    def end(self) -> None:
        """No further events come; the channel calls this."""
        self._closed = True
        self._waiting.unpark_all()

    def _done(self) -> None:
        """Who asks for the next event is done with the last."""
        if self._read is not None:
            self._log.read(self._read)
            self._read = None


class EventLog:
    """Hands events out. Those of messages received, and final ones, are rows until they were read."""

    def __init__(self, saved: Iterable[Row], on_read: Callable[[], None]) -> None:
        self._on_read = on_read
        self._streams: list[EventStream] = []
        self._listeners: dict[str, list[EventListener]] = {}
        self._backlog: deque[_Entry] = deque()
        self._kept: dict[str, None] = {}
        self._done: list[RowChange] = []
        self._next = 0
        for row in sorted(saved, key=lambda row: row.key):
            self._next = int(row.key) + 1
            self._kept[row.key] = None
            for event in _decode(row.value):
                self._backlog.append(_Entry(event, row.key))

    @property
    def crowded(self) -> bool:
        """Do too many wait to be read?"""
        return len(self._kept) >= MAX_WAITING

    def stream(self, names: Iterable[EventName]) -> EventStream:
        """The events of these names, or all; first those that nobody has read yet."""
        wanted = frozenset(names) or EVENT_NAMES
        if unknown := wanted - EVENT_NAMES:
            raise InvalidInput(f"name: {min(unknown)!r} is none of {', '.join(sorted(EVENT_NAMES))}")
        stream = EventStream(self, wanted)
        self._streams.append(stream)
        backlog, self._backlog = self._backlog, deque()
        for entry in backlog:
            if entry.event.name in wanted:
                stream.offer(entry)
            else:
                self._backlog.append(entry)
        return stream

    def listen(self, name: EventName, listener: EventListener) -> None:
        """Call `listener` with each event of a name; ignored where the name is unknown."""
        if name in EVENT_NAMES:
            listeners = self._listeners.setdefault(name, [])
            if listener not in listeners:
                listeners.append(listener)
                waiting = [entry for entry in self._backlog if entry.event.name == name]
                for entry in waiting:
                    self._backlog.remove(entry)
                    self._call(listener, entry)
                    self.read(entry)

    def ignore(self, name: EventName, listener: EventListener) -> None:
        """Call it no more."""
        listeners = self._listeners.get(name, [])
        if listener in listeners:
            listeners.remove(listener)

    # Within the channel

    def rows(self, events: list[ChannelEvent]) -> tuple[list[RowChange], list[_Entry]]:
        """The rows of events that matter, to be saved with their cause; and the entries to tell then."""
        changes: list[RowChange] = []
        entries: list[_Entry] = []
        received: str | None = None
        for event in events:
            row = _encode(event)
            key: str | None = None
            if row is not None:
                key = self._key()
                self._next += 1
                self._kept[key] = None
                changes.append(RowChange(EVENTS, key, row))
            # Two names of the same thing are kept as one.
            if isinstance(event, MessageReceived):
                received = key
            elif isinstance(event, ReliableMessageReceived):
                key = received
            elif isinstance(event, SendingMessageIrrecoverableError):
                key = self._key()  # its other name comes next
            entries.append(_Entry(event, key))
        return changes, entries

    def _key(self) -> str:
        return f"{self._next:020}"

    def tell(self, entries: Iterable[_Entry]) -> None:
        """Hand events out, which are saved by now."""
        for entry in entries:
            name = entry.event.name
            heard = False
            for stream in self._streams:
                if name in stream.names:
                    stream.offer(entry)
                    heard = True
            called = tuple(self._listeners.get(name, ()))
            for listener in called:
                self._call(listener, entry)
            if called and not heard:
                self.read(entry)
            elif not heard and entry.row is not None:
                self._backlog.append(entry)

    def read(self, entry: _Entry) -> None:
        """An event was read: it need not be kept any more."""
        if entry.row is not None and entry.row in self._kept:
            del self._kept[entry.row]
            self._done.append(RowChange(EVENTS, entry.row, None))
            self._on_read()

    def take_changes(self) -> list[RowChange]:
        """The rows to delete."""
        done, self._done = self._done, []
        return done

    def left(self, stream: EventStream) -> None:
        """A stream has ended; what it has not read waits for the next."""
        if stream in self._streams:
            self._streams.remove(stream)
            unread = [entry for entry in stream.unread() if entry.row in self._kept]
            self._backlog.extendleft(reversed(unread))

    def end(self) -> None:
        """The channel is closed."""
        for stream in tuple(self._streams):
            stream.end()

    def _call(self, listener: EventListener, entry: _Entry) -> None:
        try:
            listener(entry.event)
        except Exception:
            logger.exception("channel listener failed: event=%s", entry.event.name)


def _encode(event: ChannelEvent) -> bytes | None:
    """An event that matters as a row; None for one of progress, and for those that another one stands for."""
    match event:
        case MessageReceived(payload, sender, ephemeral) if not ephemeral:
            return pack("received", sender) + b"\n" + payload
        case IrretrievableMessage(ids, sender, reason):
            return pack("irretrievable", ids, sender, reason)
        case ReliableMessageDelivered(request_id, by):
            return pack("delivered", request_id, by)
        case ReliableMessageSendError(request_id, error):
            return pack("send-error", request_id, error)
        case ReliableMessageDeliveryError(request_id, error):
            return pack("delivery-error", request_id, error)
        case EphemeralMessageDropped(message_id, reason):
            return pack("dropped", message_id, reason)
        case _:
            return None


def _decode(row: bytes) -> list[ChannelEvent]:
    head, _, payload = row.partition(b"\n")
    match unpack(head):
        case ["received", str(sender)]:
            return [MessageReceived(payload, sender), ReliableMessageReceived(payload, sender)]
        case ["irretrievable", ids, sender, str(reason)]:
            name = sender if isinstance(sender, str) else None
            return [IrretrievableMessage(_texts(ids), name, reason)]
        case ["delivered", str(request_id), by]:
            return [ReliableMessageDelivered(request_id, _texts(by))]
        case ["send-error", str(request_id), str(error)]:
            failed = SendingMessageIrrecoverableError(request_id, ChunkInfo((), 0), error)
            return [failed, ReliableMessageSendError(request_id, error)]
        case ["delivery-error", str(request_id), str(error)]:
            failed = SendingMessageIrrecoverableError(request_id, ChunkInfo((), 0), error)
            return [failed, ReliableMessageDeliveryError(request_id, error)]
        case ["dropped", str(message_id), str(reason)]:
            return [EphemeralMessageDropped(message_id, reason)]
        case _:
            raise DecodeError("a saved event of a channel is damaged")


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(str(value) for value in values)
