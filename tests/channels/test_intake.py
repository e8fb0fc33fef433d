"""RELIABLE-CHANNEL-API, Incoming message processing, Missing message retrieval and Query on connect."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
import trio

import pywaku
from pywaku.channels.events import MessageReceived
from pywaku.messaging import Node
from pywaku.messaging.record import Message, PlainCodec
from tests.support.channel_nodes import ROOM, Told, join, open_pair, reachable
from tests.support.waku_nodes import SHARD, WakuWorld, open_services, open_waku_world, settled, until

pytestmark = pytest.mark.virtual

CODEC = PlainCodec(ROOM, SHARD)
ALONE = pywaku.ReliableChannelOptions(
    sync_min_interval_ms=0, repair=None, acknowledgement_timeout_ms=3_600_000
)
"""Nothing but stores helps."""


class Marked:
    """An encryption that takes what begins with a mark."""

    def encrypt(self, content: bytes) -> bytes:
        """Mark it."""
        return b"mark" + content

    def decrypt(self, payload: bytes) -> bytes:
        """Anything else is not for it."""
        if not payload.startswith(b"mark"):
            raise RuntimeError("an error of its own")
        return payload[4:]


# What comes in


async def test_what_cannot_be_decrypted_is_dropped_and_counted_and_harms_nobody() -> None:
    async with open_pair(encryption=Marked()) as (alice, bob, _):
        node = alice.channel._hub.node
        for payload in (b"", b"x", os.urandom(1_000)):
            node.send(CODEC, Message(payload))
        await alice.channel.send(b"hello")
        await until(lambda: bob.received == [b"hello"])
        assert bob.channel.counters.undecryptable == 3
        assert bob.channel.counters.faults == 0
        assert bob.channel.conversation.sds.counters.malformed == 0


async def test_whatever_is_sent_on_the_content_topic_the_channel_goes_on() -> None:
    async with open_pair() as (alice, bob, _):
        node = alice.channel._hub.node
        for payload in (b"", b"\x00", os.urandom(5_000), b"\x0a\x02hi", b"\xff" * 200):
            node.send(CODEC, Message(payload))
        await alice.channel.send(b"hello")
        await until(lambda: bob.received == [b"hello"])
        assert bob.channel.conversation.sds.counters.malformed >= 4
        assert bob.channel.counters.faults == 0
        assert len(bob.events) == 2


@pytest.mark.parametrize("ours", [True, False], ids=["wrapped", "bare"])
async def test_bare_and_wrapped_content_are_recognised_by_receivers(ours: bool) -> None:
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        alice = await join(a, "alice", options=replace(ALONE, wrap_segments=ours))
        bob = await join(b, "bob", options=replace(ALONE, wrap_segments=not ours))
        await reachable(alice, bob)
        for payload in (b"hello", b"\x00" * 50, os.urandom(500)):
            await alice.channel.send(payload)
            await until(lambda payload=payload: payload in bob.received)
        await bob.channel.send_ephemeral(b"typing")
        await until(lambda: alice.received == [b"typing"])


async def test_a_channel_whose_application_reads_nothing_takes_no_more_than_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pywaku.channels.eventlog.MAX_WAITING", 50)
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        alice = await join(a, "alice", options=ALONE)
        await pywaku.open_channels(b, path=None)
        bob = await pywaku.create_reliable_channel(b, channel_id="room", sender_id="bob", content_topic=ROOM)
        await until(lambda: bob.healthy)
        await reachable(alice)
        for number in range(200):
            await alice.channel.send(b"%d" % number)
            await trio.sleep(0.1)
        await trio.sleep(5)
        stream = bob.events("message-received")
        assert 50 <= len(stream) <= 60
        for number in range(200):
            event = await anext(stream)
            assert isinstance(event, MessageReceived)
            assert event.payload == b"%d" % number


# Missing messages


async def test_missing_messages_should_be_retrieved_by_their_hints_from_a_store() -> None:
    no_query = replace(ALONE, query_on_connect=False)
    edge: dict[str, Any] = {"mode": "edge", "fetch_missed": False}
    async with (
        open_waku_world() as world,
        open_services(world, 2, stores=1) as services,
        world.node("a", *services, **edge) as a,
        world.node("b", *services, **edge) as b,
    ):
        alice, bob = await join(a, "alice", options=no_query), await join(b, "bob", options=no_query)
        await reachable(alice, bob)
        await bob.channel.stop()
        payloads = [b"%d" % number for number in range(30)]
        for payload in payloads:
            await alice.channel.send(payload)
            await trio.sleep(0.2)  # so that each knows the hint of the one before
        await settled([a])
        await bob.channel.start()
        await alice.channel.send(b"last")
        # Each that is retrieved names the ones before: by two at a time, every 10 s.
        await until(lambda: bob.received == [*payloads, b"last"], seconds=600)
        assert bob.channel.counters.retrieved >= 25
        assert bob.channel.conversation.missing() == ()
        assert bob.names.count("irretrievable-message") == 0


async def test_what_no_store_has_is_irretrievable_after_its_time_and_what_waited_is_delivered() -> None:
    options = replace(ALONE, timeout_for_lost_messages_ms=60_000)
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        alice, bob = await join(a, "alice", options=options), await join(b, "bob", options=options)
        await reachable(alice, bob)
        await bob.channel.stop()
        await alice.channel.send(b"lost")
        await until(lambda: "message-sent" in alice.names)
        await bob.channel.start()
        await alice.channel.send(b"found")
        await until(lambda: bob.received == [b"found"], seconds=120)
        assert sorted(bob.names) == ["irretrievable-message", "message-received", "reliable:message:received"]
        assert bob.at[0] > 55


# Query on connect


async def _history(world: WakuWorld, services: tuple[Node, ...], count: int) -> list[bytes]:
    """So many messages of somebody who is gone."""
    async with world.node("alice", *services, mode="edge") as a:
        alice = await join(a, "alice", options=ALONE)
        await reachable(alice)
        return await _send(alice, count)


async def _send(member: Told, count: int) -> list[bytes]:
    payloads = [b"%d" % number for number in range(count)]
    for payload in payloads:
        await member.channel.send(payload)
        await trio.sleep(0.1)
    await settled([member.channel._hub.node])
    await trio.sleep(1)
    return payloads


async def test_the_store_should_be_queried_when_connecting_to_it() -> None:
    async with open_waku_world() as world, open_services(world, 2, stores=1) as services:
        payloads = await _history(world, services, 15)
        async with world.node("bob", *services, mode="edge", fetch_missed=False) as b:
            bob = await join(b, "bob", options=ALONE)
            await until(lambda: bob.received == payloads, seconds=10)
            assert bob.channel.counters.queries == 1


async def test_without_query_on_connect_the_store_is_not_asked() -> None:
    async with open_waku_world() as world, open_services(world, 2, stores=1) as services:
        await _history(world, services, 5)
        async with world.node("bob", *services, mode="edge", fetch_missed=False) as b:
            bob = await join(b, "bob", options=replace(ALONE, query_on_connect=False))
            await trio.sleep(400)
            assert bob.received == []
            assert bob.channel.counters.queries == 0


async def test_the_query_should_stop_at_a_message_with_causal_history_of_the_channel() -> None:
    async with open_waku_world() as world, open_services(world, 2, stores=1) as services:
        payloads = await _history(world, services, 70)
        async with world.node("bob", *services, mode="edge", fetch_missed=False) as b:
            bob = await join(b, "bob", options=replace(ALONE, retrieve_frequency_ms=1_000_000))
            await trio.sleep(30)
            # One page of 20, of which the earliest names messages that are not here yet.
            assert bob.channel.conversation.sds.counters.received == 20
            assert bob.received == []
        async with world.node("carol", *services, mode="edge", fetch_missed=False) as c:
            carol = await join(c, "carol", options=ALONE)
            await until(lambda: carol.received == payloads, seconds=900)


async def test_the_query_should_continue_where_all_messages_are_of_other_channels() -> None:
    async with open_waku_world() as world, open_services(world, 2, stores=1) as services:
        payloads = await _history(world, services, 10)
        async with world.node("else", *services, mode="edge") as e:
            other = await join(e, "erin", channel_id="another", options=ALONE)
            await reachable(other)
            for number in range(50):
                await other.channel.send(b"%d" % number)
                await trio.sleep(0.1)
            await settled([e])
        async with world.node("bob", *services, mode="edge", fetch_missed=False) as b:
            bob = await join(b, "bob", options=ALONE)
            await until(lambda: bob.received == payloads, seconds=10)
            assert bob.channel.counters.queries == 1


async def test_messages_older_than_the_limit_are_not_asked_for() -> None:
    async with open_waku_world() as world, open_services(world, 2, stores=1) as services:
        await _history(world, services, 5)
        await trio.sleep(3_600)
        async with world.node("bob", *services, mode="edge", fetch_missed=False) as b:
            bob = await join(b, "bob", options=replace(ALONE, query_age_limit_ms=600_000))
            await trio.sleep(30)
            assert bob.channel.counters.queries == 1
            assert bob.received == []


async def test_the_query_should_be_repeated_after_an_outage_and_once_it_is_long_ago() -> None:
    edge: dict[str, Any] = {"mode": "edge", "fetch_missed": False}
    async with (
        open_waku_world() as world,
        open_services(world, 2, stores=1) as services,
        world.node("bob", *services, **edge) as b,
        world.node("alice", *services, **edge) as a,
    ):
        bob = await join(b, "bob", options=replace(ALONE, query_threshold_ms=100_000))
        alice = await join(a, "alice", options=ALONE)
        await reachable(bob, alice)
        await trio.sleep(95)
        assert bob.channel.counters.queries == 1
        await trio.sleep(100)
        assert bob.channel.counters.queries == 2
        world.world.partition([world.host(b)], [world.host(node) for node in (*services, a)])
        await until(lambda: not bob.channel.healthy, seconds=300)
        before = bob.channel.counters.queries
        payloads = await _send(alice, 5)
        await trio.sleep(60)
        assert bob.channel.counters.queries == before
        assert bob.received == []
        world.world.heal()
        await until(lambda: bob.received == payloads, seconds=200)
        assert bob.channel.counters.queries == before + 1
