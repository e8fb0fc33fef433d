"""Messages that others have and we do not (the outgoing repair request buffer of SDS-R), or gave up."""

from __future__ import annotations

from typing import Final

from pywaku.sds.changes import Rows, Touch, pack, unpack
from pywaku.sds.clock import Clock
from pywaku.sds.incoming import entry_of_values, entry_to_values
from pywaku.sds.options import SdsOptions
from pywaku.sds.repair_times import request_delay_ms
from pywaku.sds.timers import Timers
from pywaku.wire.sds import HistoryEntry

LOST: Final = 1
"""The kind of its timers."""
_REQUEST: Final = 0
_MAX_DOUBLINGS: Final = 16
_REQUESTS: Final = 6
"""Requests that there is time for, about, before a message is given up."""


class Missing:
    """A missing message. `request_ms` is T_req, None without SDS-R."""

    __slots__ = ("detected_ms", "entry", "order", "request_ms", "requests")

    def __init__(self, entry: HistoryEntry, detected_ms: int) -> None:
        self.entry = entry
        self.detected_ms = detected_ms
        self.order = 0
        self.request_ms: int | None = None
        self.requests = 0
        """How often it was requested, by us or by somebody else."""


class MissingMessages:
    """All missing messages. The caller keeps their number within the bound."""

    __slots__ = ("_clock", "_me", "_messages", "_options", "_requests", "_timers", "_touch")

    def __init__(
        self, options: SdsOptions, sender_id: str, timers: Timers, clock: Clock, touch: Touch
    ) -> None:
        self._options = options
        self._me = sender_id
        self._timers = timers
        self._clock = clock
        self._touch = touch
        self._messages: dict[str, Missing] = {}  # in the order in which they were found missing
        self._requests = Timers()

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._messages

    @property
    def excess(self) -> int:
        """By how much there are too many."""
        return len(self._messages) - self._options.max_missing

    def entries(self) -> tuple[HistoryEntry, ...]:
        """What is missing, what is missing for longest first."""
        return tuple(missing.entry for missing in self._messages.values())

    def get(self, message_id: str) -> HistoryEntry | None:
        """What is known of a missing message."""
        missing = self._messages.get(message_id)
        return None if missing is None else missing.entry

    def oldest(self) -> str:
        """The id that is missing for longest; there has to be one."""
        return next(iter(self._messages))

    def note(self, entry: HistoryEntry, now_ms: int) -> bool:
        """A message is missing; whether that is news."""
        known = self._messages.get(entry.message_id)
        if known is not None:
            old = known.entry
            hint = entry.retrieval_hint if old.retrieval_hint is None else old.retrieval_hint
            sender_id = entry.sender_id if old.sender_id is None else old.sender_id
            known.entry = HistoryEntry(entry.message_id, hint, sender_id)
            if known.entry != old:
                self._touch(entry.message_id)
            return False
        missing = Missing(entry, now_ms)
        missing.order = self._clock.next_order()
        repair = self._options.repair
        if repair is not None:
            missing.request_ms = now_ms + request_delay_ms(self._me, entry.message_id, repair)
        self._put(missing)
        self._touch(entry.message_id)
        return True

    def _put(self, missing: Missing) -> None:
        message_id = missing.entry.message_id
        self._messages[message_id] = missing
        self._time(missing)
        if missing.request_ms is not None:
            self._requests.set(_REQUEST, message_id, missing.request_ms)

    def begin_anew(self, now_ms: int) -> None:
        """All have been missing since now."""
        for missing in self._messages.values():
            missing.detected_ms = now_ms
            self._time(missing)
            self._touch(missing.entry.message_id)

    def _time(self, missing: Missing) -> None:
        timeout_ms = self._options.timeout_for_lost_messages_ms
        if timeout_ms is not None:
            self._timers.set(LOST, missing.entry.message_id, missing.detected_ms + timeout_ms)

    def remove(self, message_id: str) -> HistoryEntry | None:
        """A message has come, or is given up."""
        missing = self._messages.pop(message_id, None)
        if missing is None:
            return None
        self._timers.cancel(LOST, message_id)
        self._requests.cancel(_REQUEST, message_id)
        self._touch(message_id)
        return missing.entry

    def has_eligible(self, now_ms: int) -> bool:
        """Whether a repair request is due."""
        due = self._requests.next_due()
        return due is not None and due <= now_ms

    def take_eligible(self, now_ms: int) -> tuple[HistoryEntry, ...]:
        """The entries to request in a message (SDS-R send message): those with the lowest T_req."""
        repair = self._options.repair
        if repair is None:
            return ()
        taken: list[Missing] = []
        while len(taken) < repair.max_requests_per_message:
            due = self._requests.pop_due(now_ms)
            if due is None:
                break
            taken.append(self._messages[due[1]])
        for missing in taken:
            self._request_later(missing, now_ms)
        return tuple(missing.entry for missing in taken)

    def requested_by_another(self, message_id: str, now_ms: int) -> None:
        """Somebody else requests it, so the response comes to us too. If it does not, we ask: later."""
        missing = self._messages.get(message_id)
        if missing is not None and self._options.repair is not None:
            self._request_later(missing, now_ms)

    def _request_later(self, missing: Missing, now_ms: int) -> None:
        """A response may take T_max; after that our usual delay, and twice the time with each request.

        But requests and responses are lost like other messages, so there are a few before it is given up.
        """
        repair = self._options.repair
        if repair is not None:
            message_id = missing.entry.message_id
            pause_ms = repair.t_max_ms + request_delay_ms(self._me, message_id, repair)
            pause_ms <<= min(missing.requests, _MAX_DOUBLINGS)
            timeout_ms = self._options.timeout_for_lost_messages_ms
            if timeout_ms is not None:
                pause_ms = min(pause_ms, max(repair.t_min_ms, timeout_ms // _REQUESTS))
            request_ms = now_ms + pause_ms
            missing.request_ms = request_ms
            missing.requests += 1
            self._requests.set(_REQUEST, message_id, request_ms)
            self._touch(message_id)

    def record(self, key: str) -> bytes | None:
        """A row of the saved state."""
        missing = self._messages.get(key)
        if missing is None:
            return None
        return pack(
            missing.order,
            missing.detected_ms,
            missing.request_ms,
            missing.requests,
            entry_to_values(missing.entry),
        )

    def load(self, rows: Rows) -> None:
        """Take the saved state."""
        for order, detected_ms, request_ms, requests, entry in sorted(
            (unpack(row) for row in rows.values()), key=lambda values: values[0]
        ):
            missing = Missing(entry_of_values(entry), detected_ms)
            missing.order = order
            missing.request_ms = request_ms
            missing.requests = requests
            self._put(missing)


class LostMessages:
    """Messages that are given up: who depends on them does not wait. At most `limit`, the oldest go first."""

    __slots__ = ("_clock", "_ids", "_limit", "_touch", "evicted")

    def __init__(self, limit: int, clock: Clock, touch: Touch) -> None:
        self._limit = limit
        self._clock = clock
        self._touch = touch
        self._ids: dict[str, int] = {}
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._ids

    def add(self, message_id: str) -> None:
        """Give up a message."""
        if message_id in self._ids:
            return
        self._ids[message_id] = self._clock.next_order()
        self._touch(message_id)
        self._shrink()

    def discard(self, message_id: str) -> bool:
        """It has come after all; whether it was given up."""
        if self._ids.pop(message_id, None) is None:
            return False
        self._touch(message_id)
        return True

    def _shrink(self) -> None:
        while len(self._ids) > self._limit:
            oldest = next(iter(self._ids))
            del self._ids[oldest]
            self._touch(oldest)
            self.evicted += 1

    def record(self, key: str) -> bytes | None:
        """A row of the saved state."""
        order = self._ids.get(key)
        return None if order is None else pack(order)

    def load(self, rows: Rows) -> None:
        """Take the saved state."""
        for order, message_id in sorted((unpack(row)[0], key) for key, row in rows.items()):
            self._ids[message_id] = order
        self._shrink()
