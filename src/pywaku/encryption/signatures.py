"""Signatures that tell who signed (26/WAKU2-PAYLOAD, Signature): `r ‖ s ‖ v` over a Keccak-256 hash.

They name no key. `v` says which of two possible ones it is, so that it can be computed from the signature and
what was signed (Ethereum "Yellow paper", appendix F).
"""

from __future__ import annotations

from typing import Final, Literal

from Crypto.Hash import keccak

from pywaku.encryption.curve import Point, combine, point_of
from pywaku.errors import DecryptionFailed
from pywaku.keys import SECP256K1_ORDER, PrivateKey, PublicKey

SIGNATURE_SIZE: Final = 65

VBase = Literal[0, 27]
"""What `v` counts from.

The specification wants 27 or 28. What js-waku writes, and all that it can read, is 0 or 1.
"""

_PARITY_OF_V: Final = {0: False, 1: True, 27: False, 28: True}


def sign(data: bytes, key: PrivateKey, v_base: VBase = 0) -> bytes:
    """Sign the Keccak-256 hash of `data`; deterministic (RFC 6979), with a low s."""
    digest = _hash(data)
    signature = key.sign_digest(digest)
    r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
    # The nonce is not known here, but its point follows from what is public: R = (z·G + r·Q) / s.
    inverse = pow(s, -1, SECP256K1_ORDER)
    nonce = combine(int.from_bytes(digest) * inverse, r * inverse, _point(key.public))
    if nonce is None or nonce[0] != r:  # an x beyond the order of the curve: once in 2^128 signatures
        raise ArithmeticError("this signature has no v of two values")
    return signature + bytes([v_base + (nonce[1] & 1)])


def recover(data: bytes, signature: bytes) -> PublicKey:
    """Who signed `data`; raises `DecryptionFailed` where that is nobody. `v` may count from 0 or 27."""
    odd = _PARITY_OF_V.get(signature[64]) if len(signature) == SIGNATURE_SIZE else None
    if odd is None:
        raise _invalid("it is not r, s and a v of 27 or 28, or of 0 or 1")
    r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:64])
    nonce = point_of(r, odd=odd)
    if not 0 < r < SECP256K1_ORDER or nonce is None:
        raise _invalid("its r belongs to no point")
    digest = _hash(data)
    inverse = pow(r, -1, SECP256K1_ORDER)
    signer = combine(-int.from_bytes(digest) * inverse, s * inverse, nonce)
    if signer is None:
        raise _invalid("no key makes it")
    key = PublicKey.from_uncompressed(signer[0].to_bytes(32) + signer[1].to_bytes(32))
    # True by construction for an s in range; but this is checked without any arithmetic of ours. It refuses a
    # high s, with which anybody could make a second signature of the first.
    if not key.verify_digest(digest, signature[:64]):
        raise _invalid("its s is out of range")
    return key


def _hash(data: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=data).digest()


def _point(key: PublicKey) -> Point:
    coordinates = key.uncompressed
    return int.from_bytes(coordinates[:32]), int.from_bytes(coordinates[32:])


def _invalid(why: str) -> DecryptionFailed:
    return DecryptionFailed(f"the signature is not valid: {why}", reason="signature")
