"""What filter costs a service node, and what its slow subscribers cost the others."""

from __future__ import annotations

import gc
import random
import statistics
import time
import tracemalloc

from bench.report import Row, compare
from bench.sides import Scale, open_pair
from pywaku.ids import PeerId
from pywaku.protocols.filter.table import SubscriptionTable

_TOPIC = "/waku/2/rs/42/0"
_SUBSCRIBERS = 100
_STALLED = 10
_MESSAGES = 100
_SIZE = 500
_INTERVAL_S = 0.04
_FILL = 8  # messages that fill the window of a stream which nobody reads
_FILL_SIZE = 100_000


async def fanout(scale: Scale) -> list[Row]:
    """100 subscribers get messages with 500 bytes of payload, 25 a second.

    Processor time of the service node for each push, against bare writes of as many bytes to as many open
    streams; and the median time from `publish` to the delivery at a subscriber, with ten more subscribers
    that read nothing against without them. Rounds alternate.
    """
    count = scale.of(_MESSAGES)

    async def spent(command: str, count: int = count, size: int = _SIZE) -> float:
        return await pair.server.call(command, topic=_TOPIC, count=count, size=size, interval=_INTERVAL_S)

    costs: list[float] = []
    bare: list[float] = []
    alone: list[float] = []
    beside_stalled: list[float] = []
    async with open_pair("py", "filter", connect=False) as pair:
        server, crowd = pair.server, pair.client
        await server.call("join", topic=_TOPIC)
        for stalled, size in ((False, _SUBSCRIBERS), (True, _STALLED)):
            await crowd.call("crowd", address=server.address, topic=_TOPIC, size=size, stalled=stalled)
        await crowd.call("subscribe", peer=server.peer, topic=_TOPIC, stalled=False, end=False)
        for number in range(scale.rounds + 1):
            cost = await spent("benchPublish")
            delay = await crowd.call("medianDelay", count=count * _SUBSCRIBERS)
            floor = await spent("benchBare")
            await crowd.call("subscribe", peer=server.peer, topic=_TOPIC, stalled=True, end=False)
            await spent("benchPublish", _FILL, _FILL_SIZE)
            await crowd.call("medianDelay", count=_FILL * _SUBSCRIBERS)
            await spent("benchPublish")
            delay_beside = await crowd.call("medianDelay", count=count * _SUBSCRIBERS)
            await crowd.call("subscribe", peer=server.peer, topic=_TOPIC, stalled=True, end=True)
            if number:  # the first round warms up
                costs.append(cost / (count * _SUBSCRIBERS))
                bare.append(floor / (count * _SUBSCRIBERS))
                alone.append(delay)
                beside_stalled.append(delay_beside)
    return [
        compare(
            "filter-fanout-100",
            ours=statistics.median(costs) * 1e6,
            theirs=statistics.median(bare) * 1e6,
            peer="bare writes",
            unit="µs/push",
            less_is_better=True,
        ),
        compare(
            "filter-delay-10-stalled",
            ours=statistics.median(beside_stalled) * 1e3,
            theirs=statistics.median(alone) * 1e3,
            peer="none stalled",
            goal=0.9,
            unit="ms",
            less_is_better=True,
        ),
    ]


def _peers(count: int) -> list[PeerId]:
    rng = random.Random(count)
    return [PeerId(b"\x12\x20" + rng.randbytes(32)) for _ in range(count)]


def _bytes_per_criterion(*, shared: bool) -> float:
    peers = _peers(1000)
    tracemalloc.start(1)
    try:
        table = SubscriptionTable()
        for number, peer in enumerate(peers):
            # A decoder makes new strings for each request.
            topics = [f"/pywaku/1/{0 if shared else number}-{topic}/proto" for topic in range(100)]
            table.subscribe(peer, "".join(_TOPIC), topics, 0.0)
            del topics
        gc.collect()
        return tracemalloc.get_traced_memory()[0] / table.criteria
    finally:
        tracemalloc.stop()


async def subscription_memory(_scale: Scale) -> list[Row]:
    """Bytes that a criterion takes in the table, of a thousand peers with a hundred each."""
    return [
        compare("filter-memory-distinct", ours=_bytes_per_criterion(shared=False), unit="B/criterion"),
        compare("filter-memory-shared", ours=_bytes_per_criterion(shared=True), unit="B/criterion"),
    ]


def _match_ns(peers: int, rounds: int) -> float:
    table = SubscriptionTable()
    for number, peer in enumerate(_peers(peers)):
        table.subscribe(peer, _TOPIC, [f"/pywaku/1/{number}-{topic}/proto" for topic in range(100)], 0.0)
    start = time.perf_counter()
    for _ in range(rounds):
        table.matching(_TOPIC, "/pywaku/1/7-50/proto")
    return (time.perf_counter() - start) / rounds * 1e9


async def matching(scale: Scale) -> list[Row]:
    """Finding the subscribers of a message among 100,000 criteria; theirs is among 1,000."""
    rounds = scale.of(200_000)
    many = statistics.median(_match_ns(1000, rounds) for _ in range(scale.rounds))
    few = statistics.median(_match_ns(10, rounds) for _ in range(scale.rounds))
    return [
        compare(
            "filter-match-100000",
            ours=many,
            theirs=few,
            peer="among 1,000",
            goal=0.5,
            unit="ns",
            less_is_better=True,
        )
    ]
