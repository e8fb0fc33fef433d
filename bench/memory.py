"""What a connection costs in memory: one server, and a crowd of hosts in one process that dial it."""

from __future__ import annotations

import statistics

import trio

from bench.report import Row, compare
from bench.sides import Scale, open_pair
from interop.node import what_is_missing

_CROWD = 100
_SETTLE_S = 1.0  # for identify to be through


async def _per_connection(side: str, crowd: int) -> float:
    async with open_pair(side, "stream", connect=False) as pair:
        # One host connects first, so that what is loaded and compiled once is not counted.
        await pair.client.call("dial", address=pair.server.address)
        await pair.client.call("echo", peer=pair.server.peer)
        await pair.client.call("crowd", size=crowd)
        await trio.sleep(_SETTLE_S)
        before = await pair.client.call("memory") + await pair.server.call("memory")
        await pair.client.call("dialAll", address=pair.server.address)
        await trio.sleep(_SETTLE_S)
        after = await pair.client.call("memory") + await pair.server.call("memory")
        return (after - before) / crowd / 1000


async def connections(scale: Scale) -> list[Row]:
    """Both ends of a connection that stands idle, after identify."""
    crowd = max(40, scale.of(_CROWD))
    rounds = max(1, scale.rounds // 2)
    sides = ["py"] if what_is_missing() else ["py", "js"]
    results: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            results[side].append(await _per_connection(side, crowd))
    theirs = statistics.median(results["js"]) if "js" in results else None
    ours = statistics.median(results["py"])
    return [
        compare(
            "connection-memory",
            ours=ours,
            theirs=theirs,
            peer="js-libp2p",
            unit="KB/pair",
            less_is_better=True,
        )
    ]
