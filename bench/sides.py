"""The two sides of a comparison: a server and a client each, in processes of their own, alternating."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from interop.node import open_js_peer, what_is_missing
from interop.peer_process import PeerProcess, open_peer_process


@dataclass(frozen=True, slots=True)
class Pair:
    """A client that is connected to a server; both run the same implementation."""

    client: PeerProcess
    server: PeerProcess


@dataclass(frozen=True, slots=True)
class Scale:
    """How thorough a run is."""

    rounds: int
    work: float
    """How much of the full amount one round does."""

    def of(self, amount: int) -> int:
        """The amount for one round."""
        return max(1, round(amount * self.work))


FULL = Scale(rounds=7, work=1.0)
QUICK = Scale(rounds=3, work=0.2)


@asynccontextmanager
async def open_pair(side: str, kind: str, *, connect: bool = True) -> AsyncGenerator[Pair]:
    """A pair of side `py` or `js`, of kind `stream` or `relay`, over TCP, noise and yamux."""
    async with AsyncExitStack() as stack:
        peers: list[PeerProcess] = []
        for _ in range(2):
            if side == "js":
                opened = open_js_peer("gossip" if kind == "relay" else "peer", transport="tcp", muxer="yamux")
            else:
                opened = open_peer_process([sys.executable, "-m", f"bench.{kind}_peer", json.dumps({})])
            peers.append(await stack.enter_async_context(opened))
        server, client = peers
        if connect:
            await client.call("dial", address=server.address)
        yield Pair(client, server)


Measure = Callable[[Pair], Awaitable[float]]


async def side_by_side(
    kind: str, scale: Scale, measure: Measure, *, prepare: Callable[[Pair], Awaitable[None]] | None = None
) -> tuple[float, float | None]:
    """The medians of ours and theirs over alternating rounds, after one of warm-up; None without node."""
    sides = ["py"] if what_is_missing() else ["py", "js"]
    async with AsyncExitStack() as stack:
        pairs = {side: await stack.enter_async_context(open_pair(side, kind)) for side in sides}
        results: dict[str, list[float]] = {side: [] for side in sides}
        for pair in pairs.values():
            if prepare is not None:
                await prepare(pair)
            await measure(pair)
        for _ in range(scale.rounds):
            for side, pair in pairs.items():
                results[side].append(await measure(pair))
    theirs = statistics.median(results["js"]) if "js" in results else None
    return statistics.median(results["py"]), theirs
