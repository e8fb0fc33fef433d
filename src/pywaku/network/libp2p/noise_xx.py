"""The handshake `Noise_XX_25519_ChaChaPoly_SHA256` of the Noise Protocol Framework, without libp2p's part.

-> e
<- e, ee, s, es
-> s, se
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from pywaku.errors import DecodeError

TAG_SIZE: Final = 16
KEY_SIZE: Final = 32
pack_nonce: Final = struct.Struct(
    "<4xQ"
).pack  # Noise section 12.3: four zero bytes, 64-bit little-endian counter

_NAME: Final = b"Noise_XX_25519_ChaChaPoly_SHA256"  # 32 bytes, so that it is its own initial hash
_PATTERN: Final = (("e",), ("e", "ee", "s", "es"), ("s", "se"))


class HandshakeError(DecodeError):
    """The peer's handshake is not one that can be trusted; the connection must be closed."""


class XxHandshake:
    """One side of the handshake: `write` and `read` in turn, the initiator writing first, then `split`."""

    def __init__(
        self, initiator: bool, static: X25519PrivateKey, ephemeral: X25519PrivateKey, prologue: bytes = b""
    ) -> None:
        self.remote_static = b""
        self._initiator = initiator
        self._static = static
        self._ephemeral = ephemeral
        self._remote_ephemeral = b""
        self._turn = 0
        self._chaining_key = _NAME
        self._hash = _NAME
        self._cipher: ChaCha20Poly1305 | None = None
        self._nonce = 0
        self._mix_hash(prologue)

    @property
    def our_turn(self) -> bool:
        """Is it on us to write?"""
        return not self.finished and (self._turn % 2 == 0) == self._initiator

    @property
    def finished(self) -> bool:
        """Have all three messages been written and read?"""
        return self._turn == len(_PATTERN)

    def write(self, payload: bytes) -> bytes:
        """The next message of ours, with `payload` in it."""
        assert self.our_turn
        parts: list[bytes] = []
        for step in _PATTERN[self._turn]:
            if step == "e":
                public = self._ephemeral.public_key().public_bytes_raw()
                parts.append(public)
                self._mix_hash(public)
            elif step == "s":
                parts.append(self._seal(self._static.public_key().public_bytes_raw()))
            else:
                self._mix_dh(step)
        parts.append(self._seal(payload))
        self._turn += 1
        return b"".join(parts)

    def read(self, message: bytes) -> bytes:
        """The payload of the peer's next message; raises `HandshakeError`, which is final."""
        assert not self.our_turn
        position = 0
        for step in _PATTERN[self._turn]:
            if step == "e":
                self._remote_ephemeral, position = _take(message, position, KEY_SIZE)
                self._mix_hash(self._remote_ephemeral)
            elif step == "s":
                sealed, position = _take(message, position, KEY_SIZE + TAG_SIZE)
                self.remote_static = self._open(sealed)
            else:
                self._mix_dh(step)
        payload = self._open(message[position:])
        self._turn += 1
        return payload

    def split(self) -> tuple[bytes, bytes]:
        """The keys of the transport: ours to send with, ours to receive with."""
        assert self.finished
        first, second = _hkdf(self._chaining_key, b"")
        return (first, second) if self._initiator else (second, first)

    def _mix_hash(self, data: bytes) -> None:
        self._hash = hashlib.sha256(self._hash + data).digest()

    def _mix_dh(self, step: str) -> None:
        # The steps name the initiator's key first, the responder's second.
        ours, theirs = step if self._initiator else step[::-1]
        secret = self._ephemeral if ours == "e" else self._static
        public = self._remote_ephemeral if theirs == "e" else self.remote_static
        try:
            shared = secret.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise HandshakeError("the peer sent a key that yields no secret") from None
        self._chaining_key, key = _hkdf(self._chaining_key, shared)
        self._cipher = ChaCha20Poly1305(key)
        self._nonce = 0

    def _seal(self, plaintext: bytes) -> bytes:
        data = plaintext
        if self._cipher is not None:
            data = self._cipher.encrypt(pack_nonce(self._nonce), plaintext, self._hash)
            self._nonce += 1
        self._mix_hash(data)
        return data

    def _open(self, data: bytes) -> bytes:
        plaintext = data
        if self._cipher is not None:
            try:
                plaintext = self._cipher.decrypt(pack_nonce(self._nonce), data, self._hash)
            except InvalidTag:
                raise HandshakeError("a handshake message does not decrypt") from None
            self._nonce += 1
        self._mix_hash(data)
        return plaintext


def _take(message: bytes, position: int, size: int) -> tuple[bytes, int]:
    part = message[position : position + size]
    if len(part) != size:
        raise HandshakeError("a handshake message is too short")
    return part, position + size


def _hkdf(chaining_key: bytes, material: bytes) -> tuple[bytes, bytes]:
    """Noise section 4.3, with two outputs."""
    extracted = hmac.digest(chaining_key, material, "sha256")
    first = hmac.digest(extracted, b"\1", "sha256")
    return first, hmac.digest(extracted, first + b"\2", "sha256")
