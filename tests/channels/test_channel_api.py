"""RELIABLE-CHANNEL-API, both versions: what an application can do with a channel, and what it is told."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import trio

import pywaku
from pywaku.channels.events import (
    ChunkInfo,
    EphemeralMessageDropped,
    MessageAcknowledged,
    MessagePossiblyAcknowledged,
    MessageReceived,
    MessageSent,
    ReliableMessageDelivered,
    ReliableMessageDeliveryError,
    ReliableMessageReceived,
    ReliableMessageSendError,
    ReliableMessageSent,
    SendingMessage,
    SendingMessageIrrecoverableError,
)
from pywaku.errors import InvalidInput, LimitExceeded
from pywaku.journal import read_journal
from pywaku.segments import SegmentationConfig
from tests.support.channel_nodes import finished, join, open_pair, reachable
from tests.support.waku_nodes import open_waku_world, until

pytestmark = pytest.mark.virtual

SMALL = pywaku.ReliableChannelOptions(segmentation=SegmentationConfig(segment_size_bytes=1_000))
ONE = ChunkInfo((0,), 1)


# Send, and what is told


async def test_a_message_is_received_and_acknowledged_in_both_vocabularies() -> None:
    async with open_pair() as (alice, bob, _):
        message_id = await alice.channel.send(b"hello")
        await until(lambda: bob.received == [b"hello"])
        assert bob.events == [MessageReceived(b"hello", "alice"), ReliableMessageReceived(b"hello", "alice")]
        assert alice.channel.unacknowledged == (message_id,)
        await bob.channel.send(b"hello yourself")
        await finished([alice])
        told = [each for each in alice.about(message_id) if not isinstance(each, MessagePossiblyAcknowledged)]
        assert told == [
            SendingMessage(message_id, ONE),
            MessageSent(message_id, ONE),
            ReliableMessageSent(message_id),
            MessageAcknowledged(message_id, ONE),
            ReliableMessageDelivered(message_id, ("bob",)),
        ]


async def test_sync_messages_acknowledge_what_nobody_answers() -> None:
    async with open_pair() as (alice, bob, _):
        message_id = await alice.channel.send(b"hello")
        await finished([alice])
        assert alice.events[-1] == ReliableMessageDelivered(message_id, ("bob",))
        assert bob.channel.conversation.sds.counters.syncs_sent > 0
        assert bob.received == [b"hello"]


async def test_large_messages_should_be_segmented_tracked_and_reassembled_in_order() -> None:
    payload = bytes(range(256)) * 20
    async with open_pair(options=SMALL) as (alice, bob, _):
        message_id = await alice.channel.send(payload)
        await until(lambda: bob.received == [payload])
        await finished([alice])
        sending = [event.chunk_info for event in alice.of(SendingMessage)]
        assert sending[:6] == [ChunkInfo(tuple(range(count + 1)), 6) for count in range(6)]
        acknowledged = [event.chunk_info.chunks for event in alice.of(MessageAcknowledged)]
        assert all(set(one) < set(other) for one, other in itertools.pairwise(acknowledged))
        assert acknowledged[-1] == tuple(range(6))
        assert len(alice.of(ReliableMessageSent)) == 1
        assert {event.message_id for event in alice.of(SendingMessage)} == {message_id}
        assert bob.names.count("message-received") == bob.names.count("reliable:message:received") == 1


async def test_each_segment_is_a_request_of_its_own_named_after_that_of_the_message() -> None:
    """RELIABLE-CHANNEL-API, RequestId: Req_a yields Req_a:1 to Req_a:N."""
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        alice, bob = await join(a, "alice", options=SMALL), await join(b, "bob")
        await reachable(alice, bob)
        message_id = await alice.channel.send(bytes(2_500))
        await finished([alice])
        for number in (1, 2, 3):
            record = await a.messages.get_by_request_id(f"{message_id}:{number}")
            assert record is not None
            assert record.propagated
        assert await a.messages.get_by_request_id(f"{message_id}:4") is None


async def test_a_message_that_nobody_acknowledges_is_sent_as_often_as_the_options_say_then_given_up() -> None:
    options = pywaku.ReliableChannelOptions(acknowledgement_timeout_ms=3_000, max_retransmissions=2)
    async with open_waku_world() as world, world.node("a") as a, world.node("deaf", a):
        alice = await join(a, "alice", options=options)
        await reachable(alice)
        message_id = await alice.channel.send(b"is anybody there?")
        await finished([alice])
        sent = [
            at for at, event in zip(alice.at, alice.events, strict=True) if isinstance(event, SendingMessage)
        ]
        assert len(sent) == 3
        assert [round(after - before) for before, after in itertools.pairwise(sent)] == [3, 3]
        error, later = alice.events[-2:]
        assert isinstance(error, SendingMessageIrrecoverableError)
        assert isinstance(later, ReliableMessageDeliveryError)
        assert later.request_id == error.message_id == message_id
        await trio.sleep(60)
        assert alice.events[-1] is later


@pytest.mark.parametrize(
    ("payload", "words"),
    [(b"", "empty"), (bytes(255 * 1_000 + 1), "255 segments")],
    ids=["empty", "too large"],
)
async def test_what_can_never_be_sent_has_an_irrecoverable_error(payload: bytes, words: str) -> None:
    async with open_pair(options=SMALL) as (alice, bob, _):
        message_id = await alice.channel.send(payload)
        error, later = alice.events
        assert isinstance(error, SendingMessageIrrecoverableError)
        assert error.message_id == message_id
        assert words in error.error
        assert later == ReliableMessageSendError(message_id, error.error)
        assert alice.channel.unacknowledged == ()
        await trio.sleep(60)
        assert len(alice.events) == 2
        assert bob.events == []


async def test_bare_content_is_limited_to_one_segment() -> None:
    options = pywaku.ReliableChannelOptions.js_waku()
    async with open_pair(options=options) as (alice, bob, _):
        await alice.channel.send(bytes(102_401))
        assert isinstance(alice.events[0], SendingMessageIrrecoverableError)
        await alice.channel.send(bytes(102_400))
        await until(lambda: bob.received == [bytes(102_400)])


async def test_a_payload_is_bytes() -> None:
    async with open_pair() as (alice, _, _):
        for send in (alice.channel.send, alice.channel.send_ephemeral):
            with pytest.raises(InvalidInput, match="bytes, not str"):
                await send("text")  # pyright: ignore[reportArgumentType]
        assert alice.events == []


async def test_send_refuses_more_than_may_be_unacknowledged_and_nothing_of_it_is_sent() -> None:
    options = pywaku.ReliableChannelOptions(
        max_unacknowledged=4, segmentation=SegmentationConfig(segment_size_bytes=10)
    )
    async with open_pair(options=options) as (alice, bob, _):
        await alice.channel.send(bytes(20))
        with pytest.raises(LimitExceeded, match="not acknowledged yet"):
            await alice.channel.send(bytes(30))
        await alice.channel.send(b"1")
        await alice.channel.send(b"2")
        await finished([alice])
        assert bob.received == [bytes(20), b"1", b"2"]
        await alice.channel.send(bytes(30))
        await until(lambda: len(bob.received) == 4)


async def test_the_same_payload_twice_is_two_messages() -> None:
    async with open_pair() as (alice, bob, _):
        one, other = [await alice.channel.send(b"again") for _ in range(2)]
        assert one != other
        await finished([alice])
        assert bob.received == [b"again", b"again"]


# Ephemeral messages


async def test_ephemeral_messages_are_sent_once_and_neither_tracked_nor_logged() -> None:
    async with open_pair() as (alice, bob, _):
        message_id = await alice.channel.send_ephemeral(b"typing")
        await until(lambda: bob.received == [b"typing"])
        await trio.sleep(60)
        assert alice.events == [MessageSent(message_id, ONE)]
        assert bob.events[0] == MessageReceived(b"typing", "alice", ephemeral=True)
        assert len(bob.events) == 2
        for member in (alice, bob):
            assert member.channel.conversation.sds.sizes().log == 0
            assert member.channel.unacknowledged == ()


@pytest.mark.parametrize("payload", [b"", bytes(1_001)], ids=["empty", "too large"])
async def test_ephemeral_messages_are_never_segmented_but_rejected(payload: bytes) -> None:
    async with open_pair(options=SMALL) as (alice, _, _):
        message_id = await alice.channel.send_ephemeral(payload)
        assert [type(event) for event in alice.about(message_id)] == [
            SendingMessageIrrecoverableError,
            ReliableMessageSendError,
        ]


async def test_an_ephemeral_message_of_a_stopped_channel_is_dropped() -> None:
    async with open_pair() as (alice, bob, _):
        await alice.channel.stop()
        message_id = await alice.channel.send_ephemeral(b"typing")
        (event,) = alice.events
        assert isinstance(event, EphemeralMessageDropped)
        assert event.message_id == message_id
        await alice.channel.start()
        await trio.sleep(30)
        assert bob.events == []


# Participants, and whose acknowledgement counts


async def test_participants_are_those_who_were_heard() -> None:
    async with open_pair() as (alice, bob, _):
        assert alice.channel.participants() == ()
        await bob.channel.send(b"here")
        await until(lambda: bool(alice.received))
        await alice.channel.send(b"and here")
        await finished([alice, bob])
        (participant,) = alice.channel.participants()
        assert participant.sender_id == "bob"
        assert participant.acknowledged_id is not None
        assert [each.sender_id for each in bob.channel.participants()] == ["alice"]


async def test_acknowledgements_count_only_from_a_different_sender() -> None:
    """The same sender on two nodes: neither acknowledges what the other has sent."""
    options = pywaku.ReliableChannelOptions(acknowledgement_timeout_ms=2_000, max_retransmissions=1)
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        one, other = await join(a, "alice", options=options), await join(b, "alice", options=options)
        await reachable(one, other)
        await one.channel.send(b"hello")
        await finished([one])
        assert one.of(ReliableMessageDelivered) == []
        assert len(one.of(ReliableMessageDeliveryError)) == 1


@pytest.mark.parametrize("wanted", ["any", "all-known", frozenset({"bob", "carol"})], ids=str)
async def test_delivered_is_what_the_options_say(wanted: str | frozenset[str]) -> None:
    options = pywaku.ReliableChannelOptions(delivered_to=wanted)
    async with (
        open_waku_world() as world,
        world.node("a") as a,
        world.node("b", a) as b,
        world.node("c", a, b) as c,
    ):
        alice = await join(a, "alice", options=options)
        bob, carol = await join(b, "bob"), await join(c, "carol")
        await reachable(alice, bob, carol)
        for member in (bob, carol):
            await member.channel.send(b"here")
        await until(lambda: len(alice.received) == 2)
        await carol.channel.stop()
        await alice.channel.send(b"to whom?")
        await until(lambda: b"to whom?" in bob.received)
        await bob.channel.send(b"got it")
        await until(lambda: b"got it" in alice.received)
        await trio.sleep(3)
        delivered = alice.of(ReliableMessageDelivered)
        if wanted == "any":
            assert [each.acknowledged_by for each in delivered] == [("bob",)]
        else:
            assert delivered == []
            await carol.channel.start()
            await until(lambda: b"to whom?" in carol.received)
            await carol.channel.send(b"me too")
            await finished([alice])
            (event,) = alice.of(ReliableMessageDelivered)
            assert event.acknowledged_by == ("bob", "carol")


# Journal


async def test_the_journal_has_every_event_and_no_payloads(tmp_path: Path) -> None:
    async with open_waku_world() as world:
        async with world.node("a", journal_path=tmp_path / "journal") as a, world.node("b", a) as b:
            alice, bob = await join(a, "alice"), await join(b, "bob")
            await reachable(alice, bob)
            message_id = await alice.channel.send(b"a secret of theirs")
            await alice.channel.send(b"")
            await bob.channel.send(b"another one")
            await finished([alice, bob])
            await trio.sleep(1)
            told = alice.names
        rows = [row for row in read_journal(tmp_path / "journal").to_pylist() if row["channel_id"] == "room"]
        assert [row["event"] for row in rows] == told
        delivered = next(row for row in rows if row["event"] == "reliable:message:delivered")
        assert (delivered["channel_message_id"], delivered["done"]) == (message_id, 1)
        acknowledged = next(row for row in rows if row["event"] == "message-acknowledged")
        assert (acknowledged["done"], acknowledged["total"]) == (1, 1)
        received = next(row for row in rows if row["event"] == "message-received")
        assert (received["sender_id"], received["size"]) == ("bob", len(b"another one"))
        failed = next(row for row in rows if row["event"] == "reliable:message:send-error")
        assert failed["error"] == "empty payload"
        assert {row["sender_id"] for row in rows} == {"alice", "bob"}
        files = b"".join(file.read_bytes() for file in (tmp_path / "journal").rglob("*.parquet"))
        assert b"secret" not in files
