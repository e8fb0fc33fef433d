"""From relay into the archive: a store node keeps what it relays (13/WAKU2-STORE)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from pywaku.archive import ArchiveWriter
from pywaku.protocols.relay import ReceivedMessage, Relay


class RelayFeed:
    """Offers the messages of some pubsub topics to an archive, which keeps the eligible ones.

    Relay is not held up: the writer takes a message or counts it as dropped, and writes in the background.
    What this node publishes itself is offered too, unless relay was told not to deliver its own messages.
    """

    def __init__(self, relay: Relay, writer: ArchiveWriter) -> None:
        self._relay = relay
        self._writer = writer
        self._stops: dict[str, Callable[[], None]] = {}

    @property
    def topics(self) -> frozenset[str]:
        """The pubsub topics whose messages are stored."""
        return frozenset(self._stops)

    def add(self, pubsub_topic: str) -> None:
        """Store the messages of this topic as well; joins it if need be."""
        if pubsub_topic not in self._stops:
            self._stops[pubsub_topic] = self._relay.subscribe_callback(pubsub_topic, self._offer)

    def remove(self, pubsub_topic: str) -> None:
        """Store no more messages of this topic."""
        stop = self._stops.pop(pubsub_topic, None)
        if stop is not None:
            stop()

    def close(self) -> None:
        """Store no more messages."""
        for topic in tuple(self._stops):
            self.remove(topic)

    def _offer(self, received: ReceivedMessage) -> None:
        self._writer.offer(received.pubsub_topic, received.message, received.message_hash)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def store_from_relay(relay: Relay, writer: ArchiveWriter, pubsub_topics: Iterable[str]) -> RelayFeed:
    """Store the messages of these topics from now on, until the feed is closed; it is a context manager."""
    feed = RelayFeed(relay, writer)
    for topic in pubsub_topics:
        feed.add(topic)
    return feed
