"""A journal read back, for tests and small tools; larger amounts are for the data pipeline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pywaku.errors import InvalidInput
from pywaku.journal.arrow import Arrow, Table, load_arrow
from pywaku.journal.files import PARTITION, PREFIX, SUFFIX
from pywaku.journal.schema import COLUMNS, READER_KEY, SCHEMA_VERSION, arrow_schema, arrow_type

OnDamaged = Callable[[Path, str], None]
"""Told of a file that cannot be read, and why."""


class _UnreadableError(Exception):
    """The file is no part of a journal that this version can read."""


def read_journal(directory: Path | str, *, on_damaged: OnDamaged | None = None) -> Table:
    """All rows in a directory as a `pyarrow.Table`, in the order of nodes, boots and sequence numbers.

    Columns that later versions added come after those known here. A file that cannot be read raises
    `InvalidInput`, unless `on_damaged` is there to be told; then the others are read.
    """
    arrow = load_arrow()
    root = Path(directory)
    if not root.is_dir():
        raise InvalidInput(f"{root} is no journal: a journal is a directory")
    tables: list[Table] = []
    damaged: list[str] = []
    for path in sorted(root.glob(f"{PARTITION}*/{PREFIX}*{SUFFIX}")):
        try:
            tables.append(_read(arrow, path))
        except FileNotFoundError:
            continue  # removed meanwhile, being old
        except (_UnreadableError, OSError, arrow.ArrowException) as error:
            if on_damaged is not None:
                on_damaged(path, str(error))
            else:
                damaged.append(f"{path} ({error})")
    if damaged:
        raise InvalidInput(
            f"damaged files in the journal, to be moved away or reported to on_damaged: {', '.join(damaged)}"
        )
    if not tables:
        return arrow_schema(arrow).empty_table()
    table = arrow.concat_tables(tables, promote_options="permissive")
    return table.sort_by([(name, "ascending") for name in ("node_id", "boot_id", "sequence")])


def _read(arrow: Arrow, path: Path) -> Table:
    with arrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
        metadata: dict[bytes, bytes] = file.metadata.metadata or {}
        oldest_reader = metadata.get(READER_KEY)
        if oldest_reader is None:
            raise _UnreadableError("it was not written by a journal")
        if not oldest_reader.isdigit() or int(oldest_reader) > SCHEMA_VERSION:
            raise _UnreadableError(
                f"it is for readers of schema version {oldest_reader!r} on, this one knows {SCHEMA_VERSION}"
            )
        table = file.read()
    known = [(column, _column(arrow, table, column.name)) for column in COLUMNS]
    arrays: list[Any] = []
    for column, found in known:
        kind = arrow_type(arrow, column.kind)
        if found is None and column.required:
            raise _UnreadableError(f"it has no column {column.name}")
        array = arrow.nulls(len(table), kind) if found is None else found
        if array.type != kind:
            raise _UnreadableError(f"its column {column.name} is {array.type}, not {kind}")
        if column.required and array.null_count:
            raise _UnreadableError(f"its column {column.name} lacks values")
        arrays.append(array)
    names = {column.name for column in COLUMNS}
    added = [field for field in table.schema if field.name not in names]
    schema = arrow.schema([*arrow_schema(arrow), *added])
    return arrow.Table.from_arrays([*arrays, *(table[field.name] for field in added)], schema=schema)


def _column(arrow: Arrow, table: Table, name: str) -> Any:
    found = table.schema.get_all_field_indices(name)
    return table.column(found[0]) if len(found) == 1 else None
