"""The records of messages: changes against the bare driver, and what a query costs as they grow."""

from __future__ import annotations

import os
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch
from uuid import UUID

import trio

from bench.report import Row, compare
from bench.sides import Scale
from pywaku.message import WakuMessage, message_hash
from pywaku.messaging.record import BACKGROUND_SUBSCRIPTION, MessageRecord
from pywaku.messaging.records import Change, RecordStore, Retention, open_record_store
from pywaku.messaging.records.sqlite import schema, writer
from pywaku.messaging.records.sqlite.bulk import Value

_SENDS = 10_000
_BATCH = 500
_PAYLOAD = 200
_TOPICS = 20
_PAGE = 20
_ASKED = 400
SIZES = {"1k": 1_000, "100k": 100_000, "1m": 1_000_000}
KINDS = ("request-id", "hash", "content-topic", "subscription")
_PUBSUB_TOPIC = "/waku/2/rs/42/0"
_START_NS = 1_700_000_000_000_000_000
_STEP_NS = 10_000_000
_KEPT = Retention(max_age_s=None, max_records=None)

Written = list[tuple[str, Sequence[Sequence[Value]]]]
"""Statements and their rows."""


def _request_id(number: int) -> str:
    """A GUID that is ordered by time, as the node makes them."""
    return str(UUID(int=((_START_NS + number * _STEP_NS) // 1_000_000) << 80 | 7 << 76 | 1 << 63 | number))


def _record(number: int, *, sent: bool) -> MessageRecord:
    message = WakuMessage(
        os.urandom(_PAYLOAD), f"/pywaku/1/bench-{number % _TOPICS}/proto", timestamp_ns=_START_NS + number
    )
    return MessageRecord(
        message_hash(_PUBSUB_TOPIC, message),
        _PUBSUB_TOPIC,
        message,
        sending=sent,
        request_id=_request_id(number) if sent else None,
        created_ns=_START_NS + number * _STEP_NS,
    )


def _life(record: MessageRecord) -> Iterator[Change]:
    """What becomes of a message that is sent."""
    key, at_ns, request_id = record.message_hash, record.created_ns, record.request_id
    yield Change.adding(record)
    yield Change(key, at_ns + 1, request_id=request_id, propagated=True, attempts=1)
    yield Change(key, at_ns + 2, received=True, subscription_ids=(BACKGROUND_SUBSCRIPTION,))
    yield Change(key, at_ns + 3, request_id=request_id, sent=True)
    yield Change(key, at_ns + 4, stored=True)


def _batches(sends: int) -> list[list[Change]]:
    """Each change of 500 sends in a batch of its own, so that most batches hold but one kind."""
    lives = [list(_life(_record(number, sent=True))) for number in range(sends)]
    return [
        [life[step] for life in lives[start : start + _BATCH]]
        for start in range(0, sends, _BATCH)
        for step in range(len(lives[0]))
    ]


async def _ours(path: Path, batches: list[list[Change]]) -> float:
    async with open_record_store(path, retention=_KEPT) as store:
        start = time.perf_counter()
        for batch in batches:
            await store.apply(batch)
        return sum(map(len, batches)) / (time.perf_counter() - start)


async def _rows(path: Path, batches: list[list[Change]]) -> list[Written]:
    """What ours writes for each batch."""
    found: list[Written] = []

    def note(
        connection: sqlite3.Connection, before: str, rows: Sequence[Sequence[Value]], after: str = ""
    ) -> None:
        found[-1].append((before, list(rows)))

    async with open_record_store(path, retention=_KEPT) as store:
        with patch.object(writer, "write_rows", note):
            for batch in batches:
                found.append([])
                await store.apply(batch)
    return found


def _bare(path: Path, written: list[Written], changes: int) -> float:
    """The same rows, made beforehand, into the same tables, with nothing but the driver."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA cache_size = -32768")
        schema.prepare(connection, "bare")
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        start = time.perf_counter()
        for batch in written:
            connection.execute("BEGIN")
            for before, rows in batch:
                if rows:
                    connection.executemany(f"{before} ({', '.join('?' * len(rows[0]))})", rows)
            connection.execute("COMMIT")
        return changes / (time.perf_counter() - start)


async def apply(scale: Scale) -> list[Row]:
    """Changes in batches of 500, as a ratio to `executemany` on the rows that they come to."""
    batches = _batches(scale.of(_SENDS))
    changes = sum(map(len, batches))
    ours: list[float] = []
    bare: list[float] = []
    with TemporaryDirectory() as directory:
        written = await _rows(Path(directory) / "rows", batches)
    for number in range(scale.rounds + 1):
        with TemporaryDirectory() as directory:
            ours.append(await _ours(Path(directory) / "ours", batches))
        with TemporaryDirectory() as directory:
            bare.append(await trio.to_thread.run_sync(_bare, Path(directory) / "bare", written, changes))
        if number == 0:  # warm-up
            ours.clear()
            bare.clear()
    return [
        compare(
            "records-apply",
            ours=statistics.median(ours),
            theirs=statistics.median(bare),
            peer="bare sqlite3 executemany",
            goal=0.5,
            unit="changes/s",
        )
    ]


def query_names(sizes: Iterable[str]) -> tuple[str, ...]:
    """The rows of records of these numbers."""
    return tuple(f"records-query-{kind}-{size}" for size in sizes for kind in KINDS)


async def queries(scale: Scale) -> list[Row]:
    """Each kind of query among records of growing number; flat within 2×."""
    sizes = dict(SIZES)
    if scale.work < 1:
        del sizes["1m"]
    rows: list[Row] = []
    base: dict[str, float] = {}
    for label, size in sizes.items():
        with TemporaryDirectory() as directory:
            async with open_record_store(Path(directory) / "records", retention=_KEPT) as store:
                hashes = await _fill(store, size)
                for kind, ask in _kinds(store, hashes).items():
                    taken = await _time(ask, size, scale.of(_ASKED))
                    rows.append(
                        compare(
                            f"records-query-{kind}-{label}",
                            ours=taken * 1e6,
                            theirs=base[kind] * 1e6 if kind in base else None,
                            peer="1k" if kind in base else None,
                            goal=0.5 if kind in base else None,
                            unit="µs",
                            less_is_better=True,
                        )
                    )
                    base.setdefault(kind, taken)
    return rows


async def _fill(store: RecordStore, size: int) -> list[bytes]:
    """Sends and received messages in turn; their hashes."""
    hashes: list[bytes] = []
    for start in range(0, size, 1_000):
        records = [_record(number, sent=number % 2 == 0) for number in range(start, min(start + 1_000, size))]
        hashes += [record.message_hash for record in records]
        await store.apply(
            [
                Change(
                    record.message_hash,
                    record.created_ns,
                    record,
                    record.request_id,
                    sent=True,
                    received=True,
                    stored=True,
                    subscription_ids=(BACKGROUND_SUBSCRIPTION,),
                )
                for record in records
            ]
        )
    return hashes


Ask = Callable[[int], Awaitable[object]]
"""Asks for something about a message, by its number."""


def _kinds(store: RecordStore, hashes: list[bytes]) -> dict[str, Ask]:
    asks: tuple[Ask, ...] = (
        lambda number: store.by_request_id(_request_id(number - number % 2)),
        lambda number: store.by_hash(hashes[number]),
        lambda number: store.by_content_topic(f"/pywaku/1/bench-{number % _TOPICS}/proto", 0, _PAGE),
        lambda _: store.by_subscription_id(BACKGROUND_SUBSCRIPTION, 0, _PAGE),
    )
    return dict(zip(KINDS, asks, strict=True))


async def _time(ask: Ask, size: int, count: int) -> float:
    """Seconds that an answer takes: the median over messages from all of the file."""
    times: list[float] = []
    for number in range(count):
        asked = number * 7_919 % size
        start = time.perf_counter()
        answer = await ask(asked)
        times.append(time.perf_counter() - start)
        assert answer
    return statistics.median(times)
