"""How a record changes (MESSAGING-API, Properties of `MessageRecord`). Pure, and the same for every store."""

from __future__ import annotations

from pywaku.messaging.record import MessageRecord
from pywaku.messaging.records.port import MAX_ERROR, Change


def fits(record: MessageRecord, change: Change) -> bool:
    """Whether the change concerns this record of its message."""
    return change.request_id is None or change.request_id == record.request_id


def changed(record: MessageRecord, change: Change) -> MessageRecord:
    """The record after the change; the same object where that changes nothing.

    `sent`, `propagated`, `stored` and `received` are final. A message that was sent is not being sent any
    more, and what went wrong before that is forgotten.
    """
    stored = record.stored or change.stored is True
    received = record.received or change.received is True
    sending, sent, propagated, attempts = record.sending, record.sent, record.propagated, record.attempts
    if record.request_id is not None:
        sent = sent or change.sent is True
        propagated = propagated or change.propagated is True
        if sent:
            sending = False
        elif change.sending is not None:
            sending = change.sending
        if change.attempts is not None:
            attempts = change.attempts
    error = None if change.clear_error or (sent and not record.sent) else record.error
    if change.error is not None:
        error = _kept(change.error)
    if (
        received == record.received
        and stored == record.stored
        and sent == record.sent
        and sending == record.sending
        and propagated == record.propagated
        and attempts == record.attempts
        and error == record.error
    ):
        return record
    return MessageRecord(
        record.message_hash,
        record.pubsub_topic,
        record.message,
        sending=sending,
        sent=sent,
        propagated=propagated,
        stored=stored,
        received=received,
        request_id=record.request_id,
        error=error,
        attempts=attempts,
        created_ns=record.created_ns,
        updated_ns=change.at_ns,
    )


def added(record: MessageRecord, change: Change) -> MessageRecord:
    """The record as it is when the change adds it; without a time of its own it gets that of the change."""
    is_send = record.request_id is not None
    plain = MessageRecord(
        record.message_hash,
        record.pubsub_topic,
        record.message,
        sending=is_send and record.sending and not record.sent,
        sent=is_send and record.sent,
        propagated=is_send and record.propagated,
        stored=record.stored,
        received=record.received,
        request_id=record.request_id,
        error=None if record.error is None else _kept(record.error),
        attempts=record.attempts if is_send else 0,
        created_ns=record.created_ns or change.at_ns,
        updated_ns=change.at_ns,
    )
    return changed(plain, change)


def _kept(error: str) -> str:
    """What is kept of an error: its start, and of that what UTF-8 can express."""
    error = error[:MAX_ERROR]
    return error if error.isascii() else error.encode(errors="backslashreplace").decode()[:MAX_ERROR]
