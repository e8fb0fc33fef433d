"""What a Python peer says to the benchmark that started it; `interop/peer_process.py` is the other end."""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import trio

Command = Callable[[dict[str, Any]], Awaitable[Any]]


def start_options() -> dict[str, Any]:
    """The options this process was started with."""
    return json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}


async def answer_commands(commands: Mapping[str, Command], ready: Mapping[str, Any]) -> None:
    """Answer commands, each in a task of its own, until there are none to come."""
    everything = {**commands, "memory": _memory}

    async def answer(number: int, name: str, options: dict[str, Any]) -> None:
        try:
            _say({"id": number, "result": await everything[name](options)})
        except Exception as error:
            _say({"id": number, "error": {"name": type(error).__name__, "message": str(error)}})

    # Reading the terminal's end of a pipe without blocking must not change it for whoever else has it open.
    stdin = trio.lowlevel.FdStream(os.dup(sys.stdin.fileno()))
    async with stdin, trio.open_nursery() as nursery:
        _say({"ready": ready})
        buffer = b""
        async for data in stdin:
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                asked = json.loads(line)
                nursery.start_soon(answer, asked["id"], asked["do"], asked["with"])
        nursery.cancel_scope.cancel()


def _say(value: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(value, separators=(",", ":")) + "\n")
    sys.stdout.flush()


async def _memory(_options: dict[str, Any]) -> int:
    """What this process holds in memory, garbage apart."""
    gc.collect()
    await trio.lowlevel.checkpoint()
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize()
    except OSError:  # not Linux: the most it ever held
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
