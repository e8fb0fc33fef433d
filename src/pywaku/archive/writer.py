"""Messages from relay on their way into the archive: gathered, written in batches, never in relay's way."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from pywaku.archive.eligibility import why_ineligible
from pywaku.archive.port import Archive, StoredMessage
from pywaku.errors import ArchiveError
from pywaku.message import WakuMessage, message_hash
from pywaku.tasks import open_service_nursery

_log = logging.getLogger(__name__)
_ROW_BYTES: Final = 256
"""What a pending message takes beyond its payload, about."""


Written = Callable[[list[StoredMessage]], None]
"""Told of each batch that the archive has taken."""


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """How messages are gathered, and what is held while the archive fails."""

    max_wait_s: float = 0.05
    """How long the first message of a batch waits for others."""
    max_batch: int = 500
    max_pending: int = 10_000
    """Messages that wait to be written; further ones are dropped, and counted."""
    max_pending_bytes: int = 64 << 20
    attempts: int = 6
    """How often a batch is tried before it is dropped."""
    first_delay_s: float = 0.2
    """The pause after a first failure; it doubles with each further one."""
    max_delay_s: float = 5.0
    closing_s: float = 5.0
    """How long a writer that is being closed goes on with what is pending."""


@dataclass(slots=True)
class WriterCounters:
    """What has become of the messages offered; each number only grows."""

    offered: int = 0
    written: int = 0
    """Those that the archive has taken, new or not."""
    ineligible: dict[str, int] = field(default_factory=dict[str, int])
    """Not kept, by reason."""
    dropped_full: int = 0
    """Lost because too many were waiting."""
    dropped_failed: int = 0
    """Lost because the archive failed too often, or was still failing at the end."""
    batches: int = 0
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """Failed attempts, by reason."""


class ArchiveWriter:
    """Takes messages without waiting and writes them in the background; errors end up in the counters."""

    def __init__(
        self, archive: Archive, options: WriterOptions, clock: Callable[[], int], on_written: Written | None
    ) -> None:
        self.counters = WriterCounters()
        self._archive = archive
        self._options = options
        self._clock = clock
        self._on_written = on_written
        self._pending: deque[StoredMessage] = deque()
        self._pending_bytes = 0
        self._in_hand = 0
        self._arrived = trio.Event()
        self._enough = trio.Event()
        self._idle = trio.Event()
        self._idle.set()
        self._closing = False

    @property
    def pending(self) -> int:
        """Messages that are not in the archive yet."""
        return len(self._pending) + self._in_hand

    def offer(self, pubsub_topic: str, message: WakuMessage, key: bytes | None = None) -> bool:
        """Take a message that has just come, if it is eligible and there is room; whether it was taken.

        `key` is its hash, where the caller knows it.
        """
        counters, options = self.counters, self._options
        counters.offered += 1
        now_ns = self._clock()
        reason = why_ineligible(message, now_ns)
        if reason is not None:
            counters.ineligible[reason.value] = counters.ineligible.get(reason.value, 0) + 1
            return False
        size = len(message.payload) + _ROW_BYTES
        full = self.pending >= options.max_pending or self._pending_bytes + size > options.max_pending_bytes
        if full or self._closing:
            counters.dropped_full += 1
            return False
        key = message_hash(pubsub_topic, message) if key is None else key
        self._pending.append(StoredMessage(key, pubsub_topic, message, now_ns))
        self._pending_bytes += size
        self._arrived.set()
        if len(self._pending) >= options.max_batch:
            self._enough.set()
        if self._idle.is_set():
            self._idle = trio.Event()
        return True

    async def flush(self) -> None:
        """Wait until nothing is pending: everything taken so far is in the archive, or counted as dropped."""
        self._enough.set()
        await self._idle.wait()

    async def run(self) -> None:
        """Write what comes, for ever."""
        while True:
            await self._arrived.wait()
            with trio.move_on_after(self._options.max_wait_s):
                await self._enough.wait()
            await self._write_pending()

    async def close(self) -> None:
        """Write what is pending, for as long as the options say, then drop it."""
        self._closing = True
        with trio.CancelScope(shield=True), trio.move_on_after(self._options.closing_s):
            await self._write_pending()
        if self._pending:
            self.counters.dropped_failed += len(self._pending)
            _log.warning("archive writer closed archive=%s lost=%d", self._archive.name, len(self._pending))
            self._pending.clear()
        self._idle.set()

    async def _write_pending(self) -> None:
        while self._pending:
            batch = [self._pending.popleft() for _ in range(min(len(self._pending), self._options.max_batch))]
            self._in_hand = len(batch)
            done = False
            try:
                done = await self._write(batch)
            finally:
                self._in_hand = 0
                if not done:  # cancelled: who closes the writer tries once more, inserting twice is harmless
                    self._pending.extendleft(reversed(batch))
            self._pending_bytes -= sum(len(stored.message.payload) + _ROW_BYTES for stored in batch)
        self._arrived = trio.Event()
        self._enough = trio.Event()
        self._idle.set()

    async def _write(self, batch: list[StoredMessage]) -> bool:
        """Insert the batch or drop it; True means that it is done with either way."""
        counters, options = self.counters, self._options
        delay = options.first_delay_s
        for attempt in range(1, options.attempts + 1):
            try:
                await self._archive.insert(batch)
            except Exception as error:
                reason = error.reason if isinstance(error, ArchiveError) else "other"
                counters.failures[reason] = counters.failures.get(reason, 0) + 1
                level = logging.WARNING if attempt in (1, options.attempts) else logging.DEBUG
                _log.log(
                    level, "archive insert failed attempt=%d messages=%d: %s", attempt, len(batch), error
                )
            else:
                counters.batches += 1
                counters.written += len(batch)
                self._tell(batch)
                return True
            if attempt < options.attempts:
                await trio.sleep(delay)
                delay = min(2 * delay, options.max_delay_s)
        counters.dropped_failed += len(batch)
        return True

    def _tell(self, batch: list[StoredMessage]) -> None:
        if self._on_written is not None:
            try:
                self._on_written(batch)
            except Exception:  # the batch is written, whatever the listener makes of it
                _log.exception("a listener of the archive writer failed archive=%s", self._archive.name)


def _wall_clock() -> int:
    return time.time_ns()


@asynccontextmanager
async def open_archive_writer(
    archive: Archive,
    options: WriterOptions | None = None,
    *,
    clock: Callable[[], int] = _wall_clock,
    on_written: Written | None = None,
) -> AsyncGenerator[ArchiveWriter]:
    """A writer at work; at the end of the block it writes what is pending."""
    writer = ArchiveWriter(archive, options or WriterOptions(), clock, on_written)
    try:
        async with open_service_nursery() as nursery:
            nursery.start_soon(writer.run)
            yield writer
    finally:
        await writer.close()
