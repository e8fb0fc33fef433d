"""Messages as applications know them: what they send and read, and the record of each (MESSAGING-API)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Final, Protocol

from pywaku.errors import InvalidInput
from pywaku.message import WakuMessage

RequestId = str
"""A GUID that names one send operation (MESSAGING-API, RequestID)."""
SubscriptionId = str
"""A GUID that names one subscription (MESSAGING-API, SubscriptionID)."""

BACKGROUND_SUBSCRIPTION: Final[SubscriptionId] = "1692854c-cbde-4afe-901f-1c86ecbd9ea1"
"""The subscription to `confirm_content_topics` (MESSAGING-API, Acknowledgements)."""


@dataclass(frozen=True, slots=True)
class Message:
    """What an application sends (MESSAGING-API, Message). What is None is supplied by the encoder."""

    payload: bytes
    _: KW_ONLY
    meta: bytes | None = None
    timestamp_ns: int | None = None
    ephemeral: bool | None = None


class Encoder(Protocol):
    """Where messages of an application go, and what they look like on the wire (MESSAGING-API, Encoder)."""

    @property
    def pubsub_topic(self) -> str:
        """The pubsub topic to send on."""
        ...

    @property
    def content_topic(self) -> str:
        """The content topic to send on."""
        ...

    def encode(self, message: Message, now_ns: int) -> WakuMessage:
        """The message for the wire; `now_ns` stamps one without a timestamp."""
        ...


class Decoder(Protocol):
    """Which messages an application reads, and how (MESSAGING-API, Decoder)."""

    @property
    def pubsub_topic(self) -> str:
        """The pubsub topic to listen on."""
        ...

    @property
    def content_topic(self) -> str:
        """The content topic to listen on."""
        ...

    def decode(self, message: WakuMessage) -> bytes | None:
        """The payload for the application; None for a message that is not for it.

        Raises `DecodeError` for one that is, and cannot be read.
        """
        ...


def require_encoder(value: object) -> None:
    """Refuse what is no encoder, such as the content topic itself."""
    if not (hasattr(value, "pubsub_topic") and callable(getattr(value, "encode", None))):
        raise InvalidInput(
            f"encoder: is what node.codec(content_topic) gives, or alike; not a {type(value).__name__}"
        )


def require_decoder(value: object) -> None:
    """Refuse what is no decoder, such as the content topic itself."""
    if not (hasattr(value, "pubsub_topic") and callable(getattr(value, "decode", None))):
        raise InvalidInput(
            f"decoder: is what node.codec(content_topic) gives, or alike; not a {type(value).__name__}"
        )


@dataclass(frozen=True, slots=True)
class PlainCodec:
    """An encoder and decoder that leaves payloads as they are."""

    content_topic: str
    pubsub_topic: str
    _: KW_ONLY
    ephemeral: bool = False

    def encode(self, message: Message, now_ns: int) -> WakuMessage:
        """The message for the wire."""
        return WakuMessage(
            message.payload,
            self.content_topic,
            meta=message.meta,
            timestamp_ns=now_ns if message.timestamp_ns is None else message.timestamp_ns,
            ephemeral=self.ephemeral if message.ephemeral is None else message.ephemeral,
        )

    def decode(self, message: WakuMessage) -> bytes | None:
        """The payload, if the message is of this content topic."""
        return message.payload if message.content_topic == self.content_topic else None


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """What is known of one message (MESSAGING-API, MessageRecord). A value: each change makes a new one."""

    message_hash: bytes
    pubsub_topic: str
    message: WakuMessage
    """The message as it is on the wire."""
    _: KW_ONLY
    sending: bool = False
    """It is being sent, or waits to be sent (again)."""
    sent: bool = False
    """It was sent, and with `store_confirmation` seen in the network; final."""
    propagated: bool = False
    """At least one peer took it; final."""
    stored: bool = False
    """A store node keeps it; final."""
    received: bool = False
    """It came from the network by a subscription; final."""
    request_id: RequestId | None = None
    """The send operation it belongs to; constant."""
    error: str | None = None
    """What went wrong, until it is sent after all."""
    attempts: int = 0
    """How often it was tried to send."""
    created_ns: int = 0
    """When the record was made, in nanoseconds since 1970."""
    updated_ns: int = 0
    """When it last changed."""

    @property
    def content_topic(self) -> str:
        """The content topic of the message."""
        return self.message.content_topic
