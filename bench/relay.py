"""Relay against js gossipsub: one publisher, one subscriber, as fast as it goes."""

from __future__ import annotations

import time

import trio

from bench.report import Row, compare
from bench.sides import Pair, Scale, side_by_side

PEER = "js gossipsub"
TOPIC = "/waku/2/rs/42/0"
_PAUSE_S = 0.1


async def _meshed(pair: Pair) -> None:
    """Both subscribe; wait until each has the other in its mesh."""
    for peer in (pair.server, pair.client):
        await peer.call("subscribe", topic=TOPIC)
    for peer, other in ((pair.server, pair.client), (pair.client, pair.server)):
        while other.peer not in await peer.call("mesh", topic=TOPIC):
            await trio.sleep(_PAUSE_S)


async def _relayed(name: str, scale: Scale, *, count: int, size: int) -> Row:
    async def measure(pair: Pair, amount: int) -> float:
        await pair.server.call("benchReceive")
        start = time.perf_counter()
        await pair.client.call("benchPublish", topic=TOPIC, count=amount, size=size)
        await pair.server.call("waitReceived", count=amount)
        return time.perf_counter() - start

    ours, theirs = await side_by_side("relay", scale, count, measure, prepare=_meshed)
    return compare(name, ours=ours, theirs=theirs, peer=PEER, goal=1.0, unit="messages/s")


async def small(scale: Scale) -> list[Row]:
    """Messages with 200 bytes of payload."""
    return [await _relayed("relay-200B", scale, count=20_000, size=200)]


async def large(scale: Scale) -> list[Row]:
    """Messages with 10 KB of payload."""
    return [await _relayed("relay-10KB", scale, count=6_000, size=10_000)]
