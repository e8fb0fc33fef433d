"""Streams against js-libp2p: requests of 200 bytes (one after the other, 32 at a time) and bulk transfer."""

from __future__ import annotations

from bench.report import Row, compare
from bench.sides import Pair, Scale, side_by_side

PEER = "js-libp2p"
_MEGABYTE = 1_000_000


async def _requests(name: str, scale: Scale, *, count: int, concurrency: int, goal: float) -> Row:
    async def measure(pair: Pair, amount: int) -> float:
        return await pair.client.call(
            "benchRequests", peer=pair.server.peer, count=amount, concurrency=concurrency, size=200
        )

    ours, theirs = await side_by_side("stream", scale, count, measure)
    return compare(name, ours=ours, theirs=theirs, peer=PEER, goal=goal, unit="requests/s")


async def sequential(scale: Scale) -> list[Row]:
    """A stream with a request and its response of 200 bytes, one after the other."""
    return [await _requests("request-200B-sequential", scale, count=1500, concurrency=1, goal=1.2)]


async def concurrent(scale: Scale) -> list[Row]:
    """The same, 32 at a time."""
    return [await _requests("request-200B-32", scale, count=3000, concurrency=32, goal=0.6)]


async def bulk(scale: Scale) -> list[Row]:
    """One stream, written 64 KB at a time."""

    async def measure(pair: Pair, amount: int) -> float:
        return await pair.client.call(
            "benchBulk", peer=pair.server.peer, bytes=amount * _MEGABYTE, chunk=65536
        )

    ours, theirs = await side_by_side("stream", scale, 400, measure)
    return [compare("bulk-64KB", ours=ours, theirs=theirs, peer=PEER, goal=1.0, unit="MB/s")]
