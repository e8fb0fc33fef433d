"""Where the journal's blocking work is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import trio

T = TypeVar("T")


class RunBlocking(Protocol):
    """Does blocking work and returns what it returns. When it is cancelled the work may go on by itself."""

    async def __call__(self, work: Callable[[], T], /) -> T:
        """Do it."""
        ...


async def in_thread(work: Callable[[], T], /) -> T:
    """In a thread, so that the node goes on meanwhile."""
    return await trio.to_thread.run_sync(work, abandon_on_cancel=True)


async def inline(work: Callable[[], T], /) -> T:
    """Here and now: for runs on virtual time, which would jump over the time that a thread takes."""
    await trio.lowlevel.checkpoint()
    return work()
