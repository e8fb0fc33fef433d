"""What has become of the messages that were sent, segment by segment, as a plain machine.

Steps of segments go in, under the ids that SDS knows them by; events come out. Of each message there is
exactly one final event of either vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from pywaku.channels.events import (
    ChannelEvent,
    ChunkInfo,
    MessageAcknowledged,
    MessageId,
    MessagePossiblyAcknowledged,
    MessageSent,
    ReliableMessageDelivered,
    ReliableMessageDeliveryError,
    ReliableMessageSendError,
    ReliableMessageSent,
    SendingMessage,
    SendingMessageIrrecoverableError,
)
from pywaku.channels.rows import list_of, pack, unpack
from pywaku.errors import DecodeError

_SETS: Final = ("sending", "sent", "possibly", "acknowledged", "failed")


class _Message:
    """One `send`."""

    __slots__ = (
        "acknowledged",
        "by",
        "data",
        "failed",
        "message_id",
        "order",
        "possibly",
        "segments",
        "sending",
        "sent",
    )

    def __init__(self, order: int, message_id: MessageId, segments: Sequence[str], data: int) -> None:
        self.order = order
        self.message_id = message_id
        self.segments = tuple(segments)
        self.data = data  # so many segments are enough to put the payload together
        self.sending: set[int] = set()
        self.sent: set[int] = set()
        self.possibly: set[int] = set()
        self.acknowledged: set[int] = set()
        self.failed: set[int] = set()
        self.by: Counter[str] = Counter()

    def info(self, chunks: set[int]) -> ChunkInfo:
        return ChunkInfo(tuple(sorted(chunks)), len(self.segments))

    def encode(self) -> bytes:
        sets = (sorted(getattr(self, name)) for name in _SETS)
        return pack(self.order, self.segments, self.data, *sets, list(self.by), list(self.by.values()))

    @classmethod
    def decode(cls, message_id: MessageId, row: bytes) -> _Message:
        match unpack(row):
            case [int(order), segments, int(data), *sets, senders, counts] if len(sets) == len(_SETS):
                message = cls(order, message_id, list_of(str, segments), data)
                for name, numbers in zip(_SETS, sets, strict=True):
                    setattr(message, name, message.chunks(list_of(int, numbers)))
                message.by.update(dict(zip(list_of(str, senders), list_of(int, counts), strict=False)))
                return message
            case _:
                raise DecodeError("a saved message of a channel is damaged")

    def chunks(self, numbers: list[int]) -> set[int]:
        """A set of saved chunk numbers."""
        if not all(0 <= number < len(self.segments) for number in numbers):
            raise DecodeError("a saved message of a channel names segments that it does not have")
        return set(numbers)


class Tracker:
    """The messages without a final event, in the order in which they were sent."""

    def __init__(self, saved: Iterable[tuple[MessageId, bytes]] = ()) -> None:
        self._messages: dict[MessageId, _Message] = {}
        self._of_segment: dict[str, tuple[_Message, int]] = {}
        self._changed: dict[MessageId, None] = {}
        self._next = 0
        messages = [_Message.decode(message_id, row) for message_id, row in saved]
        for message in sorted(messages, key=lambda message: message.order):
            self._add(message)

    @property
    def unfinished(self) -> tuple[MessageId, ...]:
        """The messages that are neither delivered nor given up."""
        return tuple(self._messages)

    def place_of(self, segment_id: str) -> tuple[MessageId, int] | None:
        """Which message a segment belongs to, and its number there, from 0."""
        found = self._of_segment.get(segment_id)
        return None if found is None else (found[0].message_id, found[1])

    def segments_of(self, message_id: MessageId) -> tuple[str, ...]:
        """The ids of a message's segments."""
        message = self._messages.get(message_id)
        return () if message is None else message.segments

    def handed_over(self, message_id: MessageId) -> frozenset[str]:
        """The ids of the segments that the network may have got."""
        message = self._messages.get(message_id)
        return frozenset(() if message is None else (message.segments[number] for number in message.sending))

    def take_changes(self) -> list[tuple[MessageId, bytes | None]]:
        """The rows to save, None for those to delete."""
        changed, self._changed = self._changed, {}
        rows: list[tuple[MessageId, bytes | None]] = []
        for message_id in changed:
            message = self._messages.get(message_id)
            rows.append((message_id, None if message is None else message.encode()))
        return rows

    # What happens

    def add(self, message_id: MessageId, segments: Sequence[str], data: int) -> None:
        """A message is to be sent in these segments, of which any `data` are enough."""
        self._add(_Message(self._next, message_id, segments, data))
        self._changed[message_id] = None

    def sending(self, segment_id: str) -> list[ChannelEvent]:
        """A segment is being handed to the network, perhaps again."""
        return self._mark(segment_id, "sending")

    def sent(self, segment_id: str) -> list[ChannelEvent]:
        """The network has taken a segment, perhaps again."""
        found = self._of_segment.get(segment_id)
        if found is None:
            return []
        message = found[0]
        before = len(message.sent)
        events = self._mark(segment_id, "sent")
        if before < len(message.sent) == len(message.segments):
            events.append(ReliableMessageSent(message.message_id))
        return events

    def possibly_acknowledged(self, segment_id: str) -> list[ChannelEvent]:
        """A segment was seen in a bloom filter."""
        found = self._of_segment.get(segment_id)
        if found is None or found[1] in found[0].possibly:
            return []
        return self._mark(segment_id, "possibly")

    def acknowledged(self, segment_id: str, by: Iterable[str]) -> list[ChannelEvent]:
        """A segment is acknowledged by whomever that takes."""
        found = self._of_segment.get(segment_id)
        if found is None:
            return []
        message, number = found
        if number in message.acknowledged:
            return []
        message.by.update(by)
        message.acknowledged.add(number)
        self._changed[message.message_id] = None
        if self._is_delivered(message):
            return self._deliver(message)
        return [MessageAcknowledged(message.message_id, message.info(message.acknowledged))]

    def not_acknowledged(self, segment_id: str) -> list[ChannelEvent]:
        """A segment was sent as often as it may, without an acknowledgement."""
        found = self._of_segment.get(segment_id)
        if found is None:
            return []
        message, number = found
        message.failed.add(number)
        self._changed[message.message_id] = None
        if len(message.segments) - len(message.failed) >= message.data:
            return self._deliver(message) if self._is_delivered(message) else []  # the others are enough
        if len(message.sent) < len(message.segments):
            return self._fail(message, "could not be handed to the network", sent=False)
        return self._fail(message, "was not acknowledged, however often it was sent", sent=True)

    def failed(self, message_id: MessageId, error: str) -> list[ChannelEvent]:
        """A message can never be sent."""
        message = self._messages.get(message_id)
        if message is None:
            return []
        message.failed = set(range(len(message.segments)))
        return self._fail(message, error, sent=False)

    # Within

    def _add(self, message: _Message) -> None:
        self._next = message.order + 1
        self._messages[message.message_id] = message
        for number, segment_id in enumerate(message.segments):
            self._of_segment[segment_id] = (message, number)

    def _mark(self, segment_id: str, what: str) -> list[ChannelEvent]:
        found = self._of_segment.get(segment_id)
        if found is None:
            return []
        message, number = found
        chunks: set[int] = getattr(message, what)
        if number not in chunks:
            chunks.add(number)
            self._changed[message.message_id] = None
        return [_EVENTS[what](message.message_id, message.info(chunks))]

    def _is_delivered(self, message: _Message) -> bool:
        """Has somebody enough segments, or is each acknowledged, but for some that were not needed?"""
        if any(count >= message.data for count in message.by.values()):
            return True
        return len(message.acknowledged | message.failed) == len(message.segments)

    def _deliver(self, message: _Message) -> list[ChannelEvent]:
        self._finish(message)
        every = message.info(set(range(len(message.segments))))  # the others can be made of those
        return [
            MessageAcknowledged(message.message_id, every),
            ReliableMessageDelivered(message.message_id, tuple(sorted(message.by))),
        ]

    def _fail(self, message: _Message, error: str, *, sent: bool) -> list[ChannelEvent]:
        self._finish(message)
        later = ReliableMessageDeliveryError if sent else ReliableMessageSendError
        return [
            SendingMessageIrrecoverableError(message.message_id, message.info(message.failed), error),
            later(message.message_id, error),
        ]

    def _finish(self, message: _Message) -> None:
        del self._messages[message.message_id]
        for segment_id in message.segments:
            del self._of_segment[segment_id]
        self._changed[message.message_id] = None


_EVENTS = {
    "sending": SendingMessage,
    "sent": MessageSent,
    "possibly": MessagePossiblyAcknowledged,
}
