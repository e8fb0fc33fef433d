"""The buffer of incoming messages with unmet causal dependencies (SDS, Participant state)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pywaku.errors import InvalidInput
from pywaku.sds.bodies import Bodies
from pywaku.sds.changes import Rows, Touch, hint_of_text, hint_to_text, pack, unpack
from pywaku.sds.clock import Clock
from pywaku.sds.log import Key
from pywaku.sds.options import SdsOptions
from pywaku.sds.timers import Timers
from pywaku.wire.sds import HistoryEntry

STUCK: Final = 2
"""The kind of its timers."""
_PATIENCE: Final = 2
"""Timeouts that a message waits for received ones: longer only if they depend on each other in a circle."""
_OVERHEAD: Final = 1_000
_OVERHEAD_PER_DEPENDENCY: Final = 200


class Waiting:
    """A received message that others have to come before."""

    __slots__ = (
        "hint",
        "lamport",
        "message_id",
        "missed",
        "order",
        "received_ms",
        "sender_id",
        "size",
        "unmet",
    )

    def __init__(
        self, message_id: str, sender_id: str, lamport: int, hint: bytes | None, received_ms: int
    ) -> None:
        self.message_id = message_id
        self.sender_id = sender_id
        self.lamport = lamport
        self.hint = hint
        self.received_ms = received_ms
        self.unmet: dict[str, None] = {}
        self.missed: list[HistoryEntry] = []
        self.order = 0
        self.size = 0

    @property
    def key(self) -> Key:
        """Where it will be in the log."""
        return self.lamport, self.message_id


class IncomingBuffer:
    """Bounded in number and bytes. When it is too full, the caller releases a `victim`: of the sender that
    takes the most room, the message that has waited longest."""

    __slots__ = (
        "_bodies",
        "_clock",
        "_messages",
        "_of_sender",
        "_options",
        "_timers",
        "_touch",
        "_waiters",
        "size",
    )

    def __init__(
        self, options: SdsOptions, bodies: Bodies, timers: Timers, clock: Clock, touch: Touch
    ) -> None:
        self._options = options
        self._bodies = bodies
        self._timers = timers
        self._clock = clock
        self._touch = touch
        self._messages: dict[str, Waiting] = {}
        self._waiters: dict[str, dict[str, Waiting]] = {}  # who waits for an id
        self._of_sender: dict[str, int] = {}  # the bytes of each
        self.size = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._messages

    def get(self, message_id: str) -> Waiting | None:
        """The message, while it waits."""
        return self._messages.get(message_id)

    @property
    def is_too_full(self) -> bool:
        """Whether a message has to be released."""
        options = self._options
        return len(self._messages) > options.max_incoming or self.size > options.max_incoming_bytes

    def add(self, message: Waiting, unmet: Iterable[str], data: bytes) -> None:
        """A message begins to wait for others."""
        message.unmet = dict.fromkeys(unmet)
        message.order = self._clock.next_order()
        self._bodies.hold(message.message_id, data)
        self._put(message)
        self._touch(message.message_id)

    def _put(self, message: Waiting) -> None:
        body = len(self._bodies[message.message_id])
        message.size = body + _OVERHEAD + _OVERHEAD_PER_DEPENDENCY * len(message.unmet)
        self.size += message.size
        self._messages[message.message_id] = message
        sender_id = message.sender_id
        self._of_sender[sender_id] = self._of_sender.get(sender_id, 0) + message.size
        for message_id in message.unmet:
            self._waiters.setdefault(message_id, {})[message.message_id] = message
        self._time(message)

    def _time(self, message: Waiting) -> None:
        timeout_ms = self._options.timeout_for_lost_messages_ms
        if timeout_ms is not None:
            self._timers.set(STUCK, message.message_id, message.received_ms + _PATIENCE * timeout_ms)

    def begin_anew(self, now_ms: int) -> None:
        """All have been waiting since now."""
        for message in self._messages.values():
            message.received_ms = now_ms
            self._time(message)
            self._touch(message.message_id)

    def needed_only_by(self, message_id: str, waiting: Waiting) -> bool:
        """Whether no other message waits for this one."""
        return self._waiters.get(message_id, {}).keys() <= {waiting.message_id}

    def met(self, message_id: str, missed: HistoryEntry | None = None) -> list[Waiting]:
        """A message was delivered or (`missed`) given up. Who waited for it last is still to be removed."""
        ready: list[Waiting] = []
        for waiting in self._waiters.pop(message_id, {}).values():
            del waiting.unmet[message_id]
            if missed is not None:
                waiting.missed.append(missed)
            if not waiting.unmet:
                ready.append(waiting)
            self._touch(waiting.message_id)
        return ready

    def remove(self, waiting: Waiting) -> bytes:
        """A message waits no longer; its bytes."""
        message_id = waiting.message_id
        for dependency in waiting.unmet:
            waiters = self._waiters[dependency]
            del waiters[message_id]
            if not waiters:
                del self._waiters[dependency]
        del self._messages[message_id]
        self.size -= waiting.size
        left = self._of_sender[waiting.sender_id] - waiting.size
        if left:
            self._of_sender[waiting.sender_id] = left
        else:
            del self._of_sender[waiting.sender_id]
        self._timers.cancel(STUCK, message_id)
        self._touch(message_id)
        data = self._bodies[message_id]
        self._bodies.release(message_id)
        return data

    def victim(self) -> Waiting:
        """The message to release first; there has to be one."""
        greediest = max((size, sender_id) for sender_id, size in self._of_sender.items())[1]
        return next(message for message in self._messages.values() if message.sender_id == greediest)

    def record(self, key: str) -> bytes | None:
        """A row of the saved state."""
        message = self._messages.get(key)
        if message is None:
            return None
        return pack(
            message.order,
            message.sender_id,
            message.lamport,
            hint_to_text(message.hint),
            message.received_ms,
            list(message.unmet),
            [entry_to_values(entry) for entry in message.missed],
            message.size,
        )

    def load(self, rows: Rows) -> None:
        """Take the saved state."""
        for values, message_id in sorted(
            ((unpack(row), key) for key, row in rows.items()), key=lambda item: item[0][0]
        ):
            order, sender_id, lamport, hint, received_ms, unmet, missed, size = values
            if not self._bodies.hold_saved(message_id):
                raise InvalidInput(f"the saved SDS state lacks the incoming message {message_id}")
            message = Waiting(message_id, sender_id, lamport, hint_of_text(hint), received_ms)
            message.order = order
            message.unmet = dict.fromkeys(unmet)
            message.missed = [entry_of_values(entry) for entry in missed]
            self._put(message)
            self.size += size - message.size
            self._of_sender[sender_id] += size - message.size
            message.size = size


def entry_to_values(entry: HistoryEntry) -> list[str | None]:
    """An entry for a row."""
    return [entry.message_id, hint_to_text(entry.retrieval_hint), entry.sender_id]


def entry_of_values(values: list[str | None]) -> HistoryEntry:
    """An entry in a row."""
    message_id, hint, sender_id = values
    return HistoryEntry(message_id or "", hint_of_text(hint), sender_id)
