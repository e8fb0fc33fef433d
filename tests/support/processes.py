"""`pywaku` as a process of its own, read line by line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

COMMAND = [sys.executable, "-m", "pywaku.cli"]


class RunningNode:
    """A `pywaku node` that has said `ready`."""

    def __init__(self, process: trio.Process, peer_id: str, addresses: list[str]) -> None:
        self.process = process
        self.peer_id = peer_id
        self.addresses = addresses
        self.log = ""

    async def wait_for_log(self, text: str) -> None:
        """Read the log until it holds `text`."""
        stderr = self.process.stderr
        assert stderr is not None
        with trio.fail_after(30):
            while text not in self.log:
                chunk = bytes(await stderr.receive_some())
                assert chunk, f"the log ended without {text!r}: {self.log}"
                self.log += chunk.decode()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit code. Reads what is left of the log."""
        self.process.send_signal(number)
        code = await self.process.wait()
        stderr = self.process.stderr
        assert stderr is not None
        async for chunk in stderr:
            self.log += bytes(chunk).decode()
        return code


@asynccontextmanager
async def running_node(*options: str) -> AsyncGenerator[RunningNode]:
    """Start a node and wait until it is ready; it is killed at the end if it still runs."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = await trio.lowlevel.open_process(
        [*COMMAND, "node", *options], stdout=-1, stderr=-1, env=environment
    )
    try:
        assert process.stdout is not None
        lines: list[str] = []
        rest = ""
        with trio.fail_after(30):
            while "ready" not in lines:
                chunk = bytes(await process.stdout.receive_some())
                if not chunk:
                    error = bytes(await process.stderr.receive_some()) if process.stderr else b""
                    raise AssertionError(f"the node ended before it was ready: {error.decode()}")
                *done, rest = (rest + chunk.decode()).split("\n")
                lines += done
        peer_ids = [line.split()[-1] for line in lines if line.startswith("peer id ")]
        addresses = [line.split()[-1] for line in lines if line.startswith("address ")]
        yield RunningNode(process, peer_ids[0], addresses)
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
                await process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    await stream.aclose()
