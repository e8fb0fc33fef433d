"""Messages as they are on the wire, kept once for all who need them; and those kept for repair."""

from __future__ import annotations

from pywaku.sds.changes import Rows, Touch, pack, unpack
from pywaku.sds.clock import Clock


class Bodies:
    """Messages by id, each kept for as long as somebody holds it."""

    __slots__ = ("_data", "_holders", "_touch")

    def __init__(self, touch: Touch) -> None:
        self._data: dict[str, bytes] = {}
        self._holders: dict[str, int] = {}
        self._touch = touch

    def __len__(self) -> int:
        return len(self._data)

    def get(self, message_id: str) -> bytes | None:
        """The message, if somebody holds it."""
        return self._data.get(message_id)

    def __getitem__(self, message_id: str) -> bytes:
        return self._data[message_id]

    def hold(self, message_id: str, data: bytes) -> None:
        """Keep a message until it is released as often as it is held."""
        holders = self._holders.get(message_id, 0)
        if holders == 0:
            self._data[message_id] = data
            self._touch(message_id)
        self._holders[message_id] = holders + 1

    def hold_saved(self, message_id: str) -> bool:
        """Hold a message that was saved; False where there is none."""
        if message_id not in self._data:
            return False
        self._holders[message_id] = self._holders.get(message_id, 0) + 1
        return True

    def release(self, message_id: str) -> None:
        """One holder less."""
        holders = self._holders[message_id] - 1
        if holders:
            self._holders[message_id] = holders
        else:
            del self._holders[message_id], self._data[message_id]
            self._touch(message_id)

    def drop_unheld(self) -> None:
        """After the saved state was taken: forget what nobody holds."""
        for message_id in [one for one in self._data if one not in self._holders]:
            del self._data[message_id]
            self._touch(message_id)

    def record(self, key: str) -> bytes | None:
        """A row of the saved state."""
        return self._data.get(key)

    def load(self, rows: Rows) -> None:
        """Take the saved state; who needs a message holds it by `hold_saved`."""
        self._data.update(rows)


class RepairCache:
    """Messages of the log, to respond to repair requests with (SDS-R, Augmented local history log).

    Bounded in number and bytes; those that came in first go first.
    """

    __slots__ = ("_bodies", "_clock", "_limit", "_max_bytes", "_messages", "_touch", "evicted", "size")

    def __init__(self, limit: int, max_bytes: int, bodies: Bodies, clock: Clock, touch: Touch) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self._bodies = bodies
        self._clock = clock
        self._touch = touch
        self._messages: dict[str, int] = {}  # with their place in the order
        self.size = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._messages)

    def get(self, message_id: str) -> bytes | None:
        """The message, if it is kept here."""
        return self._bodies.get(message_id) if message_id in self._messages else None

    def put(self, message_id: str, data: bytes) -> None:
        """Keep a message."""
        if message_id in self._messages:
            return
        self._bodies.hold(message_id, data)
        self._messages[message_id] = self._clock.next_order()
        self._touch(message_id)
        self.size += len(data)
        self._shrink()

    def drop(self, message_id: str) -> None:
        """Do not keep a message any longer."""
        if self._messages.pop(message_id, None) is not None:
            self.size -= len(self._bodies[message_id])
            self._bodies.release(message_id)
            self._touch(message_id)

    def _shrink(self) -> None:
        while len(self._messages) > self._limit or self.size > self._max_bytes:
            self.drop(next(iter(self._messages)))
            self.evicted += 1

    def record(self, key: str) -> bytes | None:
        """A row of the saved state."""
        order = self._messages.get(key)
        return None if order is None else pack(order)

    def load(self, rows: Rows) -> None:
        """Take the saved state."""
        for order, message_id in sorted((unpack(row)[0], key) for key, row in rows.items()):
            if self._bodies.hold_saved(message_id):
                self._messages[message_id] = order
                self.size += len(self._bodies[message_id])
        self._shrink()
