"""libp2p's secure channel: a Noise XX handshake that proves both identities, then sealed messages.

libp2p noise spec. Pure: wire bytes in, wire bytes out; the shell owns the connection and its time limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from pywaku.errors import DecodeError, InvalidInput, LimitExceeded
from pywaku.ids import PeerId
from pywaku.keys import PrivateKey, PublicKey
from pywaku.network.libp2p.noise_xx import TAG_SIZE, HandshakeError, XxHandshake, pack_nonce
from pywaku.wire.protobuf_lite import bytes_field, read_fields, text_field, text_of

__all__ = ["MAX_PLAINTEXT", "PROTOCOL", "HandshakeError", "NoiseHandshake", "NoiseTransport"]

PROTOCOL: Final = "/noise"
MAX_PLAINTEXT: Final = 65535 - TAG_SIZE  # in one noise message ("Wire Format")

_SIGNED_PREFIX: Final = b"noise-libp2p-static-key:"
_LONGEST_HANDSHAKE_MESSAGE: Final = 8192  # the longest RSA key, its signature and extensions take half of it
_LAST_NONCE: Final = (1 << 64) - 2  # Noise reserves the highest one
_LENGTH: Final = 2


class NoiseHandshake:
    """One side of the handshake, to the point where both identities are proven.

    Whatever `take_output` returns goes to the peer, whatever comes from the peer goes into `receive`, until
    `finished`. Any error is final.
    """

    def __init__(
        self,
        initiator: bool,
        identity: PrivateKey,
        *,
        static: bytes | None = None,
        ephemeral: bytes | None = None,
        expected_peer: PeerId | None = None,
        stream_muxers: Sequence[str] = (),
    ) -> None:
        """`static` is the secret Noise key (32 bytes), one of this session only if absent; never store it.
        `expected_peer` is who must answer. `stream_muxers` is offered as an extension; both sides skip the
        negotiation of the muxer if they share one. `ephemeral` is for tests.
        """
        self._identity = identity
        self._static = _secret(static)
        self._noise = XxHandshake(initiator, self._static, _secret(ephemeral))
        self.initiator = initiator
        self._expected_peer = expected_peer
        self._stream_muxers = tuple(stream_muxers)
        self._remote_muxers: tuple[str, ...] = ()
        self._remote_key: PublicKey | None = None
        self._incoming = bytearray()
        self._outgoing = bytearray()
        self._failed = False
        if initiator:
            self._write(b"")  # no extensions yet: the first message is not secret

    @property
    def finished(self) -> bool:
        """Is the peer's identity proven, and has all been said?"""
        return self._noise.finished and not self._failed

    @property
    def remote_key(self) -> PublicKey:
        """The peer's identity key, once `finished`."""
        if self._remote_key is None or not self.finished:
            raise InvalidInput("the peer is not known before the handshake is finished")
        return self._remote_key

    @property
    def remote_peer(self) -> PeerId:
        """The peer, once `finished`."""
        return self.remote_key.peer_id

    @property
    def remote_muxers(self) -> tuple[str, ...]:
        """The stream muxers that the peer offers as an extension; none before the handshake is finished."""
        return self._remote_muxers if self.finished else ()

    @property
    def muxer(self) -> str | None:
        """The muxer both sides agree on without negotiation: the first of the initiator's that the other has.

        Implementations differ in whose order they follow, so it is wise to offer one.
        """
        mine, theirs = self._stream_muxers, self.remote_muxers
        wanted, offered = (mine, theirs) if self.initiator else (theirs, mine)
        return next((muxer for muxer in wanted if muxer in offered), None)

    @property
    def leftover(self) -> bytes:
        """What came after the peer's last handshake message, once `finished`: the transport's first bytes."""
        return bytes(self._incoming) if self.finished else b""

    def take_output(self) -> bytes:
        """The bytes to be sent since the last call."""
        output = bytes(self._outgoing)
        self._outgoing.clear()
        return output

    def receive(self, data: bytes) -> None:
        """Take in bytes from the peer, in pieces of any size; raises `HandshakeError`."""
        if self._failed:
            raise HandshakeError("the handshake has failed before")
        if self.finished:
            raise InvalidInput("the handshake is finished: what follows belongs to the transport")
        self._incoming += data
        try:
            while not self.finished:
                message = self._next_message()
                if message is None:
                    return
                self._read(message)
        except DecodeError as error:
            self._failed = True
            self._incoming.clear()
            self._outgoing.clear()
            if isinstance(error, HandshakeError):
                raise
            raise HandshakeError(str(error)) from None

    def transport(self) -> NoiseTransport:
        """The channel that the handshake leads to, once `finished`. `leftover` is for it to decrypt."""
        if not self.finished:
            raise InvalidInput("there is no transport before the handshake is finished")
        return NoiseTransport(*self._noise.split())

    def _next_message(self) -> bytes | None:
        incoming = self._incoming
        if len(incoming) < _LENGTH:
            return None
        size = int.from_bytes(incoming[:_LENGTH])
        if size > _LONGEST_HANDSHAKE_MESSAGE:
            raise HandshakeError(f"a handshake message of {size} bytes is too long")
        end = _LENGTH + size
        if len(incoming) < end:
            return None
        message = bytes(incoming[_LENGTH:end])
        del incoming[:end]
        return message

    def _read(self, message: bytes) -> None:
        payload = self._noise.read(message)
        if self._noise.remote_static:
            self._check(payload)
        if self._noise.our_turn:
            self._write(self._payload())

    def _write(self, payload: bytes) -> None:
        message = self._noise.write(payload)
        self._outgoing += len(message).to_bytes(_LENGTH) + message

    def _payload(self) -> bytes:
        """Our payload (spec "The libp2p Handshake Payload")."""
        public = self._static.public_key().public_bytes_raw()
        payload = bytes_field(1, self._identity.public.encode())
        payload += bytes_field(2, self._identity.sign(_SIGNED_PREFIX + public))
        if self._stream_muxers:
            payload += bytes_field(4, b"".join(text_field(2, muxer) for muxer in self._stream_muxers))
        return payload

    def _check(self, payload: bytes) -> None:
        """Is the peer who it says it is, and who it should be? Raises `DecodeError`."""
        key, signature, extensions = b"", b"", b""
        for number, value in read_fields(payload):
            if isinstance(value, bytes):
                if number == 1:
                    key = value
                elif number == 2:
                    signature = value
                elif number == 4:
                    extensions += value  # parts of a message merge
        public = PublicKey.decode(key)
        if not public.verify(_SIGNED_PREFIX + self._noise.remote_static, signature):
            raise HandshakeError("the peer does not hold the identity key that it shows")
        if self._expected_peer is not None and public.peer_id != self._expected_peer:
            raise HandshakeError(f"the peer is {public.peer_id}, not {self._expected_peer}")
        self._remote_muxers = tuple(
            text_of(value)
            for number, value in read_fields(extensions)
            if number == 2 and isinstance(value, bytes)
        )
        self._remote_key = public


class NoiseTransport:
    """The channel after the handshake: plaintext to wire bytes and back. Any error of `decrypt` is final."""

    __slots__ = ("_needed", "_open", "_pending", "_receive_nonce", "_seal", "_send_nonce")

    def __init__(self, send_key: bytes, receive_key: bytes) -> None:
        self._seal = ChaCha20Poly1305(send_key).encrypt
        self._open = ChaCha20Poly1305(receive_key).decrypt
        self._send_nonce = 0
        self._receive_nonce = 0
        self._pending = bytearray()  # at most the part of one noise message, and its length
        self._needed = 0  # how long `_pending` must be for that message to be complete

    @property
    def pending(self) -> int:
        """Bytes that wait for the rest of their noise message."""
        return len(self._pending)

    def encrypt(self, chunks: Sequence[bytes | memoryview]) -> bytes:
        """Wire bytes that carry all of `chunks`, in as few noise messages as possible."""
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        size = len(data)
        nonce = self._send_nonce
        if nonce + size // MAX_PLAINTEXT >= _LAST_NONCE:
            raise LimitExceeded("as many noise messages as are safe were sent over this connection")
        if size <= MAX_PLAINTEXT:
            if not size:
                return b""
            self._send_nonce = nonce + 1
            return (size + TAG_SIZE).to_bytes(_LENGTH) + self._seal(pack_nonce(nonce), data, None)
        view = memoryview(data)
        parts: list[bytes] = []
        for start in range(0, size, MAX_PLAINTEXT):
            sealed = self._seal(pack_nonce(nonce), view[start : start + MAX_PLAINTEXT], None)
            parts += (len(sealed).to_bytes(_LENGTH), sealed)
            nonce += 1
        self._send_nonce = nonce
        return b"".join(parts)

    def decrypt(self, data: bytes) -> bytes:
        """The plaintext that wire bytes complete; raises `DecodeError` where they were tampered with."""
        pending = self._pending
        if pending:
            pending += data
            if len(pending) < self._needed:
                return b""
            data = bytes(pending)
            pending.clear()
        end = len(data)
        nonce = self._receive_nonce
        position = 0
        parts: list[bytes] = []
        with memoryview(data) as view:
            while True:
                start = position + _LENGTH
                if start > end:
                    self._needed = _LENGTH
                    break
                size = data[position] << 8 | data[position + 1]
                if size < TAG_SIZE:
                    raise DecodeError(f"a noise message of {size} bytes is too short")
                if start + size > end:
                    self._needed = _LENGTH + size
                    break
                if nonce > _LAST_NONCE:
                    raise DecodeError("the peer sent more noise messages than are safe")
                try:
                    parts.append(self._open(pack_nonce(nonce), view[start : start + size], None))
                except InvalidTag:
                    raise DecodeError("a noise message does not decrypt") from None
                nonce += 1
                position = start + size
        self._receive_nonce = nonce
        if position < end:
            pending += data[position:]
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _secret(raw: bytes | None) -> X25519PrivateKey:
    return X25519PrivateKey.generate() if raw is None else X25519PrivateKey.from_private_bytes(raw)
