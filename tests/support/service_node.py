"""A service node on real sockets, with all that light nodes ask of one; and the nodes around it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import trio

from pywaku.archive import Archive, ArchiveWriter, open_archive, open_archive_writer
from pywaku.keys import PrivateKey
from pywaku.network.libp2p.host import Libp2pNetwork, open_network
from pywaku.network.liveness import open_liveness
from pywaku.protocols.filter import (
    FilterClient,
    FilterService,
    FilterServiceOptions,
    open_filter_client,
    open_filter_service,
)
from pywaku.protocols.lightpush import (
    AutoSharding,
    LightpushClient,
    LightpushService,
    LightpushServiceOptions,
    open_lightpush_service,
)
from pywaku.protocols.metadata import Metadata, open_metadata
from pywaku.protocols.peer_exchange import open_peer_exchange
from pywaku.protocols.relay import ReceivedMessage, Relay, open_relay
from pywaku.protocols.service import ServiceLimits
from pywaku.protocols.store import STORE_LIMITS, StoreService, open_store_service
from pywaku.protocols.store.feed import store_from_relay
from pywaku.topics import shard_topic
from pywaku.wire.enr import Enr
from pywaku.wire.multiaddr import Multiaddr

CLUSTER = 42
SHARDS = 8
SHARDING = AutoSharding(CLUSTER, SHARDS)

_PAUSE_S = 0.01
_LISTEN = ("/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/tcp/0/ws")


async def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds."""
    while not condition():
        await trio.sleep(_PAUSE_S)


def without_rates(limits: ServiceLimits) -> ServiceLimits:
    """The same limits, for peers that may ask as often as they like."""
    return replace(limits, per_peer=None, total=None)


def _address(network: Libp2pNetwork, *, ws: bool) -> Multiaddr:
    return next(address for address in network.addresses if address.has("ws") == ws)


@dataclass(frozen=True, slots=True)
class ServiceNode:
    """A node that relays, keeps, and serves light push, filter, store and peer exchange on all shards."""

    network: Libp2pNetwork
    relay: Relay
    metadata: Metadata
    lightpush: LightpushService
    filter: FilterService
    archive: Archive
    writer: ArchiveWriter
    store: StoreService

    @property
    def peer(self) -> str:
        """Its peer id, as text."""
        return str(self.network.peer_id)

    @property
    def tcp(self) -> Multiaddr:
        """Where it listens for TCP."""
        return _address(self.network, ws=False)

    @property
    def ws(self) -> Multiaddr:
        """Where it listens for WebSocket."""
        return _address(self.network, ws=True)


@dataclass(slots=True)
class Hearing:
    """What a node has heard on a pubsub topic: how often each message, by its hash in hex."""

    messages: dict[str, int] = field(default_factory=dict[str, int])
    last: ReceivedMessage | None = None

    def hear(self, received: ReceivedMessage) -> None:
        """One more."""
        key = received.message_hash.hex()
        self.messages[key] = self.messages.get(key, 0) + 1
        self.last = received

    async def wait(self, count: int) -> None:
        """Until so many messages were heard."""
        await until(lambda: len(self.messages) >= count)

    def __contains__(self, message_hash: str) -> bool:
        return message_hash in self.messages


@asynccontextmanager
async def open_service_node(
    *,
    key: PrivateKey | None = None,
    limits: Callable[[ServiceLimits], ServiceLimits] = without_rates,
    records: Sequence[Enr] = (),
) -> AsyncGenerator[ServiceNode]:
    """See `ServiceNode`. `limits` is given the usual ones; left out, peers may ask as often as they like.

    `records` are those that it names to peers who ask for peers.
    """
    pushes, filters = LightpushServiceOptions(), FilterServiceOptions()
    pushes = replace(pushes, requests=limits(pushes.requests), auto_sharding=SHARDING)
    filters = replace(filters, requests=limits(filters.requests))
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        network = await enter(open_network(key=key, listen=[Multiaddr.parse(one) for one in _LISTEN]))
        await enter(open_liveness(network))
        relay = await enter(open_relay(network))
        archive = await enter(open_archive("sqlite://:memory:"))
        writer = await enter(open_archive_writer(archive))
        topics = [shard_topic(CLUSTER, shard) for shard in range(SHARDS)]
        stack.enter_context(store_from_relay(relay, writer, topics))
        await enter(open_peer_exchange(network, records=lambda: records))
        yield ServiceNode(
            network=network,
            relay=relay,
            metadata=await enter(
                open_metadata(network, cluster_id=CLUSTER, shards=partial(relay.shards_of, CLUSTER))
            ),
            lightpush=await enter(open_lightpush_service(network, relay, options=pushes)),
            filter=await enter(open_filter_service(network, relay, options=filters)),
            archive=archive,
            writer=writer,
            store=await enter(open_store_service(network, archive, limits=limits(STORE_LIMITS))),
        )


@asynccontextmanager
async def open_neighbour(service: ServiceNode, pubsub_topic: str) -> AsyncGenerator[tuple[Relay, Hearing]]:
    """A relay node beside the service node, which hears a pubsub topic: without one nothing is relayed."""
    hearing = Hearing()
    async with open_network() as network, open_relay(network) as relay:
        relay.subscribe_callback(pubsub_topic, hearing.hear)
        await network.connect(service.tcp)
        await until(lambda: network.peer_id in service.relay.mesh(pubsub_topic))
        await until(lambda: service.network.peer_id in relay.mesh(pubsub_topic))
        yield relay, hearing


@dataclass(frozen=True, slots=True)
class EdgeNode:
    """A light node of pywaku, which hears what is pushed to it on the pubsub topic that it was opened for."""

    network: Libp2pNetwork
    filter: FilterClient
    lightpush: LightpushClient
    hearing: Hearing


@asynccontextmanager
async def open_edge_node(
    service: ServiceNode, pubsub_topic: str, *content_topics: str
) -> AsyncGenerator[EdgeNode]:
    """A light node that is connected to the service node and has subscribed to content topics there."""
    hearing = Hearing()
    async with open_network() as network, open_filter_client(network) as client:
        await network.connect(service.tcp)
        client.subscribe_callback(pubsub_topic, hearing.hear)
        result = await client.subscribe(service.network.peer_id, pubsub_topic, content_topics)
        assert result.is_success, result
        yield EdgeNode(network, client, LightpushClient(network, auto_sharding=SHARDING), hearing)
