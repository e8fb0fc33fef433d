"""Those who want to know when a message that was published here comes back."""

from __future__ import annotations

import logging
from collections.abc import Callable

from pywaku.gossip import Gossip
from pywaku.ids import PeerId
from pywaku.protocols.relay.counters import RelayCounters
from pywaku.protocols.relay.failures import Failures

logger = logging.getLogger(__name__)

EchoListener = Callable[[bytes, PeerId], None]
"""Hears the id of a message that this node has published, and which peer has sent it."""


class EchoListeners:
    """Functions that are called with each echo; while there are none, the router does not look for any."""

    def __init__(self, router: Gossip, counters: RelayCounters) -> None:
        self._router = router
        self._counters = counters
        self._listeners: dict[object, tuple[EchoListener, Failures]] = {}

    def add(self, listener: EchoListener) -> Callable[[], None]:
        """Call `listener` from now on; returns the call that ends it."""
        key = object()  # the same function may listen twice
        self._listeners[key] = (listener, Failures())
        self._router.listen_for_echoes(True)

        def remove() -> None:
            if self._listeners.pop(key, None) is not None and not self._listeners:
                self._router.listen_for_echoes(False)

        return remove

    def tell(self) -> None:
        """Tell of the echoes that the router has heard. What a listener raises is logged, no more."""
        for message_id, peer in self._router.take_echoes():
            for listener, failures in tuple(self._listeners.values()):
                try:
                    listener(message_id, peer)
                except Exception as error:
                    self._counters.callback_errors += 1
                    failures.log(logger, "echo listener", error)

    def close(self) -> None:
        """Tell nobody any more."""
        self._listeners.clear()
        self._router.listen_for_echoes(False)
