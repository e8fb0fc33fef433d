"""Encryption with a shared key: what it is made of, what it is bound to, and keys of passphrases."""

from __future__ import annotations

import pytest

from pywaku.encryption import Opened, SharedKeyEncryption, generate_key, key_from_passphrase
from pywaku.encryption.shared_key import OVERHEAD, seal
from pywaku.errors import DecryptionFailed, InvalidInput

KEY = bytes(range(32))
LEAST_COST = 1 << 14


def test_it_is_xchacha20_poly1305() -> None:
    # draft-irtf-cfrg-xchacha-03, A.3.1
    text = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
        b"sunscreen would be it."
    )
    nonce = bytes(range(0x40, 0x58))
    payload = seal(text, bytes(range(0x80, 0xA0)), nonce, bytes.fromhex("50515253c0c1c2c3c4c5c6c7"))
    assert payload[:25] == b"\1" + nonce
    assert payload[25:].hex() == (
        "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb"
        "731c7f1b0b4aa6440bf3a82f4eda7e39ae64c6708c54c216cb96b72e1213b452"
        "2f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff9"
        "21f9664c97637da9768812f615c68b13b52e"
        "c0875924c1c7987947deafd8780acf49"
    )


@pytest.mark.parametrize("size", [0, 1, 1000, 150_000])
def test_what_is_encrypted_is_decrypted(size: int) -> None:
    encryption = SharedKeyEncryption(KEY)
    payload = encryption.encrypt(bytes(size))
    assert len(payload) == size + OVERHEAD
    assert encryption.decrypt(payload) == bytes(size)
    assert SharedKeyEncryption(KEY).open(payload) == Opened(bytes(size))


def test_a_nonce_is_used_once() -> None:
    encryption = SharedKeyEncryption(KEY)
    assert len({encryption.encrypt(b"x")[1:25] for _ in range(1000)}) == 1000


def test_a_payload_of_one_channel_is_none_of_another() -> None:
    room = SharedKeyEncryption(KEY, associated_data=b"room")
    payload = room.encrypt(b"hello")
    assert SharedKeyEncryption(KEY, associated_data=b"room").decrypt(payload) == b"hello"
    for other in (b"", b"hall", b"room\0", b"roo"):
        with pytest.raises(DecryptionFailed) as failure:
            SharedKeyEncryption(KEY, associated_data=other).decrypt(payload)
        assert failure.value.reason == "authentication"


def test_a_payload_of_another_key_is_none() -> None:
    with pytest.raises(DecryptionFailed, match="another one"):
        SharedKeyEncryption(generate_key()).decrypt(SharedKeyEncryption(KEY).encrypt(b"hello"))


def test_a_payload_of_another_version_says_so() -> None:
    payload = SharedKeyEncryption(KEY).encrypt(b"hello")
    with pytest.raises(DecryptionFailed, match="version 2 of shared key encryption is not known"):
        SharedKeyEncryption(KEY).decrypt(b"\2" + payload[1:])


def test_a_passphrase_makes_the_key_of_scrypt() -> None:
    # RFC 7914, section 12: the first 32 of the 64 bytes
    key = key_from_passphrase("pleaseletmein", b"SodiumChloride", cost=16384)
    assert key.hex() == "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
    assert SharedKeyEncryption(key).decrypt(SharedKeyEncryption(key).encrypt(b"x")) == b"x"


def test_a_passphrase_is_the_same_however_it_was_typed() -> None:
    composed = key_from_passphrase("caf\u00e9 \ufb01n", b"of a test", cost=LEAST_COST)
    assert key_from_passphrase("cafe\u0301 fin", b"of a test", cost=LEAST_COST) == composed
    assert key_from_passphrase("cafe fin", b"of a test", cost=LEAST_COST) != composed
    assert key_from_passphrase("caf\u00e9 fin", b"of another test", cost=LEAST_COST) != composed


@pytest.mark.parametrize(
    ("passphrase", "salt", "cost", "says"),
    [
        ("", b"of a test", LEAST_COST, "passphrase"),
        (b"bytes", b"of a test", LEAST_COST, "passphrase"),
        ("\ud800", b"of a test", LEAST_COST, "UTF-8"),
        ("secret", b"short", LEAST_COST, "salt"),
        ("secret", "a text", LEAST_COST, "salt"),
        ("secret", b"of a test", LEAST_COST // 2, "cost"),
        ("secret", b"of a test", LEAST_COST + 1, "cost"),
    ],
)
def test_what_makes_no_key(passphrase: str, salt: bytes, cost: int, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        key_from_passphrase(passphrase, salt, cost=cost)


@pytest.mark.parametrize("key", [b"", bytes(16), bytes(33), "k" * 32])
def test_a_key_has_32_bytes(key: bytes) -> None:
    with pytest.raises(InvalidInput, match="key: is 32 bytes"):
        SharedKeyEncryption(key)


def test_texts_are_no_bytes() -> None:
    with pytest.raises(InvalidInput, match="associated_data"):
        SharedKeyEncryption(KEY, associated_data="room")  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInput, match="what is encrypted is bytes, not str"):
        SharedKeyEncryption(KEY).encrypt("hello")  # pyright: ignore[reportArgumentType]


def test_the_key_is_not_shown() -> None:
    encryption = SharedKeyEncryption(KEY)
    assert KEY.hex() not in repr(encryption)
    assert repr(KEY) not in repr(encryption)
