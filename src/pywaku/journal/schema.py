"""The columns of a journal (docs/journal.md describes each), and rows as an Arrow table."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pywaku.ids import PeerId
from pywaku.journal.arrow import Arrow, Table
from pywaku.journal.entry import Row

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

_IN_ROWS: Final = COLUMNS[COLUMNS.index(PLACE[3]) :]
_BATCH: Final = 1_000
"""Rows that are turned into columns at a time: twice as fast as 10,000, which do not fit the caches."""
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
    schema = arrow_schema(arrow)
    mended = 0
    batches: list[Any] = []
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        arrays = [
            arrow.repeat(arrow.scalar(value, kind), len(batch))
            for value, kind in (
                (SCHEMA_VERSION, arrow.int32()),
                (node_id, arrow.string()),
                (boot_id, arrow.string()),
            )
        ]
        for column, values in zip(_IN_ROWS, zip(*batch, strict=True), strict=True):
            array, count = _array(arrow, column, values)
            arrays.append(array)
            mended += count
        batches.append(arrow.RecordBatch.from_arrays(arrays, schema=schema))
    return Built(arrow.Table.from_batches(batches, schema), mended)


def _array(arrow: Arrow, column: Column, values: Sequence[Any]) -> tuple[Any, int]:
    """The values of a column, and how many had to be mended."""
    kind = arrow_type(arrow, column.kind)
    if column.name == "peer":
        values = _texts_of_peers(values)
    with suppress(ValueError, TypeError, OverflowError):
        array = arrow.array(values, kind)
        if not (column.required and array.null_count):
            return array, 0
    # One bad value must not cost a file of rows.
    mended = [
        value if value is None and not column.required else _fitting(column.kind, value) for value in values
    ]
    count = sum(new is not old for new, old in zip(mended, values, strict=True))
    return arrow.array(mended, kind), count


def _texts_of_peers(peers: Sequence[Any]) -> list[Any]:
    """Base58 takes its time, and the peers of a node are few."""
    known = {peer: str(peer) for peer in {peer for peer in peers if isinstance(peer, PeerId)}}
    return [known[peer] if isinstance(peer, PeerId) else peer for peer in peers]


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
