"""Many rows by few statements.

A statement for each row would give up the interpreter's lock and ask for it back with each: beside a busy
event loop that takes milliseconds a time. So rows go 64 at a time, then 8, then singly; of each statement
there are three texts, which SQLite has to parse once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

Value = int | str | bytes | None
_SIZES: Final = (64, 8, 1)


def write_rows(
    connection: sqlite3.Connection, before: str, rows: Sequence[Sequence[Value]], after: str = ""
) -> None:
    """Execute `before (?, …), (?, …) after` for all the rows."""
    start = 0
    for size in _SIZES:
        while len(rows) - start >= size:
            text = _text(before, len(rows[start]), size, after)
            connection.execute(text, list(chain.from_iterable(rows[start : start + size])))
            start += size


def select_in(connection: sqlite3.Connection, before: str, keys: Sequence[Value]) -> list[Any]:
    """All rows of `before (?, ?, …)` for the keys."""
    found: list[Any] = []
    start = 0
    for size in _SIZES:
        while len(keys) - start >= size:
            text = _text(before, size, 1, "")
            found += connection.execute(text, keys[start : start + size]).fetchall()
            start += size
    return found


@lru_cache(maxsize=64)
def _text(before: str, columns: int, rows: int, after: str) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"{before} {', '.join([row] * rows)}{after}"
