"""The records of recent messages, in memory: most changes are to these, and need not look them up."""

from __future__ import annotations

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
        self._entries: dict[bytes, tuple[Entry, ...]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, message_hash: bytes) -> tuple[Entry, ...] | None:
        """The records of a message; None where they have to be looked up."""
        return self._entries.get(message_hash)

    def put(self, message_hash: bytes, entries: tuple[Entry, ...]) -> None:
        """These are all the records of the message."""
        self.drop(message_hash)
        if not entries:
            return
        self._entries[message_hash] = entries
        self._bytes += _size(entries)
        while len(self._entries) > self._max_messages or self._bytes > self._max_bytes:
            self.drop(next(iter(self._entries)))

    def drop(self, message_hash: bytes) -> None:
        """Forget a message."""
        entries = self._entries.pop(message_hash, None)
        if entries is not None:
            self._bytes -= _size(entries)


def _size(entries: tuple[Entry, ...]) -> int:
    return (len(entries[0].record.message.payload) + _ENTRY_BYTES) * len(entries)
