"""26/WAKU2-PAYLOAD: each rule of version 1."""

from __future__ import annotations

import hashlib
import hmac
from itertools import pairwise

import pytest
from Crypto.Hash import keccak
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, encode_dss_signature
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256

from pywaku.encryption import (
    EciesDecryptor,
    EciesEncryption,
    EciesEncryptor,
    KeyRing,
    SymmetricEncryption,
    generate_key,
)
from pywaku.encryption.layout import MAX_PAYLOAD_SIZE, Signing, decode_data, encode_data
from pywaku.errors import DecryptionFailed, InvalidInput
from pywaku.keys import PrivateKey
from tests.support.payload_v1 import KEY, RECIPIENT, SIGNER

UNSIGNED = Signing()
SIGNED = Signing(SIGNER)


def decrypted_by_hand(payload: bytes) -> bytes:
    """The `data` in a symmetric payload."""
    return AESGCM(KEY).decrypt(payload[-12:], payload[:-12], None)


# ABNF


@pytest.mark.parametrize(
    ("size", "length_field"),
    [(0, "00"), (1, "01"), (255, "ff"), (256, "0001"), (65535, "ffff"), (65536, "000001"), (70000, "701101")],
)
def test_first_two_bits_of_flags_contain_the_size_of_payload_length(size: int, length_field: str) -> None:
    field = bytes.fromhex(length_field)
    data = encode_data(bytes(size), UNSIGNED)
    assert data[0] == len(field)
    assert data[1 : 1 + len(field)] == field
    assert decode_data(data).payload == bytes(size)


def test_third_bit_of_flags_indicates_whether_the_signature_is_present() -> None:
    assert encode_data(b"x", UNSIGNED)[0] == 0b001
    assert encode_data(b"x", SIGNED)[0] == 0b101


@pytest.mark.parametrize("field_size", [1, 2, 3])
def test_payload_length_may_have_more_bytes_than_it_needs(field_size: int) -> None:
    assert decode_data(bytes([field_size, 2, 0, 0][: 1 + field_size]) + b"hi").payload == b"hi"


def test_no_payload_length_means_no_payload() -> None:
    assert decode_data(b"\0padding").payload == b""


def test_other_bits_of_flags_are_ignored() -> None:
    assert decode_data(b"\xf9\x02hi").payload == b"hi"


@pytest.mark.parametrize("signing", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])
def test_payload_may_be_empty(signing: Signing) -> None:
    assert decode_data(encode_data(b"", signing)).payload == b""


@pytest.mark.parametrize("padding", [0, 1, 255, 1000])
@pytest.mark.parametrize("signing", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])
def test_padding_can_be_of_arbitrary_size(signing: Signing, padding: int) -> None:
    data = encode_data(b"payload", signing, bytes(padding))
    assert len(data) == 9 + padding + (65 if signing.sign_with else 0)
    assert decode_data(data).payload == b"payload"


@pytest.mark.parametrize("size", [0, 1, 188, 189, 190, 253, 254, 255, 256, 509, 510, 65_535, 65_536, 100_000])
@pytest.mark.parametrize("signing", [UNSIGNED, SIGNED], ids=["unsigned", "signed"])
def test_the_size_of_data_should_be_a_multiple_of_256(size: int, signing: Signing) -> None:
    data = encode_data(bytes(size), signing)
    assert len(data) % 256 == 0
    assert len(data) < size + 4 + 65 + 256


def test_padding_differs_each_time() -> None:
    assert encode_data(b"x", UNSIGNED) != encode_data(b"x", UNSIGNED)


def test_a_payload_longer_than_three_bytes_of_length_can_tell_is_refused() -> None:
    largest = bytes(MAX_PAYLOAD_SIZE)
    encryption = SymmetricEncryption(KEY)
    assert encryption.decrypt(encryption.encrypt(largest)) == largest
    with pytest.raises(InvalidInput, match="16777216"):
        encryption.encrypt(largest + b"x")


@pytest.mark.parametrize(
    "data",
    [b"", b"\1", b"\2\0", b"\3\0\0", b"\1\2x", b"\3\xff\xff\xffx", b"\4", b"\5\0", b"\5\0" + bytes(64)],
)
def test_data_shorter_than_it_says_is_refused(data: bytes) -> None:
    with pytest.raises(DecryptionFailed) as failure:
        decode_data(data)
    assert failure.value.reason == "format"


def test_a_payload_does_not_reach_into_the_signature() -> None:
    data = bytearray(encode_data(b"payload", SIGNED, b""))
    data[1] += 1
    with pytest.raises(DecryptionFailed, match="of a payload of 8 bytes there are 7"):
        decode_data(bytes(data))


# Signature


def test_signature_should_be_ecdsa_of_the_keccak_256_hash_of_the_unencrypted_data() -> None:
    data = encode_data(b"payload", SIGNED)
    r, s = int.from_bytes(data[-65:-33]), int.from_bytes(data[-33:-1])
    digest = keccak.new(digest_bits=256, data=data[:-65]).digest()
    public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), SIGNER.public.raw)
    public.verify(encode_dss_signature(r, s), digest, ec.ECDSA(Prehashed(SHA256())))


def test_r_and_s_must_be_big_endian_fixed_width_256_bit_unsigned() -> None:
    # Such as begin with a zero byte.
    short = {(349, "r"): -65, (164, "s"): -33}
    for (number, _), at in short.items():
        data = encode_data(number.to_bytes(2), SIGNED, b"")
        assert len(data) == 4 + 65
        assert data[at] == 0
        assert decode_data(data).signature_public_key == SIGNER.public


@pytest.mark.parametrize("base", [0, 27])
def test_v_must_be_8_bit_and_should_be_27_or_28_or_what_others_write(base: int) -> None:
    signing = Signing.of(SIGNER, v_base=0 if base == 0 else 27)
    found = set[int]()
    for number in range(40):
        data = encode_data(bytes([number]), signing)
        found.add(data[-1])
        assert decode_data(data).signature_public_key == SIGNER.public
    assert found == {base, base + 1}


def test_who_signed_is_known_only_to_who_can_decrypt() -> None:
    encryption = SymmetricEncryption(KEY, sign_with=SIGNER)
    payload = encryption.encrypt(b"payload")
    assert decrypted_by_hand(payload)[-65:] not in payload
    assert encryption.open(payload).signature_public_key == SIGNER.public
    with pytest.raises(DecryptionFailed):
        SymmetricEncryption(generate_key()).open(payload)


def test_what_is_not_signed_has_no_signer() -> None:
    encryption = SymmetricEncryption(KEY)
    assert encryption.open(encryption.encrypt(b"payload")).signature_public_key is None


# Symmetric


def test_tag_and_iv_must_be_appended_to_the_ciphertext_in_that_order() -> None:
    payload = SymmetricEncryption(KEY).encrypt(b"payload")
    assert len(payload) == 256 + 16 + 12
    ciphertext, tag, iv = payload[:256], payload[256:272], payload[272:]
    decryptor = Cipher(algorithms.AES256(KEY), modes.GCM(iv, tag)).decryptor()
    data = decryptor.update(ciphertext) + decryptor.finalize()
    assert data[:9] == b"\1\7payload"


def test_an_iv_is_used_once() -> None:
    encryption = SymmetricEncryption(KEY)
    assert len({encryption.encrypt(b"payload")[-12:] for _ in range(100)}) == 100


# Asymmetric


def test_ecies_is_r_iv_c_d_with_the_keys_of_the_concatenation_kdf() -> None:
    payload = EciesEncryptor(RECIPIENT.public).encrypt(b"payload")
    ephemeral, iv, c, d = payload[:65], payload[65:81], payload[81:-32], payload[-32:]
    assert len(c) == 256
    private = ec.derive_private_key(int.from_bytes(RECIPIENT.raw), ec.SECP256K1())
    point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), ephemeral)
    secret = private.exchange(ec.ECDH(), point)  # Px of kB * R
    material = hashlib.sha256(b"\0\0\0\1" + secret).digest()  # NIST SP 800-56, one round
    assert hmac.digest(hashlib.sha256(material[16:]).digest(), iv + c, "sha256") == d
    decryptor = Cipher(algorithms.AES128(material[:16]), modes.CTR(iv)).decryptor()
    assert decryptor.update(c)[:9] == b"\1\7payload"


def test_a_key_pair_and_an_iv_are_used_once() -> None:
    encryptor = EciesEncryptor(RECIPIENT.public)
    payloads = [encryptor.encrypt(b"payload") for _ in range(20)]
    assert len({payload[:65] for payload in payloads}) == 20
    assert len({payload[65:81] for payload in payloads}) == 20


def test_two_sides_of_a_conversation() -> None:
    alice, bob = PrivateKey.generate(), PrivateKey.generate()
    of_alice = EciesEncryption(alice, bob.public, sign_with=alice, signers=[bob.public])
    of_bob = EciesEncryption(bob, alice.public, sign_with=bob, signers=[alice.public])
    assert (of_alice.public_key, of_alice.recipient) == (alice.public, bob.public)
    assert of_bob.decrypt(of_alice.encrypt(b"hello")) == b"hello"
    opened = of_alice.open(of_bob.encrypt(b"hi"))
    assert (opened.payload, opened.signature_public_key) == (b"hi", bob.public)


def test_what_a_side_encrypted_it_cannot_read() -> None:
    alice, bob = PrivateKey.generate(), PrivateKey.generate()
    encryption = EciesEncryption(alice, bob.public)
    with pytest.raises(DecryptionFailed):
        encryption.decrypt(encryption.encrypt(b"hello"))


# Padding and decoding


def test_equal_sizes_look_alike() -> None:
    encryption = SymmetricEncryption(KEY)
    sizes = [len(encryption.encrypt(bytes(size))) for size in range(600)]
    assert set(sizes) == {256 + 28, 512 + 28, 768 + 28}
    assert all(one <= other for one, other in pairwise(sizes))


def test_should_try_both_symmetric_and_asymmetric_decryption() -> None:
    symmetric = SymmetricEncryption(KEY)
    ring = KeyRing(symmetric, EciesDecryptor(RECIPIENT), encrypt_with=symmetric)
    assert ring.decrypt(symmetric.encrypt(b"to all")) == b"to all"
    assert ring.decrypt(EciesEncryptor(RECIPIENT.public).encrypt(b"to one")) == b"to one"
    assert symmetric.decrypt(ring.encrypt(b"from the ring")) == b"from the ring"
    with pytest.raises(DecryptionFailed):
        ring.decrypt(SymmetricEncryption(generate_key()).encrypt(b"to others"))
