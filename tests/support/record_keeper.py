"""Accepts and applies changes to records until it is killed, saying what is sure.

`record_keeper PATH SEED FIRST`: sends numbered from FIRST on. Each line says `accepted N` (sends below N are
accepted), `applied N` (they were added) or `sent N` (all of them up to N that are even are marked as sent).
"""

from __future__ import annotations

import random
import sys

import trio

from pywaku.messaging.records import Change, RecorderOptions, Retention, open_record_store, open_recorder
from tests.support.records import guid, hash_of, record


def size_of(number: int) -> int:
    """The size of the payload of a send: some are large."""
    return 40_000 if number % 50 == 0 else 8 * (1 + number % 90)


def _say(what: str, number: int) -> None:
    sys.stdout.write(f"{what} {number}\n")
    sys.stdout.flush()


async def _keep(path: str, rng: random.Random, first: int) -> None:
    retention = Retention(max_age_s=None, max_records=None)
    async with (
        open_record_store(path, retention=retention) as store,
        open_recorder(store, lambda changed: None, RecorderOptions(max_batch=64)) as recorder,
    ):
        number = sent = first
        while True:
            for _ in range(rng.randint(1, 40)):
                recorder.accept(record(number, number, size=size_of(number)))
                number += 1
            _say("accepted", number)
            await trio.sleep(rng.choice((0, 0, 0.001)))
            if rng.random() < 0.3:
                await recorder.flush()
                _say("applied", number)
            if rng.random() < 0.2:
                for done in range(sent + sent % 2, number, 2):
                    key = hash_of(done, size=size_of(done))
                    recorder.put(Change(key, 1, request_id=guid(done), sent=True))
                await recorder.flush()
                sent = number
                _say("sent", number)


if __name__ == "__main__":
    trio.run(_keep, sys.argv[1], random.Random(int(sys.argv[2])), int(sys.argv[3]))
