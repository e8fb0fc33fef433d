"""Version 1 with a key that all participants have (26/WAKU2-PAYLOAD, Symmetric): AES-256-GCM."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pywaku.encryption.layout import Opened, Signing, decode_data, encode_data
from pywaku.encryption.signatures import VBase
from pywaku.errors import DecryptionFailed, InvalidInput
from pywaku.keys import PrivateKey, PublicKey

KEY_SIZE: Final = 32
_IV_SIZE: Final = 12
_TAG_SIZE: Final = 16


class SymmetricEncryption:
    """Encrypts for everybody who has the same 32-byte key; the way for a channel of several participants.

    With `sign_with` what is encrypted is signed; with `signers`, only what one of them signed is decrypted.
    """

    __slots__ = ("_cipher", "_signing")

    message_version: int | None = 1
    """The `version` of a Waku message with such a payload (14/WAKU2-MESSAGE, Payload encryption)."""

    def __init__(
        self,
        key: bytes,
        sign_with: PrivateKey | None = None,
        *,
        signers: Iterable[PublicKey] | None = None,
        v_base: VBase = 0,
    ) -> None:
        require_key(key)
        self._cipher = AESGCM(key)
        self._signing = Signing.of(sign_with, signers, v_base)

    def encrypt(self, content: bytes) -> bytes:
        """The payload for the wire: `ciphertext ‖ tag ‖ iv`."""
        return seal(encode_data(content, self._signing), self._cipher, secrets.token_bytes(_IV_SIZE))

    def decrypt(self, payload: bytes) -> bytes:
        """What was encrypted; raises `DecryptionFailed`."""
        return self.open(payload).payload

    def open(self, payload: bytes) -> Opened:
        """What was encrypted, and who signed it; raises `DecryptionFailed`."""
        return decode_data(unseal(payload, self._cipher), self._signing.signers)


def seal(data: bytes, cipher: AESGCM, iv: bytes) -> bytes:
    """Encrypt with an iv that is used once."""
    return cipher.encrypt(iv, data, None) + iv


def unseal(payload: bytes, cipher: AESGCM) -> bytes:
    """The way back; raises `DecryptionFailed`."""
    if len(payload) < _TAG_SIZE + _IV_SIZE:
        raise DecryptionFailed(f"{len(payload)} bytes are too few for a tag and an iv", reason="format")
    try:
        return cipher.decrypt(payload[-_IV_SIZE:], payload[:-_IV_SIZE], None)
    except InvalidTag:
        raise DecryptionFailed("the key is another one, or bytes were changed") from None


def require_key(key: bytes) -> None:
    """A symmetric key is 32 bytes; raises `InvalidInput`, which does not show it."""
    if not isinstance(key, bytes) or len(key) != KEY_SIZE:  # pyright: ignore[reportUnnecessaryIsInstance]
        what = f"{len(key)} bytes" if isinstance(key, bytes) else f"a {type(key).__name__}"  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"key: is {KEY_SIZE} bytes, not {what}")
