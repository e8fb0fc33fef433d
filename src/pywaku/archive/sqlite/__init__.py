"""The archive in an SQLite file."""

from pywaku.archive.sqlite.archive import SqliteArchive, open_sqlite

__all__ = ["SqliteArchive", "open_sqlite"]
