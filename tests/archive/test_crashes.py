"""Nothing acknowledged is lost when the process is killed: acknowledged is what `insert` has returned for."""

from __future__ import annotations

import random
import sys
from subprocess import PIPE

import pytest
import trio

from pywaku.archive import ArchiveQuery, open_archive
from tests.archive.conftest import OpenBackend
from tests.support.archives import pages, stored
from tests.support.postgres import PostgresServer


async def _insert_until_killed(url: str, rng: random.Random, first: int) -> int:
    """Run the inserter, kill it after some acknowledgements; up to where it had acknowledged."""
    process = await trio.lowlevel.open_process(
        [
            sys.executable,
            "-m",
            "tests.support.archive_inserter",
            url,
            str(rng.randrange(1 << 30)),
            str(first),
        ],
        stdout=PIPE,
    )
    assert process.stdout is not None
    said = b""
    acknowledgements = rng.randint(1, 30)
    while said.count(b"\n") <= acknowledgements:
        chunk = await process.stdout.receive_some()
        assert chunk, "the inserter ended by itself"
        said += bytes(chunk)
    process.kill()
    async for chunk in process.stdout:  # what it could still say
        said += bytes(chunk)
    await process.wait()
    return int(said.split(b"\n")[:-1][-1])


async def _kill_and_look(url: str, seed: int, rounds: int) -> None:
    rng = random.Random(seed)
    acknowledged = 0
    for _ in range(rounds):
        acknowledged = await _insert_until_killed(url, rng, acknowledged)
        async with open_archive(url, retention="none") as archive:  # checks the file
            found = await pages(archive, ArchiveQuery(limit=1_000))
            payloads = {
                int.from_bytes(entry.message.payload[:8], "big")
                for page in found
                for entry in page.messages
                if entry.message is not None
            }
            assert payloads >= set(range(acknowledged))
            assert (await archive.stats()).messages == sum(len(page.messages) for page in found)


@pytest.mark.parametrize("seed", [1, 2])
async def test_sqlite_keeps_what_it_acknowledged_when_killed(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    await _kill_and_look(f"sqlite://{tmp_path_factory.mktemp('killed')}/store.sqlite3", seed, rounds=3)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 14))
async def test_sqlite_keeps_what_it_acknowledged_when_killed_often(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    await _kill_and_look(f"sqlite://{tmp_path_factory.mktemp('killed')}/store.sqlite3", seed, rounds=15)


async def test_postgres_keeps_what_it_acknowledged_when_the_node_is_killed(postgres_url: str) -> None:
    await _kill_and_look(postgres_url, seed=3, rounds=2)


async def test_a_reopened_archive_takes_up_where_it_was(open_backend: OpenBackend) -> None:
    for number in range(4):
        async with open_backend() as archive:
            assert await archive.insert([stored(number)]) == 1


async def test_postgres_keeps_what_it_acknowledged_when_the_server_crashes(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    async with open_archive(postgres_url, retention="none") as archive:
        for number in range(20):
            await archive.insert([stored(number)])
        await trio.to_thread.run_sync(postgres_server.stop)
        await trio.to_thread.run_sync(postgres_server.start)
        assert (await archive.stats()).messages == 20
        assert await archive.insert([stored(number) for number in range(21)]) == 1
        assert archive.counters.reconnects >= 1
