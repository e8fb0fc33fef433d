"""14/WAKU2-MESSAGE, Wire Format."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import DecodeError
from pywaku.message import WakuMessage
from pywaku.wire.message import decode_message, encode_message
from tests.support import wire_values as values
from tests.support.fields import field

TOPIC = b"\x12\x08/a/1/b/c"


def by_hand(message: WakuMessage) -> bytes:
    """The message in protobuf as the specification has it, fields ascending."""
    out = field(1, message.payload) if message.payload else b""
    out += field(2, message.content_topic.encode())
    if message.version is not None:
        out += field(3, message.version)
    if message.timestamp_ns is not None:
        out += field(10, (message.timestamp_ns << 1 ^ message.timestamp_ns >> 63) & (2**64 - 1))
    if message.meta is not None:
        out += field(11, message.meta)
    if message.rate_limit_proof is not None:
        out += field(21, message.rate_limit_proof)
    if message.ephemeral is not None:
        out += field(31, int(message.ephemeral))
    return out


@given(values.MESSAGES)
def test_the_encoding_is_that_of_the_specification_with_fields_ascending(message: WakuMessage) -> None:
    assert encode_message(message) == by_hand(message)


def test_a_message_byte_by_byte() -> None:
    message = WakuMessage(
        b"\x01\x02",
        "/a/1/b/c",
        meta=b"\xff",
        version=1,
        timestamp_ns=-2,
        ephemeral=True,
        rate_limit_proof=b"\x09\x08",
    )
    encoding = "0a020102 12082f612f312f622f63 1801 5003 5a01ff aa01020908 f80101"
    assert encode_message(message) == bytes.fromhex(encoding)
    assert decode_message(bytes.fromhex(encoding)) == message


@pytest.mark.parametrize(
    ("timestamp_ns", "zigzag"),
    [(0, 0), (-1, 1), (1, 2), (2**63 - 1, 2**64 - 2), (-(2**63), 2**64 - 1)],
)
def test_timestamps_are_sint64(timestamp_ns: int, zigzag: int) -> None:
    encoding = TOPIC + field(10, zigzag)
    assert encode_message(WakuMessage(b"", "/a/1/b/c", timestamp_ns=timestamp_ns)) == encoding
    assert decode_message(encoding).timestamp_ns == timestamp_ns


def test_absent_and_empty_meta_survive_the_wire() -> None:
    absent, empty = WakuMessage(b"", "/a/1/b/c"), WakuMessage(b"", "/a/1/b/c", meta=b"")
    assert decode_message(encode_message(absent)).meta is None
    assert decode_message(encode_message(empty)).meta == b""


def test_a_message_without_a_content_topic_is_refused() -> None:
    with pytest.raises(DecodeError, match="content_topic is empty"):
        decode_message(field(1, b"payload"))
    with pytest.raises(DecodeError):
        decode_message(b"")


def test_a_payload_may_be_empty() -> None:
    assert decode_message(TOPIC).payload == b""
    assert decode_message(field(1, b"") + TOPIC).payload == b""


def test_meta_of_more_than_64_bytes_is_refused() -> None:
    assert decode_message(TOPIC + field(11, bytes(64))).meta == bytes(64)
    with pytest.raises(DecodeError, match="at most 64 bytes, not 65"):
        decode_message(TOPIC + field(11, bytes(65)))


@pytest.mark.parametrize("topic", [b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf", b"/a/1/b/\xe2\x82"])
def test_a_content_topic_that_is_not_utf_8_is_refused(topic: bytes) -> None:
    with pytest.raises(DecodeError, match="not a "):
        decode_message(field(2, topic))


def test_the_last_value_of_a_field_wins() -> None:
    assert decode_message(TOPIC + field(1, b"one") + field(1, b"two")).payload == b"two"


@given(values.MESSAGES, st.randoms(use_true_random=False))
def test_fields_may_come_in_any_order(message: WakuMessage, rng: random.Random) -> None:
    parts = [field(2, message.content_topic.encode()), field(1, message.payload), field(99, b"unknown")]
    rng.shuffle(parts)
    assert decode_message(b"".join(parts)) == WakuMessage(message.payload, message.content_topic)


def test_a_field_of_another_type_is_an_unknown_one() -> None:
    assert decode_message(TOPIC + field(1, 5) + field(3, b"text")) == WakuMessage(b"", "/a/1/b/c")
