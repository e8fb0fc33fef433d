"""All that a channel knows, and the steps that more than one procedure takes."""

from __future__ import annotations

import heapq
import random
from collections.abc import Collection, Iterable, Mapping

from pywaku.sds.bloom import BloomShape, RollingBloom
from pywaku.sds.bodies import Bodies, RepairCache
from pywaku.sds.changes import Changes, Keeper, Table
from pywaku.sds.clock import Clock
from pywaku.sds.heads import Heads
from pywaku.sds.incoming import IncomingBuffer, Waiting
from pywaku.sds.log import HintProvider, Log, LogEntry
from pywaku.sds.missing import LostMessages, MissingMessages
from pywaku.sds.options import MAX_HEADS, SdsOptions
from pywaku.sds.outgoing import OutgoingBuffer
from pywaku.sds.participants import Participants
from pywaku.sds.repair_times import is_in_response_group
from pywaku.sds.responses import RepairResponses
from pywaku.sds.sync import SyncSchedule
from pywaku.sds.timers import Timers
from pywaku.sds.types import Counters, Delivered, LossReason, MessagesLost, SdsEvent, Transmission
from pywaku.wire.sds import EntryMemo, HistoryEntry, SdsMessage, decode_sds


class ChannelState:
    """The tables of a channel. What happens depends on them, the arguments and `rng`, and on nothing else."""

    def __init__(
        self,
        channel_id: str,
        sender_id: str,
        options: SdsOptions,
        rng: random.Random,
        now_ms: int,
        *,
        hints: HintProvider | None,
        track_changes: bool,
    ) -> None:
        self.channel_id = channel_id
        self.sender_id = sender_id
        self.options = options
        self.rng = rng
        self.hints = hints
        self.counters = Counters()
        self.events: list[SdsEvent] = []
        self.transmissions: list[Transmission] = []
        self.memo = EntryMemo()
        self.timers = Timers()
        self.changes = Changes(enabled=track_changes)
        touching = self.changes.touching
        repair = options.repair
        self.shape = BloomShape(options.bloom_filter_capacity, options.bloom_filter_error_rate)
        self.clock = Clock(now_ms, touching(Table.CLOCK))
        self.log = Log(options.max_log, sender_id, touching(Table.LOG))
        self.heads = Heads(MAX_HEADS, self.clock, touching(Table.HEADS))
        self.bloom = RollingBloom(self.shape, touching(Table.BLOOM))
        self.bodies = Bodies(touching(Table.BODY))
        self.outgoing = OutgoingBuffer(
            options, self.shape, self.bodies, self.timers, touching(Table.OUTGOING)
        )
        self.incoming = IncomingBuffer(
            options, self.bodies, self.timers, self.clock, touching(Table.INCOMING)
        )
        self.missing = MissingMessages(options, sender_id, self.timers, self.clock, touching(Table.MISSING))
        self.lost = LostMessages(options.max_lost, self.clock, touching(Table.LOST))
        self.responses = RepairResponses(repair, self.timers, touching(Table.RESPONSE))
        self.cache = RepairCache(
            0 if repair is None else repair.max_cached,
            0 if repair is None else repair.max_cached_bytes,
            self.bodies,
            self.clock,
            touching(Table.CACHE),
        )
        self.participants = Participants(options.max_participants, self.clock, touching(Table.PARTICIPANT))
        self.sync = SyncSchedule(options.sync_min_interval_ms, rng, self.timers, touching(Table.SYNC))

    @property
    def keepers(self) -> Mapping[Table, Keeper]:
        """The tables by name, in the order in which they are loaded: bodies before who holds them."""
        return {
            Table.CLOCK: self.clock,
            Table.LOG: self.log,
            Table.HEADS: self.heads,
            Table.BLOOM: self.bloom,
            Table.BODY: self.bodies,
            Table.OUTGOING: self.outgoing,
            Table.INCOMING: self.incoming,
            Table.MISSING: self.missing,
            Table.LOST: self.lost,
            Table.RESPONSE: self.responses,
            Table.CACHE: self.cache,
            Table.PARTICIPANT: self.participants,
            Table.SYNC: self.sync,
        }

    def knows(self, message_id: str) -> bool:
        """Whether a message was received or sent, as far back as the log goes."""
        return message_id in self.log or message_id in self.incoming

    def restart_sync(self, factor: float, now_ms: int) -> None:
        """Draw the time of the next sync message anew."""
        self.sync.restart(factor, now_ms, repairs=self.missing.has_eligible(now_ms))

    def keep_for_repair(self, message_id: str, sender_id: str, data: bytes) -> None:
        """Cache a message of the log, if it could be on us to respond to requests for it."""
        repair = self.options.repair
        if repair is not None and is_in_response_group(self.sender_id, sender_id, message_id, repair):
            self.cache.put(message_id, data)

    def repair_body(self, message_id: str) -> bytes | None:
        """A message of the log as it was on the wire, if it is still there to send again."""
        if message_id in self.outgoing:
            return self.bodies[message_id]
        return self.cache.get(message_id)

    def enter_log(self, entry: LogEntry, history: Collection[str]) -> None:
        """Put a message with this causal history into the log; what falls out of it has no further use."""
        evicted = self.log.insert(entry)
        self.heads.enter(entry.message_id, history)
        if evicted is not None:
            self.heads.discard(evicted.message_id)
            self.cache.drop(evicted.message_id)

    def deliver(self, message: SdsMessage, history: Collection[str], waited: Waiting, data: bytes) -> None:
        """Deliver a message (SDS, Deliver Message), and all that waited for nothing else."""
        self._deliver_one(message, history, waited, data)
        self.deliver_ready(self.incoming.met(message.message_id))

    def deliver_ready(self, ready: Iterable[Waiting]) -> None:
        """Deliver buffered messages and all that waited for nothing else, in the order of the log."""
        heap = [(waiting.key, waiting) for waiting in ready]
        heapq.heapify(heap)
        while heap:
            _, waiting = heapq.heappop(heap)
            data = self.incoming.remove(waiting)
            message = decode_sds(data, self.memo)
            self._deliver_one(message, message.history_ids, waiting, data)
            for follower in self.incoming.met(waiting.message_id):
                heapq.heappush(heap, (follower.key, follower))

    def _deliver_one(
        self, message: SdsMessage, history: Collection[str], waited: Waiting, data: bytes
    ) -> None:
        message_id = message.message_id
        self.clock.observe(waited.lamport)
        late = self.lost.discard(message_id)
        self.keep_for_repair(message_id, message.sender_id, data)
        entry = LogEntry(message_id, waited.lamport, message.sender_id, waited.hint)
        self.enter_log(entry, history)
        self.events.append(
            Delivered(
                message_id,
                message.sender_id,
                message.content or b"",
                waited.lamport,
                waited.hint,
                tuple(waited.missed),
                late,
            )
        )
        self.counters.delivered += 1
        if late:
            self.counters.delivered_late += 1

    def lose(self, message_ids: Iterable[str], reason: LossReason) -> None:
        """Give up missing messages: say so, and deliver what waited for nothing else."""
        entries: list[HistoryEntry] = []
        for message_id in message_ids:
            entry = self.missing.remove(message_id)
            if entry is not None:
                self.lost.add(message_id)
                entries.append(entry)
        if not entries:
            return
        self.counters.lost += len(entries)
        self.events.append(MessagesLost(tuple(entries), reason))
        ready: list[Waiting] = []
        for entry in entries:
            ready += self.incoming.met(entry.message_id, entry)
        self.deliver_ready(ready)

    def release(self, waiting: Waiting, reason: LossReason) -> None:
        """Deliver a message before what it depends on. What nobody else waits for is given up."""
        alone = [
            message_id
            for message_id in waiting.unmet
            if message_id in self.missing and self.incoming.needed_only_by(message_id, waiting)
        ]
        self.lose(alone, reason)
        if self.incoming.get(waiting.message_id) is None:
            return  # there was nothing else that it waited for
        for message_id in waiting.unmet:
            waiting.missed.append(self._entry_of(message_id))
        self.deliver_ready([waiting])

    def _entry_of(self, message_id: str) -> HistoryEntry:
        """What is known of a message that was not delivered."""
        missing = self.missing.get(message_id)
        if missing is not None:
            return missing
        received = self.incoming.get(message_id)
        if received is None:
            return HistoryEntry(message_id)
        return HistoryEntry(message_id, received.hint, received.sender_id)
