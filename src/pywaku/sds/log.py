"""The local log: the newest messages of the channel in the order of (lamport timestamp, message id)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection
from itertools import islice
from operator import attrgetter
from typing import Final, cast

from pywaku.errors import InvalidInput
from pywaku.sds.changes import Rows, Touch, hint_of_text, hint_to_text, pack, unpack
from pywaku.sds.options import MAX_CAUSAL_HISTORY
from pywaku.wire.sds import MAX_ID_LENGTH, HistoryEntry, encode_entry

_HORIZON: Final = ""  # the row that says how far back the log reaches
_COMPACT: Final = 1_024
_RECENT: Final = 2_048
_KEY: Final = attrgetter("key")

Key = tuple[int, str]
"""Where a message is in the order of the log."""
HintProvider = Callable[[str], bytes | None]
"""The retrieval hint of a message id, where it is known."""


def check_hint(hint: bytes | None) -> None:
    """Refuse a hint that others would refuse to read."""
    if hint is not None and len(hint) > MAX_ID_LENGTH:
        raise InvalidInput(f"a retrieval hint has up to {MAX_ID_LENGTH} bytes, not {len(hint)}")


class LogEntry:
    """A message that was delivered, or is our own."""

    __slots__ = ("encoded", "hint", "key", "lamport", "message_id", "sender_id")

    def __init__(self, message_id: str, lamport: int, sender_id: str, hint: bytes | None) -> None:
        self.message_id = message_id
        self.lamport = lamport
        self.sender_id = sender_id
        self.hint = hint
        self.key: Key = (lamport, message_id)
        """Where it is in the log."""
        self.encoded: bytes | None = None
        """The entry as a part of a causal history, made when it is first needed."""


class Log:
    """At most `limit` messages; the lowest go, and nothing below them is taken any more.

    So a message is known to be new, or known not to be, or too old to tell.
    """

    __slots__ = (
        "_first",
        "_limit",
        "_me",
        "_order",
        "_recent",
        "_touch",
        "entries",
        "evicted",
        "horizon",
        "own",
    )

    def __init__(self, limit: int, sender_id: str, touch: Touch) -> None:
        self._limit = limit
        self._me = sender_id
        self._touch = touch
        self._order: list[LogEntry] = []
        self._first = 0  # the entries before it are gone
        self._recent: set[str] = set()
        self.entries: dict[str, LogEntry] = {}
        self.own: dict[str, int] = {}
        """Our own messages and their timestamps."""
        self.horizon: Key | None = None
        """The highest key that is gone."""
        self.evicted = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, message_id: object) -> bool:
        return message_id in self.entries

    def reaches(self, key: Key) -> bool:
        """Whether the log would know a message of this key, had there been one."""
        return self.horizon is None or key > self.horizon

    def insert(self, entry: LogEntry) -> LogEntry | None:
        """Put a message in its place (SDS, Deliver Message, Resolve Conflicts). What goes instead, if any."""
        self._put(entry)
        self._touch(entry.message_id)
        return self._evict() if len(self.entries) > self._limit else None

    def _put(self, entry: LogEntry) -> None:
        order = self._order
        if not order or entry.key > order[-1].key:
            order.append(entry)
        else:
            insort(order, entry, lo=self._first, key=_KEY)
        self.entries[entry.message_id] = entry
        if entry.sender_id == self._me:
            self.own[entry.message_id] = entry.lamport

    def _evict(self) -> LogEntry:
        evicted = self._order[self._first]
        self.horizon = evicted.key
        self._forget(evicted.message_id)
        self._first += 1
        if self._first >= _COMPACT and self._first * 2 >= len(self._order):
            del self._order[: self._first]
            self._first = 0
        self._touch(_HORIZON)
        self.evicted += 1
        return evicted

    def _forget(self, message_id: str) -> None:
        del self.entries[message_id]
        self.own.pop(message_id, None)
        self._recent.discard(message_id)
        self._touch(message_id)

    def remove(self, message_id: str) -> None:
        """Take a message out of the log."""
        entry = self.entries.get(message_id)
        if entry is not None:
            del self._order[bisect_left(self._order, entry.key, lo=self._first, key=_KEY)]
            self._forget(message_id)

    def set_hint(self, message_id: str, hint: bytes) -> None:
        """Note how a message can be retrieved, if it is still there."""
        check_hint(hint)
        entry = self.entries.get(message_id)
        if entry is not None and entry.hint != hint:
            entry.hint = hint
            entry.encoded = None
            self._touch(message_id)

    def last(self, count: int) -> list[LogEntry]:
        """The highest entries, in ascending order."""
        return self._order[max(self._first, len(self._order) - count) :]

    def unknown(self, message_ids: list[str]) -> list[str]:
        """Those that are not in the log.

        Most were asked for a moment ago, with the message before. What was found then is kept in a small set:
        two hundred look-ups in a large table are two hundred waits for memory.
        """
        recent = self._recent
        if recent.issuperset(message_ids):
            return []
        entries = self.entries
        fresh = [message_id for message_id in message_ids if message_id not in recent]
        known = [message_id for message_id in fresh if message_id in entries]
        if len(recent) + len(known) > _RECENT:
            recent.clear()
        recent.update(known)
        if len(known) == len(fresh):
            return []
        return [message_id for message_id in fresh if message_id not in entries]

    def causal_history(self, count: int, heads: Collection[str]) -> list[LogEntry]:
        """The last entries, after those of `heads` that are not among them; of many, the first ones."""
        chosen = self.last(count)
        if chosen and len(heads) > 1:
            lowest = chosen[0].key
            first = map(self.entries.__getitem__, islice(heads, MAX_CAUSAL_HISTORY))
            older = [entry for entry in first if entry.key < lowest]
            if older:
                older.sort(key=lambda entry: entry.key)
                del older[MAX_CAUSAL_HISTORY - 1 :]
                chosen = [*older, *chosen[max(0, len(older) + len(chosen) - MAX_CAUSAL_HISTORY) :]]
        return chosen

    def encode(
        self, entries: list[LogEntry], *, with_senders: bool, hints: HintProvider | None
    ) -> list[bytes]:
        """Entries as parts of a message."""
        found = [entry.encoded for entry in entries]
        if None in found:  # most are there from the message before
            return [entry.encoded or self._encode(entry, with_senders, hints) for entry in entries]
        return cast("list[bytes]", found)

    def _encode(self, entry: LogEntry, with_senders: bool, hints: HintProvider | None) -> bytes:
        if entry.hint is None and hints is not None:
            hint = hints(entry.message_id)
            if hint is not None:
                self.set_hint(entry.message_id, hint)
        sender_id = entry.sender_id if with_senders else None
        encoded = encode_entry(HistoryEntry(entry.message_id, entry.hint, sender_id))
        if entry.hint is not None or hints is None:  # else the hint may be known next time
            entry.encoded = encoded
        return encoded

    def record(self, key: str) -> bytes | None:
        """A row of the saved state."""
        if key == _HORIZON:
            return None if self.horizon is None else pack(*self.horizon)
        entry = self.entries.get(key)
        return None if entry is None else pack(entry.lamport, entry.sender_id, hint_to_text(entry.hint))

    def load(self, rows: Rows) -> None:
        """Take the saved state."""
        for key, row in rows.items():
            if key == _HORIZON:
                lamport, message_id = unpack(row)
                self.horizon = (lamport, message_id)
            else:
                lamport, sender_id, hint = unpack(row)
                self._order.append(LogEntry(key, lamport, sender_id, hint_of_text(hint)))
        self._order.sort(key=_KEY)
        self.entries = {entry.message_id: entry for entry in self._order}
        self.own = {entry.message_id: entry.lamport for entry in self._order if entry.sender_id == self._me}
        while len(self.entries) > self._limit:
            self._evict()
