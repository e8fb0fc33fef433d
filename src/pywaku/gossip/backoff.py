"""Who may not be grafted again yet (gossipsub v1.1, "PRUNE Backoff and Peer Exchange")."""

from __future__ import annotations

from pywaku.ids import PeerId


class Backoffs:
    """For each topic and peer the time until which neither side is to GRAFT; at most `limit` in all."""

    __slots__ = ("_limit", "_slack_s", "_until", "count", "evicted")

    def __init__(self, slack_s: float, limit: int) -> None:
        self._until: dict[str, dict[PeerId, float]] = {}
        self._slack_s = slack_s
        self._limit = limit
        self.count = 0
        self.evicted = 0

    def add(self, topic: str, peer: PeerId, until: float) -> None:
        """Back off until then, or as long as was noted before if that is longer."""
        peers = self._until.setdefault(topic, {})
        known = peers.get(peer)
        if known is None:
            if self.count >= self._limit:
                self._evict()
                peers = self._until.setdefault(topic, {})
            peers[peer] = until
            self.count += 1
        elif known < until:
            peers[peer] = until

    def until(self, topic: str, peer: PeerId) -> float | None:
        """When the peer may GRAFT again; None if there is nothing that keeps it."""
        peers = self._until.get(topic)
        return None if peers is None else peers.get(peer)

    def blocked(self, topic: str, now: float) -> dict[PeerId, float] | frozenset[PeerId]:
        """Those whom we may not GRAFT: a bit longer than they may not, for clocks and heartbeats differ."""
        peers = self._until.get(topic)
        if not peers:
            return frozenset()
        return {peer: until for peer, until in peers.items() if now < until + self._slack_s}

    def expire(self, now: float) -> None:
        """Forget what is over."""
        for topic, peers in list(self._until.items()):
            over = [peer for peer, until in peers.items() if until + self._slack_s <= now]
            for peer in over:
                del peers[peer]
            self.count -= len(over)
            if not peers:
                del self._until[topic]

    def _evict(self) -> None:
        for topic, peers in self._until.items():
            if peers:
                del peers[next(iter(peers))]
                self.count -= 1
                self.evicted += 1
                if not peers:
                    del self._until[topic]
                return
