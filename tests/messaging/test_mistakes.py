"""Mistakes of applications: they are refused or logged, and cost the node nothing (MESSAGING-API)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio

import pywaku
from pywaku.archive.port import StoredMessage
from pywaku.errors import InvalidInput
from pywaku.message import WakuMessage
from pywaku.messaging.record import Message, MessageRecord, PlainCodec
from tests.support.waku_nodes import SHARD, TOPIC, open_services, open_waku_world, until

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize("mode", ["relay", "edge"])
@pytest.mark.parametrize("content_topic", ["", "/test/1/\ud800/proto", None, 7])
async def test_a_content_topic_that_no_message_can_have_is_refused(mode: str, content_topic: str) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("mine", *services, mode=mode) as node,  # pyright: ignore[reportArgumentType]
    ):
        await until(lambda: node.health != "Unhealthy")
        with pytest.raises(InvalidInput, match="content_topic"):
            await node.subscribe(PlainCodec(content_topic, SHARD))
        assert node.active_subscriptions == ()
        await trio.sleep(5)  # nothing of it has reached anybody


async def test_what_is_unsubscribed_after_the_node_was_closed_is_so_already() -> None:
    async with open_waku_world() as world, open_services(world, 2) as services:
        async with world.node("mine", *services, mode="edge") as node:
            await until(lambda: node.health != "Unhealthy")
            subscription = await node.subscribe(node.codec(TOPIC))
            node.send(node.codec("/test/1/other/proto"), Message(b"watched in the background"))
            await until(lambda: len(node.active_subscriptions) == 2 and not node.pending_requests)
        node.unsubscribe(subscription.id)
        node.unsubscribe(pywaku.BACKGROUND_SUBSCRIPTION)
        subscription.unsubscribe()
        assert node.active_subscriptions == ()


class _Wordless(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


class _Unreadable(PlainCodec):
    """A decoder that fails, and fails to say how."""

    def decode(self, message: WakuMessage) -> bytes | None:
        """Never."""
        raise _Wordless


async def test_a_decoder_that_fails_whichever_way_costs_nobody_else_a_message() -> None:
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        await until(lambda: bool(a.health != "Unhealthy" != b.health))
        broken = [await node.subscribe(_Unreadable(TOPIC, SHARD)) for node in (a, b)]
        fine = [await node.subscribe(node.codec(TOPIC)) for node in (a, b)]
        for number in range(3):
            a.send(a.codec(TOPIC), Message(b"%d" % number))
        for subscription in fine:
            assert [(await anext(subscription)).message.payload for _ in range(3)] == [b"0", b"1", b"2"]
        assert [len(each) for each in broken] == [0, 0]
        record = (await b.messages.get_by_content_topic(TOPIC))[0]
        assert record.error is not None
        assert "_Wordless" in record.error


async def test_a_listener_that_always_fails_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[bytes] = []

    def fail(record: MessageRecord) -> None:
        heard.append(record.message.payload)
        raise ValueError("of the application")

    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        await until(lambda: bool(a.health != "Unhealthy" != b.health))
        await b.subscribe(b.codec(TOPIC), fail)
        for number in range(20):
            a.send(a.codec(TOPIC), Message(b"%d" % number))
        await until(lambda: len(heard) == 20)
    lines = [record for record in caplog.records if "listener" in record.getMessage()]
    assert len(lines) == 2  # the first, with its traceback, and the tenth
    assert lines[0].exc_info is not None


async def test_a_search_that_fails_in_an_unforeseen_way_is_done_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2, stores=1) as services,
        world.node("mine", *services) as node,
    ):
        await until(lambda: node.health != "Unhealthy")
        list_hashes, failures = node.parts.stores.list_hashes, 0

        def list_badly(*arguments: Any) -> Any:
            nonlocal failures
            if failures < 2:
                failures += 1
                raise ValueError("nobody thought of this")
            return list_hashes(*arguments)

        monkeypatch.setattr(node.parts.stores, "list_hashes", list_badly)
        messages = await node.subscribe(node.codec(TOPIC))
        missed = WakuMessage(b"missed", TOPIC, timestamp_ns=node.parts.environment.clock())
        await trio.sleep(0.5)
        world.archives["service-1"].insert_now([StoredMessage.of(SHARD, missed, 0)])
        with trio.fail_after(60):
            assert (await anext(messages)).message == missed
        assert failures == 2


async def test_what_is_of_the_wrong_kind_is_refused_by_name() -> None:
    """Not by an `AttributeError` from within: most of all a content topic where a codec is meant."""
    anything: Any
    async with open_waku_world() as world, world.node("a") as node:
        for anything in (TOPIC, None, 7):
            with pytest.raises(InvalidInput, match=r"encoder: is what node\.codec"):
                node.send(anything, Message(b"hello"))
            with pytest.raises(InvalidInput, match=r"decoder: is what node\.codec"):
                await node.subscribe(anything)
            with pytest.raises(InvalidInput, match="query: is a StoreQuery"):
                await node.query(anything)
        for anything in (None, 7, 5.0):
            with pytest.raises(InvalidInput, match="address: is a multiaddr"):
                await node.connect(anything)
        anything = "5"
        with pytest.raises(InvalidInput, match="capacity is at least 1, not '5'"):
            await node.subscribe(node.codec(TOPIC), capacity=anything)
        for page in ({"skip": anything}, {"take": anything}):
            with pytest.raises(InvalidInput, match="is an int, not '5'"):
                await node.messages.get_by_content_topic(TOPIC, **page)
        assert node.active_subscriptions == ()


async def test_open_node_takes_a_configuration_or_properties_and_nothing_else() -> None:
    anything: Any = {"mode": "edge", "cluster_id": 42}
    with pytest.raises(InvalidInput, match="takes a NodeConfig or properties, not a dict"):
        async with pywaku.open_node(anything):
            pass


def test_open_node_says_that_it_runs_on_trio_where_it_is_called_from_asyncio() -> None:
    async def main() -> None:
        async with pywaku.open_node(mode="edge", cluster_id=42, shards=[0], bootstrap_nodes=[]):
            pass

    with pytest.raises(InvalidInput, match="runs on trio"):
        asyncio.run(main())


async def test_a_closed_node_says_so_when_it_is_asked_for_history() -> None:
    async with open_waku_world() as world:
        async with world.node("a") as node:
            pass
        with pytest.raises(pywaku.NodeClosed):
            await node.query(pywaku.StoreQuery())
