"""RELIABLE-CHANNEL-API, Rate Limit Manager: one limit for all channels of a node, which no crash forgets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

import pywaku
from pywaku.channels.events import EphemeralMessageDropped, MessageSent, SendingMessage
from pywaku.channels.rows import CHARGES, Row, RowChange
from pywaku.channels.store import NODE_SCOPE, MemoryChannelStore
from pywaku.errors import DecodeError, RecordError
from tests.support.channel_nodes import Told, finished, join, reachable
from tests.support.waku_nodes import open_waku_world, until

pytestmark = pytest.mark.virtual

EPOCH_S = 60
LIMIT = pywaku.RateLimitConfig(enabled=True, epoch_period_sec=EPOCH_S, messages_per_epoch=5)
QUIET = pywaku.ReliableChannelOptions(sync_min_interval_ms=0, acknowledgement_timeout_ms=300_000)


def epochs(members: Sequence[Told]) -> list[int]:
    """In which epoch each segment was sent; the world begins with one."""
    return sorted(
        int((at + 0.001) // EPOCH_S)
        for member in members
        for at, event in zip(member.at, member.events, strict=True)
        if isinstance(event, SendingMessage)
    )


async def test_two_channels_of_a_node_share_its_limit_and_what_exceeds_it_is_queued() -> None:
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        await pywaku.open_channels(a, path=None, rate_limit=LIMIT)
        one = await join(a, "alice", options=QUIET)
        other = await join(a, "alice", channel_id="2", options=QUIET)
        bob = await join(b, "bob")
        await reachable(one, other, bob)
        for number in range(6):
            await one.channel.send(b"%d" % number)
            await other.channel.send(b"%d" % number)
        await until(lambda: len(epochs([one, other])) == 12, seconds=300)
        assert epochs([one, other]) == [0] * 5 + [1] * 5 + [2] * 2
        assert len(one.of(SendingMessage)) == len(other.of(SendingMessage)) == 6
        await until(lambda: bob.received == [b"%d" % number for number in range(6)])


async def test_each_segment_counts_toward_the_limit() -> None:
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        await pywaku.open_channels(a, path=None, rate_limit=LIMIT)
        alice, bob = await join(a, "alice", options=QUIET), await join(b, "bob")
        await reachable(alice, bob)
        await alice.channel.send(bytes(700_000))
        await until(lambda: len(bob.received) == 1, seconds=120)
        assert epochs([alice]) == [0] * 5 + [1] * 2


async def test_ephemeral_messages_should_be_dropped_from_the_threshold_on() -> None:
    limit = pywaku.RateLimitConfig(
        enabled=True, epoch_period_sec=EPOCH_S, messages_per_epoch=5, approach_threshold=0.6
    )
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a):
        await pywaku.open_channels(a, path=None, rate_limit=limit)
        alice = await join(a, "alice", options=QUIET)
        await reachable(alice)
        became: list[str] = []
        for number in range(6):
            message_id = await alice.channel.send_ephemeral(b"typing")
            await until(lambda message_id=message_id: bool(alice.about(message_id)))
            (event,) = alice.about(message_id)
            became.append(event.reason if isinstance(event, EphemeralMessageDropped) else event.name)
            if number > 2:
                await alice.channel.send(b"%d" % number)
                await trio.sleep(1)
        assert became == [
            *["message-sent"] * 3,
            *["rate_limit_approached"] * 2,
            "rate_limit_reached",
        ]
        await trio.sleep(EPOCH_S)
        assert len(alice.of(MessageSent)) == 3 + 3  # what was dropped is not sent later, but what waited is


class Slow(MemoryChannelStore):
    """A store that takes its time for charges, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = False
        self.saved: list[float] = []

    async def apply(self, scope: str, changes: Sequence[RowChange]) -> None:
        """Keep rows, those of the node a second later."""
        if scope == NODE_SCOPE:
            await trio.sleep(1)
            if self.broken:
                raise RecordError("channels slow: the disk is full", reason="disk-full")
            self.saved.append(trio.current_time())
        await super().apply(scope, changes)


async def test_charges_are_saved_before_anything_is_sent_for_them() -> None:
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        await pywaku.open_channels(a, path=None, rate_limit=LIMIT)
        alice, bob = await join(a, "alice", options=QUIET), await join(b, "bob")
        await reachable(alice, bob)
        hub = alice.channel._hub
        hub.store = store = Slow()
        store.broken = True
        await alice.channel.send(b"hello")
        for _ in range(6):  # what is dropped meanwhile lets nothing out
            await alice.channel.send_ephemeral(b"typing")
        await trio.sleep(30)
        assert alice.of(SendingMessage) == alice.of(MessageSent) == []
        assert bob.received == []
        store.broken = False
        await until(lambda: bool(alice.of(SendingMessage)))
        assert store.saved[0] <= alice.at[alice.names.index("sending-message")]
        await until(lambda: b"hello" in bob.received)


async def test_a_restart_does_not_undo_what_was_sent_in_the_epoch(tmp_path: Path) -> None:
    async with open_waku_world() as world, world.node("b") as b:
        await join(b, "bob")
        lives: list[Told] = []
        for life in range(3):
            async with world.node("a", b) as a:
                await pywaku.open_channels(a, path=tmp_path / "a.sqlite3", rate_limit=LIMIT)
                alice = await join(a, "alice", options=QUIET)
                lives.append(alice)
                await reachable(alice)
                for number in range(3):
                    await alice.channel.send(b"%d.%d" % (life, number))
                await trio.sleep(2)
        first = [at for one in lives for at in one.at if at < EPOCH_S]
        assert first
        assert epochs(lives).count(0) == 5


async def test_what_waits_for_the_limit_is_withdrawn_with_its_channel() -> None:
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        await pywaku.open_channels(a, path=None, rate_limit=LIMIT)
        alice, bob = await join(a, "alice", options=QUIET), await join(b, "bob")
        await reachable(alice, bob)
        for number in range(8):
            await alice.channel.send(b"%d" % number)
        await trio.sleep(5)
        hub = alice.channel._hub
        assert len(hub._waiting) == 3
        await alice.channel.close()
        assert len(hub._waiting) == 0
        again = await join(a, "alice")
        await until(lambda: len(bob.received) == 8, seconds=200)
        await finished([again])


async def test_nothing_is_remembered_of_requests_that_are_over() -> None:
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        alice, bob = await join(a, "alice"), await join(b, "bob")
        await reachable(alice, bob)
        for number in range(20):
            await alice.channel.send(b"%d" % number)
        await finished([alice])
        await trio.sleep(10)
        hub = alice.channel._hub
        assert (len(hub._requests), len(hub._waiting), len(hub._released)) == (0, 0, 0)


@pytest.mark.parametrize("value", [b"[", b"[1,2,3]", b"[60,[[1]],null]", b"[60]", b'[60,[["x",1]],null]'])
async def test_damaged_charges_are_a_decode_error(value: bytes) -> None:
    class Damaged(MemoryChannelStore):
        async def load(self, scope: str) -> list[Row]:
            return [Row(CHARGES, "", value)]

    from pywaku.channels.hub import _charges

    with pytest.raises(DecodeError):
        await _charges(Damaged())
