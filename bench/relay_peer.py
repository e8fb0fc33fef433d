"""A Python peer for the benchmarks of relay; `interop/js/gossip.mjs` is the same in JavaScript."""

from __future__ import annotations

import os
from typing import Any

import trio

from bench.commands import answer_commands
from pywaku.message import WakuMessage
from pywaku.network.libp2p.host import open_network
from pywaku.network.port import Network
from pywaku.protocols.relay.delivery import ReceivedMessage
from pywaku.protocols.relay.options import RelayOptions
from pywaku.protocols.relay.relay import Relay, open_relay
from pywaku.wire.multiaddr import Multiaddr

_LISTEN = [Multiaddr.parse("/ip4/127.0.0.1/tcp/0")]


class RelayPeer:
    """What can be asked of it."""

    def __init__(self, network: Network, relay: Relay) -> None:
        self._network = network
        self._relay = relay
        self._received = 0
        self._wanted = 0
        self._all_there = trio.Event()
        self._published = 0

    async def dial(self, options: dict[str, Any]) -> str:
        """Connect to an address."""
        return str(await self._network.connect(Multiaddr.parse(options["address"])))

    async def subscribe(self, options: dict[str, Any]) -> None:
        """Join a topic and count what comes."""
        self._relay.subscribe_callback(options["topic"], self._count)

    def _count(self, _received: ReceivedMessage) -> None:
        self._received += 1
        if self._received == self._wanted:
            self._all_there.set()

    async def mesh(self, options: dict[str, Any]) -> list[str]:
        """The peers in the mesh of a topic."""
        return [str(peer) for peer in self._relay.mesh(options["topic"])]

    async def bench_receive(self, _options: dict[str, Any]) -> None:
        """Count from zero."""
        self._received = self._wanted = 0

    async def wait_received(self, options: dict[str, Any]) -> int:
        """Wait until so many messages were delivered since then."""
        self._wanted = options["count"]
        if self._received < self._wanted:
            self._all_there = trio.Event()
            await self._all_there.wait()
        return self._received

    async def bench_publish(self, options: dict[str, Any]) -> None:
        """Publish as fast as relay takes messages."""
        topic = options["topic"]
        filler = os.urandom(options["size"] - 4)
        for _ in range(options["count"]):
            self._published += 1  # no two messages are the same
            payload = self._published.to_bytes(4) + filler
            message = WakuMessage(payload, "/pywaku/1/bench/proto", timestamp_ns=self._published)
            await self._relay.publish(topic, message)


async def main() -> None:
    """Serve and answer until stdin ends."""
    async with (
        open_network(listen=_LISTEN) as network,
        # The JavaScript peer does not deliver its own messages to itself either.
        open_relay(network, options=RelayOptions(deliver_own=False)) as relay,
    ):
        peer = RelayPeer(network, relay)
        await answer_commands(
            {
                "dial": peer.dial,
                "subscribe": peer.subscribe,
                "mesh": peer.mesh,
                "benchReceive": peer.bench_receive,
                "waitReceived": peer.wait_received,
                "benchPublish": peer.bench_publish,
            },
            {"peer": str(network.peer_id), "addresses": [str(address) for address in network.addresses]},
        )


if __name__ == "__main__":
    trio.run(main)
