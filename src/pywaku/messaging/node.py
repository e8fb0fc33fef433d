"""A node: what the application holds in its hands."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from pywaku.errors import InvalidInput, NotConnected
from pywaku.ids import PeerId
from pywaku.messaging.companions import Companions
from pywaku.messaging.config import NodeConfig
from pywaku.messaging.environment import Environment
from pywaku.messaging.events import Events
from pywaku.messaging.finding import Finding
from pywaku.messaging.health import HealthStatus, TopicHealth
from pywaku.messaging.messaging import Messaging
from pywaku.messaging.record import Decoder, Encoder, Message, PlainCodec, RequestId, SubscriptionId
from pywaku.messaging.services import Services
from pywaku.messaging.storage import MessageStorage
from pywaku.messaging.stores import Stores
from pywaku.messaging.subscriptions import Subscription, SubscriptionListener
from pywaku.messaging.watching import HealthWatch
from pywaku.network.port import Network
from pywaku.peers.selection import Need
from pywaku.peers.services import Service
from pywaku.protocols.metadata import Metadata
from pywaku.protocols.relay import Relay
from pywaku.protocols.store import StoreClient, StoreMessages, StoreQuery
from pywaku.topics import ContentTopic, auto_shard_topic, parse_shard_topic
from pywaku.wire.enr import Enr
from pywaku.wire.multiaddr import Multiaddr


@dataclass(frozen=True, slots=True)
class Parts:
    """What a node consists of. It is there to look at: counters, tables, queues."""

    network: Network
    metadata: Metadata
    finding: Finding
    store: StoreClient
    services: Services
    messaging: Messaging
    health: HealthWatch
    relay: Relay | None
    stores: Stores
    companions: Companions
    environment: Environment


class Node:
    """A running node. Made by `open_node`.

    `messages` is what is known of messages (Message Storage API), `events` tells what happens. `relay` is for
    validators and a look at meshes and scores; `services` for a look at what the node does for others;
    `finding` for the peer book and the pools of service nodes; `network` for connections, streams and
    protocols of one's own; `config` is what the node was told.
    """

    def __init__(self, config: NodeConfig, parts: Parts) -> None:
        self.config = config
        self.parts = parts
        self._messaging = parts.messaging

    # Messages

    def send(self, encoder: Encoder, message: Message) -> RequestId:
        """Have a message sent: in the background, with retries; returns the id of the request at once.

        What becomes of it is in its record (`messages`) and in events. With `records_path` it outlives the
        process from now on. Raises `UnsupportedTopic` for a pubsub topic that this node does not operate on,
        `MessageRefused` for a message that is too large, `LimitExceeded` while `max_pending_sends` messages
        wait, and `RecordError` where it could not be recorded.
        """
        return self._messaging.send(encoder, message)

    def cancel_request(self, request_id: RequestId) -> None:
        """Give a request up. Ignored if the id is unknown, or the request sent, failed or cancelled."""
        self._messaging.cancel_request(request_id)

    @property
    def pending_requests(self) -> tuple[RequestId, ...]:
        """The requests that are neither sent nor given up, each once, oldest first."""
        return self._messaging.pending_requests

    async def subscribe(
        self, decoder: Decoder, listener: SubscriptionListener | None = None, *, capacity: int = 1000
    ) -> Subscription:
        """Receive the messages of a decoder's topics: by iterating over the subscription, or by `listener`.

        A listener, sync or async, is called with each record, one after the other; what it raises is logged
        and ignored. An edge node waits up to 5 s for a service node to agree; without one the subscription
        stands all the same, and begins when there is one. Raises `UnsupportedTopic` as `send` does.
        """
        return await self._messaging.subscribe(decoder, listener, capacity)

    def unsubscribe(self, subscription_id: SubscriptionId) -> None:
        """End a subscription: nothing further reaches it. Ignored if there is none of this id."""
        self._messaging.unsubscribe(subscription_id)

    @property
    def active_subscriptions(self) -> tuple[SubscriptionId, ...]:
        """The ids of the subscriptions, each once; the background one is `BACKGROUND_SUBSCRIPTION`."""
        return self._messaging.active_subscriptions

    @property
    def messages(self) -> MessageStorage:
        """What is known of messages that were sent, received or stored."""
        return self._messaging.messages

    @property
    def events(self) -> Events:
        """What happens: `health:change`, `message:sent` and so on."""
        return self._messaging.events

    @property
    def health(self) -> HealthStatus:
        """How well the node is connected."""
        return self.parts.health.status

    def topic_health(self, content_topic: str) -> TopicHealth:
        """How well the node is connected for a content topic, if it is subscribed to."""
        return self.parts.health.of_content_topic(self.pubsub_topic_of(content_topic), content_topic)

    def shard_health(self, pubsub_topic: str) -> TopicHealth:
        """How well the node is connected on a shard."""
        return self.parts.health.of_shard(pubsub_topic)

    def codec(
        self, content_topic: str, *, pubsub_topic: str | None = None, ephemeral: bool = False
    ) -> PlainCodec:
        """An encoder and decoder for a content topic that leaves payloads as they are."""
        ContentTopic.parse(content_topic)
        topic = self.pubsub_topic_of(content_topic) if pubsub_topic is None else pubsub_topic
        return PlainCodec(content_topic, topic, ephemeral=ephemeral)

    async def query(
        self, query: StoreQuery, *, limit: int | None = None, timeout: float = 10.0
    ) -> StoreMessages:
        """The messages that store nodes keep, as an async iterator over all pages (History API).

        What is read is recorded: it is `stored`, and messages that were not known here are from then on.

        Store nodes among the peers are used, and when one fails the query goes on at another. Waits up to
        `timeout` seconds for one; raises `NotConnected` if there is none.
        """
        self._messaging.require_open()
        if not isinstance(query, StoreQuery):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"query: is a StoreQuery, not a {type(query).__name__}")
        shards: frozenset[int] = frozenset()
        if query.pubsub_topic is not None:
            shards = frozenset({parse_shard_topic(query.pubsub_topic)[1]})
        pool = self.finding.pools.open(Need(Service.STORE, self.config.cluster, shards))
        with trio.move_on_after(timeout):
            return self._messaging.history(
                self.parts.store.messages(query, await pool.wait_for(), limit=limit)
            )
        raise NotConnected(f"no store node was found within {timeout:g} s")

    # The node and its network

    @property
    def relay(self) -> Relay:
        """The relay. Raises `InvalidInput` on an edge node, which has none."""
        if self.parts.relay is None:
            raise InvalidInput("this node has no relay: its mode is edge")
        return self.parts.relay

    @property
    def network(self) -> Network:
        """Connections, streams and protocols."""
        return self.parts.network

    @property
    def finding(self) -> Finding:
        """The peer book and the pools of service nodes."""
        return self.parts.finding

    @property
    def services(self) -> Services:
        """What the node does for others."""
        return self.parts.services

    @property
    def enr(self) -> Enr | None:
        """This node's record, for others to find it by; None with a key that records do not take."""
        return self.finding.enr

    @property
    def peer_id(self) -> PeerId:
        """Who this node is."""
        return self.network.peer_id

    @property
    def addresses(self) -> tuple[Multiaddr, ...]:
        """Where this node can be reached, each with its peer id."""
        return self.network.addresses

    @property
    def peers(self) -> frozenset[PeerId]:
        """The connected peers; those of a shard are `relay.peers_of(pubsub_topic)`."""
        return frozenset(self.network.peers)

    @property
    def pubsub_topics(self) -> tuple[str, ...]:
        """The shards this node operates on, as pubsub topics."""
        return self.config.topics

    def pubsub_topic_of(self, content_topic: str) -> str:
        """The pubsub topic that carries a content topic.

        With auto sharding the content topic decides. With static sharding the node's one shard is meant;
        raises `InvalidInput` where it has several, since then it is for the application to decide
        (RELAY-SHARDING, "Static Sharding").
        """
        if self.config.shard_count:
            return auto_shard_topic(content_topic, self.config.cluster, self.config.shard_count)
        topic, *others = self.pubsub_topics
        if others:
            raise InvalidInput(
                f"{content_topic}: say which of this node's {len(others) + 1} static shards is meant"
            )
        return topic

    async def connect(self, address: Multiaddr | str) -> PeerId:
        """Connect to a peer; returns once the handshake is done. Raises `DialError`.

        What the peer relays is known a moment later. One that turns out to be of another cluster is
        disconnected again.
        """
        if not isinstance(address, Multiaddr | str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"address: is a multiaddr or its text, not {address!r}")
        return await self.network.connect(Multiaddr.parse(address) if isinstance(address, str) else address)
