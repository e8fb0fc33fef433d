"""What light push costs on top of the request that carries the message."""

from __future__ import annotations

import statistics
import sys

import trio

from bench.report import Row, compare
from bench.sides import Scale, open_pair
from interop.peer_process import open_peer_process

_PUSHES = 2000
_CONCURRENCY = 32
_TOPIC = "/waku/2/rs/42/0"
_PAUSE_S = 0.1


async def pushes(scale: Scale) -> list[Row]:
    """Messages with 200 bytes of payload, 32 at a time, against bare requests of 200 bytes.

    The service node decodes and validates each, publishes it to a relay peer (a third process), and answers.
    The bare requests go between the same two processes, in rounds that alternate.
    """
    amount = scale.of(_PUSHES)
    rates: dict[str, list[float]] = {"benchRequests": [], "benchPushes": []}
    relay = open_peer_process([sys.executable, "-m", "bench.relay_peer"])
    async with open_pair("py", "lightpush") as pair, relay as listener:
        await listener.call("dial", address=pair.server.address)
        for peer in (listener, pair.server):
            await peer.call("subscribe", topic=_TOPIC)
        while listener.peer not in await pair.server.call("mesh", topic=_TOPIC):
            await trio.sleep(_PAUSE_S)
        for number in range(scale.rounds + 1):
            for command, results in rates.items():
                seconds = await pair.client.call(
                    command,
                    peer=pair.server.peer,
                    topic=_TOPIC,
                    count=amount,
                    concurrency=_CONCURRENCY,
                    size=200,
                )
                if number:  # the first round warms up
                    results.append(amount / float(seconds))
    return [
        compare(
            "lightpush",
            ours=statistics.median(rates["benchPushes"]),
            theirs=statistics.median(rates["benchRequests"]),
            peer="bare requests",
            goal=0.7,
            unit="requests/s",
        )
    ]
