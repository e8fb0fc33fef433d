"""Version 1 for the holder of one private key (26/WAKU2-PAYLOAD, ECIES).

On the wire: `R ‖ iv ‖ c ‖ d`. R is a secp256k1 public key made for this one message, as 65 bytes; c comes of
AES-128-CTR, d of HMAC-SHA-256.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHash

from pywaku.encryption.layout import Opened, Signing, decode_data, encode_data, require_secp256k1
from pywaku.encryption.signatures import VBase
from pywaku.errors import DecryptionFailed
from pywaku.keys import PrivateKey, PublicKey

_CURVE: Final = ec.SECP256K1()
_POINT_SIZE: Final = 65
_UNCOMPRESSED: Final = 4
_IV_SIZE: Final = 16
_MAC_SIZE: Final = 32
_OVERHEAD: Final = _POINT_SIZE + _IV_SIZE + _MAC_SIZE


class EciesEncryptor:
    """The sender's side: encrypts for the holder of `recipient`'s private key, and not for itself."""

    __slots__ = ("_recipient", "_signing", "recipient")

    message_version: int | None = 1

    def __init__(
        self, recipient: PublicKey, sign_with: PrivateKey | None = None, *, v_base: VBase = 0
    ) -> None:
        require_secp256k1("recipient", recipient, PublicKey)
        self.recipient = recipient
        self._recipient = _load(recipient)
        self._signing = Signing.of(sign_with, None, v_base)

    def encrypt(self, content: bytes) -> bytes:
        """The payload for the wire."""
        data = encode_data(content, self._signing)
        return seal(data, self._recipient, PrivateKey.generate(), secrets.token_bytes(_IV_SIZE))


class EciesDecryptor:
    """The receiver's side: decrypts what was encrypted for the public key of `private_key`.

    With `signers`, only what one of them signed: anybody can encrypt for a public key.
    """

    __slots__ = ("_private_key", "_signers", "public_key")

    message_version: int | None = 1

    def __init__(self, private_key: PrivateKey, *, signers: Iterable[PublicKey] | None = None) -> None:
        require_secp256k1("private_key", private_key, PrivateKey)
        self.public_key = private_key.public
        """What senders encrypt for."""
        self._private_key = _load_private(private_key)
        self._signers = Signing.of(None, signers).signers

    def decrypt(self, payload: bytes) -> bytes:
        """What was encrypted; raises `DecryptionFailed`."""
        return self.open(payload).payload

    def open(self, payload: bytes) -> Opened:
        """What was encrypted, and who signed it; raises `DecryptionFailed`."""
        return decode_data(unseal(payload, self._private_key), self._signers)


class EciesEncryption:
    """Both sides, for a conversation of two: encrypts for `recipient`, decrypts what is for `private_key`.

    Signs with `sign_with`, if given; with `signers`, takes only what one of them signed. What a side
    has encrypted it cannot read itself.
    """

    __slots__ = ("_decryptor", "_encryptor")

    message_version: int | None = 1

    def __init__(
        self,
        private_key: PrivateKey,
        recipient: PublicKey,
        sign_with: PrivateKey | None = None,
        *,
        signers: Iterable[PublicKey] | None = None,
        v_base: VBase = 0,
    ) -> None:
        self._decryptor = EciesDecryptor(private_key, signers=signers)
        self._encryptor = EciesEncryptor(recipient, sign_with, v_base=v_base)

    @property
    def public_key(self) -> PublicKey:
        """What the other side encrypts for."""
        return self._decryptor.public_key

    @property
    def recipient(self) -> PublicKey:
        """Whom this side encrypts for."""
        return self._encryptor.recipient

    def encrypt(self, content: bytes) -> bytes:
        """The payload for the wire."""
        return self._encryptor.encrypt(content)

    def decrypt(self, payload: bytes) -> bytes:
        """What was encrypted; raises `DecryptionFailed`."""
        return self._decryptor.decrypt(payload)

    def open(self, payload: bytes) -> Opened:
        """What was encrypted, and who signed it; raises `DecryptionFailed`."""
        return self._decryptor.open(payload)


def seal(data: bytes, recipient: ec.EllipticCurvePublicKey, ephemeral: PrivateKey, iv: bytes) -> bytes:
    """Encrypt with a key pair and an iv that are used once."""
    key, mac_key = _derive(_load_private(ephemeral).exchange(ec.ECDH(), recipient))
    encrypted = iv + _aes_ctr(key, iv, data)
    return b"\x04" + ephemeral.public.uncompressed + encrypted + _mac(mac_key, encrypted)


def unseal(payload: bytes, private_key: ec.EllipticCurvePrivateKey) -> bytes:
    """The way back; raises `DecryptionFailed`."""
    if len(payload) < _OVERHEAD:
        raise DecryptionFailed(
            f"{len(payload)} bytes are too few for a key, an iv and a MAC", reason="format"
        )
    if payload[0] != _UNCOMPRESSED:
        raise DecryptionFailed("it begins with no uncompressed public key", reason="format")
    try:
        ephemeral = ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, payload[:_POINT_SIZE])
    except ValueError:
        raise DecryptionFailed("its public key is no point on the curve", reason="format") from None
    key, mac_key = _derive(private_key.exchange(ec.ECDH(), ephemeral))
    encrypted, mac = payload[_POINT_SIZE:-_MAC_SIZE], payload[-_MAC_SIZE:]
    if not hmac.compare_digest(_mac(mac_key, encrypted), mac):
        raise DecryptionFailed("the key is another one, or bytes were changed")
    return _aes_ctr(key, encrypted[:_IV_SIZE], encrypted[_IV_SIZE:])


def _derive(secret: bytes) -> tuple[bytes, bytes]:
    """`kE` and the key of the MAC, `sha256(kM)`."""
    material = ConcatKDFHash(hashes.SHA256(), 32, None).derive(secret)
    return material[:16], hashlib.sha256(material[16:]).digest()


def _aes_ctr(key: bytes, iv: bytes, data: bytes) -> bytes:
    """Encrypts and decrypts alike."""
    encryptor = Cipher(algorithms.AES(key), modes.CTR(iv)).encryptor()
    return encryptor.update(data) + encryptor.finalize()


def _mac(key: bytes, encrypted: bytes) -> bytes:
    return hmac.digest(key, encrypted, "sha256")


def _load(key: PublicKey) -> ec.EllipticCurvePublicKey:
    return ec.EllipticCurvePublicKey.from_encoded_point(_CURVE, key.raw)


def _load_private(key: PrivateKey) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(key.raw), _CURVE)
