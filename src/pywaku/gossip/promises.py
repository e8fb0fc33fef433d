"""Messages asked for and not yet come (gossipsub v1.1, "Spam Protection Measures").

A peer that says it has messages promises to send them when asked. Of each IHAVE one id, chosen at random, is
held against its sender. And a message is not asked for from everyone who has it at once: from the next peer
only after a while, so that gossip makes few duplicates. Who else has it is remembered until then.
"""

from __future__ import annotations

from collections import deque

from pywaku.ids import PeerId

_MAX_OFFERS = 8


class _Request:
    __slots__ = ("again_at", "asked", "offers", "until")

    def __init__(self) -> None:
        self.asked: list[PeerId] = []
        self.offers: list[PeerId] = []
        self.again_at = float("-inf")
        self.until = 0.0


class Promises:
    """The requests under way, at most `limit` of them; the oldest are forgotten first."""

    __slots__ = ("_due", "_followup_s", "_limit", "_requests", "_retry_s", "_started", "evicted")

    def __init__(self, followup_s: float, retry_s: float, limit: int) -> None:
        self._followup_s = followup_s
        self._retry_s = retry_s
        self._limit = limit
        self._requests: dict[bytes, _Request] = {}
        self._started: deque[tuple[float, bytes, _Request]] = deque()
        self._due: deque[tuple[float, bytes, PeerId]] = deque()
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._requests)

    def ask(self, message_id: bytes, peer: PeerId, now: float) -> bool:
        """`peer` has the message: whether to ask for it now, which is noted, or perhaps later (`retry`)."""
        request = self._requests.get(message_id)
        if request is None:
            while len(self._started) >= self._limit:
                _, oldest, old_request = self._started.popleft()
                if self._requests.get(oldest) is old_request:
                    del self._requests[oldest]
                    self.evicted += 1
            request = self._requests[message_id] = _Request()
        elif now < request.again_at or len(self._started) >= self._limit:
            if len(request.offers) < _MAX_OFFERS and peer not in request.offers and peer not in request.asked:
                request.offers.append(peer)
            return False
        elif peer in request.asked:
            if request.offers:
                return False  # others are waiting to be tried
        elif peer in request.offers:
            request.offers.remove(peer)
        self._note(message_id, request, peer, now)
        return True

    def retry(self, now: float) -> list[tuple[PeerId, bytes]]:
        """Whom to ask now for what has not come from those asked before; this is noted."""
        found: list[tuple[PeerId, bytes]] = []
        for message_id, request in self._requests.items():
            if request.offers and request.again_at <= now and len(self._started) < self._limit:
                peer = request.offers.pop(0)
                self._note(message_id, request, peer, now)
                found.append((peer, message_id))
        return found

    def promise(self, message_id: bytes, peer: PeerId, now: float) -> None:
        """Hold the message against `peer`."""
        if len(self._due) < self._limit:
            self._due.append((now + self._followup_s, message_id, peer))

    def arrived(self, message_id: bytes) -> list[PeerId] | None:
        """The message is here, from whomever; returns who was asked for it."""
        request = self._requests.pop(message_id, None)
        return None if request is None else request.asked

    def broken(self, now: float) -> list[PeerId]:
        """Those whose promise is overdue, once for each broken promise; and forget old requests."""
        guilty: list[PeerId] = []
        while self._due and self._due[0][0] <= now:
            _, message_id, peer = self._due.popleft()
            request = self._requests.get(message_id)
            if request is not None and peer in request.asked:
                guilty.append(peer)
        while self._started and self._started[0][0] <= now:
            _, message_id, request = self._started.popleft()
            if request.until <= now and self._requests.get(message_id) is request:
                del self._requests[message_id]
        return guilty

    def _note(self, message_id: bytes, request: _Request, peer: PeerId, now: float) -> None:
        request.asked.append(peer)
        request.again_at = now + self._retry_s
        request.until = now + self._followup_s
        self._started.append((request.until, message_id, request))
