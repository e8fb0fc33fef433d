"""Subscriptions of the application (MESSAGING-API, Subscribe): what each has not read yet, within a bound."""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

import trio

from pywaku.errors import InvalidInput
from pywaku.messaging.record import Decoder, MessageRecord, SubscriptionId
from pywaku.protocols.relay.failures import Failures

logger = logging.getLogger(__name__)

SubscriptionListener = Callable[[MessageRecord], Awaitable[None] | None]
"""Called with each message that is received; what it raises is logged and ignored."""

_CHECKPOINT_EVERY: Final = 32  # a consumer that never waits lets others run after as many messages


class Subscription:
    """The messages that a decoder reads: `async for record in subscription`. Made by `Node.subscribe`.

    `record.message` is what the decoder made of the message; `record.message_hash` is that of the message on
    the wire. Each message comes once, whichever way and however often it arrives; in no particular order.

    At most `capacity` messages wait. When it is full, the newest is dropped and counted in `dropped`; before
    that the node pauses for a consumer that merely waits for its turn. After `unsubscribe` the iteration ends
    with the messages that waited; a listener gets none of them. Several tasks may share one subscription;
    each message goes to one of them.
    """

    def __init__(
        self,
        subscription_id: SubscriptionId,
        decoder: Decoder,
        capacity: int,
        leave: Callable[[SubscriptionId], None],
    ) -> None:
        if not isinstance(capacity, int) or capacity < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"capacity is at least 1, not {capacity!r}")
        self.id = subscription_id
        self.decoder = decoder
        self.pubsub_topic = decoder.pubsub_topic
        self.content_topic = decoder.content_topic
        self.capacity = capacity
        self.dropped = 0
        """Messages that found the subscription full."""
        self.taken = 0
        """Messages that were read."""
        self._leave = leave
        self._queue: deque[MessageRecord] = deque()
        self._closed = False
        self._waiting = trio.lowlevel.ParkingLot()

    def __repr__(self) -> str:
        return f"<Subscription {self.id} {self.content_topic}>"

    def __len__(self) -> int:
        return len(self._queue)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageRecord:
        if self.taken % _CHECKPOINT_EVERY == _CHECKPOINT_EVERY - 1:
            await trio.lowlevel.checkpoint()
        while not self._queue:
            if self._closed:
                raise StopAsyncIteration
            await self._waiting.park()
        self.taken += 1
        return self._queue.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unsubscribe()

    @property
    def crowded(self) -> bool:
        """Is it half full?"""
        return len(self._queue) * 2 >= self.capacity

    def unsubscribe(self) -> None:
        """Take no further messages. A second call does nothing."""
        if not self._closed:
            self._leave(self.id)

    @property
    def closed(self) -> bool:
        """Does it take no further messages?"""
        return self._closed

    def offer(self, record: MessageRecord) -> bool:
        """Take a message, if there is room; the node calls this."""
        if len(self._queue) >= self.capacity:
            self.dropped += 1
            return False
        self._queue.append(record)
        if self._waiting:
            self._waiting.unpark()
        return True

    def close(self) -> None:
        """No further messages come; the node calls this."""
        self._closed = True
        self._waiting.unpark_all()

    def read(self, record: MessageRecord) -> MessageRecord | None:
        """The record as the application sees it, or None if it is not for this decoder.

        Raises what the decoder raises.
        """
        payload = self.decoder.decode(record.message)
        if payload is None:
            return None
        if payload is record.message.payload:
            return record
        return replace(record, message=replace(record.message, payload=payload))


async def run_listener(subscription: Subscription, listener: SubscriptionListener) -> None:
    """Call a listener with each message of a subscription, one after the other, as they are received.

    Once it has ended nothing further reaches the listener, also not what waited (MESSAGING-API, unsubscribe).
    """
    failures = Failures()
    async for record in subscription:
        if subscription.closed:
            return
        try:
            outcome = listener(record)
            if inspect.isawaitable(outcome):
                await outcome
        except Exception as error:
            failures.log(logger, f"listener of subscription {subscription.id}", error)
