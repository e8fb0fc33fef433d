"""The filter client (12/WAKU2-FILTER): subscribes at service nodes, and takes what they push."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, cast

import trio

from pywaku.errors import DecodeError, InvalidInput, NetworkError, NodeClosed
from pywaku.gossip.seen import SeenCache
from pywaku.ids import PeerId
from pywaku.network.frames import FrameReader, request
from pywaku.network.port import Network, Stream
from pywaku.protocols.filter.counters import FilterClientCounters
from pywaku.protocols.filter.interests import Interests
from pywaku.protocols.filter.options import FilterClientOptions
from pywaku.protocols.filter.table import Criterion
from pywaku.protocols.relay.counters import RelayCounters
from pywaku.protocols.relay.delivery import Delivery, ReceivedMessage, Sink, Subscription
from pywaku.protocols.request_id import new_request_id
from pywaku.wire.filter import (
    MAX_CONTENT_TOPICS,
    PUSH_PROTOCOL,
    SUBSCRIBE_PROTOCOL,
    FilterSubscribeRequest,
    FilterSubscribeType,
    decode_push,
    decode_subscribe_response,
    encode_subscribe_request,
)

logger = logging.getLogger(__name__)

_MAX_RESPONSE: Final = 8 * 1024
_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class FilterResult:
    """What a service node answered: a code as in HTTP, and what it said about it."""

    status: int
    description: str = ""

    @property
    def is_success(self) -> bool:
        """Whether the request was honoured (the code is in the 2xx range)."""
        return 200 <= self.status < 300


@asynccontextmanager
async def open_filter_client(
    network: Network, *, options: FilterClientOptions | None = None, rng: random.Random | None = None
) -> AsyncGenerator[FilterClient, None]:
    """Be a filter client on `network`. Leaving ends what the application waits for; it tells no peer."""
    client = FilterClient(network, options or FilterClientOptions(), rng or random.Random())
    client.start()
    try:
        yield client
    finally:
        client.close()


class FilterClient:
    """Subscriptions at service nodes, and the messages that they push. Made by `open_filter_client`.

    Requests return what the node answered, and raise `NetworkError` where it did not: `NotConnected` and
    `StreamReset` (the connection is lost), `RequestTimeout`, `ProtocolNotSupported`, or `NetworkError` itself
    for an answer that cannot be understood.

    Nodes forget a subscription that is not refreshed: `ping` once a minute, and subscribe anew when that
    fails.
    """

    def __init__(self, network: Network, options: FilterClientOptions, rng: random.Random) -> None:
        self.counters = FilterClientCounters()
        """What has happened so far."""
        self._network = network
        self._options = options
        self._rng = rng
        self._interests = Interests()
        self._seen = SeenCache(options.seen_ttl_s, options.max_seen)
        # Of relay's counters delivery touches only the two that ours have as well.
        self._delivery = Delivery(cast(RelayCounters, self.counters))
        self._readers: set[trio.CancelScope] = set()
        self._subscribing: dict[PeerId, set[object]] = {}  # requests under way at nodes not forgotten since
        self._closed = False

    @property
    def peers(self) -> frozenset[PeerId]:
        """The service nodes at which something is subscribed."""
        return self._interests.peers

    def criteria_at(self, peer: PeerId) -> tuple[Criterion, ...]:
        """What is subscribed at a service node."""
        return self._interests.at(peer)

    # Ask

    async def subscribe(
        self, peer: PeerId, pubsub_topic: str, content_topics: Sequence[str], *, timeout: float = _TIMEOUT_S
    ) -> FilterResult:
        """Have a node push the messages of these content topics; adds to, or refreshes, what is there.

        More than 100 content topics go in several requests; the first that is refused ends it, and its result
        is returned. What was subscribed before stays so.
        """
        result = FilterResult(200)
        for topics in _portions(pubsub_topic, content_topics):
            new = self._interests.add(peer, pubsub_topic, topics)  # pushes may overtake the answer
            mark = object()
            self._subscribing.setdefault(peer, set()).add(mark)
            done = False
            try:
                result = await self._ask(peer, FilterSubscribeType.SUBSCRIBE, pubsub_topic, topics, timeout)
                done = result.is_success
            finally:
                if not done:
                    self._interests.remove(peer, pubsub_topic, new)
                elif mark in self._subscribing.get(peer, ()):
                    self._interests.add(peer, pubsub_topic, topics)  # whatever was unsubscribed meanwhile
                self._unmark(peer, mark)
            if not result.is_success:
                break
        return result

    def _unmark(self, peer: PeerId, mark: object) -> None:
        marks = self._subscribing.get(peer)
        if marks is not None:
            marks.discard(mark)
            if not marks:
                del self._subscribing[peer]

    async def unsubscribe(
        self, peer: PeerId, pubsub_topic: str, content_topics: Sequence[str], *, timeout: float = _TIMEOUT_S
    ) -> FilterResult:
        """Have a node push these no longer. Whatever it answers, they are not taken from it any more."""
        result = FilterResult(200)
        for topics in _portions(pubsub_topic, content_topics):
            self._interests.remove(peer, pubsub_topic, topics)
            answer = await self._ask(peer, FilterSubscribeType.UNSUBSCRIBE, pubsub_topic, topics, timeout)
            if not answer.is_success:
                result = answer
        return result

    async def unsubscribe_all(self, peer: PeerId, *, timeout: float = _TIMEOUT_S) -> FilterResult:
        """Have a node push nothing. Whatever it answers, nothing is taken from it any more."""
        self._interests.forget(peer)
        return await self._ask(peer, FilterSubscribeType.UNSUBSCRIBE_ALL, None, (), timeout)

    async def ping(self, peer: PeerId, *, timeout: float = _TIMEOUT_S) -> FilterResult:
        """Ask a node whether it has a subscription of ours, which keeps that alive; 404 if it has none."""
        return await self._ask(peer, FilterSubscribeType.SUBSCRIBER_PING, None, (), timeout)

    def forget(self, peer: PeerId) -> None:
        """Take nothing from a node any more, without telling it: it is gone, or was replaced.

        That holds for what is being subscribed there as well.
        """
        self._interests.forget(peer)
        self._subscribing.pop(peer, None)

    async def _ask(
        self,
        peer: PeerId,
        kind: FilterSubscribeType,
        pubsub_topic: str | None,
        content_topics: tuple[str, ...],
        timeout: float,
    ) -> FilterResult:
        if self._closed:
            raise NodeClosed("the filter client is closed")
        counters = self.counters
        counters.requests += 1
        request_id = new_request_id(self._rng)
        question = FilterSubscribeRequest(request_id, kind, pubsub_topic, content_topics)
        try:
            answer = decode_subscribe_response(
                await request(
                    self._network,
                    peer,
                    SUBSCRIBE_PROTOCOL,
                    encode_subscribe_request(question),
                    max_response=_MAX_RESPONSE,
                    timeout=timeout,
                )
            )
            if answer.is_success and answer.request_id != request_id:
                raise NetworkError(f"{peer.short()} answered another filter request")
        except DecodeError as error:
            counters.failed += 1
            raise NetworkError(f"{peer.short()} gave no proper answer to a filter request: {error}") from None
        except NetworkError:
            counters.failed += 1
            raise
        if not answer.is_success:
            counters.refused += 1
        return FilterResult(answer.status_code, answer.status_desc or "")

    # Take

    def messages(
        self,
        pubsub_topic: str,
        *,
        content_topics: Collection[str] | None = None,
        capacity: int = 1000,
        on_end: Callable[[], None] | None = None,
    ) -> Subscription:
        """The messages of a pubsub topic that nodes push from now on, each once: an async iterator.

        With `content_topics` only those of these. At most `capacity` wait; what comes while it is full is
        dropped and counted. `on_end` is called when the iterator is closed.
        """
        self._require_open()

        def leave(ended: Subscription) -> None:
            self._delivery.remove(pubsub_topic, ended.offer)
            if on_end is not None:
                on_end()

        subscription = Subscription(pubsub_topic, capacity, self._delivery, leave)
        if content_topics is not None:
            subscription.content_topics = frozenset(content_topics)
        self._delivery.add(pubsub_topic, subscription.offer)
        return subscription

    def subscribe_callback(self, pubsub_topic: str, callback: Sink) -> Callable[[], None]:
        """Call `callback` at once with each message of a pubsub topic; returns the call that ends it.

        It must not block. What it raises is logged and goes no further.
        """
        self._require_open()

        def sink(received: ReceivedMessage) -> None:
            callback(received)

        self._delivery.add(pubsub_topic, sink)

        def leave() -> None:
            self._delivery.remove(pubsub_topic, sink)

        return leave

    def _require_open(self) -> None:
        if self._closed:
            raise NodeClosed("the filter client is closed")

    # Live

    def start(self) -> None:
        """Begin; `open_filter_client` does this."""
        self._network.serve(
            PUSH_PROTOCOL, self._serve, max_streams_per_peer=self._options.max_streams_per_peer
        )

    def close(self) -> None:
        """Stop; `open_filter_client` does this."""
        self._closed = True
        self._network.unserve(PUSH_PROTOCOL)
        for scope in self._readers:
            scope.cancel()
        self._delivery.close()

    async def _serve(self, stream: Stream) -> None:
        """Read one push stream to its end."""
        peer = stream.peer
        if peer not in self._interests:
            self.counters.strangers += 1
            stream.reset()
            return
        self.counters.streams += 1
        scope = trio.CancelScope()  # the task is the network's, so the client must end it by itself
        self._readers.add(scope)
        try:
            with scope:
                await self._read(stream, peer)
        except DecodeError as error:
            self.counters.undecodable += 1
            stream.reset()
            logger.debug("push stream refused peer=%s error=%s", peer.short(), error)
        except NetworkError as error:
            logger.debug("push stream ended peer=%s error=%s", peer.short(), error)
        finally:
            self._readers.discard(scope)

    async def _read(self, stream: Stream, peer: PeerId) -> None:
        reader = FrameReader(stream, self._options.max_push)
        while frames := await reader.read_all_available():
            now = trio.current_time()
            self._seen.expire(now)
            for data in frames:
                self._take_in(peer, data, now)
                if self._delivery.pressed:
                    await self._delivery.wait_for_room(self._options.delivery_wait_s)

    def _take_in(self, peer: PeerId, data: bytes, now: float) -> None:
        counters = self.counters
        counters.received += 1
        counters.bytes_in += len(data)
        try:
            push = decode_push(data)
        except DecodeError as error:
            counters.undecodable += 1
            logger.debug("push refused peer=%s error=%s", peer.short(), error)
            return
        message = push.message
        pubsub_topic = self._interests.topic_of(peer, push.pubsub_topic, message.content_topic)
        if pubsub_topic is None:
            counters.unwanted += 1
            return
        received = ReceivedMessage(pubsub_topic, message, peer)
        if received.message_hash in self._seen.ids:
            counters.duplicates += 1
            return
        self._seen.add(received.message_hash, now)
        counters.delivered += 1
        if self._delivery.wanted(pubsub_topic):
            self._delivery.hand_out(received)


def _portions(pubsub_topic: str, content_topics: Sequence[str]) -> list[tuple[str, ...]]:
    """The content topics, in as many parts as requests are needed."""
    topics = tuple(dict.fromkeys(content_topics))
    if isinstance(content_topics, str) or not pubsub_topic or not topics or not all(topics):
        raise InvalidInput("filter criteria are a pubsub topic and a list of at least one content topic")
    return [topics[start : start + MAX_CONTENT_TOPICS] for start in range(0, len(topics), MAX_CONTENT_TOPICS)]
