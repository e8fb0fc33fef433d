"""Records as rows of the tables, and back."""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Any, Final, NamedTuple

from pywaku.message import WakuMessage
from pywaku.messaging.record import MessageRecord, RequestId
from pywaku.messaging.records.sqlite.bulk import Value

SENDING: Final = 1
SENT: Final = 2
PROPAGATED: Final = 4
STORED: Final = 8
RECEIVED: Final = 16

COLUMNS: Final = (
    "r.id, r.message_hash, p.name, c.name, r.payload, r.meta, r.version, r.timestamp, r.ephemeral, "
    "r.rate_limit_proof, r.request_id, r.created, s.flags, s.attempts, s.updated, s.error, s.places"
)
JOINS: Final = (
    "CROSS JOIN states AS s ON s.id = r.id CROSS JOIN names AS p ON p.id = r.pubsub "
    "CROSS JOIN names AS c ON c.id = r.content"
)
"""What belongs to a row of `records AS r`: looked up from it, never the other way round."""

Place = tuple[int, int]
"""Where a record is listed: the number of a subscription, and the place among what came under it."""
_ALL: Final = (1 << 64) - 1
_pair: Final = Struct("<qq")


class Entry(NamedTuple):
    """A record in the file: its number, what is known, and where it is listed."""

    number: int
    record: MessageRecord
    places: tuple[Place, ...]


def hash_key(message_hash: bytes) -> int:
    """64 bits of a hash, for the index; whoever looks up by it compares the hash as well."""
    return int.from_bytes(message_hash[:8], "big", signed=True)


def request_key(request_id: RequestId) -> int:
    """64 bits of a request id, for the index: the first ones, so that GUIDs ordered by time stay in order."""
    try:
        digits = f"{request_id[:8]}{request_id[9:13]}{request_id[14:18]}"
        return (int(digits, 16) & _ALL) - (1 << 63)
    except ValueError:  # no GUID
        return int.from_bytes(blake2b(request_id.encode(), digest_size=8).digest(), "big", signed=True)


def record_row(number: int, record: MessageRecord, pubsub: int, content: int) -> tuple[Value, ...]:
    """The row of `records`."""
    message = record.message
    request_id = record.request_id
    return (
        number,
        hash_key(record.message_hash),
        None if request_id is None else request_key(request_id),
        pubsub,
        content,
        record.created_ns,
        record.message_hash,
        request_id,
        message.timestamp_ns,
        message.version,
        message.ephemeral,
        message.meta,
        message.rate_limit_proof,
        message.payload,
    )


def state_row(entry: Entry) -> tuple[Value, ...]:
    """The row of `states`."""
    record = entry.record
    flags = (
        record.sending * SENDING
        | record.sent * SENT
        | record.propagated * PROPAGATED
        | record.stored * STORED
        | record.received * RECEIVED
    )
    places = b"".join([_pair.pack(*place) for place in entry.places]) if entry.places else None
    return entry.number, flags, record.attempts, record.updated_ns, record.error, places


def places_of(blob: bytes | None) -> tuple[Place, ...]:
    """Where a record is listed."""
    return tuple(_pair.iter_unpack(blob)) if blob else ()


def record_of(row: tuple[Any, ...]) -> MessageRecord:
    """The record of a row of `COLUMNS`."""
    flags: int = row[12]
    ephemeral: int | None = row[8]
    message = WakuMessage(
        row[4],
        row[3],
        meta=row[5],
        version=row[6],
        timestamp_ns=row[7],
        ephemeral=None if ephemeral is None else bool(ephemeral),
        rate_limit_proof=row[9],
    )
    return MessageRecord(
        row[1],
        row[2],
        message,
        sending=bool(flags & SENDING),
        sent=bool(flags & SENT),
        propagated=bool(flags & PROPAGATED),
        stored=bool(flags & STORED),
        received=bool(flags & RECEIVED),
        request_id=row[10],
        error=row[15],
        attempts=row[13],
        created_ns=row[11],
        updated_ns=row[14],
    )


def entry_of(row: tuple[Any, ...]) -> Entry:
    """The entry of a row of `COLUMNS`."""
    return Entry(row[0], record_of(row), places_of(row[16]))
