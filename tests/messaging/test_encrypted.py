"""Encoders and decoders that encrypt (14/WAKU2-MESSAGE, Payload encryption), on their own and in nodes."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from pywaku.encryption import (
    EciesDecryptor,
    EciesEncryptor,
    KeyRing,
    SharedKeyEncryption,
    SymmetricEncryption,
    generate_key,
)
from pywaku.errors import DecryptionFailed, InvalidInput
from pywaku.keys import PrivateKey
from pywaku.message import WakuMessage
from pywaku.messaging.encrypted import EncryptedCodec, EncryptedDecoder, EncryptedEncoder
from pywaku.messaging.record import Message, PlainCodec
from tests.support.waku_nodes import SHARD, TOPIC, open_waku_world, until

PLAIN = PlainCodec(TOPIC, SHARD)
KEY = generate_key()
SYMMETRIC = EncryptedCodec(PLAIN, SymmetricEncryption(KEY))
SHARED = EncryptedCodec(PLAIN, SharedKeyEncryption(KEY))


def test_version_1_should_be_the_encryption_of_26_waku2_payload() -> None:
    message = SYMMETRIC.encode(Message(b"hello"), 5)
    assert message.version == 1
    assert SymmetricEncryption(KEY).decrypt(message.payload) == b"hello"
    assert SYMMETRIC.decode(message) == b"hello"


def test_version_0_can_be_encrypted_at_the_application_layer() -> None:
    message = SHARED.encode(Message(b"hello"), 5)
    assert message.version is None
    assert SharedKeyEncryption(KEY).decrypt(message.payload) == b"hello"
    assert SHARED.decode(message) == b"hello"


def test_only_the_payload_is_encrypted() -> None:
    plain = PLAIN.encode(Message(b"hello", meta=b"meta", ephemeral=True), 5)
    message = SYMMETRIC.encode(Message(b"hello", meta=b"meta", ephemeral=True), 5)
    assert (message.content_topic, message.meta, message.timestamp_ns, message.ephemeral) == (
        plain.content_topic,
        plain.meta,
        plain.timestamp_ns,
        plain.ephemeral,
    )


def test_it_goes_where_the_codec_says() -> None:
    sender = EncryptedEncoder(PLAIN, EciesEncryptor(PrivateKey.generate().public))
    receiver = EncryptedDecoder(PLAIN, EciesDecryptor(PrivateKey.generate()))
    for one in (SYMMETRIC, sender, receiver):
        assert (one.content_topic, one.pubsub_topic) == (TOPIC, SHARD)


def test_one_side_encrypts_and_the_other_decrypts() -> None:
    key = PrivateKey.generate()
    message = EncryptedEncoder(PLAIN, EciesEncryptor(key.public)).encode(Message(b"to one"), 5)
    assert EncryptedDecoder(PLAIN, EciesDecryptor(key)).decode(message) == b"to one"
    both = EncryptedDecoder(PLAIN, KeyRing(SymmetricEncryption(KEY), EciesDecryptor(key)))
    assert both.decode(message) == b"to one"
    assert both.decode(SYMMETRIC.encode(Message(b"to all"), 5)) == b"to all"


@pytest.mark.parametrize("codec", [SYMMETRIC, SHARED], ids=["version 1", "version 0"])
def test_messages_of_other_topics_and_versions_are_not_for_it(codec: EncryptedCodec) -> None:
    message = codec.encode(Message(b"hello"), 5)
    assert codec.decode(WakuMessage(message.payload, "/test/1/other/proto", version=message.version)) is None
    for version in (0, 1, 2):
        other = WakuMessage(message.payload, TOPIC, version=version)
        assert codec.decode(other) == (b"hello" if version == (message.version or 0) else None)


@pytest.mark.parametrize("codec", [SYMMETRIC, SHARED], ids=["version 1", "version 0"])
def test_what_cannot_be_decrypted_is_said_to_be_so(codec: EncryptedCodec) -> None:
    version = codec.encryption.message_version
    with pytest.raises(DecryptionFailed):
        codec.decode(WakuMessage(b"no ciphertext", TOPIC, version=version))


class Own:
    """An encryption of an application's own, not prepared for everything."""

    message_version = None

    def encrypt(self, content: bytes) -> bytes:
        """Say how long it is."""
        return bytes([len(content)]) + content

    def decrypt(self, payload: bytes) -> bytes:
        """Raises IndexError where there is nothing."""
        return payload[1 : payload[0] + 1]


def test_what_an_application_s_own_encryption_raises_is_a_failed_decryption() -> None:
    codec = EncryptedCodec(PLAIN, Own())
    assert codec.decode(codec.encode(Message(b"hello"), 5)) == b"hello"
    with pytest.raises(DecryptionFailed, match="IndexError") as failure:
        codec.decode(WakuMessage(b"", TOPIC))
    assert failure.value.reason == "hook"


@pytest.mark.virtual
async def test_nodes_send_and_receive_encrypted_messages_and_others_see_nothing() -> None:
    async with (
        open_waku_world() as world,
        world.node("alice") as alice,
        world.node("bob", alice) as bob,
        world.node("eve", alice, bob) as eve,
        await bob.subscribe(SYMMETRIC) as reading,
        await eve.subscribe(PLAIN) as listening,
        await eve.subscribe(EncryptedCodec(PLAIN, SymmetricEncryption(generate_key()))) as guessing,
    ):
        await until(lambda: len(alice.relay.mesh(SHARD)) == 2)
        alice.send(SYMMETRIC, Message(b"for bob"))
        alice.send(PLAIN, Message(b"for all"))
        record = await anext(reading)
        assert (record.message.payload, record.message.version) == (b"for bob", 1)
        heard = [(await anext(listening)).message for _ in range(2)]
        assert {message.version for message in heard} == {None, 1}
        assert sum(b"for" in message.payload for message in heard) == 1
        await trio.sleep(1)
        assert len(reading) == 0  # what is not encrypted is not taken for it
        assert len(guessing) == 0
        assert eve.parts.messaging.inbox.counters.undecodable == 1


@pytest.mark.parametrize("kind", [EncryptedCodec, EncryptedEncoder, EncryptedDecoder])
def test_what_is_no_codec_or_no_encryption_is_refused_when_they_are_put_together(kind: Any) -> None:
    for nothing in (TOPIC, None):
        with pytest.raises(InvalidInput, match=r"coder: is what node\.codec"):
            kind(nothing, SymmetricEncryption(KEY))
    for nothing in (KEY, None):
        with pytest.raises(InvalidInput, match=r"encryption: has (en|de)crypt and message_version"):
            kind(PLAIN, nothing)
