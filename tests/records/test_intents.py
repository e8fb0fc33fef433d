"""Accepted sends: the two files beside the database, torn, damaged, full and of other databases."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pywaku.errors import InvalidInput, RecordError
from pywaku.messaging.record import MessageRecord
from pywaku.messaging.records import open_record_store
from pywaku.messaging.records.sqlite import intents as module
from pywaku.messaging.records.sqlite import open_sqlite_records
from pywaku.messaging.records.sqlite.intents import MAGIC, SUFFIXES, Intents
from tests.support.records import adding, guid, record

IDENTITY = bytes(range(16))
OTHER = bytes(16)


def _opened(path: Path, taken: int = 0) -> tuple[Intents, list[tuple[int, MessageRecord]]]:
    """The files, and what was found in them; they are not emptied."""
    intents = Intents("it", str(path))
    return intents, intents.replay(IDENTITY, taken)


def _started(path: Path) -> Intents:
    intents, _ = _opened(path)
    intents.restart(IDENTITY)
    return intents


def _killed(intents: Intents) -> None:
    """What the end of the process does: the files are closed, and nothing else."""
    for file in intents._files:
        os.close(file.handle)


def _written(path: Path, *numbers: int) -> Path:
    """The first file, with these sends in it."""
    intents = _started(path)
    for number in numbers:
        intents.accept(record(number, number))
    _killed(intents)
    return path.with_name(path.name + SUFFIXES[0])


def _found(path: Path, taken: int = 0) -> list[int]:
    intents, found = _opened(path, taken)
    _killed(intents)
    return [number for number, _ in found]


def test_what_was_accepted_is_found_again_as_it_was(path: Path) -> None:
    sends = [record(1, 1), record(2, 2, size=160_000), record(3, 3, content_topic="/ä/1/b/\0")]
    intents = _started(path)
    for send in sends:
        intents.accept(send)
    _killed(intents)
    intents, found = _opened(path)
    assert found == list(enumerate(sends, 1))
    intents.restart(IDENTITY)
    _killed(intents)
    assert _found(path) == []


def test_what_the_database_has_taken_is_not_replayed(path: Path) -> None:
    _written(path, 1, 2, 3, 4)
    assert _found(path, taken=2) == [3, 4]
    assert _found(path, taken=9) == []


def test_numbers_go_on_where_the_database_or_the_file_was(path: Path) -> None:
    for taken, expected in ((2, 4), (7, 8)):
        file = _written(path, 1, 2, 3)
        intents, _ = _opened(path, taken)
        intents.restart(IDENTITY)
        intents.accept(record(9, 9))
        _killed(intents)
        assert _found(path) == [expected]
        file.unlink()


def test_a_torn_tail_is_tolerated_at_every_byte(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = _written(path, 1, 2)
    whole = file.read_bytes()
    header = len(MAGIC) + 16
    entry = (len(whole) - header) // 2
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert _found(path) == ([1] if length >= header + entry else [])
        assert ("torn" in caplog.text) is (length > header and length != header + entry)
        caplog.clear()


def test_a_damaged_byte_costs_what_comes_after_it_and_nothing_else(path: Path) -> None:
    file = _written(path, 1, 2, 3)
    whole = file.read_bytes()
    header = len(MAGIC) + 16
    entry = (len(whole) - header) // 3
    for position in range(header, len(whole)):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 0x55]) + whole[position + 1 :])
        assert _found(path) == list(range(1, (position - header) // entry + 1))


@settings(max_examples=200)
@given(data=st.binary(max_size=400))
def test_any_bytes_at_all_are_passed_over(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / "any.sqlite3"
    file = path.with_name(path.name + SUFFIXES[0])
    for start in (b"", MAGIC + IDENTITY):
        file.write_bytes(start + data)
        assert _found(path) == []


def test_sends_to_another_database_are_not_replayed(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _written(path, 1)
    intents = Intents("it", str(path))
    assert intents.replay(OTHER, 0) == []
    assert "of other records" in caplog.text
    _killed(intents)


def test_a_request_is_accepted_once(path: Path) -> None:
    intents = _started(path)
    intents.accept(record(1, 1))
    with pytest.raises(InvalidInput, match="accepted before"):
        intents.accept(record(1, 1))
    intents.close()


# Out of order, and file after file


def test_taken_is_what_nothing_before_is_missing_of(path: Path) -> None:
    intents = _started(path)
    for number in range(1, 6):
        intents.accept(record(number, number))
    assert intents.taken_with({guid(2), guid(3)}) == 0
    intents.forget({guid(2), guid(3)}, 0)
    assert intents.taken_with({guid(1)}) == 3
    intents.forget({guid(1)}, 3)
    assert intents.taken_with({guid(4), guid(5), guid(99)}) == 5
    intents.close()


def test_the_files_take_turns_and_stay_small(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILE_BYTES", 2_000)
    intents = _started(path)
    files = [path.with_name(path.name + suffix) for suffix in SUFFIXES]
    used: set[Path] = set()
    for number in range(1, 1_000):
        intents.accept(record(number, number))
        if number > 5:
            done = {guid(number - 5)}
            intents.forget(done, intents.taken_with(done))
        used |= {file for file in files if file.stat().st_size > 1_000}
        assert all(file.stat().st_size < 3_000 for file in files)
    assert used == set(files)
    _killed(intents)
    assert _found(path, taken=994) == [995, 996, 997, 998, 999]


def test_a_file_is_not_reused_while_anything_in_it_waits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILE_BYTES", 2_000)
    intents = _started(path)
    intents.accept(record(1, 1))
    for number in range(2, 200):
        intents.accept(record(number, number))
        intents.forget({guid(number)}, intents.taken_with({guid(number)}))
    _killed(intents)
    assert _found(path)[0] == 1


# Disks


def _short(limit: int) -> Callable[[int, bytes], int]:
    write = os.write
    left = limit

    def short(handle: int, data: bytes) -> int:
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(handle, data[:left])
        left -= written
        return written

    return short


def test_a_send_that_a_full_disk_cut_short_is_not_accepted_and_tears_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    intents = _started(path)
    intents.accept(record(1, 1))
    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", _short(50))
        for _ in range(3):
            with pytest.raises(RecordError, match="full") as caught:
                intents.accept(record(2, 2))
            assert caught.value.reason == "disk-full"
    intents.accept(record(3, 3))
    _killed(intents)
    intents, found = _opened(path)
    assert [known.request_id for _, known in found] == [guid(1), guid(3)]
    _killed(intents)


async def test_a_full_disk_is_an_error_of_accept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_record_store(path) as store:
        with monkeypatch.context() as patch:
            patch.setattr(module.os, "write", _short(0))
            with pytest.raises(RecordError, match="disk is full"):
                store.accept(record(1, 1))
        assert store.counters.errors == {"disk-full": 1}
        assert store.counters.accepted == 0
        store.accept(record(1, 1))  # it can be tried again


# One process at a time


async def test_a_second_opening_of_the_file_is_refused(path: Path) -> None:
    async with open_record_store(path) as store:
        store.accept(record(1, 1))
        with pytest.raises(RecordError, match=r"records\.sqlite3: they are in use by another") as caught:
            await open_sqlite_records(path)
        assert caught.value.reason == "in-use"
        await store.apply([adding(1)])
    async with open_record_store(path) as store:
        assert len(await store.pending()) == 1


async def test_a_second_process_is_refused(path: Path) -> None:
    code = (
        "import sys, trio\n"
        "from pywaku.messaging.records.sqlite import open_sqlite_records\n"
        "trio.run(open_sqlite_records, sys.argv[1])"
    )
    async with open_record_store(path):
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
        )
        assert "RecordError" in done.stderr
        assert "in use by another process" in done.stderr


def test_a_lock_on_a_file_that_was_removed_is_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _started(path)
    flock = module.fcntl.flock
    calls: list[int] = []

    def racing(handle: int, operation: int) -> None:
        calls.append(handle)
        if len(calls) == 1:
            first.close()  # which removes the file just opened
        flock(handle, operation)

    monkeypatch.setattr(module.fcntl, "flock", racing)
    second = Intents("it", str(path))
    assert len(calls) == 2
    monkeypatch.undo()
    with pytest.raises(RecordError, match="in use"):
        Intents("it", str(path))
    second.close()
    assert list(path.parent.iterdir()) == []
