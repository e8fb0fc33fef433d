"""The journal: rows through `write` until they are in files, against bare pyarrow and the same columns."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio

from bench.report import Row, compare
from bench.sides import Scale
from pywaku.ids import PeerId
from pywaku.journal import COLUMNS, JournalEntry, JournalOptions, open_journal
from pywaku.journal.arrow import load_arrow
from pywaku.journal.files import PARTITION, PREFIX, SUFFIX
from pywaku.journal.schema import arrow_schema

_ROWS = 200_000
_OPTIONS = JournalOptions()
_PEERS = [PeerId(b"\x00\x24" + bytes((number,)) * 36) for number in range(20)]
_EVENTS = ("message:requested", "message:attempt", "message:propagated", "message:sent", "message:stored")


async def _ours(directory: str, count: int) -> float:
    """Rows a second, from making an entry to the file that holds it; messages leave five rows each."""
    messages = [(os.urandom(16).hex(), os.urandom(32)) for _ in range(count // len(_EVENTS))]
    start = time.perf_counter()
    async with open_journal(directory, node_id="bench", options=_OPTIONS) as journal:
        for number, (request_id, message_hash) in enumerate(messages):
            for event in _EVENTS:
                journal.write(
                    JournalEntry(
                        event,
                        request_id=request_id,
                        message_hash=message_hash,
                        pubsub_topic="/waku/2/rs/42/0",
                        content_topic="/pywaku/1/bench/proto",
                        message_timestamp_ns=1_790_000_000 * 10**9 + number,
                        size=200,
                        attempt=1,
                        peer=_PEERS[number % len(_PEERS)],
                        source="own",
                    )
                )
            if number % 20 == 0:
                await trio.sleep(0)
                if journal.pending > _OPTIONS.max_rows // 2:
                    await journal.flush()
    seconds = time.perf_counter() - start
    assert journal.counters.dropped == 0
    assert journal.counters.written == len(messages) * len(_EVENTS) + 2
    return journal.counters.written / seconds


def _columns(arrow: Any, directory: str) -> list[dict[str, list[Any]]]:
    """What our files hold, as lists, for each file."""
    return [
        arrow.parquet.ParquetFile(path).read().to_pydict()
        for path in sorted(Path(directory).glob(f"{PARTITION}*/{PREFIX}*{SUFFIX}"))
    ]


def _bare(arrow: Any, directory: str, files: list[dict[str, list[Any]]]) -> float:
    """The same columns, made beforehand, into files of the same size."""
    schema = arrow_schema(arrow)
    names = [column.name for column in COLUMNS]
    start = time.perf_counter()
    for number, columns in enumerate(files):
        table = arrow.table({name: columns[name] for name in names}, schema=schema)
        with open(f"{directory}/{number}.parquet", "wb") as file:
            arrow.parquet.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
    return sum(len(columns["sequence"]) for columns in files) / (time.perf_counter() - start)


async def writes(scale: Scale) -> list[Row]:
    """200,000 events as rows, 10,000 in a file, which both sides bring to the disk."""
    arrow = load_arrow()
    ours: list[float] = []
    bare: list[float] = []
    for number in range(scale.rounds + 1):
        with TemporaryDirectory() as directory:
            ours.append(await _ours(directory, scale.of(_ROWS)))
            columns = _columns(arrow, directory)
        with TemporaryDirectory() as directory:
            bare.append(await trio.to_thread.run_sync(_bare, arrow, directory, columns))
        if number == 0:  # warm-up
            ours.clear()
            bare.clear()
    return [
        compare(
            "journal-write",
            ours=statistics.median(ours),
            theirs=statistics.median(bare),
            peer="bare pyarrow write_table",
            goal=0.25,
            unit="rows/s",
        )
    ]
