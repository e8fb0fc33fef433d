"""Puts a node together, on a network of its own or on a given one."""

from __future__ import annotations

import logging
import random
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import trio

from pywaku.errors import InvalidInput
from pywaku.keys import PrivateKey
from pywaku.messaging.companions import open_companions
from pywaku.messaging.config import NodeConfig, NodeProperties
from pywaku.messaging.environment import Environment
from pywaku.messaging.finding import Finding, open_finding
from pywaku.messaging.light import Light, open_light
from pywaku.messaging.node import Node, Parts
from pywaku.messaging.opening import open_messaging
from pywaku.messaging.relaying import Relaying
from pywaku.messaging.services import Services, open_services
from pywaku.messaging.stores import Stores
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
from pywaku.protocols.filter import open_filter_client
from pywaku.protocols.lightpush import AutoSharding, LightpushClient
from pywaku.protocols.metadata import Metadata, MetadataOptions, open_metadata
from pywaku.protocols.relay import Relay, RelayOptions, open_relay
from pywaku.protocols.store import StoreClient

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_node(
    config: NodeConfig | None = None, /, **properties: Unpack[NodeProperties]
) -> AsyncGenerator[Node]:
    """A running node, from a `NodeConfig` or its properties; leaving the context leaves nothing behind.

    Raises `InvalidInput` for a configuration that cannot be meant and `ListenError` for a port in use.
    """
    _require_trio()
    if config is not None and properties:
        raise InvalidInput("open_node takes a NodeConfig or properties, not both")
    config = config if config is not None else NodeConfig(**properties)
    if not isinstance(config, NodeConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"open_node takes a NodeConfig or properties, not a {type(config).__name__}")
    key = config.key() or PrivateKey.generate()
    environment = Environment()
    if config.seed is not None:
        environment = replace(environment, rng=random.Random(config.seed))
    async with (
        open_network(
            key=key,
            listen=config.listen_addresses(),
            announce=config.announced(),
            tls_server=_server_tls(config),
            limits=HostLimits(max_connections=config.max_connections),
        ) as network,
        open_node_on(network, config, key=key, environment=environment) as node,
    ):
        yield node


@asynccontextmanager
async def open_node_on(
    network: Network, config: NodeConfig, *, key: PrivateKey, environment: Environment
) -> AsyncGenerator[Node]:
    """A running node on a network that is there already, such as a simulated one; `key` is its identity."""
    async with AsyncExitStack() as stack:
        stack.callback(network.watch(_log_peers(network)))
        await stack.enter_async_context(open_liveness(network))
        build = _edge if config.mode == "edge" else _relaying
        node = await build(config, network, key, environment, stack)
        logger.info("node started: peer=%s topics=%s", node.peer_id, ",".join(config.topics))
        try:
            yield node
        finally:
            logger.info("node stopping: peer=%s", node.peer_id)


async def _relaying(
    config: NodeConfig, network: Network, key: PrivateKey, environment: Environment, stack: AsyncExitStack
) -> Node:
    """A node that takes part in the gossip of its shards, and serves light nodes."""
    rng = environment.rng
    relay = await stack.enter_async_context(
        open_relay(
            network,
            params=config.gossip,
            options=RelayOptions(
                validate_timestamps=config.timestamps_validated, free_bandwidth_bps=config.bandwidth_limit
            ),
            rng=rng,
            clock=environment.clock,
        )
    )

    def shards() -> list[int]:
        return relay.shards_of(config.cluster)

    metadata = await _metadata(config, network, shards, stack)
    for topic in config.topics:
        relay.subscribe_callback(topic, _relay_only)
    services = await stack.enter_async_context(open_services(config, network, relay, environment))
    finding = await stack.enter_async_context(
        open_finding(config, network, metadata, key, shards, environment)
    )
    transport = Relaying(relay)
    return await _messaging(
        config, network, metadata, finding, transport, environment, stack, services=services, relay=relay
    )


async def _edge(
    config: NodeConfig, network: Network, key: PrivateKey, environment: Environment, stack: AsyncExitStack
) -> Node:
    """A light node, which sends, receives and queries through service nodes."""
    rng = environment.rng
    metadata = await _metadata(config, network, None, stack)

    def no_shards() -> list[int]:
        return []

    finding = await stack.enter_async_context(
        open_finding(config, network, metadata, key, no_shards, environment)
    )
    filter_ = await stack.enter_async_context(open_filter_client(network, rng=rng))
    sharding = AutoSharding(config.cluster, config.shard_count) if config.shard_count else None
    lightpush = LightpushClient(network, auto_sharding=sharding, rng=rng)
    transport = await stack.enter_async_context(open_light(finding.pools, lightpush, filter_))
    return await _messaging(config, network, metadata, finding, transport, environment, stack)


async def _metadata(
    config: NodeConfig, network: Network, shards: Callable[[], list[int]] | None, stack: AsyncExitStack
) -> Metadata:
    return await stack.enter_async_context(
        open_metadata(
            network,
            cluster_id=config.cluster,
            shards=shards,
            options=MetadataOptions(require=config.metadata_required),
        )
    )


async def _messaging(
    config: NodeConfig,
    network: Network,
    metadata: Metadata,
    finding: Finding,
    transport: Relaying | Light,
    environment: Environment,
    stack: AsyncExitStack,
    *,
    services: Services | None = None,
    relay: Relay | None = None,
) -> Node:
    store = StoreClient(network, rng=environment.rng)
    stores = Stores(
        store,
        finding.pools,
        [address.peer_id for address in config.stores() if address.peer_id is not None],
        lambda peer: peer in network.peers,
    )
    messaging, health = await stack.enter_async_context(
        open_messaging(config, network, transport, stores, environment)
    )
    companions = await stack.enter_async_context(open_companions())
    parts = Parts(
        network=network,
        metadata=metadata,
        finding=finding,
        store=store,
        services=services if services is not None else Services(),
        messaging=messaging,
        health=health,
        relay=relay,
        stores=stores,
        companions=companions,
        environment=environment,
    )
    return Node(config, parts)


def _require_trio() -> None:
    """Whoever calls from asyncio would be told something about contexts, from deep within."""
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        raise InvalidInput(
            "open_node runs on trio, in trio.run(main); docs/messaging.md says what a program on asyncio does"
        ) from None


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
