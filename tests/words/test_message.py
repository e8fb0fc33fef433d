"""14/WAKU2-MESSAGE: attributes and the deterministic hash."""

from __future__ import annotations

import dataclasses
from hashlib import sha256

import pytest
from hypothesis import given

from pywaku.errors import InvalidInput
from pywaku.message import WakuMessage, message_hash
from tests.support import wire_values as values

PUBSUB_TOPIC = "/waku/2/default-waku/proto"
CONTENT_TOPIC = "/waku/2/default-content/proto"
PAYLOAD = bytes.fromhex("010203045445535405060708")
META = bytes.fromhex("73757065722d736563726574")
TIMESTAMP = 0x175789BFA23F8400


@pytest.mark.parametrize(
    ("payload", "meta", "expected"),
    [
        (PAYLOAD, META, "64cce733fed134e83da02b02c6f689814872b1a0ac97ea56b76095c3c72bfe05"),
        (PAYLOAD, bytes(range(64)), "7158b6498753313368b9af8f6e0a0a05104f68f972981da42a43bc53fb0c1b27"),
        (PAYLOAD, None, "a2554498b31f5bcdfcbf7fa58ad1c2d45f0254f3f8110a85588ec3cf10720fd8"),
        (b"", META, "483ea950cb63f9b9d6926b262bb36194d3f40a0463ce8446228350bd44e96de4"),
    ],
    ids=["12 bytes of meta", "64 bytes of meta", "no meta", "no payload"],
)
def test_hash_vectors(payload: bytes, meta: bytes | None, expected: str) -> None:
    message = WakuMessage(payload, CONTENT_TOPIC, meta=meta, timestamp_ns=TIMESTAMP)
    assert message_hash(PUBSUB_TOPIC, message).hex() == expected


def test_the_hash_must_be_computed_over_topic_payload_content_topic_meta_and_timestamp() -> None:
    message = WakuMessage(b"payload", "/a/1/b/c", meta=b"meta", timestamp_ns=258)
    expected = sha256(
        b"/waku/2/rs/1/2" + b"payload" + b"/a/1/b/c" + b"meta" + bytes([0, 0, 0, 0, 0, 0, 1, 2])
    )
    assert message_hash("/waku/2/rs/1/2", message) == expected.digest()


@pytest.mark.parametrize(
    ("timestamp_ns", "eight_bytes"),
    [
        (-1, b"\xff" * 8),
        (-(2**63), b"\x80" + bytes(7)),
        (2**63 - 1, b"\x7f" + b"\xff" * 7),
        (0, bytes(8)),
        (None, bytes(8)),
    ],
)
def test_the_timestamp_is_hashed_in_twos_complement_and_as_zero_when_absent(
    timestamp_ns: int | None, eight_bytes: bytes
) -> None:
    message = WakuMessage(b"p", "/a/1/b/c", timestamp_ns=timestamp_ns)
    assert message_hash("t", message) == sha256(b"t" + b"p" + b"/a/1/b/c" + eight_bytes).digest()


def test_an_absent_attribute_is_left_out_of_the_hash() -> None:
    absent = WakuMessage(b"p", "/a/1/b/c", timestamp_ns=1)
    assert message_hash("t", absent) == sha256(b"tp/a/1/b/c" + bytes(7) + b"\x01").digest()
    assert message_hash("t", absent) == message_hash("t", dataclasses.replace(absent, meta=b""))


@given(values.MESSAGES)
def test_other_attributes_do_not_change_the_hash(message: WakuMessage) -> None:
    other = dataclasses.replace(message, version=7, ephemeral=True, rate_limit_proof=b"proof")
    assert message_hash(PUBSUB_TOPIC, message) == message_hash(PUBSUB_TOPIC, other)


def test_topics_outside_ascii_are_hashed_in_utf_8() -> None:
    message = WakuMessage(b"", "/ä/1/ö/ü", timestamp_ns=0)
    assert message_hash("/ß", message) == sha256("/ß/ä/1/ö/ü".encode() + bytes(8)).digest()


def test_meta_has_at_most_64_bytes() -> None:
    assert WakuMessage(b"", "/a/1/b/c", meta=bytes(64)).meta == bytes(64)
    with pytest.raises(InvalidInput, match="at most 64 bytes, not 65"):
        WakuMessage(b"", "/a/1/b/c", meta=bytes(65))


def test_absent_and_empty_attributes_are_different_values() -> None:
    absent = WakuMessage(b"", "/a/1/b/c")
    empty = WakuMessage(
        b"", "/a/1/b/c", meta=b"", version=0, timestamp_ns=0, ephemeral=False, rate_limit_proof=b""
    )
    assert absent != empty
    assert (absent.meta, absent.version, absent.timestamp_ns) == (None, None, None)
    assert (absent.ephemeral, absent.rate_limit_proof) == (None, None)


@pytest.mark.parametrize("timestamp_ns", [-(2**63), -1, 0, 2**63 - 1])
def test_all_timestamps_of_64_bits_are_allowed(timestamp_ns: int) -> None:
    assert WakuMessage(b"", "/a/1/b/c", timestamp_ns=timestamp_ns).timestamp_ns == timestamp_ns


@pytest.mark.parametrize(
    ("attribute", "value", "reason"),
    [
        ("payload", "text", "payload is bytes, not str"),
        ("payload", bytearray(b"x"), "payload is bytes, not bytearray"),
        ("content_topic", b"/a", "content_topic is a str, not bytes"),
        ("content_topic", "", "content_topic is empty"),
        ("content_topic", "/\ud800", "UTF-8"),
        ("meta", "text", "meta is bytes"),
        ("version", -1, "version is 0 to 4294967295, not -1"),
        ("version", 2**32, "version is 0 to"),
        ("version", True, "version is an int, not bool"),
        ("version", 1.0, "version is an int, not float"),
        ("timestamp_ns", 2**63, "timestamp_ns is -9223372036854775808 to"),
        ("timestamp_ns", -(2**63) - 1, "timestamp_ns is"),
        ("timestamp_ns", 1.5, "timestamp_ns is an int, not float"),
        ("timestamp_ns", False, "timestamp_ns is an int, not bool"),
        ("ephemeral", 1, "ephemeral is True, False or None"),
        ("rate_limit_proof", "text", "rate_limit_proof is bytes"),
    ],
)
def test_what_cannot_be_a_message_is_refused_with_a_reason(
    attribute: str, value: object, reason: str
) -> None:
    arguments: dict[str, object] = {"payload": b"", "content_topic": "/a/1/b/c", attribute: value}
    with pytest.raises(InvalidInput, match=reason):
        WakuMessage(**arguments)  # pyright: ignore[reportArgumentType]


def test_subclasses_of_bytes_and_int_are_fine() -> None:
    class Data(bytes):
        pass

    class Time(int):
        pass

    assert WakuMessage(Data(b"x"), "/a/1/b/c", timestamp_ns=Time(5)) == WakuMessage(
        b"x", "/a/1/b/c", timestamp_ns=5
    )


def test_messages_are_frozen_and_hashable() -> None:
    message = WakuMessage(b"", "/a/1/b/c")
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.payload = b"other"  # pyright: ignore[reportAttributeAccessIssue]
    assert len({message, WakuMessage(b"", "/a/1/b/c")}) == 1
