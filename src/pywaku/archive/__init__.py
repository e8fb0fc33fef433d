"""What a store node keeps: one port, SQLite and PostgreSQL behind it."""

from pywaku.archive.eligibility import Ineligible, why_ineligible
from pywaku.archive.opening import DEFAULT_URL, open_archive
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
from pywaku.archive.retention import DEFAULT_RETENTION, parse_retention
from pywaku.archive.writer import ArchiveWriter, WriterCounters, WriterOptions, open_archive_writer

__all__ = [
    "DEFAULT_RETENTION",
    "DEFAULT_URL",
    "Archive",
    "ArchiveCounters",
    "ArchiveEntry",
    "ArchivePage",
    "ArchiveQuery",
    "ArchiveStats",
    "ArchiveWriter",
    "Ineligible",
    "RetentionPolicy",
    "StoredMessage",
    "WriterCounters",
    "WriterOptions",
    "open_archive",
    "open_archive_writer",
    "parse_retention",
    "why_ineligible",
]
