"""Relay and metadata between real hosts on loopback, scoring on."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import combinations

import pytest
import trio

from pywaku.network.libp2p.host import open_network
from pywaku.network.port import Network
from pywaku.protocols.metadata import open_metadata
from pywaku.protocols.relay import ReceivedMessage, Relay, RelayOptions, open_relay
from pywaku.wire.metadata import Metadata as Said
from pywaku.wire.multiaddr import Multiaddr
from tests.support.relays import TOPIC, message

LISTEN = [Multiaddr.parse("/ip4/127.0.0.1/tcp/0")]


@asynccontextmanager
async def open_hosts(count: int) -> AsyncGenerator[list[tuple[Network, Relay, Counter[bytes]]], None]:
    """Fully connected relays that have joined `TOPIC` and count what they get."""
    async with AsyncExitStack() as stack:
        hosts: list[tuple[Network, Relay, Counter[bytes]]] = []
        for _ in range(count):
            network = await stack.enter_async_context(open_network(listen=LISTEN))
            options = RelayOptions(deliver_own=False)
            relay = await stack.enter_async_context(open_relay(network, options=options))
            received: Counter[bytes] = Counter()

            def count_in(entry: ReceivedMessage, received: Counter[bytes] = received) -> None:
                received[entry.message_hash] += 1

            relay.subscribe_callback(TOPIC, count_in)
            hosts.append((network, relay, received))
        async with trio.open_nursery() as nursery:
            for (one, _, _), (other, _, _) in combinations(hosts, 2):
                nursery.start_soon(one.connect, other.addresses)
        yield hosts


async def until_all_have(hosts: list[tuple[Network, Relay, Counter[bytes]]], total: int) -> None:
    """Wait until each host has got what the others published."""
    with trio.fail_after(30):
        for _, relay, received in hosts:
            while len(received) < total - relay.counters.published:
                await trio.sleep(0.02)


async def test_relays_on_real_sockets_exchange_messages() -> None:
    async with open_hosts(3) as hosts:
        with trio.fail_after(30):
            while any(len(relay.peers_of(TOPIC)) < 2 for _, relay, _ in hosts):
                await trio.sleep(0.02)
        for number in range(300):
            outcome = await hosts[number % 3][1].publish(TOPIC, message(f"{number} {'x' * (number * 7)}"))
            assert outcome.peers == 2
        await until_all_have(hosts, 300)
        assert all(times == 1 for _, _, received in hosts for times in received.values())
        assert all(relay.counters.dropped_slow_peer == 0 for _, relay, _ in hosts)


async def test_metadata_on_real_sockets() -> None:
    async with (
        open_network(listen=LISTEN) as one,
        open_network(listen=LISTEN) as two,
        open_network(listen=LISTEN) as stranger,
        open_metadata(one, cluster_id=42, shards=lambda: [0, 5]) as first,
        open_metadata(two, cluster_id=42) as second,
        open_metadata(stranger, cluster_id=1),
    ):
        await two.connect(one.addresses)
        with trio.fail_after(10):
            while first.of(two.peer_id) is None or second.of(one.peer_id) is None:
                await trio.sleep(0.02)
        assert first.of(two.peer_id) == Said(42, ())
        assert second.of(one.peer_id) == Said(42, (0, 5))
        await stranger.connect(one.addresses)
        with trio.fail_after(10):
            while stranger.peer_id in one.peers or one.peer_id in stranger.peers:
                await trio.sleep(0.02)
        assert two.peer_id in one.peers


@pytest.mark.long
async def test_14_fully_connected_hosts_all_get_every_message_from_second_5_on() -> None:
    async with open_hosts(14) as hosts:
        await trio.sleep(5)
        total = 14 * 20
        for number in range(total):
            await hosts[number % 14][1].publish(TOPIC, message(number))
            await trio.sleep(0.01)
        await until_all_have(hosts, total)
        assert all(times == 1 for _, _, received in hosts for times in received.values())
