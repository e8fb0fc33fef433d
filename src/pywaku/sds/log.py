"""The local log: the newest messages of the channel in the order of (lamport timestamp, message id)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection
from typing import Final, cast

from pywaku.errors import InvalidInput
from pywaku.sds.changes import Rows, Touch, hint_of_text, hint_to_text, pack, unpack
from pywaku.sds.options import MAX_CAUSAL_HISTORY
from pywaku.wire.sds import MAX_ID_LENGTH, HistoryEntry, encode_entry

_HORIZON: Final = ""  # the row that says how far back the log reaches
_COMPACT: Final = 1_024

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

    __slots__ = ("encoded", "hint", "lamport", "message_id", "sender_id")

    def __init__(self, message_id: str, lamport: int, sender_id: str, hint: bytes | None) -> None:
        self.message_id = message_id
        self.lamport = lamport
        self.sender_id = sender_id
        self.hint = hint
        self.encoded: bytes | None = None
        """The entry as a part of a causal history, made when it is first needed."""

    @property
    def key(self) -> Key:
        """Where it is in the log."""
        return self.lamport, self.message_id


class Log:
    """At most `limit` messages; the lowest go, and nothing below them is taken any more.

    So a message is known to be new, or known not to be, or too old to tell.
    """

    __slots__ = ("_first", "_keys", "_limit", "_me", "_touch", "entries", "evicted", "horizon", "own")

    def __init__(self, limit: int, sender_id: str, touch: Touch) -> None:
        self._limit = limit
        self._me = sender_id
        self._touch = touch
        self._keys: list[Key] = []
        self._first = 0  # the keys before it are gone
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
        key = entry.key
        keys = self._keys
        if not keys or key > keys[-1]:
            keys.append(key)
        else:
            insort(keys, key, lo=self._first)
        self.entries[entry.message_id] = entry
        if entry.sender_id == self._me:
            self.own[entry.message_id] = entry.lamport

    def _evict(self) -> LogEntry:
        self.horizon = self._keys[self._first]
        evicted = self._forget(self.horizon[1])
        self._first += 1
        if self._first >= _COMPACT and self._first * 2 >= len(self._keys):
            del self._keys[: self._first]
            self._first = 0
        self._touch(_HORIZON)
        self.evicted += 1
        return evicted

    def _forget(self, message_id: str) -> LogEntry:
        self.own.pop(message_id, None)
        self._touch(message_id)
        return self.entries.pop(message_id)

    def remove(self, message_id: str) -> None:
        """Take a message out of the log."""
        entry = self.entries.get(message_id)
        if entry is not None:
            del self._keys[bisect_left(self._keys, entry.key, lo=self._first)]
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
        keys = self._keys
        begin = max(self._first, len(keys) - count)
        entries = self.entries
        return [entries[message_id] for _, message_id in keys[begin:]]

    def causal_history(
        self, count: int, heads: Collection[str], *, with_senders: bool, hints: HintProvider | None
    ) -> list[bytes]:
        """The last entries, after those of `heads` that are not among them, as parts of a message."""
        chosen = self.last(count)
        if chosen and len(heads) > 1:
            lowest = chosen[0].key
            older = [entry for entry in map(self.entries.__getitem__, heads) if entry.key < lowest]
            if older:
                older.sort(key=lambda entry: entry.key)
                del older[MAX_CAUSAL_HISTORY - 1 :]
                chosen = [*older, *chosen[max(0, len(older) + len(chosen) - MAX_CAUSAL_HISTORY) :]]
        found = [entry.encoded for entry in chosen]
        if None in found:  # most are there from the message before
            return [entry.encoded or self._encode(entry, with_senders, hints) for entry in chosen]
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
                entry = LogEntry(key, lamport, sender_id, hint_of_text(hint))
                self.entries[key] = entry
                self._keys.append(entry.key)
        self._keys.sort()
        self.own = {
            message_id: lamport
            for lamport, message_id in self._keys
            if self.entries[message_id].sender_id == self._me
        }
        while len(self.entries) > self._limit:
            self._evict()
