"""What arrives: each message once, to those who want it, and into the records (MESSAGING-API, Subscribe)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import DecodeError
from pywaku.ids import PeerId
from pywaku.message import WakuMessage, message_hash
from pywaku.messaging.event import events_of_change
from pywaku.messaging.inbox import Inbox
from pywaku.messaging.record import BACKGROUND_SUBSCRIPTION, MessageRecord, PlainCodec
from pywaku.messaging.records import Changed, MemoryRecordStore, Recorder, RecorderOptions, open_recorder
from pywaku.messaging.reports import Reports
from pywaku.messaging.subscriptions import Subscription
from tests.support.peers import peer_of

SHARD, OTHER_SHARD = "/waku/2/rs/42/0", "/waku/2/rs/42/1"
TOPIC, OTHER_TOPIC = "/test/1/inbox/proto", "/test/1/other/proto"
PEER = peer_of("peer")


class Unreadable(PlainCodec):
    """A decoder that fails."""

    def decode(self, message: WakuMessage) -> bytes | None:
        """Never."""
        raise DecodeError("no key for it")


class Scene(NamedTuple):
    """An inbox, the records that it fills, and the messages that are this node's own."""

    inbox: Inbox
    recorder: Recorder
    own: dict[bytes, MessageRecord]
    changes: list[Changed]

    def subscribe(
        self, name: str = "s", topic: str = TOPIC, *, shard: str = SHARD, capacity: int = 100
    ) -> Subscription:
        """A subscription that is read by nobody yet."""
        subscription = Subscription(name, PlainCodec(topic, shard), capacity, lambda _: None)
        self.inbox.add(subscription)
        return subscription

    def take(self, payload: bytes, *, topic: str = TOPIC, shard: str = SHARD, source: str = "relay") -> bool:
        """A message comes."""
        message = WakuMessage(payload, topic)
        return self.inbox.take(shard, message, message_hash(shard, message), source, PEER)  # pyright: ignore[reportArgumentType]

    async def record(self, payload: bytes, *, topic: str = TOPIC) -> MessageRecord | None:
        """What is known of a message."""
        return await self.recorder.by_hash(message_hash(SHARD, WakuMessage(payload, topic)))

    @property
    def events(self) -> list[str]:
        """The events that followed."""
        return [
            event.name
            for change in self.changes
            for event in events_of_change(change.before, change.after, 0)
        ]


@asynccontextmanager
async def open_scene(
    *, max_seen: int = 1000, options: RecorderOptions | None = None
) -> AsyncGenerator[Scene]:
    """See `Scene`."""
    own: dict[bytes, MessageRecord] = {}
    changes: list[Changed] = []

    def own_of(value: bytes, _: PeerId) -> MessageRecord | None:
        record = own.get(value)
        if record is not None:
            own[value] = replace(record, received=True)
        return record

    async with open_recorder(MemoryRecordStore(), changes.extend, options, clock=lambda: 7) as recorder:
        inbox = Inbox(recorder, Reports(None), lambda: 7, own_of, max_seen=max_seen)
        yield Scene(inbox, recorder, own, changes)


def payloads(subscription: Subscription) -> list[bytes]:
    """What waits in it."""
    return [record.message.payload for record in subscription._queue]


async def test_a_message_goes_to_every_subscription_of_its_topics_and_to_no_other() -> None:
    async with open_scene() as scene:
        one, two = scene.subscribe("1"), scene.subscribe("2")
        others = scene.subscribe("3", OTHER_TOPIC), scene.subscribe("4", shard=OTHER_SHARD)
        assert scene.take(b"a")
        assert payloads(one) == payloads(two) == [b"a"]
        assert [payloads(other) for other in others] == [[], []]


@pytest.mark.parametrize("second", ["relay", "filter", "store"])
@pytest.mark.parametrize("first", ["relay", "filter", "store"])
async def test_duplicates_are_dropped_by_hash_whichever_way_they_came(first: str, second: str) -> None:
    async with open_scene() as scene:
        subscription = scene.subscribe()
        assert scene.take(b"a", source=first)
        assert not scene.take(b"a", source=second)
        assert payloads(subscription) == [b"a"]
        assert scene.inbox.counters.duplicates == 1


async def test_what_came_in_an_earlier_life_is_a_duplicate() -> None:
    async with open_scene() as scene:
        subscription = scene.subscribe()
        scene.inbox.remember([message_hash(SHARD, WakuMessage(b"a", TOPIC))])
        assert not scene.take(b"a")
        assert payloads(subscription) == []


async def test_a_message_that_nobody_wants_is_not_recorded_and_may_come_later() -> None:
    async with open_scene() as scene:
        assert not scene.take(b"a")
        assert await scene.record(b"a") is None
        subscription = scene.subscribe()
        assert scene.take(b"a")
        assert payloads(subscription) == [b"a"]


async def test_received_must_be_updated_to_true_and_the_record_listed_under_the_subscription() -> None:
    async with open_scene() as scene:
        scene.subscribe("guid")
        scene.take(b"a")
        record = await scene.record(b"a")
        assert record is not None
        assert (record.received, record.stored, record.sending, record.sent) == (True, False, False, False)
        assert await scene.recorder.by_subscription_id("guid") == [record]
        assert scene.events == ["message:change", "message:received"]


async def test_a_message_that_was_fetched_from_a_store_is_stored() -> None:
    async with open_scene() as scene:
        scene.subscribe()
        scene.take(b"a", source="store")
        record = await scene.record(b"a")
        assert record is not None
        assert (record.received, record.stored) == (True, True)


async def test_without_a_consumer_messages_are_recorded_under_the_reserved_id() -> None:
    async with open_scene() as scene:
        scene.inbox.record_for(BACKGROUND_SUBSCRIPTION, SHARD, TOPIC)
        scene.inbox.record_for(BACKGROUND_SUBSCRIPTION, SHARD, TOPIC)
        assert scene.take(b"a")
        assert len(await scene.recorder.by_subscription_id(BACKGROUND_SUBSCRIPTION)) == 1
        scene.inbox.record_no_more(BACKGROUND_SUBSCRIPTION, SHARD, TOPIC)
        scene.inbox.record_no_more(BACKGROUND_SUBSCRIPTION, SHARD, TOPIC)
        assert not scene.take(b"b")


async def test_an_error_during_reception_is_recorded_and_others_still_get_the_message() -> None:
    async with open_scene() as scene:
        scene.inbox.add(Subscription("blind", Unreadable(TOPIC, SHARD), 10, lambda _: None))
        seeing = scene.subscribe()
        assert scene.take(b"a")
        assert payloads(seeing) == [b"a"]
        record = await scene.record(b"a")
        assert record is not None
        assert (record.received, record.error) == (True, "DecodeError: no key for it")
        assert scene.inbox.counters.undecodable == 1
        assert "message:error" in scene.events


async def test_a_full_subscription_is_counted_and_the_record_is_kept() -> None:
    async with open_scene() as scene:
        subscription = scene.subscribe(capacity=1)
        scene.take(b"a")
        scene.take(b"b")
        assert payloads(subscription) == [b"a"]
        assert (subscription.dropped, scene.inbox.counters.dropped) == (1, 1)
        assert await scene.record(b"b") is not None


async def test_content_topics_are_those_that_somebody_wants() -> None:
    async with open_scene() as scene:
        subscription = scene.subscribe()
        scene.inbox.record_for(BACKGROUND_SUBSCRIPTION, SHARD, OTHER_TOPIC)
        assert scene.inbox.content_topics(SHARD) == {TOPIC, OTHER_TOPIC}
        assert scene.inbox.content_topics(OTHER_SHARD) == frozenset()
        scene.inbox.remove(subscription)
        assert scene.inbox.content_topics(SHARD) == {OTHER_TOPIC}


# Messages of this node


def own_message(scene: Scene, payload: bytes = b"mine") -> MessageRecord:
    """One that is being sent, and recorded."""
    message = WakuMessage(payload, TOPIC)
    record = MessageRecord(message_hash(SHARD, message), SHARD, message, sending=True, request_id="r1")
    scene.own[record.message_hash] = record
    scene.recorder.accept(record)
    return record


async def test_own_messages_reach_own_subscriptions_once_and_are_received_when_they_come_back() -> None:
    async with open_scene() as scene:
        subscription = scene.subscribe()
        record = own_message(scene)
        scene.inbox.loop_back(record)
        scene.inbox.loop_back(record)
        assert payloads(subscription) == [b"mine"]
        known = await scene.recorder.by_request_id("r1")
        assert known is not None
        assert not known.received
        assert not scene.take(b"mine", source="filter")
        assert payloads(subscription) == [b"mine"]
        known = await scene.recorder.by_request_id("r1")
        assert known is not None
        assert known.received
        assert scene.events.count("message:received") == 1


async def test_an_own_message_that_comes_back_first_is_not_looped_back_as_well() -> None:
    async with open_scene() as scene:
        subscription = scene.subscribe()
        record = own_message(scene)
        assert scene.take(b"mine", source="filter")
        scene.inbox.loop_back(record)
        assert payloads(subscription) == [b"mine"]
        assert (await anext(subscription)).request_id == "r1"
        assert len(await scene.recorder.all_by_hash(record.message_hash)) == 1


# Bounds


@given(st.lists(st.integers(0, 30), max_size=200))
def test_of_the_latest_messages_it_is_known_that_they_came(numbers: list[int]) -> None:
    inbox = Inbox(None, Reports(None), lambda: 0, lambda _, __: None, max_seen=8)  # pyright: ignore[reportArgumentType]
    model: list[bytes] = []
    for number in numbers:
        value = number.to_bytes(32)
        inbox.remember([value])
        if value not in model:
            model = [*model, value][-8:]
        assert [known for known in (n.to_bytes(32) for n in range(31)) if inbox.knows(known)] == sorted(model)


@pytest.mark.virtual
async def test_who_brings_messages_waits_for_a_consumer_that_only_waits_for_its_turn() -> None:
    async with open_scene() as scene:
        subscription = scene.subscribe(capacity=10)
        heard: list[bytes] = []

        async def read() -> None:
            async for record in subscription:
                heard.append(record.message.payload)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for number in range(200):
                scene.take(b"%d" % number)
                if scene.inbox.pressed:
                    await scene.inbox.let_others_catch_up()
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        assert (len(heard), subscription.dropped) == (200, 0)


@pytest.mark.virtual
async def test_a_consumer_that_hangs_holds_nobody_up() -> None:
    async with open_scene() as scene:
        subscription = scene.subscribe(capacity=10)
        for number in range(200):
            scene.take(b"%d" % number)
            if scene.inbox.pressed:
                with trio.fail_after(1):
                    await scene.inbox.let_others_catch_up()
        assert subscription.dropped == 190


@pytest.mark.virtual
async def test_who_brings_messages_waits_for_the_records() -> None:
    async with open_scene(options=RecorderOptions(max_pending=5)) as scene:
        scene.subscribe(capacity=1000)
        for number in range(200):
            scene.take(b"%d" % number)
            if scene.inbox.pressed:
                await scene.inbox.let_others_catch_up()
        assert scene.recorder.counters.refused == 0
        assert len(await scene.recorder.by_content_topic(TOPIC)) == 200


async def test_a_subscription_that_nobody_reads_holds_up_only_its_own_messages() -> None:
    async with open_scene() as scene:
        scene.subscribe("unread", capacity=10)
        read = scene.subscribe("read", OTHER_TOPIC, capacity=10)
        for number in range(6):
            scene.take(b"%d" % number)
        assert scene.inbox.pressed
        await scene.inbox.let_others_catch_up()
        scene.take(b"other", topic=OTHER_TOPIC)
        assert len(read) == 1
        assert not scene.inbox.pressed
        scene.take(b"one more")
        assert scene.inbox.pressed


def test_what_is_wanted_is_seen_as_it_is_at_any_time() -> None:
    """So that a subscription costs the same however many there are."""
    inbox = Inbox(None, Reports(None), lambda: 0, lambda _, __: None)  # pyright: ignore[reportArgumentType]
    wanted, elsewhere = inbox.content_topics(SHARD), inbox.content_topics(OTHER_SHARD)
    assert TOPIC not in wanted
    made = [Subscription(name, PlainCodec(TOPIC, SHARD), 1, lambda _: None) for name in "ab"]
    for subscription in made:
        inbox.add(subscription)
    assert TOPIC in wanted
    assert TOPIC not in elsewhere
    inbox.record_for(BACKGROUND_SUBSCRIPTION, OTHER_SHARD, TOPIC)
    assert TOPIC in elsewhere
    inbox.remove(made[0])
    assert TOPIC in wanted
    inbox.remove(made[1])
    inbox.record_no_more(BACKGROUND_SUBSCRIPTION, OTHER_SHARD, TOPIC)
    assert not wanted
    assert not elsewhere
