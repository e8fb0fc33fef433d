"""The writer gathers what relay delivers, and no trouble of the archive reaches relay."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from pywaku.archive import StoredMessage, WriterOptions, open_archive_writer
from pywaku.errors import ArchiveError
from pywaku.message import WakuMessage, message_hash
from tests.support.archives import PUBSUB_TOPIC, START_NS, MemoryArchive

pytestmark = pytest.mark.virtual

_FULL = ArchiveError("archive x: the disk is full", reason="disk-full")


class _Recorder(MemoryArchive):
    """Notes the size of each batch, and can be made to wait or to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.tries: list[float] = []
        self.takes_s = 0.0
        self.error: Exception | None = None

    async def insert(self, messages: Sequence[StoredMessage]) -> int:
        self.tries.append(trio.current_time())
        await trio.sleep(self.takes_s)
        if self.error is not None:
            raise self.error
        new = await super().insert(messages)
        self.batches.append(len(messages))
        return new


def _clock() -> int:
    return START_NS


def _message(number: int, *, size: int = 10, **fields: bool) -> WakuMessage:
    payload = str(number).encode().ljust(size)
    return WakuMessage(payload, "/a/1/b/proto", timestamp_ns=START_NS, ephemeral=fields.get("ephemeral"))


async def test_messages_are_gathered_for_a_moment() -> None:
    archive = _Recorder()
    async with open_archive_writer(archive, clock=_clock) as writer:
        for number in range(30):
            assert writer.offer(PUBSUB_TOPIC, _message(number))
            await trio.sleep(0.001)
        assert archive.batches == []
        await trio.sleep(0.05)
        assert archive.batches == [30]
        assert (writer.pending, writer.counters.written, writer.counters.batches) == (0, 30, 1)


async def test_a_full_batch_does_not_wait() -> None:
    archive = _Recorder()
    options = WriterOptions(max_batch=10, max_wait_s=100)
    async with open_archive_writer(archive, options, clock=_clock) as writer:
        for number in range(25):
            writer.offer(PUBSUB_TOPIC, _message(number))
        await trio.sleep(0.001)
        assert archive.batches == [10, 10, 5]
        assert writer.counters.written == 25


async def test_the_hash_and_the_time_of_arrival_are_kept() -> None:
    archive = _Recorder()
    message = _message(1)
    known = message_hash(PUBSUB_TOPIC, message)
    async with open_archive_writer(archive, clock=_clock) as writer:
        writer.offer(PUBSUB_TOPIC, message)
        writer.offer(PUBSUB_TOPIC, message, known)
        await writer.flush()
    assert archive.kept == {known: StoredMessage(known, PUBSUB_TOPIC, message, START_NS)}


async def test_ineligible_messages_are_counted_and_not_kept() -> None:
    archive = _Recorder()
    old = WakuMessage(b"", "/a/1/b/proto", timestamp_ns=1)
    none = WakuMessage(b"", "/a/1/b/proto")
    async with open_archive_writer(archive, clock=_clock) as writer:
        for message in (old, none, _message(1, ephemeral=True)):
            assert not writer.offer(PUBSUB_TOPIC, message)
        await writer.flush()
        assert writer.counters.ineligible == {"too-old": 1, "no-timestamp": 1, "ephemeral": 1}
        assert archive.batches == []


async def test_a_failed_batch_is_tried_again_with_growing_pauses() -> None:
    archive = _Recorder()
    archive.error = _FULL
    async with open_archive_writer(archive, clock=_clock) as writer:
        writer.offer(PUBSUB_TOPIC, _message(1))
        await trio.sleep(1)
        archive.error = None
        await writer.flush()
        assert len(archive.kept) == 1
        assert writer.counters.failures == {"disk-full": 3}
        assert [round(t - archive.tries[0], 3) for t in archive.tries] == [0, 0.2, 0.6, 1.4]


async def test_a_batch_that_fails_too_often_is_dropped_and_the_next_one_written() -> None:
    archive = _Recorder()
    archive.error = RuntimeError("not even an archive error")
    options = WriterOptions(attempts=3, max_batch=2)
    async with open_archive_writer(archive, options, clock=_clock) as writer:
        writer.offer(PUBSUB_TOPIC, _message(1))
        await writer.flush()
        assert (writer.counters.dropped_failed, writer.counters.failures) == (1, {"other": 3})
        archive.error = None
        writer.offer(PUBSUB_TOPIC, _message(2))
        await writer.flush()
        assert writer.counters.written == len(archive.kept) == 1


async def test_what_waits_is_bounded_by_number_and_by_size() -> None:
    archive = _Recorder()
    archive.error = _FULL
    async with open_archive_writer(
        archive, WriterOptions(max_pending=20, closing_s=1), clock=_clock
    ) as writer:
        for number in range(50):
            writer.offer(PUBSUB_TOPIC, _message(number))
            await trio.sleep(0.01)
        assert (writer.pending, writer.counters.dropped_full) == (20, 30)
    options = WriterOptions(max_pending_bytes=100_000, closing_s=1)
    async with open_archive_writer(archive, options, clock=_clock) as writer:
        for number in range(50):
            writer.offer(PUBSUB_TOPIC, _message(number, size=10_000))
        assert writer.pending == 9
        assert writer.counters.dropped_full == 41
    assert writer.counters.dropped_failed == 9


async def test_room_is_made_again_by_what_has_been_written() -> None:
    archive = _Recorder()
    options = WriterOptions(max_pending_bytes=30_000)
    async with open_archive_writer(archive, options, clock=_clock) as writer:
        for number in range(100):
            assert writer.offer(PUBSUB_TOPIC, _message(number, size=20_000))
            await writer.flush()
    assert len(archive.kept) == 100


async def test_closing_writes_what_is_pending() -> None:
    archive = _Recorder()
    archive.takes_s = 0.3
    async with open_archive_writer(archive, clock=_clock) as writer:
        writer.offer(PUBSUB_TOPIC, _message(1))
        await trio.sleep(0.1)  # this one is on its way
        writer.offer(PUBSUB_TOPIC, _message(2))
    assert len(archive.kept) == 2
    assert not writer.offer(PUBSUB_TOPIC, _message(3))


async def test_closing_gives_up_on_an_archive_that_hangs_or_fails() -> None:
    for error, takes_s in ((None, 1e9), (_FULL, 0.0)):
        archive = _Recorder()
        archive.error, archive.takes_s = error, takes_s
        start = trio.current_time()
        async with open_archive_writer(archive, WriterOptions(closing_s=2.0), clock=_clock) as writer:
            for number in range(3):
                writer.offer(PUBSUB_TOPIC, _message(number))
            await trio.sleep(0.1)
        assert trio.current_time() - start < 2.5
        assert writer.counters.dropped_failed == 3
        assert writer.pending == 0


async def test_who_is_told_of_batches_hears_of_those_that_were_written() -> None:
    archive = _Recorder()
    told: list[int] = []
    async with open_archive_writer(
        archive, clock=_clock, on_written=lambda batch: told.append(len(batch))
    ) as writer:
        for number in range(3):
            writer.offer(PUBSUB_TOPIC, _message(number))
        await writer.flush()
    assert told == [3]


async def test_a_listener_that_fails_does_not_end_the_writer() -> None:
    archive = _Recorder()

    def fail(batch: list[StoredMessage]) -> None:
        raise RuntimeError(f"{len(batch)} are too many")

    async with open_archive_writer(archive, clock=_clock, on_written=fail) as writer:
        for number in range(3):
            writer.offer(PUBSUB_TOPIC, _message(number))
            await writer.flush()
    assert (writer.counters.written, writer.counters.batches) == (3, 3)
    assert writer.counters.failures == {}
