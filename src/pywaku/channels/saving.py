"""Steps of a channel on their way to the store: what follows from one waits until it is saved."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

import trio

from pywaku.channels.rows import RowChange
from pywaku.channels.store import ChannelStore, Scope
from pywaku.errors import NodeClosed, RecordError

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.5
_LONGEST_RETRY_S: Final = 10.0


class Saver:
    """Saves steps in their order, each with all before it. Where saving is given up, the next call goes on.

    Nothing is taken from the machine while it tries, so no more waits than the steps of those who gave up.
    """

    def __init__(self, store: ChannelStore, scope: Scope, on_failure: Callable[[], None]) -> None:
        """`on_failure` hears of each attempt that failed, and will be made again."""
        self._on_failure = on_failure
        self._store = store
        self._scope = scope
        self._changes: list[RowChange] = []
        self._then: list[Callable[[], None]] = []

    async def save(self, changes: Iterable[RowChange], then: Callable[[], None]) -> None:
        """Save a step however long that takes, and do then what follows from it.

        Raises `NodeClosed` where the store is closed.
        """
        self._changes += changes
        self._then.append(then)
        delay_s = _RETRY_S
        while self._changes:
            try:
                await self._store.apply(self._scope, self._changes)
                break
            except RecordError as error:
                if error.reason == "closed":
                    raise NodeClosed("the node was closed before the channel could be saved") from error
                self._on_failure()
                logger.warning("channel not saved, trying again: %s", error)
            await trio.sleep(delay_s)
            delay_s = min(2 * delay_s, _LONGEST_RETRY_S)
        actions, self._then, self._changes = self._then, [], []
        for action in actions:
            action()
