"""The filter service (12/WAKU2-FILTER): takes subscriptions, and pushes the messages that match them."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import trio

from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.network.port import Network, PeerConnected, PeerEvent
from pywaku.protocols.filter.counters import FilterServiceCounters
from pywaku.protocols.filter.link import PushLink
from pywaku.protocols.filter.options import FilterServiceOptions
from pywaku.protocols.filter.table import Criterion, Subscribed, SubscriptionTable
from pywaku.protocols.relay import ReceivedMessage, Relay
from pywaku.protocols.request_id import request_id_of
from pywaku.protocols.service import RequestService
from pywaku.tasks import open_service_nursery
from pywaku.wire.filter import (
    SUBSCRIBE_PROTOCOL,
    FilterSubscribeRequest,
    FilterSubscribeResponse,
    FilterSubscribeType,
    MessagePush,
    decode_subscribe_request,
    encode_push,
    encode_subscribe_response,
)
from pywaku.wire.framing import frame

logger = logging.getLogger(__name__)


class _Answer(NamedTuple):
    code: int
    text: str


_OK: Final = _Answer(200, "OK")
_NO_CRITERIA: Final = _Answer(400, "pubsubTopic and contentTopics must be specified")
_UNKNOWN_PEER: Final = _Answer(404, "peer has no subscriptions")
_UNKNOWN_CRITERIA: Final = _Answer(404, "peer is not subscribed to any of these content topics")
_TOO_MANY_REQUESTS: Final = _Answer(429, "filter request rejected due rate limit exceeded")
_FAILED: Final = _Answer(500, "the request failed at the service node")
_OTHER_SHARD: Final = "service node is not subscribed to pubsub topic "


@asynccontextmanager
async def open_filter_service(
    network: Network, relay: Relay, *, options: FilterServiceOptions | None = None
) -> AsyncGenerator[FilterService, None]:
    """Serve filter: push what arrives by `relay` to the peers that subscribe.

    A pubsub topic stays joined for as long as peers have subscriptions on it. What this node publishes is
    pushed as well, unless relay was told not to deliver its own messages (`RelayOptions.deliver_own`).
    """
    async with open_service_nursery() as nursery:
        service = FilterService(network, relay, nursery, options or FilterServiceOptions())
        service.start()
        try:
            yield service
        finally:
            service.close()


class FilterService:
    """The subscriptions of light nodes, and a queue and a stream for each. Made by `open_filter_service`."""

    def __init__(
        self, network: Network, relay: Relay, nursery: trio.Nursery, options: FilterServiceOptions
    ) -> None:
        self.counters = FilterServiceCounters()
        self.requests = RequestService(
            network,
            SUBSCRIBE_PROTOCOL,
            self._handle,
            limits=options.requests,
            on_limited=lambda request: _encode(request_id_of(request), _TOO_MANY_REQUESTS),
            on_undecodable=lambda request, error: _encode(request_id_of(request), _Answer(400, str(error))),
            on_failed=lambda request, _: _encode(request_id_of(request), _FAILED),
        )
        """The serving of requests, to look at its counters."""
        self._network = network
        self._relay = relay
        self._nursery = nursery
        self._options = options
        self._table = SubscriptionTable(
            max_peers=options.max_peers,
            max_criteria=options.max_criteria_per_peer,
            max_bytes=options.max_criteria_bytes,
            lifetime_s=options.subscription_timeout_s,
        )
        self._links: dict[PeerId, PushLink] = {}  # of subscribers for whom there ever was a message
        self._taps: dict[str, Callable[[], None]] = {}  # what ends our part in a pubsub topic
        self._subscribed = trio.lowlevel.ParkingLot()
        self._unwatch: Callable[[], None] | None = None
        self._closed = False

    @property
    def peers(self) -> int:
        """How many peers are subscribed."""
        return len(self._table)

    @property
    def criteria(self) -> int:
        """How many criteria all subscriptions have together."""
        return self._table.criteria

    @property
    def subscriptions(self) -> dict[PeerId, tuple[Criterion, ...]]:
        """Who is subscribed to what."""
        return {peer: self._table.of(peer) for peer in self._table.peers}

    def waiting(self, peer: PeerId) -> int:
        """How many pushes wait for a peer."""
        link = self._links.get(peer)
        return 0 if link is None else link.waiting

    def push(self, pubsub_topic: str, message: WakuMessage) -> int:
        """Push a message to whoever wants it; returns how many queues had room. Never waits.

        Relay's messages take this way; so may those of other sources.
        """
        peers = self._table.matching(pubsub_topic, message.content_topic)
        if not peers or self._closed:
            return 0
        self.counters.messages += 1
        data = frame(encode_push(MessagePush(message, pubsub_topic)))  # once, whoever gets it
        links = self._links
        taken = 0
        for peer in peers:
            link = links.get(peer)
            if link is None:
                link = self._open_link(peer)
            taken += link.push(data)
        return taken

    # Live

    def start(self) -> None:
        """Begin; `open_filter_service` does this."""
        self.requests.start()
        self._unwatch = self._network.watch(self._heard)
        self._nursery.start_soon(self._keep_time)

    def close(self) -> None:
        """Stop; `open_filter_service` does this."""
        self._closed = True
        self.requests.close()
        if self._unwatch is not None:
            self._unwatch()
        for leave in self._taps.values():
            leave()
        self._taps.clear()

    def _heard(self, event: PeerEvent) -> None:
        if isinstance(event, PeerConnected):
            link = self._links.get(event.peer)
            if link is not None:
                link.reconnected()

    async def _keep_time(self) -> None:
        while True:
            due = self._table.next_expiry
            if due == math.inf:
                await self._subscribed.park()
            else:
                await trio.sleep_until(due)
                self._expire()

    def _expire(self) -> None:
        for peer in self._table.expire(trio.current_time()):
            self.counters.expired += 1
            logger.debug("subscription expired peer=%s", peer.short())
            self._close_link(peer)
        self._release_topics()

    # Requests

    async def _handle(self, peer: PeerId, data: bytes) -> bytes:
        request = decode_subscribe_request(data)
        self._expire()
        answer = self._answer(peer, request)
        self.counters.answers[answer.code] = self.counters.answers.get(answer.code, 0) + 1
        return _encode(request.request_id, answer)

    def _answer(self, peer: PeerId, request: FilterSubscribeRequest) -> _Answer:
        match request.filter_subscribe_type:
            case FilterSubscribeType.SUBSCRIBER_PING:
                return _OK if self._table.refresh(peer, trio.current_time()) else _UNKNOWN_PEER
            case FilterSubscribeType.UNSUBSCRIBE_ALL:
                return _OK if self._end(peer) else _UNKNOWN_PEER
            case FilterSubscribeType.SUBSCRIBE | FilterSubscribeType.UNSUBSCRIBE as kind:
                pubsub_topic, content_topics = request.pubsub_topic, request.content_topics
                if not pubsub_topic or not content_topics or not all(content_topics):
                    return _NO_CRITERIA
                if kind is FilterSubscribeType.SUBSCRIBE:
                    return self._subscribe(peer, pubsub_topic, content_topics)
                return self._unsubscribe(peer, pubsub_topic, content_topics)

    def _subscribe(self, peer: PeerId, pubsub_topic: str, content_topics: tuple[str, ...]) -> _Answer:
        if pubsub_topic not in self._relay.topics:
            return _Answer(400, _OTHER_SHARD + pubsub_topic[:100])
        match self._table.subscribe(peer, pubsub_topic, content_topics, trio.current_time()):
            case Subscribed.TOO_MANY_PEERS:
                most = self._options.max_peers
                return _Answer(503, f"node has reached maximum number of subscriptions: {most}")
            case Subscribed.TOO_MANY_CRITERIA:
                most = self._options.max_criteria_per_peer
                return _Answer(503, f"peer has reached maximum number of filter criteria: {most}")
            case Subscribed.TOO_MANY_BYTES:
                most = self._options.max_criteria_bytes
                return _Answer(503, f"peer has reached maximum size of filter criteria: {most} bytes")
            case Subscribed.DONE:
                if pubsub_topic not in self._taps:
                    self._taps[pubsub_topic] = self._relay.subscribe_callback(pubsub_topic, self._relayed)
                self._subscribed.unpark_all()
                return _OK

    def _unsubscribe(self, peer: PeerId, pubsub_topic: str, content_topics: tuple[str, ...]) -> _Answer:
        if peer not in self._table:
            return _UNKNOWN_PEER
        if not self._table.unsubscribe(peer, pubsub_topic, content_topics, trio.current_time()):
            return _UNKNOWN_CRITERIA
        if peer not in self._table:
            self._close_link(peer)
        self._release_topics()
        return _OK

    def _end(self, peer: PeerId) -> bool:
        """End a peer's subscription; False if it had none."""
        if not self._table.remove(peer):
            return False
        self._close_link(peer)
        self._release_topics()
        return True

    # Pushes

    def _relayed(self, received: ReceivedMessage) -> None:
        self.push(received.pubsub_topic, received.message)

    def _open_link(self, peer: PeerId) -> PushLink:
        link = self._links[peer] = PushLink(peer, self._network, self._options, self.counters)
        self._nursery.start_soon(self._run, link)
        return link

    async def _run(self, link: PushLink) -> None:
        try:
            unreachable = await link.run()
        except Exception as error:  # one subscriber's trouble is not the others'
            logger.exception("subscriber failed peer=%s error=%s", link.peer.short(), type(error).__name__)
            unreachable = True
        if unreachable and self._links.get(link.peer) is link:
            self.counters.unreachable += 1
            logger.debug("subscriber unreachable peer=%s", link.peer.short())
            self._end(link.peer)

    def _close_link(self, peer: PeerId) -> None:
        link = self._links.pop(peer, None)
        if link is not None:
            self.counters.dropped_gone += link.waiting
            link.scope.cancel()

    def _release_topics(self) -> None:
        if len(self._taps) > len(self._table.pubsub_topics):
            for pubsub_topic in self._taps.keys() - self._table.pubsub_topics:
                self._taps.pop(pubsub_topic)()


def _encode(request_id: str | None, answer: _Answer) -> bytes:
    return encode_subscribe_response(FilterSubscribeResponse(request_id or "N/A", answer.code, answer.text))
