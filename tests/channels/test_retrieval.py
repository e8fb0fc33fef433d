"""Missing messages from stores (RELIABLE-CHANNEL-API, Missing message retrieval and Query on connect)."""

from __future__ import annotations

import hashlib
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import pywaku
from pywaku.channels.events import MessageReceived
from pywaku.channels.retrieval import BATCH, MissingMessages, QueryOnConnect, Search
from pywaku.encryption import EciesEncryption
from pywaku.keys import PrivateKey
from pywaku.messaging import Node
from pywaku.messaging.record import Message, PlainCodec
from pywaku.sds import SdsChannel, SdsOptions
from pywaku.wire.sds import HistoryEntry
from tests.support.waku_nodes import SHARD, TOPIC, WakuWorld, open_services, open_waku_world, settled, until

FALSE_HINT = b"\xff" * 32


# The policies


def test_a_missing_message_is_asked_for_by_its_hint_at_intervals_that_double() -> None:
    policy = MissingMessages(10)
    entry = HistoryEntry("a", b"hint")
    asked = [now for now in range(400) if policy.due([entry], now)]
    assert asked == [0, 10, 30, 70, 150, 310]
    assert policy.due([], 400) == []
    assert policy.due([entry], 401) == [b"hint"], "missing anew"


def test_so_many_are_asked_for_at_a_time() -> None:
    policy = MissingMessages(10)
    entries = [HistoryEntry(str(number), b"%d" % number) for number in range(BATCH + 5)]
    assert len(policy.due(entries, 0)) == BATCH
    assert policy.due(entries, 1) == [entry.retrieval_hint for entry in entries[BATCH:]]


def test_what_was_asked_for_in_vain_or_has_no_hint_is_beyond_hints() -> None:
    policy = MissingMessages(10)
    hinted, without = HistoryEntry("hinted", b"hint"), HistoryEntry("without", None)
    assert policy.beyond_hints([hinted, without]) == frozenset()
    assert policy.due([hinted, without], 0) == [b"hint"]
    assert policy.beyond_hints([hinted, without]) == {"hinted", "without"}
    assert policy.beyond_hints([without]) == {"without"}


def test_searches_are_rarer_the_less_they_find() -> None:
    policy, sought = Search(10), frozenset("a")
    assert not policy.due(frozenset(), 0)
    made: list[int] = []
    for now in range(400):
        if policy.due(sought, now):
            made.append(now)
            policy.done(now, found=False)
    assert made == [0, 20, 60, 140, 300]
    policy.done(400, found=True)
    assert not policy.due(sought, 409)
    assert policy.due(sought, 410)


def test_the_latest_are_asked_for_once_a_store_can_be_reached_after_an_outage_and_when_it_is_long_ago() -> (
    None
):
    policy = QueryOnConnect(300)
    assert not policy.due(0, store_available=False)
    assert policy.due(1, store_available=True)
    policy.begun()
    policy.done(1)
    assert not policy.due(2, store_available=True)
    policy.outage()
    assert policy.due(3, store_available=True)
    policy.begun()
    policy.done(3)
    assert not policy.due(302, store_available=True)
    assert policy.due(303, store_available=True)
    policy.begun()
    policy.outage()
    policy.done(304)
    assert policy.due(304, store_available=True), "the outage was after the question"


def test_stores_that_do_not_answer_are_asked_ever_more_rarely() -> None:
    policy = QueryOnConnect(300)
    asked: list[int] = []
    for now in range(200):
        if policy.due(now, store_available=True):
            policy.begun()
            asked.append(now)
            policy.failed(now)
    assert asked == [0, 2, 6, 14, 30, 62, 126, 190]
    policy.done(200)
    policy.outage()
    assert policy.due(254, store_available=True)


# With a store


class Js:
    """A sender whose hints are not the hashes of what it sends, as those of js-waku's are often not."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._clock = node.parts.environment.clock
        self.sds = SdsChannel("room", "js", SdsOptions.js_waku(), rng=random.Random(1), now_ns=self._clock())

    def now_ns(self) -> int:
        """Its time of day."""
        return self._clock()

    async def send(self, payloads: Sequence[bytes]) -> None:
        """Send these, one after the other."""
        codec = PlainCodec(TOPIC, SHARD)
        for payload in payloads:
            made = self.sds.send(payload, self._clock())
            self._node.send(codec, Message(made.data))
            hint = hashlib.sha256(made.message_id.encode()).digest()
            self.sds.sent(made.message_id, self._clock(), retrieval_hint=hint)
            await trio.sleep(0.01)
        await settled([self._node])


class Hearing:
    """A channel, and the payloads that came."""

    def __init__(self, channel: pywaku.ReliableChannel) -> None:
        self.channel = channel
        self.received: list[bytes] = []
        channel.add_event_listener("message-received", self._hear)

    def _hear(self, event: Any) -> None:
        assert isinstance(event, MessageReceived)
        self.received.append(event.payload)


@asynccontextmanager
async def open_channel(
    world: WakuWorld, name: str, services: Sequence[Node], **more: Any
) -> AsyncGenerator[Hearing]:
    """A participant in a light node, which fetches nothing by itself."""
    async with world.node(name, *services, mode="edge", fetch_missed=False) as node:
        await pywaku.open_channels(node, path=None)
        options = pywaku.ReliableChannelOptions(sync_min_interval_ms=0, repair=None)
        more = {"options": options, **more}
        channel = await pywaku.create_reliable_channel(
            node, channel_id="room", sender_id=name, content_topic=TOPIC, pubsub_topic=SHARD, **more
        )
        yield Hearing(channel)


@pytest.mark.virtual
async def test_messages_whose_hints_lead_nowhere_are_searched_for_in_the_store() -> None:
    payloads = [b"js %d" % number for number in range(150)]
    async with (
        open_waku_world() as world,
        open_services(world, 2, stores=1) as services,
        world.node("js", *services, mode="edge") as node,
    ):
        js = Js(node)
        await js.send(payloads)
        async with open_channel(world, "py", services) as ours:
            await until(lambda: len(ours.received) == len(payloads), seconds=120)
            assert ours.received == payloads
            counters = ours.channel.counters
            assert (counters.queries, counters.searches) == (1, 1)
            assert counters.retrieved == len(payloads) - 20, "the first page is that of the query on connect"
            await trio.sleep(60)
            assert counters.searches == 1


@pytest.mark.virtual
async def test_messages_that_somebody_made_up_are_searched_for_ever_more_rarely() -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2, stores=1) as services,
        world.node("js", *services, mode="edge") as node,
        open_channel(world, "py", services) as ours,
    ):
        js = Js(node)
        await js.send([b"true"])
        await until(lambda: ours.received == [b"true"])
        fake = SdsChannel("room", "fake", SdsOptions(), rng=random.Random(2), now_ns=js.now_ns())
        made = [fake.send(b"%d" % number, js.now_ns()) for number in range(3)]
        for transmission in made:
            fake.sent(transmission.message_id, js.now_ns(), retrieval_hint=FALSE_HINT)
        node.send(PlainCodec(TOPIC, SHARD), Message(fake.send(b"last", js.now_ns()).data))
        await trio.sleep(400)
        counters = ours.channel.counters
        assert 3 <= counters.searches <= 6
        assert counters.retrieved == 0


@pytest.mark.virtual
async def test_own_messages_that_only_others_can_read_are_not_counted_as_undecryptable() -> None:
    ours, theirs, stranger = (PrivateKey.generate() for _ in range(3))
    async with (
        open_waku_world() as world,
        open_services(world, 2, stores=1) as services,
        open_channel(world, "py", services, encryption=EciesEncryption(ours, theirs.public)) as one,
        open_channel(world, "other", services, encryption=EciesEncryption(theirs, ours.public)) as two,
    ):
        await one.channel.send(b"hello")
        await until(lambda: two.received == [b"hello"])
        await two.channel.send(b"hello yourself")
        await until(lambda: one.received == [b"hello yourself"])
        await one.channel.stop()
        await one.channel.start()  # and what a store has of it
        await trio.sleep(400)
        assert one.channel.counters.queries > 0
        assert one.channel.counters.undecryptable == two.channel.counters.undecryptable == 0
        async with open_channel(
            world, "stranger", services, encryption=EciesEncryption(stranger, stranger.public)
        ) as third:
            await until(lambda: third.channel.counters.undecryptable >= 2)
