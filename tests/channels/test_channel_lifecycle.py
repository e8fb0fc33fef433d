"""RELIABLE-CHANNEL-API, Channel lifecycle and Create reliable channel: starting, closing, and names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

import pywaku
from pywaku.channels.events import (
    ChannelEvent,
    ChunkInfo,
    MessageReceived,
    ReliableMessageDelivered,
)
from pywaku.errors import InvalidInput, NodeClosed, UnsupportedTopic
from pywaku.segments import SegmentationConfig
from tests.support.channel_nodes import ROOM, finished, join, open_pair, reachable
from tests.support.waku_nodes import open_waku_world, until

pytestmark = pytest.mark.virtual

SMALL = pywaku.ReliableChannelOptions(segmentation=SegmentationConfig(segment_size_bytes=1_000))
ONE = ChunkInfo((0,), 1)


async def test_a_channel_should_start_by_itself_and_start_and_stop_may_be_repeated() -> None:
    async with open_pair() as (alice, bob, _):
        assert alice.channel.is_started
        await alice.channel.start()
        await alice.channel.stop()
        await alice.channel.stop()
        assert not alice.channel.is_started
        await bob.channel.send(b"missed")
        await trio.sleep(3)
        assert alice.received == []
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(alice.channel.start)
        assert alice.channel.is_started
        await until(lambda: alice.received == [b"missed"])


async def test_with_auto_start_false_the_application_must_call_start() -> None:
    options = pywaku.ReliableChannelOptions(auto_start=False)
    async with open_pair(options=options) as (alice, bob, _):
        assert not alice.channel.is_started
        await bob.channel.start()
        message_id = await alice.channel.send(b"later")
        await trio.sleep(30)
        assert bob.received == alice.events == []
        assert alice.channel.unacknowledged == (message_id,)
        await alice.channel.start()
        await until(lambda: bob.received == [b"later"])
        await finished([alice])


async def test_what_is_sent_while_stopped_waits_for_start() -> None:
    async with open_pair(options=SMALL) as (alice, bob, _):
        await alice.channel.stop()
        for number in range(3):
            await alice.channel.send(bytes([number]) * 2_500)
        await trio.sleep(60)
        assert bob.received == []
        await alice.channel.start()
        await finished([alice])
        assert bob.received == [bytes([number]) * 2_500 for number in range(3)]


async def test_a_closed_channel_goes_on_where_it_was_when_it_is_created_again(tmp_path: Path) -> None:
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        await pywaku.open_channels(a, path=tmp_path / "a.sqlite3")
        alice, bob = await join(a, "alice"), await join(b, "bob")
        await reachable(alice, bob)
        await bob.channel.send(b"1")
        await until(lambda: alice.received == [b"1"])
        await alice.channel.stop()
        message_id = await alice.channel.send(b"unsent")
        await alice.channel.close()
        await alice.channel.close()
        with pytest.raises(NodeClosed):
            await alice.channel.send(b"x")
        with pytest.raises(NodeClosed):
            await alice.channel.start()
        again = await join(a, "alice")
        assert again.channel.unacknowledged == (message_id,)
        await until(lambda: bob.received == [b"unsent"])
        await finished([again])
        assert again.received == []  # the first was read before
        assert len(again.of(ReliableMessageDelivered)) == 1


async def test_a_channel_that_is_forgotten_begins_anew(tmp_path: Path) -> None:
    async with open_waku_world() as world, world.node("a") as a:
        await pywaku.open_channels(a, path=tmp_path / "a.sqlite3")
        alice = await join(a, "alice")
        await alice.channel.send(b"nobody will know")
        await alice.channel.close(forget=True)
        again = await join(a, "alice", content_topic="/test/1/elsewhere/proto")
        assert again.channel.unacknowledged == ()
        assert again.channel.conversation.sds.sizes().log == 0


async def test_closing_releases_the_subscription() -> None:
    async with open_pair() as (alice, bob, _):
        node = alice.channel._hub.node
        assert len(node.active_subscriptions) == 1
        await alice.channel.close()
        assert node.active_subscriptions == ()
        assert bob.channel.is_started


async def test_when_the_node_is_closed_events_end_and_the_channel_says_so() -> None:
    heard: list[ChannelEvent] = []

    async def read(channel: pywaku.ReliableChannel) -> None:
        heard.extend([event async for event in channel.events("message-received")])
        heard.append(MessageReceived(b"the end", ""))

    async with open_waku_world() as world, trio.open_nursery() as nursery:
        async with world.node("a") as a:
            alice = await join(a, "alice")
            nursery.start_soon(read, alice.channel)
            await trio.sleep(1)
        await until(lambda: len(heard) == 1)
        with pytest.raises(NodeClosed):
            await alice.channel.send(b"x")


# Names


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"channel_id": ""}, "channel_id: is a text that is not empty"),
        ({"sender_id": ""}, "sender_id: is a text that is not empty"),
        ({"sender_id": 7}, "sender_id: is a text"),
        ({"channel_id": "x" * 513}, "channel_id: has at most 512"),
        ({"sender_id": "\ud800"}, "sender_id: .* UTF-8"),
        ({"content_topic": "room"}, "room"),
    ],
)
async def test_names_that_cannot_be_are_refused(names: dict[str, str], words: str) -> None:
    async with open_waku_world() as world, world.node("a") as a:
        with pytest.raises(InvalidInput, match=words):
            await join(a, **{"sender_id": "alice", **names})
        assert a.active_subscriptions == ()


async def test_a_shard_that_the_node_does_not_have_is_refused() -> None:
    async with open_waku_world() as world, world.node("a") as a:
        with pytest.raises(UnsupportedTopic):
            await join(a, "alice", pubsub_topic="/waku/2/rs/42/7")


async def test_one_side_of_a_channel_is_open_once_and_others_beside_it() -> None:
    async with open_waku_world() as world, world.node("a") as a:
        alice = await join(a, "alice")
        with pytest.raises(InvalidInput, match="open already"):
            await join(a, "alice")
        await join(a, "bob")
        await join(a, "alice", channel_id="another")
        await alice.channel.close()
        await join(a, "alice")


async def test_a_channel_has_one_content_topic_for_life() -> None:
    async with open_waku_world() as world, world.node("a") as a:
        alice = await join(a, "alice")
        await alice.channel.close()
        with pytest.raises(InvalidInput, match=f"created on .*{ROOM}"):
            await join(a, "alice", content_topic="/test/1/elsewhere/proto")
        await join(a, "alice")


async def test_channels_are_opened_once_and_first() -> None:
    async with open_waku_world() as world, world.node("a") as a:
        await join(a, "alice")
        with pytest.raises(InvalidInput, match="opened already"):
            await pywaku.open_channels(a, path=None)


async def test_a_participant_should_only_process_messages_of_its_channel() -> None:
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        alice, bob = await join(a, "alice"), await join(b, "bob", channel_id="another")
        await reachable(alice, bob)
        await alice.channel.send(b"not for bob")
        await trio.sleep(10)
        assert bob.events == []
        assert bob.channel.conversation.sds.counters.foreign > 0


async def test_what_is_of_the_wrong_kind_is_refused_by_name() -> None:
    """A key in place of an encryption would otherwise fail with the first message, in the background."""
    room: dict[str, Any] = {"channel_id": "room", "sender_id": "alice", "content_topic": ROOM}
    mistakes: list[tuple[str, Any, str]] = [
        ("encryption", bytes(32), "encryption: has encrypt and decrypt, which a bytes has not"),
        ("encryption", 5, "encryption: has encrypt and decrypt, which a int has not"),
        ("options", {}, "options: is a ReliableChannelOptions, not {}"),
    ]
    anything: Any = "x"
    async with open_waku_world() as world, world.node("a") as node:
        for name, value, words in mistakes:
            with pytest.raises(InvalidInput, match=words):
                await pywaku.create_reliable_channel(node, **room, **{name: value})
        for arguments in ({"path": 5}, {"path": ""}, {"path": None, "rate_limit": anything}):
            with pytest.raises(InvalidInput, match=r"(path|rate_limit): is a "):
                await pywaku.open_channels(node, **arguments)
        with pytest.raises(InvalidInput, match="node: is a Node"):
            await pywaku.open_channels(anything, path=None)
        await pywaku.open_channels(node, path=None)  # none of the above has opened them
        channel = await pywaku.create_reliable_channel(node, **room)
        anything = 5
        with pytest.raises(InvalidInput, match="listener: is a function"):
            channel.add_event_listener("message-received", anything)
