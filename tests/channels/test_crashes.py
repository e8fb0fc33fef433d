"""The process ends between any two steps: nothing is lost, and nothing comes twice but what was read last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

import pywaku
from pywaku.channels import ChannelEvent, ReliableChannel, creating
from pywaku.channels.events import MessageReceived, ReliableMessageDelivered
from pywaku.errors import NodeClosed, RecordError
from pywaku.messaging import Node
from pywaku.segments import SegmentationConfig
from tests.support.channel_nodes import ROOM, join
from tests.support.cut_store import Cut, CutStore
from tests.support.waku_nodes import SHARD, open_waku_world, until

pytestmark = pytest.mark.virtual

OPTIONS = pywaku.ReliableChannelOptions(segmentation=SegmentationConfig(segment_size_bytes=1_000))
SENT = [b"a1" * 1_200, b"a2"]
TO_COME = [b"b1", b"b2" * 900]


class Crash(NamedTuple):
    """How many events had been read when the process ended, and when it had last saved anything."""

    read: int
    saved_until: float


@dataclass
class Application:
    """What it has done, in all its lives."""

    sent: dict[bytes, str] = field(default_factory=dict[bytes, str])
    """Ids by payload, of those of which `send` has returned."""
    tried: set[bytes] = field(default_factory=set[bytes])
    read: list[tuple[float, ChannelEvent]] = field(default_factory=list[tuple[float, ChannelEvent]])
    crashes: list[Crash] = field(default_factory=list["Crash"])

    async def read_events(self, channel: ReliableChannel) -> None:
        async for event in channel.events("message-received", "reliable:message:delivered"):
            self.read.append((trio.current_time(), event))

    async def send(self, channel: ReliableChannel) -> None:
        for payload in SENT:
            if payload not in self.tried:
                self.tried.add(payload)
                try:
                    self.sent[payload] = await channel.send(payload)
                except NodeClosed:
                    return
                await trio.sleep(1)

    def prove(self, bob: list[bytes]) -> None:
        """Nothing is lost; what came twice was read, and that not saved yet, when the process ended."""
        for payload in SENT:
            assert bob.count(payload) == 1 or (payload not in self.sent and bob.count(payload) == 0)
        events = [event for _, event in self.read]
        received = [event.payload for event in events if isinstance(event, MessageReceived)]
        finals = [event.request_id for event in events if isinstance(event, ReliableMessageDelivered)]
        assert set(received) == set(TO_COME)
        assert set(finals) >= set(self.sent.values())
        for place, (_, event) in enumerate(self.read):
            if event in events[:place]:
                before = events[:place].index(event)
                crash = next(each for each in reversed(self.crashes) if each.read <= place)
                assert before < crash.read
                assert self.read[before][0] >= crash.saved_until


async def live(node: Node, store: CutStore, application: Application) -> bool:
    """Alice, until all is done or her store is cut off; True if it was."""
    await pywaku.open_channels(node, path=None)
    (await creating._hub(node)).store = store
    cut = False
    try:
        channel = await pywaku.create_reliable_channel(
            node,
            channel_id="room",
            sender_id="alice",
            content_topic=ROOM,
            pubsub_topic=SHARD,
            options=OPTIONS,
        )
    except (NodeClosed, RecordError):
        return True
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            nonlocal cut
            await store.is_cut.wait()
            cut = True
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        nursery.start_soon(application.read_events, channel)
        await application.send(channel)
        await until(
            lambda: (
                len({each for _, each in application.read if isinstance(each, MessageReceived)})
                == len(TO_COME)
                and not channel.unacknowledged
            ),
            seconds=900,
        )
        await trio.sleep(1)  # for what was read to be saved
        nursery.cancel_scope.cancel()
    return cut


async def scenario(cuts: Sequence[int], mode: Cut, *, seed: int, records: Path | None = None) -> bool:
    """Alice's process ends at a transaction of each of some lives; False if one of them had not so many."""
    application, store = Application(), CutStore()
    crashed = True
    async with open_waku_world(seed=seed) as world, world.node("b") as b:
        bob = await join(b, "bob", options=OPTIONS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_bob, bob.channel)
            for cut_at in (*cuts, None):
                store.open(cut_at, mode)
                async with world.node("a", b, **({"records_path": records} if records else {})) as a:
                    was_cut = await live(a, store, application)
                crashed = crashed and was_cut == (cut_at is not None)
                if was_cut:
                    application.crashes.append(Crash(len(application.read), store.last_applied))
                    await trio.sleep(3)
        await until(lambda: set(bob.received) >= set(application.sent), seconds=300)
        application.prove(bob.received)
    return crashed


async def _bob(channel: ReliableChannel) -> None:
    await until(lambda: channel.healthy)
    for payload in TO_COME:
        await channel.send(payload)
        await trio.sleep(2)


@pytest.mark.parametrize("mode", ["before", "after"])
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_process_may_end_between_any_two_steps(mode: Cut, seed: int) -> None:
    print("seed", seed)
    cut_at = 1
    while await scenario([cut_at], mode, seed=seed):
        cut_at += 1
    assert cut_at > 8


async def test_a_node_that_keeps_its_records_may_go_on_with_what_its_channels_send(tmp_path: Path) -> None:
    cut_at = 1
    while await scenario([cut_at], "after", seed=3, records=tmp_path / f"{cut_at}.sqlite3"):
        cut_at += 1
    assert cut_at > 8


@pytest.mark.long
@pytest.mark.parametrize("mode", ["before", "after"])
@pytest.mark.parametrize("seed", [10, 11])
async def test_processes_may_end_one_after_the_other(mode: Cut, seed: int) -> None:
    print("seed", seed)
    for first in range(1, 12):
        for second in range(1, 9):
            await scenario([first, second, second], mode, seed=seed)
