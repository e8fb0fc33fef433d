"""The encryption hook (RELIABLE-CHANNEL-API, Encryption Hook): what a channel calls, whoever wrote it."""

from __future__ import annotations

from collections.abc import Awaitable
from inspect import isawaitable
from typing import Protocol

from pywaku.errors import DecryptionFailed, InvalidInput


class Encryption(Protocol):
    """Any object with these two, plain or async (RELIABLE-CHANNEL-API, Encryption)."""

    def encrypt(self, content: bytes, /) -> bytes | Awaitable[bytes]:
        """The payload for the wire."""
        ...

    def decrypt(self, payload: bytes, /) -> bytes | Awaitable[bytes]:
        """What was encrypted. Whatever it raises says that this payload is not for it."""
        ...


async def encrypt_with(encryption: Encryption, content: bytes) -> bytes:
    """Call the hook and wait for it where it is async; what it raises is the caller's to handle."""
    made = encryption.encrypt(content)
    payload = await made if isawaitable(made) else made
    if not isinstance(payload, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"encrypt gives bytes, not {type(payload).__name__}")
    return payload


async def decrypt_with(encryption: Encryption, payload: bytes) -> bytes:
    """Call the hook and wait for it where it is async; raises `DecryptionFailed` and nothing else.

    Anybody can send a payload that an encryption is not prepared for: any exception means just that.
    """
    try:
        made = encryption.decrypt(payload)
        content = await made if isawaitable(made) else made
    except DecryptionFailed:
        raise
    except Exception as error:
        raise DecryptionFailed(f"{type(error).__name__}: {error}", reason="hook") from error
    return require_decrypted(content)


def require_decrypted(content: object) -> bytes:
    """What a hook's `decrypt` gave, if it is bytes."""
    if not isinstance(content, bytes):
        raise DecryptionFailed(f"decrypt gave {type(content).__name__}, not bytes", reason="hook")
    return content
