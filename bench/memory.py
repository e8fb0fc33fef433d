"""What a connection costs in memory: one server, and a crowd of hosts in one process that dial it."""

from __future__ import annotations

import statistics

import trio

from bench.report import Row, compare
from bench.sides import Scale, open_pair
from interop.node import what_is_missing

_COUNTED = 90
_FEWEST = 40
_SETTLE_S = 1.0  # for identify to be through


async def _per_connection(side: str, counted: int) -> float:
    warm_up = counted // 2
    async with open_pair(side, "stream", connect=False) as pair:
        await pair.client.call("crowd", size=warm_up + counted)

        async def memory_after(first: int, last: int) -> int:
            await pair.client.call("dialFromCrowd", address=pair.server.address, first=first, last=last)
            await trio.sleep(_SETTLE_S)
            return await pair.client.call("memory") + await pair.server.call("memory")

        # The first connections do not count: with them comes what is compiled, and the heap grows.
        before = await memory_after(0, warm_up)
        after = await memory_after(warm_up, warm_up + counted)
        return (after - before) / counted / 1000


async def connections(scale: Scale) -> list[Row]:
    """Both ends of a connection that stands idle, after identify."""
    counted = max(_FEWEST, scale.of(_COUNTED))
    rounds = max(1, scale.rounds // 2)
    sides = ["py"] if what_is_missing() else ["py", "js"]
    results: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            results[side].append(await _per_connection(side, counted))
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
