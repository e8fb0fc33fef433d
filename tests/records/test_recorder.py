"""The recorder: order, batches, bounds, a store that fails, the end. On virtual time, records in memory."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from pywaku.errors import NodeClosed, RecordError
from pywaku.messaging.records import (
    Change,
    Changed,
    MemoryRecordStore,
    RecorderOptions,
    Retention,
    open_recorder,
)
from tests.support.records import (
    PUBSUB_TOPIC,
    SECOND_NS,
    START_NS,
    TOPIC,
    FailingStore,
    adding,
    guid,
    hash_of,
    receiving,
    record,
)

pytestmark = pytest.mark.virtual


def _ignore(told: list[Changed]) -> None:
    pass


def _sent(number: int) -> Change:
    return Change(hash_of(number), 5, request_id=guid(number), sent=True)


# Order and batches


async def test_changes_are_stored_and_told_in_the_order_in_which_they_were_put() -> None:
    told: list[Changed] = []
    async with open_recorder(MemoryRecordStore(), told.extend) as recorder:
        recorder.put(receiving(1))
        recorder.accept(record(1, 1))
        recorder.put(_sent(1))
        recorder.put(receiving(2))
        await recorder.flush()
        assert [
            (change.after.request_id, change.after.received, change.after.sent, change.before is None)
            for change in told
        ] == [
            (None, True, False, True),
            (guid(1), False, False, True),
            (guid(1), False, True, False),
            (None, True, False, True),
        ]


async def test_events_are_dispatched_only_after_the_change_is_stored() -> None:
    store = FailingStore()
    seen: list[int] = []

    def look(told: list[Changed]) -> None:
        for change in told:
            assert store._by_hash[change.after.message_hash][0].record == change.after
            seen.append(store.counters.applied)

    async with open_recorder(store, look) as recorder:
        store.fail("locked")
        recorder.put(receiving(1))
        await trio.sleep(10)
        assert seen == []
        store.fail(None)
        await recorder.flush()
        assert seen == [1]


async def test_what_gathers_is_stored_in_one_batch() -> None:
    store = FailingStore()
    async with open_recorder(store, _ignore, RecorderOptions(max_wait_s=0.5, max_batch=100)) as recorder:
        start = trio.current_time()
        for number in range(5):
            recorder.put(receiving(number))
            await trio.sleep(0.05)
        await trio.sleep(1)
        assert store.batches == [5]
        for number in range(230):
            recorder.put(receiving(number))
        await trio.sleep(0.1)  # enough for a batch: nobody waits for more
        assert store.batches == [5, 100, 100, 30]
        assert trio.current_time() - start < 2
        assert recorder.counters.batches == 4
        assert (recorder.counters.put, recorder.counters.stored) == (235, 235)


async def test_flushing_does_not_wait_for_more_changes() -> None:
    async with open_recorder(MemoryRecordStore(), _ignore, RecorderOptions(max_wait_s=100)) as recorder:
        await recorder.flush()
        start = trio.current_time()
        recorder.put(receiving(1))
        await recorder.flush()
        recorder.put(receiving(2))
        assert await recorder.by_hash(hash_of(2)) is not None
        assert trio.current_time() == start
        assert recorder.waiting == 0


async def test_reads_see_what_was_put_before() -> None:
    async with open_recorder(MemoryRecordStore(), _ignore, RecorderOptions(max_wait_s=100)) as recorder:
        recorder.accept(record(1, 1))
        assert await recorder.by_request_id(guid(1)) is not None
        recorder.put(receiving(1, "a"))
        assert await recorder.missing([hash_of(1), hash_of(2)]) == [hash_of(2)]
        recorder.accept(record(2, 2))
        assert len(await recorder.pending()) == 2
        recorder.accept(record(3, 3))
        assert len(await recorder.by_content_topic(TOPIC, 1)) == 2
        recorder.put(receiving(3, "a"))
        assert len(await recorder.by_subscription_id("a", 0, 5)) == 2
        recorder.put(receiving(4))
        assert await recorder.known_since(0, 1) == [hash_of(4)]
        recorder.accept(record(4, 4))
        assert len(await recorder.all_by_hash(hash_of(4))) == 2


async def test_what_was_fetched_is_noted_after_the_messages_are_stored() -> None:
    store = FailingStore()
    async with open_recorder(store, _ignore) as recorder:
        store.fail("disk-full")
        recorder.put(receiving(1))
        with trio.move_on_after(60):
            await recorder.note_fetched(PUBSUB_TOPIC, [TOPIC], 100)
        assert await recorder.fetched_until(PUBSUB_TOPIC, TOPIC) is None
        store.fail(None)
        await recorder.note_fetched(PUBSUB_TOPIC, [TOPIC], 100)
        assert await recorder.fetched_until(PUBSUB_TOPIC, TOPIC) == 100
        assert await store.by_hash(hash_of(1)) is not None


# A store that fails


async def test_a_failing_store_is_tried_again_with_growing_pauses_and_nothing_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "pywaku.messaging.records.recorder")
    store = FailingStore()
    told: list[Changed] = []
    async with open_recorder(store, told.extend, RecorderOptions(max_wait_s=0)) as recorder:
        for streak in range(2):
            store.batches.clear()
            caplog.clear()
            store.fail("disk-full")
            for number in range(10 * streak, 10 * streak + 10):
                assert recorder.put(receiving(number))
            await trio.sleep(0.01)
            assert recorder.failing
            await trio.sleep(30.1)
            # At 0, 0.2, 0.6, 1.4, 3.0, 6.2, 11.2, 16.2, 21.2, 26.2 s.
            assert len(store.batches) == 10
            assert len(caplog.records) == 1  # once for each streak
            store.fail(None)
            await recorder.flush()
            assert not recorder.failing
            assert [entry.levelname for entry in caplog.records] == ["WARNING", "INFO"]
        assert recorder.counters.failures == {"disk-full": 20}
        assert [change.after.message_hash for change in told] == [hash_of(number) for number in range(20)]


async def test_reads_do_not_wait_for_a_store_that_cannot_be_written() -> None:
    store = FailingStore()
    async with open_recorder(store, _ignore) as recorder:
        recorder.put(receiving(1))
        assert await recorder.by_hash(hash_of(1)) is not None
        store.fail("read-only")
        recorder.put(receiving(2))
        with trio.fail_after(1):
            assert await recorder.by_hash(hash_of(1)) is not None
            assert await recorder.by_hash(hash_of(2)) is None
        store.fail(None)


async def test_a_send_that_could_not_be_made_sure_of_is_an_error_and_not_recorded() -> None:
    store = FailingStore()
    async with open_recorder(store, _ignore) as recorder:
        store.fail("disk-full")
        with pytest.raises(RecordError):
            recorder.accept(record(1, 1))
        store.fail(None)
        assert await recorder.by_request_id(guid(1)) is None
        assert recorder.counters.put == 0


async def test_a_change_that_no_store_can_take_does_not_keep_others_from_being_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FailingStore()
    store.poison = hash_of(3)
    told: list[Changed] = []
    async with open_recorder(store, told.extend) as recorder:
        for number in range(6):
            recorder.put(receiving(number))
        await recorder.flush()
        assert [change.after.message_hash for change in told] == [hash_of(n) for n in (0, 1, 2, 4, 5)]
        assert recorder.counters.discarded == 1
        assert "change discarded" in caplog.text


async def test_a_store_that_fails_while_changes_are_tried_one_by_one_loses_none() -> None:
    class Flaky(FailingStore):
        async def apply(self, changes: Sequence[Change]) -> list[Changed]:
            if len(self.batches) == 3:
                self.batches.append(len(changes))
                raise RecordError("records: locked", reason="locked")
            return await super().apply(changes)

    store = Flaky()
    store.poison = hash_of(4)
    told: list[Changed] = []
    async with open_recorder(store, told.extend) as recorder:
        for number in range(6):
            recorder.put(receiving(number))
        await recorder.flush()
        assert [change.after.message_hash for change in told] == [hash_of(n) for n in (0, 1, 2, 3, 5)]
        assert recorder.counters.failures == {"locked": 1}
        assert recorder.counters.discarded == 1
        assert recorder.waiting == 0


async def test_a_listener_that_fails_is_logged_and_keeps_nothing_from_being_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(told: list[Changed]) -> None:
        raise ValueError("a bug of the application")

    async with open_recorder(MemoryRecordStore(), fail) as recorder:
        for number in range(2):
            recorder.put(receiving(number))
            assert await recorder.by_hash(hash_of(number)) is not None
        assert recorder.counters.listener_failures == 2
        assert "a bug of the application" in caplog.text


# Bounds


async def test_a_full_recorder_refuses_what_was_received_and_takes_what_concerns_sends() -> None:
    store = FailingStore()
    options = RecorderOptions(max_pending=10)
    async with open_recorder(store, _ignore, options) as recorder:
        store.fail("locked")
        assert all(recorder.put(receiving(number)) for number in range(20))  # what was on its way still fits
        assert recorder.full
        assert not recorder.put(receiving(20))
        assert not recorder.put(Change(hash_of(1), 5, stored=True))
        assert recorder.counters.refused == 2
        store.fail(None)
        recorder.accept(record(30, 30))
        assert recorder.put(_sent(30))
        await recorder.flush()
        assert recorder.put(receiving(20))
        assert len(await recorder.by_content_topic(TOPIC)) == 22


async def test_a_recorder_is_full_by_the_size_of_what_waits() -> None:
    store = FailingStore()
    options = RecorderOptions(max_pending_bytes=1_000_000)
    async with open_recorder(store, _ignore, options) as recorder:
        store.fail("locked")
        for number in range(2):
            recorder.put(adding(number, size=480_000))
        assert not recorder.full
        recorder.put(adding(2, size=480_000))
        assert recorder.full
        assert recorder.put(receiving(9))
        recorder.put(adding(4, size=480_000))
        recorder.put(adding(5, size=480_000))
        assert not recorder.put(receiving(10))
        store.fail(None)
        await recorder.flush()
        assert not recorder.full
        assert recorder.put(receiving(10))


async def test_room_is_waited_for_until_the_store_has_caught_up() -> None:
    store = FailingStore()
    options = RecorderOptions(max_pending=10, max_batch=5)
    waited: list[float] = []

    async with open_recorder(store, _ignore, options) as recorder:
        start = trio.current_time()
        store.fail("disk-full")

        async def producer(first: int) -> None:
            for number in range(first, first + 100):
                await recorder.room()
                assert recorder.put(receiving(number))
                assert recorder.waiting <= 10 + 4
            waited.append(trio.current_time() - start)

        async with trio.open_nursery() as nursery:
            for first in range(0, 400, 100):
                nursery.start_soon(producer, first)
            await trio.sleep(10)
            assert 10 <= recorder.waiting <= 14
            assert not waited
            store.fail(None)
        assert len(waited) == 4
        assert len(await recorder.by_content_topic(TOPIC)) == 400
        assert recorder.counters.refused == 0


# Retention


async def test_records_are_pruned_now_and_then() -> None:
    now = START_NS
    store = MemoryRecordStore(Retention(max_age_s=100))
    options = RecorderOptions(prune_interval_s=50)
    async with open_recorder(store, _ignore, options, clock=lambda: now) as recorder:
        recorder.put(receiving(1))
        await trio.sleep(120)
        assert store.counters.pruned == 0
        now += 1_000 * SECOND_NS
        await trio.sleep(50)
        assert store.counters.pruned == 1


async def test_pruning_that_fails_is_logged_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(MemoryRecordStore):
        failing = True

        async def prune(self, now_ns: int) -> int:
            if self.failing:
                raise RecordError("records: locked", reason="locked")
            return await super().prune(now_ns)

    store = Failing(Retention(max_age_s=1))
    options = RecorderOptions(prune_interval_s=10)
    async with open_recorder(store, _ignore, options, clock=lambda: START_NS * 2) as recorder:
        recorder.put(receiving(1))
        await trio.sleep(55)
        assert caplog.text.count("cannot be pruned") == 1
        store.failing = False
        await trio.sleep(10)
        assert store.counters.pruned == 1


# The end


async def test_closing_stores_and_tells_what_is_pending() -> None:
    store = MemoryRecordStore()
    told: list[Changed] = []
    async with open_recorder(store, told.extend, RecorderOptions(max_wait_s=100)) as recorder:
        for number in range(2_500):
            recorder.put(receiving(number))
    assert len(told) == store.counters.applied == 2_500
    assert not recorder.put(receiving(1))
    assert recorder.counters.refused == 1
    with pytest.raises(NodeClosed):
        recorder.accept(record(1, 1))
    await recorder.flush()
    await recorder.room()


async def test_closing_while_the_store_fails_takes_a_bounded_time_and_counts_what_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FailingStore()
    start = trio.current_time()
    async with open_recorder(store, _ignore, RecorderOptions(closing_s=3)) as recorder:
        store.fail("disk-full")
        for number in range(5):
            recorder.put(receiving(number))
        await trio.sleep(1)
    assert trio.current_time() - start == pytest.approx(4)
    assert recorder.counters.lost == 5
    assert "lost=5" in caplog.text
    with pytest.raises(NodeClosed, match="before everything was stored"):
        await recorder.flush()


async def test_a_cancelled_application_loses_nothing() -> None:
    store = MemoryRecordStore()
    told: list[Changed] = []
    with trio.CancelScope() as scope:
        async with open_recorder(store, told.extend) as recorder:
            for number in range(100):
                recorder.put(receiving(number))
            scope.cancel()
            await trio.sleep_forever()
    assert len(told) == store.counters.added == 100


async def test_what_a_cancelled_recorder_has_stored_is_told() -> None:
    class Slow(MemoryRecordStore):
        async def apply(self, changes: Sequence[Change]) -> list[Changed]:
            told = await super().apply(changes)
            await trio.sleep(1)
            return told

    told: list[Changed] = []
    with trio.CancelScope() as scope:
        async with open_recorder(Slow(), told.extend) as recorder:
            recorder.put(receiving(1))
            await trio.sleep(0.5)
            scope.cancel()
            await trio.sleep_forever()
    assert len(told) == 1


async def test_those_who_wait_are_let_go_at_the_end() -> None:
    store = FailingStore()
    ended: list[str] = []
    async with trio.open_nursery() as nursery:
        options = RecorderOptions(max_pending=1, closing_s=1)
        async with open_recorder(store, _ignore, options) as recorder:
            store.fail("locked")
            recorder.put(receiving(1))

            async def flush() -> None:
                with pytest.raises(NodeClosed):
                    await recorder.flush()
                ended.append("flush")

            async def room() -> None:
                await recorder.room()
                ended.append("room")

            nursery.start_soon(flush)
            nursery.start_soon(room)
            await trio.testing.wait_all_tasks_blocked()
    assert sorted(ended) == ["flush", "room"]
