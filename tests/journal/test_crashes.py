"""A process that is killed loses the rows that were in no file yet, and nothing else."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
import trio

from pywaku.journal import JOURNAL_OPENED, inline, open_journal
from tests.journal.rows import NODE, rows_in, temporaries_in, unexplained


async def _journal_until_killed(
    directory: Path, rng: random.Random, flush_rows: int, interval_s: float
) -> tuple[int, int]:
    """What the process said last: the next number, and how many were in no file."""
    process = await trio.lowlevel.open_process(
        [
            sys.executable,
            "-m",
            "tests.journal.killed_writer",
            str(directory),
            str(flush_rows),
            str(interval_s),
        ],
        stdout=PIPE,
    )
    assert process.stdout is not None
    said = b""
    lines = rng.randint(1, 300)
    while said.count(b"\n") <= lines:
        chunk = await process.stdout.receive_some()
        assert chunk, "the writer ended by itself"
        said += bytes(chunk)
    process.kill()
    async for chunk in process.stdout:  # what it could still say
        said += bytes(chunk)
    await process.wait()
    number, pending = said.split(b"\n")[:-1][-1].split()
    return int(number), int(pending)


async def _kill_and_look(directory: Path, seed: int, rounds: int) -> None:
    rng = random.Random(seed)
    seen: set[str] = set()
    for _ in range(rounds):
        flush_rows, interval_s = rng.choice(((50, 0.01), (500, 0.01), (2_000, 0.05)))
        number, pending = await _journal_until_killed(directory, rng, flush_rows, interval_s)
        rows = [row for row in rows_in(directory) if row["boot_id"] not in seen]  # raises if one is damaged
        seen |= {row["boot_id"] for row in rows}
        assert len({row["boot_id"] for row in rows}) <= 1
        events = [row["event"] for row in rows]
        assert events == [JOURNAL_OPENED, *(f"test:{n}" for n in range(len(rows) - 1))][: len(rows)]
        assert len(rows) >= number + 1 - pending
        if rows:
            assert unexplained(rows) == 0
        left = len(temporaries_in(directory))
        async with open_journal(directory, node_id=NODE, run_blocking=inline) as journal:
            seen.add(journal.boot_id)
            assert journal.counters.leftovers == left
            assert temporaries_in(directory) == []


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_killed_process_loses_only_what_was_in_no_file(tmp_path: Path, seed: int) -> None:
    await _kill_and_look(tmp_path, seed, rounds=3)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 14))
async def test_a_process_killed_often_loses_only_what_was_in_no_file(tmp_path: Path, seed: int) -> None:
    await _kill_and_look(tmp_path, seed, rounds=15)
