"""Events of channels as rows of the event journal."""

from __future__ import annotations

from pywaku.channels.events import (
    ChannelEvent,
    EphemeralMessageDropped,
    IrretrievableMessage,
    MessageAcknowledged,
    MessagePossiblyAcknowledged,
    MessageReceived,
    MessageSent,
    ReliableMessageDelivered,
    ReliableMessageDeliveryError,
    ReliableMessageReceived,
    ReliableMessageSendError,
    ReliableMessageSent,
    SendingMessage,
    SendingMessageIrrecoverableError,
)
from pywaku.journal import JournalEntry


def journal_entry(event: ChannelEvent, channel_id: str, sender_id: str) -> JournalEntry:
    """What the journal keeps of an event: who and how far, and never what was said."""
    message_id = error = state = None
    size = done = total = None
    match event:
        case SendingMessage() | MessageSent() | MessagePossiblyAcknowledged() | MessageAcknowledged():
            message_id = event.message_id
            done, total = len(event.chunk_info.chunks), event.chunk_info.total_chunks
        case SendingMessageIrrecoverableError(message_id, info, error):
            done, total = len(info.chunks), info.total_chunks
        case MessageReceived(payload, sender_id):
            size = len(payload)
        case ReliableMessageReceived(payload, sender_id):
            size = len(payload)
        case IrretrievableMessage(ids, sender, error):
            message_id = ids[0] if ids else None
            sender_id = sender or sender_id
        case EphemeralMessageDropped(message_id, state):
            pass
        case ReliableMessageSent(message_id):
            pass
        case ReliableMessageDelivered(message_id, by):
            done = len(by)
        case ReliableMessageSendError(message_id, error) | ReliableMessageDeliveryError(message_id, error):
            pass
    return JournalEntry(
        event.name,
        size=size,
        state=state,
        error=error,
        channel_id=channel_id,
        sender_id=sender_id,
        channel_message_id=message_id,
        done=done,
        total=total,
    )
