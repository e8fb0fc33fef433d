"""A reliable channel (RELIABLE-CHANNEL-API): the machine, with a clock, a store and a node around it."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import trio

from pywaku.channels.conversation import Conversation, Outbound, Step, require_payload
from pywaku.channels.dispatch import Dispatch
from pywaku.channels.eventlog import EventListener, EventLog, EventStream
from pywaku.channels.events import ChannelEvent, EphemeralMessageDropped, EventName, MessageId
from pywaku.channels.hub import ChannelHub
from pywaku.channels.intake import Intake
from pywaku.channels.journaling import journal_entry
from pywaku.channels.options import ReliableChannelOptions
from pywaku.channels.ratequeue import Kind
from pywaku.channels.saving import Saver
from pywaku.encryption import Encryption
from pywaku.errors import InvalidInput, NodeClosed
from pywaku.messaging.event import Event
from pywaku.messaging.health import HealthStatus
from pywaku.messaging.record import PlainCodec
from pywaku.sds import Participant

logger = logging.getLogger(__name__)

Input = Callable[[int], object]
"""Something that the machine is told, given the time."""

_BATCH: Final = 256
_MAX_INPUTS: Final = 1024
_IN_THREAD_BYTES: Final = 1 << 20
_LOOK_S: Final = 1.0
_FLUSH_S: Final = 0.05  # how long what was read waits for other rows to be deleted with
_RETRY_S: Final = 0.5
_SAVE_AT_THE_END_S: Final = 5.0
_JUMP_NS: Final = 60_000_000_000
_NOT_STARTED: Final = "not_started"


@dataclass(slots=True)
class ChannelCounters:
    """What has happened so far."""

    undecryptable: int = 0
    """Messages of the content topic that the encryption did not take."""
    not_saved: int = 0
    """Attempts to save a step that failed; each was tried again."""
    retrieved: int = 0
    """Messages that a store had, by hints or by a search."""
    queries: int = 0
    """Queries on connect."""
    searches: int = 0
    """Searches in a store for messages that hints do not lead to."""
    faults: int = 0
    """Failures in a way that nobody thought of; what they were about was passed over."""


class ReliableChannel:
    """A channel, from one participant's side. Made by `create_reliable_channel`; lives as long as its node.

    What `send` has returned is saved: it is delivered, or there is an event that says that it is not, even if
    the process ends meanwhile and another one opens the channel again.
    """

    def __init__(
        self,
        hub: ChannelHub,
        scope: str,
        conversation: Conversation,
        log: EventLog,
        codec: PlainCodec,
        encryption: Encryption | None,
        options: ReliableChannelOptions,
    ) -> None:
        self.channel_id = conversation.sds.channel_id
        self.sender_id = conversation.sds.sender_id
        self.content_topic = codec.content_topic
        self.options = options
        self.counters = ChannelCounters()
        self.conversation = conversation
        """The machine, to look at: its counters and sizes."""
        self._hub = hub
        self._scope = scope
        self._log = log
        environment = hub.node.parts.environment
        self._monotonic = environment.monotonic
        self._run_blocking = environment.run_blocking
        self._clock = environment.clock
        self._zero_ns = environment.clock() - environment.monotonic()
        self._last_ns = 0
        self._inputs: deque[Input] = deque()
        self._turn = trio.Lock()
        self._stirred = trio.Event()
        self._saver = Saver(hub.store, scope, self._not_saved)
        self._progress = trio.lowlevel.ParkingLot()
        self._swept_at = -math.inf
        self._flush_at = math.inf
        self._dispatch = Dispatch(hub, scope, conversation, codec, encryption, self)
        self._intake = Intake(hub.node, conversation, codec, encryption, self)
        self._scope_of_tasks: trio.CancelScope | None = None
        self._changing = trio.Lock()  # by start and stop
        self._held: dict[str, list[Outbound]] = {}  # by SDS id: what waits for `start`
        self._was_healthy = False
        self._closed = False
        self._ended = trio.Event()
        hub.endings[scope] = self._end_with_node

    # What the application does

    async def send(self, payload: bytes) -> MessageId:
        """Send a message to all participants; returns its id once it is saved.

        A payload that can never be sent (empty, or too large) has the events of an irrecoverable error.
        Raises `LimitExceeded` while too many messages wait for acknowledgement.
        """
        payload = require_payload(payload)
        self._require_open()
        error = None if payload else "empty payload"
        segments = None
        if error is None:
            try:
                if len(payload) < _IN_THREAD_BYTES:
                    segments = self.conversation.segments(payload)
                else:
                    segments = await self._run_blocking(lambda: self.conversation.segments(payload))
                limit, most = self.options.segmentation.segment_size_bytes, self.options.max_unacknowledged
                if segments is None and len(payload) > limit:
                    raise InvalidInput(
                        f"without segments a message has at most {limit} bytes, not {len(payload)}"
                    )
                if segments is not None and len(segments) > most:
                    raise InvalidInput(
                        f"{len(segments)} segments are more than may be unacknowledged, which is {most}"
                    )
            except InvalidInput as refused:
                error = str(refused)

        async with self._turn:
            self._require_open()
            now_ns = self.now_ns()
            message_id = self.conversation.new_id(payload, now_ns)
            if error is not None:
                self.conversation.reject(message_id, error)
            else:
                self.conversation.send(message_id, payload, segments, now_ns)
            await self._commit(now_ns)
        self._stir()
        return message_id

    async def send_ephemeral(self, payload: bytes) -> MessageId:
        """Send a message that is neither acknowledged nor kept nor sent again; dropped near the rate limit.

        It is never segmented: one that is too large has the events of an irrecoverable error. While the
        channel is not started it is dropped.
        """
        payload = require_payload(payload)
        self._require_open()
        async with self._turn:
            self._require_open()
            now_ns = self.now_ns()
            message_id = self.conversation.new_id(payload, now_ns)
            limit = self.options.segmentation.segment_size_bytes
            if not payload:
                self.conversation.reject(message_id, "empty payload")
            elif len(payload) > limit:
                text = f"an ephemeral message has at most {limit} bytes, not {len(payload)}"
                self.conversation.reject(message_id, text)
            elif not self.is_started:
                self.conversation.note(EphemeralMessageDropped(message_id, _NOT_STARTED))
            else:
                self.conversation.send_ephemeral(message_id, payload, now_ns)
            await self._commit(now_ns)
        self._stir()
        return message_id

    def events(self, *names: EventName) -> EventStream:
        """The events of these names, or all, as an async iterator; first those that nobody has read yet.

        Those of received messages, and the final ones of sent messages, are kept until they were read: an
        event counts as read when the next one is asked for. After a crash the last one may come again, and
        those that were read within a twentieth of a second before it.
        """
        self._require_open()
        return self._log.stream(names)

    def add_event_listener(self, name: EventName, listener: EventListener) -> None:
        """Call `listener` with each event of a name. What it raises is logged; an unknown name is ignored."""
        self._log.listen(name, listener)

    def remove_event_listener(self, name: EventName, listener: EventListener) -> None:
        """Call it no more. Ignored where it is not there."""
        self._log.ignore(name, listener)

    def participants(self) -> tuple[Participant, ...]:
        """Who else was heard, and up to which message each has acknowledged."""
        return self.conversation.participants()

    @property
    def unacknowledged(self) -> tuple[MessageId, ...]:
        """The messages sent that have no final event yet, oldest first."""
        return self.conversation.tracker.unfinished

    @property
    def is_started(self) -> bool:
        """Does it send and receive?"""
        return self._scope_of_tasks is not None

    async def start(self) -> None:
        """Subscribe, receive, send what waits, and keep in step with others. Nothing, if it is started."""
        async with self._changing:
            self._require_open()
            if self._scope_of_tasks is None:
                await self._hub.nursery.start(self._run)

    async def stop(self) -> None:
        """Neither send nor receive, until `start`. What is sent meanwhile waits."""
        async with self._changing:
            scope = self._scope_of_tasks
            if scope is not None:
                scope.cancel()
                await self._ended.wait()

    async def close(self, *, forget: bool = False) -> None:
        """Stop, and let go of everything; the channel can be created again, and goes on from there.

        With `forget` what was saved of it is removed.
        """
        if self._closed:
            return
        await self.stop()
        if self._closed:
            return
        self._end()
        try:
            if forget:
                async with self._turn:
                    await self._hub.store.forget(self._scope)
            else:
                await self._save_at_the_end()  # what was read since it was stopped
        finally:
            self._hub.scopes.discard(self._scope)

    async def _end_with_node(self) -> None:
        """The node is closed."""
        self._end()
        await self._save_at_the_end()

    def _end(self) -> None:
        """It can do nothing more, as it was closed, or its node."""
        self._closed = True
        self._log.end()
        self._hub.endings.pop(self._scope, None)

    # For its parts

    def now_ns(self) -> int:
        """The time of day by a clock that does not go back while the channel is open; never the same twice.

        It is the node's where that has gone far ahead: the machine slept, or began with a wrong time. In the
        past, all others would seem to be in the future.
        """
        zero_ns = self._clock() - self._monotonic()
        if zero_ns - self._zero_ns > _JUMP_NS:
            logger.info(
                "channel clock set: channel=%s ahead_s=%d", self.channel_id, (zero_ns - self._zero_ns) / 1e9
            )
            self._zero_ns = zero_ns
            self._inputs.appendleft(self.conversation.begin_anew)
        self._last_ns = max(self._last_ns + 1, self._zero_ns + self._monotonic())
        return self._last_ns

    def tell(self, input_: Input) -> None:
        """Tell the machine something, soon."""
        self._inputs.append(input_)
        self._stir()

    async def room(self) -> None:
        """Wait while too much waits for the machine, or for the application."""
        while len(self._inputs) >= _MAX_INPUTS or self._log.crowded:
            with trio.move_on_after(_LOOK_S):  # a stream that is closed, or dropped, says nothing
                await self._progress.park()

    def read(self) -> None:
        """The application has read an event."""
        if self._flush_at == math.inf:
            self._flush_at = trio.current_time() + _FLUSH_S
            self._stir()
        if self._progress and not self._log.crowded:
            self._progress.unpark_all()

    @property
    def healthy(self) -> bool:
        """Can the node reach anybody?"""
        return self._hub.node.health != HealthStatus.UNHEALTHY

    def dropped(self, message_id: MessageId, reason: str) -> None:
        """An ephemeral message was not sent."""
        self.tell(lambda _: self.conversation.note(EphemeralMessageDropped(message_id, reason)))

    # Live

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        """All that goes on while it is started."""
        events = self._hub.node.events
        self._ended = trio.Event()
        try:
            with trio.CancelScope() as scope:
                self._scope_of_tasks = scope
                self._was_healthy = self.healthy
                self.tell(self.conversation.begin_anew)
                events.add_event_listener("health:change", self._health_changed)
                subscription = await self._intake.subscribe()
                try:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._guard, lambda: self._intake.receive(subscription))
                        nursery.start_soon(self._guard, self._intake.retrieve)
                        nursery.start_soon(self._guard, self._intake.catch_up)
                        nursery.start_soon(self._guard, self._dispatch.run)
                        nursery.start_soon(self._guard, self._keep_going)
                        held, self._held = self._held, {}
                        for outbound in (each for same in held.values() for each in same):
                            self._dispatch.request(outbound)
                        task_status.started()
                finally:
                    subscription.unsubscribe()
        finally:
            self._scope_of_tasks = None
            events.remove_event_listener("health:change", self._health_changed)
            for outbound in self._dispatch.withdraw():
                self._hold(outbound)
            await self._save_at_the_end()
            self._ended.set()

    async def _guard(self, task: Callable[[], Awaitable[None]]) -> None:
        """What fails in a way that nobody thought of goes on, and ends nothing but its own round."""
        while True:
            try:
                await task()
            except NodeClosed:
                return
            except Exception:
                self.counters.faults += 1
                logger.exception("channel task failed, going on: channel=%s", self.channel_id)
                await trio.sleep(_RETRY_S)
            else:
                return

    def _hold(self, outbound: Outbound) -> None:
        """It is sent when the channel is started again, if it is worth it then."""
        if outbound.kind is Kind.EPHEMERAL:
            self.dropped(outbound.key or outbound.sds_id, _NOT_STARTED)
        elif outbound.kind is not Kind.SYNC:
            self._held.setdefault(outbound.sds_id, []).append(outbound)

    async def _keep_going(self) -> None:
        elapse_s = self.options.process_task_min_elapse_ms / 1000
        while True:
            self._stirred = trio.Event()
            if not self._inputs:
                with trio.move_on_at(min(self._due(), self._flush_at)):
                    await self._stirred.wait()
            started = trio.current_time()
            await self._step()
            if elapse_s and self._inputs:
                await trio.sleep_until(started + elapse_s)
            await trio.lowlevel.checkpoint()

    def _due(self) -> float:
        """When the machine has to be ticked, on trio's clock; never while nobody can be reached."""
        due_ns = self.conversation.next_tick() if self.healthy else None
        if due_ns is None:
            return math.inf
        wait_s = (due_ns - self._zero_ns - self._monotonic()) / 1e9
        due = trio.current_time() + max(0.0, wait_s)
        return max(due, self._swept_at + self.options.sweep_in_buf_interval_ms / 1000)

    async def _step(self) -> None:
        async with self._turn:
            now_ns = self.now_ns()
            for _ in range(min(len(self._inputs), _BATCH)):
                input_ = self._inputs.popleft()
                try:
                    input_(now_ns)
                except Exception:
                    self.counters.faults += 1
                    logger.exception("channel failed on an input: channel=%s", self.channel_id)
            if self._due() <= trio.current_time():
                self._swept_at = trio.current_time()
                self.conversation.tick(now_ns)
            await self._commit(now_ns)
        self._progress.unpark_all()

    async def _commit(self, now_ns: int) -> None:
        """Save what the machine has become, then tell and send what follows; for the holder of the turn."""
        step: Step = self.conversation.take(now_ns)
        rows, entries = self._log.rows(step.events)
        self._flush_at = math.inf

        def follow() -> None:
            self._journal(step.events)
            self._log.tell(entries)
            for sds_id in step.settled:
                self._held.pop(sds_id, None)
                self._dispatch.settle(sds_id)
            for outbound in step.outbound:
                self._send_out(outbound)

        await self._saver.save([*step.changes, *rows, *self._log.take_changes()], follow)

    def _not_saved(self) -> None:
        self.counters.not_saved += 1

    def _journal(self, events: list[ChannelEvent]) -> None:
        reports = self._hub.node.parts.messaging.reports
        if reports.wanted:
            for event in events:
                reports.channel(journal_entry(event, self.channel_id, self.sender_id))

    def _send_out(self, outbound: Outbound) -> None:
        if self.is_started:
            self._dispatch.request(outbound)
        else:
            self._hold(outbound)

    async def _save_at_the_end(self) -> None:
        """Save what the application has read, and what the machine was told last, if it can be done soon."""
        try:
            with trio.move_on_after(_SAVE_AT_THE_END_S, shield=True) as patience:
                while self._inputs:
                    await self._step()
                async with self._turn:
                    await self._commit(self.now_ns())
            if patience.cancelled_caught:
                logger.warning("channel not saved when it ended: channel=%s", self.channel_id)
        except NodeClosed as error:
            logger.warning("channel not saved when it ended: channel=%s %s", self.channel_id, error)
        except Exception:
            self.counters.faults += 1
            logger.exception("channel not saved when it ended: channel=%s", self.channel_id)

    def _health_changed(self, _: Event[HealthStatus]) -> None:
        healthy = self.healthy
        if not healthy:
            self._intake.outage()
        elif not self._was_healthy:
            self.tell(self.conversation.begin_anew)
        self._was_healthy = healthy
        self._stir()

    def _stir(self) -> None:
        self._stirred.set()

    def _require_open(self) -> None:
        if self._closed:
            raise NodeClosed("the channel is closed, or its node")
