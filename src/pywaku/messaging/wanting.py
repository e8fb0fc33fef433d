"""What is wanted of the network: content topics that come live, and are searched for in stores."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

import trio

from pywaku.ids import PeerId
from pywaku.messaging.inbox import Inbox
from pywaku.messaging.missed import Missed
from pywaku.messaging.transport import Transport
from pywaku.protocols.relay import Subscription

logger = logging.getLogger(__name__)

OnWanted = Callable[[str, str, bool], None]
"""Hears that a content topic of a pubsub topic is wanted, or no more."""


class Wanting:
    """Has wanted messages brought to the inbox, from wherever. Its tasks run in `nursery`."""

    def __init__(
        self,
        transport: Transport,
        inbox: Inbox,
        missed: Missed | None,
        nursery: trio.Nursery,
        on_wanted: OnWanted,
        me: PeerId,
        is_own: Callable[[bytes], bool],
    ) -> None:
        self._transport = transport
        self._inbox = inbox
        self._missed = missed
        self._nursery = nursery
        self._on_wanted = on_wanted
        self._me = me
        self._is_own = is_own
        self._live: dict[str, Subscription] = {}
        self._wanted: Counter[tuple[str, str, bool]] = Counter()
        if missed is not None:
            transport.on_gap(missed.search)

    def want(self, pubsub_topic: str, content_topic: str, *, receive: bool = True) -> None:
        """Bring the messages of a content topic, until as many `want_no_more` as `want`.

        Without `receive` stores are only asked which of them they have. Call it after the inbox knows.
        """
        key = (pubsub_topic, content_topic, receive)
        self._wanted[key] += 1
        if self._wanted[key] > 1:
            return
        if self._missed is not None:
            self._missed.watch(pubsub_topic, content_topic, fetch=receive)
        if receive:
            self._listen(pubsub_topic)
            self._transport.want(pubsub_topic, content_topic)
            self._on_wanted(pubsub_topic, content_topic, True)
            self._nursery.start_soon(self._search_once_it_comes, pubsub_topic, content_topic)

    def want_no_more(self, pubsub_topic: str, content_topic: str, *, receive: bool = True) -> None:
        """Nobody needs them any more, or one less does."""
        key = (pubsub_topic, content_topic, receive)
        self._wanted[key] -= 1
        if self._wanted[key]:
            return
        del self._wanted[key]
        if receive:
            self._transport.want_no_more(pubsub_topic, content_topic)
            self._on_wanted(pubsub_topic, content_topic, False)
        if self._missed is None:
            return
        if not self._wanted[pubsub_topic, content_topic, not receive]:
            self._missed.unwatch(pubsub_topic, content_topic)
        elif receive:
            self._missed.fetch_no_more(pubsub_topic, content_topic)

    async def established(self, pubsub_topic: str, content_topic: str) -> None:
        """Returns when somebody has agreed to send the messages; may be never."""
        await self._transport.established(pubsub_topic, content_topic)

    def _listen(self, pubsub_topic: str) -> None:
        """Take what the inbox wants of a pubsub topic, and nothing else."""
        if pubsub_topic not in self._live:
            live = self._live[pubsub_topic] = self._transport.listen(pubsub_topic)
            live.content_topics = self._inbox.content_topics(pubsub_topic)
            self._nursery.start_soon(self._take_in, live)

    async def _take_in(self, live: Subscription) -> None:
        inbox = self._inbox
        source = self._transport.name
        async for received in live:
            if received.peer == self._me and self._is_own(received.message_hash):
                continue  # it comes by `Inbox.loop_back`; what was pushed for a light node does not
            try:
                inbox.take(
                    received.pubsub_topic, received.message, received.message_hash, source, received.peer
                )
            except Exception:  # the fault of one message must not cost those that follow
                logger.exception("message not taken in: hash=%s", received.message_hash.hex())
            if inbox.pressed:
                await inbox.let_others_catch_up()

    async def _search_once_it_comes(self, pubsub_topic: str, content_topic: str) -> None:
        """Between wanting messages and getting them some may have passed."""
        await self._transport.established(pubsub_topic, content_topic)
        if self._missed is not None:
            self._missed.search(pubsub_topic)
