"""RELIABLE-CHANNEL-API, Outgoing message processing and Encryption Hook: what leaves a channel, and how."""

from __future__ import annotations

import pytest
import trio

import pywaku
from pywaku.channels.events import (
    MessageReceived,
    MessageSent,
    ReliableMessageDelivered,
    ReliableMessageDeliveryError,
    ReliableMessageSendError,
    SendingMessage,
    SendingMessageIrrecoverableError,
)
from pywaku.messaging.health import HealthStatus
from pywaku.messaging.record import PlainCodec
from pywaku.segments import SegmentationConfig
from pywaku.wire.sds import decode_sds
from pywaku.wire.segments import decode_segment
from tests.support.channel_nodes import ROOM, finished, join, open_pair, reachable
from tests.support.waku_nodes import SHARD, open_waku_world, until

pytestmark = pytest.mark.virtual

SMALL = pywaku.ReliableChannelOptions(segmentation=SegmentationConfig(segment_size_bytes=1_000))
QUIET = pywaku.ReliableChannelOptions(sync_min_interval_ms=0, repair=None)


class Reversed:
    """An encryption that anybody can break, and that notes what it was given."""

    def __init__(self) -> None:
        self.encrypted: list[bytes] = []
        self.fail_at = -1

    def encrypt(self, content: bytes) -> bytes:
        """The bytes backwards."""
        if len(self.encrypted) == self.fail_at:
            raise ValueError("the key is gone")
        self.encrypted.append(content)
        return content[::-1]

    def decrypt(self, payload: bytes) -> bytes:
        """And back."""
        return payload[::-1]


class Slowly(Reversed):
    """The same, asking somebody else."""

    async def encrypt(self, content: bytes) -> bytes:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The bytes backwards."""
        await trio.sleep(0.5)
        return super().encrypt(content)

    async def decrypt(self, payload: bytes) -> bytes:  # pyright: ignore[reportIncompatibleMethodOverride]
        """And back."""
        await trio.sleep(0.5)
        return payload[::-1]


@pytest.mark.parametrize("hook", [Reversed, Slowly], ids=["sync", "async"])
async def test_encryption_must_be_applied_to_each_segment_after_segmentation_and_sds(
    hook: type[Reversed],
) -> None:
    encryption, payload = hook(), bytes(range(250)) * 10
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        alice = await join(a, "alice", options=SMALL, encryption=encryption)
        bob = await join(b, "bob", encryption=hook())
        async with await b.subscribe(PlainCodec(ROOM, SHARD)) as wire:
            await reachable(alice, bob)
            await alice.channel.send(payload)
            await until(lambda: bob.received == [payload])
            on_the_wire = [(await anext(wire)).message.payload for _ in range(3)]
    assert on_the_wire == [content[::-1] for content in encryption.encrypted[:3]]
    contents = [decode_sds(content) for content in encryption.encrypted[:3]]
    assert {message.channel_id for message in contents} == {"room"}
    segments = [decode_segment(message.content or b"") for message in contents]
    assert b"".join(segment.payload for segment in segments) == payload


async def test_without_the_hook_messages_are_sent_unencrypted() -> None:
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        alice = await join(a, "alice")
        async with await b.subscribe(PlainCodec(ROOM, SHARD)) as wire:
            await reachable(alice)
            await until(lambda: b.health != HealthStatus.UNHEALTHY)
            await alice.channel.send(b"for everybody")
            message = decode_sds((await anext(wire)).message.payload)
            assert decode_segment(message.content or b"").payload == b"for everybody"


async def test_an_encryption_that_fails_is_an_irrecoverable_error_and_nothing_more_is_sent() -> None:
    encryption = Reversed()
    encryption.fail_at = 1
    async with open_pair(options=SMALL, encryption=encryption) as (alice, bob, _):
        message_id = await alice.channel.send(bytes(2_500))
        await until(lambda: bool(alice.of(ReliableMessageSendError)))
        (error,) = alice.of(SendingMessageIrrecoverableError)
        assert error.message_id == message_id
        assert "encryption failed: ValueError: the key is gone" in error.error
        assert alice.channel.unacknowledged == ()
        encryption.fail_at = -1
        await trio.sleep(60)
        assert len(alice.of(SendingMessage)) <= 1  # of the first segment, before it failed
        assert len(alice.of(ReliableMessageSendError)) == 1
        assert bob.received == []
        await alice.channel.send(b"next")  # and the channel goes on
        await until(lambda: bob.received == [b"next"])
        await finished([alice])


async def test_an_encryption_that_fails_is_told_of_ephemeral_messages_too() -> None:
    encryption = Reversed()
    encryption.fail_at = 0
    async with open_pair(encryption=encryption) as (alice, _, _):
        message_id = await alice.channel.send_ephemeral(b"typing")
        await until(lambda: bool(alice.about(message_id)))
        (error, _) = alice.about(message_id)
        assert isinstance(error, SendingMessageIrrecoverableError)
        assert "encryption failed" in error.error


async def test_an_encryption_that_gives_no_bytes_is_an_irrecoverable_error() -> None:
    class Odd(Reversed):
        def encrypt(self, content: bytes) -> bytes:
            return "text"  # pyright: ignore[reportReturnType]

    async with open_pair(encryption=Odd()) as (alice, _, _):
        await alice.channel.send(b"x")
        await until(lambda: bool(alice.of(ReliableMessageSendError)))
        assert "encrypt gives bytes, not str" in alice.of(ReliableMessageSendError)[0].error


async def test_a_message_too_large_to_be_relayed_is_an_irrecoverable_error() -> None:
    options = pywaku.ReliableChannelOptions(segmentation=SegmentationConfig(segment_size_bytes=200_000))
    async with open_pair(options=options) as (alice, _, _):
        for send in (alice.channel.send, alice.channel.send_ephemeral):
            message_id = await send(bytes(180_000))
            await until(lambda message_id=message_id: len(alice.about(message_id)) == 2)
            error = alice.about(message_id)[0]
            assert isinstance(error, SendingMessageIrrecoverableError)
            assert "size exceeded maximum" in error.error


async def test_there_should_be_no_retries_while_the_node_is_offline_and_all_of_them_afterwards() -> None:
    options = pywaku.ReliableChannelOptions(max_retransmissions=3)
    async with open_waku_world() as world, world.node("a") as a:
        async with world.node("b", a) as b:
            alice, bob = await join(a, "alice", options=options), await join(b, "bob", options=QUIET)
            await reachable(alice, bob)
            message_id = await alice.channel.send(b"1")
            await until(lambda: bool(alice.of(MessageSent)))
        await until(lambda: not alice.channel.healthy)
        before = len(alice.of(SendingMessage))
        await trio.sleep(3_600)
        assert len(alice.of(SendingMessage)) == before
        assert alice.channel.unacknowledged == (message_id,)
        async with world.node("b", a) as b:
            bob = await join(b, "bob")
            await reachable(bob)
            await until(lambda: bob.received == [b"1"])
            await bob.channel.send(b"got it")
            await finished([alice])
        assert len(alice.of(ReliableMessageDelivered)) == 1


async def test_what_is_sent_while_nobody_can_be_reached_is_delivered_later() -> None:
    async with open_waku_world() as world, world.node("a") as a:
        alice = await join(a, "alice")
        payloads = [b"%d" % number for number in range(20)]
        for payload in payloads:
            await alice.channel.send(payload)
        await trio.sleep(600)
        async with world.node("b", a) as b:
            bob = await join(b, "bob")
            await until(lambda: bob.received == payloads, seconds=300)
            await bob.channel.send(b"got them")
            await finished([alice], seconds=300)
    assert alice.of(ReliableMessageSendError) == alice.of(ReliableMessageDeliveryError) == []


async def test_retries_are_those_of_each_segment() -> None:
    """Interaction with retries: a segment that is acknowledged is not sent again, the others are."""
    async with open_pair(options=SMALL) as (alice, bob, _):
        bob_takes = bob.channel.conversation.receive
        seen: list[bytes] = []

        def lossy(data: bytes, now_ns: int, hint: bytes | None) -> object:
            message = decode_sds(data)
            if message.content and data not in seen and decode_segment(message.content).index == 1:
                seen.append(data)
                return None  # the first time it is lost
            return bob_takes(data, now_ns, hint)

        bob.channel.conversation.receive = lossy  # pyright: ignore[reportAttributeAccessIssue]
        await alice.channel.send(bytes(2_500))
        await until(lambda: bob.received == [bytes(2_500)])
        await finished([alice])
    assert len(seen) == 1
    assert len(bob.of(MessageReceived)) == 1
