"""A node: the network, the relay and the protocols around it, opened and closed as one."""

from __future__ import annotations

import logging
import random
import secrets
import ssl
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Unpack

import trio

from pywaku.errors import InvalidInput, NotConnected
from pywaku.ids import PeerId
from pywaku.keys import PrivateKey
from pywaku.message import WakuMessage
from pywaku.messaging.config import NodeConfig, NodeProperties
from pywaku.messaging.finding import Finding, open_finding
from pywaku.messaging.light import LightMessaging, open_light
from pywaku.messaging.services import Services, open_services
from pywaku.network.libp2p.host import open_network
from pywaku.network.libp2p.limits import HostLimits
from pywaku.network.liveness import open_liveness
from pywaku.network.port import (
    Network,
    PeerConnected,
    PeerDisconnected,
    PeerEvent,
    PeerIdentified,
    PeerListener,
)
from pywaku.peers.selection import Need
from pywaku.peers.services import Service
from pywaku.protocols.filter import open_filter_client
from pywaku.protocols.lightpush import AutoSharding, LightpushClient
from pywaku.protocols.metadata import Metadata, MetadataOptions, open_metadata
from pywaku.protocols.relay import PublishOutcome, Relay, RelayOptions, Subscription, open_relay
from pywaku.protocols.store import StoreClient, StoreMessages, StoreQuery
from pywaku.topics import auto_shard_topic, parse_shard_topic, shard_topic
from pywaku.wire.enr import Enr
from pywaku.wire.multiaddr import Multiaddr

logger = logging.getLogger(__name__)


class Node:
    """A running node. Made by `open_node`.

    `relay` is for validators, callbacks and a look at meshes and scores; `services` for a look at what the
    node does for others; `finding` for the peer book and the pools of service nodes; `store` for queries at
    nodes of one's choice; `network` for connections, streams and protocols of one's own; `config` is what the
    node was told.
    """

    def __init__(
        self,
        config: NodeConfig,
        network: Network,
        metadata: Metadata,
        finding: Finding,
        store: StoreClient,
        *,
        relay: Relay | None = None,
        services: Services | None = None,
        light: LightMessaging | None = None,
    ) -> None:
        self.config = config
        self.network = network
        self.metadata = metadata
        self.finding = finding
        self.store = store
        self.services = services if services is not None else Services()
        self.light = light
        self._relay = relay

    @property
    def relay(self) -> Relay:
        """The relay. Raises `InvalidInput` on an edge node, which has none."""
        if self._relay is None:
            raise InvalidInput("this node has no relay: its mode is edge")
        return self._relay

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
        """The shards this node relays, as pubsub topics."""
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
        return await self.network.connect(Multiaddr.parse(address) if isinstance(address, str) else address)

    async def publish(self, message: WakuMessage, *, shard: int | None = None) -> PublishOutcome:
        """Publish a message on its shard; the outcome tells how many peers took it.

        An edge node pushes it through its service nodes, waiting up to 10 s for one; `peers` is how many of
        them relayed it.

        With `shard` it goes to that shard, whatever its content topic, and whether the node relays it or not.
        Raises `MessageRefused` (an `InvalidInput`) for a message that the network's rules forbid.
        """
        if not isinstance(message, WakuMessage):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"publish takes a WakuMessage, not a {type(message).__name__}")
        topic = self._topic(message.content_topic, shard)
        if self.light is not None:
            return await self.light.publish(topic, message)
        return await self.relay.publish(topic, message)

    def subscribe(
        self, content_topic: str | None = None, *, shard: int | None = None, capacity: int = 1000
    ) -> Subscription:
        """Messages of `content_topic`, or without it all of the shard, as they arrive; the node's own too.

        The content topic decides on the shard, unless `shard` says which. A shard that the node did not relay
        is joined for as long as the subscription lasts. What arrives while `capacity` messages wait is
        dropped and counted in `Subscription.dropped`.
        """
        if self.light is not None:
            if content_topic is None:
                raise InvalidInput("an edge node subscribes to a content topic")
            return self.light.subscribe(self._topic(content_topic, shard), content_topic, capacity=capacity)
        if content_topic is None and shard is None and len(self.pubsub_topics) > 1:
            raise InvalidInput("subscribe to a content topic or a shard: this node has several shards")
        return self.relay.subscribe(
            self._topic(content_topic, shard),
            content_topics=None if content_topic is None else (content_topic,),
            capacity=capacity,
        )

    async def query(
        self, query: StoreQuery, *, limit: int | None = None, timeout: float = 10.0
    ) -> StoreMessages:
        """The messages that store nodes keep, as an async iterator over all pages.

        Store nodes among the peers are used, and when one fails the query goes on at another. Waits up to
        `timeout` seconds for one; raises `NotConnected` if there is none.
        """
        shards: frozenset[int] = frozenset()
        if query.pubsub_topic is not None:
            shards = frozenset({parse_shard_topic(query.pubsub_topic)[1]})
        pool = self.finding.pools.open(Need(Service.STORE, self.config.cluster, shards))
        with trio.move_on_after(timeout):
            return self.store.messages(query, await pool.wait_for(), limit=limit)
        raise NotConnected(f"no store node was found within {timeout:g} s")

    def _topic(self, content_topic: str | None, shard: int | None) -> str:
        if shard is not None:
            count = self.config.shard_count
            if count and not 0 <= shard < count:
                raise InvalidInput(f"shards are 0 to {count - 1} in this network, not {shard}")
            return shard_topic(self.config.cluster, shard)
        return self.pubsub_topics[0] if content_topic is None else self.pubsub_topic_of(content_topic)


@asynccontextmanager
async def open_node(
    config: NodeConfig | None = None, /, **properties: Unpack[NodeProperties]
) -> AsyncGenerator[Node]:
    """A running node, from a `NodeConfig` or its properties; leaving the context leaves nothing behind.

    Raises `InvalidInput` for a configuration that cannot be meant and `ListenError` for a port in use.
    """
    if config is not None and properties:
        raise InvalidInput("open_node takes a NodeConfig or properties, not both")
    config = config if config is not None else NodeConfig(**properties)
    key = config.key() or PrivateKey.generate()
    rng = random.Random(config.seed if config.seed is not None else secrets.randbits(64))
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(
            open_network(
                key=key,
                listen=config.listen_addresses(),
                announce=config.announced(),
                tls_server=_server_tls(config),
                limits=HostLimits(max_connections=config.max_connections),
            )
        )
        stack.callback(network.watch(_log_peers(network)))
        await stack.enter_async_context(open_liveness(network))
        if config.mode == "edge":
            node = await _edge(config, network, key, rng, stack)
        else:
            node = await _relaying(config, network, key, rng, stack)
        logger.info("node started: peer=%s topics=%s", node.peer_id, ",".join(config.topics))
        try:
            yield node
        finally:
            logger.info("node stopping: peer=%s", node.peer_id)


async def _relaying(
    config: NodeConfig, network: Network, key: PrivateKey, rng: random.Random, stack: AsyncExitStack
) -> Node:
    """A node that takes part in the gossip of its shards, and serves light nodes."""
    options = RelayOptions(
        validate_timestamps=config.timestamps_validated, free_bandwidth_bps=config.bandwidth_limit
    )
    relay = await stack.enter_async_context(
        open_relay(network, params=config.gossip, options=options, rng=rng)
    )

    def shards() -> list[int]:
        return relay.shards_of(config.cluster)

    metadata = await stack.enter_async_context(
        open_metadata(
            network,
            cluster_id=config.cluster,
            shards=shards,
            options=MetadataOptions(require=config.metadata_required),
        )
    )
    for topic in config.topics:
        relay.subscribe_callback(topic, _relay_only)
    services = await stack.enter_async_context(open_services(config, network, relay))
    finding = await stack.enter_async_context(open_finding(config, network, metadata, key, shards, rng))
    store = StoreClient(network, rng=rng)
    return Node(config, network, metadata, finding, store, relay=relay, services=services)


async def _edge(
    config: NodeConfig, network: Network, key: PrivateKey, rng: random.Random, stack: AsyncExitStack
) -> Node:
    """A light node, which sends, receives and queries through service nodes."""
    metadata = await stack.enter_async_context(
        open_metadata(
            network,
            cluster_id=config.cluster,
            shards=None,
            options=MetadataOptions(require=config.metadata_required),
        )
    )

    def no_shards() -> list[int]:
        return []

    finding = await stack.enter_async_context(open_finding(config, network, metadata, key, no_shards, rng))
    filter_ = await stack.enter_async_context(open_filter_client(network, rng=rng))
    sharding = AutoSharding(config.cluster, config.shard_count) if config.shard_count else None
    lightpush = LightpushClient(network, auto_sharding=sharding, rng=rng)
    light = await stack.enter_async_context(open_light(finding.pools, lightpush, filter_))
    return Node(config, network, metadata, finding, StoreClient(network, rng=rng), light=light)


def _relay_only(_: object) -> None:
    """Holds a shard's mesh open where the application has not subscribed itself."""


def _server_tls(config: NodeConfig) -> ssl.SSLContext | None:
    if config.websocket_secure_cert is None or config.websocket_secure_key is None:
        return None
    cert, key = config.websocket_secure_cert, config.websocket_secure_key
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    for name, path in (("websocket_secure_cert", cert), ("websocket_secure_key", key)):
        try:
            text = Path(path).read_text(errors="replace")
        except OSError as error:
            raise InvalidInput(f"{name}: cannot read {path}: {error.strerror or error}") from error
        if "-----BEGIN " not in text:
            raise InvalidInput(f"{name}: {path} is no PEM file")
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except ssl.SSLError as error:
        raise InvalidInput(f"websocket_secure_cert: {cert} cannot be used with {key}: {error}") from error
    return context


def _no_password() -> str:
    """Without this OpenSSL would ask at the terminal, where nobody may be."""
    raise InvalidInput("websocket_secure_key: is encrypted; give a key without a pass phrase")


def _log_peers(network: Network) -> PeerListener:
    def log(event: PeerEvent) -> None:
        match event:
            case PeerConnected(peer, direction, address):
                logger.info("peer joined: peer=%s direction=%s address=%s", peer, direction.value, address)
            case PeerIdentified(peer, protocols, agent, _):
                logger.debug("peer identified: peer=%s agent=%s protocols=%d", peer, agent, len(protocols))
            case PeerDisconnected(peer, reason):
                logger.info("peer left: peer=%s reason=%s connected=%d", peer, reason, len(network.peers))

    return log
