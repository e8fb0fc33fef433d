"""Whose payloads are taken, and what is no key."""

from __future__ import annotations

import pytest

from pywaku.encryption import EciesDecryptor, EciesEncryptor, SymmetricEncryption
from pywaku.encryption.layout import Signing, decode_data, encode_data
from pywaku.errors import DecodeError, DecryptionFailed, InvalidInput
from pywaku.keys import PrivateKey, PublicKey
from tests.support.payload_v1 import KEY, RECIPIENT, SIGNER


@pytest.mark.parametrize("other", [None, PrivateKey.generate()], ids=["nobody", "somebody else"])
def test_with_signers_only_what_they_signed_is_taken(other: PrivateKey | None) -> None:
    reader = SymmetricEncryption(KEY, signers=[SIGNER.public, RECIPIENT.public])
    assert reader.decrypt(SymmetricEncryption(KEY, sign_with=SIGNER).encrypt(b"yes")) == b"yes"
    with pytest.raises(DecryptionFailed) as failure:
        reader.decrypt(SymmetricEncryption(KEY, sign_with=other).encrypt(b"no"))
    assert failure.value.reason == "signer"
    asymmetric = EciesDecryptor(RECIPIENT, signers=[SIGNER.public])
    assert asymmetric.decrypt(EciesEncryptor(RECIPIENT.public, SIGNER).encrypt(b"yes")) == b"yes"
    with pytest.raises(DecryptionFailed) as failure:
        asymmetric.decrypt(EciesEncryptor(RECIPIENT.public, other).encrypt(b"no"))
    assert failure.value.reason == "signer"


def test_a_signature_that_is_none_is_refused_also_by_who_takes_all() -> None:
    data = encode_data(b"payload", Signing(SIGNER))
    for v in (2, 3, 26, 29, 255):
        with pytest.raises(DecryptionFailed) as failure:
            decode_data(data[:-1] + bytes([v]))
        assert failure.value.reason == "signature"


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), "k" * 32, None])
def test_a_symmetric_key_has_32_bytes(key: bytes) -> None:
    with pytest.raises(InvalidInput, match="key: is 32 bytes"):
        SymmetricEncryption(key)


def test_keys_of_other_kinds_are_refused() -> None:
    key = PrivateKey.generate("ed25519")
    with pytest.raises(InvalidInput, match="recipient: is a secp256k1 key, not ed25519"):
        EciesEncryptor(key.public)
    with pytest.raises(InvalidInput, match="private_key"):
        EciesDecryptor(key)
    with pytest.raises(InvalidInput, match="sign_with"):
        SymmetricEncryption(KEY, sign_with=key)
    with pytest.raises(InvalidInput, match="signers"):
        SymmetricEncryption(KEY, signers=[SIGNER.public, key.public])


def test_a_public_key_is_no_private_one_and_the_other_way_round() -> None:
    with pytest.raises(InvalidInput, match="private_key: is a PrivateKey, not PublicKey"):
        EciesDecryptor(RECIPIENT.public)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInput, match="recipient: is a PublicKey, not PrivateKey"):
        EciesEncryptor(RECIPIENT)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInput, match="sign_with: is a PrivateKey, not bytes"):
        SymmetricEncryption(KEY, sign_with=bytes(32))  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInput, match="signers: is a PublicKey, not int"):
        SymmetricEncryption(KEY, signers=SIGNER.public.raw)  # pyright: ignore[reportArgumentType]


def test_no_signers_is_a_mistake_and_so_is_another_v() -> None:
    with pytest.raises(InvalidInput, match="signers"):
        SymmetricEncryption(KEY, signers=[])
    with pytest.raises(InvalidInput, match="v_base"):
        SymmetricEncryption(KEY, sign_with=SIGNER, v_base=28)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("content", ["text", None, bytearray(b"x"), 5])
def test_what_is_encrypted_is_bytes(content: bytes) -> None:
    for encryption in (SymmetricEncryption(KEY), EciesEncryptor(RECIPIENT.public)):
        with pytest.raises(InvalidInput, match="what is encrypted is bytes"):
            encryption.encrypt(content)


def test_uncompressed_public_keys() -> None:
    key = RECIPIENT.public
    assert PublicKey.from_uncompressed(key.uncompressed) == key
    assert PublicKey.from_uncompressed(b"\4" + key.uncompressed) == key


@pytest.mark.parametrize(
    "point",
    [b"", bytes(64), bytes(33), b"\4" + bytes(63), RECIPIENT.public.raw],
)
def test_what_is_no_uncompressed_public_key(point: bytes) -> None:
    with pytest.raises(DecodeError):
        PublicKey.from_uncompressed(point)


def test_an_uncompressed_public_key_with_another_y_is_refused() -> None:
    point = bytearray(RECIPIENT.public.uncompressed)
    point[40] ^= 1
    with pytest.raises(DecodeError, match="not a point"):
        PublicKey.from_uncompressed(bytes(point))
    with pytest.raises(DecodeError, match="64 bytes"):
        PublicKey.from_uncompressed(b"\2" + RECIPIENT.public.uncompressed)


def test_keys_are_not_shown() -> None:
    for one in (SymmetricEncryption(KEY, SIGNER), EciesDecryptor(RECIPIENT)):
        assert KEY.hex() not in repr(one)
        assert not hasattr(one, "__dict__")
