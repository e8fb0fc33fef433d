"""Encoders and decoders that encrypt (14/WAKU2-MESSAGE, Payload encryption)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from pywaku.encryption.hook import require_decrypted
from pywaku.errors import DecryptionFailed, InvalidInput
from pywaku.message import WakuMessage
from pywaku.messaging.record import Decoder, Encoder, Message, require_decoder, require_encoder


class Codec(Encoder, Decoder, Protocol):
    """An encoder and decoder in one, as `Node.codec` gives it."""


class Encrypts(Protocol):
    """What an encoder encrypts with: anything of `pywaku.encryption` that encrypts, or one of your own."""

    @property
    def message_version(self) -> int | None:
        """The `version` its messages have: 1 for 26/WAKU2-PAYLOAD, else None."""
        ...

    def encrypt(self, content: bytes) -> bytes:
        """The payload for the wire."""
        ...


class Decrypts(Protocol):
    """What a decoder decrypts with: anything of `pywaku.encryption` that decrypts, or one of your own."""

    @property
    def message_version(self) -> int | None:
        """The `version` its messages have: 1 for 26/WAKU2-PAYLOAD, else None."""
        ...

    def decrypt(self, payload: bytes) -> bytes:
        """What was encrypted. Whatever it raises says that it cannot."""
        ...


class EncryptsAndDecrypts(Encrypts, Decrypts, Protocol):
    """Both."""


@dataclass(frozen=True, slots=True)
class EncryptedEncoder:
    """Encrypts the payloads that an encoder makes. The rest of a message is as visible as before."""

    encoder: Encoder
    encryption: Encrypts

    def __post_init__(self) -> None:
        require_encoder(self.encoder)
        _require_encryption(self.encryption, "encrypt")

    @property
    def pubsub_topic(self) -> str:
        """The pubsub topic to send on."""
        return self.encoder.pubsub_topic

    @property
    def content_topic(self) -> str:
        """The content topic to send on."""
        return self.encoder.content_topic

    def encode(self, message: Message, now_ns: int) -> WakuMessage:
        """The message for the wire."""
        plain = self.encoder.encode(message, now_ns)
        payload = self.encryption.encrypt(plain.payload)
        return replace(plain, payload=payload, version=self.encryption.message_version)


@dataclass(frozen=True, slots=True)
class EncryptedDecoder:
    """Decrypts payloads before a decoder reads them. What is not encrypted in this way is not for it."""

    decoder: Decoder
    encryption: Decrypts

    def __post_init__(self) -> None:
        require_decoder(self.decoder)
        _require_encryption(self.encryption, "decrypt")

    @property
    def pubsub_topic(self) -> str:
        """The pubsub topic to listen on."""
        return self.decoder.pubsub_topic

    @property
    def content_topic(self) -> str:
        """The content topic to listen on."""
        return self.decoder.content_topic

    def decode(self, message: WakuMessage) -> bytes | None:
        """The payload for the application; None for a message of another topic or version.

        Raises `DecryptionFailed` for one that cannot be decrypted, which the node counts as undecodable.
        """
        if message.content_topic != self.content_topic:
            return None
        if (message.version or 0) != (self.encryption.message_version or 0):
            return None
        try:
            payload = self.encryption.decrypt(message.payload)
        except DecryptionFailed:
            raise
        except Exception as error:
            raise DecryptionFailed(f"{type(error).__name__}: {error}", reason="hook") from error
        return self.decoder.decode(replace(message, payload=require_decrypted(payload), version=None))


@dataclass(frozen=True, slots=True)
class EncryptedCodec:
    """An encoder and decoder that encrypts: `EncryptedCodec(node.codec(topic), SymmetricEncryption(key))`."""

    codec: Codec
    encryption: EncryptsAndDecrypts

    def __post_init__(self) -> None:
        EncryptedEncoder(self.codec, self.encryption)
        EncryptedDecoder(self.codec, self.encryption)

    @property
    def pubsub_topic(self) -> str:
        """The pubsub topic to send and listen on."""
        return self.codec.pubsub_topic

    @property
    def content_topic(self) -> str:
        """The content topic to send and listen on."""
        return self.codec.content_topic

    def encode(self, message: Message, now_ns: int) -> WakuMessage:
        """The message for the wire; see `EncryptedEncoder`."""
        return EncryptedEncoder(self.codec, self.encryption).encode(message, now_ns)

    def decode(self, message: WakuMessage) -> bytes | None:
        """The payload for the application; see `EncryptedDecoder`."""
        return EncryptedDecoder(self.codec, self.encryption).decode(message)


def _require_encryption(value: object, method: str) -> None:
    if not (callable(getattr(value, method, None)) and hasattr(value, "message_version")):
        raise InvalidInput(
            f"encryption: has {method} and message_version, which a {type(value).__name__} has not"
        )
