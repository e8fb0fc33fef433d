"""Rows to write, and rows read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio

from pywaku.ids import PeerId
from pywaku.journal import JOURNAL_DROPPED, JournalEntry, read_journal
from pywaku.journal.arrow import load_arrow

arrow: Any = load_arrow()

NODE = "16Uiu2HAm-node"
PEER = PeerId.of_public_key(b"\x08\x02\x12\x21" + bytes(33))
START_NS = 1_790_000_000 * 10**9
"""What wall clocks show when virtual time starts: 2026-09-21, 14:13:20 UTC."""

FULL = JournalEntry(
    "message:attempt",
    request_id="a5b1",
    subscription_id="c7d2",
    message_hash=bytes(range(32)),
    pubsub_topic="/waku/2/rs/42/0",
    content_topic="/app/1/chat/proto",
    message_timestamp_ns=-1,
    size=200,
    attempt=2,
    peer=PEER,
    source="own",
    state="sent",
    error="TOO_MANY_REQUESTS",
    channel_id="room",
    sender_id="alice",
    channel_message_id="a5b1:1",
    done=3,
    total=10,
    epoch=7,
)
"""An entry with all there is."""


def wall_clock() -> int:
    """Nanoseconds since 1970, moving with virtual time."""
    return START_NS + monotonic()


def monotonic() -> int:
    """Virtual time in nanoseconds."""
    return round(trio.current_time() * 1e9)


def event(number: int) -> JournalEntry:
    """An entry that can be told from others."""
    return JournalEntry(f"test:{number}", size=number)


def files_in(directory: Path) -> list[Path]:
    """What a reader sees."""
    return sorted(directory.glob("date=*/*.parquet"))


def temporaries_in(directory: Path) -> list[Path]:
    """What readers skip."""
    return sorted(directory.glob(".*"))


def rows_in(directory: Path) -> list[dict[str, Any]]:
    """All rows, in order."""
    return read_journal(directory).to_pylist()


def events_in(directory: Path) -> list[str]:
    """The events of all rows, in order."""
    return [row["event"] for row in rows_in(directory)]


def numbers_in(directory: Path) -> list[int]:
    """The numbers of the `event`s, in order."""
    return [int(name.removeprefix("test:")) for name in events_in(directory) if name.startswith("test:")]


def rows_in_file(path: Path) -> list[dict[str, Any]]:
    """The rows of one file."""
    return arrow.parquet.ParquetFile(path).read().to_pylist()


def unexplained(rows: list[dict[str, Any]]) -> int:
    """How many events of a boot are missing without a row that says so, before its last row."""
    stands_for = sum(row["total"] if row["event"] == JOURNAL_DROPPED else 1 for row in rows)
    return rows[-1]["sequence"] + 1 - stands_for
