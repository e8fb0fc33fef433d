"""The lamport clock of a channel, and the order in which things happened."""

from __future__ import annotations

from pywaku.errors import InvalidInput
from pywaku.sds.changes import FORMAT, Rows, Touch, pack, unpack

_ROW = ""


class Clock:
    """Lamport time (SDS, Participant state), and numbers that say what came before what."""

    __slots__ = ("_order", "_touch", "lamport")

    def __init__(self, now_ms: int, touch: Touch) -> None:
        self.lamport = now_ms
        self._order = 0
        self._touch = touch
        touch(_ROW)

    def advance(self, now_ms: int) -> int:
        """The timestamp of a message that is to be sent."""
        self.lamport = max(now_ms, self.lamport + 1)
        self._touch(_ROW)
        return self.lamport

    def observe(self, lamport: int) -> None:
        """A message with this timestamp is delivered."""
        if lamport > self.lamport:
            self.lamport = lamport
            self._touch(_ROW)

    def next_order(self) -> int:
        """A number above all earlier ones."""
        self._order += 1
        self._touch(_ROW)
        return self._order

    def record(self, key: str) -> bytes | None:
        """A row of the saved state."""
        return pack(FORMAT, self.lamport, self._order)

    def load(self, rows: Rows) -> None:
        """Take the saved state."""
        if _ROW not in rows:
            return
        version, *values = unpack(rows[_ROW])
        if version != FORMAT:
            raise InvalidInput(f"the saved SDS state has format {version}; this version reads {FORMAT}")
        self.lamport, self._order = values
