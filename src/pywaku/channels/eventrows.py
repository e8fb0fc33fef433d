"""Events that matter as rows, one for the two names that some things have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pywaku.channels.events import (
    ChannelEvent,
    ChunkInfo,
    EphemeralMessageDropped,
    IrretrievableMessage,
    MessageAcknowledged,
    MessageReceived,
    ReliableMessageDelivered,
    ReliableMessageDeliveryError,
    ReliableMessageReceived,
    ReliableMessageSendError,
    SendingMessageIrrecoverableError,
)
from pywaku.channels.rows import list_of, pack, unpack
from pywaku.errors import DecodeError


def groups_of(events: Sequence[ChannelEvent]) -> Iterator[tuple[ChannelEvent, ...]]:
    """The events in order, those together that tell the same in either vocabulary."""
    place = 0
    while place < len(events):
        group = tuple(events[place : place + 2])
        if len(group) == 2 and not _same(*group):
            group = group[:1]
        yield group
        place += len(group)


def _same(first: ChannelEvent, second: ChannelEvent) -> bool:
    match first, second:
        case MessageReceived(), ReliableMessageReceived():
            return True
        case MessageAcknowledged(one), ReliableMessageDelivered(other):
            return one == other
        case (
            SendingMessageIrrecoverableError(one),
            ReliableMessageSendError(other) | ReliableMessageDeliveryError(other),
        ):
            return one == other
        case _:
            return False


def encode_events(group: Sequence[ChannelEvent]) -> bytes | None:
    """Events that matter, and tell the same, as a row; None for those of progress."""
    match group:
        case [MessageReceived(payload, sender, ephemeral), *_] if not ephemeral:
            return pack("received", sender) + b"\n" + payload
        case [IrretrievableMessage(ids, sender, reason)]:
            return pack("irretrievable", ids, sender, reason)
        case [MessageAcknowledged(request_id, info), ReliableMessageDelivered(_, by)]:
            return pack("delivered", request_id, by, info.chunks, info.total_chunks)
        case [SendingMessageIrrecoverableError(request_id, info, error), ReliableMessageSendError()]:
            return pack("send-error", request_id, error, info.chunks, info.total_chunks)
        case [SendingMessageIrrecoverableError(request_id, info, error), ReliableMessageDeliveryError()]:
            return pack("delivery-error", request_id, error, info.chunks, info.total_chunks)
        case [EphemeralMessageDropped(message_id, reason)]:
            return pack("dropped", message_id, reason)
        case _:
            return None


def decode_events(row: bytes) -> tuple[ChannelEvent, ...]:
    """The events in a row; raises `DecodeError`."""
    head, newline, payload = row.partition(b"\n")
    match unpack(head):
        case ["received", str(sender)] if newline:
            return MessageReceived(payload, sender), ReliableMessageReceived(payload, sender)
        case ["irretrievable", ids, str() | None as sender, str(reason)]:
            return (IrretrievableMessage(_texts(ids), sender, reason),)
        case ["delivered", str(request_id), by, chunks, int(total)]:
            info = ChunkInfo(_numbers(chunks), total)
            return MessageAcknowledged(request_id, info), ReliableMessageDelivered(request_id, _texts(by))
        case ["send-error", str(request_id), str(error), chunks, int(total)]:
            info = ChunkInfo(_numbers(chunks), total)
            return (
                SendingMessageIrrecoverableError(request_id, info, error),
                ReliableMessageSendError(request_id, error),
            )
        case ["delivery-error", str(request_id), str(error), chunks, int(total)]:
            info = ChunkInfo(_numbers(chunks), total)
            return (
                SendingMessageIrrecoverableError(request_id, info, error),
                ReliableMessageDeliveryError(request_id, error),
            )
        case ["dropped", str(message_id), str(reason)]:
            return (EphemeralMessageDropped(message_id, reason),)
        case _:
            raise DecodeError("a saved event of a channel is damaged")


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(list_of(str, values))


def _numbers(values: Any) -> tuple[int, ...]:
    return tuple(list_of(int, values))
