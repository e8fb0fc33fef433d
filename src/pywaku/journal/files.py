"""The files of a journal: whole or not there, under names that no two writers share, removed when old."""

from __future__ import annotations

import errno
import fcntl
import os
import random
import re
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pywaku._version import __version__
from pywaku.errors import InvalidInput
from pywaku.journal.arrow import Arrow
from pywaku.journal.entry import SEQUENCE, WALL_TIME, Row
from pywaku.journal.schema import COLUMNS, OLDEST_READER, READER_KEY, SCHEMA_VERSION, VERSION_KEY, table_of

PREFIX: Final = "journal-"
SUFFIX: Final = ".parquet"
PARTITION: Final = "date="
_LEFTOVER: Final = re.compile(r"\.journal-.*\.tmp")
_STRANGE: Final = re.compile(r"[^A-Za-z0-9]+")
_LONGEST_NODE_NAME: Final = 64
_NANOSECONDS_A_DAY: Final = 86_400 * 10**9
_EPOCH: Final = date(1970, 1, 1)
_NO_LOCKS_HERE: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})
_REPEATING: Final = [column.name for column in COLUMNS if column.repeats]


def new_boot_id(wall_time_ns: int, rng: random.Random) -> str:
    """A name for one opening of a journal: a UUID of version 7, so that boots sort by time."""
    milliseconds = (wall_time_ns // 1_000_000) % (1 << 48)
    number = milliseconds << 80 | 7 << 76 | rng.getrandbits(12) << 64 | 2 << 62 | rng.getrandbits(62)
    return str(uuid.UUID(int=number))


def day_of(wall_time_ns: int) -> date:
    """The day, in UTC, of a partition."""
    return _EPOCH + timedelta(days=wall_time_ns // _NANOSECONDS_A_DAY)


@dataclass(frozen=True, slots=True)
class Written:
    """What one file holds, and how many values in it had to be mended."""

    rows: int
    mended: int
    unsure: OSError | None
    """The file is there, but this kept it from being made sure that its name survives a power cut."""


class JournalFiles:
    """What one writer does in the directory. All of it blocks: it belongs in a thread, one call at a time."""

    def __init__(self, arrow: Arrow, directory: Path, node_id: str, boot_id: str) -> None:
        self.directory = directory
        self._arrow = arrow
        self._node_id = node_id
        self._boot_id = boot_id
        self._stem = f"{PREFIX}{_STRANGE.sub('_', node_id)[:_LONGEST_NODE_NAME]}-{boot_id}"
        self._temporaries = 0

    def open(self) -> int:
        """Make the directory, see that files can be written, remove what killed writers left; how many."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            descriptor, path = self._open_temporary(0)
            os.close(descriptor)
            path.unlink()
        except OSError as error:
            raise InvalidInput(
                f"the journal directory {self.directory} cannot be written to: {error.strerror}"
            ) from error
        return sum(map(_remove_if_dead, self._leftovers()))

    def write(self, rows: Sequence[Row]) -> Written:
        """Write the first of the rows, as many as are of one day, as one file.

        When this returns the file is there, survives a power cut, and does not change any more. Raises
        `OSError` if the disk does not play along, and leaves nothing behind then.
        """
        rows = _of_one_day(rows)
        data, mended = self._encoded(rows)
        partition = self.directory / f"{PARTITION}{day_of(rows[0][WALL_TIME])}"
        new = _make(partition)
        first = rows[0][SEQUENCE]
        descriptor, temporary = self._open_temporary(first)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
                # Renamed before it is closed: closing gives up the lock that keeps others from removing it.
                os.replace(temporary, partition / f"{self._stem}-{first:012d}{SUFFIX}")
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        unsure: OSError | None = None
        try:
            _sync(partition)
            if new:
                _sync(self.directory)
        except (
            OSError
        ) as error:  # readers may have seen the file: to write it again would only add to the harm
            unsure = error
        return Written(len(rows), mended, unsure)

    def remove_before(self, day: date) -> int:
        """Remove the journal files, of all writers, of earlier days; how many."""
        removed = 0
        for partition in self.directory.glob(f"{PARTITION}*"):
            found = _day_named(partition.name)
            if found is None or found >= day:
                continue
            for path in partition.glob(f"{PREFIX}*{SUFFIX}"):
                path.unlink(missing_ok=True)
                removed += 1
            with suppress(OSError):  # what is not ours keeps the directory
                partition.rmdir()
        return removed

    def _encoded(self, rows: Sequence[Row]) -> tuple[Any, int]:
        built = table_of(self._arrow, self._node_id, self._boot_id, rows)
        file = self._arrow.BufferOutputStream()  # a Python file would need the interpreter for each column
        with self._arrow.parquet.ParquetWriter(
            file,
            built.table.schema,
            compression="zstd",
            use_dictionary=_REPEATING,
            write_page_checksum=True,
            store_schema=False,  # 2 KB in each file, and Parquet's own types say it all
        ) as writer:
            writer.write_table(built.table)
            writer.add_key_value_metadata(
                {
                    VERSION_KEY: str(SCHEMA_VERSION),
                    READER_KEY: str(OLDEST_READER),
                    "pywaku.journal.node_id": self._node_id,
                    "pywaku.journal.boot_id": self._boot_id,
                    "pywaku.version": __version__,
                }
            )
        return file.getvalue(), built.mended

    def _open_temporary(self, first: int) -> tuple[int, Path]:
        """A new file that no reader looks at, locked: that tells it from the leftover of a killed writer."""
        while True:
            self._temporaries += 1
            path = self.directory / f".{self._stem}-{first:012d}-{self._temporaries}.tmp"
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            try:
                _lock(descriptor, fcntl.LOCK_EX)
                if os.path.exists(path):
                    return descriptor, path
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # somebody who has just opened took it for a leftover

    def _leftovers(self) -> list[Path]:
        return [path for path in self.directory.iterdir() if _LEFTOVER.fullmatch(path.name)]


def _of_one_day(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows up to the first of another day than the first."""
    start = rows[0][WALL_TIME] // _NANOSECONDS_A_DAY * _NANOSECONDS_A_DAY
    end = start + _NANOSECONDS_A_DAY
    for index, row in enumerate(rows):
        if not start <= row[WALL_TIME] < end:
            return rows[:index]
    return rows


def _make(partition: Path) -> bool:
    """Make the partition, not its parents: a directory that vanished may be on a disk that comes back."""
    try:
        partition.mkdir()
    except FileExistsError:
        return False
    return True


def _remove_if_dead(path: Path) -> bool:
    """Remove a temporary file unless its writer lives: it holds a lock, which ends with its process."""
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        if not _lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
            return False
        path.unlink()
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _lock(descriptor: int, how: int) -> bool:
    """Whether the file could be locked; not every file system can."""
    try:
        fcntl.flock(descriptor, how)
    except OSError as error:
        if error.errno in _NO_LOCKS_HERE:
            return False
        raise
    return True


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _day_named(name: str) -> date | None:
    try:
        return datetime.strptime(name.removeprefix(PARTITION), "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        return None
