"""Filter on real sockets: nothing is lost, and nothing that strangers send does harm."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

import pytest
import trio

from pywaku.errors import DecodeError, NetworkError
from pywaku.message import WakuMessage
from pywaku.network.frames import request
from pywaku.network.libp2p.host import Libp2pNetwork, open_network
from pywaku.network.port import Stream
from pywaku.protocols.filter import (
    PUSH_PROTOCOL,
    SUBSCRIBE_PROTOCOL,
    FilterClient,
    FilterService,
    FilterServiceOptions,
    ReceivedMessage,
    open_filter_client,
    open_filter_service,
)
from pywaku.protocols.relay import Relay, open_relay
from pywaku.wire.filter import (
    FilterSubscribeRequest,
    FilterSubscribeType,
    MessagePush,
    decode_subscribe_response,
    encode_push,
    encode_subscribe_request,
)
from pywaku.wire.framing import frame
from pywaku.wire.multiaddr import Multiaddr
from tests.support.damage import damaged
from tests.support.light import TracedMemory
from tests.support.networks import eventually
from tests.support.relays import CONTENT_TOPIC, TOPIC, message

LISTEN = [Multiaddr.parse("/ip4/127.0.0.1/tcp/0")]
UNLIMITED = FilterServiceOptions(
    requests=replace(FilterServiceOptions().requests, per_peer=None, total=None, max_streams_per_peer=64)
)


class Hosts(NamedTuple):
    """A service node and light nodes, on loopback."""

    network: Libp2pNetwork
    relay: Relay
    service: FilterService
    lights: list[tuple[Libp2pNetwork, FilterClient]]


@asynccontextmanager
async def open_hosts(
    lights: int, options: FilterServiceOptions | None = UNLIMITED
) -> AsyncGenerator[Hosts, None]:
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(open_network(listen=LISTEN))
        relay = await stack.enter_async_context(open_relay(network))
        relay.subscribe_callback(TOPIC, lambda _: None)
        service = await stack.enter_async_context(open_filter_service(network, relay, options=options))
        nodes: list[tuple[Libp2pNetwork, FilterClient]] = []
        for _ in range(lights):
            light = await stack.enter_async_context(open_network())
            client = await stack.enter_async_context(open_filter_client(light))
            await light.connect(network.addresses)
            nodes.append((light, client))
        yield Hosts(network, relay, service, nodes)


async def test_of_1000_pushes_none_is_lost() -> None:
    async with open_hosts(3) as hosts:
        received: list[Counter[bytes]] = []
        for _, client in hosts.lights:
            counter: Counter[bytes] = Counter()

            def count(entry: ReceivedMessage, counter: Counter[bytes] = counter) -> None:
                counter[entry.message_hash] += 1

            client.subscribe_callback(TOPIC, count)
            received.append(counter)
            assert (await client.subscribe(hosts.network.peer_id, TOPIC, [CONTENT_TOPIC])).is_success
        for number in range(1000):
            await hosts.relay.publish(TOPIC, message(f"{number} {'x' * (number % 300)}"))
            if number % 50 == 0:
                await trio.sleep(0)
        await eventually(lambda: all(len(counter) == 1000 for counter in received))
        assert all(times == 1 for counter in received for times in counter.values())
        assert hosts.service.counters.dropped_slow == 0
        assert hosts.service.counters.streams_opened == 3
        for light, client in hosts.lights:
            assert hosts.network.peer_id in light.peers
            assert (await client.ping(hosts.network.peer_id)).is_success


async def test_a_subscriber_that_hangs_up_and_comes_back_is_served_on() -> None:
    async with open_hosts(1) as hosts:
        light, client = hosts.lights[0]
        payloads: list[bytes] = []
        client.subscribe_callback(TOPIC, lambda entry: payloads.append(entry.message.payload))
        await client.subscribe(hosts.network.peer_id, TOPIC, [CONTENT_TOPIC])
        await hosts.relay.publish(TOPIC, message("one"))
        await eventually(lambda: payloads == [b"one"])
        await light.disconnect(hosts.network.peer_id)
        await eventually(lambda: light.peer_id not in hosts.network.peers)
        await hosts.relay.publish(TOPIC, message("two"))
        await light.connect(hosts.network.addresses)
        await eventually(lambda: payloads == [b"one", b"two"])


async def malformed(light: Libp2pNetwork, hosts: Hosts, count: int, rng: random.Random) -> Counter[int]:
    """Make so many damaged requests, some at a time; what was answered."""
    answers: Counter[int] = Counter()
    samples = [
        encode_subscribe_request(
            FilterSubscribeRequest(
                f"id{n}", FilterSubscribeType(n % 4), TOPIC, (CONTENT_TOPIC, f"/a/1/{n}/p")
            )
        )
        for n in range(20)
    ]
    left = count

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            data = damaged(rng.choice(samples), rng.choice(samples), rng)
            if rng.random() < 0.2:  # damage to the frame as well
                with suppress(NetworkError):
                    async with await light.open_stream(hosts.network.peer_id, SUBSCRIBE_PROTOCOL) as stream:
                        await stream.send(damaged(frame(data), frame(data), rng))
                continue
            try:
                answer = await request(
                    light, hosts.network.peer_id, SUBSCRIBE_PROTOCOL, data, max_response=50_000
                )
                answers[decode_subscribe_response(answer).status_code] += 1
            except (NetworkError, DecodeError):
                answers[-1] += 1

    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(work)
    return answers


@pytest.mark.long
async def test_10000_malformed_requests_leave_the_service_and_its_memory_as_they_were() -> None:
    async with open_hosts(2) as hosts:
        rng = random.Random(7)
        (bad, _), (good, client) = hosts.lights
        await malformed(bad, hosts, 500, rng)
        memory = TracedMemory()
        answers = await malformed(bad, hosts, 10_000, rng)
        assert answers[400] > 100
        await client.subscribe(hosts.network.peer_id, TOPIC, [CONTENT_TOPIC])
        payloads: list[bytes] = []
        client.subscribe_callback(TOPIC, lambda entry: payloads.append(entry.message.payload))
        await hosts.relay.publish(TOPIC, message("still here"))
        await eventually(lambda: payloads == [b"still here"])
        await request(
            bad,
            hosts.network.peer_id,
            SUBSCRIBE_PROTOCOL,
            encode_subscribe_request(FilterSubscribeRequest("end", FilterSubscribeType.UNSUBSCRIBE_ALL)),
            max_response=1000,
        )
        assert hosts.service.peers == 1
        await eventually(lambda: hosts.service.requests.open_streams == 0)
        held = memory.held()
        assert held < 500_000
        assert good.peer_id in hosts.network.peers


@pytest.mark.long
async def test_10000_malformed_pushes_leave_the_client_and_its_memory_as_they_were() -> None:
    async with open_hosts(1) as hosts:
        light, client = hosts.lights[0]
        payloads: list[bytes] = []
        client.subscribe_callback(TOPIC, lambda entry: payloads.append(entry.message.payload))
        await client.subscribe(hosts.network.peer_id, TOPIC, [CONTENT_TOPIC])
        rng = random.Random(8)
        samples = [
            encode_push(MessagePush(WakuMessage(rng.randbytes(50), "/b/1/c/p"), TOPIC)) for _ in range(9)
        ]

        async def throw(count: int) -> None:
            stream: Stream | None = None
            for _ in range(count):
                data = damaged(rng.choice(samples), rng.choice(samples), rng)
                data = frame(data) if rng.random() < 0.9 else damaged(frame(data), data, rng)
                try:
                    if stream is None:
                        stream = await hosts.network.open_stream(light.peer_id, PUSH_PROTOCOL)
                    await stream.send(data)
                except NetworkError:
                    stream = None
            if stream is not None:
                await stream.close()

        await throw(500)
        memory = TracedMemory()
        await throw(10_000)
        assert client.counters.undecodable > 100
        await hosts.relay.publish(TOPIC, message("still here"))
        await eventually(lambda: b"still here" in payloads)
        assert payloads == [b"still here"]
        held = memory.held()
        assert held < 500_000
