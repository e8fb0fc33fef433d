"""The entries of a DNS node list: its URL, its signed root, its branches, links and records (EIP-1459).

Values only; `pywaku.peers.dns` looks the entries up. Texts come from DNS servers, so everything that is wrong
with them is a `DecodeError`.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Final

from Crypto.Hash import keccak

from pywaku.errors import DecodeError, InvalidInput
from pywaku.keys import PrivateKey, PublicKey
from pywaku.wire.enr import Enr

MAX_ENTRY: Final = 4096
"""Characters of an entry. Proper ones fit into a DNS packet of 512 bytes; some trees stretch that."""
MAX_BRANCHES: Final = 128
_LINK: Final = "enrtree://"
_BRANCH: Final = "enrtree-branch:"
_ROOT: Final = "enrtree-root:v1 "
_RECORD: Final = "enr:"
_ROOT_FORM: Final = re.compile(
    r"enrtree-root:v1 e=([A-Z2-7]+) l=([A-Z2-7]+) seq=(\d{1,20}) sig=([A-Za-z0-9_-]{86,88})", re.ASCII
)
_HASH_FORM: Final = re.compile(r"[A-Z2-7]{20,52}", re.ASCII)
_HASH_BYTES: Final = range(12, 32 + 1)
_NAME_FORM: Final = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9_-]{1,63})*\.?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Link:
    """A node list: where it is and who signs it."""

    key: PublicKey
    domain: str

    @classmethod
    def parse(cls, text: str) -> Link:
        """A list from its URL, `enrtree://<key>@<domain>`; raises `DecodeError`."""
        if len(text) > MAX_ENTRY or not text.startswith(_LINK):
            raise DecodeError(f"a node list is written {_LINK}<key>@<domain>")
        name, at, domain = text[len(_LINK) :].partition("@")
        if not at or not _NAME_FORM.fullmatch(domain):
            raise DecodeError(f"a node list is written {_LINK}<key>@<domain>; that is no domain")
        raw = _base32_decode(name)
        if len(raw) != 33:
            raise DecodeError(f"the key of a node list has 33 bytes, not {len(raw)}")
        return cls(PublicKey("secp256k1", raw), domain.rstrip(".").lower())

    def __str__(self) -> str:
        return f"{_LINK}{_base32(self.key.raw)}@{self.domain}"


@dataclass(frozen=True, slots=True)
class Root:
    """The signed beginning of a tree: the hashes of its two subtrees, and its sequence number."""

    records: str
    links: str
    seq: int
    signature: bytes

    @classmethod
    def parse(cls, text: str) -> Root:
        """The root from its text; raises `DecodeError`. The signature is `verify`'s matter."""
        found = _ROOT_FORM.fullmatch(text) if len(text) <= MAX_ENTRY else None
        if found is None:
            raise DecodeError("not the root of a node list")
        records, links, seq, signature = found.groups()
        try:
            raw = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
        except binascii.Error:
            raise DecodeError("the signature of a node list is not URL-safe base64") from None
        if len(raw) != 65:
            raise DecodeError(f"the signature of a node list has 65 bytes, not {len(raw)}")
        return cls(check_hash(records), check_hash(links), int(seq), raw)

    @classmethod
    def sign(cls, key: PrivateKey, *, records: str, links: str, seq: int) -> Root:
        """A root of one's own. The last byte of its signature, the recovery id, is left at 0."""
        unsigned = cls(records, links, seq, b"")
        return cls(records, links, seq, key.sign_digest(_keccak256(unsigned._content())) + b"\0")

    def verify(self, key: PublicKey) -> bool:
        """Is the root signed by this key?"""
        return key.verify_digest(_keccak256(self._content()), self.signature[:64])

    def _content(self) -> bytes:
        return f"{_ROOT}e={self.records} l={self.links} seq={self.seq}".encode()

    def __str__(self) -> str:
        signature = base64.urlsafe_b64encode(self.signature).decode().rstrip("=")
        return f"{self._content().decode()} sig={signature}"


@dataclass(frozen=True, slots=True)
class Branch:
    """The hashes of the entries below."""

    hashes: tuple[str, ...]

    def __str__(self) -> str:
        return _BRANCH + ",".join(self.hashes)


Entry = Branch | Link | Enr


def parse_entry(text: str) -> Entry:
    """An entry below the root; raises `DecodeError`."""
    if len(text) > MAX_ENTRY:
        raise DecodeError(f"an entry of a node list has up to {MAX_ENTRY} characters")
    if text.startswith(_BRANCH):
        body = text[len(_BRANCH) :]
        hashes = tuple(body.split(",")) if body else ()
        if len(hashes) > MAX_BRANCHES:
            raise DecodeError(f"a branch of a node list has up to {MAX_BRANCHES} entries, not {len(hashes)}")
        return Branch(tuple(map(check_hash, hashes)))
    if text.startswith(_LINK):
        return Link.parse(text)
    if text.startswith(_RECORD):
        return Enr.parse(text)
    raise DecodeError("an entry of a node list is a branch, a link or a node record")


def hash_of(text: str) -> str:
    """The name of an entry: its abbreviated hash, the first 16 bytes of keccak256, in base32."""
    return _base32(_keccak256(text.encode())[:16])


def matches(text: str, name: str) -> bool:
    """Is `name` a hash of this entry? It may be longer or shorter than usual, but not too short."""
    try:
        digest = _base32_decode(name)
    except DecodeError:
        return False
    return len(digest) in _HASH_BYTES and _keccak256(text.encode()).startswith(digest)


def check_hash(text: str) -> str:
    """`text`, if it is the hash of an entry; else raises `DecodeError`."""
    if not _HASH_FORM.fullmatch(text) or len(_base32_decode(text)) not in _HASH_BYTES:
        raise DecodeError("not a hash of an entry of a node list")
    return text


def parse_url(text: str) -> Link:
    """A node list as a user names it; raises `InvalidInput`."""
    try:
        return Link.parse(text.strip())
    except DecodeError as error:
        raise InvalidInput(f"{text[:100]!r}: {error}") from None


def _keccak256(data: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=data).digest()


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=")


def _base32_decode(text: str) -> bytes:
    """Base32 without padding, in its one proper form; raises `DecodeError`."""
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raise DecodeError("not base32") from None
    if _base32(raw) != text:
        raise DecodeError("not base32 in its proper form")
    return raw
