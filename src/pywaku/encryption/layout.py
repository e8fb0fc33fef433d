"""What version 1 encrypts (26/WAKU2-PAYLOAD, ABNF): flags, payload-length, payload, padding and signature."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from pywaku.encryption.signatures import SIGNATURE_SIZE, VBase, recover, sign
from pywaku.errors import DecryptionFailed, InvalidInput
from pywaku.keys import PrivateKey, PublicKey

MAX_PAYLOAD_SIZE: Final = (1 << 24) - 1
"""The two bits of the flags that tell the size of `payload-length` go up to three bytes."""

PADDING_MULTIPLE: Final = 256
"""What the size of `data` is made a multiple of, for it reveals less (Padding)."""

_LENGTH_SIZE: Final = 0b011
_SIGNED: Final = 0b100


@dataclass(frozen=True, slots=True)
class Opened:
    """What was in an encrypted payload, and whose signature; None where it is not signed."""

    payload: bytes
    signature_public_key: PublicKey | None = None


@dataclass(frozen=True, slots=True)
class Signing:
    """How payloads are signed, and whose are taken."""

    sign_with: PrivateKey | None = None
    signers: frozenset[PublicKey] | None = None
    """None takes payloads of anybody, signed or not."""
    v_base: VBase = 0

    @classmethod
    def of(
        cls,
        sign_with: PrivateKey | None = None,
        signers: Iterable[PublicKey] | None = None,
        v_base: VBase = 0,
    ) -> Signing:
        """From the options of an encryption; raises `InvalidInput`."""
        if sign_with is not None:
            require_secp256k1("sign_with", sign_with, PrivateKey)
        if signers is not None:
            signers = frozenset(signers)
            if not signers:
                raise InvalidInput("signers: with none of them no payload would be taken; None takes all")
            for signer in signers:
                require_secp256k1("signers", signer, PublicKey)
        if v_base not in (0, 27):
            raise InvalidInput(
                f"v_base: is 0, as others have it, or 27, as the specification does, not {v_base!r}"
            )
        return cls(sign_with, signers, v_base)


def encode_data(payload: bytes, signing: Signing, padding: bytes | None = None) -> bytes:
    """The `data` of a payload, signed, as it is before encryption.

    Unless given, `padding` is chance, and the size becomes a multiple of 256.
    """
    if not isinstance(payload, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"what is encrypted is bytes, not {type(payload).__name__}")
    if len(payload) > MAX_PAYLOAD_SIZE:
        raise InvalidInput(f"a version 1 payload has at most {MAX_PAYLOAD_SIZE} bytes, not {len(payload)}")
    length_size = max(1, -(-len(payload).bit_length() // 8))
    key = signing.sign_with
    size = 1 + length_size + len(payload) + (SIGNATURE_SIZE if key else 0)
    if padding is None:
        padding = secrets.token_bytes(-size % PADDING_MULTIPLE)
    data = b"".join(
        (
            bytes([length_size | (_SIGNED if key else 0)]),
            len(payload).to_bytes(length_size, "little"),
            payload,
            padding,
        )
    )
    return data if key is None else data + sign(data, key, signing.v_base)


def decode_data(data: bytes, signers: Collection[PublicKey] | None = None) -> Opened:
    """What is in decrypted `data`, and who signed it; raises `DecryptionFailed`.

    Whoever had the key made these bytes, which does not make them well-formed.
    """
    if not data:
        raise _malformed("it has no flags")
    flags, end = data[0], len(data)
    if flags & _SIGNED:
        end -= SIGNATURE_SIZE
    start = 1 + (flags & _LENGTH_SIZE)
    if start > end:
        raise _malformed(f"{len(data)} bytes are too few for what its flags announce")
    length = int.from_bytes(data[1:start], "little")
    if length > end - start:
        raise _malformed(f"of a payload of {length} bytes there are {end - start}")
    signer = recover(data[:end], data[end:]) if flags & _SIGNED else None
    if signers is not None:
        if signer is None:
            raise DecryptionFailed("it is not signed, and has to be", reason="signer")
        if signer not in signers:
            raise DecryptionFailed(f"it is signed by somebody else: {signer.raw.hex()}", reason="signer")
    return Opened(data[start : start + length], signer)


def require_secp256k1(name: str, key: object, kind: type[PrivateKey] | type[PublicKey]) -> None:
    """Keys of other kinds sign no digests and agree on no secrets; raises `InvalidInput`."""
    if not isinstance(key, kind):
        raise InvalidInput(f"{name}: is a {kind.__name__}, not {type(key).__name__}")
    if key.kind != "secp256k1":
        raise InvalidInput(f"{name}: is a secp256k1 key, not {key.kind}")


def _malformed(why: str) -> DecryptionFailed:
    return DecryptionFailed(f"what was encrypted is not laid out as version 1: {why}", reason="format")
