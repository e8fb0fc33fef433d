"""When rows get into files, what is held and dropped when they cannot, and what the node notices: nothing."""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
import stat
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import InvalidInput
from pywaku.journal import (
    JOURNAL_CLOSED,
    JOURNAL_DROPPED,
    JOURNAL_OPENED,
    Journal,
    JournalEntry,
    JournalOptions,
    inline,
    open_journal,
)
from pywaku.journal.files import JournalFiles
from tests.journal.rows import (
    NODE,
    PEER,
    START_NS,
    event,
    events_in,
    files_in,
    monotonic,
    numbers_in,
    rows_in,
    rows_in_file,
    temporaries_in,
    unexplained,
    wall_clock,
)

virtual = pytest.mark.virtual
SMALL = JournalOptions(flush_rows=5, max_rows=10)


@asynccontextmanager
async def _opened(
    directory: Path | str, options: JournalOptions | None = None, **arguments: Any
) -> AsyncGenerator[Journal]:
    """A journal on virtual time."""
    arguments = {"clock": wall_clock, "monotonic": monotonic, "run_blocking": inline} | arguments
    async with open_journal(directory, node_id=NODE, options=options, **arguments) as journal:
        yield journal


class Disk:
    """What writing files runs into."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        self.tries: list[float] = []
        write = JournalFiles.write

        def failing(files: JournalFiles, rows: Any) -> Any:
            self.tries.append(trio.current_time())
            if self.error is not None:
                raise self.error
            return write(files, rows)

        monkeypatch.setattr(JournalFiles, "write", failing)

    def fill_up(self) -> None:
        self.error = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk, which can be made to fail."""
    return Disk(monkeypatch)


@virtual
async def test_rows_wait_for_others_for_the_flush_interval(tmp_path: Path) -> None:
    async with _opened(tmp_path) as journal:
        for number in range(9):
            journal.write(event(number))
            await trio.sleep(1)
        assert files_in(tmp_path) == []
        await trio.sleep(1.1)
        assert len(files_in(tmp_path)) == 1
        assert numbers_in(tmp_path) == list(range(9))
        assert journal.pending == 0


@virtual
async def test_a_journal_without_rows_writes_no_files(tmp_path: Path) -> None:
    async with _opened(tmp_path) as journal:
        await trio.sleep(11)
        assert journal.counters.files == 1  # for the row that says that it was opened
        await trio.sleep(3600)
        assert journal.counters.files == 1


@virtual
async def test_a_file_is_written_as_soon_as_there_are_enough_rows(tmp_path: Path) -> None:
    async with _opened(tmp_path, JournalOptions(flush_rows=100)) as journal:
        started = trio.current_time()
        for number in range(99):
            journal.write(event(number))
        await trio.testing.wait_all_tasks_blocked()
        assert len(files_in(tmp_path)) == 1
        assert trio.current_time() == started


@virtual
async def test_no_file_holds_more_than_flush_rows(tmp_path: Path) -> None:
    async with _opened(tmp_path, JournalOptions(flush_rows=10, max_rows=100)) as journal:
        for number in range(56):
            journal.write(event(number))
        await journal.flush()
        assert len(files_in(tmp_path)) == 6
        assert numbers_in(tmp_path) == list(range(56))


@virtual
async def test_rows_are_numbered_from_opened_to_closed_without_gaps(tmp_path: Path) -> None:
    async with _opened(tmp_path, SMALL) as journal:
        for number in range(40):
            journal.write(event(number))
            await trio.sleep(0.1)
    rows = rows_in(tmp_path)
    assert [row["sequence"] for row in rows] == list(range(42))
    assert (rows[0]["event"], rows[-1]["event"]) == (JOURNAL_OPENED, JOURNAL_CLOSED)
    assert numbers_in(tmp_path) == list(range(40))
    times = [row["monotonic_ns"] for row in rows]
    assert times == sorted(times)


@virtual
async def test_leaving_writes_what_is_left(tmp_path: Path) -> None:
    async with _opened(tmp_path) as journal:
        journal.write(event(0))
    assert events_in(tmp_path) == [JOURNAL_OPENED, "test:0", JOURNAL_CLOSED]
    assert journal.pending == 0


@virtual
async def test_leaving_by_an_error_or_cancelled_writes_what_is_left(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="of the node"):
        async with _opened(tmp_path) as journal:
            journal.write(event(0))
            raise RuntimeError("of the node")
    with trio.move_on_after(1):
        async with _opened(tmp_path) as journal:
            journal.write(event(1))
            await trio.sleep_forever()
    assert sorted(numbers_in(tmp_path)) == [0, 1]


@virtual
async def test_rows_go_to_the_day_of_their_wall_time_in_utc(tmp_path: Path) -> None:
    midnight_ns = (START_NS // (86_400 * 10**9) + 1) * 86_400 * 10**9
    now = [midnight_ns - 1]
    async with _opened(tmp_path, clock=lambda: now[0]) as journal:
        for now_ns, number in ((midnight_ns, 1), (midnight_ns - 1, 2), (midnight_ns + 1, 3)):
            now[0] = now_ns
            journal.write(event(number))
        await journal.flush()
        assert len(files_in(tmp_path)) == 4
    assert {path.parent.name for path in files_in(tmp_path)} == {"date=2026-09-21", "date=2026-09-22"}
    assert numbers_in(tmp_path) == [1, 2, 3]
    for path in files_in(tmp_path):
        for row in rows_in_file(path):
            assert (row["wall_time_ns"] < midnight_ns) == (path.parent.name == "date=2026-09-21")


@virtual
async def test_each_opening_has_a_boot_id_of_its_own_and_they_sort_by_time(tmp_path: Path) -> None:
    boots: list[str] = []
    for _ in range(5):
        async with _opened(tmp_path, rng=random.Random(1)) as journal:
            boots.append(journal.boot_id)
            await trio.sleep(0.002)
    assert boots == sorted(set(boots))
    rows = rows_in(tmp_path)
    assert [row["boot_id"] for row in rows] == [boot for boot in boots for _ in range(2)]
    assert [row["sequence"] for row in rows] == [0, 1] * 5


@virtual
async def test_openings_at_the_same_time_have_boot_ids_of_their_own(tmp_path: Path) -> None:
    async with _opened(tmp_path) as one, _opened(tmp_path) as other:
        assert one.boot_id != other.boot_id


@virtual
async def test_two_journals_share_a_directory(tmp_path: Path) -> None:
    async with _opened(tmp_path, SMALL) as one, _opened(tmp_path, SMALL) as other:
        for number in range(20):
            one.write(event(2 * number))
            other.write(event(2 * number + 1))
            await trio.sleep(1)
    assert sorted(numbers_in(tmp_path)) == list(range(40))
    for boot in (one.boot_id, other.boot_id):
        rows = [row for row in rows_in(tmp_path) if row["boot_id"] == boot]
        assert [row["sequence"] for row in rows] == list(range(22))


async def test_files_are_written_in_a_thread_while_the_node_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: set[int] = set()
    fsync, go_on = os.fsync, threading.Event()

    def slow_fsync(descriptor: int) -> None:
        threads.add(threading.get_ident())
        assert go_on.wait(60)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow_fsync)
    async with open_journal(tmp_path, node_id=PEER, options=SMALL) as journal:
        for number in range(4):
            journal.write(event(number))
        while not threads:
            await trio.sleep(0)
        journal.write(event(4))
        assert journal.pending == 6
        go_on.set()
    assert threads.isdisjoint({threading.get_ident()})
    assert numbers_in(tmp_path) == [0, 1, 2, 3, 4]
    assert {row["node_id"] for row in rows_in(tmp_path)} == {str(PEER)}


@virtual
async def test_rows_are_dropped_when_too_many_wait_and_a_row_says_how_many(
    tmp_path: Path, disk: Disk
) -> None:
    disk.fill_up()
    async with _opened(tmp_path, SMALL) as journal:
        for number in range(25):
            journal.write(event(number))
        assert journal.pending == 10
        assert journal.counters.dropped == 16
        disk.error = None
        await trio.sleep(10)
        journal.write(event(25))
    rows = rows_in(tmp_path)
    assert numbers_in(tmp_path) == [*range(9), 25]
    (note,) = [row for row in rows if row["event"] == JOURNAL_DROPPED]
    assert (note["total"], note["sequence"]) == (16, 25)
    assert unexplained(rows) == 0
    assert journal.counters.dropped == 16


@virtual
async def test_rows_that_were_dropped_are_noted_when_leaving(tmp_path: Path, disk: Disk) -> None:
    disk.fill_up()
    async with _opened(tmp_path, SMALL) as journal:
        for number in range(12):
            journal.write(event(number))
        disk.error = None
    rows = rows_in(tmp_path)
    assert [row["event"] for row in rows[-2:]] == [JOURNAL_DROPPED, JOURNAL_CLOSED]
    assert rows[-2]["total"] == 3
    assert unexplained(rows) == 0


@virtual
async def test_a_full_disk_is_logged_once_and_rows_are_written_when_there_is_room(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async with _opened(tmp_path) as journal:
        await trio.sleep(11)
        for _ in range(2):
            caplog.clear()
            disk.fill_up()
            journal.write(event(journal.counters.written))
            await trio.sleep(60)
            assert [record.levelno for record in caplog.records] == [logging.WARNING]
            assert "No space left" in caplog.text
            assert journal.pending == 1
            disk.error = None
            await trio.sleep(6)
            assert journal.pending == 0
    assert numbers_in(tmp_path) == [1, 2]
    assert list(journal.counters.failures) == ["ENOSPC"]
    assert journal.counters.dropped == 0


@virtual
async def test_a_directory_that_cannot_be_synchronised_is_logged_once_and_costs_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fsync = os.fsync

    def failing(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    async with _opened(tmp_path) as journal:
        for number in range(3):
            journal.write(event(number))
            await trio.sleep(11)
        assert journal.pending == 0
    assert numbers_in(tmp_path) == [0, 1, 2]
    assert list(journal.counters.failures) == ["EIO"]
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


@virtual
async def test_after_a_failure_it_is_tried_again_every_five_seconds(tmp_path: Path, disk: Disk) -> None:
    disk.fill_up()
    async with _opened(tmp_path, SMALL) as journal:
        for number in range(9):
            journal.write(event(number))
        started = trio.current_time()
        await trio.sleep(21)
        pauses = [round(tried - started) for tried in disk.tries]
        assert pauses == [0, 5, 10, 15, 20]


@virtual
async def test_a_vanished_directory_is_not_made_anew_and_written_to_when_it_is_back(tmp_path: Path) -> None:
    directory = tmp_path / "mounted" / "journals"
    async with _opened(directory) as journal:
        journal.write(event(0))
        await trio.sleep(11)
        os.rename(tmp_path / "mounted", tmp_path / "away")
        journal.write(event(1))
        await trio.sleep(11)
        assert not (tmp_path / "mounted").exists()
        assert journal.counters.failures["ENOENT"] >= 1
        os.rename(tmp_path / "away", tmp_path / "mounted")
        await trio.sleep(11)
    assert numbers_in(directory) == [0, 1]


@virtual
async def test_a_partition_that_cannot_be_made_is_tried_again(tmp_path: Path) -> None:
    blocker = tmp_path / "date=2026-09-21"
    blocker.write_text("in the way")
    async with _opened(tmp_path) as journal:
        journal.write(event(0))
        await trio.sleep(11)
        assert journal.counters.failures
        assert temporaries_in(tmp_path) == []
        blocker.unlink()
    assert numbers_in(tmp_path) == [0]


@virtual
async def test_what_cannot_be_written_at_the_end_is_counted_and_logged(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.fill_up()
    async with _opened(tmp_path) as journal:
        journal.write(event(0))
    assert journal.counters.dropped == 3
    assert "lost=3" in caplog.text
    assert files_in(tmp_path) == []


async def test_leaving_does_not_wait_for_a_disk_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung, done = threading.Event(), threading.Event()
    write = JournalFiles.write

    def hanging(files: JournalFiles, rows: Any) -> Any:
        assert hung.wait(60)
        written = write(files, rows)
        done.set()
        return written

    monkeypatch.setattr(JournalFiles, "write", hanging)
    with trio.fail_after(30):
        async with open_journal(tmp_path, node_id=NODE, options=JournalOptions(closing_s=0.05)) as journal:
            journal.write(event(0))
            flushing = trio.CancelScope()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_flush_in, flushing, journal)
                await trio.testing.wait_all_tasks_blocked(0.01)
                flushing.cancel()  # which leaves the writing alone
    assert journal.counters.dropped == 3
    hung.set()
    assert await trio.to_thread.run_sync(done.wait, 60)
    assert numbers_in(tmp_path) == [0]


async def _flush_in(scope: trio.CancelScope, journal: Journal) -> None:
    with scope:
        await journal.flush()


@virtual
async def test_rows_that_no_file_can_hold_do_not_hold_up_the_others(
    tmp_path: Path, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async with _opened(tmp_path, SMALL) as journal:
        await trio.sleep(11)
        disk.error = RuntimeError("of the library")
        journal.write(event(0))
        journal.write(event(1))
        await trio.sleep(30)
        assert (journal.pending, journal.counters.dropped) == (1, 2)
        disk.error = None
        journal.write(event(2))
        await trio.sleep(10)
    rows = rows_in(tmp_path)
    assert numbers_in(tmp_path) == [2]
    (note,) = [row for row in rows if row["event"] == JOURNAL_DROPPED]
    assert (note["total"], note["sequence"]) == (2, 2)
    assert unexplained(rows) == 0
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


@virtual
async def test_what_is_written_after_the_end_is_counted(tmp_path: Path) -> None:
    async with _opened(tmp_path) as journal:
        pass
    journal.write(event(0))
    await journal.flush()
    assert journal.counters.dropped == 1
    assert numbers_in(tmp_path) == []


@virtual
async def test_flush_waits_until_all_is_in_files_or_has_failed(tmp_path: Path, disk: Disk) -> None:
    async with _opened(tmp_path) as journal:
        started = trio.current_time()
        for number in range(3):
            journal.write(event(number))
            await journal.flush()
            assert journal.pending == 0
        disk.fill_up()
        journal.write(event(3))
        await journal.flush()
        await journal.flush()
        assert journal.counters.failures == {"ENOSPC": 2}
        disk.error = None
        await journal.flush()
        assert journal.pending == 0
        assert trio.current_time() == started
    assert numbers_in(tmp_path) == [0, 1, 2, 3]


@virtual
async def test_files_are_kept_for_as_many_days_as_are_wished(tmp_path: Path) -> None:
    strange = [
        tmp_path / "date=2026-09-01" / "other.parquet",
        tmp_path / "date=long-ago" / "journal-1.parquet",
    ]
    for path in strange:
        path.parent.mkdir()
        path.touch()
    async with _opened(tmp_path, JournalOptions(keep_days=2)) as journal:
        for number in range(5):
            journal.write(event(number))
            await trio.sleep(86_400)
        days = [path.parent.name for path in files_in(tmp_path) if path not in strange]
        assert days == ["date=2026-09-24", "date=2026-09-25"]
        assert journal.counters.removed == 3
    assert not (tmp_path / "date=2026-09-21").exists()
    assert all(path.exists() for path in strange)


@virtual
async def test_without_keep_days_all_files_stay(tmp_path: Path) -> None:
    async with _opened(tmp_path) as journal:
        for number in range(5):
            journal.write(event(number))
            await trio.sleep(100 * 86_400)
    assert numbers_in(tmp_path) == list(range(5))


@virtual
async def test_old_files_that_cannot_be_removed_are_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(_files: JournalFiles, _day: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(JournalFiles, "remove_before", denied)
    async with _opened(tmp_path, JournalOptions(keep_days=1)) as journal:
        await trio.sleep(30)
        assert journal.counters.files == 1
    assert caplog.text.count("Permission denied") == 1


_NAMES = st.sampled_from(["write", "sleep", "flush", "break", "mend"])


async def _act(actions: list[tuple[str, int]], directory: Path, away: Path) -> tuple[int, Journal]:
    """Do the actions; how many entries were written, and the journal."""
    written = 0
    async with _opened(directory, SMALL) as journal:
        for action, size in actions:
            match action:
                case "write":
                    for _ in range(size):
                        journal.write(event(written))
                        written += 1
                case "sleep":
                    await trio.sleep(size)
                case "flush":
                    await journal.flush()
                case "break" if directory.exists():
                    directory.rename(away)
                case "mend" if away.exists():
                    away.rename(directory)
                case _:
                    pass
            assert journal.pending <= SMALL.max_rows
        if away.exists():
            away.rename(directory)
    return written, journal


@given(st.lists(st.tuples(_NAMES, st.integers(1, 12)), max_size=40))
def test_whatever_happens_every_event_is_in_a_file_or_counted(actions: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as parent:
        directory = Path(parent, "journal")
        clock = trio.testing.MockClock(autojump_threshold=0)
        written, journal = trio.run(_act, actions, directory, Path(parent, "away"), clock=clock)
        rows = rows_in(directory)
        assert unexplained(rows) == 0
        assert rows[-1]["event"] == JOURNAL_CLOSED
        assert len(numbers_in(directory)) + journal.counters.dropped == written
        assert journal.counters.written == len(rows)
        for row in rows:
            if row["event"].startswith("test:"):
                assert row["sequence"] == row["size"] + 1
        assert temporaries_in(directory) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flush_interval_s", 0),
        ("flush_rows", 0),
        ("max_rows", 9_999),
        ("closing_s", -1),
        ("keep_days", 0),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_its_name(name: str, value: int) -> None:
    with pytest.raises(InvalidInput, match=f"{name}: .*{value}"):
        JournalOptions(**{name: value})


@pytest.mark.parametrize("node_id", ["", "\ud800"])
async def test_a_node_id_that_is_no_text_is_refused(tmp_path: Path, node_id: str) -> None:
    with pytest.raises(InvalidInput, match="node_id"):
        async with open_journal(tmp_path, node_id=node_id):
            pass


async def test_a_directory_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    for directory in (blocker, blocker / "inside", Path("/proc/journal")):
        with pytest.raises(InvalidInput, match=str(directory)):
            async with open_journal(directory, node_id=NODE):
                pass


async def test_without_pyarrow_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidInput, match=r"pip install 'pywaku\[journal\]'"):
        async with open_journal(tmp_path, node_id=NODE):
            pass


def test_importing_the_room_does_not_import_pyarrow() -> None:
    import subprocess

    code = "import sys, pywaku.journal; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_a_directory_that_was_removed_altogether_loses_only_what_was_there(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    async with open_journal(directory, node_id=NODE) as journal:
        await journal.flush()
        shutil.rmtree(directory)
        journal.write(JournalEntry("test:0"))
        await journal.flush()
        assert journal.pending == 1
        directory.mkdir()
        await journal.flush()
        assert journal.pending == 0
    assert numbers_in(directory) == [0]
