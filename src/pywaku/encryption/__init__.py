"""Encryption of payloads: the hook of reliable channels, and ready-made ones for it."""

from __future__ import annotations

from pywaku.encryption.ecies import EciesDecryptor, EciesEncryption, EciesEncryptor
from pywaku.encryption.hook import Encryption, decrypt_with, encrypt_with
from pywaku.encryption.keyring import Decryptor, Encryptor, KeyRing
from pywaku.encryption.layout import Opened
from pywaku.encryption.shared_key import SharedKeyEncryption, generate_key, key_from_passphrase
from pywaku.encryption.symmetric import SymmetricEncryption

__all__ = [
    "Decryptor",
    "EciesDecryptor",
    "EciesEncryption",
    "EciesEncryptor",
    "Encryption",
    "Encryptor",
    "KeyRing",
    "Opened",
    "SharedKeyEncryption",
    "SymmetricEncryption",
    "decrypt_with",
    "encrypt_with",
    "generate_key",
    "key_from_passphrase",
]
