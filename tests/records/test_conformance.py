"""What the port promises beyond the specification, on every back end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pywaku.errors import InvalidInput, RecordError
from pywaku.messaging.records import Change, Changed, Retention
from pywaku.messaging.records.port import MAX_FETCH_RECORDS
from tests.records.conftest import OpenStore
from tests.support.records import (
    PUBSUB_TOPIC,
    SECOND_NS,
    START_NS,
    TOPIC,
    adding,
    guid,
    hash_of,
    receiving,
    record,
)

# Changes


async def test_the_same_message_sent_twice_has_two_records_and_one_hash(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([adding(1, 10), adding(1, 20)])
        first, second = await store.all_by_hash(hash_of(1))
        assert (first.request_id, second.request_id) == (guid(10), guid(20))
        assert await store.by_hash(hash_of(1)) == first
        (told,) = await store.apply([Change(hash_of(1), 5, request_id=guid(20), sent=True)])
        assert told.before == second
        assert (await store.by_request_id(guid(10))) == first


async def test_what_is_received_changes_all_records_of_its_hash_and_adds_none(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([adding(1, 10), adding(2), adding(1, 20)])
        told = await store.apply([receiving(1, "a")])
        assert [change.after.request_id for change in told] == [guid(10), guid(20)]
        assert all(change.after.received for change in told)
        assert await store.by_subscription_id("a") == [change.after for change in told]


async def test_a_record_that_is_there_is_not_added_again(open_store: OpenStore) -> None:
    async with open_store() as store:
        assert len(await store.apply([adding(1), adding(1), receiving(2), receiving(2)])) == 2
        assert await store.apply([adding(1), receiving(2)]) == []
        assert len(await store.by_content_topic(TOPIC)) == 2


async def test_a_change_without_a_record_to_change_is_counted(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([adding(1)])
        changes = [
            Change(hash_of(2), 5, stored=True),
            Change(hash_of(1), 5, stored=True, request_id=guid(2)),
        ]
        assert await store.apply(changes) == []
        assert store.counters.unmatched == 2


async def test_only_real_changes_are_told_in_their_order(open_store: OpenStore) -> None:
    async with open_store() as store:
        changes = [
            adding(1),
            receiving(2, "a"),
            Change(hash_of(1), 1, stored=True),
            Change(hash_of(1), 2, stored=True),
            Change(hash_of(2), 3, subscription_ids=("b",)),
            Change(hash_of(1), 4, request_id=guid(1), attempts=1, propagated=True),
        ]
        told = await store.apply(changes)
        assert [change.after.message_hash for change in told] == [hash_of(n) for n in (1, 2, 1, 1)]
        assert [change.before for change in told] == [None, None, told[0].after, told[2].after]
        assert [change.after.updated_ns for change in told[2:]] == [1, 4]
        assert len(await store.by_subscription_id("b")) == 1
        assert (store.counters.added, store.counters.changed) == (2, 2)
        assert store.counters.applied == 6


async def test_a_record_gets_the_time_of_its_change_where_it_has_none(open_store: OpenStore) -> None:
    async with open_store() as store:
        bare = replace(record(1, 1), created_ns=0)
        assert await store.apply([Change(bare.message_hash, 55, bare, bare.request_id)]) == [
            Changed(None, replace(bare, created_ns=55, updated_ns=55))
        ]


async def test_no_changes_are_none(open_store: OpenStore) -> None:
    async with open_store() as store:
        assert await store.apply([]) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"message_hash": b"short"}, "32 bytes, not 5"),
        ({"at_ns": 1 << 63}, "at_ns"),
        ({"attempts": -1}, "attempts"),
        ({"attempts": 1 << 31}, "attempts"),
        ({"request_id": guid(1)}, "hash and request id of its change"),
        ({"message_hash": hash_of(2)}, "hash and request id of its change"),
        ({"record": replace(record(1), created_ns=1 << 63)}, "created_ns"),
        ({"record": replace(record(1), request_id="é"), "request_id": "é"}, "a request id"),
        ({"record": replace(record(1), request_id=""), "request_id": ""}, "a request id"),
        ({"record": replace(record(1), pubsub_topic="\udc80")}, "UTF-8"),
        ({"subscription_ids": ("x" * 129,)}, "is a GUID"),
        ({"subscription_ids": ("\udc80",)}, "is a GUID"),
    ],
)
def test_a_change_that_no_store_could_take_is_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Change(**{"message_hash": hash_of(1), "at_ns": 1, "record": record(1)} | arguments)  # type: ignore[arg-type]


# Accepting


async def test_only_sends_that_are_under_way_are_accepted(open_store: OpenStore) -> None:
    async with open_store() as store:
        for wrong in (
            record(1),
            replace(record(1, 1), sending=False),
            replace(record(1, 1), message_hash=b""),
            replace(record(1, 1), created_ns=1 << 63),
            replace(record(1, 1), request_id="\udc80"),
        ):
            with pytest.raises(InvalidInput):
                store.accept(wrong)
        store.accept(record(1, 1))
        assert store.counters.accepted == 1


async def test_what_was_accepted_is_seen_once_it_is_applied(open_store: OpenStore) -> None:
    async with open_store() as store:
        store.accept(record(1, 1))
        assert await store.by_request_id(guid(1)) is None
        assert len(await store.apply([adding(1)])) == 1
        assert await store.by_request_id(guid(1)) is not None


# Reading


async def test_missing_are_those_without_a_record_that_was_received_or_propagated(
    open_store: OpenStore,
) -> None:
    async with open_store() as store:
        await store.apply([adding(0), receiving(1), adding(2, 5), adding(2, 6), adding(3)])
        await store.apply([Change(hash_of(2), 1, received=True, request_id=guid(6))])
        await store.apply([adding(4, 7), Change(hash_of(4), 1, propagated=True, request_id=guid(7))])
        asked = [hash_of(number) for number in (5, 4, 3, 2, 1, 0, 5)]
        assert await store.missing(asked) == [hash_of(5), hash_of(3), hash_of(0)]
        assert await store.missing([]) == []


async def test_missing_takes_any_number_of_hashes(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([receiving(number) for number in range(0, 5_000, 2)])
        asked = [hash_of(number) for number in range(5_000)]
        assert await store.missing(asked) == asked[1::2]


async def test_known_since_gives_the_newest_first(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([receiving(3), adding(4), receiving(1), receiving(5), adding(2, 7), adding(2, 8)])
        await store.apply([Change(hash_of(2), 1, received=True)])
        newest = [hash_of(number) for number in (5, 3, 2, 1)]
        assert await store.known_since(0, 10) == newest
        assert await store.known_since(START_NS + 2 * SECOND_NS, 10) == newest[:3]
        for limit in range(4):
            assert await store.known_since(0, limit) == newest[:limit]


async def test_pending_are_the_sends_that_are_not_finished_oldest_first(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([adding(9), receiving(8), adding(7), adding(6), adding(5)])
        await store.apply([Change(hash_of(7), 1, request_id=guid(7), sent=True)])
        await store.apply([Change(hash_of(6), 1, request_id=guid(6), sending=False, error="no")])
        assert [found.request_id for found in await store.pending()] == [guid(9), guid(5)]
        await store.apply([Change(hash_of(6), 1, request_id=guid(6), sending=True)])
        assert [found.request_id for found in await store.pending()] == [guid(9), guid(6), guid(5)]


# What has been fetched


async def test_fetch_records_are_per_content_topic_of_a_pubsub_topic(open_store: OpenStore) -> None:
    async with open_store() as store:
        assert await store.fetched_until(PUBSUB_TOPIC, TOPIC) is None
        await store.note_fetched(PUBSUB_TOPIC, [TOPIC, "/b/1/c/proto", TOPIC], 100)
        await store.note_fetched("/waku/2/rs/42/1", [TOPIC], 200)
        await store.note_fetched(PUBSUB_TOPIC, ["/b/1/c/proto"], 50)  # clocks are set back at times
        await store.note_fetched(PUBSUB_TOPIC, [], 70)
        assert await store.fetched_until(PUBSUB_TOPIC, TOPIC) == 100
        assert await store.fetched_until(PUBSUB_TOPIC, "/b/1/c/proto") == 50
        assert await store.fetched_until("/waku/2/rs/42/1", TOPIC) == 200
        assert await store.fetched_until("/waku/2/rs/42/1", "/b/1/c/proto") is None
        assert await store.fetched_until("\udc80", "\udc80") is None
        with pytest.raises(InvalidInput, match="UTF-8"):
            await store.note_fetched(PUBSUB_TOPIC, ["\udc80"], 5)


async def test_fetch_records_are_bounded_and_the_latest_stay(open_store: OpenStore) -> None:
    async with open_store() as store:
        topics = [f"/{number}/1/topic/proto" for number in range(MAX_FETCH_RECORDS)]
        await store.note_fetched(PUBSUB_TOPIC, topics, 100)
        await store.note_fetched(PUBSUB_TOPIC, topics[:5], 50)
        await store.note_fetched("/waku/2/rs/42/1", topics[:5], 200)
        assert [await store.fetched_until(PUBSUB_TOPIC, topic) for topic in topics[:6]] == [None] * 5 + [100]
        assert await store.fetched_until("/waku/2/rs/42/1", topics[0]) == 200


# Retention


async def test_what_last_changed_too_long_ago_is_pruned(open_store: OpenStore) -> None:
    async with open_store(retention=Retention(max_age_s=100, max_records=None)) as store:
        done = [Change(hash_of(n), START_NS + n * SECOND_NS, request_id=guid(n), sent=True) for n in range(6)]
        await store.apply([change for n in range(6) for change in (adding(n), done[n])])
        await store.apply([Change(hash_of(1), START_NS + 50 * SECOND_NS, stored=True)])
        assert await store.prune(START_NS + 103 * SECOND_NS) == 2  # 0 and 2; 1 has changed since
        left = [found.request_id for found in await store.by_content_topic(TOPIC)]
        assert left == [guid(number) for number in (1, 3, 4, 5)]
        assert await store.by_request_id(guid(0)) is None
        assert await store.by_hash(hash_of(2)) is None
        assert await store.prune(START_NS + 103 * SECOND_NS) == 0
        assert await store.prune(START_NS + 200 * SECOND_NS) == 4
        assert store.counters.pruned == 6


async def test_beyond_a_number_the_oldest_are_pruned(open_store: OpenStore) -> None:
    async with open_store(retention=Retention(max_age_s=None, max_records=4)) as store:
        await store.apply([receiving(number, "a", "b") for number in (5, 3, 8, 1, 9, 2)])
        await store.prune(START_NS)
        left = [hash_of(number) for number in (8, 1, 9, 2)]
        assert [found.message_hash for found in await store.by_content_topic(TOPIC)] == left
        for subscription in ("a", "b"):
            assert [f.message_hash for f in await store.by_subscription_id(subscription)] == left
        assert store.counters.pruned == 2


async def test_pending_sends_are_never_pruned(open_store: OpenStore) -> None:
    async with open_store(retention=Retention(max_age_s=1, max_records=1)) as store:
        await store.apply([adding(number) for number in range(5)])
        await store.apply([receiving(number) for number in range(10, 15)])
        await store.prune(START_NS + 1_000 * SECOND_NS)
        assert [found.request_id for found in await store.by_content_topic(TOPIC)] == [
            guid(number) for number in range(5)
        ]
        await store.apply([Change(hash_of(3), START_NS, request_id=guid(3), sent=True)])
        await store.prune(START_NS + 1_000 * SECOND_NS)
        assert [found.request_id for found in await store.pending()] == [guid(n) for n in (0, 1, 2, 4)]
        assert await store.by_request_id(guid(3)) is None


async def test_what_was_pruned_can_come_again(open_store: OpenStore) -> None:
    async with open_store(retention=Retention(max_age_s=1, max_records=None)) as store:
        for _ in range(3):
            assert len(await store.apply([receiving(1, "a"), adding(1, 7)])) == 2
            assert await store.apply([Change(hash_of(1), START_NS, request_id=guid(7), sent=True)])
            assert await store.prune(START_NS + 1_000 * SECOND_NS) == 2
            assert await store.by_content_topic(TOPIC) == []
            assert await store.by_subscription_id("a") == []


async def test_one_of_two_records_of_a_message_can_go(open_store: OpenStore) -> None:
    async with open_store(retention=Retention(max_age_s=1, max_records=None)) as store:
        await store.apply([receiving(1, "a"), adding(1, 7)])
        assert await store.prune(START_NS + 1_000 * SECOND_NS) == 1
        (left,) = await store.all_by_hash(hash_of(1))
        assert left.request_id == guid(7)
        (told,) = await store.apply([receiving(1, "a")])  # it belongs to that one now
        assert told.before == left


def test_retention_has_limits_that_make_sense() -> None:
    for wrong in ({"max_age_s": 0}, {"max_records": 0}, {"max_records": -5}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            Retention(**wrong)


# The end


async def test_a_closed_store_says_so(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.close()
        for call in (
            store.apply([adding(1)]),
            store.by_hash(hash_of(1)),
            store.pending(),
            store.note_fetched(PUBSUB_TOPIC, [TOPIC], 1),
            store.prune(1),
        ):
            with pytest.raises(RecordError, match="closed") as caught:
                await call
            assert caught.value.reason == "closed"
        with pytest.raises(RecordError, match="closed"):
            store.accept(record(1, 1))
        await store.close()  # twice does no harm
