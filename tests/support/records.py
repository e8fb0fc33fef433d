"""Records for tests: messages by number, the changes that add them, and a store that fails when told to."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from pywaku.errors import RecordError
from pywaku.message import WakuMessage, message_hash
from pywaku.messaging.record import MessageRecord
from pywaku.messaging.records import Change, Changed, MemoryRecordStore

PUBSUB_TOPIC = "/waku/2/rs/42/0"
TOPIC = "/test/1/records/proto"
START_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000


def guid(number: int) -> str:
    """The GUID of a number."""
    return str(UUID(int=number))


def waku_message(number: int, content_topic: str = TOPIC, size: int = 8) -> WakuMessage:
    """The message of a number."""
    return WakuMessage(number.to_bytes(8) * (size // 8), content_topic, timestamp_ns=START_NS + number)


def hash_of(number: int, content_topic: str = TOPIC, size: int = 8) -> bytes:
    """Its hash."""
    return message_hash(PUBSUB_TOPIC, waku_message(number, content_topic, size))


def record(
    number: int, request: int | None = None, *, content_topic: str = TOPIC, size: int = 8
) -> MessageRecord:
    """A record of the message of a number: of a send that is under way, where there is a request."""
    return MessageRecord(
        hash_of(number, content_topic, size),
        PUBSUB_TOPIC,
        waku_message(number, content_topic, size),
        sending=request is not None,
        request_id=None if request is None else guid(request),
        created_ns=START_NS + number * SECOND_NS,
    )


def adding(number: int, request: int | None = None, *, content_topic: str = TOPIC, size: int = 8) -> Change:
    """The change that adds it; the request has the number of the message where none is given."""
    request = number if request is None else request
    return Change.adding(record(number, request, content_topic=content_topic, size=size))


def receiving(
    number: int, *subscriptions: str, content_topic: str = TOPIC, at_ns: int | None = None
) -> Change:
    """The change that a message received from the network makes."""
    new = record(number, content_topic=content_topic)
    return Change(
        new.message_hash,
        new.created_ns if at_ns is None else at_ns,
        new,
        received=True,
        subscription_ids=subscriptions,
    )


class FailingStore(MemoryRecordStore):
    """Raises what it is given, instead of making changes, until that is taken away."""

    def __init__(self) -> None:
        super().__init__()
        self.fails: Exception | None = None
        self.poison: bytes | None = None
        """The hash of a message whose changes no store can take."""
        self.batches: list[int] = []

    def fail(self, reason: str | None) -> None:
        """Fail for this reason from now on; None: no more."""
        self.fails = None if reason is None else RecordError(f"records: {reason}", reason=reason)

    def accept(self, record: MessageRecord) -> None:
        """Make sure of a send, or fail."""
        if self.fails is not None:
            raise self.fails
        super().accept(record)

    async def apply(self, changes: Sequence[Change]) -> list[Changed]:
        """Make the changes, or fail."""
        self.batches.append(len(changes))
        if self.fails is not None:
            raise self.fails
        if any(change.message_hash == self.poison for change in changes):
            raise OverflowError("an impossible change")
        return await super().apply(changes)
