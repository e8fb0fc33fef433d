"""Light push on real sockets: everything is answered, and nothing that strangers send does harm."""

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
from pywaku.network.frames import request
from pywaku.network.libp2p.host import Libp2pNetwork, open_network
from pywaku.protocols.lightpush import (
    LEGACY_PROTOCOL,
    PROTOCOL,
    LightpushClient,
    LightpushService,
    LightpushServiceOptions,
    open_lightpush_service,
)
from pywaku.protocols.relay import ReceivedMessage, Relay, open_relay
from pywaku.wire import lightpush, lightpush_legacy
from pywaku.wire.framing import frame
from pywaku.wire.multiaddr import Multiaddr
from tests.support.damage import damaged
from tests.support.light import TracedMemory
from tests.support.networks import eventually
from tests.support.relays import TOPIC, message

LISTEN = [Multiaddr.parse("/ip4/127.0.0.1/tcp/0")]
UNLIMITED = LightpushServiceOptions(
    requests=replace(LightpushServiceOptions().requests, per_peer=None, total=None)
)


class Hosts(NamedTuple):
    """A service node, a relay node that it is meshed with, and a light node, on loopback."""

    network: Libp2pNetwork
    service: LightpushService
    relay: Relay
    received: Counter[bytes]
    light: Libp2pNetwork


@asynccontextmanager
async def open_hosts() -> AsyncGenerator[Hosts, None]:
    async with AsyncExitStack() as stack:
        network = await stack.enter_async_context(open_network(listen=LISTEN))
        relay = await stack.enter_async_context(open_relay(network))
        relay.subscribe_callback(TOPIC, lambda _: None)
        service = await stack.enter_async_context(open_lightpush_service(network, relay, options=UNLIMITED))
        other = await stack.enter_async_context(open_network())
        other_relay = await stack.enter_async_context(open_relay(other))
        received: Counter[bytes] = Counter()

        def count(entry: ReceivedMessage) -> None:
            received[entry.message.payload] += 1

        other_relay.subscribe_callback(TOPIC, count)
        await other.connect(network.addresses)
        await eventually(lambda: bool(relay.peers_of(TOPIC)))
        light = await stack.enter_async_context(open_network())
        await light.connect(network.addresses)
        yield Hosts(network, service, relay, received, light)


async def test_1000_pushes_32_at_a_time_are_all_acknowledged_and_relayed() -> None:
    async with open_hosts() as hosts:
        client = LightpushClient(hosts.light)
        left = iter(range(1000))
        results: Counter[int | None] = Counter()

        async def work() -> None:
            for number in left:
                result = await client.push(hosts.network.peer_id, TOPIC, message(number))
                assert result.relay_peer_count == 1
                results[result.status] += 1

        async with trio.open_nursery() as nursery:
            for _ in range(32):
                nursery.start_soon(work)
        assert results == {200: 1000}
        await eventually(lambda: len(hosts.received) == 1000)
        assert client.counters.failed == 0


async def malformed(hosts: Hosts, protocol: str, count: int, rng: random.Random) -> int:
    """Make so many damaged requests, some at a time; how many were answered."""
    answered = 0
    left = count
    if protocol == PROTOCOL:
        encode = [
            lightpush.encode_request(lightpush.LightPushRequest(f"id{n}", message(n), TOPIC))
            for n in range(9)
        ]
    else:
        encode = [
            lightpush_legacy.encode_request(lightpush_legacy.PushRequest(f"id{n}", TOPIC, message(n)))
            for n in range(9)
        ]

    async def work() -> None:
        nonlocal left, answered
        while left > 0:
            left -= 1
            data = damaged(rng.choice(encode), rng.choice(encode), rng)
            peer = hosts.network.peer_id
            if rng.random() < 0.2:  # damage to the frame as well
                with suppress(NetworkError):
                    async with await hosts.light.open_stream(peer, protocol) as stream:
                        await stream.send(damaged(frame(data), frame(data), rng))
                continue
            with suppress(NetworkError, DecodeError):
                await request(hosts.light, peer, protocol, data, max_response=300_000)
                answered += 1

    async with trio.open_nursery() as nursery:
        for _ in range(16):
            nursery.start_soon(work)
    return answered


@pytest.mark.long
@pytest.mark.parametrize("protocol", [PROTOCOL, LEGACY_PROTOCOL])
async def test_10000_malformed_requests_leave_the_service_and_its_memory_as_they_were(protocol: str) -> None:
    async with open_hosts() as hosts:
        rng = random.Random(7)
        await malformed(hosts, protocol, 500, rng)
        memory, relayed = TracedMemory(), hosts.service.counters.relayed
        assert await malformed(hosts, protocol, 10_000, rng) > 7000
        client = LightpushClient(hosts.light)
        result = await client.push(hosts.network.peer_id, TOPIC, message("still here"))
        assert result.is_success
        await eventually(lambda: b"still here" in hosts.received)
        services = hosts.service.requests, hosts.service.legacy_requests
        await eventually(lambda: all(service.open_streams == 0 for service in services))
        hosts.received.clear()
        # Relay remembers what was published for two minutes; apart from that nothing stays.
        held = memory.held()
        assert held < 500_000 + 2_000 * (hosts.service.counters.relayed - relayed)
