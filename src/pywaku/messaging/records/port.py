"""The port of the records: what is known of messages, and how that changes (MESSAGING-API, Message Storage).

There are two builds behind it, SQLite and memory; one conformance suite holds both to what is written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Protocol

from pywaku.errors import InvalidInput
from pywaku.messaging.record import MessageRecord, RequestId, SubscriptionId

HASH_SIZE: Final = 32
MAX_ERROR: Final = 1_000
"""Characters of an error that are kept."""
MAX_ID: Final = 128
"""Characters that the id of a request or subscription may have; a GUID has 36."""
MAX_ATTEMPTS: Final = (1 << 31) - 1
_EARLIEST_NS: Final = -(1 << 63)
_LATEST_NS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Change:
    """One change to what is known of a message. What is None says nothing about it.

    With a `request_id` it concerns the record of that request, else every record of the hash. Where there is
    none, `record` is added (if it is given), and the change is made to that. Only records of requests can be
    `sending`, `sent` or `propagated`, and count attempts: for others those are left out.
    """

    message_hash: bytes
    at_ns: int
    record: MessageRecord | None = None
    request_id: RequestId | None = None
    _: KW_ONLY
    sending: bool | None = None
    sent: bool | None = None
    propagated: bool | None = None
    stored: bool | None = None
    received: bool | None = None
    error: str | None = None
    clear_error: bool = False
    """Forget the error; one that is given along with this takes its place."""
    attempts: int | None = None
    subscription_ids: tuple[SubscriptionId, ...] = ()
    """Under which subscriptions it was received: it is listed under each, once."""

    def __post_init__(self) -> None:
        if len(self.message_hash) != HASH_SIZE:
            raise InvalidInput(f"a message hash has {HASH_SIZE} bytes, not {len(self.message_hash)}")
        if not _EARLIEST_NS <= self.at_ns <= _LATEST_NS:
            raise InvalidInput(f"at_ns is {_EARLIEST_NS} to {_LATEST_NS}, not {self.at_ns}")
        if self.attempts is not None and not 0 <= self.attempts <= MAX_ATTEMPTS:
            raise InvalidInput(f"attempts is 0 to {MAX_ATTEMPTS}, not {self.attempts}")
        record = self.record
        if record is not None:
            if record.request_id != self.request_id or record.message_hash != self.message_hash:
                raise InvalidInput("a record to be added has the hash and request id of its change")
            _require_record(record)
        for subscription_id in self.subscription_ids:
            if not (subscription_id.isascii() and 0 < len(subscription_id) <= MAX_ID):
                raise InvalidInput(f"a subscription id is a GUID, not {subscription_id!r}")

    @classmethod
    def adding(cls, record: MessageRecord) -> Change:
        """The change that adds a record, and leaves one that is there already as it is."""
        return cls(record.message_hash, record.created_ns, record, record.request_id)


@dataclass(frozen=True, slots=True)
class Changed:
    """A record that was added (`before` is None) or changed."""

    before: MessageRecord | None
    after: MessageRecord


@dataclass(frozen=True, slots=True)
class Retention:
    """How long records are kept; what is None is unlimited. Sends that are not finished are always kept."""

    max_age_s: int | None = 7 * 86_400
    """Since its last change."""
    max_records: int | None = 200_000
    """Beyond it the oldest go first."""

    def __post_init__(self) -> None:
        for name, value in (("max_age_s", self.max_age_s), ("max_records", self.max_records)):
            if value is not None and value < 1:
                raise InvalidInput(f"{name} is at least 1, not {value}")

    def oldest_kept_ns(self, now_ns: int) -> int | None:
        """What last changed before this time is too old; None where age does not matter."""
        if self.max_age_s is None:
            return None
        return max(_EARLIEST_NS, now_ns - self.max_age_s * 1_000_000_000)


@dataclass(slots=True)
class RecordCounters:
    """What has happened since the store was opened; each number only grows."""

    accepted: int = 0
    applied: int = 0
    """Changes that are stored, whether or not they changed anything."""
    batches: int = 0
    added: int = 0
    changed: int = 0
    """Records that a change made different, each time."""
    unmatched: int = 0
    """Changes without a record to change or to add."""
    pruned: int = 0
    """Records that retention took away."""
    replayed: int = 0
    """Accepted sends that were found when the store was opened, and not in it yet."""
    looked_up: int = 0
    """Messages that were not among the recent ones when one of their changes came."""
    errors: dict[str, int] = field(default_factory=dict[str, int])
    """Failed calls by reason (`RecordError.reason`)."""

    def count_error(self, reason: str) -> None:
        """One more failed call."""
        self.errors[reason] = self.errors.get(reason, 0) + 1


class RecordStore(Protocol):
    """Where records are kept. All methods raise `RecordError` where the back end fails.

    Any number of tasks may call. Lists are in order of arrival, oldest first: what is added later comes at
    the end, so that pages hold still. A call that is cancelled may have had its effect.
    """

    @property
    def name(self) -> str:
        """Which store this is, for people and logs."""
        ...

    @property
    def counters(self) -> RecordCounters:
        """What has happened so far."""
        ...

    def accept(self, record: MessageRecord) -> None:
        """Make sure of a send at once: when this returns it outlives the process, however that ends.

        It takes microseconds, and no checkpoint. Readers see the record once `apply` has added it
        (`Change.adding`), or the next time that the store is opened.
        """
        ...

    async def apply(self, changes: Sequence[Change]) -> list[Changed]:
        """Make the changes in order, all of them or (with an error) none; what became different by them.

        When it returns they are safe from the end of this process.
        """
        ...

    async def by_request_id(self, request_id: RequestId) -> MessageRecord | None:
        """The record of a send (getByRequestId)."""
        ...

    async def by_hash(self, message_hash: bytes) -> MessageRecord | None:
        """The record of a message (getByHash), the oldest where it was sent several times."""
        ...

    async def all_by_hash(self, message_hash: bytes) -> list[MessageRecord]:
        """Every record of a message: one for each time that it was sent, or one that was only received."""
        ...

    async def by_content_topic(
        self, content_topic: str, skip: int = 0, take: int | None = None
    ) -> list[MessageRecord]:
        """The records of a content topic (getByContentTopic)."""
        ...

    async def by_subscription_id(
        self, subscription_id: SubscriptionId, skip: int = 0, take: int | None = None
    ) -> list[MessageRecord]:
        """What was received under a subscription (getBySubscriptionId), in that order."""
        ...

    async def missing(self, hashes: Sequence[bytes]) -> list[bytes]:
        """Those of the messages that are missing here, each once: neither received nor given to a peer."""
        ...

    async def known_since(self, since_ns: int, limit: int) -> list[bytes]:
        """Messages received or given to a peer, of records made since `since_ns`: newest first, each once."""
        ...

    async def pending(self) -> list[MessageRecord]:
        """The sends that are not finished (`sending`), oldest first."""
        ...

    async def fetched_until(self, pubsub_topic: str, content_topic: str) -> int | None:
        """Up to when messages of the topics have been fetched (RELIABILITY-RELAY, FetchRecord)."""
        ...

    async def note_fetched(self, pubsub_topic: str, content_topics: Sequence[str], until_ns: int) -> None:
        """Messages of the topics have been fetched up to this time. Of 10,000 pairs the latest are kept."""
        ...

    async def prune(self, now_ns: int) -> int:
        """Remove what retention does not keep, in short steps; how many records went."""
        ...

    async def close(self) -> None:
        """Finish what is under way and let go of the files; later calls fail, save this one."""
        ...


MAX_FETCH_RECORDS: Final = 10_000
"""Pairs of topics for which it is known up to when they have been fetched."""


def require_page(skip: int, take: int | None) -> None:
    """Refuse a page that cannot be: neither number may be negative."""
    for name, value in (("skip", skip), ("take", 0 if take is None else take)):
        if not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"{name} is an int, not {value!r}")
    if skip < 0:
        raise InvalidInput(f"skip is not negative: {skip}")
    if take is not None and take < 0:
        raise InvalidInput(f"take is not negative: {take}")


def require_send(record: MessageRecord) -> RequestId:
    """The request id of a record that can be accepted: that of a send which is under way."""
    _require_record(record)
    if record.request_id is None or not record.sending:
        raise InvalidInput("what is accepted is a send: it has a request_id, and sending is True")
    return record.request_id


def require_text(*texts: str) -> None:
    """Refuse what UTF-8 cannot express."""
    for text in texts:
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InvalidInput(f"{text!r} holds characters that UTF-8 cannot express") from None


def _require_record(record: MessageRecord) -> None:
    """Refuse what no store could keep."""
    if len(record.message_hash) != HASH_SIZE:
        raise InvalidInput(f"a message hash has {HASH_SIZE} bytes, not {len(record.message_hash)}")
    if not _EARLIEST_NS <= record.created_ns <= _LATEST_NS:
        raise InvalidInput(f"created_ns is {_EARLIEST_NS} to {_LATEST_NS}, not {record.created_ns}")
    request_id = record.request_id
    if request_id is not None and not (request_id.isascii() and 0 < len(request_id) <= MAX_ID):
        raise InvalidInput(f"a request id has up to {MAX_ID} ASCII characters, not {request_id!r}")
    require_text(record.pubsub_topic)
