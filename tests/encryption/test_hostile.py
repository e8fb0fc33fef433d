"""Whatever arrives: an encryption gives what was encrypted, or raises `DecryptionFailed` and nothing else."""

from __future__ import annotations

import contextlib
import random
from typing import NamedTuple, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.encryption import (
    EciesDecryptor,
    EciesEncryption,
    EciesEncryptor,
    KeyRing,
    SharedKeyEncryption,
    SymmetricEncryption,
    generate_key,
)
from pywaku.encryption.curve import FIELD
from pywaku.encryption.layout import decode_data
from pywaku.errors import DecodeError, DecryptionFailed
from pywaku.keys import PrivateKey
from tests.support.payload_v1 import KEY, RECIPIENT, SIGNER


class Readable(Protocol):
    """What encrypts and decrypts."""

    def encrypt(self, content: bytes) -> bytes:
        """Make a payload."""
        ...

    def decrypt(self, payload: bytes) -> bytes:
        """Read one."""
        ...


class Case(NamedTuple):
    """An encryption, and one of the same kind with other keys."""

    name: str
    ours: Readable
    others: Readable


_OTHER = PrivateKey.generate()
CASES = (
    Case("symmetric", SymmetricEncryption(KEY), SymmetricEncryption(generate_key())),
    Case(
        "symmetric, signed",
        SymmetricEncryption(KEY, SIGNER, signers=[SIGNER.public]),
        SymmetricEncryption(generate_key(), SIGNER),
    ),
    Case("ecies", EciesEncryption(RECIPIENT, RECIPIENT.public), EciesEncryption(_OTHER, _OTHER.public)),
    Case(
        "ecies, signed",
        EciesEncryption(RECIPIENT, RECIPIENT.public, SIGNER, signers=[SIGNER.public]),
        EciesEncryption(_OTHER, _OTHER.public, SIGNER),
    ),
    Case("shared key", SharedKeyEncryption(KEY), SharedKeyEncryption(generate_key())),
    Case(
        "shared key of a channel", SharedKeyEncryption(KEY, associated_data=b"room"), SharedKeyEncryption(KEY)
    ),
    Case(
        "key ring",
        KeyRing(EciesDecryptor(RECIPIENT), SymmetricEncryption(KEY), encrypt_with=SymmetricEncryption(KEY)),
        KeyRing(SymmetricEncryption(generate_key()), encrypt_with=SymmetricEncryption(generate_key())),
    ),
)
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@each_case
@given(content=st.binary(max_size=2000))
def test_what_is_encrypted_is_decrypted_and_by_nobody_else(case: Case, content: bytes) -> None:
    payload = case.ours.encrypt(content)
    assert case.ours.decrypt(payload) == content
    assert len(content) < 8 or content not in payload  # shorter ones may be there by chance
    with pytest.raises(DecryptionFailed):
        case.others.decrypt(payload)


@each_case
def test_a_change_of_any_byte_is_noticed(case: Case) -> None:
    payload = case.ours.encrypt(b"payload")
    rng = random.Random(1)
    for at in range(len(payload)):
        changed = bytearray(payload)
        changed[at] ^= 1 << rng.randrange(8)
        with pytest.raises(DecryptionFailed):
            case.ours.decrypt(bytes(changed))
    assert case.ours.decrypt(payload) == b"payload"


@each_case
def test_a_payload_that_was_cut_or_is_too_long_is_noticed(case: Case) -> None:
    payload = case.ours.encrypt(b"payload")
    for at in range(len(payload)):
        with pytest.raises(DecryptionFailed):
            case.ours.decrypt(payload[:at])
        with pytest.raises(DecryptionFailed):
            case.ours.decrypt(payload[at + 1 :])
    for longer in (payload + b"\0", b"\0" + payload, payload * 2):
        with pytest.raises(DecryptionFailed):
            case.ours.decrypt(longer)


@each_case
@given(payload=st.binary(max_size=600))
def test_any_bytes_fail(case: Case, payload: bytes) -> None:
    with pytest.raises(DecryptionFailed):
        case.ours.decrypt(payload)


@each_case
@pytest.mark.parametrize("fill", [b"\0", b"\1", b"\4", b"\xff"])
def test_giant_payloads_fail(case: Case, fill: bytes) -> None:
    with pytest.raises(DecryptionFailed):
        case.ours.decrypt(fill * 20_000_000)


@each_case
def test_a_failure_is_a_decode_error_with_a_reason_and_shows_no_payload(case: Case) -> None:
    payload = case.ours.encrypt(b"payload")
    with pytest.raises(DecodeError) as failure:
        case.others.decrypt(payload)
    assert isinstance(failure.value, DecryptionFailed)
    assert failure.value.reason == "authentication"
    assert len(str(failure.value)) < 100


@given(data=st.binary(max_size=400))
def test_any_bytes_that_were_encrypted_are_a_payload_or_fail(data: bytes) -> None:
    with contextlib.suppress(DecryptionFailed):
        assert decode_data(data).payload in data


@pytest.mark.parametrize(
    "point",
    [bytes(64), b"\xff" * 64, FIELD.to_bytes(32) + bytes(32), (5).to_bytes(32) * 2],
    ids=["zero", "ones", "the field", "off the curve"],
)
@pytest.mark.parametrize("prefix", [0, 2, 3, 4, 6, 7])
def test_an_ephemeral_key_that_is_no_point_on_the_curve_fails(prefix: int, point: bytes) -> None:
    payload = EciesEncryptor(RECIPIENT.public).encrypt(b"payload")
    with pytest.raises(DecryptionFailed) as failure:
        EciesDecryptor(RECIPIENT).decrypt(bytes([prefix]) + point + payload[65:])
    assert failure.value.reason == "format"


@pytest.mark.parametrize("prefix", [2, 3, 6, 7])
def test_an_ephemeral_key_is_uncompressed(prefix: int) -> None:
    payload = EciesEncryptor(RECIPIENT.public).encrypt(b"payload")
    with pytest.raises(DecryptionFailed, match="uncompressed"):
        EciesDecryptor(RECIPIENT).decrypt(bytes([prefix]) + payload[1:])


def _negated(payload: bytes) -> bytes:
    """With the ephemeral key mirrored: -R in place of R."""
    return payload[:33] + (FIELD - int.from_bytes(payload[33:65])).to_bytes(32) + payload[65:]


def test_the_one_other_form_of_an_ecies_payload_holds_the_same() -> None:
    # Of R only the x goes into the keys (as the specification has it), so -R is as good as R. That makes
    # another Waku message, with another hash, of the same content: not one of other content.
    payload = EciesEncryptor(RECIPIENT.public).encrypt(b"payload")
    assert _negated(payload) != payload
    assert EciesDecryptor(RECIPIENT).decrypt(_negated(payload)) == b"payload"


def test_keys_are_made_by_chance() -> None:
    keys = {generate_key() for _ in range(100)}
    assert len(keys) == 100
    assert {len(key) for key in keys} == {32}
