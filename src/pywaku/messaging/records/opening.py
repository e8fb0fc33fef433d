"""Records by where they are kept: in an SQLite file, or in memory."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from pywaku.messaging.records.memory import MemoryRecordStore
from pywaku.messaging.records.port import RecordStore, Retention


@asynccontextmanager
async def open_record_store(
    path: Path | str | None, *, retention: Retention | None = None
) -> AsyncGenerator[RecordStore]:
    """The records in the file at `path`, which is made if there is none; in memory where it is None."""
    if path is None:
        store: RecordStore = MemoryRecordStore() if retention is None else MemoryRecordStore(retention)
    else:
        from pywaku.messaging.records.sqlite import open_sqlite_records  # in memory nobody needs it

        store = await open_sqlite_records(path, retention)
    try:
        yield store
    finally:
        await store.close()
