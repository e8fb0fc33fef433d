"""Names for things: peers, and the base58 text in which peers are written."""

from __future__ import annotations

import hashlib
from typing import Final, Self

from pywaku.errors import InvalidInput

_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGIT: Final = {character: value for value, character in enumerate(_ALPHABET)}
_IDENTITY: Final = 0x00
_SHA256: Final = 0x12
_INLINE_KEY_LIMIT: Final = 42  # longer public keys are hashed instead of inlined (libp2p peer ids)
_LONGEST_TEXT: Final = 128  # nothing of ours is longer; decoding is quadratic, so a bound matters


def base58_encode(data: bytes) -> str:
    """Bytes as base58 text (the Bitcoin alphabet)."""
    number = int.from_bytes(data)
    digits: list[str] = []
    while number:
        number, digit = divmod(number, 58)
        digits.append(_ALPHABET[digit])
    zeros = len(data) - len(data.lstrip(b"\0"))
    return "1" * zeros + "".join(reversed(digits))


def base58_decode(text: str) -> bytes:
    """Base58 text as bytes; raises `InvalidInput` where it is none."""
    if len(text) > _LONGEST_TEXT:
        raise InvalidInput(f"base58 text of {len(text)} characters is too long")
    number = 0
    for character in text:
        digit = _DIGIT.get(character)
        if digit is None:
            raise InvalidInput(f"{character!r} is not a base58 character")
        number = number * 58 + digit
    zeros = len(text) - len(text.lstrip("1"))
    return b"\0" * zeros + number.to_bytes((number.bit_length() + 7) // 8)


class PeerId(bytes):
    """A libp2p peer id: the multihash of a public key. Bytes inside, base58 as text.

    It is a `bytes`, so that it hashes and compares as fast as those do.
    """

    __slots__ = ()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """A peer id from its multihash; raises `InvalidInput` where the bytes are none."""
        if len(data) < 3 or data[0] not in (_IDENTITY, _SHA256) or data[1] != len(data) - 2:
            raise InvalidInput("a peer id is an identity or sha2-256 multihash")
        if data[0] == _SHA256 and data[1] != 32:
            raise InvalidInput("a hashed peer id holds 32 bytes")
        if data[0] == _IDENTITY and data[1] > _INLINE_KEY_LIMIT:
            raise InvalidInput(f"a peer id inlines keys of up to {_INLINE_KEY_LIMIT} bytes")
        return cls(data)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """A peer id from its base58 text (`16Uiu2…`, `12D3…`, `Qm…`)."""
        return cls.from_bytes(base58_decode(text))

    @classmethod
    def of_public_key(cls, encoded_key: bytes) -> Self:
        """The peer id of a public key in libp2p's protobuf encoding."""
        if len(encoded_key) <= _INLINE_KEY_LIMIT:
            return cls(bytes((_IDENTITY, len(encoded_key))) + encoded_key)
        return cls(bytes((_SHA256, 32)) + hashlib.sha256(encoded_key).digest())

    def short(self) -> str:
        """Enough of the text to tell peers apart in a log line."""
        text = str(self)
        return f"{text[:4]}…{text[-6:]}" if len(text) > 12 else text

    def __str__(self) -> str:
        return base58_encode(self)

    def __repr__(self) -> str:
        return f"PeerId({str(self)!r})"
