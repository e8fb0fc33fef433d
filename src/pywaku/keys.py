"""Identity keys: secp256k1 and ed25519 to sign with, those and RSA to verify with (libp2p "Peer Ids").

A Waku node's identity is a secp256k1 key: its peer id and its node record both come from it. Other kinds of
keys are met in the peers of other networks.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Final, Literal, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import (
    Prehashed,
    decode_dss_signature,
    encode_dss_signature,
)

from pywaku.errors import DecodeError, InvalidInput
from pywaku.ids import PeerId

KeyKind = Literal["secp256k1", "ed25519"]
PublicKeyKind = Literal["secp256k1", "ed25519", "rsa"]

SECP256K1_ORDER: Final = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
_HALF_ORDER: Final = SECP256K1_ORDER // 2
_CURVE: Final = ec.SECP256K1()
_DIGEST: Final = Prehashed(hashes.SHA256())
_SIGNING: Final = ec.ECDSA(_DIGEST, deterministic_signing=True)  # RFC 6979: no nonce, no chance to repeat one
_VERIFYING: Final = ec.ECDSA(_DIGEST)

_CODE_OF: Final[dict[PublicKeyKind, int]] = {"rsa": 0, "ed25519": 1, "secp256k1": 2}
_KIND_OF: Final[dict[int, PublicKeyKind]] = {code: kind for kind, code in _CODE_OF.items()}
_RSA_BITS: Final = range(2048, 8192 + 1)  # what go-libp2p accepts
_LONGEST_RSA_EXPONENT: Final = 32  # bits; a longer one is only good for costing us time
_LONGEST_RAW: Final = 2048  # an RSA key of 8192 bits takes 1062 bytes

_Public = ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey
_Private = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


class PublicKey:
    """A public key. `raw` is 33 bytes (compressed) for secp256k1, 32 for ed25519, DER (SPKI) for RSA."""

    __slots__ = ("_key", "kind", "raw")

    kind: PublicKeyKind
    raw: bytes

    def __init__(self, kind: PublicKeyKind, raw: bytes) -> None:
        """A key from its raw bytes; raises `DecodeError` where they are no key of that kind."""
        self.kind = kind
        self.raw = bytes(raw)
        self._key = _load(kind, self.raw)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """A key from libp2p's protobuf `PublicKey`, of which only the deterministic encoding is accepted."""
        if len(data) < 4 or data[0] != 0x08 or data[2] != 0x12:
            raise DecodeError("a public key is a key type and key bytes, in this order")
        kind = _KIND_OF.get(data[1])
        if kind is None:
            raise DecodeError(f"public keys of type {data[1]} are not supported")
        length, start = data[3], 4
        if length >= 0x80:
            if len(data) < 5 or not 0 < data[4] < 0x80:
                raise DecodeError("the length of a public key is not a proper varint")
            length, start = length & 0x7F | data[4] << 7, 5
        if length != len(data) - start:
            raise DecodeError(f"a public key of {len(data) - start} bytes says that it has {length}")
        return cls(kind, data[start:])

    @classmethod
    def from_uncompressed(cls, point: bytes) -> Self:
        """A secp256k1 key from its coordinates `x ‖ y`, with a 4 before them or not; raises `DecodeError`."""
        coordinates = point[1:] if len(point) == 65 and point[0] == 4 else point
        if len(coordinates) != 64:
            raise DecodeError(
                f"an uncompressed public key has 64 bytes, or 65 of which the first is 4, not {len(point)}"
            )
        key = cls("secp256k1", bytes([2 + (coordinates[-1] & 1)]) + coordinates[:32])
        if key.uncompressed != coordinates:
            raise DecodeError("not a point on the curve secp256k1")
        return key

    @classmethod
    def of_peer_id(cls, peer: PeerId) -> Self | None:
        """The key that a peer id holds inline; None where the id is a hash, or holds no key we know."""
        if peer[:1] != b"\0":
            return None
        try:
            return cls.decode(peer[2:])
        except DecodeError:
            return None

    @property
    def peer_id(self) -> PeerId:
        """The peer that this key is the identity of."""
        return PeerId.of_public_key(self.encode())

    @property
    def uncompressed(self) -> bytes:
        """A secp256k1 key as its coordinates `x ‖ y`, 64 bytes; raises `InvalidInput` for others."""
        if not isinstance(self._key, ec.EllipticCurvePublicKey):
            raise InvalidInput(f"{self.kind} keys have no coordinates")
        point = self._key.public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        )
        return point[1:]

    def encode(self) -> bytes:
        """The key as libp2p's protobuf `PublicKey`."""
        length = len(self.raw)
        prefix = (length,) if length < 0x80 else (length & 0x7F | 0x80, length >> 7)
        return bytes((0x08, _CODE_OF[self.kind], 0x12, *prefix)) + self.raw

    def verify(self, data: bytes, signature: bytes) -> bool:
        """Did the holder of this key sign `data`? (libp2p "How keys are encoded and messages signed")"""
        key = self._key
        try:
            if isinstance(key, ec.EllipticCurvePublicKey):
                key.verify(signature, hashlib.sha256(data).digest(), _VERIFYING)
            elif isinstance(key, ed25519.Ed25519PublicKey):
                key.verify(signature, data)
            else:
                key.verify(signature, data, padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            return False
        return True

    def verify_digest(self, digest: bytes, signature: bytes) -> bool:
        """Is `signature` (`r ‖ s`, 64 bytes, low s) this secp256k1 key's over a 32-byte digest?"""
        if not isinstance(self._key, ec.EllipticCurvePublicKey):
            raise InvalidInput(f"{self.kind} keys do not sign digests")
        if len(signature) != 64 or len(digest) != 32:
            return False
        r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
        if not (0 < r < SECP256K1_ORDER and 0 < s <= _HALF_ORDER):
            return False
        try:
            self._key.verify(encode_dss_signature(r, s), digest, _VERIFYING)
        except InvalidSignature:
            return False
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PublicKey):
            return NotImplemented
        return self.raw == other.raw and self.kind == other.kind

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"PublicKey({self.kind!r}, {self.raw.hex()})"


class PrivateKey:
    """A secret key with its public one. Its text form never shows the secret; `raw` does."""

    __slots__ = ("_key", "kind", "public", "raw")

    kind: KeyKind
    raw: bytes
    public: PublicKey

    def __init__(self, kind: KeyKind, raw: bytes) -> None:
        """A key from its 32 secret bytes; raises `InvalidInput` where they are none."""
        self.kind = kind
        self.raw = bytes(raw)
        if len(self.raw) != 32:
            raise InvalidInput(f"a {kind} private key has 32 bytes, not {len(self.raw)}")
        self._key: _Private
        if kind == "ed25519":
            self._key = ed25519.Ed25519PrivateKey.from_private_bytes(self.raw)
            public = self._key.public_key().public_bytes_raw()
        elif kind == "secp256k1":
            number = int.from_bytes(self.raw)
            if not 0 < number < SECP256K1_ORDER:
                raise InvalidInput("a secp256k1 private key lies between 0 and the order of the curve")
            self._key = ec.derive_private_key(number, _CURVE)
            public = self._key.public_key().public_bytes(
                serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint
            )
        else:
            raise InvalidInput(f"private keys are of kind secp256k1 or ed25519, not {kind!r}")
        self.public = PublicKey(kind, public)

    @classmethod
    def generate(cls, kind: KeyKind = "secp256k1") -> Self:
        """A new key."""
        while True:
            raw = secrets.token_bytes(32)
            if kind != "secp256k1" or 0 < int.from_bytes(raw) < SECP256K1_ORDER:
                return cls(kind, raw)

    @classmethod
    def from_bytes(cls, kind: KeyKind, raw: bytes) -> Self:
        """A key from its 32 secret bytes; raises `InvalidInput` where they are none."""
        return cls(kind, raw)

    @classmethod
    def from_hex(cls, text: str, kind: KeyKind = "secp256k1") -> Self:
        """A key from 64 hexadecimal digits, with or without `0x`; raises `InvalidInput`."""
        try:
            raw = bytes.fromhex(text.strip().removeprefix("0x"))
        except ValueError:
            raise InvalidInput("a private key is written as 64 hexadecimal digits") from None
        return cls(kind, raw)

    @property
    def peer_id(self) -> PeerId:
        """The peer that this key is the identity of."""
        return self.public.peer_id

    def sign(self, data: bytes) -> bytes:
        """Sign `data` as libp2p does: ed25519, or ECDSA over sha2-256 in DER with a low s."""
        if isinstance(self._key, ed25519.Ed25519PrivateKey):
            return self._key.sign(data)
        # js and nim peers refuse a high s, which OpenSSL produces half of the time.
        return encode_dss_signature(*_sign_low(self._key, hashlib.sha256(data).digest()))

    def sign_digest(self, digest: bytes) -> bytes:
        """Sign a 32-byte digest with a secp256k1 key: `r ‖ s`, 64 bytes, low s, deterministic (RFC 6979)."""
        if not isinstance(self._key, ec.EllipticCurvePrivateKey):
            raise InvalidInput(f"{self.kind} keys do not sign digests")
        if len(digest) != 32:
            raise InvalidInput(f"a digest has 32 bytes, not {len(digest)}")
        r, s = _sign_low(self._key, digest)
        return r.to_bytes(32) + s.to_bytes(32)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PrivateKey):
            return NotImplemented
        return self.kind == other.kind and secrets.compare_digest(self.raw, other.raw)

    def __hash__(self) -> int:
        return hash(self.public)

    def __repr__(self) -> str:
        return f"<PrivateKey {self.kind} of {self.peer_id}>"


def _sign_low(key: ec.EllipticCurvePrivateKey, digest: bytes) -> tuple[int, int]:
    r, s = decode_dss_signature(key.sign(digest, _SIGNING))
    return r, min(s, SECP256K1_ORDER - s)


def _load(kind: PublicKeyKind, raw: bytes) -> _Public:
    """The usable form of a raw public key; raises `DecodeError`."""
    if kind == "ed25519":
        if len(raw) != 32:
            raise DecodeError(f"an ed25519 public key has 32 bytes, not {len(raw)}")
        return ed25519.Ed25519PublicKey.from_public_bytes(raw)
    if kind == "secp256k1":
        if len(raw) != 33:
            raise DecodeError(f"a compressed secp256k1 public key has 33 bytes, not {len(raw)}")
        try:
            return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, raw)
        except ValueError:
            raise DecodeError("not a point on the curve secp256k1") from None
    if len(raw) > _LONGEST_RAW:
        raise DecodeError(f"an RSA public key of {len(raw)} bytes is too long")
    try:
        key = serialization.load_der_public_key(raw)
    except (ValueError, UnsupportedAlgorithm):
        raise DecodeError("not an RSA public key") from None
    if not isinstance(key, rsa.RSAPublicKey):
        raise DecodeError("not an RSA public key")
    if key.key_size not in _RSA_BITS:
        raise DecodeError(f"RSA keys of {key.key_size} bits are not accepted")
    if key.public_numbers().e.bit_length() > _LONGEST_RSA_EXPONENT:
        raise DecodeError("an RSA exponent this long is not accepted")
    return key
