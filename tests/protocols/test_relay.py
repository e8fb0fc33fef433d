"""Relay between simulated hosts (11/WAKU2-RELAY): publish, subscribe, and peers that behave or do not."""

from __future__ import annotations

import random
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import pytest
import trio

from pywaku.errors import DecodeError, InvalidInput, InvalidTopic, NodeClosed
from pywaku.gossip import GossipParams, ScoreParams
from pywaku.ids import PeerId
from pywaku.message import WakuMessage, message_hash
from pywaku.network.port import PeerEvent, PeerIdentified, PeerListener
from pywaku.network.simulated import Constant, LinkProfile, SimulatedNetwork, SimulatedWorld
from pywaku.protocols.relay import (
    PROTOCOL,
    OutboxLimits,
    ReceivedMessage,
    Relay,
    RelayOptions,
    open_relay,
)
from pywaku.protocols.relay import Subscription as RelaySubscription
from pywaku.protocols.relay.patience import Patience
from pywaku.wire import varint
from pywaku.wire.framing import frame
from pywaku.wire.message import encode_message
from pywaku.wire.multiaddr import Multiaddr
from pywaku.wire.relay import PeerRecord, Prune, RelayMessage, Rpc, Subscription, encode_rpc
from tests.support.relays import TOPIC, RawPeer, joins, message, open_node, open_nodes, open_world, publishes

OTHER_TOPIC = "/waku/2/rs/42/1"


def open_node_on(network: SimulatedNetwork) -> AbstractAsyncContextManager[Relay]:
    """A relay on a host that is there already."""
    return open_relay(network, rng=random.Random(1))


# Publish and subscribe


@pytest.mark.virtual
async def test_a_message_published_on_a_topic_reaches_its_subscribers() -> None:
    async with open_nodes(3) as (one, two, three):
        subscriptions = [node.relay.subscribe(TOPIC) for node in (two, three)]
        await trio.sleep(2)
        sent = message("hello")
        outcome = await one.relay.publish(TOPIC, sent)
        assert TOPIC not in one.relay.topics, "publishing needs no subscription"
        assert outcome.peers == 2
        assert outcome.message_hash == message_hash(TOPIC, sent)
        assert not outcome.duplicate
        for subscription in subscriptions:
            received = await anext(subscription)
            assert received.message == sent
            assert received.pubsub_topic == TOPIC
            assert received.message_hash == outcome.message_hash
            assert received.peer in {one.network.peer_id, two.network.peer_id, three.network.peer_id}


@pytest.mark.virtual
async def test_publish_sets_nothing_in_the_message() -> None:
    async with open_world() as world:
        sent = message("as it is")
        await world.relay.publish(TOPIC, sent)
        await trio.sleep(1)
        assert world.raw.published == [RelayMessage(TOPIC, encode_message(sent), signed=False)]


@pytest.mark.virtual
async def test_a_duplicate_is_said_to_be_one_and_goes_nowhere() -> None:
    async with open_world() as world:
        first = await world.relay.publish(TOPIC, message("once"))
        second = await world.relay.publish(TOPIC, message("once"))
        assert (first.duplicate, second.duplicate) == (False, True)
        assert (first.peers, second.peers) == (1, 0)
        assert first.message_id == second.message_id
        await trio.sleep(1)
        assert len(world.raw.published) == 1
        assert len(world.received) == 1


@pytest.mark.virtual
async def test_with_no_peer_publish_says_so() -> None:
    async with open_world(joined=False) as world:
        outcome = await world.relay.publish(OTHER_TOPIC, message("nobody"))
        assert outcome.peers == 0
        assert not outcome.duplicate


@pytest.mark.virtual
async def test_what_no_peer_has_taken_may_be_published_again() -> None:
    async with open_nodes(2) as (one, two):
        own: list[ReceivedMessage] = []
        got: list[ReceivedMessage] = []
        one.relay.subscribe_callback(TOPIC, own.append)
        nowhere = [await one.relay.publish(TOPIC, message("hello")) for _ in range(2)]
        assert [(outcome.peers, outcome.duplicate) for outcome in nowhere] == [(0, False)] * 2
        await trio.sleep(20)
        two.relay.subscribe_callback(TOPIC, got.append)
        await trio.sleep(5)
        assert got == []
        outcomes = [await one.relay.publish(TOPIC, message("hello")) for _ in range(2)]
        assert [(outcome.peers, outcome.duplicate) for outcome in outcomes] == [(1, False), (0, True)]
        await trio.sleep(1)
        assert len(got) == 1
        assert len(own) == 1
        assert one.relay.counters.published == 1


@pytest.mark.virtual
@pytest.mark.parametrize("joined", [True, False])
async def test_what_was_published_just_before_the_first_peer_came_reaches_it(joined: bool) -> None:
    async with SimulatedWorld(1) as world, open_node(world, "one") as one, open_node(world, "two") as two:
        one.relay.subscribe_callback(TOPIC, lambda _: None)
        subscription = two.relay.subscribe(TOPIC) if joined else None
        await trio.sleep(10)
        assert (await one.relay.publish(TOPIC, message("early"))).peers == 0
        await two.network.connect(one.network.addresses)
        await trio.sleep(0.5)
        if subscription is None:
            subscription = two.relay.subscribe(TOPIC)
        await trio.sleep(2)
        assert one.relay.mesh(TOPIC) == {two.network.peer_id}
        assert len(subscription) == 1


@pytest.mark.virtual
async def test_a_peer_that_has_gone_takes_no_message_while_what_it_sent_is_still_read() -> None:
    async with open_world(joined=False) as world:
        subscription = world.relay.subscribe(TOPIC, capacity=2)
        await world.stream.send(publishes(*map(message, range(2))))
        with trio.fail_after(1):
            while not len(subscription):
                await trio.sleep(0.001)
        # Its messages fill the subscription, and reading pauses for that.
        world.world.cut(world.node.network, world.raw.network)
        outcome = await world.relay.publish(TOPIC, message("to nobody"))
        assert (outcome.peers, outcome.duplicate) == (0, False)
        await trio.sleep(1)
        assert (await world.relay.publish(TOPIC, message("to nobody"))).duplicate is False


@pytest.mark.virtual
async def test_what_every_outbox_dropped_may_be_published_again() -> None:
    options = RelayOptions(outbox=OutboxLimits(messages=3), publish_wait_s=0, slow_peer_grace_s=0)
    async with open_world(options=options) as world:
        world.world.stall(world.raw.network)
        outcomes = [await world.relay.publish(TOPIC, message(f"{i} {'x' * 100_000}")) for i in range(20)]
        assert (outcomes[-1].peers, outcomes[-1].duplicate) == (0, False)
        world.world.resume(world.raw.network)
        await trio.sleep(5)
        again = [await world.relay.publish(TOPIC, message(f"{i} {'x' * 100_000}")) for i in (0, 19)]
        assert [(outcome.peers, outcome.duplicate) for outcome in again] == [(0, True), (1, False)]
        await trio.sleep(1)
        assert world.raw.published[-1].data == encode_message(message(f"19 {'x' * 100_000}"))


@pytest.mark.virtual
async def test_a_message_that_seems_lost_is_sent_again_to_all_and_delivered_once() -> None:
    async with open_nodes(3) as (one, two, three):
        own: list[ReceivedMessage] = []
        got: list[ReceivedMessage] = []
        late: list[ReceivedMessage] = []
        one.relay.subscribe_callback(TOPIC, own.append)
        two.relay.subscribe_callback(TOPIC, got.append)
        await trio.sleep(5)
        assert (await one.relay.publish(TOPIC, message("hello"))).peers == 1
        await trio.sleep(20)
        three.relay.subscribe_callback(TOPIC, late.append)
        await trio.sleep(5)
        assert late == []
        again = await one.relay.publish(TOPIC, message("hello"), resend=True)
        assert (again.peers, again.duplicate) == (2, False)
        await trio.sleep(1)
        assert (len(own), len(got), len(late)) == (1, 1, 1)
        assert one.relay.counters.published == 1


@pytest.mark.virtual
@pytest.mark.parametrize("deliver_own", [True, False])
async def test_own_messages_reach_own_subscriptions_if_wanted(deliver_own: bool) -> None:
    async with open_world(options=RelayOptions(deliver_own=deliver_own)) as world:
        subscription = world.relay.subscribe(TOPIC)
        await world.relay.publish(TOPIC, message("own"))
        assert len(world.received) == deliver_own
        assert len(subscription) == deliver_own
        if deliver_own:
            assert world.received[0].peer == world.node.network.peer_id
            assert world.received[0].message_hash == message_hash(TOPIC, message("own"))


@pytest.mark.virtual
async def test_the_first_subscription_joins_and_the_last_one_leaves() -> None:
    async with open_world(joined=False) as world:
        first = world.relay.subscribe(TOPIC)
        second = world.relay.subscribe(TOPIC)
        end = world.relay.subscribe_callback(TOPIC, lambda _: None)
        await trio.sleep(1)
        assert world.raw.subscriptions == [Subscription(True, TOPIC)]
        assert world.relay.topics == {TOPIC}
        await first.unsubscribe()
        end()
        end()
        await first.unsubscribe()
        await trio.sleep(1)
        assert world.relay.topics == {TOPIC}
        async with second:
            pass
        await trio.sleep(1)
        assert world.relay.topics == frozenset()
        assert world.raw.subscriptions == [Subscription(True, TOPIC), Subscription(False, TOPIC)]


@pytest.mark.virtual
async def test_shards_of_a_cluster() -> None:
    async with open_world(joined=False) as world:
        for topic in (OTHER_TOPIC, TOPIC, "/waku/2/rs/7/3", "/waku/2/default-waku/proto"):
            world.relay.subscribe(topic)
        assert world.relay.shards_of(42) == [0, 1]
        assert world.relay.shards_of(7) == [3]


@pytest.mark.virtual
@pytest.mark.parametrize("topic", ["", "x" * 257, "ü" * 129])
async def test_topics_that_peers_would_refuse_are_refused(topic: str) -> None:
    async with open_world() as world:
        with pytest.raises(InvalidTopic):
            world.relay.subscribe(topic)
        with pytest.raises(InvalidTopic):
            await world.relay.publish(topic, message(1))
        with pytest.raises(InvalidInput):
            world.relay.subscribe(TOPIC, capacity=0)


@pytest.mark.virtual
async def test_a_callback_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: ReceivedMessage) -> None:
        raise RuntimeError("broken")

    async with open_world(joined=False) as world:
        after: list[ReceivedMessage] = []
        world.relay.subscribe_callback(TOPIC, fail)
        world.relay.subscribe_callback(TOPIC, after.append)
        await world.arrive(message(1))
        await world.relay.publish(TOPIC, message(2))
        assert len(after) == 2
        assert world.counters.callback_errors == 2
        warnings = [record for record in caplog.records if record.levelname == "WARNING"]
        assert len(warnings) == 1, "once, not with each message"


@pytest.mark.virtual
async def test_counters_tell_what_came_in() -> None:
    async with open_world() as world:
        await world.arrive(message(1), message(2), message(1), message(2), b"\xff")
        assert world.counters.received == 5
        assert world.counters.duplicates == 2
        assert world.counters.delivered == 2
        assert world.counters.rejected == 1
        assert world.counters.bytes_in > 0
        await world.relay.publish(TOPIC, message(3))
        await trio.sleep(1)
        assert world.counters.published == 1
        assert world.counters.bytes_out > 0


# Back-pressure


@pytest.mark.virtual
async def test_a_fast_publisher_to_one_subscriber_loses_nothing() -> None:
    link = LinkProfile(latency=Constant(0.02), bandwidth_bytes_per_s=2_000_000)
    count = 20_000
    payload = bytes(196)
    async with open_nodes(2, link=link) as (one, two):
        subscription = two.relay.subscribe(TOPIC)
        await trio.sleep(2)
        async with trio.open_nursery() as nursery:

            async def publish() -> None:
                for number in range(count):
                    sent = message("")
                    sent = type(sent)(number.to_bytes(4) + payload, sent.content_topic)
                    outcome = await one.relay.publish(TOPIC, sent)
                    assert outcome.peers == 1

            nursery.start_soon(publish)
            numbers = [int.from_bytes((await anext(subscription)).message.payload[:4]) for _ in range(count)]
        assert numbers == list(range(count))
        assert subscription.dropped == 0
        assert one.relay.counters.dropped_slow_peer == 0
        assert one.relay.counters.publish_waits > 0


@pytest.mark.virtual
async def test_a_slow_peer_loses_messages_of_its_own_and_delays_no_other() -> None:
    async def publish_2000(*, stalled: bool) -> float:
        options = RelayOptions(outbox=OutboxLimits(messages=100))
        async with open_nodes(3, options=options) as (one, fast, slow):
            subscription = fast.relay.subscribe(TOPIC, capacity=5000)
            slow.relay.subscribe(TOPIC)
            await trio.sleep(2)
            if stalled:
                slow.network.world.stall(slow.network)
            started = trio.current_time()
            payload = "x" * 1000
            for number in range(2000):
                await one.relay.publish(TOPIC, message(f"{number} {payload}"))
            received = [await anext(subscription) for _ in range(2000)]
            elapsed = trio.current_time() - started
            assert len({entry.message_hash for entry in received}) == 2000
            box = one.relay.outbox(slow.network.peer_id)
            other = one.relay.outbox(fast.network.peer_id)
            assert box is not None
            assert other is not None
            assert other.dropped == 0
            assert box.dropped == one.relay.counters.dropped_slow_peer
            if stalled:
                assert len(box) == 100
                assert box.dropped > 1000
            return elapsed

    assert await publish_2000(stalled=True) <= await publish_2000(stalled=False) + 0.3


@pytest.mark.virtual
async def test_publish_waits_for_room_only_so_long() -> None:
    options = RelayOptions(
        outbox=OutboxLimits(messages=10), publish_wait_s=5, write_timeout_s=1000, deliver_own=False
    )
    async with open_world(options=options) as world:
        world.world.stall(world.raw.network)
        payload = "x" * 100_000
        started = trio.current_time()
        outcomes = [await world.relay.publish(TOPIC, message(f"{i} {payload}")) for i in range(12)]
        waited = trio.current_time() - started
        assert [outcome.peers for outcome in outcomes] == [1] * 12
        assert 10 <= waited <= 11
        assert world.counters.publish_waits > 0
        for i in range(20, 30):
            await world.relay.publish(TOPIC, message(f"{i} {payload}"))
        assert (await world.relay.publish(TOPIC, message("last"))).peers == 0
        assert world.counters.dropped_slow_peer > 0


@pytest.mark.virtual
async def test_a_loop_of_publishes_lets_others_run() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with open_world(joined=False) as world, trio.open_nursery() as nursery:
        nursery.start_soon(others)
        for number in range(640):
            await world.relay.publish(OTHER_TOPIC, message(number))
        assert turns > 5
        nursery.cancel_scope.cancel()


@pytest.mark.virtual
async def test_a_peer_that_accepts_nothing_loses_the_stream_and_is_given_up() -> None:
    options = RelayOptions(write_timeout_s=10, reopen_attempts=2, outbox=OutboxLimits(messages=10))
    async with open_world(options=options) as world:
        world.world.stall(world.raw.network)
        for i in range(10):
            await world.relay.publish(TOPIC, message(f"{i} {'x' * 100_000}"))
        await trio.sleep(60)
        assert world.counters.streams_failed == 3
        assert world.counters.peers_given_up == 1
        assert world.relay.peers == frozenset()


# Subscriptions


@pytest.mark.virtual
async def test_a_full_subscription_drops_the_newest_and_counts() -> None:
    async with open_world(joined=False) as world:
        subscription = world.relay.subscribe(TOPIC, capacity=10)
        await world.arrive(*(message(i) for i in range(25)))
        assert subscription.dropped == 15
        assert world.counters.dropped_slow_subscription == 15
        await subscription.unsubscribe()
        assert [received.message.payload for received in [entry async for entry in subscription]] == [
            str(i).encode() for i in range(10)
        ]


@pytest.mark.virtual
async def test_a_live_subscription_misses_nothing_however_small() -> None:
    async with open_world(joined=False) as world:
        subscription = world.relay.subscribe(TOPIC, capacity=4)
        got: list[bytes] = []

        async def consume() -> None:
            async for received in subscription:
                await trio.lowlevel.checkpoint()
                got.append(received.message.payload)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            await world.arrive(*(message(i) for i in range(100)))
            await subscription.unsubscribe()
        assert got == [str(i).encode() for i in range(100)]


@pytest.mark.virtual
async def test_a_subscription_that_hangs_holds_the_network_up_once_and_briefly() -> None:
    async with open_world(joined=False) as world:
        others: list[ReceivedMessage] = []
        hanging = world.relay.subscribe(TOPIC, capacity=10)
        world.relay.subscribe_callback(TOPIC, others.append)
        started = trio.current_time()
        for start in range(0, 1000, 100):
            await world.stream.send(publishes(*(message(i) for i in range(start, start + 100))))
        while len(others) < 1000:
            await trio.sleep(0.001)
        assert trio.current_time() - started < 0.2
        assert hanging.dropped == 990


@pytest.mark.virtual
async def test_a_subscription_to_content_topics_passes_over_all_others() -> None:
    async with open_world(joined=False) as world:
        subscription = world.relay.subscribe(
            TOPIC, content_topics=["/a/1/x/proto", "/b/1/x/proto"], capacity=2
        )
        woken = 0

        async def consume() -> None:
            nonlocal woken
            async for _ in subscription:
                woken += 1

        others = [WakuMessage(str(i).encode(), "/other/1/x/proto") for i in range(10)]
        wanted = [WakuMessage(b"hello", topic) for topic in ("/a/1/x/proto", "/b/1/x/proto")]
        await world.arrive(*others[:5], wanted[0], *others[5:])
        await world.relay.publish(TOPIC, wanted[1])
        assert len(subscription) == 2
        assert subscription.dropped == 0
        assert world.counters.delivered == 11
        assert [(await anext(subscription)).message for _ in wanted] == wanted
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume)
            await world.arrive(WakuMessage(b"more", "/other/1/x/proto"))
            assert woken == 0
            await subscription.unsubscribe()


@pytest.mark.virtual
@pytest.mark.parametrize("content_topics", ["/a/1/x/proto", [], ()])
async def test_content_topics_that_cannot_be_meant_are_refused(content_topics: Collection[str]) -> None:
    async with open_world(joined=False) as world:
        with pytest.raises(InvalidInput, match="content_topics"):
            world.relay.subscribe(TOPIC, content_topics=content_topics)
        assert world.relay.topics == frozenset()


async def consume_slowly(subscription: RelaySubscription, taken: list[ReceivedMessage]) -> None:
    async for received in subscription:
        taken.append(received)
        await trio.sleep(0.02)


@pytest.mark.virtual
async def test_a_slow_consumer_throttles_no_other_node_and_counts_what_it_misses() -> None:
    count = 3000
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(SimulatedWorld(1))
        a, b, c = [await stack.enter_async_context(open_node(world, name)) for name in "abc"]
        await a.network.connect(b.network.addresses)
        await b.network.connect(c.network.addresses)
        slow = b.relay.subscribe(TOPIC)
        got: list[ReceivedMessage] = []
        c.relay.subscribe_callback(TOPIC, got.append)
        a.relay.subscribe_callback(TOPIC, lambda _: None)
        await trio.sleep(3)
        taken: list[ReceivedMessage] = []
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(consume_slowly, slow, taken)
        started = trio.current_time()
        for number in range(count):
            await a.relay.publish(TOPIC, message(number))
        while len(got) < count:
            await trio.sleep(0.01)
        assert trio.current_time() - started < 0.5
        assert slow.dropped > 1000
        assert len(taken) + len(slow) + slow.dropped == count
        assert a.relay.counters.dropped_slow_peer == 0
        nursery.cancel_scope.cancel()


@pytest.mark.virtual
async def test_a_slow_consumer_of_own_messages_does_not_throttle_the_publisher() -> None:
    async with open_world(joined=False) as world, trio.open_nursery() as nursery:
        subscription = world.relay.subscribe(TOPIC)
        taken: list[ReceivedMessage] = []
        nursery.start_soon(consume_slowly, subscription, taken)
        started = trio.current_time()
        for number in range(3000):
            await world.relay.publish(TOPIC, message(number))
        assert trio.current_time() - started < 0.2
        assert len(taken) + len(subscription) + subscription.dropped == 3000
        await trio.sleep(1)
        assert len(world.raw.published) == 3000
        nursery.cancel_scope.cancel()


@pytest.mark.virtual
async def test_the_pauses_for_a_slow_consumer_are_one_percent_of_the_time() -> None:
    async with open_world(joined=False) as world, trio.open_nursery() as nursery:
        subscription = world.relay.subscribe(TOPIC, capacity=10)
        nursery.start_soon(consume_slowly, subscription, list[ReceivedMessage]())
        paused = 0.0
        started = trio.current_time()
        number = 0
        while trio.current_time() - started < 60:
            before = trio.current_time()
            await world.relay.publish(TOPIC, message(number))
            paused += trio.current_time() - before
            await trio.sleep(0.01)
            number += 1
        assert 0.1 < paused <= 0.1 + 60 * 0.01 + 0.05
        assert subscription.dropped > 0
        nursery.cancel_scope.cancel()


def test_patience_with_a_consumer_that_merely_waits_for_its_turn_does_not_end() -> None:
    patience = Patience()
    now, taken = 0.0, 0
    for _ in range(1000):
        assert patience.begin(now, taken)
        now, taken = now + 0.02, taken + 250
        assert patience.left(now, taken, 0.1) == pytest.approx(0.1)
        patience.end(now, taken)


def test_patience_comes_back_with_time() -> None:
    patience = Patience()
    assert patience.begin(0.0, 0)
    assert patience.left(0.06, 0, 0.1) == pytest.approx(0.04)
    assert patience.left(0.1, 0, 0.1) == 0
    patience.give_up(0.1, 0)
    assert not patience.begin(0.9, 0)
    assert patience.begin(2.1, 0)
    assert patience.left(2.1, 0, 0.1) == pytest.approx(0.02)
    patience.end(2.1, 0)
    assert patience.begin(1000.0, 0)
    assert patience.left(1000.0, 0, 0.1) == pytest.approx(0.1)


@pytest.mark.virtual
async def test_several_tasks_may_share_a_subscription() -> None:
    async with open_world(joined=False) as world:
        subscription = world.relay.subscribe(TOPIC)
        got: list[list[bytes]] = [[], [], []]

        async def consume(mine: list[bytes]) -> None:
            async for received in subscription:
                mine.append(received.message.payload)
                await trio.sleep(0.001)

        async with trio.open_nursery() as nursery:
            for mine in got:
                nursery.start_soon(consume, mine)
            await world.arrive(*(message(i) for i in range(60)))
            await subscription.unsubscribe()
        assert sorted(int(payload) for mine in got for payload in mine) == list(range(60))
        assert all(got)


# Peers that fail or misbehave


@pytest.mark.virtual
@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(frame(b"\xff\xff\xff"), id="no protobuf"),
        pytest.param(varint.encode(4 * 1024 * 1024 + 1), id="oversize frame"),
        pytest.param(b"\xff" * 11, id="no length"),
        pytest.param(frame(b"\x0a\x03\x12\x01\xff"), id="topic that is not UTF-8"),
    ],
)
async def test_a_garbage_rpc_costs_the_peer_the_stream_and_score_and_nothing_more(garbage: bytes) -> None:
    async with open_world() as world:
        peer = world.raw.network.peer_id
        await world.stream.send(garbage)
        await trio.sleep(0.5)
        assert world.counters.invalid_rpcs == 1
        assert world.relay.router.score(peer, trio.current_time()) < 0
        assert peer in world.node.network.peers
        assert peer in world.relay.peers
        again = await world.raw.open(world.node)
        await again.send(publishes(message("sober")))
        await trio.sleep(0.5)
        assert [received.message.payload for received in world.received] == [b"sober"]
        await world.relay.publish(TOPIC, message("to you too"))
        await trio.sleep(0.5)
        assert world.raw.published[-1].data == encode_message(message("to you too"))


@pytest.mark.virtual
async def test_an_rpc_in_pieces_is_put_together() -> None:
    async with open_world() as world:
        for byte in publishes(message("slow")):
            await world.stream.send(bytes([byte]))
            await trio.sleep(0.001)
        await trio.sleep(0.5)
        assert len(world.received) == 1


@pytest.mark.virtual
async def test_a_stream_that_fails_is_opened_again_and_subscriptions_are_repeated() -> None:
    async with open_world() as world:
        assert world.raw.subscriptions == [Subscription(True, TOPIC)]
        world.raw.streams[0].reset()
        await trio.sleep(0.2)
        await world.relay.publish(TOPIC, message("meanwhile"))
        await trio.sleep(2)
        assert len(world.raw.streams) == 2
        assert world.raw.subscriptions == [Subscription(True, TOPIC)] * 2
        assert [entry.data for entry in world.raw.published] == [encode_message(message("meanwhile"))]
        assert world.counters.streams_failed == 1
        assert world.counters.peers_given_up == 0


@pytest.mark.virtual
async def test_a_peer_that_resets_every_stream_is_given_up_after_bounded_attempts() -> None:
    async with open_world(options=RelayOptions(reopen_attempts=3, reopen_pause_s=0.5)) as world:
        peer = world.raw.network.peer_id
        world.raw.refuse = True
        world.raw.streams[0].reset()
        await trio.sleep(60)
        assert len(world.raw.streams) == 1 + 3
        assert world.counters.peers_given_up == 1
        assert peer not in world.relay.peers
        assert world.relay.router.score(peer, trio.current_time()) < 0
        # What it still sends is not listened to, until it opens a stream anew.
        await world.stream.send(publishes(message("unheard")))
        await trio.sleep(1)
        assert world.received == []
        world.raw.refuse = False
        again = await world.raw.open(world.node)
        await again.send(publishes(message("heard")))
        await trio.sleep(1)
        assert len(world.received) == 1
        assert peer in world.relay.peers


@pytest.mark.virtual
async def test_bytes_on_the_one_way_stream_end_it() -> None:
    async with open_world() as world:
        await world.raw.streams[0].send(joins(OTHER_TOPIC))
        await trio.sleep(1)
        assert world.counters.streams_failed == 1
        assert len(world.raw.streams) == 2


@pytest.mark.virtual
async def test_a_peer_that_comes_back_is_a_relay_peer_again() -> None:
    async with open_world() as world:
        peer = world.raw.network.peer_id
        await world.raw.network.disconnect(world.node.network.peer_id)
        await trio.sleep(1)
        assert world.relay.peers == frozenset()
        again = await world.raw.open(world.node)
        await again.send(joins(TOPIC) + publishes(message("back")))
        await trio.sleep(1)
        assert world.relay.peers == {peer}
        assert world.relay.peers_of(TOPIC) == {peer}
        assert len(world.received) == 1


@pytest.mark.virtual
async def test_a_peer_that_does_not_identify_but_opens_a_stream_is_a_relay_peer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with SimulatedWorld(1) as world, world.host("node") as network, world.host("raw") as other:
        watch = network.watch

        def watch_without_identify(listener: PeerListener) -> object:
            def hear(event: PeerEvent) -> None:
                if not isinstance(event, PeerIdentified):
                    listener(event)

            return watch(hear)

        monkeypatch.setattr(network, "watch", watch_without_identify)
        async with open_node_on(network) as relay:
            raw = RawPeer(other)
            await other.connect(network.addresses)
            await trio.sleep(1)
            assert relay.peers == frozenset()
            stream = await other.open_stream(network.peer_id, PROTOCOL)
            await stream.send(joins(TOPIC))
            await trio.sleep(1)
            assert relay.peers_of(TOPIC) == {other.peer_id}
            await relay.publish(TOPIC, message("hello"))
            await trio.sleep(1)
            assert len(raw.published) == 1


@pytest.mark.virtual
async def test_peers_that_do_not_speak_relay_are_left_alone() -> None:
    async with open_nodes(1) as (node,), node.network.world.host("plain") as plain:
        await plain.connect(node.network.addresses)
        await trio.sleep(1)
        assert node.relay.peers == frozenset()
        assert plain.peer_id in node.network.peers


@pytest.mark.virtual
async def test_peers_connected_before_relay_was_opened_are_taken_up() -> None:
    async with SimulatedWorld(1) as world, world.host("raw") as other, world.host("node") as network:
        raw = RawPeer(other)
        await other.connect(network.addresses)
        await trio.sleep(1)
        async with open_node_on(network) as relay:
            assert relay.peers == {other.peer_id}
            relay.subscribe(TOPIC)
            await trio.sleep(1)
            assert raw.subscriptions == [Subscription(True, TOPIC)]


@pytest.mark.virtual
async def test_what_a_peer_does_not_want_does_not_wait_for_it() -> None:
    async with open_world(options=RelayOptions(deliver_own=False)) as world:
        link = LinkProfile(latency=Constant(0.01), bandwidth_bytes_per_s=100_000)
        world.world.set_link(world.node.network, world.raw.network, link)
        sent = [message(f"{i} {'x' * 100_000}") for i in range(10)]
        outcomes = [await world.relay.publish(TOPIC, entry) for entry in sent]
        unwanted = tuple(outcome.message_id for outcome in outcomes[5:])
        await world.stream.send(frame(encode_rpc(Rpc(idontwant=unwanted))))
        await trio.sleep(30)
        assert [entry.data for entry in world.raw.published] == [encode_message(entry) for entry in sent[:5]]


# Peer exchange


@pytest.mark.virtual
async def test_recommended_peers_are_dialed_within_bounds() -> None:
    others = [PeerId(b"\x12\x20" + bytes([i]) * 32) for i in range(1, 41)]
    looked_up: list[PeerId] = []

    def read(peer: PeerId, record: bytes) -> list[Multiaddr]:
        looked_up.append(peer)
        if record != b"good":
            raise DecodeError("bad record")
        return [Multiaddr.parse("/memory/999")]

    options = RelayOptions(read_peer_record=read, peer_exchange_dials=2, peer_exchange_queue=5)
    params = GossipParams(score=ScoreParams(accept_px_threshold=0.0))
    async with open_world(options=options, params=params) as world:
        records = tuple(PeerRecord(peer, b"good" if peer[2] != 1 else b"bad") for peer in others)
        prune = frame(encode_rpc(Rpc(prune=(Prune(TOPIC, records, 60),))))
        await world.stream.send(prune)
        await trio.sleep(30)
        dialed = world.counters.exchange_dials
        assert 0 < dialed <= 5
        assert world.counters.exchange_dropped > 0
        await world.stream.send(prune)
        await trio.sleep(5)
        assert world.counters.exchange_dials < 20
        assert len(looked_up) <= 40


@pytest.mark.virtual
async def test_direct_peers_get_every_message_outside_the_mesh() -> None:
    params = GossipParams(flood_publish=False)
    async with SimulatedWorld(1) as world, world.host("friend") as network:
        options = RelayOptions(direct_peers=frozenset({network.peer_id}))
        async with open_node(world, "node", params=params, options=options) as node:
            node.relay.subscribe(TOPIC)
            friend = RawPeer(network)
            stream = await friend.open(node)
            await stream.send(joins(TOPIC))
            await trio.sleep(5)
            assert node.relay.mesh(TOPIC) == frozenset()
            assert (await node.relay.publish(TOPIC, message("ours"))).peers == 1
            await trio.sleep(1)
            assert [entry.data for entry in friend.published] == [encode_message(message("ours"))]


@pytest.mark.virtual
async def test_a_recommended_peer_is_connected() -> None:
    async with SimulatedWorld(1) as simulated, simulated.host("friend") as friend:
        options = RelayOptions(read_peer_record=lambda _peer, _record: friend.addresses)
        params = GossipParams(score=ScoreParams(accept_px_threshold=0.0))
        async with (
            simulated.host("raw") as network,
            open_node(simulated, "node", options=options, params=params) as node,
        ):
            node.relay.subscribe(TOPIC)
            stream = await RawPeer(network).open(node)
            await stream.send(joins(TOPIC))
            await trio.sleep(1)
            prune = Prune(TOPIC, (PeerRecord(friend.peer_id, b"record"),), 60)
            await stream.send(frame(encode_rpc(Rpc(prune=(prune,)))))
            await trio.sleep(5)
            assert friend.peer_id in node.network.peers


# The end


@pytest.mark.virtual
async def test_what_was_published_leaves_before_relay_closes() -> None:
    async with open_nodes(1) as (node,):
        subscription = node.relay.subscribe(TOPIC)
        async with open_node(node.network.world, "short-lived") as brief:
            await brief.network.connect(node.network.addresses)
            await trio.sleep(2)
            for number in range(100):
                await brief.relay.publish(TOPIC, message(number))
        await trio.sleep(1)
        assert len(subscription) == 100
        assert node.relay.peers == frozenset()


@pytest.mark.virtual
async def test_what_was_published_leaves_also_if_there_was_a_time_without_peers() -> None:
    async with open_nodes(1) as (node,):
        subscription = node.relay.subscribe(TOPIC)
        async with open_node(node.network.world, "short-lived") as brief:
            await brief.network.connect(node.network.addresses)
            await trio.sleep(2)
            await brief.network.disconnect(node.network.peer_id)
            await trio.sleep(2)
            assert brief.relay.peers == frozenset()
            await brief.network.connect(node.network.addresses)
            await trio.sleep(2)
            for number in range(100):
                await brief.relay.publish(TOPIC, message(number))
        await trio.sleep(1)
        assert len(subscription) == 100


@pytest.mark.virtual
async def test_a_publish_that_waits_while_relay_closes_says_so() -> None:
    options = RelayOptions(outbox=OutboxLimits(messages=10), slow_peer_grace_s=60, write_timeout_s=1000)
    refused: list[Exception] = []
    async with trio.open_nursery() as nursery:
        async with open_world(options=options) as world:
            relay = world.relay

            async def publish() -> None:
                try:
                    for number in range(100):
                        await relay.publish(TOPIC, message(f"{number} {'x' * 100_000}"))
                except NodeClosed as error:
                    refused.append(error)

            world.world.stall(world.raw.network)
            nursery.start_soon(publish)
            await trio.sleep(1)
            assert relay.counters.publish_waits > 0
            published = relay.counters.published
        assert len(refused) == 1
        assert relay.counters.published == published


@pytest.mark.virtual
async def test_closing_leaves_nothing_behind_and_is_quick() -> None:
    async with SimulatedWorld(1) as world, world.host("raw") as other, world.host("node") as network:
        raw = RawPeer(other)
        async with open_node_on(network) as relay:
            subscription = relay.subscribe(TOPIC)
            await other.connect(network.addresses)
            stream = await other.open_stream(network.peer_id, PROTOCOL)
            await stream.send(joins(TOPIC))
            await trio.sleep(1)
            world.stall(other)
            await relay.publish(TOPIC, message("never arrives" + "x" * 100_000))
            leaving = trio.current_time()
        assert trio.current_time() - leaving <= 1.01
        assert [received.message.payload[:5] async for received in subscription] == [b"never"]
        with pytest.raises(NodeClosed):
            await relay.publish(TOPIC, message("late"))
        with pytest.raises(NodeClosed):
            relay.subscribe(TOPIC)
        world.resume(other)
        await trio.sleep(1)
        assert PROTOCOL not in other.peers[network.peer_id].protocols
        assert len(raw.streams) == 1
        async with open_node_on(network) as relay:
            await trio.sleep(1)
            assert relay.peers == {other.peer_id}


@pytest.mark.virtual
async def test_what_the_block_raises_comes_out_as_it_is() -> None:
    async with SimulatedWorld(1) as world, world.host("node") as network:
        with pytest.raises(ZeroDivisionError):
            async with open_node_on(network):
                raise ZeroDivisionError
