"""Version 1 payloads that js-waku made, with all that went into them (interop/js-encryption/vectors.mjs)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pywaku.keys import PrivateKey, PublicKey

VECTORS_FILE: Final = Path(__file__).parents[1] / "encryption" / "data" / "payload_v1.json"


@dataclass(frozen=True, slots=True)
class Sealed:
    """An encrypted payload. Of a large one there is only the hash."""

    iv: bytes
    ephemeral: PrivateKey | None
    payload: bytes | None
    sha256: bytes

    @classmethod
    def of(cls, value: dict[str, Any]) -> Sealed:
        """As it is in the file."""
        payload, digest = _shown(value["payload"])
        ephemeral = value.get("ephemeral")
        return cls(
            bytes.fromhex(value["iv"]), PrivateKey.from_hex(ephemeral) if ephemeral else None, payload, digest
        )


@dataclass(frozen=True, slots=True)
class Vector:
    """One payload, encrypted in both ways."""

    payload: bytes
    padding: bytes
    signature: bytes | None
    data_sha256: bytes
    symmetric: Sealed
    ecies: Sealed

    @property
    def name(self) -> str:
        """To tell it by."""
        return f"{len(self.payload)}-{'signed' if self.signature else 'unsigned'}"

    @property
    def signer(self) -> PublicKey | None:
        """Who signed it."""
        return SIGNER.public if self.signature else None


def _shown(value: str | dict[str, str]) -> tuple[bytes | None, bytes]:
    if isinstance(value, dict):
        return None, bytes.fromhex(value["sha256"])
    return bytes.fromhex(value), hashlib.sha256(bytes.fromhex(value)).digest()


def _vector(value: dict[str, Any]) -> Vector:
    size = value["size"]
    return Vector(
        bytes((index * 7 + size) % 256 for index in range(size)),
        bytes.fromhex(value["padding"]),
        bytes.fromhex(value["signature"]) if value["signed"] else None,
        _shown(value["data"])[1],
        Sealed.of(value["symmetric"]),
        Sealed.of(value["ecies"]),
    )


_FILE: Final[dict[str, Any]] = json.loads(VECTORS_FILE.read_text())
KEYS: Final[dict[str, Any]] = _FILE["keys"]
KEY: Final = bytes.fromhex(KEYS["symmetric"])
RECIPIENT: Final = PrivateKey.from_hex(KEYS["recipient"]["private"])
SIGNER: Final = PrivateKey.from_hex(KEYS["signer"]["private"])
VECTORS: Final = [_vector(value) for value in _FILE["vectors"]]
