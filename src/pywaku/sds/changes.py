"""What a channel has to save: rows that changed, for a store to write in one transaction per step."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from pywaku.errors import DecodeError

FORMAT: Final = 1
"""The version of the rows below, kept in the row of the clock."""

Rows = Mapping[str, bytes]
"""The rows of one table, by key."""
Touch = Callable[[str], None]
"""Says that the row of a key has changed, or is gone."""


class Table(Enum):
    """The tables of a channel's state. Keys are message ids, sender ids, slots, or empty."""

    CLOCK = "clock"
    LOG = "log"
    HEADS = "heads"
    BLOOM = "bloom"
    BODY = "body"
    """Messages as they are on the wire, whoever needs them; written once each."""
    OUTGOING = "outgoing"
    INCOMING = "incoming"
    MISSING = "missing"
    LOST = "lost"
    RESPONSE = "response"
    CACHE = "cache"
    PARTICIPANT = "participant"
    SYNC = "sync"


class Change(NamedTuple):
    """Put a row into a table of the channel's state, or (`value` is None) delete it if it is there."""

    table: Table
    key: str
    value: bytes | None


class Keeper(Protocol):
    """A part of the state that is a table."""

    def record(self, key: str) -> bytes | None:
        """The row of a key, None where there is none."""
        ...

    def load(self, rows: Rows) -> None:
        """Take the saved rows, once, before anything else."""
        ...


class Changes:
    """The rows that changed since they were last taken."""

    __slots__ = ("_changed", "_enabled")

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._changed: dict[tuple[Table, str], None] = {}

    def touching(self, table: Table) -> Touch:
        """How a table says what has changed in it."""
        if not self._enabled:
            return _forget
        changed = self._changed

        def touch(key: str) -> None:
            changed[table, key] = None

        return touch

    def take(self, keepers: Mapping[Table, Keeper]) -> list[Change]:
        """The changed rows as they are now."""
        changes = [Change(table, key, keepers[table].record(key)) for table, key in self._changed]
        self._changed.clear()
        return changes


def _forget(_key: str) -> None:
    """Where nothing is saved."""


def pack(*values: object) -> bytes:
    """Numbers, texts and lists of them as a row."""
    return json.dumps(values, separators=(",", ":")).encode()


def unpack(row: bytes) -> Any:
    """The values in a row; raises `DecodeError`."""
    try:
        return json.loads(row)
    except ValueError as error:
        raise DecodeError(f"a row of saved SDS state is damaged: {error}") from None


def hint_to_text(hint: bytes | None) -> str | None:
    """A hint for a row."""
    return None if hint is None else hint.hex()


def hint_of_text(text: str | None) -> bytes | None:
    """A hint in a row."""
    return None if text is None else bytes.fromhex(text)
