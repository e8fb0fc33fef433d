"""Records in an SQLite file."""

from pywaku.messaging.records.sqlite.store import SqliteRecordStore, open_sqlite_records

__all__ = ["SqliteRecordStore", "open_sqlite_records"]
