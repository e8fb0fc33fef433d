"""The records of recent messages, in memory: most changes are to these, and need not look them up."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from pywaku.messaging.records.sqlite.rows import Entry

MAX_MESSAGES: Final = 8_192
MAX_BYTES: Final = 16 << 20
_ENTRY_BYTES: Final = 1_200
"""What an entry takes beyond the payload, about."""


class Recent:
    """All records of each message that is in it; beyond its bounds, what was longest not looked at goes."""

    def __init__(self, max_messages: int = MAX_MESSAGES, max_bytes: int = MAX_BYTES) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0
        # Not a dict: to find the first key of one, all that were removed before it are passed over.
        self._entries: OrderedDict[bytes, tuple[Entry, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, message_hash: bytes) -> tuple[Entry, ...] | None:
        """The records of a message; None where they have to be looked up."""
        return self._entries.get(message_hash)

    def put(self, message_hash: bytes, entries: tuple[Entry, ...]) -> None:
        """These are all the records of the message."""
        before = self._entries.pop(message_hash, ())
        if not entries:
            self._bytes -= _size(before)
            return
        self._entries[message_hash] = entries
        if len(entries) != len(before):
            self._bytes += _size(entries) - _size(before)
        while len(self._entries) > self._max_messages or self._bytes > self._max_bytes:
            _, gone = self._entries.popitem(last=False)
            self._bytes -= _size(gone)

    def drop(self, message_hash: bytes) -> None:
        """Forget a message."""
        self._bytes -= _size(self._entries.pop(message_hash, ()))


def _size(entries: tuple[Entry, ...]) -> int:
    return (len(entries[0].record.message.payload) + _ENTRY_BYTES) * len(entries) if entries else 0
