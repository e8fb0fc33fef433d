"""From accepted messages to those who asked for them: subscriptions with a bound, and plain callbacks."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Final, Self

import trio

from pywaku.errors import InvalidInput
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.protocols.relay.counters import RelayCounters
from pywaku.protocols.relay.failures import Failures
from pywaku.protocols.relay.hashed import HashedMessage
from pywaku.protocols.relay.patience import Patience

logger = logging.getLogger(__name__)

_CHECKPOINT_EVERY: Final = 32  # a consumer that never waits lets others run after as many messages


class ReceivedMessage(HashedMessage):
    """A message that arrived, or was published here (then `peer` is this node's own id)."""

    __slots__ = ("peer",)

    def __init__(self, pubsub_topic: str, message: WakuMessage, peer: PeerId) -> None:
        self.pubsub_topic = pubsub_topic
        self.message = message
        self.peer = peer
        self._hash = None

    def __repr__(self) -> str:
        return f"ReceivedMessage({self.pubsub_topic!r}, {self.message_hash.hex()}, {self.peer.short()})"


Sink = Callable[[ReceivedMessage], None]


class Subscription:
    """The messages of one pubsub topic: `async for received in subscription`.

    They come in the order in which they passed validation, which is that of their arrival, unless an
    asynchronous validator took longer for one than for another. Relay does not keep the order of publishing.

    At most `capacity` messages wait. When it is full, the newest message is dropped and counted in `dropped`.
    From half of it on reading from peers pauses for a consumer that merely waits for its turn, and for a slow
    one within a small budget (`RelayOptions.delivery_wait_s`), so that a slow consumer loses messages of its
    own and delays no other. With `content_topics` other messages are passed over: they take no room and wake
    nobody. After `unsubscribe` the iteration ends with the messages that waited. Several
    tasks may share one subscription; each message goes to one of them.
    """

    def __init__(
        self,
        pubsub_topic: str,
        capacity: int,
        delivery: Delivery,
        leave: Callable[[Subscription], None],
        *,
        content_topics: Collection[str] | None = None,
    ) -> None:
        if capacity < 1:
            raise InvalidInput("capacity is at least 1")
        if content_topics is not None and (isinstance(content_topics, str) or not content_topics):
            raise InvalidInput("content_topics is a list of at least one content topic, or None for all")
        self.pubsub_topic = pubsub_topic
        self.content_topics: Collection[str] | None = (
            None if content_topics is None else frozenset(content_topics)
        )
        """The content topics that are wanted; None: all."""
        self.capacity = capacity
        self.dropped = 0
        """Messages that found the subscription full."""
        self.taken = 0
        """Messages that were asked for."""
        self.patience = Patience()
        self._delivery = delivery
        self._leave = leave
        self._queue: deque[ReceivedMessage] = deque()
        self._high = max(1, capacity // 2)
        self._low = capacity // 4
        self._pressing = False
        self._closed = False
        self._waiting = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return len(self._queue)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        self.taken += 1
        if self.taken % _CHECKPOINT_EVERY == 0:
            await trio.lowlevel.checkpoint()
        queue = self._queue
        while not queue:
            if self._closed:
                raise StopAsyncIteration
            await self._waiting.park()
        received = queue.popleft()
        if self._pressing and len(queue) <= self._low:
            self._pressing = False
            self._delivery.relieve(self)
        return received

    async def unsubscribe(self) -> None:
        """Take no further messages; the topic is left with its last subscription."""
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """What `unsubscribe` does, without being a checkpoint."""
        if not self._closed:
            self._closed = True
            self._pressing = False
            self._delivery.relieve(self)
            self._waiting.unpark_all()
            self._leave(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def offer(self, received: ReceivedMessage) -> None:
        """Take a message, if it is wanted and there is room (relay calls this)."""
        wanted = self.content_topics
        if wanted is not None and received.message.content_topic not in wanted:
            return
        queue = self._queue
        waiting = len(queue)
        if waiting < self.capacity:
            queue.append(received)
            if self._waiting:
                self._waiting.unpark()
        else:
            self.dropped += 1
            self._delivery.missed()
        if waiting + 1 >= self._high and not self._pressing:
            self._pressing = self._delivery.press(self)

    def give_up(self) -> None:
        """Nobody waits for the consumer any more (relay calls this)."""
        self._pressing = False


class Delivery:
    """Who wants the messages of which topic."""

    def __init__(self, counters: RelayCounters) -> None:
        self._counters = counters
        self._sinks: dict[str, tuple[tuple[Sink, Failures], ...]] = {}
        self._pressed: dict[Subscription, None] = {}
        self._room = trio.lowlevel.ParkingLot()

    def add(self, topic: str, sink: Sink) -> bool:
        """Deliver to `sink` as well; True if it is the first of the topic."""
        sinks = self._sinks.get(topic, ())
        self._sinks[topic] = (*sinks, (sink, Failures()))
        return not sinks

    def remove(self, topic: str, sink: Sink) -> bool:
        """Deliver to `sink` no longer; True if it was the last of the topic."""
        sinks = self._sinks.get(topic, ())
        position = next((i for i, (known, _) in enumerate(sinks) if known == sink), None)
        if position is None:
            return False
        if len(sinks) > 1:
            self._sinks[topic] = sinks[:position] + sinks[position + 1 :]
            return False
        del self._sinks[topic]
        return True

    def wanted(self, topic: str) -> bool:
        """Does anyone want the messages of the topic?"""
        return topic in self._sinks

    def hand_out(self, received: ReceivedMessage) -> None:
        """Give a message to all who asked for its topic. What a callback raises is logged and ignored."""
        for sink, failures in self._sinks.get(received.pubsub_topic, ()):
            try:
                sink(received)
            except Exception as error:
                self._counters.callback_errors += 1
                failures.log(logger, "subscription callback", error)

    def close(self) -> None:
        """End all subscriptions."""
        for topic in list(self._sinks):
            for sink, _ in self._sinks.get(topic, ()):
                owner = getattr(sink, "__self__", None)
                if isinstance(owner, Subscription):
                    owner.close()
        self._sinks.clear()

    def missed(self) -> None:
        """A subscription had no room for a message."""
        self._counters.dropped_slow_subscription += 1

    @property
    def pressed(self) -> bool:
        """Is there a subscription to wait for?"""
        return bool(self._pressed)

    def press(self, subscription: Subscription) -> bool:
        """A subscription is half full; is it one to wait for?"""
        if not subscription.patience.begin(trio.current_time(), subscription.taken):
            return False
        self._pressed[subscription] = None
        return True

    def relieve(self, subscription: Subscription) -> None:
        """A subscription has room again (or is gone)."""
        if subscription in self._pressed:
            del self._pressed[subscription]
            subscription.patience.end(trio.current_time(), subscription.taken)
            if not self._pressed:
                self._room.unpark_all()

    async def wait_for_room(self, limit_s: float) -> None:
        """Let the subscriptions that are half full catch up, each as far as the patience with it lasts.

        `limit_s` is how long that is with one that was never waited for (see `Patience`).
        """
        while self._pressed:
            now = trio.current_time()
            shortest = limit_s
            for subscription in tuple(self._pressed):
                left = subscription.patience.left(now, subscription.taken, limit_s)
                if left:
                    shortest = min(shortest, left)
                else:
                    del self._pressed[subscription]
                    subscription.patience.give_up(now, subscription.taken)
                    subscription.give_up()
            if self._pressed:
                with trio.move_on_after(shortest):
                    await self._room.park()
            else:
                self._room.unpark_all()
