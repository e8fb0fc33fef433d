"""Identify: what peers tell each other about themselves once connected, and when it changes."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import trio

from pywaku.errors import DecodeError, StreamReset, WakuError
from pywaku.ids import PeerId
from pywaku.keys import PrivateKey
from pywaku.network.port import Stream
from pywaku.wire.framing import FrameDecoder, frame
from pywaku.wire.identify import MAX_SIZE, PROTOCOL, PUSH_PROTOCOL, decode_identify, encode_identify
from pywaku.wire.identify import Identify as IdentifyMessage
from pywaku.wire.multiaddr import Multiaddr
from pywaku.wire.peer_record import PeerRecord, open_record, seal_record

if TYPE_CHECKING:
    from pywaku.network.libp2p.host import Libp2pNetwork

logger = logging.getLogger(__name__)

PROTOCOL_VERSION: Final = "ipfs/0.1.0"
_TIMEOUT_S: Final = 10.0
_ATTEMPTS: Final = 3  # a peer may have several connections, and the one that was asked on may go
_SETTLE_S: Final = 0.05  # protocols mounted together are told together


class Identify:
    """Answers and asks for one host."""

    def __init__(self, network: Libp2pNetwork, key: PrivateKey, agent: str) -> None:
        self._network = network
        self._key = key
        self._public_key = key.public.encode()
        self._agent = agent
        self._record = PeerRecord(key.peer_id, 0)
        self._sealed = b""
        self._announced = False
        self._changes = 0

    def serve(self) -> None:
        """Answer peers that ask, and take what they push."""
        self._network.serve(PROTOCOL, self._answer, max_streams_per_peer=4)
        self._network.serve(PUSH_PROTOCOL, self._take_push, max_streams_per_peer=4)

    def connected(self, peer: PeerId) -> None:
        """Ask a new peer."""
        self._network.start_task(self._ask, peer)

    def protocols_changed(self) -> None:
        """Tell the connected peers, shortly."""
        self._changes += 1
        if self._network.peers and not self._announced:
            self._announced = True
            self._network.start_task(self._announce)

    def _message(self, peer: PeerId) -> bytes:
        known = self._network.peers.get(peer)
        addresses = tuple(address.without_peer() for address in self._network.addresses)
        return frame(
            encode_identify(
                IdentifyMessage(
                    protocol_version=PROTOCOL_VERSION,
                    agent_version=self._agent,
                    public_key=self._public_key,
                    listen_addresses=addresses,
                    observed_address=None if known is None else known.remote_address,
                    protocols=self._network.protocols,
                    signed_peer_record=self._own_record(addresses),
                )
            )
        )

    def _own_record(self, addresses: tuple[Multiaddr, ...]) -> bytes:
        """This node's signed record; a new one, with a higher number, when its addresses have changed."""
        if not self._sealed or addresses != self._record.addresses:
            seq = max(self._record.seq + 1, time.time_ns() // 1_000_000)  # above those of earlier runs
            self._record = PeerRecord(self._record.peer, seq, addresses)
            self._sealed = seal_record(self._record, self._key)
        return self._sealed

    async def _answer(self, stream: Stream) -> None:
        await stream.send(self._message(stream.peer))

    async def _ask(self, peer: PeerId) -> None:
        changes = self._changes
        for _ in range(_ATTEMPTS):
            try:
                with trio.fail_after(_TIMEOUT_S):
                    await self._ask_once(peer)
            except StreamReset as error:
                logger.debug("identify failed: peer=%s %s", peer.short(), error)
                continue
            except (WakuError, trio.TooSlowError) as error:
                logger.debug("identify failed: peer=%s %s", peer.short(), error)
            break
        if changes != self._changes:  # the peer was not told, because it had not said that it takes pushes
            await self._push_if_taken(peer)

    async def _ask_once(self, peer: PeerId) -> None:
        async with await self._network.open_stream(peer, (PROTOCOL,)) as stream:
            await stream.send(b"")
            await stream.close_write()
            await self._learn(stream)

    async def _take_push(self, stream: Stream) -> None:
        with trio.fail_after(_TIMEOUT_S):
            await self._learn(stream)

    async def _learn(self, stream: Stream) -> None:
        """Read what a peer says of itself. Raises `DecodeError` where it says nothing that holds."""
        decoder = FrameDecoder(MAX_SIZE)
        frames: list[bytes] = []
        while not frames:
            data = await stream.receive()
            if not data:
                raise DecodeError("closed before identifying")
            frames = decoder.feed(data)
        told = decode_identify(frames[0])
        known = self._network.peers.get(stream.peer)
        if known is not None:  # a push may hold only what has changed
            self._network.identified(
                stream.peer,
                frozenset(told.protocols) or known.protocols,
                told.agent_version or known.agent,
                told.listen_addresses or known.listen_addresses,
                _newer(stream.peer, told.signed_peer_record, known.signed_record),
            )

    async def _announce(self) -> None:
        await trio.sleep(_SETTLE_S)
        self._announced = False
        for peer in tuple(self._network.peers):
            self._network.start_task(self._push_if_taken, peer)

    async def _push_if_taken(self, peer: PeerId) -> None:
        known = self._network.peers.get(peer)
        if known is None or PUSH_PROTOCOL not in known.protocols:
            return
        try:
            with trio.fail_after(_TIMEOUT_S):
                async with await self._network.open_stream(peer, (PUSH_PROTOCOL,)) as stream:
                    await stream.send(self._message(peer))
                    await stream.close_write()
                    await stream.receive()  # the peer closes when it has read
        except (WakuError, trio.TooSlowError) as error:
            logger.debug("identify push failed: peer=%s %s", peer.short(), error)


def _newer(peer: PeerId, told: bytes, known: bytes) -> bytes:
    """A peer's record that it has just sent, unless it is not valid, or older than the known one."""
    if not told or told == known:
        return known
    try:
        record = open_record(told)
        if record.peer == peer and (not known or record.seq >= open_record(known).seq):
            return told
    except DecodeError as error:
        logger.debug("peer record refused: peer=%s %s", peer.short(), error)
    return known
