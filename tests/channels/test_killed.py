"""A process with a channel in an SQLite file is killed in the middle of a conversation, again and again."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple

import pytest
import trio

import pywaku
from pywaku.channels import ReliableChannel
from pywaku.channels.events import MessageReceived
from tests.support.channel_talker import channel_of, config, numbers_of

_NOT_SAVED_YET_S = 0.5
"""What was read so shortly before may come again: a twentieth of a second is promised, on an idle machine."""


class Said(NamedTuple):
    """A line of Alice's process."""

    what: str
    number: int
    at: float


async def _life(
    path: Path, address: str, life: int, count: int, lines: int | None
) -> tuple[list[Said], float]:
    """Run Alice, and kill her after so many lines, or when she has nothing left to do; when that was."""
    arguments = [str(path), address, str(life), str(count)]
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "tests.support.channel_talker", *arguments], stdout=PIPE
    )
    assert process.stdout is not None
    said = b""
    try:
        while said.count(b"\n") < lines if lines is not None else b"ended" not in said:
            chunk = await process.stdout.receive_some()
            assert chunk, "she ended by herself"
            said += bytes(chunk)
        if lines is None:
            with trio.move_on_after(2):  # what still comes to be read
                while True:
                    said += bytes(await process.stdout.receive_some())
    finally:
        killed_at = time.monotonic()
        process.kill()
    async for chunk in process.stdout:
        said += bytes(chunk)
    await process.wait()
    words = [line.decode().split() for line in said.split(b"\n")[:-1]]
    return [Said(what, int(number), float(at)) for what, number, at in words], killed_at


async def _bob_talks(channel: ReliableChannel, sent: list[int]) -> None:
    while True:
        sent.append(len(sent))
        await channel.send(b"%d" % sent[-1])
        await trio.sleep(0.05)


async def _converse(path: Path, seed: int, kills: int) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    heard: list[tuple[int, int]] = []
    bobs: list[int] = []
    lives: list[tuple[list[Said], float]] = []
    async with pywaku.open_node(config()) as node:
        await pywaku.open_channels(node, path=None)
        channel = await channel_of(node, "bob")
        channel.add_event_listener(
            "message-received",
            lambda event: (
                heard.append(numbers_of(event.payload)) if isinstance(event, MessageReceived) else None
            ),
        )
        address = str(node.addresses[0])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_bob_talks, channel, bobs)
            for life in range(kills):
                lives.append(await _life(path, address, life, 1_000, rng.randint(5, 120)))
            nursery.cancel_scope.cancel()
        lives.append(await _life(path, address, kills, 3, None))
        with trio.fail_after(30):
            while (kills, 2) not in heard:
                await trio.sleep(0.05)

    # Bob has all of which `send` had returned, once and in order; perhaps the one more that was saved.
    assert heard == sorted(set(heard))
    for life, (said, _) in enumerate(lives):
        sent = [one.number for one in said if one.what == "sent"]
        came = [number for which, number in heard if which == life]
        assert came[: len(sent)] == sent
        assert len(came) <= len(sent) + 1
    # Alice has read all of Bob's, in order; what she has read twice she had read when she was killed.
    newest, ended_at = -1, 0.0
    for said, killed_at in lives:
        for one in said:
            if one.what == "read" and one.number <= newest:
                first = next(each.at for other, _ in lives for each in other if each[:2] == one[:2])
                assert ended_at < first + _NOT_SAVED_YET_S
            elif one.what == "read":
                assert one.number == newest + 1
                newest = one.number
        ended_at = killed_at
    assert newest == bobs[-1]


@pytest.mark.parametrize("seed", [1])
async def test_nothing_is_lost_or_doubled_when_the_process_is_killed(tmp_path: Path, seed: int) -> None:
    await _converse(tmp_path / "channels.sqlite3", seed, kills=2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 14))
async def test_nothing_is_lost_or_doubled_when_the_process_is_killed_often(tmp_path: Path, seed: int) -> None:
    await _converse(tmp_path / "channels.sqlite3", seed, kills=8)
