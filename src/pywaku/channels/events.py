"""What a reliable channel tells: the events of both versions of the specification, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

MessageId = str
"""Names one `send`; the first specification calls it MessageId, the second RequestId."""

EventName = Literal[
    "sending-message",
    "message-sent",
    "message-possibly-acknowledged",
    "message-acknowledged",
    "sending-message-irrecoverable-error",
    "message-received",
    "irretrievable-message",
    "ephemeral-message-dropped",
    "reliable:message:received",
    "reliable:message:sent",
    "reliable:message:delivered",
    "reliable:message:send-error",
    "reliable:message:delivery-error",
]


@dataclass(frozen=True, slots=True)
class ChunkInfo:
    """How far a message has got: the chunks (segments) of which the event is true so far, in all."""

    chunks: tuple[int, ...]
    total_chunks: int

    @property
    def complete(self) -> bool:
        """Is it true of all of them?"""
        return len(self.chunks) == self.total_chunks


@dataclass(frozen=True, slots=True)
class SendingMessage:
    """A chunk is being sent, for the first time or again."""

    name: ClassVar[EventName] = "sending-message"
    message_id: MessageId
    chunk_info: ChunkInfo


@dataclass(frozen=True, slots=True)
class MessageSent:
    """A chunk was sent, and is not acknowledged yet."""

    name: ClassVar[EventName] = "message-sent"
    message_id: MessageId
    chunk_info: ChunkInfo


@dataclass(frozen=True, slots=True)
class MessagePossiblyAcknowledged:
    """A bloom filter says that somebody probably has a chunk."""

    name: ClassVar[EventName] = "message-possibly-acknowledged"
    message_id: MessageId
    chunk_info: ChunkInfo


@dataclass(frozen=True, slots=True)
class MessageAcknowledged:
    """A chunk was acknowledged."""

    name: ClassVar[EventName] = "message-acknowledged"
    message_id: MessageId
    chunk_info: ChunkInfo


@dataclass(frozen=True, slots=True)
class SendingMessageIrrecoverableError:
    """The message was given up; `chunk_info` has the chunks that failed. Final."""

    name: ClassVar[EventName] = "sending-message-irrecoverable-error"
    message_id: MessageId
    chunk_info: ChunkInfo
    error: str


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message of another participant is complete."""

    name: ClassVar[EventName] = "message-received"
    payload: bytes
    sender_id: str
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class IrretrievableMessage:
    """Others have named a message (by SDS ids), or part of one has come, and it could not be had."""

    name: ClassVar[EventName] = "irretrievable-message"
    message_ids: tuple[str, ...]
    sender_id: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class EphemeralMessageDropped:
    """An ephemeral message was not sent: `rate_limit_approached` or `rate_limit_reached`."""

    name: ClassVar[EventName] = "ephemeral-message-dropped"
    message_id: MessageId
    reason: str


@dataclass(frozen=True, slots=True)
class ReliableMessageReceived:
    """The same as `MessageReceived`, by its later name."""

    name: ClassVar[EventName] = "reliable:message:received"
    message: bytes
    sender_id: str


@dataclass(frozen=True, slots=True)
class ReliableMessageSent:
    """All segments of a message have been handed to the network."""

    name: ClassVar[EventName] = "reliable:message:sent"
    request_id: MessageId


@dataclass(frozen=True, slots=True)
class ReliableMessageDelivered:
    """A message was acknowledged end to end, by whomever the options ask for. Final."""

    name: ClassVar[EventName] = "reliable:message:delivered"
    request_id: MessageId
    acknowledged_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReliableMessageSendError:
    """A message could not be handed to the network, in part or at all. Final."""

    name: ClassVar[EventName] = "reliable:message:send-error"
    request_id: MessageId
    error: str


@dataclass(frozen=True, slots=True)
class ReliableMessageDeliveryError:
    """A message reached the network, and was not acknowledged however often it was sent. Final."""

    name: ClassVar[EventName] = "reliable:message:delivery-error"
    request_id: MessageId
    error: str


ChannelEvent = (
    SendingMessage
    | MessageSent
    | MessagePossiblyAcknowledged
    | MessageAcknowledged
    | SendingMessageIrrecoverableError
    | MessageReceived
    | IrretrievableMessage
    | EphemeralMessageDropped
    | ReliableMessageReceived
    | ReliableMessageSent
    | ReliableMessageDelivered
    | ReliableMessageSendError
    | ReliableMessageDeliveryError
)

EVENT_NAMES: Final[frozenset[str]] = frozenset(kind.name for kind in ChannelEvent.__args__)
