"""The journal while it is open: takes rows without waiting, and writes them to files in the background."""

from __future__ import annotations

import errno
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import trio

from pywaku.errors import InvalidInput
from pywaku.ids import PeerId
from pywaku.journal.arrow import load_arrow
from pywaku.journal.blocking import RunBlocking, in_thread
from pywaku.journal.buffer import RowBuffer
from pywaku.journal.entry import JournalEntry
from pywaku.journal.events import JOURNAL_CLOSED, JOURNAL_OPENED
from pywaku.journal.files import JournalFiles, Written, day_of, new_boot_id
from pywaku.journal.options import JournalCounters, JournalOptions
from pywaku.tasks import open_service_nursery

_log = logging.getLogger(__name__)
_RETRY_S: Final = 5.0
"""The longest pause after a failure; shorter where files are written more often."""


class Journal:
    """Takes entries without waiting; what goes wrong with the files ends up in the counters and the log."""

    def __init__(
        self,
        files: JournalFiles,
        boot_id: str,
        options: JournalOptions,
        counters: JournalCounters,
        clock: Callable[[], int],
        monotonic: Callable[[], int],
        run_blocking: RunBlocking,
    ) -> None:
        self.boot_id = boot_id
        self._counters = counters
        self._files = files
        self._options = options
        self._clock = clock
        self._monotonic = monotonic
        self._run_blocking = run_blocking
        self._rows = RowBuffer(options.max_rows)
        self._too_late = 0
        self._failing = False
        self._cleared: date | None = None
        self._arrived = trio.Event()
        self._enough = trio.Event()
        self._closing = False
        self._ended = trio.Event()
        self._waiting: list[trio.Event] = []
        self._scope = trio.CancelScope(shield=True)

    @property
    def pending(self) -> int:
        """Rows that are in no file yet."""
        return len(self._rows)

    @property
    def counters(self) -> JournalCounters:
        """What has become of the rows so far; a copy."""
        return replace(
            self._counters,
            dropped=self._rows.dropped + self._too_late,
            failures=dict(self._counters.failures),
        )

    def write(self, entry: JournalEntry) -> None:
        """Take an entry, as of now. Never waits; when too many rows wait, it is dropped."""
        if self._closing:
            self._too_late += 1
            return
        count = self._rows.add(entry, self._clock(), self._monotonic())
        if count == 1:
            self._arrived.set()
        if count == self._options.flush_rows:
            self._enough.set()

    async def flush(self) -> None:
        """Wait until everything taken so far is in files, or the attempt to write it has failed."""
        if self._ended.is_set():
            return
        done = trio.Event()
        self._waiting.append(done)
        self._hurry()
        await done.wait()

    async def run(self) -> None:
        """Write files until the journal is closed."""
        try:
            with self._scope:  # a thread goes on when its task is cancelled, so only `close` cancels this one
                await self._run()
        finally:
            self._ended.set()

    async def close(self) -> None:
        """Write what is left, for as long as the options say; what cannot be written then is lost."""
        self._rows.add_last(JournalEntry(JOURNAL_CLOSED), self._clock(), self._monotonic())
        self._closing = True
        self._hurry()
        with trio.CancelScope(shield=True), trio.move_on_after(self._options.closing_s):
            await self._ended.wait()
        self._scope.cancel()
        self._ended.set()
        for done in self._waiting:
            done.set()
        lost = self._rows.clear()
        if lost:
            _log.warning("journal closed directory=%s lost=%d", self._files.directory, lost)

    async def _run(self) -> None:
        closing = False
        while not closing:
            await self._arrived.wait()
            await self._wait_for_more()
            closing = self._closing
            self._arrived, self._enough = trio.Event(), trio.Event()
            waiting, self._waiting = self._waiting, []
            try:
                await self._flush()
            finally:
                for done in waiting:
                    done.set()
            if self._rows:
                self._arrived.set()

    async def _wait_for_more(self) -> None:
        """Until there is enough for a file, it is time for one, or, after a failure, to try again."""
        options = self._options
        if self._failing:
            pause = min(_RETRY_S, options.flush_interval_s)
        elif len(self._rows) < options.flush_rows:
            pause = options.flush_interval_s
        else:
            return
        with trio.move_on_after(pause):
            await self._enough.wait()

    def _hurry(self) -> None:
        self._arrived.set()
        self._enough.set()

    async def _flush(self) -> None:
        """Write what is there now, file by file, until it is done or fails."""
        rows = self._rows
        until = rows.next_sequence
        while rows.has_before(until):
            batch = rows.first(self._options.flush_rows)
            try:
                written = await self._run_blocking(partial(self._files.write, batch))
            except OSError as error:
                self._failed(error)
                return
            except Exception as error:  # not the disk: these rows would fail for ever and hold up all others
                self._failed(error)
                rows.give_up(len(batch), self._clock(), self._monotonic())
                return
            rows.remove(written.rows, self._clock(), self._monotonic())
            self._note(written)
        await self._clear_away()

    async def _clear_away(self) -> None:
        """Once a day."""
        keep_days = self._options.keep_days
        today = day_of(self._clock())
        if keep_days is None or today == self._cleared:
            return
        self._cleared = today
        try:
            self._counters.removed += await self._run_blocking(
                partial(self._files.remove_before, today - timedelta(days=keep_days - 1))
            )
        except OSError as error:
            _log.warning(
                "old journal files could not be removed directory=%s: %s", self._files.directory, error
            )

    def _failed(self, error: Exception) -> None:
        number = error.errno if isinstance(error, OSError) else None
        reason = errno.errorcode.get(number or 0, "other")
        failures = self._counters.failures
        failures[reason] = failures.get(reason, 0) + 1
        _log.log(
            logging.DEBUG if self._failing else logging.WARNING,
            "journal cannot be written as it should directory=%s pending=%d: %s",
            self._files.directory,
            len(self._rows),
            error,
        )
        self._failing = True

    def _note(self, written: Written) -> None:
        counters = self._counters
        counters.files += 1
        counters.written += written.rows
        if written.mended and not counters.mended:
            _log.warning("journal values did not fit their columns and were mended count=%d", written.mended)
        counters.mended += written.mended
        if written.unsure is not None:
            self._failed(written.unsure)
        elif self._failing:
            self._failing = False
            _log.info(
                "journal written again directory=%s dropped=%d", self._files.directory, self._rows.dropped
            )


@asynccontextmanager
async def open_journal(
    directory: Path | str,
    *,
    node_id: PeerId | str,
    options: JournalOptions | None = None,
    clock: Callable[[], int] = time.time_ns,
    monotonic: Callable[[], int] = time.monotonic_ns,
    rng: random.Random | None = None,
    run_blocking: RunBlocking = in_thread,
) -> AsyncGenerator[Journal]:
    """A journal at work in a directory, which is made if need be and may be shared by many.

    `clock` gives the time of day and `monotonic` one that never jumps, both in nanoseconds; `rng` makes the
    boot id unique. On virtual time `run_blocking` has to be `inline`. Raises `InvalidInput` where pyarrow is
    missing or the directory cannot be written to; later trouble with the disk ends up in the counters.
    """
    if not node_id or not _is_text(str(node_id)):
        raise InvalidInput(f"node_id: is a PeerId or a text in UTF-8, not {node_id!r}")
    arrow = await run_blocking(load_arrow)
    boot_id = new_boot_id(clock(), rng or random.SystemRandom())
    files = JournalFiles(arrow, Path(directory), str(node_id), boot_id)
    counters = JournalCounters(leftovers=await run_blocking(files.open))
    if counters.leftovers:
        _log.info("journal leftovers removed directory=%s count=%d", directory, counters.leftovers)
    journal = Journal(files, boot_id, options or JournalOptions(), counters, clock, monotonic, run_blocking)
    journal.write(JournalEntry(JOURNAL_OPENED))
    async with open_service_nursery() as nursery:
        nursery.start_soon(journal.run)
        try:
            yield journal
        finally:
            await journal.close()


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
