"""What relay delivers gets into the archive (13/WAKU2-STORE, Waku Message Store Eligibility)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from pywaku.archive import ArchiveWriter, open_archive_writer
from pywaku.errors import ArchiveError
from pywaku.network.simulated import SimulatedWorld
from pywaku.protocols.store import StoreClient, StoreQuery, open_store_service, store_from_relay
from tests.support.archives import MemoryArchive
from tests.support.relays import CONTENT_TOPIC, TOPIC, Node, message, open_node, wall_clock

OTHER_TOPIC = "/waku/2/rs/42/1"


@asynccontextmanager
async def open_two() -> AsyncGenerator[tuple[Node, Node, MemoryArchive, ArchiveWriter]]:
    """A publisher, and a store node with its archive."""
    archive = MemoryArchive()
    async with (
        SimulatedWorld(3) as world,
        open_node(world, "publisher") as publisher,
        open_node(world, "store") as store,
        open_archive_writer(archive, clock=wall_clock) as writer,
    ):
        await publisher.network.connect(store.network.addresses)
        yield publisher, store, archive, writer


async def settle(writer: ArchiveWriter) -> None:
    """Let messages arrive and be written."""
    await trio.sleep(3)
    await writer.flush()


@pytest.mark.virtual
async def test_relayed_messages_are_stored_and_can_be_queried() -> None:
    async with open_two() as (publisher, store, archive, writer):
        with store_from_relay(store.relay, writer, [TOPIC]):
            await trio.sleep(2)
            sent = [message(number, timestamp_ns=wall_clock() + number) for number in range(20)]
            for one in sent:
                await publisher.relay.publish(TOPIC, one)
            await settle(writer)
        async with open_store_service(store.network, archive):
            client = StoreClient(publisher.network)
            query = StoreQuery(TOPIC, (CONTENT_TOPIC,))
            found = [entry.message async for entry in client.messages(query, [store.network.peer_id])]
        assert found == sent


@pytest.mark.virtual
async def test_ephemeral_messages_are_not_stored() -> None:
    async with open_two() as (publisher, store, archive, writer):
        with store_from_relay(store.relay, writer, [TOPIC]):
            await trio.sleep(2)
            await publisher.relay.publish(TOPIC, message("kept", timestamp_ns=wall_clock()))
            await publisher.relay.publish(
                TOPIC, message("not kept", timestamp_ns=wall_clock(), ephemeral=True)
            )
            await settle(writer)
        assert [one.message.payload for one in archive.in_order()] == [b"kept"]


@pytest.mark.virtual
async def test_what_the_node_publishes_itself_is_stored() -> None:
    async with open_two() as (_, store, archive, writer):
        with store_from_relay(store.relay, writer, [TOPIC]):
            await store.relay.publish(TOPIC, message("own", timestamp_ns=wall_clock()))
            await settle(writer)
        assert len(archive.kept) == 1


@pytest.mark.virtual
async def test_topics_come_and_go() -> None:
    async with open_two() as (_, store, archive, writer):
        feed = store_from_relay(store.relay, writer, [TOPIC])
        feed.add(OTHER_TOPIC)
        feed.add(OTHER_TOPIC)
        assert feed.topics == {TOPIC, OTHER_TOPIC}
        await store.relay.publish(OTHER_TOPIC, message("one", timestamp_ns=wall_clock()))
        feed.remove(OTHER_TOPIC)
        feed.remove(OTHER_TOPIC)
        await store.relay.publish(OTHER_TOPIC, message("two", timestamp_ns=wall_clock()))
        await settle(writer)
        assert [one.message.payload for one in archive.in_order()] == [b"one"]
        assert store.relay.topics == {TOPIC}
        feed.close()
        assert feed.topics == frozenset()
        assert store.relay.topics == frozenset()


@pytest.mark.virtual
async def test_an_archive_that_fails_does_not_hold_relay_up() -> None:
    """Messages are relayed on, and the failures counted."""
    async with open_two() as (publisher, store, archive, writer):
        archive.failure = ArchiveError("read-only", reason="read-only")
        received = store.relay.subscribe(TOPIC)
        with store_from_relay(store.relay, writer, [TOPIC]):
            await trio.sleep(2)
            await publisher.relay.publish(TOPIC, message("one", timestamp_ns=wall_clock()))
            assert (await anext(received)).message.payload == b"one"
            await trio.sleep(60)
            assert writer.counters.failures["read-only"] > 0
            archive.failure = None
            await publisher.relay.publish(TOPIC, message("two", timestamp_ns=wall_clock()))
            await settle(writer)
        assert [one.message.payload for one in archive.in_order()] == [b"two"]
