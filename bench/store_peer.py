"""A Python peer for the benchmark of the store: answers bare requests, and queries from SQLite in memory."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import trio

from bench.commands import answer_commands
from bench.stream_peer import StreamPeer
from interop.streams import repeat, serve_streams
from pywaku.archive import StoredMessage, open_archive
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.network.libp2p.host import open_network
from pywaku.network.port import Network
from pywaku.protocols.service import ServiceLimits
from pywaku.protocols.store import StoreClient, StoreQuery, open_store_service
from pywaku.wire.multiaddr import Multiaddr

_LISTEN = [Multiaddr.parse("/ip4/127.0.0.1/tcp/0")]
_SHARD = "/waku/2/rs/42/0"
_ROWS = 5000
_NO_RATES = ServiceLimits(per_peer=None, total=None, max_streams_per_peer=1000, max_concurrent=1000)


def _rows() -> list[StoredMessage]:
    """What the archive holds; each process makes the same."""
    return [
        StoredMessage.of(
            _SHARD,
            WakuMessage(number.to_bytes(200), "/pywaku/1/bench/proto", timestamp_ns=10**18 + number),
            10**18,
        )
        for number in range(_ROWS)
    ]


class StorePeer:
    """What can be asked of it, beyond what a stream peer does."""

    def __init__(self, network: Network) -> None:
        self._store = StoreClient(network)
        self._hashes = [row.message_hash for row in _rows()]

    async def bench_queries(self, options: dict[str, Any]) -> float:
        """Seconds that `count` lookups of one hash take, `concurrency` at a time."""
        peer = PeerId.from_text(options["peer"])
        numbers = count()

        async def query() -> None:
            wanted = self._hashes[next(numbers) * 7 % _ROWS]
            response = await self._store.query(peer, StoreQuery(message_hashes=(wanted,), include_data=False))
            if [entry.message_hash for entry in response.messages] != [wanted]:
                raise RuntimeError("the message was not found")

        start = time.perf_counter()
        await repeat(options["count"], options["concurrency"], query)
        return time.perf_counter() - start


async def main() -> None:
    """Serve and answer until stdin ends."""
    async with (
        open_network(listen=_LISTEN) as network,
        open_archive("sqlite://:memory:", retention="none") as archive,
        open_store_service(network, archive, limits=_NO_RATES),
        trio.open_nursery() as nursery,
    ):
        await archive.insert(_rows())
        serve_streams(network)
        streams, store = StreamPeer(network, nursery), StorePeer(network)
        await answer_commands(
            {
                "dial": streams.dial,
                "benchRequests": streams.bench_requests,
                "benchQueries": store.bench_queries,
            },
            {"peer": str(network.peer_id), "addresses": [str(address) for address in network.addresses]},
        )
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
