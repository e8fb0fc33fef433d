"""What a store node keeps: one port, SQLite and PostgreSQL behind it."""

from pywaku.archive.port import (
    Archive,
    ArchiveCounters,
    ArchiveEntry,
    ArchivePage,
    ArchiveQuery,
    ArchiveStats,
    RetentionPolicy,
    StoredMessage,
)

__all__ = [
    "Archive",
    "ArchiveCounters",
    "ArchiveEntry",
    "ArchivePage",
    "ArchiveQuery",
    "ArchiveStats",
    "RetentionPolicy",
    "StoredMessage",
]
