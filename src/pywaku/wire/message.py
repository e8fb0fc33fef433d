"""The Waku message on the wire (14/WAKU2-MESSAGE, Wire Format)."""

from __future__ import annotations

from pywaku.errors import DecodeError, InvalidInput
from pywaku.message import WakuMessage
from pywaku.wire.proto import message_pb2, parse


def encode_message(message: WakuMessage) -> bytes:
    """The message in protobuf: fields in ascending order, absent ones left out."""
    return to_proto(message).SerializeToString(deterministic=True)


def decode_message(data: bytes) -> WakuMessage:
    """The message in `data`; one without a content topic, or with more than 64 bytes of meta, is none."""
    return from_proto(parse(message_pb2.WakuMessage, data))


def from_proto(found: message_pb2.WakuMessage) -> WakuMessage:
    """The message that a decoded protobuf object holds."""
    try:
        return WakuMessage(
            found.payload,
            found.content_topic,
            meta=found.meta if found.HasField("meta") else None,
            version=found.version if found.HasField("version") else None,
            timestamp_ns=found.timestamp if found.HasField("timestamp") else None,
            ephemeral=found.ephemeral if found.HasField("ephemeral") else None,
            rate_limit_proof=found.rate_limit_proof if found.HasField("rate_limit_proof") else None,
        )
    except InvalidInput as error:
        raise DecodeError(f"not a Waku message: {error}") from None


def to_proto(message: WakuMessage) -> message_pb2.WakuMessage:
    """The message as a protobuf object, to be put into another one."""
    return message_pb2.WakuMessage(
        payload=message.payload,
        content_topic=message.content_topic,
        version=message.version,
        timestamp=message.timestamp_ns,
        meta=message.meta,
        rate_limit_proof=message.rate_limit_proof,
        ephemeral=message.ephemeral,
    )
