"""Light nodes and their service nodes for tests, on a simulated network."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import trio

from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.network.frames import request
from pywaku.network.port import Stream
from pywaku.network.simulated import LinkProfile, SimulatedNetwork, SimulatedWorld
from pywaku.protocols.filter import (
    PUSH_PROTOCOL,
    SUBSCRIBE_PROTOCOL,
    FilterClient,
    FilterClientOptions,
    FilterService,
    FilterServiceOptions,
    ReceivedMessage,
    open_filter_client,
    open_filter_service,
)
from pywaku.protocols.relay import Relay, RelayOptions
from pywaku.wire.filter import (
    FilterSubscribeRequest,
    FilterSubscribeResponse,
    FilterSubscribeType,
    MessagePush,
    decode_push,
    decode_subscribe_response,
    encode_subscribe_request,
)
from pywaku.wire.framing import FrameDecoder
from tests.support.relays import CONTENT_TOPIC, TOPIC, open_node


class Light(NamedTuple):
    """A light node that is connected to the service node."""

    network: SimulatedNetwork
    client: FilterClient
    received: list[ReceivedMessage]

    @property
    def payloads(self) -> list[bytes]:
        """What it got on `TOPIC`."""
        return [entry.message.payload for entry in self.received]


class FilterWorld(NamedTuple):
    """A service node whose relay has joined `TOPIC`, and light nodes."""

    world: SimulatedWorld
    network: SimulatedNetwork
    relay: Relay
    service: FilterService
    lights: list[Light]

    @property
    def peer(self) -> PeerId:
        """The service node."""
        return self.network.peer_id

    async def subscribe(self, *content_topics: str) -> None:
        """All light nodes subscribe, to `CONTENT_TOPIC` if nothing else is said."""
        for light in self.lights:
            result = await light.client.subscribe(self.peer, TOPIC, content_topics or (CONTENT_TOPIC,))
            assert result.is_success, result

    async def publish(self, *messages: WakuMessage) -> None:
        """The service node relays messages; returns when they must have been pushed to healthy peers."""
        for message in messages:
            await self.relay.publish(TOPIC, message)
        await trio.sleep(1)


@asynccontextmanager
async def open_light(
    world: SimulatedWorld, name: str, service: SimulatedNetwork, *, options: FilterClientOptions | None = None
) -> AsyncGenerator[Light, None]:
    """A light node that is connected to a service node, and keeps what it gets on `TOPIC`."""
    async with world.host(name) as network, open_filter_client(network, options=options) as client:
        await network.connect(service.addresses)
        received: list[ReceivedMessage] = []
        client.subscribe_callback(TOPIC, received.append)
        yield Light(network, client, received)


@asynccontextmanager
async def open_filter_world(
    lights: int = 1,
    *,
    options: FilterServiceOptions | None = None,
    relay_options: RelayOptions | None = None,
    link: LinkProfile | None = None,
) -> AsyncGenerator[FilterWorld, None]:
    """See `FilterWorld`."""
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(SimulatedWorld(1, link=link))
        node = await stack.enter_async_context(open_node(world, "service", options=relay_options))
        node.relay.subscribe_callback(TOPIC, lambda _: None)
        service = await stack.enter_async_context(
            open_filter_service(node.network, node.relay, options=options)
        )
        nodes = [
            await stack.enter_async_context(open_light(world, f"light-{i}", node.network))
            for i in range(lights)
        ]
        yield FilterWorld(world, node.network, node.relay, service, nodes)


class RawSubscriber:
    """A host that speaks filter by hand: asks what it is told, notes what is pushed to it."""

    def __init__(self, network: SimulatedNetwork, service: PeerId) -> None:
        self.network = network
        self.service = service
        self.pushes: list[MessagePush] = []
        self.streams: list[Stream] = []
        """Push streams, in the order they came."""
        self.reading = True
        """Read push streams; otherwise they are left alone."""
        self.pushes_per_stream: int | None = None
        """Close a push stream after so many."""
        self.refuse = False
        """Reset push streams at once."""
        network.serve(PUSH_PROTOCOL, self._serve)

    async def ask(
        self,
        kind: FilterSubscribeType,
        *content_topics: str,
        pubsub_topic: str | None = None,
        request_id: str = "one",
    ) -> FilterSubscribeResponse:
        """Make one request."""
        return await self.ask_bytes(
            encode_subscribe_request(FilterSubscribeRequest(request_id, kind, pubsub_topic, content_topics))
        )

    async def ask_bytes(self, data: bytes) -> FilterSubscribeResponse:
        """Make a request of whatever bytes."""
        answer = await request(self.network, self.service, SUBSCRIBE_PROTOCOL, data, max_response=10_000)
        return decode_subscribe_response(answer)

    async def subscribe(self, *content_topics: str) -> None:
        """Subscribe on `TOPIC`, to `CONTENT_TOPIC` if nothing else is said."""
        answer = await self.ask(
            FilterSubscribeType.SUBSCRIBE, *(content_topics or (CONTENT_TOPIC,)), pubsub_topic=TOPIC
        )
        assert answer.is_success, answer

    @property
    def payloads(self) -> list[bytes]:
        """What was pushed."""
        return [push.message.payload for push in self.pushes]

    async def _serve(self, stream: Stream) -> None:
        self.streams.append(stream)
        if self.refuse:
            stream.reset()
            return
        decoder = FrameDecoder(1 << 20)
        count = 0
        while self.reading and (data := await stream.receive()):
            for frame in decoder.feed(data):
                self.pushes.append(decode_push(frame))
                count += 1
                if count == self.pushes_per_stream:
                    return
        if not self.reading:
            await trio.sleep_forever()


@asynccontextmanager
async def open_raw_subscriber(filters: FilterWorld, name: str = "raw") -> AsyncGenerator[RawSubscriber, None]:
    """A raw subscriber that is connected to the service node."""
    async with filters.world.host(name) as network:
        await network.connect(filters.network.addresses)
        yield RawSubscriber(network, filters.peer)


class TracedMemory:
    """What is allocated from now on, and not freed."""

    def __init__(self) -> None:
        gc.collect()
        tracemalloc.start(1)

    def held(self) -> int:
        """How many bytes that is; ends the tracing."""
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size
