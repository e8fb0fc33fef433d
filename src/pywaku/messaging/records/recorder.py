"""The recorder: takes changes without waiting, stores them in batches, then tells what has changed."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

import trio

from pywaku.errors import NodeClosed, RecordError
from pywaku.messaging.record import MessageRecord, RequestId, SubscriptionId
from pywaku.messaging.records.port import Change, Changed, RecordStore
from pywaku.tasks import open_service_nursery

_log = logging.getLogger(__name__)

T = TypeVar("T")
OnChanged = Callable[[list[Changed]], None]
"""Told of what a batch has changed, once that is stored."""


@dataclass(frozen=True, slots=True)
class RecorderOptions:
    """How changes are gathered, and what is held while the store fails."""

    max_wait_s: float = 0.002
    """How long the first change of a batch waits for others; nobody who flushes waits for this."""
    max_batch: int = 1_000
    max_pending: int = 10_000
    """Changes that wait to be stored until the recorder is `full`; it refuses them at twice as many."""
    max_pending_bytes: int = 64 << 20
    """The same by the payloads of records to be added."""
    first_delay_s: float = 0.2
    """The pause after a first failure; it doubles with each further one."""
    max_delay_s: float = 5.0
    closing_s: float = 5.0
    """How long a recorder that is being closed goes on with what is pending."""
    prune_interval_s: float = 300.0


@dataclass(slots=True)
class RecorderCounters:
    """What has become of the changes put; each number only grows."""

    put: int = 0
    stored: int = 0
    batches: int = 0
    refused: int = 0
    """Changes that were not taken: too many were waiting, or the recorder had been closed."""
    discarded: int = 0
    """Changes that no store could take, as something in them is impossible."""
    lost: int = 0
    """Changes that could not be stored before the end."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """Failed attempts, by reason."""
    listener_failures: int = 0
    """Batches of changes that `on_changed` failed on."""


class Recorder:
    """One way into the records, in order; and one way to read them, which sees all that was put before."""

    def __init__(
        self, store: RecordStore, on_changed: OnChanged, options: RecorderOptions, clock: Callable[[], int]
    ) -> None:
        self.counters = RecorderCounters()
        self._store = store
        self._on_changed = on_changed
        self._options = options
        self._clock = clock
        self._queue: deque[Change] = deque()
        self._bytes = 0
        self._done = 0
        """Changes that are not waiting any more; those put are these and the queue."""
        self._arrived = trio.Event()
        self._enough = trio.Event()
        self._progress = trio.lowlevel.ParkingLot()
        self._failures = 0
        self._closed = False
        self._ended = False

    @property
    def store(self) -> RecordStore:
        """Where the records are kept. What is read there may lack what still waits here."""
        return self._store

    @property
    def waiting(self) -> int:
        """Changes that are not stored yet."""
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether who has something to record about messages from the network should wait for `room`."""
        return len(self._queue) >= self._options.max_pending or self._bytes >= self._options.max_pending_bytes

    @property
    def failing(self) -> bool:
        """Whether the store failed the last time."""
        return self._failures > 0

    def accept(self, record: MessageRecord) -> None:
        """Make sure of a send: it outlives the process from now on, and is added to the records soon.

        Raises `RecordError` where it could not be made sure of; then it is not added either. How many sends
        may be pending is up to the caller.
        """
        if self._closed:
            raise NodeClosed("the recorder has been closed")
        self._store.accept(record)
        self._take(Change.adding(record))

    def put(self, change: Change) -> bool:
        """Have a change stored soon, after all that was put before; whether it was taken.

        A change to a send is always taken, as the number of sends is bounded by the caller. Others are
        refused at twice what makes the recorder `full`: what has been received already may still come in.
        """
        if self._closed or (change.request_id is None and self._overflows()):
            self.counters.refused += 1
            return False
        self._take(change)
        return True

    async def room(self) -> None:
        """Wait while the recorder is `full`; no checkpoint where it is not."""
        while self.full and not self._closed:
            await self._progress.park()

    async def flush(self) -> None:
        """Wait until all that was put so far is stored, and was told; for as long as that takes."""
        target = self._target()
        while self._done < target:
            if self._ended:
                raise NodeClosed("the recorder has been closed before everything was stored")
            self._enough.set()
            await self._progress.park()

    async def by_request_id(self, request_id: RequestId) -> MessageRecord | None:
        """The record of a send (getByRequestId)."""
        return await self._read(lambda: self._store.by_request_id(request_id))

    async def by_hash(self, message_hash: bytes) -> MessageRecord | None:
        """The record of a message (getByHash), the oldest where it was sent several times."""
        return await self._read(lambda: self._store.by_hash(message_hash))

    async def all_by_hash(self, message_hash: bytes) -> list[MessageRecord]:
        """Every record of a message."""
        return await self._read(lambda: self._store.all_by_hash(message_hash))

    async def by_content_topic(
        self, content_topic: str, skip: int = 0, take: int | None = None
    ) -> list[MessageRecord]:
        """The records of a content topic (getByContentTopic)."""
        return await self._read(lambda: self._store.by_content_topic(content_topic, skip, take))

    async def by_subscription_id(
        self, subscription_id: SubscriptionId, skip: int = 0, take: int | None = None
    ) -> list[MessageRecord]:
        """What was received under a subscription (getBySubscriptionId)."""
        return await self._read(lambda: self._store.by_subscription_id(subscription_id, skip, take))

    async def missing(self, hashes: Sequence[bytes]) -> list[bytes]:
        """Those of the messages that are missing here: neither received nor given to a peer."""
        return await self._read(lambda: self._store.missing(hashes))

    async def known_since(self, since_ns: int, limit: int) -> list[bytes]:
        """Messages received or given to a peer, of records made since then: newest first."""
        return await self._read(lambda: self._store.known_since(since_ns, limit))

    async def pending(self) -> list[MessageRecord]:
        """The sends that are not finished, oldest first."""
        return await self._read(self._store.pending)

    async def fetched_until(self, pubsub_topic: str, content_topic: str) -> int | None:
        """Up to when messages of the topics have been fetched (RELIABILITY-RELAY, FetchRecord)."""
        return await self._store.fetched_until(pubsub_topic, content_topic)

    async def note_fetched(self, pubsub_topic: str, content_topics: Sequence[str], until_ns: int) -> None:
        """Note up to when messages have been fetched, once all that was put before is stored."""
        await self.flush()
        await self._store.note_fetched(pubsub_topic, content_topics, until_ns)

    async def run(self) -> None:
        """Store what comes, for ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._prune)
            while True:
                await self._arrived.wait()
                if len(self._queue) < self._options.max_batch:
                    with trio.move_on_after(self._options.max_wait_s):
                        await self._enough.wait()
                await self._drain()
                self._arrived = trio.Event()
                self._enough = trio.Event()

    async def close(self) -> None:
        """Store what is pending, for as long as the options say; nothing more is taken."""
        self._closed = True
        with trio.CancelScope(shield=True), trio.move_on_after(self._options.closing_s):
            await self._drain()
        if self._queue:
            self.counters.lost += len(self._queue)
            _log.warning("recorder closed store=%s lost=%d", self._store.name, len(self._queue))
        self._ended = True
        self._progress.unpark_all()

    def _take(self, change: Change) -> None:
        self._queue.append(change)
        self.counters.put += 1
        if change.record is not None:
            self._bytes += len(change.record.message.payload)
        self._arrived.set()
        if len(self._queue) >= self._options.max_batch:
            self._enough.set()

    def _target(self) -> int:
        return self._done + len(self._queue)

    def _overflows(self) -> bool:
        options = self._options
        return len(self._queue) >= 2 * options.max_pending or self._bytes >= 2 * options.max_pending_bytes

    async def _read(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the store once it has what was put before; one that fails to write still answers."""
        target = self._target()
        while self._done < target and not self._failures and not self._ended:
            self._enough.set()
            await self._progress.park()
        return await ask()

    async def _drain(self) -> None:
        """Store all that waits, however often the store fails meanwhile."""
        delay = self._options.first_delay_s
        while self._queue:
            batch = list(islice(self._queue, self._options.max_batch))
            try:
                told = await self._apply(batch)
            except RecordError as error:
                self._note_failure(error)
                await trio.sleep(delay)
                delay = min(2 * delay, self._options.max_delay_s)
                continue
            except Exception:
                told = await self._salvage(batch)
                if told is None:
                    continue
            delay = self._options.first_delay_s
            self._note_success(batch)
            self._tell(told)
            self._progress.unpark_all()

    async def _apply(self, changes: list[Change]) -> list[Changed]:
        told: list[Changed] = []
        # What is stored is told: no cancellation may come in between.
        with trio.CancelScope(shield=True):
            told += await self._store.apply(changes)
        return told

    async def _salvage(self, batch: list[Change]) -> list[Changed] | None:
        """One by one: a change that no store can take must not keep the others from being stored.

        None where the store fails meanwhile; then the batch is tried again, which changes nothing twice.
        """
        told: list[Changed] = []
        for change in batch:
            try:
                told += await self._apply([change])
            except RecordError as error:
                self._tell(told)
                self._note_failure(error)
                await trio.sleep(self._options.first_delay_s)
                return None
            except Exception:
                self.counters.discarded += 1
                _log.exception("change discarded message=%s", change.message_hash.hex())
        return told

    def _note_failure(self, error: RecordError) -> None:
        failures = self.counters.failures
        failures[error.reason] = failures.get(error.reason, 0) + 1
        self._failures += 1
        if self._failures == 1:
            _log.warning("records cannot be stored, trying again: waiting=%d error=%s", self.waiting, error)
            self._progress.unpark_all()  # who reads does not wait for it

    def _note_success(self, batch: list[Change]) -> None:
        if self._failures:
            _log.info("records are stored again: store=%s failures=%d", self._store.name, self._failures)
            self._failures = 0
        for change in batch:
            if change.record is not None:
                self._bytes -= len(change.record.message.payload)
            self._queue.popleft()
        self._done += len(batch)
        self.counters.stored += len(batch)
        self.counters.batches += 1

    def _tell(self, told: list[Changed]) -> None:
        if not told:
            return
        try:
            self._on_changed(told)
        except Exception:
            self.counters.listener_failures += 1
            _log.exception("a listener to changes of records failed")

    async def _prune(self) -> None:
        failing = False
        while True:
            try:
                removed = await self._store.prune(self._clock())
                if removed:
                    _log.info("records pruned store=%s removed=%d", self._store.name, removed)
                failing = False
            except RecordError as error:
                if not failing:
                    _log.warning("records cannot be pruned: %s", error)
                failing = True
            await trio.sleep(self._options.prune_interval_s)


def _wall_clock() -> int:
    return time.time_ns()


@asynccontextmanager
async def open_recorder(
    store: RecordStore,
    on_changed: OnChanged,
    options: RecorderOptions | None = None,
    *,
    clock: Callable[[], int] = _wall_clock,
) -> AsyncGenerator[Recorder]:
    """A recorder at work; at the end of the block it stores what is pending. The store stays open.

    `on_changed` is called in the order of the changes, after they are stored. `clock` gives the time of day
    in nanoseconds, for retention.
    """
    recorder = Recorder(store, on_changed, options or RecorderOptions(), clock)
    try:
        async with open_service_nursery() as nursery:
            nursery.start_soon(recorder.run)
            yield recorder
    finally:
        await recorder.close()
