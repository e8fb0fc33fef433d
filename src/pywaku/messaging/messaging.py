"""The Messaging API: send, subscribe, records, health and events, on whichever transport a node has."""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable, Collection

import trio

from pywaku.errors import InvalidInput, LimitExceeded, NodeClosed, UnsupportedTopic
from pywaku.ids import PeerId
from pywaku.message import WakuMessage, message_hash
from pywaku.messaging.background import Background
from pywaku.messaging.events import Events
from pywaku.messaging.history import History
from pywaku.messaging.inbox import Inbox
from pywaku.messaging.record import (
    BACKGROUND_SUBSCRIPTION,
    Decoder,
    Encoder,
    Message,
    MessageRecord,
    RequestId,
    SubscriptionId,
    require_decoder,
    require_encoder,
)
from pywaku.messaging.records import Recorder
from pywaku.messaging.reports import Reports
from pywaku.messaging.sender import Sender
from pywaku.messaging.storage import MessageStorage
from pywaku.messaging.subscriptions import Subscription, SubscriptionListener, run_listener
from pywaku.messaging.wanting import Wanting
from pywaku.protocols.relay import MAX_MESSAGE_SIZE, MessageRefused
from pywaku.protocols.store import StoreMessages
from pywaku.wire.message import encode_message

logger = logging.getLogger(__name__)

MAX_SUBSCRIPTIONS = 10_000
"""Subscriptions at a time."""
_ESTABLISHED_WITHIN_S = 5.0
_ROOM_FOR_FIELDS = 1024  # the bytes of a message that are not its payload, topic, meta and proof


class Messaging:
    """What the application does with messages. Made by `open_messaging`; `Node` passes its calls on to it."""

    def __init__(
        self,
        pubsub_topics: Collection[str],
        recorder: Recorder,
        reports: Reports,
        events: Events,
        sender: Sender,
        inbox: Inbox,
        wanting: Wanting,
        background: Background,
        nursery: trio.Nursery,
        *,
        clock: Callable[[], int],
        rng: random.Random,
        subscribe_on_send: bool,
    ) -> None:
        self.events = events
        self.messages = MessageStorage(recorder)
        self.inbox = inbox
        self._pubsub_topics = pubsub_topics
        self._recorder = recorder
        self.reports = reports
        """Where the event journal is written to."""
        self._sender = sender
        self._wanting = wanting
        self._background = background
        self._nursery = nursery
        self._clock = clock
        self._rng = rng
        self._subscribe_on_send = subscribe_on_send
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        self._closed = False

    # Send

    def send(self, encoder: Encoder, message: Message, *, request_id: RequestId | None = None) -> RequestId:
        """See `Node.send`. A `request_id` is that of whoever sees to it that no two requests share one."""
        self.require_open()
        if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"send takes a Message, not a {type(message).__name__}")
        require_encoder(encoder)
        pubsub_topic = encoder.pubsub_topic
        self._require_supported(pubsub_topic, "Failed to send message. Target")
        self._sender.require_room()
        now_ns = self._clock()
        encoded = encoder.encode(message, now_ns)
        _require_encoded(encoder, encoded)
        request_id = request_id or self._guid()
        record = MessageRecord(
            message_hash(pubsub_topic, encoded),
            pubsub_topic,
            encoded,
            sending=True,
            request_id=request_id,
            created_ns=now_ns,
            updated_ns=now_ns,
        )
        self._recorder.accept(record)
        self.reports.requested(record)
        if self._subscribe_on_send:
            self._background.sent_on(pubsub_topic, encoded.content_topic)
        self._sender.submit(record)
        return request_id

    def cancel_request(self, request_id: RequestId) -> None:
        """See `Node.cancel_request`."""
        self._sender.cancel(request_id)

    def is_pending(self, request_id: RequestId) -> bool:
        """Is this one of the pending requests?"""
        return self._sender.is_pending(request_id)

    @property
    def pending_requests(self) -> tuple[RequestId, ...]:
        """See `Node.pending_requests`."""
        return self._sender.pending

    # Subscribe

    async def subscribe(
        self, decoder: Decoder, listener: SubscriptionListener | None, capacity: int
    ) -> Subscription:
        """See `Node.subscribe`."""
        self.require_open()
        if listener is not None and not callable(listener):
            raise InvalidInput(f"listener: is a function of one record, not {listener!r}")
        require_decoder(decoder)
        self._require_supported(decoder.pubsub_topic, "Cannot create subscription.")
        WakuMessage(b"", decoder.content_topic)  # raises for a content topic that no message can have
        if len(self._subscriptions) >= MAX_SUBSCRIPTIONS:
            raise LimitExceeded(f"{MAX_SUBSCRIPTIONS} subscriptions are the most at a time")
        subscription = Subscription(self._guid(), decoder, capacity, self.unsubscribe)
        self._subscriptions[subscription.id] = subscription
        self.inbox.add(subscription)
        self._wanting.want(subscription.pubsub_topic, subscription.content_topic)
        if listener is not None:
            self._nursery.start_soon(run_listener, subscription, listener)
        try:
            with trio.move_on_after(_ESTABLISHED_WITHIN_S):
                await self._wanting.established(subscription.pubsub_topic, subscription.content_topic)
            await trio.lowlevel.checkpoint()
        except BaseException:
            subscription.unsubscribe()  # the caller will never know of it
            raise
        return subscription

    def unsubscribe(self, subscription_id: SubscriptionId) -> None:
        """See `Node.unsubscribe`."""
        if subscription_id == BACKGROUND_SUBSCRIPTION:
            self._background.end()
            return
        subscription = self._subscriptions.pop(subscription_id, None)
        if subscription is not None:
            self.inbox.remove(subscription)
            self._wanting.want_no_more(subscription.pubsub_topic, subscription.content_topic)
            subscription.close()

    @property
    def active_subscriptions(self) -> tuple[SubscriptionId, ...]:
        """See `Node.active_subscriptions`."""
        background = (BACKGROUND_SUBSCRIPTION,) if self._background.active else ()
        return (*background, *self._subscriptions)

    # History

    def history(self, messages: StoreMessages) -> History:
        """What stores give is recorded as it is read."""
        return History(messages, self._recorder, self._sender, self._clock)

    # Live

    def go_on(self, record: MessageRecord) -> bool:
        """Go on with a send of an earlier life of the node; False if it is on a topic it no longer has."""
        if record.pubsub_topic not in self._pubsub_topics:
            return False
        self._sender.submit(record, resumed=True)
        return True

    async def finish(self) -> None:
        """Take no more, and see that what was given to `send` was tried at least once."""
        self._closed = True
        await self._sender.tried()

    def close(self) -> None:
        """End all subscriptions."""
        self._closed = True
        for subscription in self._subscriptions.values():
            subscription.close()

    # Within

    def echoed(self, hash_: bytes, peer: PeerId) -> None:
        """A peer has sent a message of this node back by relay."""
        record = self._sender.echoed(hash_, peer)
        if record is not None:
            self.inbox.came_back(record, peer)

    def _guid(self) -> str:
        """A GUID that begins with the time (version 7 of RFC 9562), so that an index of them only grows."""
        milliseconds = self._clock() // 1_000_000 & (1 << 48) - 1
        high, low = self._rng.getrandbits(12), self._rng.getrandbits(62)
        return str(uuid.UUID(int=milliseconds << 80 | 7 << 76 | high << 64 | 2 << 62 | low))

    def require_open(self) -> None:
        """Raises `NodeClosed` where it is."""
        if self._closed:
            raise NodeClosed("the node is closed")

    def _require_supported(self, pubsub_topic: str, what: str) -> None:
        if pubsub_topic not in self._pubsub_topics:
            has = ", ".join(sorted(self._pubsub_topics)[:3])
            raise UnsupportedTopic(f"{what} pubsubTopic '{pubsub_topic}' not supported; this node has {has}")


def _require_encoded(encoder: Encoder, message: WakuMessage) -> None:
    """What an encoder has made is a message of its topic, and not too large to be relayed."""
    if not isinstance(message, WakuMessage):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"an encoder makes a WakuMessage, not a {type(message).__name__}")
    if message.content_topic != encoder.content_topic:
        raise InvalidInput(
            f"an encoder for {encoder.content_topic} made a message of {message.content_topic}"
        )
    proof = len(message.rate_limit_proof or b"")
    if len(message.payload) + len(message.content_topic) + proof + _ROOM_FOR_FIELDS > MAX_MESSAGE_SIZE:
        size = len(encode_message(message))
        if size > MAX_MESSAGE_SIZE:
            text = f"Message size exceeded maximum of {MAX_MESSAGE_SIZE} bytes: it has {size} when encoded"
            raise MessageRefused("size", text, size=size)
