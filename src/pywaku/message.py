"""The Waku message and its deterministic hash (14/WAKU2-MESSAGE)."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from hashlib import sha256
from struct import Struct
from typing import Final

from pywaku.errors import InvalidInput

MAX_META_SIZE: Final = 64
"""Bytes that `meta` may have (14/WAKU2-MESSAGE, Message Attributes)."""

_LARGEST_VERSION: Final = (1 << 32) - 1
_EARLIEST: Final = -(1 << 63)
_LATEST: Final = (1 << 63) - 1
_pack_timestamp: Final = Struct(">q").pack
_NO_TIMESTAMP: Final = bytes(8)


@dataclass(frozen=True, slots=True)
class WakuMessage:
    """A payload and its attributes. An attribute that is None is absent, which differs from empty or zero.

    `version` tells kinds of payload encryption apart (absent: 0); `timestamp_ns` is the time at which the
    sender made the message, in nanoseconds since 1970 (absent: 0), and nobody verifies it; a message with
    `ephemeral` set is not meant to be stored; `rate_limit_proof` is opaque here (17/WAKU2-RLN-RELAY).
    """

    payload: bytes
    content_topic: str
    _: KW_ONLY
    meta: bytes | None = None
    version: int | None = None
    timestamp_ns: int | None = None
    ephemeral: bool | None = None
    rate_limit_proof: bytes | None = None

    def __post_init__(self) -> None:
        # A relay node makes one of these for each message it sees: the usual case costs no calls.
        if type(self.payload) is not bytes:
            _require_bytes("payload", self.payload)
        if type(self.content_topic) is not str or not self.content_topic or not self.content_topic.isascii():
            _require_topic(self.content_topic)
        if self.meta is not None:
            _require_bytes("meta", self.meta)
            if len(self.meta) > MAX_META_SIZE:
                raise InvalidInput(f"meta has at most {MAX_META_SIZE} bytes, not {len(self.meta)}")
        if self.version is not None:
            _require_int("version", self.version, 0, _LARGEST_VERSION)
        timestamp = self.timestamp_ns
        if timestamp is not None and not (type(timestamp) is int and _EARLIEST <= timestamp <= _LATEST):
            _require_int("timestamp_ns", timestamp, _EARLIEST, _LATEST)
        if self.rate_limit_proof is not None:
            _require_bytes("rate_limit_proof", self.rate_limit_proof)
        if self.ephemeral is not None and type(self.ephemeral) is not bool:
            raise InvalidInput(f"ephemeral is True, False or None, not {self.ephemeral!r}")


def message_hash(pubsub_topic: str, message: WakuMessage) -> bytes:
    """The deterministic hash (32 bytes) of a message as it is published on `pubsub_topic`.

    sha256 of pubsub topic, payload, content topic, meta and timestamp (8 bytes, big-endian, two's
    complement). An absent `meta` is left out, which gives the same as an empty one. An absent timestamp is
    hashed as 0, which is what it is to be interpreted as, and what nwaku and go-waku do: so a message has the
    same hash here as in the store nodes that keep it. (js-waku leaves out a timestamp that is absent or 0.)
    """
    timestamp = message.timestamp_ns
    return sha256(
        b"".join(
            (
                pubsub_topic.encode(),
                message.payload,
                message.content_topic.encode(),
                message.meta or b"",
                _pack_timestamp(timestamp) if timestamp else _NO_TIMESTAMP,
            )
        )
    ).digest()


def _require_bytes(name: str, value: object) -> None:
    if not isinstance(value, bytes):
        raise InvalidInput(f"{name} is bytes, not {type(value).__name__}")


def _require_int(name: str, value: object, least: int, most: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(f"{name} is an int, not {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidInput(f"{name} is {least} to {most}, not {value}")


def _require_topic(value: object) -> None:
    if not isinstance(value, str):
        raise InvalidInput(f"content_topic is a str, not {type(value).__name__}")
    if not value:
        raise InvalidInput("content_topic is empty; it looks like /my-app/1/my-topic/proto")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput("content_topic holds characters that UTF-8 cannot express") from None
