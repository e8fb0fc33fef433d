"""No accepted send is lost when the process is killed, at whatever moment; and none is there twice."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
import trio

from pywaku.messaging.records import Retention, open_record_store
from tests.support.record_keeper import size_of
from tests.support.records import TOPIC, guid, waku_message


async def _keep_until_killed(path: Path, rng: random.Random, first: int) -> dict[str, int]:
    """Run the keeper and kill it after some lines; the last number of each kind that it said."""
    process = await trio.lowlevel.open_process(
        [
            sys.executable,
            "-m",
            "tests.support.record_keeper",
            str(path),
            str(rng.randrange(1 << 30)),
            str(first),
        ],
        stdout=PIPE,
    )
    assert process.stdout is not None
    said = b""
    lines = rng.randint(1, 60)
    while said.count(b"\n") <= lines:
        chunk = await process.stdout.receive_some()
        assert chunk, "the keeper ended by itself"
        said += bytes(chunk)
    await trio.sleep(rng.random() * 0.003)
    process.kill()
    async for chunk in process.stdout:  # what it could still say
        said += bytes(chunk)
    await process.wait()
    return {what.decode(): int(number) for what, number in (line.split() for line in said.split(b"\n")[:-1])}


async def _kill_and_look(path: Path, seed: int, rounds: int) -> None:
    rng = random.Random(seed)
    number = 0
    replayed = 0
    sent: set[int] = set()
    for _ in range(rounds):
        said = await _keep_until_killed(path, rng, number)
        async with open_record_store(path, retention=Retention(None, None)) as store:  # checks the file
            replayed += store.counters.replayed
            records = await store.by_content_topic(TOPIC)
            assert len(records) >= said["accepted"]
            # Each is there once, in order, as it was.
            assert [known.request_id for known in records] == [guid(n) for n in range(len(records))]
            for position, known in enumerate(records):
                assert known.message == waku_message(position, size=size_of(position))
            sent |= set(range(number + number % 2, said.get("sent", 0), 2))
            assert all(records[position].sent for position in sent)
            assert await store.pending() == [known for known in records if not known.sent]
            number = len(records)
    assert replayed > 0 or rounds < 3


@pytest.mark.parametrize("seed", [1, 2])
async def test_no_accepted_send_is_lost_or_doubled_when_the_process_is_killed(path: Path, seed: int) -> None:
    await _kill_and_look(path, seed, rounds=4)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 14))
async def test_no_accepted_send_is_lost_or_doubled_when_the_process_is_killed_often(
    path: Path, seed: int
) -> None:
    await _kill_and_look(path, seed, rounds=15)
