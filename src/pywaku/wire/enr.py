"""Node records: what a node says of itself, signed (EIP-778, 31/WAKU2-ENR).

A record that decodes is a valid one: canonical, small enough, signed by the key that it names. Its values are
another matter: a property whose value makes no sense is as good as absent.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from types import MappingProxyType
from typing import Final, Self, Unpack

from Crypto.Hash import keccak

from pywaku.errors import DecodeError, InvalidInput
from pywaku.ids import PeerId
from pywaku.keys import PrivateKey, PublicKey
from pywaku.wire import rlp
from pywaku.wire.enr_fields import EnrFields, apply_fields, whole
from pywaku.wire.enr_waku import (
    Capability,
    RelayShards,
    decode_bit_vector,
    decode_capabilities,
    decode_index_list,
    decode_multiaddrs,
)
from pywaku.wire.multiaddr import Multiaddr

__all__ = ["MAX_SIZE", "Capability", "Enr", "EnrFields", "RelayShards"]

MAX_SIZE: Final = 300
_PREFIX: Final = "enr:"
_LONGEST_TEXT: Final = len(_PREFIX) + MAX_SIZE * 4 // 3
_MAX_SEQ: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True, repr=False)
class Enr:
    """A valid node record of the identity scheme v4. Made by `create`, `decode` or `parse`."""

    _encoded: bytes
    seq: int = field(compare=False)
    pairs: Mapping[bytes, rlp.Item] = field(compare=False)
    """All keys and their values, sorted; a value is bytes, or a list where others put one."""
    signature: bytes = field(compare=False)
    public_key: PublicKey = field(compare=False)

    @classmethod
    def create(cls, key: PrivateKey, *, seq: int = 1, **fields: Unpack[EnrFields]) -> Self:
        """A record of the node with this secp256k1 key; raises `InvalidInput` for what does not fit into one.

        `multiaddrs` takes the node's addresses as they are dialled: its own peer id is left out, as are those
        that `ip` and `tcp` or `udp` say already, and circuit addresses are stored as the spec demands.
        """
        return cls._sign(key, seq, apply_fields({}, key.peer_id, fields))

    def update(self, key: PrivateKey, **changes: Unpack[EnrFields]) -> Self:
        """The record with these changes and the next sequence number; itself if nothing changes."""
        if key.public != self.public_key:
            raise InvalidInput("a record is updated with the key that it was signed with")
        pairs = apply_fields(dict(self.pairs), self.peer_id, changes)
        return self if pairs == self.pairs else self._sign(key, self.seq + 1, pairs)

    @classmethod
    def _sign(cls, key: PrivateKey, seq: int, pairs: dict[bytes, rlp.Item]) -> Self:
        if key.kind != "secp256k1":
            raise InvalidInput("node records are signed with secp256k1 keys")
        if not 0 <= seq <= _MAX_SEQ:
            raise InvalidInput(f"a sequence number has 64 bits; {seq} does not fit")
        pairs = dict(sorted((pairs | {b"id": b"v4", b"secp256k1": key.public.raw}).items()))
        content = _content(seq, pairs)
        signature = key.sign_digest(_keccak256(rlp.encode(content)))
        encoded = rlp.encode([signature, *content])
        if len(encoded) > MAX_SIZE:
            raise InvalidInput(f"a node record has up to {MAX_SIZE} bytes, not {len(encoded)}: say less")
        return cls(encoded, seq, MappingProxyType(pairs), signature, key.public)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """A record from its bytes; raises `DecodeError` where they are no valid one."""
        if len(data) > MAX_SIZE:
            raise DecodeError(f"a node record has up to {MAX_SIZE} bytes, not {len(data)}")
        record = rlp.decode(data)
        if isinstance(record, bytes) or len(record) < 2 or len(record) % 2:
            raise DecodeError("a node record is a list of a signature, a number and pairs")
        signature, number, *rest = record
        seq = rlp.decode_int(number)
        pairs: dict[bytes, rlp.Item] = {}
        last: bytes | None = None
        for key, value in zip(rest[::2], rest[1::2], strict=True):
            if not isinstance(key, bytes) or (last is not None and key <= last):
                raise DecodeError("the keys of a node record are sorted and unique")
            pairs[key] = value
            last = key
        if pairs.get(b"id") != b"v4":
            raise DecodeError("a node record of an identity scheme that is not v4")
        raw = pairs.get(b"secp256k1")
        if not isinstance(raw, bytes) or not isinstance(signature, bytes):
            raise DecodeError("a node record has a secp256k1 key and a signature")
        public_key = PublicKey("secp256k1", raw)
        if not public_key.verify_digest(_keccak256(rlp.encode(_content(seq, pairs))), signature):
            raise DecodeError("a node record is not signed by its key")
        return cls(data, seq, MappingProxyType(pairs), signature, public_key)

    @classmethod
    def parse(cls, text: str) -> Self:
        """A record from its text (`enr:…`); raises `DecodeError` where it is none."""
        if len(text) > _LONGEST_TEXT or not text.startswith(_PREFIX):
            raise DecodeError(f"a node record starts with {_PREFIX} and has up to {_LONGEST_TEXT} characters")
        body = text[len(_PREFIX) :]
        try:
            data = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise DecodeError("a node record is written in URL-safe base64 without padding") from None
        if _base64(data) != body:
            raise DecodeError("a node record is written in URL-safe base64 without padding")
        return cls.decode(data)

    def encode(self) -> bytes:
        """The record as RLP."""
        return self._encoded

    @property
    def text(self) -> str:
        """The record as text (`enr:…`)."""
        return _PREFIX + _base64(self._encoded)

    @property
    def node_id(self) -> bytes:
        """The node's address in the discovery tables, 32 bytes."""
        return _keccak256(self.public_key.uncompressed)

    @property
    def peer_id(self) -> PeerId:
        """The node's libp2p peer id, deduced from its key."""
        return self.public_key.peer_id

    @property
    def ip(self) -> IPv4Address | None:
        """Its IPv4 address."""
        value = self.pairs.get(b"ip")
        return IPv4Address(value) if isinstance(value, bytes) and len(value) == 4 else None

    @property
    def ip6(self) -> IPv6Address | None:
        """Its IPv6 address."""
        value = self.pairs.get(b"ip6")
        return IPv6Address(value) if isinstance(value, bytes) and len(value) == 16 else None

    @property
    def tcp(self) -> int | None:
        """Its TCP port."""
        return self._port(b"tcp")

    @property
    def udp(self) -> int | None:
        """Its UDP port."""
        return self._port(b"udp")

    @property
    def tcp6(self) -> int | None:
        """Its TCP port on IPv6: the one for both unless it has one of its own."""
        return self._port(b"tcp6") if b"tcp6" in self.pairs else self.tcp

    @property
    def udp6(self) -> int | None:
        """Its UDP port on IPv6: the one for both unless it has one of its own."""
        return self._port(b"udp6") if b"udp6" in self.pairs else self.udp

    @property
    def capabilities(self) -> Capability | None:
        """What the node says it serves (`waku2`); None where it does not say."""
        try:
            return decode_capabilities(self._bytes(b"waku2"))
        except DecodeError:
            return None

    @property
    def is_waku(self) -> bool:
        """Does the node serve any Waku protocol? Who discovers nodes by discv5 must pass over others."""
        return bool(self.capabilities)

    @property
    def shards(self) -> RelayShards | None:
        """The shards the node relays, by `rs` or `rsv`; None where it does not say, or says it both ways.

        In the bit vector shard 0 is the right-most bit of all 128 bytes, as the spec says.
        """
        if b"rs" in self.pairs and b"rsv" in self.pairs:
            return None
        try:
            if b"rsv" in self.pairs:
                return decode_bit_vector(self._bytes(b"rsv"))
            return decode_index_list(self._bytes(b"rs"))
        except DecodeError:
            return None

    @property
    def multiaddrs(self) -> tuple[Multiaddr, ...]:
        """The addresses of the `multiaddrs` key, without the node's peer id; circuit addresses are whole."""
        try:
            stored = decode_multiaddrs(self._bytes(b"multiaddrs"))
        except DecodeError:
            return ()
        peer = self.peer_id
        return tuple(whole(address, peer) for address in stored)

    @property
    def dial_addresses(self) -> tuple[Multiaddr, ...]:
        """Where to connect to the node, each with its peer id."""
        ip, ip6, tcp, tcp6 = self.ip, self.ip6, self.tcp, self.tcp6
        found: list[Multiaddr] = []
        if ip is not None and tcp is not None:
            found.append(Multiaddr.parse(f"/ip4/{ip}/tcp/{tcp}"))
        if ip6 is not None and tcp6 is not None:
            found.append(Multiaddr.parse(f"/ip6/{ip6}/tcp/{tcp6}"))
        found += self.multiaddrs
        peer = self.peer_id
        return tuple(dict.fromkeys(address.with_peer(peer) for address in found))

    def _bytes(self, key: bytes) -> bytes:
        value = self.pairs.get(key)
        if not isinstance(value, bytes):
            raise DecodeError("the record has no such value")
        return value

    def _port(self, key: bytes) -> int | None:
        try:
            return rlp.decode_int(self._bytes(key), size=2) or None
        except DecodeError:
            return None

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Enr({self.text!r})"


def _content(seq: int, pairs: Mapping[bytes, rlp.Item]) -> list[rlp.Item]:
    content: list[rlp.Item] = [rlp.encode_int(seq)]
    for key, value in pairs.items():
        content += (key, value)
    return content


def _keccak256(data: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=data).digest()


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
