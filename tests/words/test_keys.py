"""Identity keys, against the vectors of the libp2p peer id spec and against forgeries."""

from __future__ import annotations

import hashlib

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from hypothesis import example, given
from hypothesis import strategies as st

from pywaku.errors import DecodeError, InvalidInput
from pywaku.ids import PeerId
from pywaku.keys import SECP256K1_ORDER, KeyKind, PrivateKey, PublicKey

KINDS: tuple[KeyKind, ...] = ("secp256k1", "ed25519")

# libp2p peer id spec, "Test vectors"
SECP256K1_SECRET = "53dadf1d5a164d6b4acdb15e24aa4c5b1d3461bdbd42abedb0a4404d56ced8fb"
SECP256K1_PUBLIC = "08021221037777e994e452c21604f91de093ce415f5432f701dd8cd1a7a6fea0e630bfca99"
ED25519_SECRET = "7e0830617c4a7de83925dfb2694556b12936c477a0e1feb2e148ec9da60fee7d"
ED25519_PUBLIC = "080112201ed1e8fae2c4a144b8be8fd4b47bf3d3b34b871c3cacf6010f0e42d474fce27e"


@pytest.mark.parametrize(
    ("kind", "secret", "public"),
    [("secp256k1", SECP256K1_SECRET, SECP256K1_PUBLIC), ("ed25519", ED25519_SECRET, ED25519_PUBLIC)],
)
def test_vectors_of_the_peer_id_spec(kind: KeyKind, secret: str, public: str) -> None:
    key = PrivateKey.from_bytes(kind, bytes.fromhex(secret))
    assert key.public.encode().hex() == public
    assert PublicKey.decode(bytes.fromhex(public)) == key.public
    assert key == PrivateKey.from_hex("0x" + secret, kind)
    assert key.raw.hex() == secret


@pytest.mark.parametrize("kind", KINDS)
def test_signatures_verify_and_forgeries_do_not(kind: KeyKind) -> None:
    key, other = PrivateKey.generate(kind), PrivateKey.generate(kind)
    signature = key.sign(b"data")
    assert key.public.verify(b"data", signature)
    assert not key.public.verify(b"datA", signature)
    assert not other.public.verify(b"data", signature)
    for forged in (b"", b"\0", signature[:-1], signature + b"\0", bytes(len(signature))):
        assert not key.public.verify(b"data", forged)


def test_secp256k1_signatures_are_deterministic_and_have_a_low_s() -> None:
    key = PrivateKey.from_hex(SECP256K1_SECRET)
    for number in range(32):
        signature = key.sign(bytes([number]))
        assert signature == key.sign(bytes([number]))
        assert decode_dss_signature(signature)[1] <= SECP256K1_ORDER // 2


def test_digest_signatures_are_r_and_s_and_a_high_s_is_refused() -> None:
    key = PrivateKey.from_hex(SECP256K1_SECRET)
    for number in range(16):
        digest = hashlib.sha256(bytes([number])).digest()
        signature = key.sign_digest(digest)
        assert len(signature) == 64
        assert key.public.verify_digest(digest, signature)
        assert not key.public.verify_digest(digest[::-1], signature)
        s = SECP256K1_ORDER - int.from_bytes(signature[32:])
        assert not key.public.verify_digest(digest, signature[:32] + s.to_bytes(32))
        # The same numbers are a proper libp2p signature: there the high s is allowed, as in go-libp2p.
        r = int.from_bytes(signature[:32])
        assert key.public.verify(bytes([number]), encode_dss_signature(r, s))


@given(digest=st.binary(max_size=40), signature=st.binary(max_size=70) | st.binary(min_size=64, max_size=64))
@example(digest=bytes(32), signature=bytes(64))
@example(digest=bytes(32), signature=b"\xff" * 64)
def test_no_signature_makes_verification_raise(digest: bytes, signature: bytes) -> None:
    for kind in KINDS:
        key = PrivateKey.from_bytes(kind, b"\1" * 32).public
        assert not key.verify(digest, signature)
    assert not PrivateKey.from_bytes("secp256k1", b"\1" * 32).public.verify_digest(digest, signature)


def test_digests_are_signed_by_secp256k1_keys_only() -> None:
    key = PrivateKey.generate("ed25519")
    with pytest.raises(InvalidInput):
        key.sign_digest(bytes(32))
    with pytest.raises(InvalidInput):
        key.public.verify_digest(bytes(32), bytes(64))
    with pytest.raises(InvalidInput):
        _ = key.public.uncompressed
    with pytest.raises(InvalidInput):
        PrivateKey.generate().sign_digest(bytes(31))


@pytest.mark.parametrize("kind", KINDS)
def test_peer_ids_hold_short_keys(kind: KeyKind) -> None:
    key = PrivateKey.generate(kind)
    assert key.peer_id == key.public.peer_id
    assert PublicKey.of_peer_id(key.peer_id) == key.public
    assert str(key.peer_id).startswith("16Uiu2HA" if kind == "secp256k1" else "12D3KooW")


def test_peer_ids_that_are_hashes_hold_no_key() -> None:
    assert PublicKey.of_peer_id(PeerId.of_public_key(bytes(43))) is None
    assert PublicKey.of_peer_id(PeerId.from_bytes(b"\0\4" + bytes(4))) is None
    assert PublicKey.of_peer_id(PeerId(b"")) is None


def test_rsa_keys_verify_and_are_hashed_into_peer_ids() -> None:
    secret = rsa.generate_private_key(65537, 2048)
    raw = secret.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    key = PublicKey("rsa", raw)
    encoded = key.encode()
    assert PublicKey.decode(encoded) == key
    assert str(key.peer_id).startswith("Qm")
    signature = secret.sign(b"data", padding.PKCS1v15(), hashes.SHA256())
    assert key.verify(b"data", signature)
    assert not key.verify(b"datA", signature)
    assert not key.verify(b"data", b"")
    with pytest.raises(InvalidInput):
        key.verify_digest(bytes(32), bytes(64))
    for cut in (encoded[:-1], encoded + b"\0", encoded[:4], encoded[:3] + b"\x80\x00" + encoded[5:]):
        with pytest.raises(DecodeError):
            PublicKey.decode(cut)


def test_rsa_keys_that_are_weak_or_costly_are_refused() -> None:
    def encoded(modulus: int, exponent: int) -> bytes:
        return (
            rsa.RSAPublicNumbers(exponent, modulus)
            .public_key()
            .public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        )

    for raw in (encoded((1 << 1023) + 1, 65537), encoded((1 << 2047) + 1, (1 << 40) + 1), bytes(3000)):
        with pytest.raises(DecodeError):
            PublicKey("rsa", raw)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes.fromhex(SECP256K1_PUBLIC)[:-1],
        bytes.fromhex(SECP256K1_PUBLIC) + b"\0",
        bytes.fromhex("0803" + SECP256K1_PUBLIC[4:]),  # ECDSA
        bytes.fromhex("0801" + SECP256K1_PUBLIC[4:]),
        bytes.fromhex("0802122102" + "ff" * 32),  # no point of the curve
        bytes.fromhex("12210377" + SECP256K1_PUBLIC[10:] + "0802"),  # not the deterministic order
    ],
)
def test_what_is_no_public_key_does_not_decode(data: bytes) -> None:
    with pytest.raises(DecodeError):
        PublicKey.decode(data)


def key_like(kind: int, body: bytes) -> bytes:
    return bytes((0x08, kind, 0x12, len(body))) + body


@given(
    st.binary(max_size=80)
    | st.builds(key_like, st.integers(0, 4), st.binary(max_size=40) | st.binary(min_size=32, max_size=33))
)
def test_hostile_public_keys_raise_decode_error_only(data: bytes) -> None:
    try:
        key = PublicKey.decode(data)
    except DecodeError:
        return
    assert key.encode() == data
    assert not key.verify(b"", b"")


@pytest.mark.parametrize("raw", [b"", bytes(31), bytes(32), b"\xff" * 32, bytes(33)])
def test_what_is_no_private_key_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidInput):
        PrivateKey.from_bytes("secp256k1", raw)
    with pytest.raises(InvalidInput):
        PrivateKey.from_hex(raw.hex() + "z")


def test_the_text_of_a_private_key_hides_the_secret() -> None:
    key = PrivateKey.from_hex(SECP256K1_SECRET)
    for text in (repr(key), str(key), f"{key}"):
        assert SECP256K1_SECRET not in text
        assert str(key.peer_id) in text
