"""Signed peer records: the addresses of a peer, vouched for by its key (libp2p RFC 0002 and 0003).

A record travels in an envelope that says who signed what for which purpose. An envelope that `open_record`
accepts holds the record of the peer whose key signed it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pywaku.errors import DecodeError, InvalidInput
from pywaku.ids import PeerId
from pywaku.keys import PrivateKey, PublicKey
from pywaku.wire import varint
from pywaku.wire.multiaddr import Multiaddr
from pywaku.wire.protobuf_lite import bytes_field, read_fields

DOMAIN: Final = b"libp2p-peer-record"
PAYLOAD_TYPE: Final = b"\x03\x01"

MAX_SIZE: Final = 8 * 1024
"""Bytes of an envelope; those in use have a few hundred."""
MAX_ADDRESSES: Final = 64
_MAX_SEQ: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class PeerRecord:
    """Where a peer can be reached. Of two records of a peer the one with the higher `seq` holds."""

    peer: PeerId
    seq: int
    addresses: tuple[Multiaddr, ...] = ()


@dataclass(frozen=True, slots=True)
class Envelope:
    """Something signed, not yet verified (RFC 0002, "Wire Format")."""

    public_key: bytes
    payload_type: bytes
    payload: bytes
    signature: bytes


def seal_record(record: PeerRecord, key: PrivateKey) -> bytes:
    """The record in an envelope, signed with the key of its peer; raises `InvalidInput` for another's key."""
    if key.peer_id != record.peer:
        raise InvalidInput("a peer record is signed with the key of its peer")
    payload = encode_record(record)
    signature = key.sign(_signed(PAYLOAD_TYPE, payload))
    return encode_envelope(Envelope(key.public.encode(), PAYLOAD_TYPE, payload, signature))


def open_record(data: bytes) -> PeerRecord:
    """The record in an envelope, once its signature is verified; raises `DecodeError`."""
    envelope = decode_envelope(data)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise DecodeError(f"an envelope with {envelope.payload_type.hex()[:16]} instead of a peer record")
    record = decode_record(envelope.payload)
    key = PublicKey.decode(envelope.public_key)
    if key.peer_id != record.peer:
        raise DecodeError("a peer record is signed by the key of another peer")
    if not key.verify(_signed(PAYLOAD_TYPE, envelope.payload), envelope.signature):
        raise DecodeError("a peer record is not signed by its key")
    return record


def addresses_in(peer: PeerId, data: bytes) -> Sequence[Multiaddr]:
    """Where `peer` can be reached, by its own signed record; raises `DecodeError`."""
    record = open_record(data)
    if record.peer != peer:
        raise DecodeError("a peer record is that of another peer")
    return record.addresses


def encode_record(record: PeerRecord) -> bytes:
    """The record in protobuf (RFC 0003, "Address Record Format")."""
    if not 0 <= record.seq <= _MAX_SEQ:
        raise InvalidInput(f"a sequence number has 64 bits; {record.seq} does not fit")
    parts = [bytes_field(1, record.peer), b"\x10" + varint.encode(record.seq)]
    parts += (bytes_field(3, bytes_field(1, address.encode())) for address in record.addresses)
    return b"".join(parts)


def decode_record(data: bytes) -> PeerRecord:
    """The record from protobuf; raises `DecodeError`. Addresses that are not understood are left out."""
    peer: bytes = b""
    seq = 0
    addresses: dict[Multiaddr, None] = {}
    for number, value in read_fields(data):
        if number == 1 and isinstance(value, bytes):
            peer = value
        elif number == 2 and isinstance(value, int):
            seq = value
        elif number == 3 and isinstance(value, bytes) and len(addresses) < MAX_ADDRESSES:
            address = _address(value)
            if address is not None:
                addresses[address] = None
    try:
        return PeerRecord(PeerId.from_bytes(peer), seq, tuple(addresses))
    except InvalidInput as error:
        raise DecodeError(str(error)) from None


def encode_envelope(envelope: Envelope) -> bytes:
    """The envelope in protobuf."""
    return (
        bytes_field(1, envelope.public_key)
        + bytes_field(2, envelope.payload_type)
        + bytes_field(3, envelope.payload)
        + bytes_field(5, envelope.signature)
    )


def decode_envelope(data: bytes) -> Envelope:
    """The envelope from protobuf, not verified; raises `DecodeError`."""
    if len(data) > MAX_SIZE:
        raise DecodeError(f"an envelope has up to {MAX_SIZE} bytes, not {len(data)}")
    fields = {number: value for number, value in read_fields(data) if isinstance(value, bytes)}
    try:
        return Envelope(fields[1], fields[2], fields[3], fields[5])
    except KeyError as missing:
        raise DecodeError(f"an envelope lacks its field {missing}") from None


def _signed(payload_type: bytes, payload: bytes) -> bytes:
    """What is signed: purpose, type and payload, each after its length (RFC 0002, "Signature Production")."""
    return b"".join(varint.encode(len(part)) + part for part in (DOMAIN, payload_type, payload))


def _address(info: bytes) -> Multiaddr | None:
    """The address in an `AddressInfo`; None where there is none that we understand."""
    found = next((value for number, value in read_fields(info) if number == 1), None)
    if not isinstance(found, bytes):
        return None
    try:
        return Multiaddr.decode(found)
    except DecodeError:
        return None
