"""What the Messaging API costs on top of the protocol that carries its messages, and what it holds."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import trio

from bench.report import Row, compare
from bench.sides import Scale
from interop.peer_process import PeerProcess, open_peer_process

_TOPIC: Final = "/waku/2/rs/42/0"
_CONTENT_SIZE: Final = 200
_PAUSE_S: Final = 0.1


@asynccontextmanager
async def _service(kind: str) -> AsyncGenerator[PeerProcess]:
    async with open_peer_process([sys.executable, "-m", f"bench.{kind}_peer"]) as peer:
        await peer.call("subscribe", topic=_TOPIC)
        yield peer


@asynccontextmanager
async def _sender(mode: str, *services: PeerProcess) -> AsyncGenerator[PeerProcess]:
    options = json.dumps({"mode": mode, "bootstrap": [service.address for service in services]})
    async with open_peer_process([sys.executable, "-m", "bench.messaging_peer", options]) as peer:
        await peer.call("ready")
        yield peer


async def relay(scale: Scale) -> list[Row]:
    """Through relay to one subscriber, against bare publishing by the same node, in rounds that alternate."""
    amount = scale.of(10_000)
    rates: dict[str, list[float]] = {"benchPublish": [], "benchSend": []}
    async with _service("relay") as receiver, _sender("relay", receiver) as sender:
        while sender.peer not in await receiver.call("mesh", topic=_TOPIC):
            await trio.sleep(_PAUSE_S)
        for number in range(scale.rounds + 1):
            for command, results in rates.items():
                await receiver.call("benchReceive")
                start = time.perf_counter()
                await sender.call(command, count=amount, size=_CONTENT_SIZE)
                await receiver.call("waitReceived", count=amount)
                if number:  # the first round warms up
                    results.append(amount / (time.perf_counter() - start))
    return [_row("send-relay", rates["benchSend"], rates["benchPublish"], "bare relay")]


async def edge(scale: Scale) -> list[Row]:
    """Through one service node, against bare light pushes of the same client, 32 at a time."""
    amount = scale.of(2_000)
    rates: dict[str, list[float]] = {"benchPushes": [], "benchSend": []}
    async with _service("relay") as listener, _service("lightpush") as service:
        await listener.call("dial", address=service.address)
        while listener.peer not in await service.call("mesh", topic=_TOPIC):
            await trio.sleep(_PAUSE_S)
        async with _sender("edge", service) as sender:
            for number in range(scale.rounds + 1):
                for command, results in rates.items():
                    options: dict[str, Any] = {"count": amount, "size": _CONTENT_SIZE}
                    if command == "benchPushes":
                        options |= {"peer": service.peer, "concurrency": 32}
                    seconds = float(await sender.call(command, **options))
                    if number:
                        results.append(amount / seconds)
    return [_row("send-edge", rates["benchSend"], rates["benchPushes"], "bare light push")]


async def memory(scale: Scale) -> list[Row]:
    """What a node holds after 200,000 messages, when its caches are full, against after 100,000."""
    portion = 20_000
    async with _service("relay") as receiver, _sender("relay", receiver) as sender:
        while sender.peer not in await receiver.call("mesh", topic=_TOPIC):
            await trio.sleep(_PAUSE_S)
        held: list[float] = []
        for _ in range(10):
            await sender.call("benchSend", count=portion, size=_CONTENT_SIZE)
            held.append(float(await sender.call("memory")) / 1e6)
    return [
        compare(
            "messaging-memory",
            ours=held[9],
            theirs=held[4],
            peer="itself after 100,000",
            goal=0.9,
            unit="MB",
            less_is_better=True,
        )
    ]


def _row(name: str, ours: list[float], bare: list[float], peer: str) -> Row:
    return compare(
        name,
        ours=statistics.median(ours),
        theirs=statistics.median(bare),
        peer=peer,
        goal=0.8,
        unit="messages/s",
    )
