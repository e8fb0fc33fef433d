"""The port of the archive: what a store node keeps, and how it is asked for (13/WAKU2-STORE).

There are two builds behind it, SQLite and PostgreSQL; one conformance suite holds both to what is written
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from pywaku.errors import InvalidInput
from pywaku.message import WakuMessage, message_hash

HASH_SIZE: Final = 32
EARLIEST_NS: Final = -(1 << 63)
LATEST_NS: Final = (1 << 63) - 1
MAX_LIMIT: Final = 1_000
"""Entries that one page can be asked to have; what a peer may ask for is up to the store protocol."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message to keep: its hash is its key, `received_ns` the time at which this node got it."""

    message_hash: bytes
    pubsub_topic: str
    message: WakuMessage
    received_ns: int

    @classmethod
    def of(cls, pubsub_topic: str, message: WakuMessage, received_ns: int) -> StoredMessage:
        """The message under the hash that it has on `pubsub_topic`."""
        return cls(message_hash(pubsub_topic, message), pubsub_topic, message, received_ns)

    @property
    def timestamp_ns(self) -> int:
        """The first half of the sort key: the sender's timestamp, 0 where it is absent."""
        return self.message.timestamp_ns or 0


@dataclass(frozen=True, slots=True)
class ArchiveQuery:
    """What to look for, and which page of it.

    Either by content (topics and times; what is not set matches everything) or by `hashes`, not both.
    `start_ns` is inclusive, `end_ns` exclusive. `cursor` is the hash of an entry, which need not match: the
    page starts after it in the direction of the query. Without `ascending` the page is the last one before
    the cursor (or the end), but its entries are in ascending order all the same.
    """

    pubsub_topic: str | None = None
    content_topics: tuple[str, ...] = ()
    start_ns: int | None = None
    end_ns: int | None = None
    hashes: tuple[bytes, ...] = ()
    cursor: bytes | None = None
    ascending: bool = True
    limit: int = 20
    include_data: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= MAX_LIMIT:
            raise InvalidInput(f"limit is 1 to {MAX_LIMIT}, not {self.limit}")
        if self.hashes and (
            self.content_topics
            or self.pubsub_topic is not None
            or self.start_ns is not None
            or self.end_ns is not None
        ):
            raise InvalidInput("a query is by hashes or by content (topics, times), not both")
        for name, time in (("start_ns", self.start_ns), ("end_ns", self.end_ns)):
            if time is not None and not EARLIEST_NS <= time <= LATEST_NS:
                raise InvalidInput(f"{name} is {EARLIEST_NS} to {LATEST_NS}, not {time}")
        for value in (*self.hashes, *(() if self.cursor is None else (self.cursor,))):
            if len(value) != HASH_SIZE:
                raise InvalidInput(f"a message hash has {HASH_SIZE} bytes, not {len(value)}")


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """An entry of a page; `pubsub_topic` and `message` are None where the query left data out."""

    message_hash: bytes
    timestamp_ns: int
    pubsub_topic: str | None = None
    message: WakuMessage | None = None


@dataclass(frozen=True, slots=True)
class ArchivePage:
    """Entries in ascending order of (timestamp, hash), whatever the direction of the query.

    With a `cursor` there are more: the same query with that cursor gives the next page. It is the hash of
    the last entry of an ascending query, and of the first of a descending one. None: that was all.
    """

    messages: tuple[ArchiveEntry, ...]
    cursor: bytes | None


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """How much is kept; what is None is unlimited. All limits apply, and the oldest messages go first."""

    max_age_s: int | None = None
    """By the timestamp of the message."""
    max_messages: int | None = None
    max_bytes: int | None = None
    """What the archive takes on disk, indexes included."""

    def __post_init__(self) -> None:
        for name, value in (
            ("max_age_s", self.max_age_s),
            ("max_messages", self.max_messages),
            ("max_bytes", self.max_bytes),
        ):
            if value is not None and value < 1:
                raise InvalidInput(f"{name} is at least 1, not {value}")

    @property
    def keeps_everything(self) -> bool:
        """Whether there is no limit at all."""
        return self.max_age_s is None and self.max_messages is None and self.max_bytes is None

    def oldest_kept_ns(self, now_ns: int) -> int | None:
        """The earliest timestamp that is young enough; None where age does not matter."""
        if self.max_age_s is None:
            return None
        return max(EARLIEST_NS, now_ns - self.max_age_s * 1_000_000_000)


@dataclass(frozen=True, slots=True)
class ArchiveStats:
    """What an archive holds."""

    messages: int
    bytes: int
    """On disk, indexes included, free space not."""
    oldest_ns: int | None
    newest_ns: int | None


@dataclass(slots=True)
class ArchiveCounters:
    """What has happened since the archive was opened; each number only grows."""

    inserted: int = 0
    duplicates: int = 0
    """Messages that were there before."""
    insert_seconds: float = 0.0
    inserts: int = 0
    """Calls of `insert`, so batches."""
    queries: int = 0
    query_seconds: float = 0.0
    removed: int = 0
    """Messages that retention took away."""
    reconnects: int = 0
    errors: dict[str, int] = field(default_factory=dict[str, int])
    """Failed calls by reason (`ArchiveError.reason`)."""

    def count_error(self, reason: str) -> None:
        """One more failed call."""
        self.errors[reason] = self.errors.get(reason, 0) + 1


class Archive(Protocol):
    """What a store node keeps. All methods raise `ArchiveError` where the back end fails.

    Any number of tasks may call; queries neither wait for inserts nor for each other beyond the size of the
    pool. A call that is cancelled may have had its effect.
    """

    @property
    def name(self) -> str:
        """Which archive this is, for people and logs: no password in it."""
        ...

    @property
    def counters(self) -> ArchiveCounters:
        """What has happened so far."""
        ...

    async def insert(self, messages: Sequence[StoredMessage]) -> int:
        """Keep the messages, all or (with an error) none; how many were not there before.

        When it returns they are safe from the end of this process. One that is there already, by hash, is
        left as it is.
        """
        ...

    async def query(self, query: ArchiveQuery) -> ArchivePage:
        """The page; `CursorNotFound` where the archive has no entry of that hash."""
        ...

    async def stats(self) -> ArchiveStats:
        """What is kept now."""
        ...

    async def retain(self, policy: RetentionPolicy, now_ns: int) -> int:
        """Remove what the policy does not keep, in short steps; how many messages went."""
        ...

    async def close(self) -> None:
        """Finish what is under way and let go of files and connections; later calls fail, save this one."""
        ...
