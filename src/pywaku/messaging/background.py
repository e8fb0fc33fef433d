"""The background subscription: content topics that are watched for acknowledgements (MESSAGING-API)."""

from __future__ import annotations

import logging
from typing import Final

from pywaku.messaging.inbox import Inbox
from pywaku.messaging.record import BACKGROUND_SUBSCRIPTION
from pywaku.messaging.wanting import Wanting

logger = logging.getLogger(__name__)

MAX_SENT_ON: Final = 256
"""Content topics that are watched because something was sent on them; what is sent on others is not."""


class Background:
    """Watches content topics without a consumer: their messages are recorded under a reserved id."""

    def __init__(self, inbox: Inbox, wanting: Wanting) -> None:
        self._inbox = inbox
        self._wanting = wanting
        self._topics: dict[tuple[str, str], bool] = {}  # whether they are received
        self._sent_on = 0
        self._ended = False

    @property
    def active(self) -> bool:
        """Is anything watched?"""
        return bool(self._topics)

    def watch(self, pubsub_topic: str, content_topic: str, *, receive: bool) -> None:
        """Watch a content topic; with `receive` its messages come, else only stores are asked about it."""
        key = (pubsub_topic, content_topic)
        if key in self._topics:
            return
        self._topics[key] = receive
        if receive:
            self._inbox.record_for(BACKGROUND_SUBSCRIPTION, pubsub_topic, content_topic)
        self._wanting.want(pubsub_topic, content_topic, receive=receive)

    def sent_on(self, pubsub_topic: str, content_topic: str) -> None:
        """Something is sent: the first time this is a subscription (the later specification, Messaging)."""
        if self._ended or (pubsub_topic, content_topic) in self._topics:
            return
        if self._sent_on >= MAX_SENT_ON:
            if self._sent_on == MAX_SENT_ON:
                self._sent_on += 1
                logger.info("content topics sent on are not subscribed to any more: count=%d", MAX_SENT_ON)
            return
        self._sent_on += 1
        self.watch(pubsub_topic, content_topic, receive=True)

    def end(self) -> None:
        """Watch nothing any more."""
        self._ended = True
        for (pubsub_topic, content_topic), receive in self._topics.items():
            if receive:
                self._inbox.record_no_more(BACKGROUND_SUBSCRIPTION, pubsub_topic, content_topic)
            self._wanting.want_no_more(pubsub_topic, content_topic, receive=receive)
        self._topics.clear()
