"""What lives as long as a node and is not part of it, such as its channels."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar

import trio

from pywaku.errors import NodeClosed
from pywaku.tasks import open_service_nursery

T = TypeVar("T")

_CLOSING_S: Final = 10.0


class Companions:
    """Opens each thing once, and closes it before the node. Made by `open_companions`."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._things: dict[Hashable, Any] = {}
        self._opening = trio.Lock()
        self._closing = trio.Event()
        self._open = 0
        self._closed = trio.lowlevel.ParkingLot()

    async def get(self, key: Hashable, opener: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        """The thing of that key, opened if it is not there yet; it stays until the node is closed."""
        async with self._opening:
            if self._closing.is_set():
                raise NodeClosed("the node is closed")
            if key not in self._things:
                self._things[key] = await self._nursery.start(self._keep, opener)
            return self._things[key]

    async def _keep(
        self,
        opener: Callable[[], AbstractAsyncContextManager[T]],
        task_status: trio.TaskStatus[T],
    ) -> None:
        self._open += 1
        try:
            async with opener() as thing:
                task_status.started(thing)
                await self._closing.wait()
        finally:
            self._open -= 1
            self._closed.unpark_all()

    async def close(self) -> None:
        """Close all, and wait until they are; `open_companions` does this."""
        self._closing.set()
        with trio.move_on_after(_CLOSING_S):
            while self._open:
                await self._closed.park()


@asynccontextmanager
async def open_companions() -> AsyncGenerator[Companions]:
    """Room for companions; leaving it closes them."""
    async with open_service_nursery() as nursery:
        companions = Companions(nursery)
        try:
            yield companions
        finally:
            await companions.close()
