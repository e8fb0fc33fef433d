"""The columns of a journal (docs/journal.md describes each), and rows as an Arrow table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pywaku.ids import PeerId
from pywaku.journal.arrow import Arrow, Table
from pywaku.journal.entry import JournalEntry, Row

SCHEMA_VERSION: Final = 1
"""Grows with each column that is added; none is ever removed, renamed, or given another type or meaning."""
OLDEST_READER: Final = 1
"""The version that a reader has to know to read these files rightly, should that rule ever be broken."""
HASH_SIZE: Final = 32

VERSION_KEY: Final = b"pywaku.journal.schema_version"
READER_KEY: Final = b"pywaku.journal.oldest_reader"


class Kind(Enum):
    """What a column holds."""

    TEXT = "string"
    INT32 = "int32"
    INT64 = "int64"
    HASH = "fixed_size_binary[32]"


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `repeats` where the same values come again and again, so that a dictionary pays."""

    name: str
    kind: Kind
    required: bool = False
    repeats: bool = False


PLACE: Final = (
    Column("schema_version", Kind.INT32, required=True, repeats=True),
    Column("node_id", Kind.TEXT, required=True, repeats=True),
    Column("boot_id", Kind.TEXT, required=True, repeats=True),
    Column("sequence", Kind.INT64, required=True),
    Column("wall_time_ns", Kind.INT64, required=True),
    Column("monotonic_ns", Kind.INT64, required=True),
)
"""Where and when, which the journal itself says of each row."""
ENTRY: Final = (
    Column("event", Kind.TEXT, required=True, repeats=True),
    Column("request_id", Kind.TEXT, repeats=True),
    Column("subscription_id", Kind.TEXT, repeats=True),
    Column("message_hash", Kind.HASH),
    Column("pubsub_topic", Kind.TEXT, repeats=True),
    Column("content_topic", Kind.TEXT, repeats=True),
    Column("message_timestamp_ns", Kind.INT64),
    Column("size", Kind.INT64),
    Column("attempt", Kind.INT32, repeats=True),
    Column("peer", Kind.TEXT, repeats=True),
    Column("source", Kind.TEXT, repeats=True),
    Column("state", Kind.TEXT, repeats=True),
    Column("error", Kind.TEXT, repeats=True),
    Column("channel_id", Kind.TEXT, repeats=True),
    Column("sender_id", Kind.TEXT, repeats=True),
    Column("channel_message_id", Kind.TEXT, repeats=True),
    Column("done", Kind.INT64),
    Column("total", Kind.INT64),
    Column("epoch", Kind.INT64, repeats=True),
)
"""What happened: the fields of `JournalEntry`, in their order."""
COLUMNS: Final = PLACE + ENTRY

_PEER: Final = JournalEntry._fields.index("peer")
_RANGES: Final = {Kind.INT32: 1 << 31, Kind.INT64: 1 << 63}


@dataclass(frozen=True, slots=True)
class Built:
    """A table, and how many values in it had to be mended."""

    table: Table
    mended: int


def arrow_type(arrow: Arrow, kind: Kind) -> Any:
    """The Arrow type of a column."""
    match kind:
        case Kind.TEXT:
            return arrow.string()
        case Kind.INT32:
            return arrow.int32()
        case Kind.INT64:
            return arrow.int64()
        case Kind.HASH:
            return arrow.binary(HASH_SIZE)


def arrow_schema(arrow: Arrow) -> Any:
    """The Arrow schema of a journal's tables."""
    return arrow.schema(
        [
            arrow.field(column.name, arrow_type(arrow, column.kind), nullable=not column.required)
            for column in COLUMNS
        ]
    )


def table_of(arrow: Arrow, node_id: str, boot_id: str, rows: Sequence[Row]) -> Built:
    """The rows as a table."""
    sequences, wall_times, monotonic_times, entries = zip(*rows, strict=True)
    values: list[Iterable[Any]] = list(zip(*entries, strict=True))
    values[_PEER] = _texts_of_peers(values[_PEER])
    arrays = [
        arrow.repeat(arrow.scalar(value, kind), len(rows))
        for value, kind in (
            (SCHEMA_VERSION, arrow.int32()),
            (node_id, arrow.string()),
            (boot_id, arrow.string()),
        )
    ]
    arrays += [arrow.array(value, arrow.int64()) for value in (sequences, wall_times, monotonic_times)]
    mended = 0
    for column, value in zip(ENTRY, values, strict=True):
        try:
            array = arrow.array(value, arrow_type(arrow, column.kind))
        except (ValueError, TypeError, OverflowError):
            array = None
        if array is None or (column.required and array.null_count):
            array, count = _mended(arrow, column, value)
            mended += count
        arrays.append(array)
    return Built(arrow.Table.from_arrays(arrays, schema=arrow_schema(arrow)), mended)


def _texts_of_peers(peers: Iterable[Any]) -> list[Any]:
    """Base58 takes its time, and the peers of a node are few."""
    known = {peer: str(peer) for peer in {peer for peer in peers if isinstance(peer, PeerId)}}
    return [known[peer] if isinstance(peer, PeerId) else peer for peer in peers]


def _mended(arrow: Arrow, column: Column, values: Iterable[Any]) -> tuple[Any, int]:
    """The column with what does not fit made to fit: one bad value must not cost a file of rows."""
    mended: list[Any] = []
    count = 0
    for value in values:
        fitting = value if value is None and not column.required else _fitting(column.kind, value)
        count += fitting is not value
        mended.append(fitting)
    return arrow.array(mended, arrow_type(arrow, column.kind)), count


def _fitting(kind: Kind, value: Any) -> Any:
    """The value itself if it fits, else what comes closest."""
    if kind is Kind.TEXT:
        text = value if isinstance(value, str) else str(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            return text.encode(errors="backslashreplace").decode()
        return text
    if kind is Kind.HASH:
        return value if isinstance(value, bytes) and len(value) == HASH_SIZE else None
    limit = _RANGES[kind]
    return value if type(value) is int and -limit <= value < limit else None
