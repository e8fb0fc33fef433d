"""What a channel does while its application does not read: it takes nothing in, until that changes."""

from __future__ import annotations

import gc

import pytest
import trio

import pywaku
from pywaku.channels import eventlog
from pywaku.channels.events import MessageReceived
from tests.support.channel_nodes import join, reachable
from tests.support.waku_nodes import open_waku_world, until

pytestmark = pytest.mark.virtual

QUIET = pywaku.ReliableChannelOptions(sync_min_interval_ms=0, repair=None)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten messages may wait."""
    monkeypatch.setattr(eventlog, "MAX_WAITING", 10)


@pytest.mark.parametrize("how", ["close", "drop"])
async def test_messages_come_again_when_the_stream_that_was_not_read_is_gone(how: str) -> None:
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        alice = await join(a, "alice", options=QUIET)
        await reachable(alice)
        await pywaku.open_channels(b, path=None)
        bob = await pywaku.create_reliable_channel(
            b,
            channel_id="room",
            sender_id="bob",
            content_topic=alice.channel.content_topic,
            pubsub_topic=b.pubsub_topics[0],
            options=QUIET,
        )
        heard: list[bytes] = []

        async def read() -> None:
            async for event in bob.events("message-received"):
                assert isinstance(event, MessageReceived)
                heard.append(event.payload)

        never_read = bob.events("message-received")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await until(lambda: bob.healthy)
            for number in range(30):
                await alice.channel.send(b"%d" % number)
                await trio.sleep(0.1)
            await trio.sleep(300)
            assert 10 <= len(heard) < 30
            if how == "close":
                never_read.close()
            del never_read
            gc.collect()
            await until(lambda: len(heard) == 30, seconds=3)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("stream", [False, True])
async def test_few_large_messages_that_nobody_reads_are_as_many_as_many_small_ones(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventlog, "MAX_WAITING_BYTES", 100_000)
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        alice = await join(a, "alice")
        await pywaku.open_channels(b, path=None)
        bob = await pywaku.create_reliable_channel(
            b,
            channel_id="room",
            sender_id="bob",
            content_topic=alice.channel.content_topic,
            pubsub_topic=b.pubsub_topics[0],
        )
        waiting = bob.events("message-received") if stream else None
        await until(lambda: bob.healthy and alice.channel.healthy)
        for number in range(6):
            await alice.channel.send(bytes([number]) * 40_000)
            await trio.sleep(1)
        waiting = waiting or bob.events("message-received")
        assert len(waiting) == 3
        heard: list[bytes] = []
        with trio.move_on_after(60):
            async for event in waiting:
                assert isinstance(event, MessageReceived)
                heard.append(event.payload[:1])
        assert heard == [b"\0", b"\1", b"\2", b"\3", b"\4", b"\5"]
