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

    warm_up: int
    """Rounds, with the full amount of work, that do not count: V8 takes its time to compile."""
    rounds: int
    """Rounds that count."""
    work: float
    """How much of the full amount one of these does."""

    def of(self, amount: int) -> int:
        """The amount for one round."""
        return max(1, round(amount * self.work))


FULL = Scale(warm_up=3, rounds=7, work=1.0)
QUICK = Scale(warm_up=1, rounds=3, work=0.3)


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


Measure = Callable[[Pair, int], Awaitable[float]]
"""Seconds that a pair takes for an amount of work."""


async def side_by_side(
    kind: str,
    scale: Scale,
    amount: int,
    measure: Measure,
    *,
    prepare: Callable[[Pair], Awaitable[None]] | None = None,
) -> tuple[float, float | None]:
    """The medians of ours and theirs, in work per second, over alternating rounds; None without node."""
    sides = ["py"] if what_is_missing() else ["py", "js"]
    once = scale.of(amount)
    async with AsyncExitStack() as stack:
        pairs = {side: await stack.enter_async_context(open_pair(side, kind)) for side in sides}
        speeds: dict[str, list[float]] = {side: [] for side in sides}
        for pair in pairs.values():
            if prepare is not None:
                await prepare(pair)
            for _ in range(scale.warm_up):
                await measure(pair, amount)
        for _ in range(scale.rounds):
            for side, pair in pairs.items():
                speeds[side].append(once / await measure(pair, once))
    theirs = statistics.median(speeds["js"]) if "js" in speeds else None
    return statistics.median(speeds["py"]), theirs
