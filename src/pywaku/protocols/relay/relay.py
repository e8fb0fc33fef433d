"""Relay (11/WAKU2-RELAY): the gossip router on real streams, with Waku's validation and subscriptions."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Final

import trio

from pywaku.errors import InvalidTopic, NodeClosed
from pywaku.gossip import Candidate, Gossip, GossipParams, Verdict
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.network.port import Network
from pywaku.protocols.relay.bandwidth import FreeBandwidth
from pywaku.protocols.relay.counters import RelayCounters
from pywaku.protocols.relay.delivery import Delivery, ReceivedMessage, Sink, Subscription
from pywaku.protocols.relay.echoes import EchoListener, EchoListeners
from pywaku.protocols.relay.exchange import PeerExchange
from pywaku.protocols.relay.options import MessageRefused, PublishOutcome, RelayOptions
from pywaku.protocols.relay.outbox import Outbox
from pywaku.protocols.relay.peers import RelayPeers
from pywaku.protocols.relay.validation import Pending, Refusal, Validation, Validator
from pywaku.protocols.relay.waiting import OVERLOAD, WaitingRoom
from pywaku.tasks import open_service_nursery
from pywaku.topics import parse_shard_topic
from pywaku.wire.message import encode_message
from pywaku.wire.relay import PROTOCOL

logger = logging.getLogger(__name__)

_PUBLISH_CHECKPOINT_EVERY: Final = 64
_LONGEST_TOPIC: Final = 256  # UTF-8 bytes; peers refuse subscriptions to longer ones


@asynccontextmanager
async def open_relay(
    network: Network,
    *,
    params: GossipParams | None = None,
    options: RelayOptions | None = None,
    rng: random.Random | None = None,
    clock: Callable[[], int] = time.time_ns,
) -> AsyncGenerator[Relay, None]:
    """Speak relay on `network`. Leaving sends what was published, as far as that takes no longer than
    `options.linger_s`, ends all subscriptions, and leaves nothing behind.

    `clock` gives the time in nanoseconds since 1970, to which message timestamps are compared.
    """
    async with open_service_nursery() as nursery:
        relay = Relay(
            network,
            nursery,
            params=params or GossipParams(),
            options=options or RelayOptions(),
            rng=rng or random.Random(),
            clock=clock,
        )
        relay.start()
        try:
            yield relay
            await relay.drain()
        finally:
            relay.close()


class Relay:
    """A relay node: publish and subscribe on pubsub topics (shards). Made by `open_relay`."""

    def __init__(
        self,
        network: Network,
        nursery: trio.Nursery,
        *,
        params: GossipParams,
        options: RelayOptions,
        rng: random.Random,
        clock: Callable[[], int],
    ) -> None:
        self._network = network
        self._nursery = nursery
        self._params = params
        self._options = options
        self.counters = RelayCounters()
        """What has happened so far."""
        self._router = Gossip(params, rng=rng, direct_peers=options.direct_peers)
        self._delivery = Delivery(self.counters)
        self._echoes = EchoListeners(self._router, self.counters)
        limit = options.free_bandwidth_bps
        self._bandwidth = None if limit is None else FreeBandwidth(limit, window_s=options.bandwidth_window_s)
        self._validation = Validation(
            max_message_size=options.max_message_size,
            timestamp_window_s=options.timestamp_window_s if options.validate_timestamps else None,
            bandwidth=self._bandwidth,
            proof_validator=options.proof_validator,
            timeout_s=options.validator_timeout_s,
            clock=clock,
            counters=self.counters,
        )
        self._waiting = WaitingRoom(
            nursery,
            self._validation,
            self._settled,
            at_once=options.max_validations,
            queue=options.max_waiting_validations,
            queue_bytes=options.max_waiting_validation_bytes,
        )
        self._peers = RelayPeers(
            network,
            nursery,
            self._router,
            options,
            self.counters,
            self._delivery,
            judge=self._judge,
            echoes=self._echoes,
        )
        self._exchange = PeerExchange(network, nursery, options, self.counters)
        self._published = 0
        self._closed = False

    # What there is

    @property
    def topics(self) -> frozenset[str]:
        """The pubsub topics that are joined."""
        return frozenset(self._router.subscriptions)

    @property
    def peers(self) -> frozenset[PeerId]:
        """The connected peers that speak relay."""
        return self._peers.all

    @property
    def router(self) -> Gossip:
        """The router, to look at: its scores and counters."""
        return self._router

    def shards_of(self, cluster_id: int) -> list[int]:
        """The shards of a cluster that are joined, in ascending order."""
        found: list[int] = []
        for topic in self._router.subscriptions:
            try:
                cluster, shard = parse_shard_topic(topic)
            except InvalidTopic:
                continue  # named sharding
            if cluster == cluster_id:
                found.append(shard)
        return sorted(found)

    def mesh(self, pubsub_topic: str) -> frozenset[PeerId]:
        """The peers with which full messages of a topic are exchanged."""
        return self._router.mesh(pubsub_topic)

    def peers_of(self, pubsub_topic: str) -> frozenset[PeerId]:
        """The connected peers that have joined a topic."""
        return self._router.peers_of(pubsub_topic)

    def outbox(self, peer: PeerId) -> Outbox | None:
        """What waits for a peer, to look at; None if it is no relay peer."""
        return self._peers.outbox(peer)

    # Publish

    async def publish(
        self, pubsub_topic: str, message: WakuMessage, *, resend: bool = False
    ) -> PublishOutcome:
        """Publish a message as it is, whether the topic is joined or not; says how many peers took it.

        One that was seen before is a duplicate and not sent, except for one of this node's own that no peer
        has taken yet, and with `resend`, which is for messages that seem to be lost: that is sent, but not
        delivered once more to this node's own subscriptions.

        Raises `MessageRefused` if the message breaks a rule (peers would reject it), `InvalidTopic`, and
        `NodeClosed`. It waits a moment for a peer whose outbox has filled up (`slow_peer_grace_s`), and
        longer (`publish_wait_s`) where that is so of all peers that the message would go to. Not every call
        is a checkpoint, but one in 64 is, so that a loop of publishes leaves room for others.
        """
        if self._closed:
            raise NodeClosed("relay is closed")
        _require_topic(pubsub_topic)
        self._published += 1
        if self._published % _PUBLISH_CHECKPOINT_EVERY == 0:
            await trio.lowlevel.checkpoint()
        data = encode_message(message)
        now = trio.current_time()
        outcome: Refusal | Pending | None
        if self._validation.fits(len(data)):
            outcome = self._validation.judge(pubsub_topic, message, self._network.peer_id, now)
        else:
            outcome = self._validation.too_large(len(data))
        if outcome is not None:
            await self._require_accepted(outcome, len(data))
        if self._peers.congested:
            await self._peers.wait_for_room(pubsub_topic, self._params)
            now = trio.current_time()
        if self._closed:  # while it waited
            raise NodeClosed("relay is closed")
        published = self._router.publish(pubsub_topic, data, now, resend=resend)
        if published.duplicate:
            return PublishOutcome(pubsub_topic, message, published.message_id, 0, duplicate=True)
        # Nothing else is outgoing at this point: whatever feeds the router flushes before it lets others run.
        count = self._peers.flush()
        if not count and published.peers:
            self._router.not_taken(published.message_id, pubsub_topic)
        if published.again:
            return PublishOutcome(pubsub_topic, message, published.message_id, count)
        self.counters.published += 1
        if self._bandwidth is not None:
            self._bandwidth.carried(pubsub_topic, len(data), now)
        if self._options.deliver_own and self._delivery.wanted(pubsub_topic):
            self._delivery.hand_out(ReceivedMessage(pubsub_topic, message, self._network.peer_id))
            if self._delivery.pressed:
                await self._delivery.wait_for_room(self._options.delivery_wait_s)
        return PublishOutcome(pubsub_topic, message, published.message_id, count)

    async def _require_accepted(self, outcome: Refusal | Pending, size: int) -> None:
        refusal = await self._validation.settle(outcome) if isinstance(outcome, Pending) else outcome
        if refusal is not None:
            self.counters.refused_own += 1
            raise MessageRefused(refusal.reason, refusal.explanation, size=size)

    # Subscribe

    def subscribe(
        self, pubsub_topic: str, *, content_topics: Collection[str] | None = None, capacity: int = 1000
    ) -> Subscription:
        """The messages of a topic from now on; joins it if this is its first subscription.

        With `content_topics`, only those of these content topics.
        """
        self._require_open(pubsub_topic)
        subscription = Subscription(
            pubsub_topic, capacity, self._delivery, self._leave_with, content_topics=content_topics
        )
        self._join(pubsub_topic, subscription.offer)
        return subscription

    def subscribe_callback(self, pubsub_topic: str, callback: Sink) -> Callable[[], None]:
        """Call `callback` at once with each message of a topic; returns the call that ends it.

        It must not block. What it raises is logged and goes no further.
        """
        self._require_open(pubsub_topic)

        def sink(received: ReceivedMessage) -> None:
            callback(received)

        self._join(pubsub_topic, sink)
        return lambda: self._leave(pubsub_topic, sink)

    def on_echo(self, listener: EchoListener) -> Callable[[], None]:
        """Call `listener(message_id, peer)` when a peer sends a message that this node has published.

        Such a message is dropped as a duplicate; but it shows that it has travelled: an honest peer does not
        send a message to whom it has it from, so it has it from somebody else. For the same reason it means
        nothing if there is no echo. Echoes are heard on topics that are joined, for as long as the router
        remembers what was published (`GossipParams.seen_ttl_s`), once for each time a peer sends the message.
        `message_id` is that of `PublishOutcome`.

        The listener must not block; what it raises is logged. Returns the call that ends it.
        """
        if self._closed:
            raise NodeClosed("relay is closed")
        return self._echoes.add(listener)

    def _require_open(self, topic: str) -> None:
        if self._closed:
            raise NodeClosed("relay is closed")
        _require_topic(topic)

    def _join(self, topic: str, sink: Sink) -> None:
        if self._delivery.add(topic, sink):
            self._router.join(topic, trio.current_time())
            self._peers.flush()
            logger.info("topic joined: topic=%s", topic)

    def _leave_with(self, subscription: Subscription) -> None:
        self._leave(subscription.pubsub_topic, subscription.offer)

    def _leave(self, topic: str, sink: Sink) -> None:
        if self._delivery.remove(topic, sink) and not self._closed:
            self._router.leave(topic, trio.current_time())
            self._peers.flush()
            logger.info("topic left: topic=%s", topic)

    # Validate

    def add_validator(self, validator: Validator, topic: str | None = None) -> Callable[[], None]:
        """Ask `validator` about every message (on `topic`); returns the call that ends it.

        It returns a `Verdict`, or an awaitable of one. The built-in rules come first, then validators of all
        topics, then those of the topic; the first outcome other than ACCEPT decides. One that raises, or
        takes longer than `RelayOptions.validator_timeout_s`, makes the message ignored.
        """
        entry = self._validation.add(validator, topic)
        return lambda: self._validation.remove(entry, topic)

    def _judge(self, candidate: Candidate, now: float) -> None:
        """Decide about a message that has arrived, or see to it that this happens."""
        message = self._validation.decode(candidate.data)
        if isinstance(message, Refusal):
            self._refuse(candidate, message, now)
            return
        outcome = self._validation.judge(candidate.topic, message, candidate.peer, now)
        if outcome is None:
            self._accept(candidate, message, now)
        elif isinstance(outcome, Refusal):
            self._refuse(candidate, outcome, now)
        elif not self._waiting.submit(candidate, outcome):
            self._refuse(candidate, OVERLOAD, now)

    async def _settled(self, candidate: Candidate, pending: Pending, refusal: Refusal | None) -> None:
        """An asynchronous validation has ended."""
        now = trio.current_time()
        if refusal is None:
            self._accept(candidate, pending.message, now)
        else:
            self._refuse(candidate, refusal, now)
        self._peers.flush()
        if self._delivery.pressed:
            await self._delivery.wait_for_room(self._options.delivery_wait_s)

    def _accept(self, candidate: Candidate, message: WakuMessage, now: float) -> None:
        message_id, topic, data, peer = candidate
        if not self._router.validated(message_id, Verdict.ACCEPT, now):
            return  # the topic was left meanwhile, or the router has given up on it
        self.counters.delivered += 1
        if self._bandwidth is not None:
            self._bandwidth.carried(topic, len(data), now)
        if self._delivery.wanted(topic):
            self._delivery.hand_out(ReceivedMessage(topic, message, peer))

    def _refuse(self, candidate: Candidate, refusal: Refusal, now: float) -> None:
        self._router.validated(candidate.message_id, refusal.verdict, now)
        counters = self.counters
        if refusal.verdict is Verdict.REJECT:
            counters.rejected += 1
        else:
            counters.ignored += 1
        counters.refusals[refusal.reason] = counters.refusals.get(refusal.reason, 0) + 1
        logger.debug("message refused: reason=%s peer=%s", refusal.reason, candidate.peer.short())

    # Live

    def start(self) -> None:
        """Begin; `open_relay` does this."""
        self._peers.start()
        self._nursery.start_soon(self._beat)

    async def drain(self) -> None:
        """Take no more, and give what waits for peers some time to leave."""
        self._closed = True
        self._network.unserve(PROTOCOL)
        with trio.move_on_after(self._options.linger_s):
            await self._peers.finish()

    def close(self) -> None:
        """Stop at once; `open_relay` does this."""
        self._closed = True
        self._peers.close()
        self._waiting.close()
        self._delivery.close()
        self._echoes.close()

    async def _beat(self) -> None:
        """The router's heartbeat."""
        interval = self._params.heartbeat_interval_s
        due = trio.current_time() + interval
        while True:
            await trio.sleep_until(due)
            now = trio.current_time()
            due = max(due + interval, now)
            try:
                self._router.heartbeat(now)
                self._peers.flush()
                for wish in self._router.take_wishes():
                    self._exchange.consider(wish, now)
            except Exception as error:
                logger.exception("heartbeat failed: error=%s", type(error).__name__)


def _require_topic(topic: str) -> None:
    if not topic:
        raise InvalidTopic("a pubsub topic is not empty; it looks like /waku/2/rs/1/0")
    if len(topic) > _LONGEST_TOPIC // 4 and len(topic.encode()) > _LONGEST_TOPIC:
        raise InvalidTopic(f"a pubsub topic has at most {_LONGEST_TOPIC} bytes")
