"""Version 1 payloads, to and from js-waku's `@waku/message-encryption`, in whole messages."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

import interop
from interop.node import find_node, what_is_missing
from interop.peer_process import PeerFailed, PeerProcess, open_peer_process
from pywaku.encryption import EciesDecryptor, EciesEncryptor, Opened, SymmetricEncryption, generate_key
from pywaku.keys import PrivateKey, PublicKey
from pywaku.messaging.encrypted import EncryptedDecoder, EncryptedEncoder
from pywaku.messaging.record import Message, PlainCodec
from pywaku.wire.message import decode_message, encode_message
from tests.support.payload_v1 import VECTORS_FILE

FOLDER = Path(interop.__path__[0]) / "js-encryption"


def missing() -> str | None:
    """Why js-waku's encryption cannot be run here; None when all is there."""
    if not (FOLDER / "node_modules" / "@waku" / "message-encryption").is_dir():
        return what_is_missing() or "it is not installed: run 'interop/node-setup.sh python3'"
    return what_is_missing()


MISSING = missing()
pytestmark = [pytest.mark.interop, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]

Kind = Literal["symmetric", "ecies"]
NOW_NS = 1_700_000_000_000_000_000
SIZES = (*range(32), *range(180, 260), 511, 512, 513, 65_535, 65_536, 65_537, 140_000)


class Side:
    """The keys of a conversation, and what each side makes of them."""

    def __init__(self, kind: Kind, signed: bool) -> None:
        self.key = generate_key()
        self.private_key = PrivateKey.generate()
        self.signer = PrivateKey.generate() if signed else None
        self.kind: Kind = kind

    @property
    def signature_public_key(self) -> PublicKey | None:
        """Who signs."""
        return self.signer.public if self.signer else None

    @property
    def encryptor(self) -> SymmetricEncryption | EciesEncryptor:
        """Ours."""
        if self.kind == "symmetric":
            return SymmetricEncryption(self.key, self.signer)
        return EciesEncryptor(self.private_key.public, self.signer)

    @property
    def decryptor(self) -> SymmetricEncryption | EciesDecryptor:
        """Ours, which takes what the other side signs and nothing else."""
        signers = [self.signer.public] if self.signer else None
        if self.kind == "symmetric":
            return SymmetricEncryption(self.key, signers=signers)
        return EciesDecryptor(self.private_key, signers=signers)

    @property
    def to_encrypt(self) -> dict[str, Any]:
        """What js-waku encrypts with."""
        keys = {"signWith": self.signer.raw.hex()} if self.signer else {}
        if self.kind == "symmetric":
            return {"key": self.key.hex(), **keys}
        return {"publicKey": "04" + self.private_key.public.uncompressed.hex(), **keys}

    @property
    def to_decrypt(self) -> dict[str, Any]:
        """What js-waku decrypts with."""
        if self.kind == "symmetric":
            return {"key": self.key.hex()}
        return {"privateKey": self.private_key.raw.hex()}


@asynccontextmanager
async def open_js() -> AsyncGenerator[tuple[PeerProcess, PlainCodec]]:
    """js-waku's encryption, and a codec for the topic that it uses."""
    node = find_node()
    assert node is not None
    async with open_peer_process([node, str(FOLDER / "encryption.mjs"), "{}"]) as js:
        yield js, PlainCodec(js.ready["contentTopic"], js.ready["pubsubTopic"])


def payloads_of(sizes: Sequence[int]) -> list[bytes]:
    """One of each size, the same ones each time."""
    rng = random.Random(1)
    return [rng.randbytes(size) for size in sizes]


def hex_of(key: PublicKey | None) -> str | None:
    """A key as js-waku has it."""
    return None if key is None else "04" + key.uncompressed.hex()


both_kinds = pytest.mark.parametrize("kind", ["symmetric", "ecies"])
signed_or_not = pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "signed"])


@both_kinds
@signed_or_not
async def test_js_waku_decrypts_what_is_encrypted_here(kind: Kind, signed: bool) -> None:
    side, payloads = Side(kind, signed), payloads_of(SIZES)
    async with open_js() as (js, codec):
        encoder = EncryptedEncoder(codec, side.encryptor)
        messages = [encode_message(encoder.encode(Message(payload), NOW_NS)) for payload in payloads]
        said = await js.call("decode", messages=[message.hex() for message in messages], **side.to_decrypt)
    assert [bytes.fromhex(one["payload"]) for one in said] == payloads
    assert {one["version"] for one in said} == {1}
    assert {one["signaturePublicKey"] for one in said} == {hex_of(side.signature_public_key)}


@both_kinds
@signed_or_not
async def test_what_js_waku_encrypts_is_decrypted_here(kind: Kind, signed: bool) -> None:
    side, payloads = Side(kind, signed), payloads_of(SIZES)
    async with open_js() as (js, codec):
        said = await js.call("encode", payloads=[payload.hex() for payload in payloads], **side.to_encrypt)
    messages = [decode_message(bytes.fromhex(message)) for message in said]
    assert {message.version for message in messages} == {1}
    decoder = EncryptedDecoder(codec, side.decryptor)
    assert [decoder.decode(message) for message in messages] == payloads
    opened = [side.decryptor.open(message.payload) for message in messages]
    assert opened == [Opened(payload, side.signature_public_key) for payload in payloads]


@both_kinds
async def test_js_waku_refuses_what_is_for_another_key(kind: Kind) -> None:
    side, other = Side(kind, False), Side(kind, False)
    async with open_js() as (js, codec):
        message = encode_message(EncryptedEncoder(codec, side.encryptor).encode(Message(b"x"), NOW_NS))
        assert await js.call("decode", messages=[message.hex()], **other.to_decrypt) == [None]


async def test_public_keys_are_the_same() -> None:
    key = PrivateKey.generate()
    async with open_js() as (js, _):
        public_key = await js.call("publicKey", privateKey=key.raw.hex())
    assert PublicKey.from_uncompressed(bytes.fromhex(public_key)) == key.public


async def test_js_waku_cannot_read_the_v_of_the_specification() -> None:
    # Why 0 and 1 are written unless 27 and 28 are asked for.
    key, signer = generate_key(), PrivateKey.generate()
    async with open_js() as (js, codec):
        encoder = EncryptedEncoder(codec, SymmetricEncryption(key, signer, v_base=27))
        message = encode_message(encoder.encode(Message(b"x"), NOW_NS))
        with pytest.raises(PeerFailed, match="recovery"):
            await js.call("decode", messages=[message.hex()], key=key.hex())


def test_the_committed_vectors_are_what_js_waku_makes() -> None:
    node = find_node()
    assert node is not None
    made = subprocess.run([node, "vectors.mjs"], cwd=FOLDER, capture_output=True, text=True, check=True)
    value: dict[str, Any] = json.loads(made.stdout)
    assert value == json.loads(VECTORS_FILE.read_text())
