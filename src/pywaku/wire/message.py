"""The Waku message on the wire (14/WAKU2-MESSAGE, Wire Format)."""

from __future__ import annotations

from typing import Final

from pywaku.errors import DecodeError, InvalidInput
from pywaku.message import WakuMessage
from pywaku.wire import varint
from pywaku.wire.proto import message_pb2, parse

_PAYLOAD: Final = b"\x0a"  # field number and wire type, for each field
_CONTENT_TOPIC: Final = b"\x12"
_VERSION: Final = b"\x18"
_TIMESTAMP: Final = b"\x50"
_META: Final = b"\x5a"
_RATE_LIMIT_PROOF: Final = b"\xaa\x01"
_EPHEMERAL: Final = {False: b"\xf8\x01\x00", True: b"\xf8\x01\x01"}


def encode_message(message: WakuMessage) -> bytes:
    """The message in protobuf, fields in ascending order: the bytes that protobuf itself would give."""
    # Written by hand, since filling a protobuf object costs three times as much.
    topic = message.content_topic.encode()
    parts: list[bytes] = []
    if message.payload:
        parts += (_PAYLOAD, varint.encode(len(message.payload)), message.payload)
    parts += (_CONTENT_TOPIC, varint.encode(len(topic)), topic)
    if message.version is not None:
        parts += (_VERSION, varint.encode(message.version))
    timestamp = message.timestamp_ns
    if timestamp is not None:
        parts += (_TIMESTAMP, varint.encode(timestamp << 1 if timestamp >= 0 else ~(timestamp << 1)))
    if message.meta is not None:
        parts += (_META, varint.encode(len(message.meta)), message.meta)
    if message.rate_limit_proof is not None:
        parts += (_RATE_LIMIT_PROOF, varint.encode(len(message.rate_limit_proof)), message.rate_limit_proof)
    if message.ephemeral is not None:
        parts.append(_EPHEMERAL[message.ephemeral])
    return b"".join(parts)


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
