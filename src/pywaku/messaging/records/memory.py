"""Records in memory: for tests, and for nodes that shall leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Final

import trio

from pywaku.errors import RecordError
from pywaku.messaging.record import MessageRecord, RequestId, SubscriptionId
from pywaku.messaging.records.port import (
    MAX_FETCH_RECORDS,
    Change,
    Changed,
    RecordCounters,
    Retention,
    require_page,
    require_send,
    require_text,
)
from pywaku.messaging.records.transitions import added, changed, fits

DEFAULT_RETENTION: Final = Retention(max_records=10_000)
MAX_BYTES: Final = 64 << 20
_RECORD_BYTES: Final = 1_024
"""What a record takes beyond its payload, about."""


@dataclass(slots=True, eq=False)
class _Entry:
    """A record, and where it is listed."""

    number: int
    record: MessageRecord
    places: list[tuple[SubscriptionId, int]] = field(default_factory=list[tuple[SubscriptionId, int]])

    @property
    def last_ns(self) -> int:
        """When it changed last; clocks may have been set back meanwhile."""
        return max(self.record.created_ns, self.record.updated_ns)


class MemoryRecordStore:
    """The port on dictionaries. Beyond its bounds the oldest records go at once, save pending sends."""

    name = "memory"

    def __init__(self, retention: Retention = DEFAULT_RETENTION, max_bytes: int = MAX_BYTES) -> None:
        self.counters = RecordCounters()
        self._retention = retention
        self._max_bytes = max_bytes
        self._bytes = 0
        self._numbers = 0
        self._entries: dict[int, _Entry] = {}
        self._by_request: dict[RequestId, _Entry] = {}
        self._by_hash: dict[bytes, list[_Entry]] = {}
        self._by_topic: dict[str, dict[int, _Entry]] = {}
        self._by_subscription: dict[SubscriptionId, dict[int, _Entry]] = {}
        self._pending: dict[int, _Entry] = {}
        self._fetched: dict[tuple[str, str], int] = {}
        self._closed = False

    def accept(self, record: MessageRecord) -> None:
        """Nothing outlives the process here; only what can be accepted is checked."""
        self._require_open()
        require_send(record)
        self.counters.accepted += 1

    async def apply(self, changes: Sequence[Change]) -> list[Changed]:
        """Make the changes."""
        await self._turn()
        told: list[Changed] = []
        for change in changes:
            self._change(change, told)
        self.counters.applied += len(changes)
        self.counters.batches += 1
        self._shrink()
        return told

    async def by_request_id(self, request_id: RequestId) -> MessageRecord | None:
        """The record of a send."""
        await self._turn()
        entry = self._by_request.get(request_id)
        return None if entry is None else entry.record

    async def by_hash(self, message_hash: bytes) -> MessageRecord | None:
        """The (oldest) record of a message."""
        found = await self.all_by_hash(message_hash)
        return found[0] if found else None

    async def all_by_hash(self, message_hash: bytes) -> list[MessageRecord]:
        """Every record of a message."""
        await self._turn()
        return [entry.record for entry in self._by_hash.get(message_hash, ())]

    async def by_content_topic(
        self, content_topic: str, skip: int = 0, take: int | None = None
    ) -> list[MessageRecord]:
        """The records of a content topic."""
        require_page(skip, take)
        await self._turn()
        return _page(self._by_topic.get(content_topic, {}), skip, take)

    async def by_subscription_id(
        self, subscription_id: SubscriptionId, skip: int = 0, take: int | None = None
    ) -> list[MessageRecord]:
        """What was received under a subscription."""
        require_page(skip, take)
        await self._turn()
        return _page(self._by_subscription.get(subscription_id, {}), skip, take)

    async def missing(self, hashes: Sequence[bytes]) -> list[bytes]:
        """Those that are missing here."""
        await self._turn()
        return [
            message_hash
            for message_hash in dict.fromkeys(hashes)
            if not any(_known(entry.record) for entry in self._by_hash.get(message_hash, ()))
        ]

    async def known_since(self, since_ns: int, limit: int) -> list[bytes]:
        """The latest that came or left."""
        await self._turn()
        found = [
            entry
            for entry in self._entries.values()
            if _known(entry.record) and entry.record.created_ns >= since_ns
        ]
        found.sort(key=lambda entry: (-entry.record.created_ns, -entry.number))
        return list(islice(dict.fromkeys(entry.record.message_hash for entry in found), limit))

    async def pending(self) -> list[MessageRecord]:
        """The sends that are not finished."""
        await self._turn()
        return [entry.record for _, entry in sorted(self._pending.items())]

    async def fetched_until(self, pubsub_topic: str, content_topic: str) -> int | None:
        """Up to when messages of the topics have been fetched."""
        await self._turn()
        return self._fetched.get((pubsub_topic, content_topic))

    async def note_fetched(self, pubsub_topic: str, content_topics: Sequence[str], until_ns: int) -> None:
        """Note up to when they have been fetched."""
        require_text(pubsub_topic, *content_topics)
        await self._turn()
        for content_topic in content_topics:
            self._fetched[pubsub_topic, content_topic] = until_ns
        excess = len(self._fetched) - MAX_FETCH_RECORDS
        if excess > 0:
            for topics in nsmallest(excess, self._fetched, key=lambda topics: self._fetched[topics]):
                del self._fetched[topics]

    async def prune(self, now_ns: int) -> int:
        """Remove what retention does not keep."""
        await self._turn()
        before = self.counters.pruned
        oldest = self._retention.oldest_kept_ns(now_ns)
        if oldest is not None:
            for entry in [entry for entry in self._finished() if entry.last_ns < oldest]:
                self._remove(entry)
        self._shrink()
        return self.counters.pruned - before

    async def close(self) -> None:
        """Later calls fail; everything is gone."""
        self._closed = True
        await trio.lowlevel.checkpoint()

    def _change(self, change: Change, told: list[Changed]) -> None:
        fitting = [
            entry for entry in self._by_hash.get(change.message_hash, ()) if fits(entry.record, change)
        ]
        for entry in fitting:
            before = entry.record
            after = changed(before, change)
            if after is not before:
                self._put(entry, after)
                self.counters.changed += 1
                told.append(Changed(before, after))
        if not fitting:
            if change.record is None:
                self.counters.unmatched += 1
                return
            fitting = [self._add(added(change.record, change))]
            told.append(Changed(None, fitting[0].record))
        for entry in fitting:
            for subscription_id in dict.fromkeys(change.subscription_ids):
                if all(subscription_id != known for known, _ in entry.places):
                    self._list(entry, subscription_id)

    def _add(self, record: MessageRecord) -> _Entry:
        self._numbers += 1
        entry = self._entries[self._numbers] = _Entry(self._numbers, record)
        self._by_hash.setdefault(record.message_hash, []).append(entry)
        self._by_topic.setdefault(record.content_topic, {})[entry.number] = entry
        if record.request_id is not None:
            self._by_request.setdefault(record.request_id, entry)
        self._bytes += _size(record)
        self._put(entry, record)
        self.counters.added += 1
        return entry

    def _put(self, entry: _Entry, record: MessageRecord) -> None:
        entry.record = record
        if record.sending:
            self._pending[entry.number] = entry
        else:
            self._pending.pop(entry.number, None)

    def _list(self, entry: _Entry, subscription_id: SubscriptionId) -> None:
        self._numbers += 1
        entry.places.append((subscription_id, self._numbers))
        self._by_subscription.setdefault(subscription_id, {})[self._numbers] = entry

    def _shrink(self) -> None:
        most = self._retention.max_records
        excess = 0 if most is None else len(self._entries) - most
        if excess <= 0 and self._bytes <= self._max_bytes:
            return
        gone: list[_Entry] = []
        left = self._bytes
        for entry in self._finished():
            if len(gone) >= excess and left <= self._max_bytes:
                break
            gone.append(entry)
            left -= _size(entry.record)
        for entry in gone:
            self._remove(entry)

    def _finished(self) -> Iterator[_Entry]:
        return (entry for entry in self._entries.values() if not entry.record.sending)

    def _remove(self, entry: _Entry) -> None:
        record = entry.record
        del self._entries[entry.number]
        _drop(self._by_topic, record.content_topic, entry.number)
        for subscription_id, place in entry.places:
            _drop(self._by_subscription, subscription_id, place)
        same = self._by_hash[record.message_hash]
        same.remove(entry)
        if not same:
            del self._by_hash[record.message_hash]
        if record.request_id is not None and self._by_request.get(record.request_id) is entry:
            del self._by_request[record.request_id]
        self._bytes -= _size(record)
        self.counters.pruned += 1

    async def _turn(self) -> None:
        self._require_open()
        await trio.lowlevel.checkpoint()
        self._require_open()

    def _require_open(self) -> None:
        if self._closed:
            self.counters.count_error("closed")
            raise RecordError("the records in memory are closed", reason="closed")


def _known(record: MessageRecord) -> bool:
    """Has it come from the network, or gone there?"""
    return record.received or record.propagated


def _size(record: MessageRecord) -> int:
    return len(record.message.payload) + _RECORD_BYTES


def _drop(lists: dict[str, dict[int, _Entry]], key: str, number: int) -> None:
    del lists[key][number]
    if not lists[key]:
        del lists[key]


def _page(entries: dict[int, _Entry], skip: int, take: int | None) -> list[MessageRecord]:
    start = min(skip, len(entries))
    end = len(entries) if take is None else min(start + take, len(entries))
    return [entry.record for entry in islice(entries.values(), start, end)]
