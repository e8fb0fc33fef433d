"""A peer in a process of its own, commanded over its stdin and stdout with one JSON value a line.

The process says `{"ready": …}` once; then `{"id", "do", "with"}` goes in and `{"id", "result"}` or
`{"id", "error"}` comes out, in any order. It ends when its stdin does, so it never outlives who started it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import trio

from pywaku.tasks import open_service_nursery

READY_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 60.0
_GRACE_S = 1.0
_ROOT = Path(__file__).parent.parent


class PeerFailed(Exception):
    """The peer ended, or answered a command with an error."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(f"{name}: {message}" if name else message)
        self.name = name


class PeerProcess:
    """A running peer. What it said when it was ready is in `ready`."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._numbers = count(1)
        self._answers: dict[int, trio.MemorySendChannel[Any]] = {}
        self._ended = False
        self.ready: dict[str, Any] = {}

    @property
    def peer(self) -> str:
        """The peer id, as text."""
        return str(self.ready["peer"])

    @property
    def address(self) -> str:
        """The first address, with the peer id."""
        return str(self.ready["addresses"][0])

    async def call(self, name: str, *, timeout: float = COMMAND_TIMEOUT_S, **options: Any) -> Any:
        """Run a command and wait for its result; raises `PeerFailed`."""
        stdin = self._process.stdin
        if self._ended or stdin is None:
            raise PeerFailed("the process has ended")
        number = next(self._numbers)
        send, receive = trio.open_memory_channel[Any](1)
        self._answers[number] = send
        line = json.dumps({"id": number, "do": name, "with": options}, separators=(",", ":"))
        try:
            with trio.fail_after(timeout):
                await stdin.send_all(line.encode() + b"\n")
                answer = await receive.receive()
        except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
            raise PeerFailed(f"the process ended before it answered {name}") from None
        except trio.TooSlowError:
            raise PeerFailed(f"no answer to {name} within {timeout:g} s") from None
        finally:
            self._answers.pop(number, None)
        if "error" in answer:
            raise PeerFailed(answer["error"]["message"], answer["error"]["name"])
        return answer["result"]

    async def listen(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take what the process says, until it ends."""
        stdout = self._process.stdout
        if stdout is None:
            raise PeerFailed("the process has no stdout")
        buffer = bytearray()
        try:
            async for data in stdout:
                buffer += data
                *lines, rest = buffer.split(b"\n")
                buffer = bytearray(rest)
                for line in lines:
                    said = json.loads(line)
                    if "ready" in said:
                        self.ready = said["ready"]
                        task_status.started()
                    elif (waiting := self._answers.get(said["id"])) is not None:
                        waiting.send_nowait(said)
        finally:
            self._ended = True
            for waiting in self._answers.values():
                waiting.close()
        if not self.ready:
            raise PeerFailed(
                f"the process ended with status {await self._process.wait()} before it was ready"
            )

    async def end(self) -> None:
        """Let the process end, and see to it that it does."""
        with trio.CancelScope(shield=True):
            if self._process.stdin is not None:
                await self._process.stdin.aclose()
            with trio.move_on_after(_GRACE_S):
                await self._process.wait()
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
            if self._process.stdout is not None:
                await self._process.stdout.aclose()


@asynccontextmanager
async def open_peer_process(command: Sequence[str]) -> AsyncGenerator[PeerProcess]:
    """Run `command` in the project's folder. Leaving the context ends it, by force if need be.

    Its stderr is ours, so that what it complains of is seen.
    """
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT
    )
    peer = PeerProcess(process)
    try:
        async with open_service_nursery() as nursery:
            with trio.fail_after(READY_TIMEOUT_S):
                await nursery.start(peer.listen)
            yield peer
    finally:
        await peer.end()
