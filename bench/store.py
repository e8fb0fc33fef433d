"""What a store costs on top of the request that carries the query."""

from __future__ import annotations

import statistics

from bench.report import Row, compare
from bench.sides import Scale, open_pair

_QUERIES = 2000
_CONCURRENCY = 32


async def queries(scale: Scale) -> list[Row]:
    """Lookups of one hash without its message, 32 at a time, against bare requests of 200 bytes.

    The query with the smallest answer: what is measured is the way from the stream through the service into
    an archive of 5,000 messages (SQLite in memory) and back, not the size of pages. The bare requests go
    between the same two processes, in rounds that alternate.
    """
    amount = scale.of(_QUERIES)
    rates: dict[str, list[float]] = {"benchRequests": [], "benchQueries": []}
    async with open_pair("py", "store") as pair:
        for number in range(scale.rounds + 1):
            for command, results in rates.items():
                seconds = await pair.client.call(
                    command, peer=pair.server.peer, count=amount, concurrency=_CONCURRENCY, size=200
                )
                if number:  # the first round warms up
                    results.append(amount / float(seconds))
    return [
        compare(
            "store-query",
            ours=statistics.median(rates["benchQueries"]),
            theirs=statistics.median(rates["benchRequests"]),
            peer="bare requests",
            goal=0.7,
            unit="requests/s",
        )
    ]
