"""Signed peer records (libp2p RFC 0002 and 0003), with envelopes that js-libp2p made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import DecodeError, InvalidInput
from pywaku.ids import PeerId
from pywaku.keys import KeyKind, PrivateKey
from pywaku.wire import varint
from pywaku.wire.multiaddr import Multiaddr
from pywaku.wire.peer_record import (
    DOMAIN,
    MAX_ADDRESSES,
    MAX_SIZE,
    PAYLOAD_TYPE,
    Envelope,
    PeerRecord,
    addresses_in,
    decode_envelope,
    decode_record,
    encode_envelope,
    encode_record,
    open_record,
    seal_record,
)
from pywaku.wire.protobuf_lite import bytes_field

SECRET = b"\1" * 32
KEY = PrivateKey.from_bytes("secp256k1", SECRET)
OTHER = PrivateKey.from_bytes("secp256k1", b"\2" * 32)
ADDRESSES = tuple(map(Multiaddr.parse, ("/ip4/192.0.2.1/tcp/60000", "/dns4/node.example/tcp/443/wss")))
RECORD = PeerRecord(KEY.peer_id, 1_700_000_000_000, ADDRESSES)

# RecordEnvelope.seal of @libp2p/peer-record, for the keys with the secret 01…01
BY_JS: dict[KeyKind, str] = {
    "secp256k1": (
        "0a2508021221031b84c5567b126440995d3ed5aaba0565d71e1834604819ff9c17f5e9d5dd078f120203011a530a270025"
        "08021221031b84c5567b126440995d3ed5aaba0565d71e1834604819ff9c17f5e9d5dd078f1080d095ffbc311a0a0a0804"
        "c000020106ea601a150a13360c6e6f64652e6578616d706c650601bbde032a473045022100ef56349fdee4d20dd18f8b74"
        "4c42d524f3d89e56d0198a37aa69fbf492d4614602204a96c51596f24bbc2e1a0ae1b1165e0b4d9d0fd044a30ffd550965"
        "799c3e800d"
    ),
    "ed25519": (
        "0a24080112208a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c120203011a520a26002408"
        "0112208a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c1080d095ffbc311a0a0a0804c000"
        "020106ea601a150a13360c6e6f64652e6578616d706c650601bbde032a40f970b942801a4b609bdd546b6b454ec495e66d"
        "affcaa85b9b83f1b61be3dd831b52a076417cb422515de9de3ec0210e98c4db0ee1fa2387c42c82c5c41415105"
    ),
}


@pytest.mark.parametrize("kind", BY_JS)
def test_records_that_js_libp2p_signed_are_read(kind: KeyKind) -> None:
    peer = PrivateKey(kind, SECRET).peer_id
    assert open_record(bytes.fromhex(BY_JS[kind])) == PeerRecord(peer, 1_700_000_000_000, ADDRESSES)


def test_records_are_sealed_to_the_byte_as_js_libp2p_seals_them() -> None:
    key = PrivateKey("ed25519", SECRET)
    record = PeerRecord(key.peer_id, RECORD.seq, ADDRESSES)
    assert seal_record(record, key).hex() == BY_JS["ed25519"]


def test_what_is_sealed_opens() -> None:
    assert open_record(seal_record(RECORD, KEY)) == RECORD


def test_the_signature_covers_domain_type_and_payload_each_with_its_length() -> None:
    envelope = decode_envelope(seal_record(RECORD, KEY))
    parts = (DOMAIN, PAYLOAD_TYPE, envelope.payload)
    signed = b"".join(varint.encode(len(part)) + part for part in parts)
    assert KEY.public.verify(signed, envelope.signature)


def test_a_record_is_only_signed_by_its_peer() -> None:
    with pytest.raises(InvalidInput, match="key of its peer"):
        seal_record(RECORD, OTHER)


def test_a_record_signed_by_somebody_else_is_refused() -> None:
    theirs = decode_envelope(seal_record(PeerRecord(OTHER.peer_id, 1), OTHER))
    forged = Envelope(theirs.public_key, PAYLOAD_TYPE, encode_record(RECORD), theirs.signature)
    with pytest.raises(DecodeError, match="another peer"):
        open_record(encode_envelope(forged))


@pytest.mark.parametrize("field", ["payload", "signature", "payload_type"])
def test_a_changed_envelope_is_refused(field: str) -> None:
    envelope = decode_envelope(seal_record(RECORD, KEY))
    values = {
        name: getattr(envelope, name) for name in ("public_key", "payload_type", "payload", "signature")
    }
    changed = bytearray(values[field])
    changed[-1] ^= 1
    values[field] = bytes(changed)
    with pytest.raises(DecodeError):
        open_record(encode_envelope(Envelope(**values)))


def test_a_record_signed_for_another_purpose_is_refused() -> None:
    payload = encode_record(RECORD)
    for domain in (b"libp2p-relay-rsvp", b""):
        signed = b"".join(varint.encode(len(part)) + part for part in (domain, PAYLOAD_TYPE, payload))
        envelope = Envelope(KEY.public.encode(), PAYLOAD_TYPE, payload, KEY.sign(signed))
        with pytest.raises(DecodeError, match="not signed"):
            open_record(encode_envelope(envelope))


def test_the_addresses_of_another_peer_are_not_taken() -> None:
    sealed = seal_record(RECORD, KEY)
    assert tuple(addresses_in(KEY.peer_id, sealed)) == ADDRESSES
    with pytest.raises(DecodeError, match="another peer"):
        addresses_in(OTHER.peer_id, sealed)


def test_an_envelope_is_bounded() -> None:
    with pytest.raises(DecodeError, match="bytes"):
        open_record(bytes(MAX_SIZE + 1))


def test_the_number_of_addresses_is_bounded_and_strange_ones_are_left_out() -> None:
    infos = [
        bytes_field(3, bytes_field(1, Multiaddr.parse(f"/ip4/1.2.3.4/tcp/{n}").encode())) for n in range(500)
    ]
    strange = bytes_field(3, bytes_field(1, b"\xff\xff")) + bytes_field(3, b"") + bytes_field(3, b"\x08\x01")
    record = decode_record(bytes_field(1, KEY.peer_id) + strange + b"".join(infos))
    assert len(record.addresses) == MAX_ADDRESSES


@pytest.mark.parametrize("data", [b"", bytes_field(1, b""), bytes_field(1, b"\x00"), b"\x08\x01"])
def test_a_record_without_a_peer_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_record(data)


def test_a_number_beyond_64_bits_is_refused() -> None:
    with pytest.raises(InvalidInput, match="64 bits"):
        encode_record(PeerRecord(KEY.peer_id, 1 << 64))


@given(st.integers(0, (1 << 64) - 1), st.lists(st.sampled_from(ADDRESSES), unique=True))
def test_records_and_their_encodings_go_round(seq: int, addresses: list[Multiaddr]) -> None:
    record = PeerRecord(PeerId(KEY.peer_id), seq, tuple(addresses))
    assert decode_record(encode_record(record)) == record
    assert open_record(seal_record(record, KEY)) == record
