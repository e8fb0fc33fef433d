"""The identify message: what peers say of themselves, and what they may not make of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import DecodeError
from pywaku.keys import PrivateKey
from pywaku.wire.identify import (
    MAX_ADDRESSES,
    MAX_PROTOCOLS,
    MAX_SIZE,
    MAX_TEXT,
    Identify,
    decode_identify,
    encode_identify,
)
from pywaku.wire.multiaddr import Multiaddr
from pywaku.wire.protobuf_lite import bytes_field, read_fields, text_field

ADDRESS = Multiaddr.parse("/ip4/1.2.3.4/tcp/60000")
FULL = Identify(
    protocol_version="ipfs/0.1.0",
    agent_version="pywaku/1",
    public_key=PrivateKey.from_bytes("secp256k1", b"\1" * 32).public.encode(),
    listen_addresses=(ADDRESS, Multiaddr.parse("/dns4/a.example/tcp/443/wss")),
    observed_address=Multiaddr.parse("/ip4/5.6.7.8/tcp/1"),
    protocols=("/ipfs/id/1.0.0", "/vac/waku/relay/2.0.0"),
    signed_peer_record=b"record",
)


def test_fields_have_the_numbers_of_the_specification() -> None:
    fields = dict(read_fields(encode_identify(FULL)))
    assert fields[1] == FULL.public_key
    assert fields[2] == FULL.listen_addresses[-1].encode()
    assert fields[3] == FULL.protocols[-1].encode()
    assert fields[4] == Multiaddr.parse("/ip4/5.6.7.8/tcp/1").encode()
    assert fields[5] == b"ipfs/0.1.0"
    assert fields[6] == b"pywaku/1"
    assert fields[8] == b"record"


@pytest.mark.parametrize("message", [FULL, Identify(), Identify(agent_version="ü")])
def test_messages_round_trip(message: Identify) -> None:
    assert decode_identify(encode_identify(message)) == message


def test_missing_fields_of_a_push_are_ignored() -> None:
    push = decode_identify(encode_identify(Identify(protocols=("/a",), agent_version="new")))
    updated = FULL.updated(push)
    assert updated.protocols == ("/a",)
    assert updated.agent_version == "new"
    assert updated.listen_addresses == FULL.listen_addresses
    assert updated.public_key == FULL.public_key
    assert FULL.updated(Identify()) == FULL
    assert Identify().updated(FULL) == FULL


def test_addresses_that_are_not_understood_are_skipped() -> None:
    data = bytes_field(2, b"\x05\x01") + bytes_field(2, ADDRESS.encode()) + bytes_field(4, b"")
    message = decode_identify(data)
    assert message.listen_addresses == (ADDRESS,)
    assert message.observed_address is None


def test_lists_and_texts_are_bounded() -> None:
    addresses = b"".join(
        bytes_field(2, Multiaddr.parse(f"/ip4/1.2.3.4/tcp/{port}").encode()) for port in range(200)
    )
    protocols = b"".join(text_field(3, f"/p/{number}") for number in range(500))
    texts = text_field(3, "a" * (MAX_TEXT + 1)) + text_field(6, "a" * 1000) + text_field(5, "b" * 1000)
    message = decode_identify(texts + addresses + protocols)
    assert len(message.listen_addresses) == MAX_ADDRESSES
    assert len(message.protocols) == MAX_PROTOCOLS
    assert message.protocols[0] == "/p/0"
    assert len(message.agent_version) == len(message.protocol_version) == MAX_TEXT
    with pytest.raises(DecodeError):
        decode_identify(bytes_field(8, bytes(MAX_SIZE)))


def test_what_is_said_twice_counts_once() -> None:
    data = (
        bytes_field(2, ADDRESS.encode()) * 3
        + text_field(3, "/a") * 3
        + text_field(6, "x")
        + text_field(6, "y")
    )
    assert decode_identify(data) == Identify(
        listen_addresses=(ADDRESS,), protocols=("/a",), agent_version="y"
    )


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x00\x00",
        b"\x0b",  # a group
        b"\x0e",
        b"\x09\x00",
        b"\x2a\x01\xff",
        b"\x1a\x01\xff",
        b"\xff" * 12,
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x80\x80\x80\x80\x10\x00",  # field number 2^29
    ],
)
def test_what_is_no_identify_message_does_not_decode(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_identify(data)


def test_fields_that_are_not_known_are_skipped() -> None:
    other = b"\x08\x01" + b"\x39" + bytes(8) + b"\x3d" + bytes(4) + bytes_field(99, b"new") + b"\x30\x05"
    assert decode_identify(other + encode_identify(FULL) + other) == FULL


@given(st.binary(max_size=100))
def test_hostile_bytes_raise_decode_error_only(data: bytes) -> None:
    try:
        message = decode_identify(data)
    except DecodeError:
        return
    assert decode_identify(encode_identify(message)) == message
