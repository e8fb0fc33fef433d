"""What SQLite says when something is wrong, in words for operators."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from pywaku.errors import ArchiveError

_REASONS: Final = {
    sqlite3.SQLITE_FULL: ("disk-full", "the disk (or the limit set for the file) is full"),
    sqlite3.SQLITE_BUSY: ("locked", "another process has locked it for too long"),
    sqlite3.SQLITE_LOCKED: ("locked", "it is locked"),
    sqlite3.SQLITE_READONLY: ("read-only", "it cannot be written to"),
    sqlite3.SQLITE_PERM: ("read-only", "this user may not open it"),
    sqlite3.SQLITE_CANTOPEN: ("cannot-open", "it cannot be opened; does its directory exist?"),
    sqlite3.SQLITE_CORRUPT: ("corrupt", "it is damaged; restore a copy, or move it away to start anew"),
    sqlite3.SQLITE_NOTADB: ("corrupt", "it is not an SQLite database, or its start is damaged"),
    sqlite3.SQLITE_IOERR: ("disk-error", "the disk fails to read or write"),
}


@contextmanager
def clear_errors(name: str) -> Generator[None]:
    """Turn errors of SQLite into `ArchiveError`s that name the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise clear_error(name, error) from error


def clear_error(name: str, error: sqlite3.Error) -> ArchiveError:
    """The error in words."""
    reason, words = why(error)
    return ArchiveError(f"archive {name}: {words}", reason=reason)


def why(error: sqlite3.Error) -> tuple[str, str]:
    """What went wrong: a reason for counters, and words. The primary result code tells which kind it is."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    reason, words = _REASONS.get(-1 if code is None else code & 0xFF, ("other", ""))
    return reason, f"{words or 'failed'} ({error})"
