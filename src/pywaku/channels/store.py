"""Where channels keep what they must not forget: the port, and the build that forgets it with the process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from pywaku.channels.rows import Row, RowChange

Scope = str
"""What rows belong to: a participant's side of a channel, or the node."""

NODE_SCOPE: Final[Scope] = ""


def scope_of(channel_id: str, sender_id: str) -> Scope:
    """The rows of one participant's side of a channel."""
    return f"{len(channel_id)}:{channel_id}/{sender_id}"


class ChannelStore(Protocol):
    """Keeps rows. All methods raise `RecordError` where the back end fails."""

    @property
    def name(self) -> str:
        """Which store this is, for people and logs."""
        ...

    async def load(self, scope: Scope) -> list[Row]:
        """All rows of a scope, in no particular order."""
        ...

    async def apply(self, scope: Scope, changes: Sequence[RowChange]) -> None:
        """Make the changes in order, all of them or none; they outlive the process when this returns."""
        ...

    async def forget(self, scope: Scope) -> None:
        """Remove all rows of a scope."""
        ...

    async def close(self) -> None:
        """Let go of the file."""
        ...


class MemoryChannelStore:
    """Rows in memory, for channels that may be forgotten."""

    name = "in memory"

    def __init__(self) -> None:
        self._rows: dict[Scope, dict[tuple[str, str], bytes]] = {}

    async def load(self, scope: Scope) -> list[Row]:
        """All rows of a scope."""
        return [Row(table, key, value) for (table, key), value in self._rows.get(scope, {}).items()]

    async def apply(self, scope: Scope, changes: Sequence[RowChange]) -> None:
        """Make the changes."""
        rows = self._rows.setdefault(scope, {})
        for table, key, value in changes:
            if value is None:
                rows.pop((table, key), None)
            else:
                rows[table, key] = value

    async def forget(self, scope: Scope) -> None:
        """Remove them."""
        self._rows.pop(scope, None)

    async def close(self) -> None:
        """They stay, for whoever opens it again."""
