"""Several keys at once (26/WAKU2-PAYLOAD, Decoding a message): a payload does not say which one it is for."""

from __future__ import annotations

from typing import Protocol

from pywaku.encryption.layout import Opened
from pywaku.errors import DecryptionFailed, InvalidInput


class Encryptor(Protocol):
    """What encrypts."""

    @property
    def message_version(self) -> int | None:
        """The `version` of the Waku messages it is for."""
        ...

    def encrypt(self, content: bytes) -> bytes:
        """The payload for the wire."""
        ...


class Decryptor(Protocol):
    """What decrypts, and tells who signed."""

    @property
    def message_version(self) -> int | None:
        """The `version` of the Waku messages it is for."""
        ...

    def open(self, payload: bytes) -> Opened:
        """What was encrypted, and who signed it; raises `DecryptionFailed`."""
        ...


class KeyRing:
    """Decrypts with the first of `decryptors` that can, and encrypts with `encrypt_with`.

    For who is sent both symmetric and asymmetric payloads, and for changing keys: first everybody adds the
    new key, then everybody encrypts with it, then the old one is left out.
    """

    __slots__ = ("_decryptors", "_encrypt_with", "message_version")

    def __init__(self, *decryptors: Decryptor, encrypt_with: Encryptor | None = None) -> None:
        if not decryptors:
            raise InvalidInput("a key ring holds at least one key")
        versions = {one.message_version for one in (*decryptors, *([encrypt_with] if encrypt_with else ()))}
        if len(versions) > 1:
            raise InvalidInput("the keys of a ring are all for version 1 payloads, or none of them is")
        self.message_version = decryptors[0].message_version
        self._decryptors = decryptors
        self._encrypt_with = encrypt_with

    def encrypt(self, content: bytes) -> bytes:
        """The payload for the wire."""
        if self._encrypt_with is None:
            raise InvalidInput("this key ring only decrypts: give it encrypt_with")
        return self._encrypt_with.encrypt(content)

    def decrypt(self, payload: bytes) -> bytes:
        """What was encrypted; raises `DecryptionFailed`."""
        return self.open(payload).payload

    def open(self, payload: bytes) -> Opened:
        """What was encrypted, and who signed it; raises `DecryptionFailed`."""
        failures: list[DecryptionFailed] = []
        for decryptor in self._decryptors:
            try:
                return decryptor.open(payload)
            except DecryptionFailed as failure:
                failures.append(failure)
        # A key that fits says more about what is wrong than those that do not.
        raise max(failures, key=lambda failure: failure.reason in ("signature", "signer"))
