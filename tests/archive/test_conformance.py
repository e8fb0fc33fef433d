"""What every archive does, whatever is behind it (13/WAKU2-STORE and the port)."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from pywaku.archive import ArchiveEntry, ArchiveQuery, RetentionPolicy, StoredMessage
from pywaku.errors import ArchiveError, CursorNotFound, InvalidInput
from pywaku.message import WakuMessage
from tests.archive.conftest import OpenBackend
from tests.support.archives import PUBSUB_TOPIC, START_NS, MemoryArchive, pages, series, stored

_EARLIEST = -(1 << 63)
_LATEST = (1 << 63) - 1


def _hashes(entries: tuple[ArchiveEntry, ...]) -> list[bytes]:
    return [entry.message_hash for entry in entries]


async def test_an_empty_archive_answers_with_nothing(open_backend: OpenBackend) -> None:
    async with open_backend() as archive:
        page = await archive.query(ArchiveQuery())
        assert (page.messages, page.cursor) == ((), None)
        stats = await archive.stats()
        assert (stats.messages, stats.oldest_ns, stats.newest_ns) == (0, None, None)
        assert await archive.insert([]) == 0
        assert await archive.retain(RetentionPolicy(1, 1, 1), START_NS) == 0


async def test_messages_come_back_exactly_as_they_were(open_backend: OpenBackend) -> None:
    topic = "/test/1/exact/proto"
    given = [
        WakuMessage(b"", topic, timestamp_ns=1),
        WakuMessage(b"\0" * 100, topic, timestamp_ns=2, meta=b"", version=0, ephemeral=False),
        WakuMessage(bytes(range(256)), topic, timestamp_ns=3, meta=bytes(64), version=(1 << 32) - 1),
        WakuMessage(b"p", topic, timestamp_ns=4, ephemeral=True, rate_limit_proof=b""),
        WakuMessage(b"p", topic, timestamp_ns=5, rate_limit_proof=b"\xff" * 300),
        WakuMessage(b"no timestamp", topic),
        WakuMessage(b"zero", topic, timestamp_ns=0),
        WakuMessage(b"first", topic, timestamp_ns=_EARLIEST),
        WakuMessage(b"last", topic, timestamp_ns=_LATEST),
        WakuMessage(b"p", "\0odd \U0001f600\0 topic", timestamp_ns=6),
        WakuMessage(b"p", "long" * 5_000, timestamp_ns=7),
        WakuMessage(b"large" * 30_000, topic, timestamp_ns=8),
    ]
    async with open_backend() as archive:
        messages = [StoredMessage.of(PUBSUB_TOPIC, message, START_NS) for message in given]
        assert await archive.insert(messages) == len(given)
        for message in messages:
            (entry,) = (await archive.query(ArchiveQuery(hashes=(message.message_hash,)))).messages
            assert entry.message == message.message
            assert entry.pubsub_topic == PUBSUB_TOPIC
            assert entry.timestamp_ns == message.timestamp_ns
            content_topics = (message.message.content_topic,)
            page = await archive.query(ArchiveQuery(PUBSUB_TOPIC, content_topics, limit=100))
            assert message.message_hash in _hashes(page.messages)
        everything = await archive.query(ArchiveQuery(limit=100))
        assert len(everything.messages) == len(given)
        stats = await archive.stats()
        assert (stats.oldest_ns, stats.newest_ns) == (_EARLIEST, _LATEST)


async def test_entries_are_sorted_by_timestamp_and_then_by_hash(open_backend: OpenBackend) -> None:
    messages = [stored(i, timestamp_ns=START_NS + i % 3) for i in range(60)]
    expected = sorted((m.timestamp_ns, m.message_hash) for m in messages)
    async with open_backend() as archive:
        await archive.insert(messages)
        page = await archive.query(ArchiveQuery(limit=100))
        assert [(entry.timestamp_ns, entry.message_hash) for entry in page.messages] == expected


async def test_inserting_again_changes_nothing(open_backend: OpenBackend) -> None:
    first, again = stored(1), replace(stored(1), received_ns=5)
    async with open_backend() as archive:
        assert await archive.insert([first, stored(2), first]) == 2
        assert await archive.insert([again, stored(3)]) == 1
        assert (await archive.stats()).messages == 3
        assert (archive.counters.inserted, archive.counters.duplicates) == (3, 2)


async def test_many_tasks_insert_the_same_messages(open_backend: OpenBackend) -> None:
    messages = series(50)
    new: list[int] = []
    async with open_backend() as archive:

        async def insert(part: list[StoredMessage]) -> None:
            new.append(await archive.insert(part))

        async with trio.open_nursery() as nursery:
            for start in range(0, 50, 5):
                nursery.start_soon(insert, messages[start:] + messages[:start])
        assert sum(new) == 50
        assert (await archive.stats()).messages == 50


@pytest.mark.parametrize("ascending", [True, False])
async def test_pages_follow_each_other_without_gaps(open_backend: OpenBackend, ascending: bool) -> None:
    messages = series(53)
    async with open_backend() as archive:
        await archive.insert(messages)
        found = await pages(archive, ArchiveQuery(limit=10, ascending=ascending))
        assert [len(page.messages) for page in found] == [10, 10, 10, 10, 10, 3]
        for page in found[:-1]:  # the cursor is the entry of the page that is farthest on the way
            assert page.cursor == page.messages[-1 if ascending else 0].message_hash
        in_order = found if ascending else found[::-1]
        hashes = [message_hash for page in in_order for message_hash in _hashes(page.messages)]
        assert hashes == [message.message_hash for message in messages]


async def test_a_page_that_is_just_full_has_no_cursor(open_backend: OpenBackend) -> None:
    async with open_backend() as archive:
        await archive.insert(series(20))
        for ascending in (True, False):
            assert len(await pages(archive, ArchiveQuery(limit=10, ascending=ascending))) == 2


@pytest.mark.parametrize("ascending", [True, False])
async def test_the_cursor_is_exclusive_and_need_not_match(open_backend: OpenBackend, ascending: bool) -> None:
    asked, other = series(10), [stored(99, timestamp_ns=START_NS + 4_500_000, content_topic="/other/1/a/b")]
    async with open_backend() as archive:
        await archive.insert(asked + other)
        query = ArchiveQuery(PUBSUB_TOPIC, ("/test/1/archive/proto",), limit=100, ascending=ascending)
        at_match = await archive.query(replace(query, cursor=asked[4].message_hash))
        at_other = await archive.query(replace(query, cursor=other[0].message_hash))
        expected = asked[5:] if ascending else asked[:4]
        assert _hashes(at_match.messages) == [message.message_hash for message in expected]
        expected = asked[5:] if ascending else asked[:5]
        assert _hashes(at_other.messages) == [message.message_hash for message in expected]
        end = await archive.query(replace(query, cursor=asked[9 if ascending else 0].message_hash))
        assert (end.messages, end.cursor) == ((), None)


async def test_a_cursor_that_is_not_kept_is_refused(open_backend: OpenBackend) -> None:
    async with open_backend() as archive:
        await archive.insert(series(3))
        with pytest.raises(CursorNotFound, match="abababab"):
            await archive.query(ArchiveQuery(cursor=b"\xab" * 32))
        assert archive.counters.errors == {"cursor": 1}
        assert len((await archive.query(ArchiveQuery())).messages) == 3


async def test_the_start_is_inclusive_and_the_end_exclusive(open_backend: OpenBackend) -> None:
    messages = series(10, step_ns=1)
    async with open_backend() as archive:
        await archive.insert(messages)

        async def found(start: int | None, end: int | None) -> list[int]:
            page = await archive.query(ArchiveQuery(start_ns=start, end_ns=end))
            return [entry.timestamp_ns - START_NS for entry in page.messages]

        assert await found(START_NS + 2, START_NS + 5) == [2, 3, 4]
        assert await found(START_NS + 7, None) == [7, 8, 9]
        assert await found(None, START_NS + 3) == [0, 1, 2]
        assert await found(START_NS + 3, START_NS + 3) == []
        assert await found(START_NS + 5, START_NS + 2) == []
        assert await found(_EARLIEST, _LATEST) == list(range(10))
        assert await found(_LATEST, None) == await found(None, _EARLIEST) == []


async def test_content_is_matched_by_both_topics(open_backend: OpenBackend) -> None:
    shards, topics = ["/waku/2/rs/42/0", "/waku/2/rs/42/1"], ["/a/1/x/proto", "/a/1/y/proto", "/a/1/z/proto"]
    messages = [
        stored(i, timestamp_ns=START_NS + i, pubsub_topic=shards[i % 2], content_topic=topics[i % 3])
        for i in range(60)
    ]
    model = MemoryArchive()
    model.insert_now(messages)
    async with open_backend() as archive:
        await archive.insert(messages)
        for pubsub_topic in (None, *shards, "/waku/2/rs/42/9"):
            for content_topics in ((), topics[:1], topics[:2], topics[::-1], ["/none/1/a/b"], topics[:1] * 3):
                query = ArchiveQuery(pubsub_topic, tuple(content_topics), limit=7)
                assert await pages(archive, query) == await pages(model, query)
                query = replace(query, ascending=False)
                assert await pages(archive, query) == await pages(model, query)


async def test_a_thousand_content_topics_are_merged_in_order(open_backend: OpenBackend) -> None:
    messages = [stored(i, timestamp_ns=START_NS - i, content_topic=f"/t/1/{i}/proto") for i in range(1_000)]
    topics = tuple(message.message.content_topic for message in messages)
    async with open_backend() as archive:
        await archive.insert(messages)
        page = await archive.query(ArchiveQuery(PUBSUB_TOPIC, topics, limit=3))
        assert _hashes(page.messages) == [
            m.message_hash for m in (messages[999], messages[998], messages[997])
        ]
        page = await archive.query(ArchiveQuery(PUBSUB_TOPIC, topics[500:], limit=2, ascending=False))
        assert _hashes(page.messages) == [m.message_hash for m in (messages[501], messages[500])]


async def test_hashes_are_looked_up_and_the_unknown_ones_left_out(open_backend: OpenBackend) -> None:
    messages = series(10)
    async with open_backend() as archive:
        await archive.insert(messages)
        asked = (messages[7].message_hash, bytes(32), messages[2].message_hash, messages[7].message_hash)
        page = await archive.query(ArchiveQuery(hashes=asked, include_data=False))
        assert _hashes(page.messages) == [messages[2].message_hash, messages[7].message_hash]
        assert all(entry.message is None and entry.pubsub_topic is None for entry in page.messages)
        assert page.cursor is None


@pytest.mark.parametrize("ascending", [True, False])
async def test_a_lookup_by_hash_is_paged_as_well(open_backend: OpenBackend, ascending: bool) -> None:
    messages = series(30)
    asked = tuple(message.message_hash for message in messages[::2])
    async with open_backend() as archive:
        await archive.insert(messages)
        found = await pages(archive, ArchiveQuery(hashes=asked, limit=4, ascending=ascending))
        in_order = found if ascending else found[::-1]
        assert [key for page in in_order for key in _hashes(page.messages)] == list(asked)
        assert [len(page.messages) for page in found] == [4, 4, 4, 3]


def test_queries_that_cannot_be_are_refused() -> None:
    for build in (
        lambda: ArchiveQuery(limit=0),
        lambda: ArchiveQuery(limit=1_001),
        lambda: ArchiveQuery(hashes=(b"short",)),
        lambda: ArchiveQuery(cursor=b"short"),
        lambda: ArchiveQuery(hashes=(bytes(32),), start_ns=1),
        lambda: ArchiveQuery(hashes=(bytes(32),), end_ns=1),
        lambda: ArchiveQuery(hashes=(bytes(32),), content_topics=("/a/1/b/c",)),
        lambda: ArchiveQuery(hashes=(bytes(32),), pubsub_topic=PUBSUB_TOPIC),
        lambda: ArchiveQuery(start_ns=1 << 63),
        lambda: ArchiveQuery(end_ns=-(1 << 63) - 1),
    ):
        with pytest.raises(InvalidInput):
            build()


async def test_retention_by_time_keeps_what_is_young_enough(open_backend: OpenBackend) -> None:
    second = 1_000_000_000
    messages = series(1_300, step_ns=second // 100)
    async with open_backend() as archive:
        await archive.insert(messages)
        now = START_NS + 12 * second
        assert await archive.retain(RetentionPolicy(max_age_s=5), now) == 700
        assert await archive.retain(RetentionPolicy(max_age_s=5), now) == 0
        page = await archive.query(ArchiveQuery(limit=1))
        assert page.messages[0].message_hash == messages[700].message_hash
        stats = await archive.stats()
        assert (stats.messages, stats.oldest_ns) == (600, START_NS + 7 * second)
        assert archive.counters.removed == 700
        assert await archive.insert(messages[:1]) == 1  # what is gone can come back


async def test_retention_by_time_over_many_days(open_backend: OpenBackend) -> None:
    hour = 3_600 * 1_000_000_000
    messages = series(100, step_ns=hour)
    async with open_backend() as archive:
        await archive.insert(messages)
        assert await archive.retain(RetentionPolicy(max_age_s=36_000), START_NS + 99 * hour) == 89
        page = await archive.query(ArchiveQuery(limit=100))
        assert _hashes(page.messages) == [message.message_hash for message in messages[89:]]


async def test_retention_by_count_removes_the_oldest(open_backend: OpenBackend) -> None:
    messages = series(1_200, step_ns=3_600 * 100_000_000)
    shards = [replace(m, pubsub_topic=f"/waku/2/rs/42/{i % 3}") for i, m in enumerate(messages)]
    async with open_backend() as archive:
        await archive.insert(shards)
        assert await archive.retain(RetentionPolicy(max_messages=90), START_NS) == 1_110
        page = await archive.query(ArchiveQuery(limit=100))
        assert _hashes(page.messages) == [message.message_hash for message in messages[-90:]]
        assert await archive.retain(RetentionPolicy(max_messages=90), START_NS) == 0


async def test_retention_by_size_removes_the_oldest(open_backend: OpenBackend) -> None:
    messages = series(2_000, step_ns=3_600 * 100_000_000, size=1_000)
    async with open_backend() as archive:
        await archive.insert(messages)
        before = await archive.stats()
        most = before.bytes // 2
        removed = await archive.retain(RetentionPolicy(max_bytes=most), START_NS)
        after = await archive.stats()
        assert after.bytes <= most
        assert after.messages == 2_000 - removed
        assert 500 < after.messages < 1_100
        assert after.oldest_ns == messages[removed].timestamp_ns
        assert (await archive.query(ArchiveQuery(limit=1))).messages[0].message is not None


async def test_several_limits_apply_together(open_backend: OpenBackend) -> None:
    messages = series(100)
    async with open_backend() as archive:
        await archive.insert(messages)
        policy = RetentionPolicy(max_age_s=1, max_messages=10, max_bytes=1 << 40)
        assert await archive.retain(policy, START_NS + 1_050_000_000) == 90
        page = await archive.query(ArchiveQuery())
        assert _hashes(page.messages) == [message.message_hash for message in messages[90:]]


async def test_what_was_inserted_is_there_after_opening_again(open_backend: OpenBackend) -> None:
    async with open_backend() as archive:
        if archive.name.endswith(":memory:"):
            return
        await archive.insert(series(5))
    async with open_backend() as archive:
        assert (await archive.stats()).messages == 5
        assert await archive.insert(series(7)) == 2
        assert (
            len((await archive.query(ArchiveQuery(PUBSUB_TOPIC, ("/test/1/archive/proto",)))).messages) == 7
        )


async def test_a_closed_archive_says_so(open_backend: OpenBackend) -> None:
    async with open_backend() as archive:
        await archive.close()
        await archive.close()
        with pytest.raises(ArchiveError, match="is closed") as caught:
            await archive.insert([stored()])
        assert caught.value.reason == "closed"
        with pytest.raises(ArchiveError, match="is closed"):
            await archive.query(ArchiveQuery())


async def test_closing_while_others_are_at_work_lets_them_finish_or_fail(open_backend: OpenBackend) -> None:
    outcomes: list[str] = []

    async def work(number: int) -> None:
        try:
            await archive.insert([stored(number)])
            await archive.query(ArchiveQuery())
        except ArchiveError as error:
            outcomes.append(error.reason)
        else:
            outcomes.append("done")

    async with open_backend() as archive, trio.open_nursery() as nursery:
        for number in range(30):
            nursery.start_soon(work, number)
        await archive.query(ArchiveQuery())
        await archive.close()
    assert len(outcomes) == 30
    assert set(outcomes) <= {"done", "closed"}


async def test_a_cancelled_call_leaves_the_archive_usable(open_backend: OpenBackend) -> None:
    async with open_backend() as archive:
        for number in range(20):
            with trio.CancelScope() as scope:
                scope.cancel()
                await archive.insert([stored(number)])
            with trio.move_on_after(0):
                await archive.query(ArchiveQuery())
        await archive.insert([stored(number) for number in range(20)])
        assert (await archive.stats()).messages == 20
