"""Messages of our own that peers send us: duplicates, but they show that a message has travelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pywaku.gossip.seen import SeenCache
from pywaku.gossip.types import Echo

_NONE: Final[Sequence[Echo]] = ()


class Echoes:
    """What we have published lately, at most `max_own` messages, and who has sent some of it back.

    Nothing gathers unless `listening`. Of what gathers and is not taken the first `max_gathered` are kept:
    they say all there is to know.
    """

    __slots__ = ("_gathered", "_max_gathered", "_own", "dropped", "listening", "own_ids")

    def __init__(self, ttl_s: float, max_own: int, max_gathered: int) -> None:
        self.listening = False
        self.dropped = 0
        self._own = SeenCache(ttl_s, max_own)
        self.own_ids = self._own.ids
        """For reading: what we have published."""
        self._gathered: list[Echo] = []
        self._max_gathered = max_gathered

    def __len__(self) -> int:
        return len(self._gathered)

    @property
    def evicted(self) -> int:
        """How many messages had to be forgotten before their time."""
        return self._own.evicted

    def published(self, message_id: bytes, now: float) -> None:
        """A message of our own goes out."""
        if message_id not in self.own_ids:
            self._own.add(message_id, now)

    def heard(self, echo: Echo) -> None:
        """A peer has sent a message of our own."""
        if len(self._gathered) < self._max_gathered:
            self._gathered.append(echo)
        else:
            self.dropped += 1

    def take(self) -> Sequence[Echo]:
        """What has gathered and was not taken before."""
        if not self._gathered:
            return _NONE
        gathered = self._gathered
        self._gathered = []
        return gathered

    def listen(self, listening: bool) -> None:
        """Gather from now on, or no longer."""
        self.listening = listening
        if not listening:
            self._gathered = []

    def expire(self, now: float) -> None:
        """Forget what was published long ago."""
        self._own.expire(now)
