"""RELIABLE-CHANNEL-API, Encryption: any object with `encrypt` and `decrypt`; and rings of keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from pywaku.encryption import (
    EciesDecryptor,
    EciesEncryptor,
    Encryption,
    KeyRing,
    SharedKeyEncryption,
    SymmetricEncryption,
    decrypt_with,
    encrypt_with,
    generate_key,
)
from pywaku.errors import DecryptionFailed, InvalidInput
from pywaku.keys import PrivateKey


class Reversed:
    """An encryption of somebody's own."""

    def encrypt(self, content: bytes) -> bytes:
        """Turn it around."""
        return content[::-1]

    def decrypt(self, payload: bytes) -> bytes:
        """Turn it back."""
        return payload[::-1]


class Elsewhere:
    """One that has to ask somebody else, a key store for instance."""

    async def encrypt(self, content: bytes) -> bytes:
        """Turn it around, later."""
        await trio.sleep(1)
        return content[::-1]

    async def decrypt(self, payload: bytes) -> bytes:
        """Turn it back, later."""
        await trio.sleep(1)
        return payload[::-1]


class Doing:
    """One that does something else."""

    def __init__(self, does: Callable[[], Any]) -> None:
        self._does = does

    def encrypt(self, content: bytes) -> bytes:
        """Whatever."""
        return self._does()

    def decrypt(self, payload: bytes) -> bytes:
        """Whatever."""
        return self._does()


class DoingLater(Elsewhere):
    """One that fails after a while."""

    async def decrypt(self, payload: bytes) -> bytes:
        """Fail."""
        await trio.sleep(1)
        raise KeyError("a key")


@pytest.mark.virtual
@pytest.mark.parametrize(
    "encryption",
    [Reversed(), Elsewhere(), SharedKeyEncryption(bytes(32)), SymmetricEncryption(bytes(32))],
    ids=lambda one: type(one).__name__,
)
async def test_the_hook_may_be_sync_or_async(encryption: Encryption) -> None:
    payload = await encrypt_with(encryption, b"content")
    assert payload != b"content"
    assert await decrypt_with(encryption, payload) == b"content"


def _raise(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize("error", [ValueError("bad"), KeyError(), RuntimeError("x"), AssertionError()])
async def test_whatever_decrypt_raises_is_a_failed_decryption(error: Exception) -> None:
    with pytest.raises(DecryptionFailed, match=type(error).__name__) as failure:
        await decrypt_with(Doing(lambda: _raise(error)), b"payload")
    assert failure.value.reason == "hook"
    assert failure.value.__cause__ is error


@pytest.mark.virtual
async def test_whatever_an_async_decrypt_raises_is_a_failed_decryption() -> None:
    with pytest.raises(DecryptionFailed, match="KeyError"):
        await decrypt_with(DoingLater(), b"payload")


async def test_a_failed_decryption_keeps_its_reason() -> None:
    with pytest.raises(DecryptionFailed) as failure:
        await decrypt_with(SharedKeyEncryption(bytes(32)), b"short")
    assert failure.value.reason == "format"


@pytest.mark.virtual
async def test_cancellation_is_no_failed_decryption() -> None:
    with trio.move_on_after(0.5) as scope:
        await decrypt_with(Elsewhere(), b"payload")
    assert scope.cancelled_caught


@pytest.mark.parametrize("gives", [None, "text", 5, bytearray(b"x")])
async def test_each_operation_returns_a_byte_array(gives: object) -> None:
    with pytest.raises(DecryptionFailed, match="not bytes"):
        await decrypt_with(Doing(lambda: gives), b"payload")
    with pytest.raises(InvalidInput, match="encrypt gives bytes"):
        await encrypt_with(Doing(lambda: gives), b"content")


async def test_what_encrypt_raises_is_for_the_caller() -> None:
    with pytest.raises(OSError, match="no key store"):
        await encrypt_with(Doing(lambda: _raise(OSError("no key store"))), b"content")


# Key rings


def test_keys_can_be_changed_without_losing_anything() -> None:
    old, new = SharedKeyEncryption(generate_key()), SharedKeyEncryption(generate_key())
    first = KeyRing(old, encrypt_with=old)
    both = KeyRing(old, new, encrypt_with=old)
    moved = KeyRing(new, old, encrypt_with=new)
    last = KeyRing(new, encrypt_with=new)
    for sender, readers in (
        (first, (both, moved)),
        (both, (first, moved)),
        (moved, (both, last)),
        (last, (both, moved)),
    ):
        for reader in readers:
            assert reader.decrypt(sender.encrypt(b"hello")) == b"hello"
    with pytest.raises(DecryptionFailed):
        last.decrypt(first.encrypt(b"too late"))


def test_a_ring_says_who_signed() -> None:
    signer, key = PrivateKey.generate(), generate_key()
    ring = KeyRing(EciesDecryptor(PrivateKey.generate()), SymmetricEncryption(key))
    opened = ring.open(SymmetricEncryption(key, sign_with=signer).encrypt(b"x"))
    assert opened.signature_public_key == signer.public


def test_the_failure_of_a_key_that_fits_is_what_is_told() -> None:
    key = generate_key()
    strict = SymmetricEncryption(key, signers=[PrivateKey.generate().public])
    ring = KeyRing(SymmetricEncryption(generate_key()), strict, EciesDecryptor(PrivateKey.generate()))
    with pytest.raises(DecryptionFailed, match="not signed") as failure:
        ring.decrypt(SymmetricEncryption(key).encrypt(b"x"))
    assert failure.value.reason == "signer"


def test_what_makes_no_ring() -> None:
    one, other = SymmetricEncryption(bytes(32)), SharedKeyEncryption(bytes(32))
    with pytest.raises(InvalidInput, match="at least one key"):
        KeyRing(encrypt_with=one)
    with pytest.raises(InvalidInput, match="version 1"):
        KeyRing(one, other)
    with pytest.raises(InvalidInput, match="version 1"):
        KeyRing(one, encrypt_with=other)
    with pytest.raises(InvalidInput, match="only decrypts"):
        KeyRing(one).encrypt(b"x")
    assert KeyRing(one).message_version == 1
    assert KeyRing(other).message_version is None
    assert EciesEncryptor(PrivateKey.generate().public).message_version == 1
