"""What js-waku encrypted is decrypted, and what it makes of the same ingredients is made, byte for byte."""

from __future__ import annotations

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pywaku.encryption import EciesDecryptor, Opened, SymmetricEncryption, ecies, symmetric
from pywaku.encryption.layout import Signing, encode_data
from pywaku.encryption.signatures import recover, sign
from pywaku.keys import PublicKey
from tests.support.payload_v1 import KEY, KEYS, RECIPIENT, SIGNER, VECTORS, Vector

each_vector = pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
with_payload = pytest.mark.parametrize(
    "vector", [vector for vector in VECTORS if vector.symmetric.payload], ids=lambda vector: vector.name
)


def data_of(vector: Vector) -> bytes:
    """What js-waku encrypted."""
    return encode_data(vector.payload, Signing(SIGNER if vector.signature else None), vector.padding)


def test_there_are_vectors_with_a_payload_length_of_each_size() -> None:
    sizes = {-(-len(vector.payload).bit_length() // 8) or 1 for vector in VECTORS if vector.signature}
    assert sizes == {1, 2, 3}
    assert {bool(vector.signature) for vector in VECTORS} == {True, False}


def test_public_keys_are_those_of_js_waku() -> None:
    for name, key in (("recipient", RECIPIENT), ("signer", SIGNER)):
        assert PublicKey.from_uncompressed(bytes.fromhex(KEYS[name]["public"])) == key.public


@each_vector
def test_data_is_laid_out_and_signed_as_js_waku_does(vector: Vector) -> None:
    data = data_of(vector)
    assert hashlib.sha256(data).digest() == vector.data_sha256
    if vector.signature is not None:
        assert data[-65:] == vector.signature == sign(data[:-65], SIGNER)
        assert recover(data[:-65], vector.signature) == SIGNER.public


@each_vector
def test_symmetric_payloads_are_those_of_js_waku(vector: Vector) -> None:
    made = symmetric.seal(data_of(vector), AESGCM(KEY), vector.symmetric.iv)
    assert hashlib.sha256(made).digest() == vector.symmetric.sha256
    assert SymmetricEncryption(KEY).open(made) == Opened(vector.payload, vector.signer)


@each_vector
def test_ecies_payloads_are_those_of_js_waku(vector: Vector) -> None:
    recipient = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256K1(), RECIPIENT.public.raw)
    assert vector.ecies.ephemeral is not None
    made = ecies.seal(data_of(vector), recipient, vector.ecies.ephemeral, vector.ecies.iv)
    assert hashlib.sha256(made).digest() == vector.ecies.sha256
    assert EciesDecryptor(RECIPIENT).open(made) == Opened(vector.payload, vector.signer)


@with_payload
def test_payloads_of_js_waku_are_decrypted(vector: Vector) -> None:
    assert vector.symmetric.payload is not None
    assert vector.ecies.payload is not None
    opened = Opened(vector.payload, vector.signer)
    assert SymmetricEncryption(KEY).open(vector.symmetric.payload) == opened
    assert EciesDecryptor(RECIPIENT).open(vector.ecies.payload) == opened
