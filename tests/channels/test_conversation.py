"""The machine of a channel: what is sent again, what is not, and what a restart or an outage changes."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

import pywaku
from pywaku.channels import RateLimitConfig, ReliableChannelOptions, creating
from pywaku.channels.conversation import Conversation, Outbound, Step
from pywaku.channels.events import IrretrievableMessage, MessageReceived, ReliableMessageDelivered
from pywaku.channels.ratequeue import Kind
from pywaku.channels.rows import Row
from pywaku.errors import LimitExceeded
from pywaku.segments import ReassemblyLimits, SegmentationConfig
from tests.support.channel_nodes import finished, join, reachable
from tests.support.channels import CHANNEL, START_MS
from tests.support.waku_nodes import open_waku_world, until

HOUR_MS = 3_600_000
SEGMENTATION = SegmentationConfig(segment_size_bytes=1_000)


class Side:
    """A participant that saves what it says, on a time of the test's own."""

    def __init__(self, name: str, **options: Any) -> None:
        self.name = name
        fields: dict[str, Any] = {"segmentation": SEGMENTATION, "sync_min_interval_ms": 0, **options}
        self.options = ReliableChannelOptions(**fields)
        self.now_ms = 0
        self.rows: dict[tuple[str, str], bytes] = {}
        self.restart()

    @property
    def now_ns(self) -> int:
        return (START_MS + self.now_ms) * 1_000_000

    def restart(self) -> None:
        """Another process takes up what was saved."""
        saved = [Row(table, key, value) for (table, key), value in self.rows.items()]
        rng = random.Random(1)
        self.machine = Conversation(
            CHANNEL, self.name, self.options, rng=rng, now_ns=self.now_ns, saved=saved
        )

    def take(self) -> Step:
        step = self.machine.take(self.now_ns)
        for table, key, value in step.changes:
            if value is None:
                self.rows.pop((table, key), None)
            else:
                self.rows[table, key] = value
        return step

    def send(self, message_id: str, payload: bytes = b"hello") -> list[Outbound]:
        self.machine.send(message_id, payload, self.machine.segments(payload), self.now_ns)
        return self.take().outbound

    def hand_over(self, *outbound: Outbound) -> None:
        """The network takes them."""
        for one in outbound:
            self.machine.sending(one.sds_id)
            self.machine.sent(one.sds_id, self.now_ns, b"hash")
        self.take()

    def hear(self, *outbound: Outbound) -> Step:
        for one in outbound:
            self.machine.receive(one.data, self.now_ns, None)
        return self.take()

    def tick(self, now_ms: int) -> Step:
        self.now_ms = now_ms
        self.machine.tick(self.now_ns)
        return self.take()


def test_segments_have_the_request_ids_of_the_specification_and_retries_their_number() -> None:
    alice = Side("alice")
    segments = alice.send("m", bytes(2_500))
    assert [one.key for one in segments] == ["m:1", "m:2", "m:3"]
    assert {one.kind for one in segments} == {Kind.SEGMENT}
    alice.hand_over(*segments)
    again = alice.tick(5_000).outbound
    assert [(one.key, one.kind) for one in again] == [(f"m:{number}/2", Kind.RETRY) for number in (1, 2, 3)]


def test_what_was_not_handed_over_when_the_process_ended_is_sent_under_the_same_request_id() -> None:
    alice = Side("alice")
    one, segments = alice.send("one"), alice.send("many", bytes(1_500))
    alice.hand_over(segments[0])
    alice.restart()
    assert alice.machine.next_tick() is not None
    again = alice.tick(0).outbound
    assert [(each.key, each.kind, each.data) for each in again] == [
        ("one:1", Kind.MESSAGE, one[0].data),
        ("many:2", Kind.SEGMENT, segments[1].data),
    ]


def test_what_is_acknowledged_is_settled() -> None:
    alice, bob = Side("alice"), Side("bob")
    segments = alice.send("m", bytes(1_500))
    alice.hand_over(*segments)
    bob.hear(*segments)
    step = alice.hear(*bob.send("reply"))
    assert set(step.settled) == {one.sds_id for one in segments}
    assert isinstance(step.events[-3], ReliableMessageDelivered)
    assert isinstance(step.events[-2], MessageReceived)


def test_when_a_message_has_failed_none_of_its_segments_is_sent_again() -> None:
    alice = Side("alice", max_retransmissions=1)
    first, second = alice.send("m", bytes(1_500))
    alice.hand_over(first)
    alice.now_ms = 4_000
    alice.hand_over(second)
    assert [one.key for one in alice.tick(5_000).outbound] == ["m:1/2"]
    alice.machine.sent(first.sds_id, alice.now_ns, b"hash")
    assert [one.key for one in alice.tick(9_000).outbound] == ["m:2/2"]
    step = alice.tick(10_000)
    assert set(step.settled) == {first.sds_id, second.sds_id}
    assert [event.name for event in step.events][-1] == "reliable:message:delivery-error"
    alice.machine.sent(second.sds_id, alice.now_ns, b"hash")
    assert alice.tick(HOUR_MS).outbound == []
    assert alice.machine.sds.log(5) == (first.sds_id, second.sds_id)  # others may have them


def test_of_a_message_that_can_never_be_sent_nobody_will_miss_what_nobody_has() -> None:
    alice = Side("alice")
    before = alice.send("before")[0]
    first, second = alice.send("m", bytes(1_500))
    alice.hand_over(before, first)
    alice.machine.fail(second.sds_id, "encryption failed")
    step = alice.take()
    assert [event.name for event in step.events] == [
        "sending-message-irrecoverable-error",
        "reliable:message:send-error",
    ]
    assert set(step.settled) == {first.sds_id, second.sds_id}
    assert alice.machine.sds.log(5) == (before.sds_id, first.sds_id)
    assert alice.machine.sds.unacknowledged() == (before.sds_id,)
    bob = Side("bob")
    bob.hear(before, first, *alice.send("after"))
    assert bob.machine.missing() == ()


def test_of_a_message_that_does_not_fit_nothing_is_sent() -> None:
    alice = Side("alice", max_unacknowledged=3)
    alice.send("one")
    with pytest.raises(LimitExceeded):
        alice.send("many", bytes(2_500))
    assert alice.take() == Step()
    assert alice.machine.tracker.unfinished == ("one",)
    assert len(alice.send("two", bytes(1_500))) == 2


@pytest.mark.parametrize("how", ["restart", "outage"])
def test_time_in_which_nothing_could_come_is_no_reason_to_give_anything_up(how: str) -> None:
    alice = Side("alice")
    bob = Side("bob", timeout_for_lost_messages_ms=600_000, reassembly=ReassemblyLimits(timeout_s=600))
    first, second = alice.send("m", bytes(1_500))
    then = alice.send("then")
    bob.hear(first, *then)
    bob.now_ms = HOUR_MS
    if how == "restart":
        bob.restart()
    else:
        bob.machine.begin_anew(bob.now_ns)
    events = [*bob.tick(HOUR_MS).events, *bob.tick(HOUR_MS + 599_000).events]
    assert events == []
    events = bob.hear(second).events
    assert [event.payload for event in events if isinstance(event, MessageReceived)] == [
        bytes(1_500),
        b"hello",
    ]


def test_what_does_not_come_in_time_is_reported_as_irretrievable() -> None:
    alice = Side("alice")
    bob = Side("bob", timeout_for_lost_messages_ms=600_000, reassembly=ReassemblyLimits(timeout_s=700))
    first, second = alice.send("m", bytes(1_500))
    bob.hear(first, *alice.send("then"))
    lost = bob.tick(600_000).events
    assert lost[0] == IrretrievableMessage((second.sds_id,), "alice", "timeout")
    assert isinstance(lost[1], MessageReceived)
    assert bob.tick(700_000).events == [
        IrretrievableMessage((), "alice", "1 more segments were needed (they did not come in time)")
    ]


@pytest.mark.virtual
async def test_what_is_acknowledged_while_it_waits_for_the_rate_limit_is_not_sent_again() -> None:
    limit = RateLimitConfig(enabled=True, messages_per_epoch=2)
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        await pywaku.open_channels(a, path=None, rate_limit=limit)
        alice = await join(a, "alice", options=ReliableChannelOptions(sync_min_interval_ms=0))
        bob = await join(b, "bob", options=ReliableChannelOptions(sync_min_interval_ms=0))
        await reachable(alice, bob)
        hub = await creating._hub(a)
        await alice.channel.send(b"1")
        await alice.channel.send(b"2")
        await until(lambda: bob.received == [b"1", b"2"])
        await until(lambda: hub.limiter.counters.delayed == 2)
        await bob.channel.send(b"got both")
        await finished([alice])
        assert hub.limiter.counters.withdrawn == 2
        assert hub.limiter.usage(0).queued == 0
        assert len(alice.channel._dispatch) == 0


@pytest.mark.virtual
async def test_a_clock_that_is_set_forward_takes_its_channels_along() -> None:
    """A machine that slept, or began in 1970: all others would be too far ahead for it."""
    began = 1_767_225_600_000_000_000
    behind_ns = 3 * 24 * HOUR_MS * 1_000_000

    def clock() -> int:
        return began - behind_ns + round(trio.current_time() * 1_000_000_000)

    node: dict[str, Any] = {"clock": clock, "validate_timestamps": False}
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a, **node) as b:
        alice, bob = await join(a, "alice"), await join(b, "bob")
        await reachable(alice, bob)
        await alice.channel.send(b"1")
        await until(lambda: bob.channel.conversation.sds.counters.too_far_ahead > 0)
        assert bob.received == []
        behind_ns = 0
        await until(lambda: bob.received == [b"1"])
        await bob.channel.send(b"2")
        await until(lambda: alice.received == [b"2"])
        await finished([alice, bob])
