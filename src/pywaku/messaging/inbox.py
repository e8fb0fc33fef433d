"""What arrives, from whichever source: each message once, to those who subscribed, and into the records."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, KeysView
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import trio

from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.messaging.record import MessageRecord, SubscriptionId
from pywaku.messaging.records import Change, Recorder
from pywaku.messaging.reports import Reports
from pywaku.messaging.subscriptions import Subscription

logger = logging.getLogger(__name__)

Source = Literal["relay", "filter", "store", "own"]

MAX_SEEN: Final = 65_536
"""Messages of which is known that they came already; beyond it the oldest are forgotten."""
_PATIENCE: Final = 8
"""Times that others are let run for a consumer that is behind, for each message."""


@dataclass(slots=True)
class InboxCounters:
    """What has happened so far."""

    received: int = 0
    """Messages that someone had subscribed to, each once."""
    duplicates: int = 0
    dropped: int = 0
    """Messages that a subscription had no room for, counted for each such subscription."""
    undecodable: int = 0
    """Messages that a decoder could not read."""


@dataclass(slots=True)
class _Wanted:
    """Who wants a content topic."""

    subscriptions: dict[Subscription, None] = field(default_factory=dict[Subscription, None])
    recorded_for: list[SubscriptionId] = field(default_factory=list[SubscriptionId])
    """Subscriptions without a consumer: their messages are recorded."""

    def __bool__(self) -> bool:
        return bool(self.subscriptions or self.recorded_for)


class Inbox:
    """Takes messages in. What comes a second time is dropped by its hash, whichever way it came."""

    def __init__(
        self,
        recorder: Recorder,
        reports: Reports,
        clock: Callable[[], int],
        own: Callable[[bytes, PeerId], MessageRecord | None],  # told of each that comes: is it one of ours?
        *,
        max_seen: int = MAX_SEEN,
    ) -> None:
        self.counters = InboxCounters()
        self._recorder = recorder
        self._reports = reports
        self._clock = clock
        self._own = own
        self._max_seen = max_seen
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._wanted: dict[str, dict[str, _Wanted]] = {}  # by pubsub topic and content topic
        self._crowded: set[Subscription] = set()

    # Who wants what

    def add(self, subscription: Subscription) -> None:
        """Give the messages of its topics to a subscription."""
        wanted = self._wanted_of(subscription.pubsub_topic, subscription.content_topic)
        wanted.subscriptions[subscription] = None

    def remove(self, subscription: Subscription) -> None:
        """No more."""
        of_shard = self._wanted[subscription.pubsub_topic]
        wanted = of_shard[subscription.content_topic]
        del wanted.subscriptions[subscription]
        self._crowded.discard(subscription)
        if not wanted:
            del of_shard[subscription.content_topic]

    def record_for(self, subscription_id: SubscriptionId, pubsub_topic: str, content_topic: str) -> None:
        """Record the messages of a content topic under a subscription that nobody reads."""
        wanted = self._wanted_of(pubsub_topic, content_topic)
        if subscription_id not in wanted.recorded_for:
            wanted.recorded_for.append(subscription_id)

    def record_no_more(self, subscription_id: SubscriptionId, pubsub_topic: str, content_topic: str) -> None:
        """No more."""
        of_shard = self._wanted.get(pubsub_topic, {})
        wanted = of_shard.get(content_topic)
        if wanted is not None and subscription_id in wanted.recorded_for:
            wanted.recorded_for.remove(subscription_id)
            if not wanted:
                del of_shard[content_topic]

    def content_topics(self, pubsub_topic: str) -> KeysView[str]:
        """What is wanted of a shard, as it is at any time."""
        return self._wanted.setdefault(pubsub_topic, {}).keys()

    def _wanted_of(self, pubsub_topic: str, content_topic: str) -> _Wanted:
        return self._wanted.setdefault(pubsub_topic, {}).setdefault(content_topic, _Wanted())

    def _who_wants(self, pubsub_topic: str, content_topic: str) -> _Wanted | None:
        of_shard = self._wanted.get(pubsub_topic)
        return None if of_shard is None else of_shard.get(content_topic)

    # What came already

    def remember(self, hashes: Iterable[bytes]) -> None:
        """These came already, in an earlier life of the node."""
        for message_hash in hashes:
            self._note(message_hash)

    def knows(self, message_hash: bytes) -> bool:
        """Did this one come already, as far as is remembered here?"""
        return message_hash in self._seen

    def _note(self, message_hash: bytes) -> None:
        self._seen[message_hash] = None
        if len(self._seen) > self._max_seen:
            self._seen.popitem(last=False)

    # What comes

    def take(
        self,
        pubsub_topic: str,
        message: WakuMessage,
        message_hash: bytes,
        source: Source,
        peer: PeerId,
    ) -> bool:
        """A message has come from a peer; True if it is new and somebody wants it."""
        own = self._own(message_hash, peer)
        wanted = self._who_wants(pubsub_topic, message.content_topic)
        if wanted is None:
            return False
        if message_hash in self._seen:
            self.counters.duplicates += 1
            if own is not None and not own.received:
                self.came_back(own, peer, source)
            return False
        self._note(message_hash)
        self.counters.received += 1
        now_ns = self._clock()
        stored = source == "store"
        if own is not None:
            record = replace(own, received=True, stored=own.stored or stored, updated_ns=now_ns)
        else:
            record = MessageRecord(
                message_hash,
                pubsub_topic,
                message,
                received=True,
                stored=stored,
                created_ns=now_ns,
                updated_ns=now_ns,
            )
        self._reports.received(record, source, peer)
        self._hand_out(record, wanted, source)
        return True

    def loop_back(self, record: MessageRecord) -> None:
        """A message of this node has left: its own subscriptions get it too, as those of others do."""
        wanted = self._who_wants(record.pubsub_topic, record.content_topic)
        if wanted is not None and record.message_hash not in self._seen:
            self._note(record.message_hash)
            if wanted.subscriptions:
                self._hand_out(replace(record, propagated=True), wanted, "own")

    def came_back(self, record: MessageRecord, peer: PeerId, source: Source = "relay") -> None:
        """A message of this node has come back: it was received from the network as well."""
        wanted = self._who_wants(record.pubsub_topic, record.content_topic)
        if wanted is not None:
            self._reports.received(record, source, peer)
            self._recorder.put(Change(record.message_hash, self._clock(), received=True))

    def _hand_out(self, record: MessageRecord, wanted: _Wanted, source: Source) -> None:
        takers = list(wanted.recorded_for)
        error: str | None = None
        for subscription in tuple(wanted.subscriptions):  # decoders may end some
            try:
                read = subscription.read(record)
            except Exception as raised:
                self.counters.undecodable += 1
                error = _in_words(raised)
                logger.debug("message not decoded: subscription=%s error=%s", subscription.id, error)
                continue
            if read is None:
                continue
            takers.append(subscription.id)
            if not subscription.offer(read):
                self.counters.dropped += 1
                self._reports.dropped(record, subscription.id)
            elif subscription.crowded:
                self._crowded.add(subscription)
        if error is not None:
            self._reports.not_decoded(record, error)
        own = source == "own"
        self._recorder.put(
            Change(
                record.message_hash,
                record.updated_ns,
                record=record if record.request_id is None else None,  # of an own one there is a record
                received=None if own else True,
                stored=True if source == "store" else None,
                error=error,
                subscription_ids=tuple(takers),
            )
        )

    async def let_others_catch_up(self) -> None:
        """Pause a little for consumers that are behind because it was not their turn, and for the records."""
        if self._recorder.full:
            await self._recorder.room()
        taken = {each: each.taken for each in self._crowded}
        for _ in range(_PATIENCE):
            if not self._crowded:
                return
            self._crowded = {each for each in self._crowded if each.crowded}
            await trio.lowlevel.checkpoint()
        # Who has read nothing meanwhile is not waited for again before there is more for it.
        self._crowded = {each for each in self._crowded if each.taken != taken.get(each)}

    @property
    def pressed(self) -> bool:
        """Is there anyone to wait for (`let_others_catch_up`)?"""
        return bool(self._crowded) or self._recorder.full


def _in_words(error: Exception) -> str:
    """What a decoder has raised; it may fail to say even that."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__
