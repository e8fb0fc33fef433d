"""Sending in the background: attempts, retries, store checks, as `Outgoing` decides (MESSAGING-API, Send)."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Final

import trio

from pywaku.archive.eligibility import why_ineligible
from pywaku.ids import PeerId
from pywaku.messaging.attempts import Attempt, Progress, SendPolicy, Step, Verdict
from pywaku.messaging.outgoing import Outgoing
from pywaku.messaging.own import OwnMessage, OwnMessages
from pywaku.messaging.record import MessageRecord, RequestId
from pywaku.messaging.records import Change, Recorder
from pywaku.messaging.reports import Reports
from pywaku.messaging.stores import Presence
from pywaku.messaging.transport import Handover, Transport

logger = logging.getLogger(__name__)

_UNDERWAY_NS: Final = 5_000_000_000
"""How long a message may take to a store."""

StoreCheck = Callable[[str, list[bytes]], Awaitable[Presence]]
"""Which of these messages of a pubsub topic are stored, and where."""


class Sender:
    """Sends what `submit` gives it. Its tasks run in `nursery`.

    `on_left` hears of each message the first time that a peer has taken it, and `on_need` of pubsub topics
    on which there is something to send, or no more.
    """

    def __init__(
        self,
        transport: Transport,
        recorder: Recorder,
        reports: Reports,
        clock: Callable[[], int],
        policy: SendPolicy,
        *,
        is_stored: StoreCheck | None,
        on_left: Callable[[MessageRecord], None],
        on_need: Callable[[str, bool], None],
    ) -> None:
        self._transport = transport
        self._recorder = recorder
        self._reports = reports
        self._clock = clock
        self._is_stored = is_stored
        self._on_left = on_left
        self._on_need = on_need
        self._outgoing = Outgoing(replace(policy, concurrency=transport.concurrency))
        self._pending: dict[RequestId, MessageRecord] = {}
        self._own = OwnMessages()
        self._needed: set[str] = set()
        self._idle = trio.lowlevel.ParkingLot()
        self._due = math.inf  # when there is something to do next
        self._sooner = trio.Event()
        self._all_tried = trio.lowlevel.ParkingLot()
        self._to_check: dict[str, list[bytes]] = {}  # by pubsub topic; one task for each at a time
        self._checking: set[str] = set()

    @property
    def pending(self) -> tuple[RequestId, ...]:
        """The requests that are neither sent nor given up, oldest first."""
        return self._outgoing.pending

    def is_pending(self, request_id: RequestId) -> bool:
        """Is this one of those?"""
        return request_id in self._outgoing

    def require_room(self) -> None:
        """Raise `LimitExceeded` if as many messages wait to be sent as may."""
        self._outgoing.require_room()

    def submit(self, record: MessageRecord, *, resumed: bool = False) -> None:
        """Send a message of a record that has been accepted, or `resumed` from an earlier life."""
        assert record.request_id is not None
        topic = record.pubsub_topic
        self._outgoing.submit(
            record.request_id,
            record.message_hash,
            topic,
            confirm=self._is_stored is not None and not record.message.ephemeral,
            attempts=record.attempts,
            resumed=resumed,
        )
        self._pending[record.request_id] = record
        self._own.add(record)
        if topic not in self._needed:
            self._needed.add(topic)
            self._on_need(topic, True)
        if self._idle:
            self._idle.unpark()

    def cancel(self, request_id: RequestId) -> None:
        """Give a request up; ignored if it is unknown or finished."""
        self._follow(self._outgoing.cancel(request_id))
        self._look_at_the_time()

    def allow(self, pubsub_topics: Iterable[str]) -> None:
        """Messages may be sent on these pubsub topics, and on no others."""
        self._outgoing.allow(pubsub_topics, trio.current_time())
        self._idle.unpark_all()
        self._look_at_the_time()

    def is_own(self, message_hash: bytes) -> bool:
        """Is this a message that this node has sent lately?"""
        return message_hash in self._own

    def own(self, message_hash: bytes, peer: PeerId) -> MessageRecord | None:
        """A peer has sent, or holds, this message: if it is one of this node, it has travelled.

        That is so if the peer is not one that was given it by this node (REQ-RES-RELIABILITY, "Retry missing
        messages": to a different service node than the one used for LightPush). The record is that of before:
        it has been `received` if this is not the first time.
        """
        own = self._own.get(message_hash)
        if own is None:
            return None
        if self._outgoing.awaits(message_hash) and not self._given_to(own, peer):
            self._follow(self._outgoing.seen([message_hash]))
        record = own.record
        own.received = True
        return record

    def _given_to(self, own: OwnMessage, peer: PeerId) -> bool:
        """Was the peer given the message by this node, or is it about to be?"""
        return peer in own.through or peer in self._transport.busy_peers(own.pubsub_topic)

    def echoed(self, message_hash: bytes, peer: PeerId) -> MessageRecord | None:
        """The same for a peer that sent it back by relay, which it does only if it has it from another."""
        own = self._own.get(message_hash)
        if own is None or own.received:
            return None
        if self._outgoing.awaits(message_hash):
            self._follow(self._outgoing.seen([message_hash]))
        own.received = True
        return own.record

    def in_store(self, message_hash: bytes, peer: PeerId) -> None:
        """A store holds this message: that is noted, and one of this node has travelled."""
        own = self._own.get(message_hash)
        if own is None or not own.stored:
            self._reports.stored(message_hash, None if own is None else own.record, peer)
            self._recorder.put(Change(message_hash, self._clock(), stored=True))
        if own is not None:
            own.stored = True
        if self._outgoing.awaits(message_hash):
            self._follow(self._outgoing.seen([message_hash]))

    async def tried(self) -> None:
        """Returns when every message was tried to send at least once."""
        while self._outgoing.untried:
            await self._all_tried.park()

    # Live

    def start(self, nursery: trio.Nursery) -> None:
        """Begin."""
        for _ in range(self._transport.concurrency):
            nursery.start_soon(self._work)
        nursery.start_soon(self._watch_the_time, nursery)

    async def _work(self) -> None:
        while True:
            attempt = self._outgoing.take(trio.current_time())
            if attempt is None:
                await self._idle.park()
            else:
                await self._attempt(attempt)

    async def _attempt(self, attempt: Attempt) -> None:
        record = self._pending[attempt.request_id]
        own = self._own.get(record.message_hash)
        given_to = () if own is None or attempt.number == 1 else own.through
        try:
            handover = await self._transport.send(record, resend=attempt.resend, given_to=given_to)
        except Exception as error:
            logger.exception("sending failed: request=%s", attempt.request_id)
            handover = Handover(Verdict.FAILED, f"{type(error).__name__}: {error}")
        if own is not None and handover.through:
            own.through |= frozenset(handover.through)
        self._reports.attempted(record, attempt.number, handover)
        steps = self._outgoing.settled(
            attempt.request_id,
            handover.verdict,
            trio.current_time(),
            handover.error,
            storable=self._is_storable(record),
        )
        self._follow(steps)
        if handover.verdict is Verdict.TAKEN and not record.propagated:
            self._on_left(record)
        self._look_at_the_time()

    def _is_storable(self, record: MessageRecord) -> bool:
        """Would a store keep it that gets it now? Not if it is too old, having waited for long, say."""
        now_ns = self._clock()
        return not any(why_ineligible(record.message, at) for at in (now_ns, now_ns + _UNDERWAY_NS))

    async def _watch_the_time(self, nursery: trio.Nursery) -> None:
        outgoing = self._outgoing
        while True:
            self._sooner = trio.Event()
            now = trio.current_time()
            self._follow(outgoing.tick(now))
            for topic, hashes in outgoing.checks(now).items():
                self._to_check.setdefault(topic, []).extend(hashes)
                if topic not in self._checking:
                    self._checking.add(topic)
                    nursery.start_soon(self._check, topic)
            self._idle.unpark_all()
            self._due = outgoing.next_tick(now)
            with trio.move_on_at(self._due):
                await self._sooner.wait()

    def _look_at_the_time(self) -> None:
        """See that nothing is done too late; called for each message, so it wakes nobody without need."""
        if self._outgoing.next_tick(trio.current_time()) < self._due:
            self._sooner.set()
        if not self._outgoing.untried and self._all_tried:
            self._all_tried.unpark_all()

    async def _check(self, pubsub_topic: str) -> None:
        """Ask stores for all that is due, and for what becomes so meanwhile."""
        try:
            while self._to_check.get(pubsub_topic):
                hashes = self._to_check.pop(pubsub_topic)
                await self._look_for(pubsub_topic, list(dict.fromkeys(hashes)))
        finally:
            self._checking.discard(pubsub_topic)

    async def _look_for(self, pubsub_topic: str, hashes: list[bytes]) -> None:
        assert self._is_stored is not None
        presence = Presence()
        try:
            presence = await self._is_stored(pubsub_topic, hashes)
        except Exception:
            logger.exception("store check failed: topic=%s", pubsub_topic)
        for message_hash, peer in presence.stored.items():
            self.in_store(message_hash, peer)
        self._outgoing.checked(hashes, presence.lacking, trio.current_time())
        self._look_at_the_time()

    def _follow(self, steps: Iterable[Progress]) -> None:
        """What follows from steps of requests: records, and reports."""
        for progress in steps:
            record = self._pending[progress.request_id]
            self._own.follow(record, progress)
            self._reports.progressed(record, progress)
            now_ns = self._clock()
            match progress.step:
                case Step.SENT:
                    self._finished(record)
                    change = Change(
                        record.message_hash,
                        now_ns,
                        request_id=record.request_id,
                        sending=False,
                        sent=True,
                        propagated=True,
                        attempts=progress.attempts,
                    )
                case Step.FAILED | Step.CANCELLED:
                    self._finished(record)
                    change = Change(
                        record.message_hash,
                        now_ns,
                        request_id=record.request_id,
                        sending=False,
                        propagated=progress.propagated,
                        error=progress.error,
                        attempts=progress.attempts,
                    )
                case Step.PROPAGATED | Step.RETRYING | Step.RESENDING:
                    if progress.propagated and not record.propagated:
                        self._pending[progress.request_id] = replace(record, propagated=True)
                    change = Change(
                        record.message_hash,
                        now_ns,
                        request_id=record.request_id,
                        propagated=progress.propagated,
                        attempts=progress.attempts,
                    )
            self._recorder.put(change)

    def _finished(self, record: MessageRecord) -> None:
        assert record.request_id is not None
        del self._pending[record.request_id]
        self._own.finished(record.message_hash)
        if not self._outgoing.untried and self._all_tried:
            self._all_tried.unpark_all()
        topic = record.pubsub_topic
        if topic in self._needed and topic not in self._outgoing.pubsub_topics:
            self._needed.remove(topic)
            self._on_need(topic, False)
