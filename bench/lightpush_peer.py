"""A Python peer for the benchmark of light push: answers bare requests, and relays what it is asked to."""

from __future__ import annotations

import os
import time
from itertools import count
from typing import Any

import trio

from bench.commands import answer_commands
from bench.relay_peer import RelayPeer
from bench.stream_peer import StreamPeer
from interop.streams import repeat, serve_streams
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.network.libp2p.host import open_network
from pywaku.network.port import Network
from pywaku.protocols.filter import open_filter_service
from pywaku.protocols.lightpush import (
    MAX_REQUEST,
    LightpushClient,
    LightpushServiceOptions,
    open_lightpush_service,
)
from pywaku.protocols.metadata import open_metadata
from pywaku.protocols.relay import RelayOptions, open_relay
from pywaku.protocols.service import ServiceLimits
from pywaku.wire.multiaddr import Multiaddr

_LISTEN = [Multiaddr.parse("/ip4/127.0.0.1/tcp/0")]
_NO_RATES = LightpushServiceOptions(
    requests=ServiceLimits(
        per_peer=None, total=None, max_request=MAX_REQUEST, max_streams_per_peer=1000, max_concurrent=1000
    )
)


class LightpushPeer:
    """What can be asked of it, beyond what a stream peer and a relay peer do."""

    def __init__(self, network: Network) -> None:
        self._client = LightpushClient(network)
        self._numbers = count(1)

    async def bench_pushes(self, options: dict[str, Any]) -> float:
        """Seconds that `count` messages take to be acknowledged, `concurrency` at a time."""
        peer = PeerId.from_text(options["peer"])
        filler = os.urandom(options["size"] - 8)

        async def push() -> None:
            number = next(self._numbers)  # no two messages are the same
            message = WakuMessage(number.to_bytes(8) + filler, "/pywaku/1/bench/proto", timestamp_ns=number)
            result = await self._client.push(peer, options["topic"], message)
            if not result.is_success:
                raise RuntimeError(f"refused: {result}")

        start = time.perf_counter()
        await repeat(options["count"], options["concurrency"], push)
        return time.perf_counter() - start


async def main() -> None:
    """Serve and answer until stdin ends."""
    async with (
        open_network(listen=_LISTEN) as network,
        open_relay(network, options=RelayOptions(deliver_own=False)) as relay,
        open_lightpush_service(network, relay, options=_NO_RATES),
        open_metadata(network, cluster_id=42, shards=lambda: [0]),
        open_filter_service(network, relay),
        trio.open_nursery() as nursery,
    ):
        serve_streams(network)
        streams, relayed, pushes = (
            StreamPeer(network, nursery),
            RelayPeer(network, relay),
            LightpushPeer(network),
        )
        await answer_commands(
            {
                "dial": streams.dial,
                "benchRequests": streams.bench_requests,
                "subscribe": relayed.subscribe,
                "mesh": relayed.mesh,
                "benchPushes": pushes.bench_pushes,
            },
            {"peer": str(network.peer_id), "addresses": [str(address) for address in network.addresses]},
        )
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
