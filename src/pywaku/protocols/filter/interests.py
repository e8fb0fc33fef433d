"""What a filter client has subscribed to, and where: by this it knows the pushes that it asked for."""

from __future__ import annotations

from collections.abc import Iterable

from pywaku.ids import PeerId
from pywaku.protocols.filter.table import Criterion


class Interests:
    """The criteria at each service node.

    A push must come from a node where its criteria are (12/WAKU2-FILTER, Message Push). There are as many
    entries as the application has subscribed to.
    """

    def __init__(self) -> None:
        self._at: dict[PeerId, dict[str, dict[str, None]]] = {}  # content topic → pubsub topics

    def __contains__(self, peer: object) -> bool:
        return peer in self._at

    @property
    def peers(self) -> frozenset[PeerId]:
        """The service nodes with criteria."""
        return frozenset(self._at)

    def at(self, peer: PeerId) -> tuple[Criterion, ...]:
        """The criteria at a node."""
        return tuple(
            Criterion(pubsub_topic, content_topic)
            for content_topic, pubsub_topics in self._at.get(peer, {}).items()
            for pubsub_topic in pubsub_topics
        )

    def add(self, peer: PeerId, pubsub_topic: str, content_topics: Iterable[str]) -> tuple[str, ...]:
        """Add criteria; returns the content topics that are new."""
        held = self._at.setdefault(peer, {})
        new: list[str] = []
        for content_topic in content_topics:
            pubsub_topics = held.setdefault(content_topic, {})
            if pubsub_topic not in pubsub_topics:
                pubsub_topics[pubsub_topic] = None
                new.append(content_topic)
        return tuple(new)

    def remove(self, peer: PeerId, pubsub_topic: str, content_topics: Iterable[str]) -> None:
        """Take criteria out; those that are not there do not matter."""
        held = self._at.get(peer, {})
        for content_topic in content_topics:
            pubsub_topics = held.get(content_topic)
            if pubsub_topics is not None:
                pubsub_topics.pop(pubsub_topic, None)
                if not pubsub_topics:
                    del held[content_topic]
        if not held:
            self._at.pop(peer, None)

    def forget(self, peer: PeerId) -> None:
        """Take out all criteria at a node."""
        self._at.pop(peer, None)

    def topic_of(self, peer: PeerId, pubsub_topic: str | None, content_topic: str) -> str | None:
        """The pubsub topic of a push that matches criteria at the node it comes from; None if none does.

        A push that names no pubsub topic matches if there is only one that it can be.
        """
        held = self._at.get(peer)
        if held is None:
            return None
        found = held.get(content_topic)
        if found is None:
            return None
        if pubsub_topic is None:
            return next(iter(found)) if len(found) == 1 else None
        return pubsub_topic if pubsub_topic in found else None
