"""A process that journals until it is killed, and says up to where everything is in files.

`python -m tests.journal.killed_writer DIRECTORY FLUSH_ROWS FLUSH_INTERVAL_S`: writes events numbered from 0
on as fast as they are taken, and prints the number that comes next and how many are not in files.
"""

from __future__ import annotations

import sys

import trio

from pywaku.journal import JournalOptions, open_journal
from tests.journal.rows import event


async def _write(directory: str, flush_rows: int, flush_interval_s: float) -> None:
    options = JournalOptions(
        flush_rows=flush_rows, flush_interval_s=flush_interval_s, max_rows=max(1_000, 20 * flush_rows)
    )
    number = 0
    async with open_journal(directory, node_id="killed", options=options) as journal:
        while True:
            for _ in range(20):
                journal.write(event(number))
                number += 1
            await trio.sleep(0)
            if journal.pending > 10 * flush_rows:
                await journal.flush()
            print(number, journal.pending, flush=True)


if __name__ == "__main__":
    trio.run(_write, sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
