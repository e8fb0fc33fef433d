"""What a relay node does for others: lightpush, filter and store, as far as it was told to."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from pywaku.archive import Archive, ArchiveWriter, open_archive, open_archive_writer
from pywaku.messaging.config import NodeConfig
from pywaku.messaging.environment import Environment
from pywaku.network.port import Network
from pywaku.protocols.filter import FilterService, open_filter_service
from pywaku.protocols.lightpush import (
    AutoSharding,
    LightpushService,
    LightpushServiceOptions,
    open_lightpush_service,
)
from pywaku.protocols.relay import Relay
from pywaku.protocols.store import StoreService, open_store_service, store_from_relay


@dataclass(frozen=True, slots=True)
class Services:
    """The services of a node; None where one is not mounted. They are there to look at: counters, tables."""

    lightpush: LightpushService | None = None
    filter: FilterService | None = None
    store: StoreService | None = None
    archive: Archive | None = None
    archive_writer: ArchiveWriter | None = None


@asynccontextmanager
async def open_services(
    config: NodeConfig, network: Network, relay: Relay, environment: Environment
) -> AsyncGenerator[Services]:
    """Mount what the configuration says; leaving it unmounts, and writes what is to be stored."""
    lightpush: LightpushService | None = None
    filter_: FilterService | None = None
    store: StoreService | None = None
    archive: Archive | None = None
    writer: ArchiveWriter | None = None
    async with AsyncExitStack() as stack:
        if config.store:
            # The archive is opened first: a node that was told to store and cannot does not start.
            archive = await stack.enter_async_context(
                open_archive(config.store_url, retention=config.store_retention, clock=environment.clock)
            )
            writer = await stack.enter_async_context(open_archive_writer(archive, clock=environment.clock))
            stack.enter_context(store_from_relay(relay, writer, config.topics))
            store = await stack.enter_async_context(open_store_service(network, archive))
        if config.lightpush:
            sharding = AutoSharding(config.cluster, config.shard_count) if config.shard_count else None
            options = LightpushServiceOptions(auto_sharding=sharding)
            lightpush = await stack.enter_async_context(
                open_lightpush_service(network, relay, options=options)
            )
        if config.filter:
            filter_ = await stack.enter_async_context(open_filter_service(network, relay))
        yield Services(lightpush, filter_, store, archive, writer)
