"""The event journal: what happened, as rows in Parquet files (see docs/journal.md)."""

from pywaku.journal.blocking import RunBlocking, in_thread, inline
from pywaku.journal.entry import MAX_TEXT, JournalEntry
from pywaku.journal.events import (
    JOURNAL_CLOSED,
    JOURNAL_DROPPED,
    JOURNAL_OPENED,
    MESSAGE_ATTEMPT,
    MESSAGE_CANCELLED,
    MESSAGE_REQUESTED,
    RATE_CHARGED,
)
from pywaku.journal.journal import Journal, open_journal
from pywaku.journal.options import JournalCounters, JournalOptions
from pywaku.journal.reading import read_journal
from pywaku.journal.schema import COLUMNS, SCHEMA_VERSION, Column, Kind

__all__ = [
    "COLUMNS",
    "JOURNAL_CLOSED",
    "JOURNAL_DROPPED",
    "JOURNAL_OPENED",
    "MAX_TEXT",
    "MESSAGE_ATTEMPT",
    "MESSAGE_CANCELLED",
    "MESSAGE_REQUESTED",
    "RATE_CHARGED",
    "SCHEMA_VERSION",
    "Column",
    "Journal",
    "JournalCounters",
    "JournalEntry",
    "JournalOptions",
    "Kind",
    "RunBlocking",
    "in_thread",
    "inline",
    "open_journal",
    "read_journal",
]
