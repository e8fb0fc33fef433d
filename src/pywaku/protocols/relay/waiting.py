"""The waiting room of asynchronous validation: so many at a time, so many in the queue, no more."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from pywaku.gossip import Candidate, Verdict
from pywaku.protocols.relay.validation import Pending, Refusal, Validation

logger = logging.getLogger(__name__)

OVERLOAD = Refusal(Verdict.IGNORE, "validator-overload", "too many messages wait for validators")


class _Waiting(NamedTuple):
    candidate: Candidate
    pending: Pending


Settled = Callable[[Candidate, Pending, Refusal | None], Awaitable[None]]


class WaitingRoom:
    """Runs the validations that need time, each in a task, and tells `settled` how they ended.

    A message beyond the queue's bounds is turned away at once, so that validators which stall cost the node
    messages on their topics, and nothing else.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        validation: Validation,
        settled: Settled,
        *,
        at_once: int,
        queue: int,
        queue_bytes: int,
    ) -> None:
        self._nursery = nursery
        self._validation = validation
        self._settled = settled
        self._at_once = at_once
        self._max_queue = queue
        self._max_bytes = queue_bytes
        self._running = 0
        self._queue: deque[_Waiting] = deque()
        self._bytes = 0
        self._closed = False

    def __len__(self) -> int:
        return self._running + len(self._queue)

    def submit(self, candidate: Candidate, pending: Pending) -> bool:
        """Validate to the end, now or when a place is free; False if there is no room."""
        size = len(candidate.data)
        if not self._closed and self._running < self._at_once:
            self._running += 1
            self._nursery.start_soon(self._work, _Waiting(candidate, pending))
        elif self._closed or len(self._queue) >= self._max_queue or self._bytes + size > self._max_bytes:
            pending.abandon()
            return False
        else:
            self._queue.append(_Waiting(candidate, pending))
            self._bytes += size
        return True

    def close(self) -> None:
        """Take nothing more, and forget what waits."""
        self._closed = True
        for waiting in self._queue:
            waiting.pending.abandon()
        self._queue.clear()
        self._bytes = 0

    async def _work(self, waiting: _Waiting) -> None:
        try:
            while True:
                candidate, pending = waiting
                refusal = await self._validation.settle(pending)
                try:
                    await self._settled(candidate, pending, refusal)
                except Exception as error:  # one message's trouble is not the node's
                    logger.exception("validated message failed: error=%s", type(error).__name__)
                if not self._queue:
                    return
                waiting = self._queue.popleft()
                self._bytes -= len(waiting.candidate.data)
        finally:
            self._running -= 1
