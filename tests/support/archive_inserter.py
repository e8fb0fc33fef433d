"""A process that inserts into an archive until it is killed, and says what has been acknowledged.

`python -m tests.support.archive_inserter URL SEED FIRST`: inserts messages from number FIRST on, in batches
of random sizes, and prints after each the number up to which all are in.
"""

from __future__ import annotations

import random
import sys

import trio

from pywaku.archive import open_archive
from tests.support.archives import START_NS, stored


async def _insert(url: str, seed: int, first: int) -> None:
    rng = random.Random(seed)
    async with open_archive(url, retention="none") as archive:
        print("ready", flush=True)
        while True:
            end = first + rng.choice((1, 3, 50, 400))
            await archive.insert(
                [
                    stored(i, timestamp_ns=START_NS + i, size=rng.choice((10, 3_000)))
                    for i in range(first, end)
                ]
            )
            first = end
            print(first, flush=True)


if __name__ == "__main__":
    trio.run(_insert, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
