"""An archive in a list: the rules of the port in the plainest way, as a model and for virtual time.

The real archives work in threads, which virtual time jumps over; this one does not, so tests of what is
built on an archive use it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pywaku.archive.keys import flags_of
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
from pywaku.archive.sqlite.schema import APPLICATION_ID
from pywaku.errors import ArchiveError, CursorNotFound
from pywaku.message import WakuMessage


class MemoryArchive:
    """The port, without a disk. Set `failure` to make every call fail with it."""

    def __init__(self) -> None:
        self.name = "memory"
        self.counters = ArchiveCounters()
        self.failure: ArchiveError | None = None
        self.kept: dict[bytes, StoredMessage] = {}
        self.closed = False

    async def insert(self, messages: Sequence[StoredMessage]) -> int:
        """Keep the messages."""
        self._require_working()
        return self.insert_now(messages)

    def insert_now(self, messages: Sequence[StoredMessage]) -> int:
        """Keep the messages, without a task."""
        before = len(self.kept)
        for message in messages:
            self.kept.setdefault(message.message_hash, message)
        new = len(self.kept) - before
        self.counters.inserts += 1
        self.counters.inserted += new
        self.counters.duplicates += len(messages) - new
        return new

    async def query(self, query: ArchiveQuery) -> ArchivePage:
        """The page."""
        self._require_working()
        self.counters.queries += 1
        return self.query_now(query)

    def query_now(self, query: ArchiveQuery) -> ArchivePage:
        """The page, without a task."""
        some = [self.kept[value] for value in dict.fromkeys(query.hashes) if value in self.kept]
        found = sorted(some, key=_key) if query.hashes else self.in_order()
        found = [entry for entry in found if _matches(entry, query)]
        if query.cursor is not None:
            at = self.kept.get(query.cursor)
            if at is None:
                raise CursorNotFound(f"no message {query.cursor.hex()} in the archive")
            if query.ascending:
                found = [entry for entry in found if _key(entry) > _key(at)]
            else:
                found = [entry for entry in found if _key(entry) < _key(at)]
        page = found[: query.limit] if query.ascending else found[-query.limit :]
        more = len(found) > len(page)
        edge = page[-1 if query.ascending else 0].message_hash if more else None
        return ArchivePage(tuple(_entry(entry, query.include_data) for entry in page), edge)

    def in_order(self) -> list[StoredMessage]:
        """Everything, sorted."""
        return sorted(self.kept.values(), key=_key)

    async def stats(self) -> ArchiveStats:
        """What is kept now."""
        self._require_working()
        entries = self.in_order()
        return ArchiveStats(
            len(entries),
            sum(len(entry.message.payload) for entry in entries),
            entries[0].timestamp_ns if entries else None,
            entries[-1].timestamp_ns if entries else None,
        )

    async def retain(self, policy: RetentionPolicy, now_ns: int) -> int:
        """Remove what is too old or too much; the size counts payloads."""
        self._require_working()
        return self.retain_now(policy, now_ns)

    def retain_now(self, policy: RetentionPolicy, now_ns: int) -> int:
        """The same, without a task."""
        entries = self.in_order()
        keep = entries
        if policy.max_age_s is not None:
            oldest = now_ns - policy.max_age_s * 1_000_000_000
            keep = [entry for entry in keep if entry.timestamp_ns >= oldest]
        if policy.max_messages is not None:
            keep = keep[max(0, len(keep) - policy.max_messages) :]
        if policy.max_bytes is not None:
            while keep and sum(len(entry.message.payload) for entry in keep) > policy.max_bytes:
                keep = keep[1:]
        self.kept = {entry.message_hash: entry for entry in keep}
        self.counters.removed += len(entries) - len(keep)
        return len(entries) - len(keep)

    async def close(self) -> None:
        """Let nobody in any more."""
        self.closed = True

    def _require_working(self) -> None:
        if self.closed:
            raise ArchiveError("the archive memory is closed", reason="closed")
        if self.failure is not None:
            self.counters.errors[self.failure.reason] = self.counters.errors.get(self.failure.reason, 0) + 1
            raise self.failure


def _key(message: StoredMessage) -> tuple[int, bytes]:
    return message.timestamp_ns, message.message_hash


def _matches(message: StoredMessage, query: ArchiveQuery) -> bool:
    if query.hashes:
        return message.message_hash in query.hashes
    return (
        query.pubsub_topic in (None, message.pubsub_topic)
        and (not query.content_topics or message.message.content_topic in query.content_topics)
        and (query.start_ns is None or message.timestamp_ns >= query.start_ns)
        and (query.end_ns is None or message.timestamp_ns < query.end_ns)
    )


def _entry(message: StoredMessage, include_data: bool) -> ArchiveEntry:
    if not include_data:
        return ArchiveEntry(message.message_hash, message.timestamp_ns)
    return ArchiveEntry(message.message_hash, message.timestamp_ns, message.pubsub_topic, message.message)


PUBSUB_TOPIC = "/waku/2/rs/42/0"
START_NS = 1_700_000_000_000_000_000


def stored(
    number: int = 0,
    *,
    timestamp_ns: int | None = START_NS,
    content_topic: str = "/test/1/archive/proto",
    pubsub_topic: str = PUBSUB_TOPIC,
    size: int = 16,
) -> StoredMessage:
    """A message to keep; those of different numbers differ."""
    payload = number.to_bytes(8, "big", signed=True).ljust(size, b".")
    message = WakuMessage(payload, content_topic, timestamp_ns=timestamp_ns)
    return StoredMessage.of(pubsub_topic, message, START_NS)


def series(count: int, *, step_ns: int = 1_000_000, size: int = 16, **fields: str) -> list[StoredMessage]:
    """Messages one after the other in time, so in the order of the archive."""
    return [stored(i, timestamp_ns=START_NS + i * step_ns, size=size, **fields) for i in range(count)]


async def pages(archive: Archive, query: ArchiveQuery) -> list[ArchivePage]:
    """All pages from that of `query` on, each asked for with the cursor of the one before."""
    found = [await archive.query(query)]
    while found[-1].cursor is not None:
        found.append(await archive.query(replace(query, cursor=found[-1].cursor)))
    return found


def write_sqlite_version_1(path: Path, messages: Sequence[StoredMessage]) -> None:
    """A file as the first version of the tables had it: topics in full, no count."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in _SQLITE_VERSION_1:
            connection.execute(statement)
        connection.executemany(
            "INSERT INTO messages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    stored.message_hash,
                    stored.timestamp_ns,
                    stored.pubsub_topic,
                    stored.message.content_topic,
                    stored.message.payload,
                    stored.message.meta,
                    stored.message.version,
                    stored.message.rate_limit_proof,
                    flags_of(stored.message),
                    stored.received_ns,
                )
                for stored in messages
            ],
        )


_SQLITE_VERSION_1 = (
    """CREATE TABLE messages (
        message_hash BLOB NOT NULL PRIMARY KEY,
        timestamp INTEGER NOT NULL,
        pubsub_topic TEXT NOT NULL,
        content_topic TEXT NOT NULL,
        payload BLOB NOT NULL,
        meta BLOB,
        version INTEGER,
        rate_limit_proof BLOB,
        flags INTEGER NOT NULL,
        received INTEGER NOT NULL
    )""",
    "CREATE INDEX messages_by_topic ON messages (content_topic, timestamp, message_hash)",
    "CREATE INDEX messages_by_time ON messages (timestamp, message_hash)",
    "PRAGMA user_version = 1",
    f"PRAGMA application_id = {APPLICATION_ID}",
)
