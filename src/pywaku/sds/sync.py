"""When to send a sync message (SDS, Periodic Sync Message), with the pauses of js-waku."""

from __future__ import annotations

import random
from typing import Final

from pywaku.sds.changes import Rows, Touch, pack, unpack
from pywaku.sds.timers import Timers

SYNC: Final = 5
"""The kind of its timer."""
_ROW: Final = ""

AFTER_RECEIVED_CONTENT: Final = 0.5
AFTER_OWN_CONTENT: Final = 1.0
AFTER_RECEIVED_SYNC: Final = 1.0
AFTER_START: Final = 1.0
AFTER_FIRING: Final = 2.0
_WITH_REPAIRS: Final = 0.3
_ASKED_FOR: Final = 0.3


class SyncSchedule:
    """A random pause, drawn anew with everything that happens: who is first to send spares it the others."""

    __slots__ = ("_interval_ms", "_rng", "_spoke_ms", "_timers", "_touch")

    def __init__(self, interval_ms: int, rng: random.Random, timers: Timers, touch: Touch) -> None:
        self._interval_ms = interval_ms
        self._rng = rng
        self._timers = timers
        self._touch = touch
        self._spoke_ms: int | None = None  # when we last told what we have

    def use(self, rng: random.Random) -> None:
        """Draw from another source of chance from now on."""
        self._rng = rng

    def restart(self, factor: float, now_ms: int, *, repairs: bool) -> None:
        """Draw the next time. With repair requests due it is soon, and nothing puts it off."""
        if not self._interval_ms:
            return
        if repairs:
            factor *= _WITH_REPAIRS
        due_ms = now_ms + int(self._rng.random() * self._interval_ms * factor)
        before = self._timers.due_at(SYNC, _ROW)
        if repairs and before is not None:
            due_ms = min(due_ms, before)
        self._timers.set(SYNC, _ROW, due_ms)
        self._touch(_ROW)

    def spoke(self, now_ms: int) -> None:
        """A message of ours, of whatever kind, has told what we have."""
        self._spoke_ms = now_ms
        self._touch(_ROW)

    def hasten(self, now_ms: int) -> None:
        """Somebody sends again what we have: it is not acknowledged, so say so soon.

        Unless somebody else is faster (then the pause is drawn anew). If we did so a moment ago, it was lost
        or not enough, and the next one follows when that moment is over: nobody gets one message out of us
        with each of his.
        """
        soon_ms = int(self._interval_ms * _ASKED_FOR)
        if not soon_ms:
            return
        earliest_ms = now_ms
        if self._spoke_ms is not None and 0 <= now_ms - self._spoke_ms < soon_ms:
            earliest_ms = self._spoke_ms + soon_ms
        before = self._timers.due_at(SYNC, _ROW)
        if before is None or before > earliest_ms + soon_ms:
            self._timers.set(SYNC, _ROW, earliest_ms + int(self._rng.random() * soon_ms))
            self._touch(_ROW)

    def record(self, key: str) -> bytes | None:
        """A row of the saved state."""
        due_ms = self._timers.due_at(SYNC, _ROW)
        return None if due_ms is None else pack(due_ms, self._spoke_ms)

    def load(self, rows: Rows) -> None:
        """Take the saved state."""
        if _ROW in rows and self._interval_ms:
            due_ms, self._spoke_ms = unpack(rows[_ROW])
            self._timers.set(SYNC, _ROW, due_ms)
