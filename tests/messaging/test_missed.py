"""Missed messages: what is asked of stores, when (RELIABILITY-RELAY, Query with Topics and Time Range)."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio

from pywaku.archive import StoredMessage
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.messaging.environment import Environment
from pywaku.messaging.inbox import Inbox
from pywaku.messaging.missed import Missed, MissedOptions
from pywaku.messaging.record import PlainCodec
from pywaku.messaging.records import MemoryRecordStore, Recorder, open_recorder
from pywaku.messaging.reports import Reports
from pywaku.messaging.stores import Stores
from pywaku.messaging.subscriptions import Subscription
from pywaku.peers.selection import Need
from pywaku.peers.services import Service
from tests.support.archives import MemoryArchive
from tests.support.staged_pools import StagedPools
from tests.support.stores import Store, open_stores

pytestmark = pytest.mark.virtual

SHARD, TOPIC, OTHER = "/waku/2/rs/42/0", "/test/1/missed/proto", "/test/1/other/proto"
SECOND_NS = 1_000_000_000
CLOCK = Environment.simulated(1).clock


@dataclass
class Asked:
    """A query that a store answered."""

    at: int
    hashes: int
    start_ns: int | None
    content_topics: frozenset[str]


@dataclass
class Scene:
    """A search for missed messages, and what came of it."""

    missed: Missed
    recorder: Recorder
    inbox: Inbox
    subscription: Subscription
    stores: list[Store]
    asked: list[list[Asked]]
    stored: dict[bytes, list[PeerId]] = field(default_factory=dict[bytes, list[PeerId]])
    skew_ns: int = 0

    def keep(self, payload: bytes, *which: int, topic: str = TOPIC) -> StoredMessage:
        """A message that these stores (all, if none is named) have, as of now."""
        now = CLOCK() + 1
        message = StoredMessage.of(SHARD, WakuMessage(payload, topic, timestamp_ns=now), now)
        for number in which or range(len(self.stores)):
            self.stores[number].archive.insert_now([message])
        return message

    def lists(self, store: int = 0) -> list[Asked]:
        """The queries by topics."""
        return [each for each in self.asked[store] if not each.hashes]

    @property
    def heard(self) -> list[bytes]:
        """What came to the subscription."""
        return [record.message.payload for record in self.subscription._queue]


def log(archive: MemoryArchive) -> list[Asked]:
    """What an archive is asked from now on."""
    asked: list[Asked] = []
    query = archive.query

    async def logged(what: Any) -> Any:
        asked.append(
            Asked(int(trio.current_time()), len(what.hashes), what.start_ns, frozenset(what.content_topics))
        )
        return await query(what)

    archive.query = logged  # pyright: ignore[reportAttributeAccessIssue]
    return asked


@asynccontextmanager
async def open_scene(
    stores: int = 1,
    *,
    regularly: bool = False,
    options: MissedOptions | None = None,
    recorder: MemoryRecordStore | None = None,
    allowed: Sequence[str] = (SHARD,),
    watch: bool = True,
) -> AsyncGenerator[Scene]:
    """See `Scene`; `TOPIC` is subscribed to and watched, and the search runs."""
    scene: Scene

    def clock() -> int:
        return CLOCK() + scene.skew_ns

    def on_stored(value: bytes, peer: PeerId) -> None:
        scene.stored.setdefault(value, []).append(peer)

    async with (
        open_stores(*[list[StoredMessage]() for _ in range(stores)]) as world,
        open_recorder(recorder or MemoryRecordStore(), lambda _: None, clock=CLOCK) as records,
        trio.open_nursery() as nursery,
    ):
        pools = StagedPools(*world.peers)
        inbox = Inbox(records, Reports(None), CLOCK, lambda _, __: None)
        subscription = Subscription("id", PlainCodec(TOPIC, SHARD), 10_000, lambda _: None)
        inbox.add(subscription)
        missed = Missed(
            Stores(world.client, pools.pools, [], lambda _: True),
            records,
            inbox,
            clock,
            on_stored,
            regularly=regularly,
            options=options,
        )
        asked = [log(store.archive) for store in world.stores]
        scene = Scene(missed, records, inbox, subscription, world.stores, asked)
        if watch:
            missed.watch(SHARD, TOPIC, fetch=True)
        missed.allow(allowed)
        nursery.start_soon(pools.staged(Need(Service.STORE, 42, frozenset({0}))).run)
        nursery.start_soon(missed.run)
        yield scene
        nursery.cancel_scope.cancel()


async def test_hashes_come_first_and_then_only_what_is_missing_in_bounded_batches_over_all_pages() -> None:
    async with open_scene(allowed=()) as scene:
        await trio.sleep(1)
        for number in range(250):
            kept = scene.keep(b"%d" % number)
            if number % 5:  # it came live
                scene.inbox.take(SHARD, kept.message, kept.message_hash, "relay", scene.stores[0].peer)
            await trio.sleep(0.1)
        live = len(scene.heard)
        scene.missed.allow([SHARD])
        await trio.sleep(5)
        lists = [each for each in scene.asked[0] if not each.hashes]
        lookups = [each.hashes for each in scene.asked[0] if each.hashes]
        assert len(lists) == 3  # pages of a hundred
        assert max(lookups) <= 50
        assert sum(lookups) == 50
        assert len(scene.heard) == 250
        assert scene.missed.counters.fetched == 250 - live


async def test_what_is_in_the_records_is_not_fetched_again() -> None:
    async with open_scene(allowed=()) as scene:
        kept = scene.keep(b"known")
        scene.inbox.take(SHARD, kept.message, kept.message_hash, "relay", scene.stores[0].peer)
        scene.inbox._seen.clear()  # it was long ago
        scene.missed.allow([SHARD])
        await trio.sleep(5)
        assert scene.lists()
        assert sum(each.hashes for each in scene.asked[0]) == 0


async def test_the_last_fetch_is_recorded_and_the_next_one_goes_on_from_there() -> None:
    records = MemoryRecordStore()
    async with open_scene(recorder=records) as scene:
        began = CLOCK()
        await trio.sleep(100)
        scene.missed.search(SHARD)
        await trio.sleep(1)
        until = await records.fetched_until(SHARD, TOPIC)
        assert until is not None
        assert until == pytest.approx(began + 100 * SECOND_NS, abs=SECOND_NS)
        assert scene.lists()[0].start_ns == began
        await trio.sleep(200)
        scene.missed.search(SHARD)
        await trio.sleep(1)
        assert scene.lists()[-1].start_ns == pytest.approx(until - 60 * SECOND_NS, abs=11 * SECOND_NS)
    await trio.sleep(3600)
    async with open_scene(recorder=records) as scene:  # another life
        await trio.sleep(1)
        last = await records.fetched_until(SHARD, TOPIC)
        assert last is not None
        start = scene.lists()[0].start_ns
        assert start is not None
        assert began + 200 * SECOND_NS < start < began + 400 * SECOND_NS


async def test_a_new_content_topic_begins_now() -> None:
    async with open_scene(watch=False) as scene:
        scene.keep(b"before")
        await trio.sleep(100)
        scene.missed.watch(SHARD, TOPIC, fetch=True)
        scene.missed.search(SHARD)
        await trio.sleep(20)
        assert scene.lists()
        assert scene.heard == []


async def test_searches_follow_on_events_and_once_more_a_while_later_and_not_by_themselves() -> None:
    async with open_scene() as scene:
        await trio.sleep(1000)
        assert [each.at for each in scene.lists()] == [0, 10]
        scene.missed.search(SHARD)
        await trio.sleep(1000)
        assert [each.at for each in scene.lists()][2:] == [1000, 1010]


async def test_regular_searches_are_made_every_60_seconds_for_all_topics_in_one_query() -> None:
    async with open_scene(regularly=True) as scene:
        scene.missed.watch(SHARD, OTHER, fetch=False)
        await trio.sleep(300)
        later = [each for each in scene.lists() if each.at > 30]
        assert sorted({each.at for each in later}) == [60, 120, 180, 240]


async def test_searches_are_halted_while_unhealthy_and_resume_at_once() -> None:
    async with open_scene(regularly=True) as scene:
        await trio.sleep(100)
        scene.missed.allow([])
        scene.asked[0].clear()
        scene.missed.search(SHARD)
        await trio.sleep(1000)
        assert scene.asked[0] == []
        scene.missed.allow([SHARD])
        await trio.sleep(1)
        assert [each.at for each in scene.lists()] == [1100]


async def test_what_is_stored_is_noted_once_where_it_is_looked_for_regularly() -> None:
    async with open_scene(regularly=True) as scene:
        kept = scene.keep(b"live")
        scene.inbox.take(SHARD, kept.message, kept.message_hash, "relay", scene.stores[0].peer)
        await trio.sleep(300)
        assert scene.stored == {kept.message_hash: [scene.stores[0].peer]}


async def test_without_regular_searches_only_what_is_fetched_counts_as_stored() -> None:
    async with open_scene(allowed=()) as scene:
        live, missed = scene.keep(b"live"), scene.keep(b"missed")
        scene.inbox.take(SHARD, live.message, live.message_hash, "relay", scene.stores[0].peer)
        scene.missed.allow([SHARD])
        await trio.sleep(5)
        assert list(scene.stored) == [missed.message_hash]
        assert scene.heard == [b"live", b"missed"]


async def test_what_is_only_watched_is_noted_and_not_fetched() -> None:
    async with open_scene(regularly=True, watch=False) as scene:
        scene.missed.watch(SHARD, TOPIC, fetch=False)
        kept = scene.keep(b"theirs")
        await trio.sleep(100)
        assert list(scene.stored) == [kept.message_hash]
        assert scene.heard == []
        scene.missed.watch(SHARD, TOPIC, fetch=True)
        await trio.sleep(60)
        assert scene.heard == [b"theirs"]
        scene.missed.fetch_no_more(SHARD, TOPIC)
        scene.keep(b"later")
        await trio.sleep(100)
        assert scene.heard == [b"theirs"]


async def test_what_is_watched_no_more_is_asked_for_no_more() -> None:
    async with open_scene(regularly=True) as scene:
        await trio.sleep(100)
        scene.missed.unwatch(SHARD, TOPIC)
        scene.missed.unwatch(SHARD, TOPIC)
        scene.missed.unwatch("/waku/2/rs/42/9", TOPIC)
        scene.asked[0].clear()
        await trio.sleep(300)
        assert scene.asked[0] == []


async def test_what_one_store_lacks_the_other_gives() -> None:
    async with open_scene(2, allowed=()) as scene:
        scene.keep(b"first", 0)
        scene.keep(b"second", 1)
        scene.keep(b"both")
        scene.missed.allow([SHARD])
        await trio.sleep(5)
        assert sorted(scene.heard) == [b"both", b"first", b"second"]


async def test_a_store_that_fails_is_made_up_for_by_the_other_and_by_trying_again() -> None:
    async with open_scene(2, allowed=()) as scene:
        scene.stores[0].network.unserve("/vac/waku/store-query/3.0.0")
        scene.keep(b"hello", 1)
        scene.missed.allow([SHARD])
        await trio.sleep(60)
        assert scene.heard == [b"hello"]


async def test_while_no_store_answers_it_is_tried_again_with_growing_pauses() -> None:
    async with open_scene(allowed=()) as scene:
        scene.keep(b"hello")
        archive = scene.stores[0].archive
        works = archive.query

        async def explode(what: Any) -> Any:
            raise ValueError("it does that")

        archive.query = explode  # pyright: ignore[reportAttributeAccessIssue]
        scene.missed.allow([SHARD])
        await trio.sleep(300)
        searches = scene.missed.counters.searches
        assert 4 <= searches <= 12
        assert scene.missed.counters.failed == searches
        assert await scene.recorder.fetched_until(SHARD, TOPIC) is None
        archive.query = works
        await trio.sleep(120)
        assert scene.heard == [b"hello"]


async def test_what_a_store_lists_and_nobody_gives_is_left_in_the_end() -> None:
    async with open_scene(allowed=()) as scene:
        scene.keep(b"ghost")
        archive = scene.stores[0].archive
        works = archive.query

        async def no_lookups(what: Any) -> Any:
            if what.hashes:
                raise ValueError("not these")
            return await works(what)

        archive.query = no_lookups  # pyright: ignore[reportAttributeAccessIssue]
        scene.missed.allow([SHARD])
        await trio.sleep(600)
        assert scene.missed.counters.unobtainable >= 3
        assert await scene.recorder.fetched_until(SHARD, TOPIC) is not None


async def test_a_fault_of_ours_ends_no_later_search(caplog: pytest.LogCaptureFixture) -> None:
    async with open_scene(allowed=()) as scene:
        works = scene.missed._parts

        async def explode(*_: Any) -> Any:
            raise ValueError("nobody thought of this")

        scene.missed._parts = explode  # pyright: ignore[reportAttributeAccessIssue]
        scene.missed.allow([SHARD])
        await trio.sleep(2)
        scene.missed._parts = works
        scene.keep(b"hello")
        await trio.sleep(60)
        assert scene.heard == [b"hello"]


@pytest.mark.parametrize("hours", [-1, 1])
async def test_a_clock_that_jumps_loses_nothing(hours: int) -> None:
    async with open_scene() as scene:
        await trio.sleep(100)
        scene.keep(b"before the jump")
        await trio.sleep(1)
        scene.skew_ns = hours * 3600 * SECOND_NS
        scene.missed.search(SHARD)
        await trio.sleep(20)
        assert scene.heard == [b"before the jump"]
        scene.skew_ns = 0
        await trio.sleep(500)
        scene.keep(b"when it is right again")
        await trio.sleep(1)
        scene.missed.search(SHARD)
        await trio.sleep(20)
        assert scene.heard == [b"before the jump", b"when it is right again"]


async def test_many_content_topics_go_in_queries_that_stores_take() -> None:
    async with open_scene(allowed=()) as scene:
        for number in range(35):
            scene.missed.watch(SHARD, f"/test/1/{number}/proto", fetch=True)
        scene.missed.allow([SHARD])
        await trio.sleep(5)
        assert all(len(each.content_topics) <= 10 for each in scene.lists())
        assert len(frozenset[str]().union(*(each.content_topics for each in scene.lists()))) == 36


def test_a_pause_is_at_most_a_minute() -> None:
    options = MissedOptions()
    assert options.interval_s == 60
    assert options.retry_s < options.longest_retry_s <= 60 < math.inf
