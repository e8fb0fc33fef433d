"""When something is due: any number of things, each at one time."""

from __future__ import annotations

import heapq
from typing import Final

_SLACK: Final = 64


class Timers:
    """Due times in milliseconds by kind and id. What is due at the same time comes in the order of these."""

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[tuple[int, str], int] = {}
        self._heap: list[tuple[int, int, str]] = []  # also has entries that were changed or cancelled

    def __len__(self) -> int:
        return len(self._due)

    def set(self, kind: int, name: str, due_ms: int) -> None:
        """Make something due at a time, in place of an earlier or later one."""
        key = (kind, name)
        if self._due.get(key) == due_ms:
            return
        self._due[key] = due_ms
        heapq.heappush(self._heap, (due_ms, kind, name))
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._heap = [(due, *key) for key, due in self._due.items()]
            heapq.heapify(self._heap)

    def cancel(self, kind: int, name: str) -> None:
        """Make something not due at all."""
        self._due.pop((kind, name), None)

    def due_at(self, kind: int, name: str) -> int | None:
        """When something is due."""
        return self._due.get((kind, name))

    def limit(self, latest_ms: int) -> None:
        """Bring forward what is due later than that: the clock was set back."""
        for (kind, name), due_ms in list(self._due.items()):
            if due_ms > latest_ms:
                self.set(kind, name, latest_ms)

    def next_due(self) -> int | None:
        """When the first is due."""
        heap, due = self._heap, self._due
        while heap:
            due_ms, kind, name = heap[0]
            if due.get((kind, name)) == due_ms:
                return due_ms
            heapq.heappop(heap)
        return None

    def pop_due(self, now_ms: int) -> tuple[int, str] | None:
        """The first that is due by now, which it is no longer."""
        first = self.next_due()
        if first is None or first > now_ms:
            return None
        _, kind, name = heapq.heappop(self._heap)
        del self._due[kind, name]
        return kind, name
