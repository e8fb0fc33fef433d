"""Numbers that stand for topics and subscriptions in the tables."""

from __future__ import annotations

import sqlite3
from typing import Final

PUBSUB: Final = 0
CONTENT: Final = 1
SUBSCRIPTION: Final = 2

_REMEMBERED: Final = 20_000
_FIND: Final = "SELECT id FROM names WHERE kind = ? AND name = ?"
_ADD: Final = "INSERT INTO names (kind, name) VALUES (?, ?)"
_LAST_PLACE: Final = "SELECT max(place) FROM receipts WHERE subscription = ?"
# Pubsub topics are few, and stay.
_DROP_UNUSED: Final = (
    """DELETE FROM names WHERE kind = 1
        AND NOT EXISTS (SELECT 1 FROM records WHERE content = names.id)
        AND NOT EXISTS (SELECT 1 FROM fetched WHERE content = names.id)""",
    """DELETE FROM names WHERE kind = 2
        AND NOT EXISTS (SELECT 1 FROM receipts WHERE subscription = names.id)""",
)


class Names:
    """The numbers of names, remembered up to a bound. What a transaction adds counts once it is committed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._numbers: dict[tuple[int, str], int] = {}
        self._new: dict[tuple[int, str], int] = {}
        self._places: dict[int, int] = {}

    def number(self, kind: int, name: str) -> int:
        """The number of a name, which is added where there is none."""
        key = (kind, name)
        number = self._numbers.get(key) or self._new.get(key)
        return self._look_up(key) if number is None else number

    def next_place(self, subscription: int) -> int:
        """The next place among what came under a subscription; places may stay empty."""
        place = self._places.get(subscription)
        if place is None:
            place = self._connection.execute(_LAST_PLACE, (subscription,)).fetchone()[0] or 0
        self._places[subscription] = place + 1
        return place + 1

    def committed(self) -> None:
        """What was added is in the file."""
        if self._new:
            if len(self._numbers) + len(self._new) > _REMEMBERED:
                self._numbers.clear()
                self._places.clear()
            self._numbers.update(self._new)
            self._new.clear()

    def rolled_back(self) -> None:
        """What was added is not in the file."""
        self._new.clear()
        self._places.clear()

    def drop_unused(self) -> None:
        """Drop the names that nothing refers to any more; part of a transaction of its own."""
        self._numbers.clear()
        self._places.clear()
        for statement in _DROP_UNUSED:
            self._connection.execute(statement)

    def _look_up(self, key: tuple[int, str]) -> int:
        found: tuple[int] | None = self._connection.execute(_FIND, key).fetchone()
        number = self._connection.execute(_ADD, key).lastrowid if found is None else found[0]
        assert number is not None
        self._new[key] = number
        return number
