"""Requests of others for messages that we have: the incoming repair request buffer of SDS-R."""

from __future__ import annotations

from typing import Final

from pywaku.sds.changes import Rows, Touch, pack, unpack
from pywaku.sds.options import RepairOptions
from pywaku.sds.timers import Timers

RESPOND: Final = 4
"""The kind of its timers."""


class RepairResponses:
    """Requests that wait for their T_resp, and for `t_min_ms` those that were answered by us.

    The latter are not answered again so soon: whoever sends requests does not decide how much we send.
    At most `max_responses`; the next request is ignored.
    """

    __slots__ = ("_due", "_options", "_timers", "_touch")

    def __init__(self, options: RepairOptions | None, timers: Timers, touch: Touch) -> None:
        self._options = options
        self._timers = timers
        self._touch = touch
        self._due: dict[str, tuple[int, bool]] = {}  # T_resp, or the end of the pause after the answer

    def __len__(self) -> int:
        return len(self._due)

    def add(self, message_id: str, due_ms: int) -> bool:
        """Answer a request at its time; False where there is no room, or it was answered a moment ago."""
        known = self._due.get(message_id)
        if known is not None:
            return not known[1]
        if self._options is None or len(self._due) >= self._options.max_responses:
            return False
        self._set(message_id, due_ms, answered=False)
        return True

    def _set(self, message_id: str, due_ms: int, *, answered: bool) -> None:
        self._due[message_id] = (due_ms, answered)
        self._timers.set(RESPOND, message_id, due_ms)
        self._touch(message_id)

    def answered_by_another(self, message_id: str) -> bool:
        """The message was just received; whether an answer of ours was due."""
        known = self._due.get(message_id)
        if known is None or known[1]:
            return False
        self._remove(message_id)
        return True

    def _remove(self, message_id: str) -> None:
        del self._due[message_id]
        self._timers.cancel(RESPOND, message_id)
        self._touch(message_id)

    def is_due(self, message_id: str, now_ms: int) -> bool:
        """The timer has come: whether to answer now. The pause after the answer begins, or is over."""
        if self._due[message_id][1] or self._options is None:
            self._remove(message_id)
            return False
        self._set(message_id, now_ms + self._options.t_min_ms, answered=True)
        return True

    def record(self, key: str) -> bytes | None:
        """A row of the saved state."""
        known = self._due.get(key)
        return None if known is None else pack(*known)

    def load(self, rows: Rows) -> None:
        """Take the saved state."""
        for message_id, row in rows.items():
            due_ms, answered = unpack(row)
            self._due[message_id] = (due_ms, answered)
            self._timers.set(RESPOND, message_id, due_ms)
