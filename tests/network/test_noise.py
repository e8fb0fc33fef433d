"""The secure channel: published vectors of the handshake, libp2p's identity proof, sealed messages."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import DecodeError, InvalidInput, LimitExceeded
from pywaku.keys import KeyKind, PrivateKey
from pywaku.network.libp2p.noise import MAX_PLAINTEXT, HandshakeError, NoiseHandshake, NoiseTransport
from pywaku.network.libp2p.noise_xx import XxHandshake
from pywaku.wire.protobuf_lite import bytes_field

ALICE = PrivateKey.from_bytes("secp256k1", b"\1" * 32)
BOB = PrivateKey.from_bytes("ed25519", b"\2" * 32)
MALLORY = PrivateKey.from_bytes("secp256k1", b"\3" * 32)
SMALL_ORDER = bytes(32)  # a key with which every exchange yields zero

INIT_STATIC = bytes(range(0x20))
RESP_STATIC = bytes(range(0x01, 0x21))
INIT_EPHEMERAL = bytes(range(0x20, 0x40))
RESP_EPHEMERAL = bytes(range(0x41, 0x61))

# flynn/noise, vectors.txt: prologue, payloads, the three messages
VECTORS = [
    (
        "",
        ("", "", ""),
        (
            "358072d6365880d1aeea329adf9121383851ed21a28e3b75e965d0d2cd166254",
            "64b101b1d0be5a8704bd078f9895001fc03e8e9f9522f188dd128d9846d484663414af878d3e46a2f58911a816d6e834"
            "6d4ea17a6f2a0bb4ef4ed56c133cff4560a34e36ea82109f26cf2e5a5caf992b608d55c747f615e5a3425a7a19eefb8f",
            "87f864c11ba449f46a0a4f4e2eacbb7b0457784f4fca1937f572c93603e9c4d9"
            "7e5ea11b16f3968710b23a3be3202dc1b5e1ce3c963347491e74f5c0768a9b42",
        ),
    ),
    (
        "",
        ("746573745f6d73675f30", "746573745f6d73675f31", "746573745f6d73675f32"),
        (
            "358072d6365880d1aeea329adf9121383851ed21a28e3b75e965d0d2cd166254746573745f6d73675f30",
            "64b101b1d0be5a8704bd078f9895001fc03e8e9f9522f188dd128d9846d484663414af878d3e46a2f58911a816d6e834"
            "6d4ea17a6f2a0bb4ef4ed56c133cff4572e7a2ba5123ac30618b3d205f5c2d17f50cbca216483ac56bcc78e33bf52030"
            "3278db641e5e731b2e3a",
            "87f864c11ba449f46a0a4f4e2eacbb7b0457784f4fca1937f572c93603e9c4d9f27e318e43ba630594c4d08eeb3b36d9"
            "7c7377a2f4f9144b2f0c8095ad92140505b2ab53eff244b14138",
        ),
    ),
    (
        "6e6f74736563726574",
        ("", "", ""),
        (
            "358072d6365880d1aeea329adf9121383851ed21a28e3b75e965d0d2cd166254",
            "64b101b1d0be5a8704bd078f9895001fc03e8e9f9522f188dd128d9846d484663414af878d3e46a2f58911a816d6e834"
            "6d4ea17a6f2a0bb4ef4ed56c133cff4588f043d1e49a3289b1beeab8f96b0551a48cddf9f38b1a12e46c6908644198f3",
            "87f864c11ba449f46a0a4f4e2eacbb7b0457784f4fca1937f572c93603e9c4d9"
            "5a04fa1f1c41fb3f00d496f242c1e44ce5b749b3d54bf74cea2dad086d601fb6",
        ),
    ),
]


def secret(raw: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(raw)


@pytest.mark.parametrize(("prologue", "payloads", "messages"), VECTORS)
def test_published_vectors_of_noise_xx(
    prologue: str, payloads: tuple[str, ...], messages: tuple[str, ...]
) -> None:
    initiator = XxHandshake(True, secret(INIT_STATIC), secret(INIT_EPHEMERAL), bytes.fromhex(prologue))
    responder = XxHandshake(False, secret(RESP_STATIC), secret(RESP_EPHEMERAL), bytes.fromhex(prologue))
    writer, reader = initiator, responder
    for payload, message in zip(payloads, messages, strict=True):
        assert writer.our_turn
        assert not reader.our_turn
        written = writer.write(bytes.fromhex(payload))
        assert written.hex() == message
        assert reader.read(written).hex() == payload
        writer, reader = reader, writer
    assert initiator.finished
    assert responder.finished
    assert initiator.remote_static == secret(RESP_STATIC).public_key().public_bytes_raw()
    one, other = NoiseTransport(*initiator.split()), NoiseTransport(*responder.split())
    first, second = one.encrypt([b"yellowsubmarine"]), other.encrypt([b"submarineyellow"])
    assert first[2:].hex() == "a52ef02ba60e12696d1d6b9ef4245c88fca757b6134ad6e76b56e310a6adf6"
    assert second[2:].hex() == "2445aa438ebd649281c636cc7269ca82f1d9023d72520943aeabf909cdf521"
    assert other.decrypt(first) == b"yellowsubmarine"
    assert one.decrypt(second) == b"submarineyellow"


def talk(initiator: NoiseHandshake, responder: NoiseHandshake) -> None:
    while not (initiator.finished and responder.finished):
        to_responder = initiator.take_output()
        if to_responder:
            responder.receive(to_responder)
        to_initiator = responder.take_output()
        if to_initiator:
            initiator.receive(to_initiator)
        assert to_responder or to_initiator, "the handshake has come to a halt"


def transports() -> tuple[NoiseTransport, NoiseTransport]:
    return NoiseTransport(b"\1" * 32, b"\2" * 32), NoiseTransport(b"\2" * 32, b"\1" * 32)


@pytest.mark.parametrize("ours", ["secp256k1", "ed25519"])
@pytest.mark.parametrize("theirs", ["secp256k1", "ed25519"])
def test_both_sides_learn_who_the_other_is(ours: KeyKind, theirs: KeyKind) -> None:
    one, other = PrivateKey.generate(ours), PrivateKey.generate(theirs)
    initiator = NoiseHandshake(True, one, expected_peer=other.peer_id)
    responder = NoiseHandshake(False, other, expected_peer=one.peer_id)
    talk(initiator, responder)
    assert initiator.remote_key == other.public
    assert initiator.remote_peer == other.peer_id
    assert responder.remote_peer == one.peer_id
    sender, receiver = initiator.transport(), responder.transport()
    assert receiver.decrypt(sender.encrypt([b"hello"])) == b"hello"
    assert sender.decrypt(receiver.encrypt([b"hello"])) == b"hello"


def test_a_handshake_arrives_in_pieces_of_any_size() -> None:
    initiator, responder = NoiseHandshake(True, ALICE), NoiseHandshake(False, BOB)
    while not (initiator.finished and responder.finished):
        for source, target in ((initiator, responder), (responder, initiator)):
            for byte in source.take_output():
                target.receive(bytes([byte]))
    assert responder.remote_peer == ALICE.peer_id


def test_what_follows_the_handshake_is_left_over() -> None:
    initiator, responder = NoiseHandshake(True, ALICE), NoiseHandshake(False, BOB)
    responder.receive(initiator.take_output())
    initiator.receive(responder.take_output())
    transport = initiator.transport()
    sealed = transport.encrypt([b"early"])
    responder.receive(initiator.take_output() + sealed[:7])
    assert responder.leftover == sealed[:7]
    receiving = responder.transport()
    assert receiving.decrypt(responder.leftover) == b""
    assert receiving.decrypt(sealed[7:]) == b"early"
    with pytest.raises(InvalidInput):
        responder.receive(b"more")


def test_nothing_is_known_before_the_handshake_is_finished() -> None:
    handshake = NoiseHandshake(True, ALICE)
    assert not handshake.finished
    assert handshake.leftover == b""
    with pytest.raises(InvalidInput):
        _ = handshake.remote_peer
    with pytest.raises(InvalidInput):
        handshake.transport()


def test_the_static_key_may_be_kept_for_all_sessions() -> None:
    seen: set[bytes] = set()
    for _ in range(2):
        initiator = XxHandshake(True, secret(INIT_STATIC), X25519PrivateKey.generate())
        responder = NoiseHandshake(False, BOB, static=RESP_STATIC)
        wire = initiator.write(b"")
        responder.receive(len(wire).to_bytes(2) + wire)
        initiator.read(responder.take_output()[2:])
        seen.add(initiator.remote_static)
    assert seen == {secret(RESP_STATIC).public_key().public_bytes_raw()}


def test_a_wrong_peer_is_refused_before_it_learns_who_we_are() -> None:
    initiator = NoiseHandshake(True, ALICE, expected_peer=MALLORY.peer_id)
    responder = NoiseHandshake(False, BOB)
    responder.receive(initiator.take_output())
    with pytest.raises(HandshakeError, match="not 16Uiu2"):
        initiator.receive(responder.take_output())
    assert initiator.take_output() == b""
    assert not initiator.finished


def test_a_wrong_dialer_is_refused() -> None:
    initiator, responder = (
        NoiseHandshake(True, ALICE),
        NoiseHandshake(False, BOB, expected_peer=MALLORY.peer_id),
    )
    with pytest.raises(HandshakeError):
        talk(initiator, responder)
    assert not responder.finished
    assert responder.leftover == b""


def answer_with(payload: bytes) -> None:
    """Let an initiator meet a responder that shows this payload."""
    initiator = NoiseHandshake(True, ALICE, stream_muxers=["/yamux/1.0.0"])
    responder = XxHandshake(False, secret(RESP_STATIC), secret(RESP_EPHEMERAL))
    responder.read(initiator.take_output()[2:])
    message = responder.write(payload)
    initiator.receive(len(message).to_bytes(2) + message)


def proof(key: PrivateKey, static: bytes = RESP_STATIC) -> bytes:
    return key.sign(b"noise-libp2p-static-key:" + secret(static).public_key().public_bytes_raw())


def test_an_invalid_signature_terminates_the_handshake() -> None:
    key = bytes_field(1, MALLORY.public.encode())
    answer_with(key + bytes_field(2, proof(MALLORY)))
    for payload in (
        b"",
        key,
        bytes_field(2, proof(MALLORY)),
        key + bytes_field(2, b""),
        key + bytes_field(2, proof(BOB)),
        key + bytes_field(2, proof(MALLORY, INIT_STATIC)),
        bytes_field(1, BOB.public.encode()) + bytes_field(2, proof(MALLORY)),
        bytes_field(1, b"nonsense") + bytes_field(2, proof(MALLORY)),
        b"\xff" * 20,
        b"\x08\x01\x10\x01",
    ):
        with pytest.raises(HandshakeError):
            answer_with(payload)


def test_extensions_we_do_not_know_are_skipped() -> None:
    payload = bytes_field(1, MALLORY.public.encode()) + bytes_field(2, proof(MALLORY))
    answer_with(payload + bytes_field(4, bytes_field(1, b"certhash")) + bytes_field(3, b"data") + b"\x28\x01")
    with pytest.raises(HandshakeError):
        answer_with(payload + bytes_field(4, b"\xff"))
    with pytest.raises(HandshakeError):
        answer_with(payload + bytes_field(4, bytes_field(2, b"\xff")))


@pytest.mark.parametrize(
    ("ours", "theirs", "agreed"),
    [
        ((), (), None),
        (("/yamux/1.0.0",), (), None),
        (("/yamux/1.0.0",), ("/mplex/6.7.0",), None),
        (("/yamux/1.0.0",), ("/mplex/6.7.0", "/yamux/1.0.0"), "/yamux/1.0.0"),
        (("/yamux/1.0.0", "/mplex/6.7.0"), ("/mplex/6.7.0", "/yamux/1.0.0"), "/yamux/1.0.0"),
    ],
)
def test_muxers_are_agreed_on_by_extension(
    ours: tuple[str, ...], theirs: tuple[str, ...], agreed: str | None
) -> None:
    initiator = NoiseHandshake(True, ALICE, stream_muxers=ours)
    responder = NoiseHandshake(False, BOB, stream_muxers=theirs)
    responder.receive(initiator.take_output())
    assert responder.remote_muxers == ()
    initiator.receive(responder.take_output())
    responder.receive(initiator.take_output())
    assert initiator.remote_muxers == theirs
    assert responder.remote_muxers == ours
    assert initiator.muxer == responder.muxer == agreed


def test_the_initiator_sends_no_payload_in_its_first_message() -> None:
    first = NoiseHandshake(True, ALICE, stream_muxers=["/yamux/1.0.0"]).take_output()
    assert len(first) == 2 + 32


def test_keys_of_small_order_are_refused() -> None:
    responder = NoiseHandshake(False, BOB)
    with pytest.raises(HandshakeError):
        responder.receive((32).to_bytes(2) + SMALL_ORDER)
    with pytest.raises(HandshakeError):
        responder.receive(b"")  # an error is final
    assert responder.take_output() == b""


def test_long_handshake_messages_are_refused_before_they_are_buffered() -> None:
    with pytest.raises(HandshakeError):
        NoiseHandshake(False, BOB).receive(b"\xff\xff")


@given(st.integers(0, 2**16), st.integers(1, 255), st.booleans())
def test_any_change_to_the_answer_is_noticed(position: int, change: int, cut: bool) -> None:
    initiator, responder = NoiseHandshake(True, ALICE), NoiseHandshake(False, BOB)
    responder.receive(initiator.take_output())
    answer = bytearray(responder.take_output())
    if cut:
        end = 2 + position % (len(answer) - 2)
        answer = answer[:end]
        answer[:2] = (end - 2).to_bytes(2)
    else:
        answer[2 + position % (len(answer) - 2)] ^= change
    with pytest.raises(HandshakeError):
        initiator.receive(bytes(answer))


@given(st.lists(st.binary(max_size=100), max_size=5), st.booleans())
def test_hostile_handshakes_raise_handshake_error_only(pieces: list[bytes], framed: bool) -> None:
    for handshake in (NoiseHandshake(True, BOB), NoiseHandshake(False, BOB)):
        try:
            for piece in pieces:
                handshake.receive(len(piece).to_bytes(2) + piece if framed else piece)
        except HandshakeError:
            assert not handshake.finished


@given(
    st.lists(st.lists(st.binary(max_size=200) | st.integers(0, 140_000).map(bytes), max_size=4), max_size=4),
    st.lists(st.integers(1, 70_000), max_size=8),
)
def test_plaintext_survives_any_chunking(writes: list[list[bytes]], cuts: list[int]) -> None:
    sender, receiver = transports()
    wire = b"".join(sender.encrypt(chunks) for chunks in writes)
    got: list[bytes] = []
    for cut in cuts:
        got.append(receiver.decrypt(wire[:cut]))
        wire = wire[cut:]
        assert receiver.pending <= 2 + 65535
    got.append(receiver.decrypt(wire))
    assert b"".join(got) == b"".join(b"".join(chunks) for chunks in writes)
    assert receiver.pending == 0


def test_chunks_are_coalesced_into_as_few_messages_as_possible() -> None:
    sender, _ = transports()
    overhead = 2 + 16
    assert sender.encrypt([]) == b""
    assert sender.encrypt([b"", b""]) == b""
    assert len(sender.encrypt([bytes(10)] * 100)) == 1000 + overhead
    assert len(sender.encrypt([bytes(MAX_PLAINTEXT)])) == MAX_PLAINTEXT + overhead
    assert len(sender.encrypt([bytes(MAX_PLAINTEXT), b"x"])) == MAX_PLAINTEXT + 1 + 2 * overhead
    assert len(sender.encrypt([bytes(3 * MAX_PLAINTEXT)])) == 3 * (MAX_PLAINTEXT + overhead)


def test_byte_by_byte_delivery_is_not_quadratic() -> None:
    sender, receiver = transports()
    wire = sender.encrypt([bytes(MAX_PLAINTEXT)])
    for position in range(len(wire) - 1):
        assert receiver.decrypt(wire[position : position + 1]) == b""
    assert receiver.decrypt(wire[-1:]) == bytes(MAX_PLAINTEXT)


def test_tampered_replayed_or_reordered_messages_are_refused() -> None:
    sender, _ = transports()
    first, second = sender.encrypt([b"first"]), sender.encrypt([b"second"])

    def receiver() -> NoiseTransport:
        return transports()[1]

    assert receiver().decrypt(first + second) == b"firstsecond"
    with pytest.raises(DecodeError):
        receiver().decrypt(second)
    replayed = receiver()
    replayed.decrypt(first)
    with pytest.raises(DecodeError):
        replayed.decrypt(first)
    for position in range(2, len(first)):
        with pytest.raises(DecodeError):
            receiver().decrypt(first[:position] + bytes([first[position] ^ 1]) + first[position + 1 :])
    for size in range(16):
        with pytest.raises(DecodeError):
            receiver().decrypt(size.to_bytes(2) + bytes(size))


@given(st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=4))
def test_hostile_transport_bytes_raise_decode_error_only(pieces: list[bytes]) -> None:
    _, receiver = transports()
    try:
        for piece in pieces:
            assert receiver.decrypt(piece) == b""
    except DecodeError:
        pass


def test_the_connection_ends_before_a_nonce_repeats() -> None:
    sender, receiver = transports()
    sender._send_nonce = receiver._receive_nonce = 2**64 - 4
    assert receiver.decrypt(sender.encrypt([b"one"])) == b"one"
    assert receiver.decrypt(sender.encrypt([b"two"])) == b"two"
    with pytest.raises(LimitExceeded):
        sender.encrypt([b"three"])
    receiver._receive_nonce = 2**64 - 1
    with pytest.raises(DecodeError):
        receiver.decrypt((16).to_bytes(2) + bytes(16))
