"""What SQLite and the system say when something is wrong, as errors of the records."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from pywaku.archive.sqlite.errors import why
from pywaku.errors import RecordError

_REASONS: Final = {
    errno.ENOSPC: ("disk-full", "the disk is full"),
    errno.EDQUOT: ("disk-full", "the disk quota is used up"),
    errno.EFBIG: ("disk-full", "the file may not grow any more"),
    errno.EROFS: ("read-only", "it cannot be written to"),
    errno.EACCES: ("read-only", "this user may not open it"),
    errno.EPERM: ("read-only", "this user may not open it"),
    errno.ENOENT: ("cannot-open", "it cannot be opened; does its directory exist?"),
    errno.ENOTDIR: ("cannot-open", "it cannot be opened; does its directory exist?"),
    errno.EISDIR: ("cannot-open", "it is a directory"),
    errno.EIO: ("disk-error", "the disk fails to read or write"),
}


@contextmanager
def clear_errors(name: str) -> Generator[None]:
    """Turn errors of SQLite and of the system into `RecordError`s that name the file."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise clear_error(name, error) from error


def clear_error(name: str, error: sqlite3.Error | OSError) -> RecordError:
    """The error in words."""
    if isinstance(error, sqlite3.Error):
        reason, words = why(error)
    else:
        reason, words = _REASONS.get(error.errno or 0, ("other", "failed"))
        words = f"{words} ({error})"
    return RecordError(f"records {name}: {words}", reason=reason)
