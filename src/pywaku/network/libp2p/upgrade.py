"""From a byte pipe to an authenticated peer and a muxer: multistream, noise, multistream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pywaku.errors import DecodeError, InvalidInput, NetworkError
from pywaku.ids import PeerId
from pywaku.keys import PrivateKey
from pywaku.network.libp2p.mplex import Mplex
from pywaku.network.libp2p.multistream import Dialer, Listener
from pywaku.network.libp2p.muxer import Muxer, MuxerLimits
from pywaku.network.libp2p.noise import PROTOCOL as NOISE
from pywaku.network.libp2p.noise import NoiseHandshake, NoiseTransport
from pywaku.network.libp2p.pipes import Pipe
from pywaku.network.libp2p.yamux import Yamux

_MUXERS: Final[dict[str, type[Yamux] | type[Mplex]]] = {Yamux.protocol: Yamux, Mplex.protocol: Mplex}


class UpgradeError(NetworkError):
    """The other end is not the libp2p peer that was expected."""


@dataclass(frozen=True, slots=True)
class Upgraded:
    """What a connection is made of."""

    pipe: Pipe
    cipher: NoiseTransport
    muxer: Muxer
    peer: PeerId
    leftover: bytes
    """Plaintext that came together with the last answer of the handshake."""


class Upgrader:
    """Makes connections of pipes, in either role. Raises nothing but `NetworkError`."""

    def __init__(self, key: PrivateKey, muxers: Sequence[str], limits: MuxerLimits) -> None:
        unknown = [name for name in muxers if name not in _MUXERS]
        if unknown or not muxers:
            raise InvalidInput(f"muxers are {' and '.join(_MUXERS)}, not {unknown}")
        self._key = key
        self._muxers = tuple(muxers)
        self._limits = limits

    async def outbound(self, pipe: Pipe, expected: PeerId | None) -> Upgraded:
        """The dialler's side; with `expected` only that peer will do."""
        try:
            leftover = await _negotiate(pipe, Dialer([NOISE]))
            secured = await self._secure(
                pipe, NoiseHandshake(True, self._key, expected_peer=expected), leftover
            )
            negotiation = Dialer(self._muxers)
            rest = await _negotiate(secured, negotiation)
            return self._upgraded(secured, negotiation.agreed, rest, initiator=True)
        except DecodeError as error:
            raise UpgradeError(f"handshake failed: {error}") from error

    async def inbound(self, pipe: Pipe) -> Upgraded:
        """The listener's side."""
        try:
            leftover = await _negotiate(pipe, Listener([NOISE], names=[NOISE]))
            secured = await self._secure(pipe, NoiseHandshake(False, self._key), leftover)
            negotiation = Listener(self._muxers, names=self._muxers)
            rest = await _negotiate(secured, negotiation)
            return self._upgraded(secured, negotiation.agreed, rest, initiator=False)
        except DecodeError as error:
            raise UpgradeError(f"handshake failed: {error}") from error

    async def _secure(self, pipe: Pipe, handshake: NoiseHandshake, data: bytes) -> _SecuredPipe:
        while True:
            if data:
                handshake.receive(data)
            output = handshake.take_output()
            if output:
                await pipe.send(output)
            if handshake.finished:
                return _SecuredPipe(pipe, handshake)
            data = await _receive(pipe)

    def _upgraded(
        self, secured: _SecuredPipe, muxer: str | None, rest: bytes, *, initiator: bool
    ) -> Upgraded:
        if muxer is None:
            raise UpgradeError("handshake failed: no muxer in common")
        made = _MUXERS[muxer](initiator=initiator, limits=self._limits)
        return Upgraded(secured.pipe, secured.cipher, made, secured.peer, rest)


class _SecuredPipe:
    """A pipe through the noise channel, for as long as the muxer is being agreed on."""

    def __init__(self, pipe: Pipe, handshake: NoiseHandshake) -> None:
        self.pipe = pipe
        self.peer = handshake.remote_peer
        self.cipher = handshake.transport()
        self._plaintext = self.cipher.decrypt(handshake.leftover)

    async def send(self, data: bytes) -> None:
        await self.pipe.send(self.cipher.encrypt([data]))

    async def receive(self) -> bytes:
        while not self._plaintext:
            self._plaintext = self.cipher.decrypt(await _receive(self.pipe))
        data, self._plaintext = self._plaintext, b""
        return data


async def _negotiate(pipe: Pipe | _SecuredPipe, core: Dialer | Listener) -> bytes:
    """Run a negotiation to its agreement; returns the bytes that came after it."""
    while True:
        output = core.take_output()
        if output:
            await pipe.send(output)
        if core.agreed is not None:
            return core.leftover
        if core.refused:
            raise UpgradeError("handshake failed: the peer takes none of the proposals")
        core.receive(await _receive(pipe))


async def _receive(pipe: Pipe | _SecuredPipe) -> bytes:
    data = await pipe.receive()
    if not data:
        raise UpgradeError("closed during the handshake")
    return data
