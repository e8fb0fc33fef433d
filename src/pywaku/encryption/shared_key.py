"""A shared key and nothing else: XChaCha20-Poly1305, bound to what it is used for.

On the wire: `version ‖ nonce ‖ ciphertext ‖ tag`, of 1, 24, any and 16 bytes; version is 1. The tag covers it
as well, before the associated data of the user.
"""

from __future__ import annotations

import secrets
import unicodedata
from typing import Final

from Crypto.Cipher import ChaCha20_Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from pywaku.encryption.layout import Opened
from pywaku.encryption.symmetric import KEY_SIZE, require_key
from pywaku.errors import DecryptionFailed, InvalidInput

OVERHEAD: Final = 41
"""Bytes that a payload has more than what was encrypted."""

_VERSION: Final = b"\x01"
_NONCE_SIZE: Final = 24  # so many that chance does not repeat one, however many messages there are
_TAG_SIZE: Final = 16

SCRYPT_COST: Final = 1 << 17
"""N of scrypt: with r = 8 and p = 1 it takes 128 MiB, and some tenths of a second."""
_LEAST_COST: Final = 1 << 14
_LEAST_SALT: Final = 8


class SharedKeyEncryption:
    """Encrypts for everybody who has the same 32-byte key and uses it for the same thing.

    `associated_data` is what that is, such as the id of a channel: what was encrypted for one channel is no
    payload of another, even with the same key. Nobody signs: all who have the key are equal.
    """

    __slots__ = ("_associated_data", "_key")

    message_version: int | None = None
    """Version 0 may be encrypted by the application (14/WAKU2-MESSAGE, Payload encryption)."""

    def __init__(self, key: bytes, *, associated_data: bytes = b"") -> None:
        require_key(key)
        if not isinstance(associated_data, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"associated_data: is bytes, not {type(associated_data).__name__}")
        self._key = key
        self._associated_data = _VERSION + associated_data

    def encrypt(self, content: bytes) -> bytes:
        """The payload for the wire."""
        if not isinstance(content, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"what is encrypted is bytes, not {type(content).__name__}")
        return seal(content, self._key, secrets.token_bytes(_NONCE_SIZE), self._associated_data)

    def decrypt(self, payload: bytes) -> bytes:
        """What was encrypted; raises `DecryptionFailed`."""
        if len(payload) < OVERHEAD:
            raise DecryptionFailed(f"{len(payload)} bytes are too few for a nonce and a tag", reason="format")
        if payload[:1] != _VERSION:
            raise DecryptionFailed(
                f"version {payload[0]} of shared key encryption is not known", reason="format"
            )
        cipher = ChaCha20_Poly1305.new(key=self._key, nonce=payload[1 : 1 + _NONCE_SIZE])
        cipher.update(self._associated_data)
        try:
            return cipher.decrypt_and_verify(payload[1 + _NONCE_SIZE : -_TAG_SIZE], payload[-_TAG_SIZE:])
        except ValueError:
            raise DecryptionFailed("the key or its use is another one, or bytes were changed") from None

    def open(self, payload: bytes) -> Opened:
        """What was encrypted, signed by nobody; raises `DecryptionFailed`."""
        return Opened(self.decrypt(payload))


def seal(content: bytes, key: bytes, nonce: bytes, associated_data: bytes) -> bytes:
    """Encrypt with a nonce that is used once."""
    cipher = ChaCha20_Poly1305.new(key=key, nonce=nonce)
    cipher.update(associated_data)
    ciphertext, tag = cipher.encrypt_and_digest(content)
    return b"".join((_VERSION, nonce, ciphertext, tag))


def generate_key() -> bytes:
    """A new 32-byte key, for `SharedKeyEncryption` or `SymmetricEncryption`."""
    return secrets.token_bytes(KEY_SIZE)


def key_from_passphrase(passphrase: str, salt: bytes, *, cost: int = SCRYPT_COST) -> bytes:
    """A 32-byte key from what people can remember, by scrypt (RFC 7914); slow on purpose, so call it once.

    All participants use the same salt, at least 8 bytes that belong to this use alone; it need not be secret.
    A passphrase is the same however its accents and widths were typed (Unicode NFKC).
    """
    if not isinstance(passphrase, str) or not passphrase:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput("passphrase: is a str that is not empty")
    if not isinstance(salt, bytes) or len(salt) < _LEAST_SALT:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"salt: is at least {_LEAST_SALT} bytes that belong to this use alone")
    if cost < _LEAST_COST or cost & (cost - 1):
        raise InvalidInput(f"cost: is a power of two from {_LEAST_COST} on, not {cost}")
    try:
        secret = unicodedata.normalize("NFKC", passphrase).encode()
    except UnicodeEncodeError:
        raise InvalidInput("passphrase: holds characters that UTF-8 cannot express") from None
    return Scrypt(salt=salt, length=KEY_SIZE, n=cost, r=8, p=1).derive(secret)
