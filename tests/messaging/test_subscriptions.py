"""Subscriptions: what reaches an iteration and a listener, and what does not (MESSAGING-API, Subscribe)."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio
import trio.testing

from pywaku.errors import DecodeError, InvalidInput
from pywaku.message import WakuMessage, message_hash
from pywaku.messaging.record import MessageRecord, PlainCodec
from pywaku.messaging.subscriptions import Subscription, SubscriptionListener, run_listener

SHARD = "/waku/2/rs/42/0"
TOPIC = "/test/1/subscriptions/proto"
CODEC = PlainCodec(TOPIC, SHARD)


def record(number: int) -> MessageRecord:
    """A message that came."""
    message = WakuMessage(b"%d" % number, TOPIC)
    return MessageRecord(message_hash(SHARD, message), SHARD, message, received=True)


def subscription(capacity: int = 10) -> Subscription:
    """One that nobody else knows; leaving closes it."""
    made: Subscription

    def leave(_: str) -> None:
        made.close()

    made = Subscription("id", CODEC, capacity, leave)
    return made


@asynccontextmanager
async def listening(to: Subscription, listener: SubscriptionListener) -> AsyncGenerator[Callable[[], None]]:
    """A listener at work; it ends with the subscription or the block."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_listener, to, listener)
        yield nursery.cancel_scope.cancel
        nursery.cancel_scope.cancel()


async def test_messages_come_in_the_order_in_which_they_were_offered_and_end_with_unsubscribe() -> None:
    messages = subscription()
    for number in range(3):
        assert messages.offer(record(number))
    assert len(messages) == 3
    messages.unsubscribe()
    assert [each.message.payload async for each in messages] == [b"0", b"1", b"2"]
    assert messages.taken == 3
    messages.unsubscribe()


async def test_a_full_subscription_drops_the_newest_and_counts_it() -> None:
    messages = subscription(capacity=2)
    assert [messages.offer(record(number)) for number in range(5)] == [True, True, False, False, False]
    assert messages.dropped == 3
    assert messages.crowded
    assert (await anext(messages)).message.payload == b"0"
    assert messages.offer(record(9))
    messages.unsubscribe()
    assert [each.message.payload async for each in messages] == [b"1", b"9"]


async def test_a_consumer_that_waits_is_woken_and_one_that_never_waits_lets_others_run() -> None:
    messages = subscription(capacity=1000)
    heard: list[bytes] = []
    others = 0

    async def read() -> None:
        async for each in messages:
            heard.append(each.message.payload)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(1000):
            messages.offer(record(number))
        while len(heard) < 1000:
            others += 1
            await trio.lowlevel.checkpoint()
        messages.close()
    assert others >= 1000 // 32
    assert messages.taken == 1000


async def test_each_message_goes_to_one_of_the_tasks_that_share_a_subscription() -> None:
    messages = subscription(capacity=100)
    heard: list[bytes] = []

    async def read() -> None:
        async for each in messages:
            heard.append(each.message.payload)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(read)
        for number in range(50):
            messages.offer(record(number))
        messages.close()
    assert sorted(heard, key=int) == [b"%d" % number for number in range(50)]


def test_capacity_is_at_least_one() -> None:
    with pytest.raises(InvalidInput, match="capacity"):
        subscription(capacity=0)


# Listeners


@pytest.mark.virtual
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_listener_is_called_with_each_message_as_it_is_received(kind: str) -> None:
    messages = subscription()
    heard: list[bytes] = []

    def hear(each: MessageRecord) -> None:
        heard.append(each.message.payload)

    async def hear_slowly(each: MessageRecord) -> None:
        await trio.sleep(1)
        heard.append(each.message.payload)

    async with listening(messages, hear if kind == "sync" else hear_slowly):
        for number in range(3):
            messages.offer(record(number))
            await trio.sleep(1.1)
            assert heard == [b"%d" % each for each in range(number + 1)]


@pytest.mark.virtual
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_what_a_listener_raises_is_logged_and_ignored(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    messages = subscription()
    heard: list[bytes] = []

    def hear(each: MessageRecord) -> None:
        heard.append(each.message.payload)
        raise ValueError("it does that")

    async def hear_later(each: MessageRecord) -> None:
        await trio.lowlevel.checkpoint()
        hear(each)

    with caplog.at_level(logging.WARNING):
        async with listening(messages, hear if kind == "sync" else hear_later):
            messages.offer(record(1))
            messages.offer(record(2))
            await trio.sleep(1)
    assert heard == [b"1", b"2"]
    (line,) = caplog.records  # the next one is that of the tenth time
    assert line.message == "listener of subscription id failed error=ValueError failures=1"
    assert line.exc_info is not None


@pytest.mark.virtual
async def test_once_unsubscribed_a_listener_must_not_receive_any_further_messages() -> None:
    messages = subscription()
    heard: list[bytes] = []

    async def hear(each: MessageRecord) -> None:
        heard.append(each.message.payload)
        await trio.sleep(1)

    async with listening(messages, hear):
        for number in range(5):
            messages.offer(record(number))
        await trio.sleep(1.5)
        messages.unsubscribe()
        await trio.sleep(10)
    assert heard == [b"0", b"1"]


@pytest.mark.virtual
async def test_a_listener_can_unsubscribe_itself() -> None:
    messages = subscription()
    heard: list[bytes] = []

    def hear(each: MessageRecord) -> None:
        heard.append(each.message.payload)
        messages.unsubscribe()

    async with listening(messages, hear):
        for number in range(5):
            messages.offer(record(number))
        await trio.sleep(1)
    assert heard == [b"0"]


# Decoders


class _Shouting(PlainCodec):
    def decode(self, message: WakuMessage) -> bytes | None:
        """In capitals; digits are unreadable, and nothing is not for it."""
        if message.payload.isdigit():
            raise DecodeError("digits")
        return message.payload.upper() or None


def test_a_decoder_makes_what_is_read_and_the_hash_stays_that_of_the_wire() -> None:
    wire = replace(record(0), message=WakuMessage(b"quiet", TOPIC))
    messages = Subscription("id", _Shouting(TOPIC, SHARD), 1, lambda _: None)
    read = messages.read(wire)
    assert read is not None
    assert read.message.payload == b"QUIET"
    assert read.message_hash == wire.message_hash
    assert messages.read(replace(wire, message=WakuMessage(b"", TOPIC))) is None
    with pytest.raises(DecodeError):
        messages.read(record(1))


def test_a_decoder_filters_messages_by_content_topic() -> None:
    other = replace(record(0), message=WakuMessage(b"0", "/other/1/topic/proto"))
    assert subscription().read(other) is None
    mine = record(0)
    assert subscription().read(mine) is mine
