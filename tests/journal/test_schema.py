"""What is in a file: columns, types, versions, and values exactly as they were."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import InvalidInput
from pywaku.journal import (
    COLUMNS,
    MAX_TEXT,
    SCHEMA_VERSION,
    JournalEntry,
    Kind,
    inline,
    open_journal,
    read_journal,
)
from pywaku.journal.schema import ENTRY
from tests.journal.rows import FULL, NODE, PEER, START_NS, arrow, files_in, monotonic, rows_in, wall_clock

pytestmark = pytest.mark.virtual

DOCS = Path(__file__).parents[2] / "docs" / "journal.md"


async def _write(directory: Path | str, *entries: JournalEntry) -> None:
    async with open_journal(
        directory, node_id=NODE, clock=wall_clock, monotonic=monotonic, run_blocking=inline
    ) as journal:
        for entry in entries:
            journal.write(entry)


def _as_read(entry: JournalEntry) -> dict[str, Any]:
    values = entry._asdict()
    values["peer"] = None if entry.peer is None else str(entry.peer)
    return values


def _entries(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was written, of what was read."""
    return [{column.name: row[column.name] for column in ENTRY} for row in rows[1:-1]]


def test_the_fields_of_an_entry_are_the_columns() -> None:
    assert JournalEntry._fields == tuple(column.name for column in ENTRY)


def test_every_column_is_documented_in_order_with_its_type() -> None:
    table = DOCS.read_text().split("## Columns")[1].split("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)` \| ([\w \[\]]+?) \| ([^|]*)\|", table, re.M)
    names = {
        Kind.TEXT: "string",
        Kind.INT32: "int32",
        Kind.INT64: "int64",
        Kind.HASH: "binary 32",
    }
    assert [(name, kind, "always" in always) for name, kind, always in documented] == [
        (column.name, names[column.kind], column.required) for column in COLUMNS
    ]


async def test_files_have_the_columns_with_their_types(tmp_path: Path) -> None:
    await _write(tmp_path, FULL)
    (path,) = files_in(tmp_path)
    schema = arrow.parquet.read_schema(path)
    assert [(field.name, str(field.type), field.nullable) for field in schema] == [
        (column.name, column.kind.value, not column.required) for column in COLUMNS
    ]


async def test_files_say_their_version_node_and_boot(tmp_path: Path) -> None:
    await _write(tmp_path, FULL)
    (path,) = files_in(tmp_path)
    metadata = arrow.parquet.read_metadata(path).metadata
    rows = rows_in(tmp_path)
    assert metadata[b"pywaku.journal.schema_version"] == str(SCHEMA_VERSION).encode()
    assert metadata[b"pywaku.journal.node_id"] == NODE.encode()
    assert {row["boot_id"].encode() for row in rows} == {metadata[b"pywaku.journal.boot_id"]}
    assert {(row["schema_version"], row["node_id"]) for row in rows} == {(SCHEMA_VERSION, NODE)}


async def test_an_entry_comes_back_as_it_was(tmp_path: Path) -> None:
    await _write(tmp_path, FULL, JournalEntry("health:change", state="healthy"))
    rows = rows_in(tmp_path)
    assert _entries(rows) == [_as_read(FULL), _as_read(JournalEntry("health:change", state="healthy"))]
    assert [row["sequence"] for row in rows] == [0, 1, 2, 3]
    assert rows[1]["wall_time_ns"] == START_NS + rows[1]["monotonic_ns"]
    assert rows[1]["peer"] == str(PEER)


_texts = st.none() | st.text(st.characters(codec="utf-8"), max_size=40)
_int64s = st.none() | st.integers(-(1 << 63), (1 << 63) - 1)
_values: dict[str, st.SearchStrategy[Any]] = {
    column.name: {
        Kind.TEXT: _texts,
        Kind.INT32: st.none() | st.integers(-(1 << 31), (1 << 31) - 1),
        Kind.INT64: _int64s,
        Kind.HASH: st.none() | st.binary(min_size=32, max_size=32),
    }[column.kind]
    for column in ENTRY
}
_values["event"] = st.text(st.characters(codec="utf-8"), max_size=40)
_values["peer"] = _texts | st.just(PEER)
_some_entries = st.lists(st.builds(JournalEntry, **_values), max_size=30)


@given(_some_entries)
def test_any_entries_come_back_as_they_were(entries: list[JournalEntry]) -> None:
    with TemporaryDirectory() as directory:
        trio.run(_write, directory, *entries)
        assert _entries(rows_in(Path(directory))) == [_as_read(entry) for entry in entries]


async def test_a_value_that_does_not_fit_its_column_costs_no_other_value(tmp_path: Path) -> None:
    bad: Any = FULL._replace(
        message_hash=b"short", size=1 << 63, attempt=True, error="\ud800", request_id=5, event=None
    )
    async with open_journal(tmp_path, node_id=NODE, run_blocking=inline) as journal:
        journal.write(FULL)
        journal.write(bad)
        await journal.flush()
        assert journal.counters.mended == 6
        assert journal.counters.dropped == 0
    good, mended = _entries(rows_in(tmp_path))
    assert good == _as_read(FULL)
    assert mended == _as_read(FULL) | {
        "message_hash": None,
        "size": None,
        "attempt": None,
        "error": "\\ud800",
        "request_id": "5",
        "event": "None",
    }


async def test_texts_that_peers_choose_are_cut(tmp_path: Path) -> None:
    long = "x" * (MAX_TEXT + 1)
    fields = ("error", "content_topic", "channel_id", "sender_id", "channel_message_id")
    await _write(
        tmp_path,
        *(JournalEntry("test", **{field: long}) for field in fields),  # pyright: ignore[reportArgumentType]
        JournalEntry("test", error=long[1:]),
    )
    *cut, whole = _entries(rows_in(tmp_path))
    assert [row[field] for row, field in zip(cut, fields, strict=True)] == ["x" * (MAX_TEXT - 1) + "…"] * 5
    assert whole["error"] == long[1:]


def _table(path: Path) -> Any:
    return arrow.parquet.ParquetFile(path).read()


def _rewrite(path: Path, table: Any, **metadata: str) -> None:
    keys = {f"pywaku.journal.{key}": value for key, value in metadata.items()}
    arrow.parquet.write_table(table.replace_schema_metadata(keys), path)


async def test_a_newer_file_with_more_columns_is_read(tmp_path: Path) -> None:
    await _write(tmp_path, FULL)
    (path,) = files_in(tmp_path)
    table = _table(path)
    _rewrite(path, table.append_column("hops", arrow.array([1, 2, 3])), schema_version="2", oldest_reader="1")
    await _write(tmp_path, FULL)
    rows = rows_in(tmp_path)
    assert sorted([row["hops"] for row in rows], key=str) == [1, 2, 3, None, None, None]
    assert _entries(rows[:3]) == _entries(rows[3:]) == [_as_read(FULL)]


async def test_an_older_file_with_fewer_columns_is_read(tmp_path: Path) -> None:
    await _write(tmp_path, FULL)
    (path,) = files_in(tmp_path)
    table = _table(path)
    _rewrite(path, table.drop_columns(["epoch"]), schema_version="0", oldest_reader="0")
    assert _entries(rows_in(tmp_path)) == [_as_read(FULL) | {"epoch": None}]


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)


def _emptied(path: Path) -> None:
    path.write_bytes(b"")


def _foreign(path: Path) -> None:
    arrow.parquet.write_table(arrow.table({"a": [1]}), path)


def _without_sequence(path: Path) -> None:
    table = _table(path)
    _rewrite(path, table.drop_columns(["sequence"]), oldest_reader="1")


def _retyped(path: Path) -> None:
    table = _table(path)
    index = table.schema.get_field_index("size")
    _rewrite(path, table.set_column(index, "size", arrow.array(["a", "b", "c"])), oldest_reader="1")


def _for_later_readers(path: Path) -> None:
    table = _table(path)
    _rewrite(path, table, oldest_reader=str(SCHEMA_VERSION + 1))


@pytest.mark.parametrize(
    "damage", [_truncated, _flipped, _emptied, _foreign, _without_sequence, _retyped, _for_later_readers]
)
async def test_a_damaged_file_is_reported_and_the_others_are_read(tmp_path: Path, damage: Any) -> None:
    await _write(tmp_path, FULL)
    (path,) = files_in(tmp_path)
    damage(path)
    await _write(tmp_path, FULL)
    with pytest.raises(InvalidInput, match=re.escape(str(path))):
        read_journal(tmp_path)
    told: dict[Path, str] = {}
    table = read_journal(tmp_path, on_damaged=told.__setitem__)
    assert _entries(table.to_pylist()) == [_as_read(FULL)]
    assert list(told) == [path]
    assert told[path]


def test_what_is_no_directory_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is a directory"):
        read_journal(tmp_path / "nothing")


def test_an_empty_journal_has_no_rows_and_all_columns(tmp_path: Path) -> None:
    table = read_journal(tmp_path)
    assert len(table) == 0
    assert table.column_names == [column.name for column in COLUMNS]


async def test_readers_see_files_by_day_and_nothing_else(tmp_path: Path) -> None:
    await _write(tmp_path, FULL)
    (tmp_path / ".journal-x.tmp").write_bytes(b"half a file")
    table = arrow.parquet.read_table(tmp_path)
    assert table.column("date").to_pylist() == ["2026-09-21"] * 3
