"""Messages, stores that hold them, and stores that misbehave."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import trio

from pywaku.archive import StoredMessage
from pywaku.errors import NetworkError
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.network.frames import FrameReader, write_frame
from pywaku.network.port import Network, Stream
from pywaku.network.simulated import SimulatedNetwork, SimulatedWorld
from pywaku.protocols.service import ServiceLimits
from pywaku.protocols.store import (
    PROTOCOL,
    PageLimits,
    StoreClient,
    StoreClientOptions,
    StoreEntry,
    StoreQueryRequest,
    StoreQueryResponse,
    StoreService,
    answer_query,
    open_store_service,
)
from pywaku.wire import store as wire
from tests.support.archives import MemoryArchive

SHARD = "/waku/2/rs/42/0"
OTHER_SHARD = "/waku/2/rs/42/1"
TOPIC = "/app/1/chat/proto"
OTHER_TOPIC = "/app/1/news/proto"
START = 1_700_000_000_000_000_000

UNLIMITED = ServiceLimits(per_peer=None, total=None, max_request=128 * 1024)


def stored(
    number: int, *, topic: str = TOPIC, shard: str = SHARD, at: int | None = None, size: int = 10
) -> StoredMessage:
    """The message of a number; its time is the number unless said otherwise."""
    message = WakuMessage(
        number.to_bytes(max(4, size)), topic, timestamp_ns=START + (number if at is None else at)
    )
    return StoredMessage.of(shard, message, START + number)


def history(count: int, *, per_time: int = 1, size: int = 10) -> list[StoredMessage]:
    """Messages of one topic, `per_time` of which share a timestamp; in order."""
    return in_order([stored(number, at=number // per_time, size=size) for number in range(count)])


def in_order(messages: Iterable[StoredMessage]) -> list[StoredMessage]:
    """Sorted as the spec says."""
    return sorted(messages, key=lambda one: (one.timestamp_ns, one.message_hash))


def hashes_of(entries: Iterable[StoreEntry | StoredMessage]) -> list[bytes]:
    """The hashes, in order."""
    return [entry.message_hash for entry in entries]


def archive_of(messages: Sequence[StoredMessage]) -> MemoryArchive:
    """An archive that holds the messages."""
    archive = MemoryArchive()
    archive.insert_now(messages)
    return archive


@dataclass(slots=True)
class Store:
    """A store in a simulated world."""

    network: SimulatedNetwork
    archive: MemoryArchive
    service: StoreService

    @property
    def peer(self) -> PeerId:
        """Who it is."""
        return self.network.peer_id


@dataclass(slots=True)
class Stores:
    """A client, and stores that it is connected to."""

    world: SimulatedWorld
    network: SimulatedNetwork
    client: StoreClient
    stores: list[Store]
    accused: list[tuple[PeerId, str]]
    """Peers reported by the client, and why."""

    @property
    def peers(self) -> list[PeerId]:
        """The stores."""
        return [store.peer for store in self.stores]

    async def ask(
        self, *, store: int = 0, request_id: str = "r1", **fields: Any
    ) -> tuple[StoreQueryResponse, Store]:
        """What a store answers, not held to anything."""
        request = StoreQueryRequest(request_id, **fields)
        at = self.stores[store]
        return await raw_query(self.network, at.peer, wire.encode_request(request)), at


@asynccontextmanager
async def open_stores(
    *archives: Sequence[StoredMessage],
    limits: ServiceLimits = UNLIMITED,
    pages: PageLimits | None = None,
    options: StoreClientOptions | None = None,
) -> AsyncGenerator[Stores]:
    """A world with one store for each list of messages."""
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(SimulatedWorld(7))
        network = await stack.enter_async_context(world.host("client"))
        stores: list[Store] = []
        for messages in archives:
            host = await stack.enter_async_context(world.host())
            archive = archive_of(messages)
            service = await stack.enter_async_context(
                open_store_service(host, archive, limits=limits, pages=pages)
            )
            await network.connect(host.addresses)
            stores.append(Store(host, archive, service))
        accused: list[tuple[PeerId, str]] = []
        client = StoreClient(
            network, options=options, on_bad_peer=lambda peer, why: accused.append((peer, why))
        )
        yield Stores(world, network, client, stores, accused)


async def raw_query(network: Network, peer: PeerId, request: bytes) -> StoreQueryResponse:
    """Bytes to a store, and its response."""
    async with await network.open_stream(peer, PROTOCOL) as stream:
        await write_frame(stream, request)
        answer = await FrameReader(stream, 64 * 1024 * 1024).read()
    if answer is None:
        raise NetworkError("no answer")
    return wire.decode_response(answer)


Twist = Callable[[StoreQueryRequest, StoreQueryResponse], StoreQueryResponse | bytes | None]
"""What a twisted store makes of a proper answer; None resets the stream."""


def serve_twisted(
    network: Network,
    archive: MemoryArchive,
    twist: Twist,
    *,
    pause: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
) -> None:
    """Have a host answer queries properly, but for a twist."""

    async def handle(stream: Stream) -> None:
        data = await FrameReader(stream, 1_000_000).read()
        assert data is not None
        request = wire.decode_request(data)
        response = await answer_query(archive, request)
        await pause()
        twisted = twist(request, response)
        if twisted is None:
            stream.reset()
            return
        await write_frame(stream, twisted if isinstance(twisted, bytes) else wire.encode_response(twisted))

    network.unserve(PROTOCOL)
    network.serve(PROTOCOL, handle)
