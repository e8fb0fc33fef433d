"""How a node finds others (bootstrap nodes, DNS lists, peer exchange), and what it says of itself."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from pywaku.keys import PrivateKey
from pywaku.messaging.config import NodeConfig
from pywaku.messaging.environment import Environment
from pywaku.network.keeper import open_keeper
from pywaku.network.port import Network
from pywaku.peers.discovery import read_bootstrap
from pywaku.peers.dns import DnsDiscovery
from pywaku.peers.entry import Origin
from pywaku.peers.manager import PeerManager, PeersOptions, open_peers
from pywaku.peers.pools import Pools, open_pools
from pywaku.peers.record import NodeRecord
from pywaku.peers.resolver import DnsResolver
from pywaku.peers.selection import Need
from pywaku.peers.services import Service
from pywaku.protocols.metadata import Metadata
from pywaku.protocols.peer_exchange import (
    PeerExchangeClient,
    PeerExchangeDiscovery,
    open_peer_exchange,
    records_to_give,
)
from pywaku.wire.enr import Capability, Enr

_SAVED_RECORD = "node-record"


@dataclass(frozen=True, slots=True)
class Finding:
    """The peer book, the pools of service nodes, and this node's own record."""

    book: PeerManager
    pools: Pools
    record: NodeRecord | None

    @property
    def enr(self) -> Enr | None:
        """The record as it is now."""
        return None if self.record is None else self.record.record


@asynccontextmanager
async def open_finding(
    config: NodeConfig,
    network: Network,
    metadata: Metadata,
    key: PrivateKey,
    shards: Callable[[], list[int]],
    environment: Environment,
) -> AsyncGenerator[Finding]:
    """Keep a peer book, look for peers as the configuration says, and stay connected with bootstrap nodes."""
    relays = config.mode == "relay"
    rng = environment.rng
    async with AsyncExitStack() as stack:
        book = await stack.enter_async_context(
            open_peers(
                network,
                path=config.peers_path,
                metadata=metadata.of,
                options=PeersOptions(transports=environment.transports),
                rng=rng,
                clock=lambda: environment.clock() / 1e9,
            )
        )
        pools = await stack.enter_async_context(open_pools(book))
        now_s = environment.clock() // 1_000_000_000
        record = None
        if key.kind == "secp256k1":
            record = await _own_record(config, network, book, key, shards(), now_s)
        keeper = await stack.enter_async_context(open_keeper(network, rng=rng))
        for origin, nodes in (
            (Origin.PREFERRED, (*config.stores(), *config.preferred())),
            (Origin.STATIC, (*config.bootstrap(), *config.bootstrap_records())),
        ):
            known = read_bootstrap([str(node) for node in nodes], origin=origin)
            book.learn(known.candidates)
            for candidate in known.candidates:
                if candidate.addresses:
                    keeper.keep(candidate.addresses)
        node_lists = config.discovery_urls()
        if node_lists:
            resolver = DnsResolver(config.dns_servers)
            book.add_discovery(DnsDiscovery(node_lists, resolver, rng=rng))
        if config.peer_exchange and relays:
            await stack.enter_async_context(
                open_peer_exchange(
                    network, records=lambda: records_to_give(book.book, config.cluster), rng=rng
                )
            )
        elif config.peer_exchange:
            nodes = pools.open(Need(Service.PEER_EXCHANGE, config.cluster))
            book.add_discovery(
                PeerExchangeDiscovery(
                    PeerExchangeClient(network),
                    lambda: nodes.in_use,
                    cluster_id=config.cluster,
                    report=nodes.report,
                    rng=rng,
                )
            )
        if relays and node_lists:
            # Discovered peers are of use to relay once connected; the router makes its mesh of those.
            for shard in shards():
                pools.open(Need(Service.RELAY, config.cluster, frozenset({shard})))
        yield Finding(book, pools, record)


async def _own_record(
    config: NodeConfig, network: Network, book: PeerManager, key: PrivateKey, shards: list[int], now_s: int
) -> NodeRecord:
    """This node's record, with the number that follows on the last run's where that is remembered."""
    record = NodeRecord(key, saved=await book.fact(_SAVED_RECORD), seq=now_s)
    if config.mode == "relay":
        capabilities = Capability.RELAY
        capabilities |= Capability.LIGHTPUSH if config.lightpush else Capability(0)
        capabilities |= Capability.FILTER if config.filter else Capability(0)
        capabilities |= Capability.STORE if config.store else Capability(0)
        record.set_capabilities(capabilities)
        record.set_shards(config.cluster, shards)
    record.set_addresses(network.addresses)
    await book.note(_SAVED_RECORD, record.encode())
    return record
