"""A store of channels that is cut off at a transaction, as by the end of the process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import trio

from pywaku.channels.rows import Row, RowChange
from pywaku.channels.store import NODE_SCOPE, MemoryChannelStore, Scope
from pywaku.errors import RecordError

Cut = Literal["before", "after"]


class CutStore:
    """Keeps rows in memory, and outlives its node.

    Transactions of channels are counted: that of `cut_at` is the last that is made (`after`: but nobody hears
    that it was), or the first that is not (`before`). Nothing is written from then on.
    """

    name = "cut off"

    def __init__(self) -> None:
        self.inner = MemoryChannelStore()
        self.cut_at: int | None = None
        self.mode: Cut = "before"
        self.transactions = 0
        self.is_cut = trio.Event()
        self.last_applied = 0.0

    def open(self, cut_at: int | None, mode: Cut) -> None:
        """The next process opens it, and ends at this transaction."""
        self.cut_at, self.mode = cut_at, mode
        self.transactions = 0
        self.is_cut = trio.Event()

    async def load(self, scope: Scope) -> list[Row]:
        """All rows of a scope."""
        return await self.inner.load(scope)

    async def apply(self, scope: Scope, changes: Sequence[RowChange]) -> None:
        """Make the changes, unless it is cut off."""
        if self.is_cut.is_set():
            raise RecordError("cut off", reason="closed")
        if scope != NODE_SCOPE:
            self.transactions += 1
            if self.transactions == self.cut_at:
                if self.mode == "after":
                    await self._apply(scope, changes)
                self.is_cut.set()
                raise RecordError("cut off", reason="closed")
        await self._apply(scope, changes)

    async def _apply(self, scope: Scope, changes: Sequence[RowChange]) -> None:
        await self.inner.apply(scope, changes)
        self.last_applied = trio.current_time()

    async def forget(self, scope: Scope) -> None:
        """Remove the rows."""
        await self.inner.forget(scope)

    async def close(self) -> None:
        """They stay."""
