"""How messages leave a node and come to it: the port of the Messaging API to relay, or to service nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, Protocol

from pywaku.ids import PeerId
from pywaku.messaging.attempts import Verdict
from pywaku.messaging.health import ShardPeers
from pywaku.messaging.record import MessageRecord
from pywaku.protocols.relay import Subscription


@dataclass(frozen=True, slots=True)
class Handover:
    """What became of one attempt to send, and which peers had to do with it."""

    verdict: Verdict
    error: str | None = None
    taken_by: tuple[PeerId, ...] = ()
    """The service nodes that took it so far; empty with relay."""
    through: tuple[PeerId, ...] = ()
    """The service nodes that were given it; empty with relay."""


OnEcho = Callable[[bytes, PeerId], None]
"""Hears the hash of a message of this node that a peer has sent back, and the peer."""
OnGap = Callable[[str], None]
"""Hears of a pubsub topic on which messages may have been missed, although the network was there."""


class Transport(Protocol):
    """Relay, or service nodes."""

    @property
    def name(self) -> Literal["relay", "filter"]:
        """How messages come."""
        ...

    @property
    def concurrency(self) -> int:
        """How many messages are best handed over at a time."""
        ...

    async def send(
        self, record: MessageRecord, *, resend: bool, given_to: Collection[PeerId] = ()
    ) -> Handover:
        """Hand a message over, to others than the service nodes that it was `given_to` before, if possible.

        What goes wrong is in the outcome.
        """
        ...

    def listen(self, pubsub_topic: str) -> Subscription:
        """What comes of a pubsub topic; nothing until its `content_topics` are set."""
        ...

    def on_echo(self, listener: OnEcho) -> None:
        """Tell of messages of this node that come back other than by `listen`."""
        ...

    def on_gap(self, listener: OnGap) -> None:
        """Tell of pubsub topics on which messages may have been missed unnoticed."""
        ...

    def want(self, pubsub_topic: str, content_topic: str) -> None:
        """Have the messages of a content topic come, until as many `want_no_more` as `want`."""
        ...

    def want_no_more(self, pubsub_topic: str, content_topic: str) -> None:
        """They need not come any more."""
        ...

    async def established(self, pubsub_topic: str, content_topic: str) -> None:
        """Returns when what is wanted is known to somebody who can send it; may be never."""
        ...

    def peers(self, pubsub_topic: str) -> ShardPeers:
        """Who there is on a shard, as far as it counts for health."""
        ...

    @property
    def offline(self) -> bool:
        """Is the network taken to be away?"""
        ...

    def busy_peers(self, pubsub_topic: str) -> Collection[PeerId]:
        """The peers that messages are sent through, which others should confirm."""
        ...
