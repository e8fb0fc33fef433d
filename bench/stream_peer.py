"""A Python peer for the benchmarks of streams; `interop/js/peer.mjs` is the same in JavaScript."""

from __future__ import annotations

import os
import time
from typing import Any

import trio

from bench.commands import answer_commands
from interop.streams import bulk_once, echo_once, repeat, request_once, serve_streams
from pywaku.ids import PeerId
from pywaku.network.libp2p.host import Libp2pNetwork, open_network
from pywaku.wire.multiaddr import Multiaddr

_LISTEN = [Multiaddr.parse("/ip4/127.0.0.1/tcp/0")]


class StreamPeer:
    """What can be asked of it."""

    def __init__(self, network: Libp2pNetwork, nursery: trio.Nursery) -> None:
        self._network = network
        self._nursery = nursery
        self._crowd: list[Libp2pNetwork] = []

    async def dial(self, options: dict[str, Any]) -> str:
        """Connect to an address."""
        return str(await self._network.connect(Multiaddr.parse(options["address"])))

    async def echo(self, options: dict[str, Any]) -> None:
        """Have some bytes echoed."""
        await echo_once(self._network, PeerId.from_text(options["peer"]), 200)

    async def bench_requests(self, options: dict[str, Any]) -> float:
        """Seconds that `count` requests take, `concurrency` at a time."""
        peer = PeerId.from_text(options["peer"])
        request = os.urandom(options["size"])
        start = time.perf_counter()
        await repeat(
            options["count"], options["concurrency"], lambda: request_once(self._network, peer, request)
        )
        return time.perf_counter() - start

    async def bench_bulk(self, options: dict[str, Any]) -> float:
        """Seconds until the peer has counted `bytes`, written `chunk` at a time."""
        peer = PeerId.from_text(options["peer"])
        start = time.perf_counter()
        counted = await bulk_once(self._network, peer, options["bytes"], options["chunk"])
        if counted < options["bytes"]:
            raise RuntimeError(f"{counted} of {options['bytes']} bytes arrived")
        return time.perf_counter() - start

    async def crowd(self, options: dict[str, Any]) -> None:
        """Make hosts that listen nowhere."""
        while len(self._crowd) < options["size"]:
            self._crowd.append(await self._nursery.start(_keep_host))

    async def dial_from_crowd(self, options: dict[str, Any]) -> None:
        """Have some of the crowd connect to an address."""
        for network in self._crowd[options["first"] : options["last"]]:
            await network.connect(Multiaddr.parse(options["address"]))


async def _keep_host(*, task_status: trio.TaskStatus[Libp2pNetwork] = trio.TASK_STATUS_IGNORED) -> None:
    async with open_network() as network:
        serve_streams(network)
        task_status.started(network)
        await trio.sleep_forever()


async def main() -> None:
    """Serve and answer until stdin ends."""
    async with open_network(listen=_LISTEN) as network, trio.open_nursery() as nursery:
        serve_streams(network)
        peer = StreamPeer(network, nursery)
        await answer_commands(
            {
                "dial": peer.dial,
                "echo": peer.echo,
                "benchRequests": peer.bench_requests,
                "benchBulk": peer.bench_bulk,
                "crowd": peer.crowd,
                "dialFromCrowd": peer.dial_from_crowd,
            },
            {"peer": str(network.peer_id), "addresses": [str(address) for address in network.addresses]},
        )
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
