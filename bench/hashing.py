"""Message hashes, which every message of every protocol needs at least once."""

from __future__ import annotations

import os
import statistics
import time

from bench.report import Row, compare
from bench.sides import Scale
from interop.node import open_js_peer, what_is_missing
from pywaku.message import WakuMessage, message_hash

_COUNT = 100_000
_SIZE = 200


def _ours(count: int) -> float:
    message = WakuMessage(os.urandom(_SIZE), "/pywaku/1/bench/proto", timestamp_ns=1)
    start = time.perf_counter()
    for _ in range(count):
        message_hash("/waku/2/rs/42/0", message)
    return count / (time.perf_counter() - start)


async def hashes(scale: Scale) -> list[Row]:
    """Hashes of messages with 200 bytes of payload; theirs with the hash function that js-waku uses."""
    count = scale.of(_COUNT)
    if what_is_missing():
        ours = [_ours(count) for _ in range(scale.rounds)]
        return [compare("hash", ours=statistics.median(ours), unit="hashes/s")]
    ours: list[float] = []
    theirs: list[float] = []
    async with open_js_peer("gossip") as js:
        await js.call("benchHash", count=count, size=_SIZE)
        for _ in range(scale.rounds):
            ours.append(_ours(count))
            theirs.append(count / float(await js.call("benchHash", count=count, size=_SIZE)))
    return [
        compare(
            "hash",
            ours=statistics.median(ours),
            theirs=statistics.median(theirs),
            peer="js @noble/hashes",
            unit="hashes/s",
        )
    ]
