"""The buffer of unacknowledged outgoing messages (SDS, Participant state and Review ACK Status)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pywaku.errors import InvalidInput
from pywaku.sds.bloom import BloomShape, Cells, has_cells
from pywaku.sds.bodies import Bodies
from pywaku.sds.changes import Rows, Touch, pack, unpack
from pywaku.sds.options import MAX_RESEND_DOUBLINGS, SdsOptions
from pywaku.sds.timers import Timers
from pywaku.sds.types import Acknowledged, AcknowledgedBy, PossiblyAcknowledged, SdsEvent

RESEND: Final = 3
"""The kind of its timers."""


class Unacknowledged:
    """A message of ours that is not acknowledged, or not by all who have to."""

    __slots__ = (
        "acknowledged_by",
        "cells",
        "certain",
        "hits",
        "lamport",
        "message_id",
        "recipients",
        "sent_ms",
        "transmissions",
    )

    def __init__(
        self, message_id: str, lamport: int, recipients: frozenset[str] | None, cells: Cells
    ) -> None:
        self.message_id = message_id
        self.lamport = lamport
        self.recipients = recipients
        """Who has to acknowledge it; None: anybody."""
        self.cells = cells
        self.acknowledged_by: list[str] = []
        self.certain = True
        self.hits: dict[str, int] = {}
        """In how many bloom filters of each sender it was."""
        self.transmissions = 1
        self.sent_ms: int | None = None
        """When it was sent last; None while that is being done."""

    @property
    def possibly_acknowledged(self) -> bool:
        """The state of that name: it was in a bloom filter."""
        return bool(self.hits)

    def count_hit(self, sender_id: str) -> int:
        """It is in a filter of this sender: the count that matters."""
        self.hits[sender_id] = self.hits.get(sender_id, 0) + 1
        return sum(self.hits.values()) if self.recipients is None else self.hits[sender_id]

    def acknowledge(self, sender_id: str, *, certain: bool) -> bool:
        """Acknowledged by one; whether that is all."""
        self.acknowledged_by.append(sender_id)
        self.certain = self.certain and certain
        return self.recipients is None or self.recipients.issubset(self.acknowledged_by)

    def waits_for(self, sender_id: str) -> bool:
        """Whether an acknowledgement by this sender would be news."""
        if self.recipients is None:
            return True
        return sender_id in self.recipients and sender_id not in self.acknowledged_by


class OutgoingBuffer:
    """At most `max_outgoing` messages of `max_outgoing_bytes`; one more is not taken (see `has_room`)."""

    __slots__ = ("_bodies", "_messages", "_options", "_shape", "_timers", "_touch", "size")

    def __init__(
        self, options: SdsOptions, shape: BloomShape, bodies: Bodies, timers: Timers, touch: Touch
    ) -> None:
        self._options = options
        self._shape = shape
        self._bodies = bodies
        self._timers = timers
        self._touch = touch
        self._messages: dict[str, Unacknowledged] = {}
        self.size = 0

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._messages

    def get(self, message_id: str) -> Unacknowledged | None:
        """The message, while it is not acknowledged."""
        return self._messages.get(message_id)

    def all(self) -> list[Unacknowledged]:
        """All of them, in the order in which they were sent first."""
        return list(self._messages.values())

    def has_room(self, count: int, size: int) -> bool:
        """Whether so many messages of this size together fit."""
        options = self._options
        return (
            len(self._messages) + count <= options.max_outgoing
            and self.size + size <= options.max_outgoing_bytes
        )

    def add(self, message_id: str, lamport: int, data: bytes, recipients: frozenset[str] | None) -> None:
        """A message is being sent for the first time."""
        self._messages[message_id] = Unacknowledged(
            message_id, lamport, recipients, self._shape.cells(message_id)
        )
        self._bodies.hold(message_id, data)
        self.size += len(data)
        self._touch(message_id)

    def remove(self, message_id: str) -> None:
        """Nothing is waited for any more."""
        if self._messages.pop(message_id, None) is not None:
            self.size -= len(self._bodies[message_id])
            self._bodies.release(message_id)
            self._timers.cancel(RESEND, message_id)
            self._touch(message_id)

    def sent(self, message: Unacknowledged, now_ms: int) -> None:
        """It has been sent, so the time to acknowledge it begins."""
        message.sent_ms = now_ms
        self._schedule(message)
        self._touch(message.message_id)

    def _schedule(self, message: Unacknowledged) -> None:
        if message.sent_ms is not None:
            options = self._options
            timeout_ms = (
                options.resend_possibly_acknowledged_ms
                if message.possibly_acknowledged
                else options.acknowledgement_timeout_ms
            )
            if message.recipients is not None:  # each has to say something, and is in no hurry to
                timeout_ms <<= min(message.transmissions - 1, MAX_RESEND_DOUBLINGS)
            self._timers.set(RESEND, message.message_id, message.sent_ms + timeout_ms)

    def send_again(self, message: Unacknowledged, *, counts: bool) -> bytes:
        """The same bytes as before; the time begins anew once they are sent."""
        message.transmissions += counts
        message.sent_ms = None
        self._touch(message.message_id)
        return self._bodies[message.message_id]

    def send_all_again(self, now_ms: int) -> None:
        """After a restart: nobody knows what became of the messages that were being sent."""
        for message in self._messages.values():
            if message.sent_ms is None:
                self._timers.set(RESEND, message.message_id, now_ms)

    def review_history(self, message_ids: Iterable[str], sender_id: str) -> list[SdsEvent]:
        """The messages in a causal history are acknowledged. Who is done is still to be removed."""
        events: list[SdsEvent] = []
        for message_id in message_ids:
            message = self._messages.get(message_id)
            if message is not None and message.waits_for(sender_id):
                self._acknowledge(message, sender_id, events, certain=True)
        return events

    def in_bloom(self, data: bytes) -> list[Unacknowledged]:
        """The messages that a bloom filter (of the right size) seems to have."""
        found: list[Unacknowledged] = []
        for message in self._messages.values():
            byte, mask = message.cells[0]  # most are not in it, and half of those end here
            if data[byte] & mask and has_cells(data, message.cells):
                found.append(message)
        return found

    def review_bloom(self, found: Iterable[Unacknowledged], sender_id: str) -> list[SdsEvent]:
        """These are in a filter: possibly acknowledged, and from a threshold on acknowledged."""
        events: list[SdsEvent] = []
        for message in found:
            if message.waits_for(sender_id):
                count = message.count_hit(sender_id)
                self._touch(message.message_id)
                if count >= self._options.possible_acks_threshold:
                    self._acknowledge(message, sender_id, events, certain=False)
                else:
                    events.append(PossiblyAcknowledged(message.message_id, sender_id, count))
                    self._schedule(message)
        return events

    def _acknowledge(
        self, message: Unacknowledged, sender_id: str, events: list[SdsEvent], *, certain: bool
    ) -> None:
        done = message.acknowledge(sender_id, certain=certain)
        self._touch(message.message_id)
        if message.recipients is not None:
            events.append(AcknowledgedBy(message.message_id, sender_id, certain))
        if done:
            events.append(Acknowledged(message.message_id, tuple(message.acknowledged_by), message.certain))

    def record(self, key: str) -> bytes | None:
        """A row of the saved state."""
        message = self._messages.get(key)
        if message is None:
            return None
        return pack(
            message.lamport,
            None if message.recipients is None else sorted(message.recipients),
            message.acknowledged_by,
            message.certain,
            message.hits,
            message.transmissions,
            message.sent_ms,
        )

    def load(self, rows: Rows) -> None:
        """Take the saved state."""
        for values, message_id in sorted(
            ((unpack(row), key) for key, row in rows.items()), key=lambda item: (item[0][0], item[1])
        ):
            lamport, recipients, acknowledged_by, certain, hits, transmissions, sent_ms = values
            if not self._bodies.hold_saved(message_id):
                raise InvalidInput(f"the saved SDS state lacks the outgoing message {message_id}")
            message = Unacknowledged(
                message_id,
                lamport,
                None if recipients is None else frozenset(recipients),
                self._shape.cells(message_id),
            )
            message.acknowledged_by = acknowledged_by
            message.certain = certain
            message.hits = hits
            message.transmissions = transmissions
            message.sent_ms = sent_ms
            self._messages[message_id] = message
            self.size += len(self._bodies[message_id])
            self._schedule(message)
