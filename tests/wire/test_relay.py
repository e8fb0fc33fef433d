"""11/WAKU2-RELAY, Wire Specification, and the control messages of GossipSub 1.0 to 1.2."""

from __future__ import annotations

import pytest
from hypothesis import given

from pywaku.errors import DecodeError
from pywaku.wire import relay
from pywaku.wire.relay import (
    IHave,
    PeerRecord,
    Prune,
    RelayMessage,
    Rpc,
    Subscription,
    decode_rpc,
    encode_publish,
    encode_rpc,
)
from tests.support import wire_values as values
from tests.support.fields import field

TOPIC = "/waku/2/rs/0/1"


def test_a_published_message_byte_by_byte() -> None:
    encoding = bytes.fromhex("1208 1203010203 220174")
    assert encode_publish("t", b"\x01\x02\x03") == encoding
    assert encode_rpc(Rpc(publish=(RelayMessage("t", b"\x01\x02\x03", signed=False),))) == encoding
    assert decode_rpc(encoding).publish == (RelayMessage("t", b"\x01\x02\x03", signed=False),)


def test_subscriptions_byte_by_byte() -> None:
    encoding = bytes.fromhex("0a05 0801 120174 0a05 0800 120175")
    rpc = Rpc(
        subscriptions=(Subscription(subscribe=True, topic="t"), Subscription(subscribe=False, topic="u"))
    )
    assert encode_rpc(rpc) == encoding
    assert decode_rpc(encoding) == rpc


def test_control_messages_byte_by_byte() -> None:
    rpc = Rpc(
        ihave=(IHave("t", (b"\x01", b"\x02")),),
        iwant=(b"\x03", b"\x04"),
        graft=("t",),
        prune=(Prune("t", (PeerRecord(b"\x05", b"\x06"),), backoff_s=60),),
        idontwant=(b"\x07",),
    )
    encoding = field(
        3,
        field(1, field(1, b"t") + field(2, b"\x01") + field(2, b"\x02"))
        + field(2, field(1, b"\x03") + field(1, b"\x04"))
        + field(3, field(1, b"t"))
        + field(4, field(1, b"t") + field(2, field(1, b"\x05") + field(2, b"\x06")) + field(3, 60))
        + field(5, field(1, b"\x07")),
    )
    assert encode_rpc(rpc) == encoding
    assert decode_rpc(encoding) == rpc


def test_from_seqno_signature_and_key_must_be_absent_from_the_bytes() -> None:
    body = encode_publish(TOPIC, b"data")[2:]
    assert body == field(2, b"data") + field(4, TOPIC.encode())
    signed = RelayMessage(TOPIC, b"data", signed=True)
    assert encode_rpc(Rpc(publish=(signed,))) == encode_publish(TOPIC, b"data")


@pytest.mark.parametrize("number", [1, 3, 5, 6])
@pytest.mark.parametrize("value", [b"", b"x", b"\xff"])
def test_from_seqno_signature_and_key_must_not_be_used(number: int, value: bytes) -> None:
    for body in (
        field(number, value) + field(2, b"data") + field(4, b"t"),
        field(2, b"data") + field(4, b"t") + field(number, value),
    ):
        assert decode_rpc(field(2, body)).publish == (RelayMessage("t", b"data", signed=True),)


def test_a_field_that_nobody_knows_is_no_signature() -> None:
    body = field(2, b"data") + field(4, b"t") + field(7, b"x")
    assert decode_rpc(field(2, body)).publish == (RelayMessage("t", b"data", signed=False),)


@given(values.PUBLISHED, values.RPCS, values.PUBLISHED)
def test_parts_put_together_are_an_rpc(first: RelayMessage, rpc: Rpc, second: RelayMessage) -> None:
    parts = (
        encode_publish(first.topic, first.data),
        encode_rpc(rpc),
        encode_publish(second.topic, second.data),
    )
    found = decode_rpc(b"".join(parts))
    assert found.publish == (first, *rpc.publish, second)
    assert found.prune == rpc.prune
    assert found.idontwant == rpc.idontwant


@given(values.PUBLISHED)
def test_a_part_is_what_the_whole_rpc_would_be(message: RelayMessage) -> None:
    assert encode_publish(message.topic, message.data) == encode_rpc(Rpc(publish=(message,)))


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16383, 16384, 200_000])
def test_messages_of_all_sizes(size: int) -> None:
    data = bytes(size)
    assert decode_rpc(encode_publish(TOPIC, data)).publish == (RelayMessage(TOPIC, data, signed=False),)


def test_what_a_message_lacks_is_empty() -> None:
    assert decode_rpc(field(2, b"")).publish == (RelayMessage("", b"", signed=False),)
    assert decode_rpc(field(1, b"")).subscriptions == (Subscription(subscribe=False, topic=""),)
    assert decode_rpc(field(3, field(4, b""))).prune == (Prune(""),)
    assert decode_rpc(b"") == Rpc()


def test_of_several_topics_the_last_one_counts() -> None:
    body = field(4, b"one") + field(2, b"data") + field(4, b"two")
    assert decode_rpc(field(2, body)).publish == (RelayMessage("two", b"data", signed=False),)


def test_messages_of_different_topics_keep_theirs() -> None:
    topics = ["a", "a", "b", "", "a", "ä"]
    data = b"".join(encode_publish(topic, b"") for topic in topics)
    assert [message.topic for message in decode_rpc(data).publish] == topics


def test_message_ids_of_several_control_messages_are_put_together() -> None:
    control = field(2, field(1, b"a")) + field(2, field(1, b"b") + field(1, b"c")) + field(2, b"")
    assert decode_rpc(field(3, control)).iwant == (b"a", b"b", b"c")
    control = field(5, field(1, b"a")) + field(5, field(1, b"b"))
    assert decode_rpc(field(3, control)).idontwant == (b"a", b"b")


def test_an_absent_backoff_is_none_and_zero_is_zero() -> None:
    assert decode_rpc(field(3, field(4, field(1, b"t")))).prune == (Prune("t", (), None),)
    assert decode_rpc(field(3, field(4, field(1, b"t") + field(3, 0)))).prune == (Prune("t", (), 0),)
    largest = field(3, field(4, field(1, b"t") + field(3, 2**64 - 1)))
    assert decode_rpc(largest).prune[0].backoff_s == 2**64 - 1


@pytest.mark.parametrize(
    "data",
    [
        field(1, field(2, b"\xff")),
        field(2, field(4, b"\xff")),
        field(2, field(4, b"ok")) + field(2, field(4, b"\xed\xa0\x80")),
        field(3, field(1, field(1, b"\xff"))),
        field(3, field(3, field(1, b"\xff"))),
        field(3, field(4, field(1, b"\xff"))),
    ],
    ids=["subscription", "message", "second message", "ihave", "graft", "prune"],
)
def test_a_topic_that_is_not_utf_8_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="not UTF-8"):
        decode_rpc(data)


@pytest.mark.parametrize(
    ("entry", "most"),
    [
        (field(1, b""), relay.MAX_SUBSCRIPTIONS),
        (field(2, b""), relay.MAX_PUBLISHED),
        (field(3, field(1, b"")), relay.MAX_CONTROLS),
        (field(3, field(2, b"")), relay.MAX_CONTROLS),
        (field(3, field(3, b"")), relay.MAX_CONTROLS),
        (field(3, field(4, b"")), relay.MAX_CONTROLS),
        (field(3, field(5, b"")), relay.MAX_CONTROLS),
        (field(3, field(1, field(2, b""))), relay.MAX_CONTROLS),
        (field(3, field(4, field(2, b""))), relay.MAX_PEERS),
    ],
    ids=["subscriptions", "messages", "ihave", "iwant", "graft", "prune", "idontwant", "ihave ids", "peers"],
)
def test_more_entries_than_allowed_are_refused(entry: bytes, most: int) -> None:
    decode_rpc(entry * most)
    with pytest.raises(DecodeError, match=f"has more than {most}"):
        decode_rpc(entry * (most + 1))


@pytest.mark.parametrize(("kind", "number"), [(1, 2), (2, 1), (5, 1)], ids=["ihave", "iwant", "idontwant"])
def test_more_message_ids_than_allowed_are_refused(kind: int, number: int) -> None:
    half = field(3, field(kind, field(number, b"id") * (relay.MAX_MESSAGE_IDS // 2)))
    decode_rpc(half * 2)
    with pytest.raises(DecodeError, match="message ids"):
        decode_rpc(half * 2 + field(3, field(kind, field(number, b"id"))))
