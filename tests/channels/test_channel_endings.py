"""However a channel ends, its application is told, what was read stays read, and it can be created again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

import pywaku
from pywaku.channels.events import ChannelEvent, MessageReceived
from pywaku.channels.rows import RowChange
from pywaku.errors import LimitExceeded, NodeClosed, RecordError
from tests.support.channel_nodes import ROOM, join, reachable
from tests.support.waku_nodes import SHARD, open_waku_world, until

pytestmark = pytest.mark.virtual


async def test_events_end_with_a_node_that_is_cancelled() -> None:
    ended: list[ChannelEvent] = []
    channels: list[pywaku.ReliableChannel] = []

    async def read(channel: pywaku.ReliableChannel) -> None:
        ended.extend([event async for event in channel.events("message-received")])
        ended.append(MessageReceived(b"the end", ""))

    async with open_waku_world() as world, trio.open_nursery() as nursery:
        with trio.move_on_after(10):
            async with world.node("a") as a:
                channels.append((await join(a, "alice")).channel)
                nursery.start_soon(read, channels[0])
                await trio.sleep_forever()
        await until(lambda: len(ended) == 1)
        with pytest.raises(NodeClosed):
            await channels[0].send(b"x")
        with pytest.raises(NodeClosed):
            await channels[0].start()


async def test_what_was_read_while_it_was_stopped_does_not_come_again(tmp_path: Path) -> None:
    async with open_waku_world() as world, world.node("b") as b:
        bob = await join(b, "bob")
        async with world.node("a", b) as a:
            await pywaku.open_channels(a, path=tmp_path / "a.sqlite3")
            alice = await pywaku.create_reliable_channel(
                a, channel_id="room", sender_id="alice", content_topic=ROOM, pubsub_topic=SHARD
            )
            await until(lambda: alice.healthy and bob.channel.healthy)
            await bob.channel.send(b"hello")
            await until(lambda: alice.participants() != ())
            await trio.sleep(1)
            await alice.stop()
            async with alice.events("message-received") as events:
                event = await anext(events)
                assert isinstance(event, MessageReceived)
                assert event.payload == b"hello"
        async with world.node("a", b) as a:
            await pywaku.open_channels(a, path=tmp_path / "a.sqlite3")
            again = await join(a, "alice")
            await reachable(again, bob)
            await trio.sleep(30)
            assert again.received == []


async def test_a_channel_that_could_not_be_forgotten_can_be_created_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_waku_world() as world, world.node("a") as a:
        alice = await join(a, "alice")
        store = alice.channel._hub.store

        async def fail(scope: str) -> None:
            raise RecordError("channels: the disk has gone", reason="disk")

        with monkeypatch.context() as patch:
            patch.setattr(store, "forget", fail)
            with pytest.raises(RecordError):
                await alice.channel.close(forget=True)
        assert (await join(a, "alice")).channel.is_started


async def test_a_channel_that_could_not_be_started_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_waku_world() as world, world.node("a") as a:
        bob = await join(a, "bob", channel_id="another")

        async def refuse(*_: object) -> None:
            raise LimitExceeded("no more subscriptions")

        with monkeypatch.context() as patch:
            patch.setattr(a, "subscribe", refuse)
            with pytest.raises(LimitExceeded):
                await join(a, "alice")
        hub = bob.channel._hub
        assert len(hub.scopes) == len(hub.endings) == 1
        assert (await join(a, "alice")).channel.is_started


async def test_the_channels_of_a_node_that_ends_while_the_disk_fails_wait_side_by_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_waku_world() as world:
        async with world.node("a") as a:
            members = [await join(a, "alice", channel_id=f"room-{number}") for number in range(10)]

            async def fail(scope: str, changes: Sequence[RowChange]) -> None:
                raise RecordError("channels: the disk has gone", reason="disk")

            monkeypatch.setattr(members[0].channel._hub.store, "apply", fail)
            for member in members:
                with trio.move_on_after(1):
                    await member.channel.send(b"this waits for the disk")
            began = trio.current_time()
        assert trio.current_time() - began <= 10
