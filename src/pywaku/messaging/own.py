"""The messages of this node, for when they come back: to know that they have travelled."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Final

from pywaku.ids import PeerId
from pywaku.messaging.attempts import Progress, Step
from pywaku.messaging.record import MessageRecord, RequestId

MAX_FINISHED: Final = 16_384
"""Messages that are remembered after they were sent or given up; beyond it the oldest are forgotten."""
MAX_FINISHED_BYTES: Final = 32 << 20
"""The same by their payloads."""


class OwnMessage:
    """A message of this node, what has become of it, and the peers that it was given to."""

    __slots__ = ("_record", "last", "received", "stored", "through")

    def __init__(self, record: MessageRecord) -> None:
        self._record = record
        self.last: Progress | None = None
        self.received = record.received
        self.stored = record.stored
        self.through: frozenset[PeerId] = frozenset()

    @property
    def pubsub_topic(self) -> str:
        """The pubsub topic that it was sent on."""
        return self._record.pubsub_topic

    @property
    def request_id(self) -> RequestId | None:
        """The request that sent it last."""
        return self._record.request_id

    @property
    def size(self) -> int:
        """The bytes of its payload."""
        return len(self._record.message.payload)

    @property
    def record(self) -> MessageRecord:
        """The record as far as it is known here; made when it is asked for, which is rare."""
        last = self.last
        if last is None:
            return replace(self._record, received=self.received, stored=self.stored)
        ended = last.step in (Step.SENT, Step.FAILED, Step.CANCELLED)
        return replace(
            self._record,
            received=self.received,
            stored=self.stored,
            sending=not ended,
            sent=last.step is Step.SENT,
            propagated=last.propagated,
            attempts=last.attempts,
            error=last.error if ended else None,
        )


class OwnMessages:
    """Those that are being sent, all of them, and of those that are finished the latest."""

    def __init__(self, *, max_finished: int = MAX_FINISHED, max_bytes: int = MAX_FINISHED_BYTES) -> None:
        self._max_finished = max_finished
        self._max_bytes = max_bytes
        self._messages: dict[bytes, OwnMessage] = {}
        self._sending: dict[bytes, int] = {}  # requests under way, by message
        self._finished: deque[tuple[bytes, int]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message_hash: object) -> bool:
        return message_hash in self._messages

    def get(self, message_hash: bytes) -> OwnMessage | None:
        """A message by its hash."""
        return self._messages.get(message_hash)

    def add(self, record: MessageRecord) -> None:
        """It is going to be sent, perhaps not for the first time."""
        known = self._messages.get(record.message_hash)
        own = self._messages[record.message_hash] = OwnMessage(record)
        if known is not None:
            own.received |= known.received
            own.stored |= known.stored
            own.through = known.through
        self._sending[record.message_hash] = self._sending.get(record.message_hash, 0) + 1

    def follow(self, record: MessageRecord, progress: Progress) -> None:
        """A request made a step."""
        own = self._messages.get(record.message_hash)
        if own is not None and own.request_id == record.request_id:
            own.last = progress

    def finished(self, message_hash: bytes) -> None:
        """A request that sent it is finished."""
        self._sending[message_hash] -= 1
        if self._sending[message_hash]:
            return
        del self._sending[message_hash]
        size = self._messages[message_hash].size
        self._finished.append((message_hash, size))
        self._bytes += size
        while len(self._finished) > self._max_finished or self._bytes > self._max_bytes:
            oldest, size = self._finished.popleft()
            self._bytes -= size
            if oldest not in self._sending:
                self._messages.pop(oldest, None)
