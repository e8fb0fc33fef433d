"""Metadata (66/WAKU2-METADATA): which cluster and shards a peer is on; peers of other clusters are let go."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import trio

from pywaku.errors import DecodeError, InvalidInput, NetworkError, NodeClosed, StreamReset
from pywaku.ids import PeerId
from pywaku.network.frames import FrameReader, request, write_frame
from pywaku.network.port import Network, PeerConnected, PeerDisconnected, PeerEvent, PeerIdentified, Stream
from pywaku.protocols.service import PeerRates, RateLimit, TokenBucket
from pywaku.tasks import open_service_nursery, run_guarded
from pywaku.wire import metadata as wire

logger = logging.getLogger(__name__)

PROTOCOL: Final = wire.PROTOCOL

_STREAMS_PER_PEER: Final = 16  # js-waku asks five times at once, and waits for ever if one is refused
_REFRESHES_PER_TTL: Final = 12


@dataclass(frozen=True, slots=True)
class MetadataOptions:
    """How strict to be, and the bounds.

    A peer of another cluster is always disconnected. With `require`, so is one that does not speak the
    protocol, does not answer in time, or names no cluster, which The Waku Network demands (64/WAKU2-NETWORK,
    Network shards). It is off by default, so that light clients which do not serve the protocol, and peers
    that are no Waku nodes, may stay.

    What is known of a peer is refreshed after `ttl_s` while it is connected; of the `remember` peers heard of
    last it is kept as long beyond that. Requests of up to `max_size` bytes are answered, at the rates
    `per_peer` and `total` (None: any); the protocol has no words for a refusal, so that the stream is reset.
    """

    require: bool = False
    timeout_s: float = 10.0
    ttl_s: float = 6 * 3600.0
    remember: int = 4096
    max_size: int = 8 * 1024
    per_peer: RateLimit | None = field(default_factory=lambda: RateLimit(100, 60.0))
    total: RateLimit | None = field(default_factory=lambda: RateLimit(2000, 10.0))

    def __post_init__(self) -> None:
        if self.timeout_s <= 0 or self.ttl_s <= 0:
            raise InvalidInput("timeout_s and ttl_s are positive")
        if self.remember < 1 or self.max_size < 1:
            raise InvalidInput("remember and max_size are at least 1")


@dataclass(slots=True)
class MetadataCounters:
    """What has happened since metadata was opened."""

    asked: int = 0
    failed: int = 0
    """Questions without a usable answer."""
    served: int = 0
    invalid: int = 0
    """Requests that could not be understood."""
    limited: int = 0
    """Requests refused because of a rate."""
    disconnected: int = 0


class _Known(NamedTuple):
    metadata: wire.Metadata
    learned_at: float


@asynccontextmanager
async def open_metadata(
    network: Network,
    *,
    cluster_id: int,
    shards: Callable[[], Sequence[int]] | None = None,
    options: MetadataOptions | None = None,
) -> AsyncGenerator[Metadata, None]:
    """Speak metadata on `network`: answer peers, and ask each that connects.

    `shards` gives the shards subscribed to by relay; leave it out where relay is not mounted (Providing Shard
    Information).
    """
    if not 0 <= cluster_id < 1 << 16:
        raise InvalidInput(f"a cluster id is 0 to 65535, not {cluster_id}")
    async with open_service_nursery() as nursery:
        metadata = Metadata(network, nursery, cluster_id, shards, options or MetadataOptions())
        metadata.start()
        try:
            yield metadata
        finally:
            metadata.close()


class Metadata:
    """Who is where. Made by `open_metadata`."""

    def __init__(
        self,
        network: Network,
        nursery: trio.Nursery,
        cluster_id: int,
        shards: Callable[[], Sequence[int]] | None,
        options: MetadataOptions,
    ) -> None:
        self.cluster_id = cluster_id
        """The cluster that this node is on."""
        self.counters = MetadataCounters()
        self._network = network
        self._nursery = nursery
        self._shards = shards
        self._options = options
        self._known: OrderedDict[PeerId, _Known] = OrderedDict()
        self._handled: set[PeerId] = set()  # connected peers that were asked, or have told by themselves
        self._connected_at: dict[PeerId, float] = {}
        self._serving: set[trio.CancelScope] = set()
        self._rates = PeerRates(options.per_peer, options.remember)
        self._total = None if options.total is None else TokenBucket(options.total, trio.current_time())
        self._unwatch: Callable[[], None] | None = None
        self._closed = False

    @property
    def own(self) -> wire.Metadata:
        """What peers are told of this node."""
        shards = () if self._shards is None else tuple(sorted(set(self._shards())))
        return wire.Metadata(self.cluster_id, shards[: wire.MAX_SHARDS])

    def of(self, peer: PeerId) -> wire.Metadata | None:
        """What a peer has said of itself within the TTL; None if nothing is known."""
        known = self._known.get(peer)
        if known is None or trio.current_time() - known.learned_at >= self._options.ttl_s:
            return None
        return known.metadata

    # Live

    def start(self) -> None:
        """Begin; `open_metadata` does this."""
        self._network.serve(PROTOCOL, self._serve, max_streams_per_peer=_STREAMS_PER_PEER)
        self._unwatch = self._network.watch(self._heard)
        for peer, info in tuple(self._network.peers.items()):
            self._connected(peer)
            self._identified(peer, info.protocols)
        self._nursery.start_soon(self._refresh)

    def close(self) -> None:
        """Stop; `open_metadata` does this."""
        self._closed = True
        self._network.unserve(PROTOCOL)
        if self._unwatch is not None:
            self._unwatch()
        for scope in self._serving:
            scope.cancel()

    def _heard(self, event: PeerEvent) -> None:
        match event:
            case PeerConnected(peer=peer):
                self._connected(peer)
            case PeerIdentified(peer=peer, protocols=protocols):
                self._identified(peer, protocols)
            case PeerDisconnected(peer=peer):
                self._handled.discard(peer)
                self._connected_at.pop(peer, None)

    def _connected(self, peer: PeerId) -> None:
        self._connected_at[peer] = trio.current_time()
        if self._options.require:
            self._nursery.start_soon(run_guarded, self._expect, peer, self._connected_at[peer])

    def _identified(self, peer: PeerId, protocols: frozenset[str]) -> None:
        if PROTOCOL in protocols and peer not in self._handled:
            self._handled.add(peer)
            self._nursery.start_soon(run_guarded, self._ask, peer)

    async def _expect(self, peer: PeerId, since: float) -> None:
        """A peer that could not be asked, and has not told by itself, is let go when the time is up."""
        await trio.sleep(self._options.timeout_s)
        if self._connected_at.get(peer) == since and peer not in self._handled:
            await self._part(peer, "the peer does not speak metadata")

    async def _refresh(self) -> None:
        interval = self._options.ttl_s / _REFRESHES_PER_TTL
        while True:
            await trio.sleep(interval)
            for peer in [peer for peer in self._handled if self.of(peer) is None]:
                info = self._network.peers.get(peer)
                if info is not None and PROTOCOL in info.protocols:
                    self._nursery.start_soon(run_guarded, self._ask, peer)

    # Ask

    async def _ask(self, peer: PeerId) -> None:
        self.counters.asked += 1
        options = self._options
        question = wire.encode_metadata(self.own)
        ask = partial(
            request,
            self._network,
            peer,
            PROTOCOL,
            question,
            max_response=options.max_size,
            timeout=options.timeout_s,
        )
        try:
            try:
                answer = wire.decode_metadata(await ask())
            except StreamReset:
                # The connection may have gone while the peer has another one, or is back on a new one.
                answer = wire.decode_metadata(await ask())
        except (NetworkError, DecodeError, NodeClosed) as error:
            self.counters.failed += 1
            logger.debug("metadata not had: peer=%s error=%r", peer.short(), error)
            if options.require and peer in self._network.peers:
                await self._part(peer, "the peer does not answer metadata requests")
            return
        await self._learn(peer, answer)

    async def _learn(self, peer: PeerId, metadata: wire.Metadata) -> None:
        """Remember, and part if the peer is on another cluster."""
        self._known[peer] = _Known(metadata, trio.current_time())
        self._known.move_to_end(peer)
        if len(self._known) > self._options.remember:
            self._known.popitem(last=False)
        cluster_id = metadata.cluster_id
        if cluster_id is None:
            if self._options.require:
                await self._part(peer, "the peer names no cluster")
        elif cluster_id != self.cluster_id:
            await self._part(peer, f"the peer is on cluster {cluster_id}, not {self.cluster_id}")

    async def _part(self, peer: PeerId, reason: str) -> None:
        if not self._closed:
            self.counters.disconnected += 1
            logger.info("disconnecting: peer=%s reason=%s", peer.short(), reason)
            await self._network.disconnect(peer, reason=reason)

    # Answer

    async def _serve(self, stream: Stream) -> None:
        """Answer one request; it tells of the peer as well, which saves asking."""
        told: wire.Metadata | None = None
        with trio.CancelScope(deadline=trio.current_time() + self._options.timeout_s) as scope:
            self._serving.add(scope)
            try:
                asked = await FrameReader(stream, self._options.max_size).read()
                if asked is None:
                    return
                if not self._admit(stream.peer):
                    self.counters.limited += 1
                    stream.reset()
                    return
                told = wire.decode_metadata(asked)
                await write_frame(stream, wire.encode_metadata(self.own))
                await stream.close()
            except DecodeError as error:
                self.counters.invalid += 1
                stream.reset()
                logger.debug("metadata request refused: peer=%s error=%s", stream.peer.short(), error)
                return
            except NetworkError as error:
                logger.debug("metadata request failed: peer=%s error=%s", stream.peer.short(), error)
                return
            finally:
                self._serving.discard(scope)
        if scope.cancelled_caught or told is None:
            stream.reset()
        elif not self._closed:
            self.counters.served += 1
            if stream.peer in self._network.peers:  # it may have asked and gone
                self._handled.add(stream.peer)
            # A task of our own: parting from the peer ends this one.
            self._nursery.start_soon(run_guarded, self._learn, stream.peer, told)

    def _admit(self, peer: PeerId) -> bool:
        now = trio.current_time()
        return self._rates.take(peer, now) and (self._total is None or self._total.take(now))
