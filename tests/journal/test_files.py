"""A file is whole or not there, whatever fails on the way; leftovers go, and those of the living stay."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pywaku.journal.entry import Row
from pywaku.journal.files import JournalFiles
from tests.journal.rows import (
    NODE,
    START_NS,
    arrow,
    event,
    files_in,
    numbers_in,
    rows_in_file,
    temporaries_in,
)

ROWS: list[Row] = [(number, START_NS, number, *event(number)) for number in range(10)]


def _files(directory: Path, boot: str = "0192-boot") -> JournalFiles:
    files = JournalFiles(arrow, directory, NODE, boot)
    files.open()
    return files


@pytest.mark.parametrize("call", ["open", "fsync", "replace", "mkdir"])
def test_where_a_call_fails_no_file_appears_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    files = _files(tmp_path)

    def failing(*_arguments: Any, **_named: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, failing)
        with pytest.raises(OSError, match="Input/output error"):
            files.write(ROWS)
    assert files_in(tmp_path) == []
    assert temporaries_in(tmp_path) == []
    assert files.write(ROWS).rows == 10
    assert numbers_in(tmp_path) == list(range(10))


def test_a_file_that_does_not_fit_the_disk_leaves_nothing(tmp_path: Path) -> None:
    """With a real limit of the system, in a process of its own, which it would hold for as well."""
    code = f"""
import resource, sys
from pathlib import Path
from tests.journal import test_files
files = test_files._files(Path({str(tmp_path)!r}))
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
try:
    files.write(test_files.ROWS)
except OSError as error:
    sys.exit(error.errno)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == errno.EFBIG
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 100
    assert files_in(tmp_path) == []
    assert temporaries_in(tmp_path) == []


def test_a_file_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = _files(tmp_path)
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(descriptor: int) -> None:
        done.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def noting_replace(source: Path, target: Path) -> None:
        done.append("name")
        assert rows_in_file(source)[-1]["sequence"] == 9
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "replace", noting_replace)
    files.write(ROWS)
    assert done == ["file", "name", "directory", "directory"]  # the second for the new partition
    done.clear()
    files.write(ROWS[5:])
    assert done == ["file", "name", "directory"]


def test_a_file_that_has_its_name_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers may have seen it; that its name may not survive a power cut is reported."""
    files = _files(tmp_path)
    fsync = os.fsync

    def failing(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", failing)
        written = files.write(ROWS)
    assert written.rows == 10
    assert written.unsure is not None
    assert written.unsure.errno == errno.EIO
    assert numbers_in(tmp_path) == list(range(10))


def test_names_are_of_the_node_the_boot_and_the_first_row(tmp_path: Path) -> None:
    for boot in ("boot-1", "boot-2"):
        _files(tmp_path, boot).write(ROWS[3:])
    assert [path.name for path in files_in(tmp_path)] == [
        f"journal-16Uiu2HAm_node-{boot}-000000000003.parquet" for boot in ("boot-1", "boot-2")
    ]


def test_a_node_id_of_any_characters_makes_a_name(tmp_path: Path) -> None:
    node_id = "../Zoë's node/" + "x" * 300
    files = JournalFiles(arrow, tmp_path, node_id, "boot")
    files.open()
    files.write(ROWS)
    (path,) = files_in(tmp_path)
    assert path.name.startswith("journal-_Zo_s_node_xxx")
    assert len(path.name) < 200
    assert {row["node_id"] for row in rows_in_file(path)} == {node_id}


def test_leftovers_of_the_dead_are_removed_and_files_of_the_living_stay(tmp_path: Path) -> None:
    dead, alive, other = (
        tmp_path / name
        for name in (".journal-node-boot1-000000000000-1.tmp", ".journal-node-boot2-0-1.tmp", ".other.tmp")
    )
    for path in (dead, alive, other):
        path.write_bytes(b"PAR1")
    with alive.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        files = JournalFiles(arrow, tmp_path, NODE, "boot3")
        assert files.open() == 1
        assert temporaries_in(tmp_path) == sorted([alive, other])
    assert files.open() == 1
    assert temporaries_in(tmp_path) == [other]


def test_one_that_opens_leaves_the_file_that_another_is_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = _files(tmp_path, "boot-1")
    fsync = os.fsync
    removed: list[int] = []

    def opening_meanwhile(descriptor: int) -> None:
        removed.append(JournalFiles(arrow, tmp_path, NODE, "boot-2").open())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", opening_meanwhile)
    writer.write(ROWS)
    assert set(removed) == {0}
    assert numbers_in(tmp_path) == list(range(10))


def test_one_that_opens_between_making_a_file_and_locking_it_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = _files(tmp_path, "boot-1")
    flock = fcntl.flock
    removed: list[int] = []

    def opening_first(descriptor: int, how: int) -> None:
        if not removed and how == fcntl.LOCK_EX:
            removed.append(0)
            removed.append(JournalFiles(arrow, tmp_path, NODE, "boot-2").open())
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", opening_first)
    writer.write(ROWS)
    assert removed[1] == 1
    assert numbers_in(tmp_path) == list(range(10))
    assert temporaries_in(tmp_path) == []


def test_where_files_cannot_be_locked_leftovers_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leftover = tmp_path / ".journal-node-boot1-000000000000-1.tmp"
    leftover.touch()

    def unsupported(_descriptor: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    _files(tmp_path).write(ROWS)
    assert numbers_in(tmp_path) == list(range(10))
    assert temporaries_in(tmp_path) == [leftover]
