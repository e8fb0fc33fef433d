"""The store protocol on real sockets, with an archive in SQLite; and what it takes to hurt it."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from pywaku.archive import open_archive
from pywaku.errors import NetworkError
from pywaku.network.libp2p.host import Libp2pNetwork, open_network
from pywaku.network.port import Network
from pywaku.protocols.store import (
    PROTOCOL,
    StoreClient,
    StoreQuery,
    StoreQueryRequest,
    StoreService,
    open_store_service,
)
from pywaku.wire import store as wire
from pywaku.wire import varint
from pywaku.wire.framing import frame
from pywaku.wire.multiaddr import Multiaddr
from tests.support.networks import eventually
from tests.support.stores import SHARD, TOPIC, UNLIMITED, archive_of, hashes_of, history

LISTEN = [Multiaddr.parse("/ip4/127.0.0.1/tcp/0")]
HISTORY = history(300)
QUERY = StoreQuery(SHARD, (TOPIC,), page_size=20)


class Pair(NamedTuple):
    """A store, and a client that is connected to it."""

    client: Libp2pNetwork
    server: Libp2pNetwork
    service: StoreService


@asynccontextmanager
async def open_pair() -> AsyncGenerator[Pair]:
    """The two, with the history in memory."""
    async with (
        open_network(listen=LISTEN) as server,
        open_network() as client,
        open_store_service(server, archive_of(HISTORY), limits=UNLIMITED) as service,
    ):
        await client.connect(server.addresses)
        yield Pair(client, server, service)


@pytest.mark.parametrize("forward", [True, False])
async def test_a_history_is_read_page_by_page_from_sqlite(forward: bool) -> None:
    async with AsyncExitStack() as stack:
        archive = await stack.enter_async_context(open_archive("sqlite://:memory:", retention="none"))
        await archive.insert(HISTORY)
        server = await stack.enter_async_context(open_network(listen=LISTEN))
        client = await stack.enter_async_context(open_network())
        await stack.enter_async_context(open_store_service(server, archive, limits=UNLIMITED))
        await client.connect(server.addresses)
        store = StoreClient(client)
        query = StoreQuery(SHARD, (TOPIC,), forward=forward)
        found = [entry.message_hash async for entry in store.messages(query, [server.peer_id])]
        assert found == hashes_of(HISTORY if forward else HISTORY[::-1])
        assert await store.which_stored([*found, bytes(32)], [server.peer_id]) == set(found)


async def test_a_result_goes_on_at_another_store_when_the_first_goes() -> None:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_network())
        second = await stack.enter_async_context(open_network(listen=LISTEN))
        await stack.enter_async_context(open_store_service(second, archive_of(HISTORY), limits=UNLIMITED))
        await client.connect(second.addresses)
        async with (
            open_network(listen=LISTEN) as first,
            open_store_service(first, archive_of(HISTORY), limits=UNLIMITED),
        ):
            await client.connect(first.addresses)
            messages = StoreClient(client).messages(QUERY, [first.peer_id, second.peer_id])
            found = [(await anext(messages)).message_hash for _ in range(50)]
        found += [entry.message_hash async for entry in messages]
        assert found == hashes_of(HISTORY)


async def test_a_page_of_the_largest_messages_arrives() -> None:
    messages = history(40, size=150_000)
    async with (
        open_network(listen=LISTEN) as server,
        open_network() as client,
        open_store_service(server, archive_of(messages), limits=UNLIMITED),
    ):
        await client.connect(server.addresses)
        pages = StoreClient(client).pages(StoreQuery(), [server.peer_id])
        sizes = [len(page.entries) async for page in pages]
        assert sum(sizes) == 40
        assert len(sizes) == 2


def malformed(rng: random.Random) -> bytes:
    """What a store should not be sent, frame and all."""
    proper = wire.encode_request(StoreQueryRequest("r", True, SHARD, (TOPIC,), 1, 2, (), bytes(32), True, 20))
    match rng.randrange(8):
        case 0:
            return frame(rng.randbytes(rng.randrange(200)))
        case 1:
            return frame(proper[: rng.randrange(len(proper))])
        case 2:
            broken = bytearray(proper)
            broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
            return frame(bytes(broken))
        case 3:
            return varint.encode(rng.randrange(1 << 40)) + rng.randbytes(50)
        case 4:
            return b"\xff" * rng.randrange(1, 20)
        case 5:
            return frame(proper)[: rng.randrange(len(proper))]
        case 6:
            return frame(wire.encode_request(StoreQueryRequest("r", message_hashes=(rng.randbytes(31),))))
        case _:
            return b""


async def send_malformed(client: Network, server: Network, rng: random.Random) -> None:
    """One stream; the end may be proper or not."""
    try:
        stream = await client.open_stream(server.peer_id, PROTOCOL)
        data = malformed(rng)
        if data:
            await stream.send(data)
        if rng.random() < 0.3:
            stream.reset()
            return
        await stream.close_write()
        while await stream.receive():
            pass
        await stream.close()
    except NetworkError:
        pass


def resident_kib() -> int:
    """Memory of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.long)])
async def test_malformed_requests_are_survived_and_leave_nothing_behind(count: int) -> None:
    """Of ten thousand, too: queries are answered in between, and memory is where it was."""
    rng = random.Random(1)
    async with open_pair() as (client, server, service):
        store = StoreClient(client)

        async def some(amount: int) -> None:
            async def worker() -> None:
                for _ in range(amount // 8):
                    await send_malformed(client, server, rng)

            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(worker)
                nursery.start_soon(store.query, server.peer_id, QUERY)

        await some(count // 4)
        before = resident_kib()
        await some(count)
        with trio.move_on_after(5):  # streams that were reset in silence may take a moment
            await eventually(lambda: service.requests.open_streams == 0)
        assert resident_kib() - before < 4096
        assert service.requests.counters.undecodable > count // 4
        assert service.requests.counters.failed == 0
        response = await store.query(server.peer_id, QUERY)
        assert hashes_of(response.messages) == hashes_of(HISTORY[:20])
        assert server.peer_id in client.peers
