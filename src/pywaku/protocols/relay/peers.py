"""The relay peers: who they are, what comes in from each, and what the router has for them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from pywaku.errors import DecodeError, NetworkError
from pywaku.gossip import Candidate, Gossip, GossipParams
from pywaku.gossip.types import NOTHING
from pywaku.ids import PeerId
from pywaku.network.port import (
    Direction,
    Network,
    PeerDisconnected,
    PeerEvent,
    PeerIdentified,
    PeerInfo,
    Stream,
)
from pywaku.protocols.relay.counters import RelayCounters
from pywaku.protocols.relay.delivery import Delivery
from pywaku.protocols.relay.echoes import EchoListeners
from pywaku.protocols.relay.link import LinkEnd, PeerLink
from pywaku.protocols.relay.options import RelayOptions
from pywaku.protocols.relay.outbox import Outbox
from pywaku.wire.framing import FrameDecoder
from pywaku.wire.relay import PROTOCOL, Rpc, Subscription, decode_rpc

logger = logging.getLogger(__name__)

_TURN: Final = 128  # messages that one reader handles before it lets others run

Judge = Callable[[Candidate, float], None]


class RelayPeers:
    """Keeps the router's peers those of the network, carries RPCs in and out."""

    def __init__(
        self,
        network: Network,
        nursery: trio.Nursery,
        router: Gossip,
        options: RelayOptions,
        counters: RelayCounters,
        delivery: Delivery,
        *,
        judge: Judge,
        echoes: EchoListeners,
    ) -> None:
        self._network = network
        self._nursery = nursery
        self._router = router
        self._options = options
        self._counters = counters
        self._delivery = delivery
        self._judge = judge
        self._echoes = echoes
        self._links: dict[PeerId, PeerLink] = {}
        self._readers: dict[trio.CancelScope, PeerId] = {}
        self._closing = False
        self.congested: set[PeerId] = set()
        """Peers whose outboxes are well filled."""
        self._room = trio.lowlevel.ParkingLot()
        self._unwatch: Callable[[], None] | None = None
        self._idle = trio.Event()

    @property
    def all(self) -> frozenset[PeerId]:
        """The relay peers."""
        return frozenset(peer for peer, link in self._links.items() if not link.leaving)

    def outbox(self, peer: PeerId) -> Outbox | None:
        """What waits for a peer."""
        link = self._links.get(peer)
        return None if link is None else link.outbox

    # Coming and going

    def start(self) -> None:
        """Take up the peers that are connected, and all that come."""
        self._network.serve(PROTOCOL, self._serve, max_streams_per_peer=self._options.max_streams_per_peer)
        self._unwatch = self._network.watch(self._heard)
        for peer, info in tuple(self._network.peers.items()):
            if PROTOCOL in info.protocols and self._ensure(peer) is not None:
                self._learn_record(peer)

    async def finish(self) -> None:
        """Let every link send what waits, and end."""
        self._closing = True
        self._room.unpark_all()
        for link in tuple(self._links.values()):
            link.finish()
        if self._links:
            self._idle = trio.Event()  # the one there was may be of an earlier time without peers
            await self._idle.wait()

    def close(self) -> None:
        """End at once."""
        self._closing = True
        self._network.unserve(PROTOCOL)
        if self._unwatch is not None:
            self._unwatch()
        for scope in self._readers:
            scope.cancel()
        self._room.unpark_all()

    def _heard(self, event: PeerEvent) -> None:
        if isinstance(event, PeerIdentified):
            if PROTOCOL in event.protocols and self._ensure(event.peer) is not None:
                self._learn_record(event.peer)
        elif isinstance(event, PeerDisconnected):
            link = self._links.get(event.peer)
            if link is not None and event.peer in self._readers.values():
                # What has arrived is still read: a node may publish and leave at once.
                link.leaving = True
                link.scope.cancel()
            else:
                self._forget(event.peer)

    def _learn_record(self, peer: PeerId) -> None:
        """What peers that are pruned are told of this one, so that they can connect to it."""
        info = self._network.peers.get(peer)
        if info is not None:
            self._router.learn_record(peer, info.signed_record)

    def _ensure(self, peer: PeerId) -> PeerLink | None:
        """The link with a connected peer, made if there is none."""
        link = self._links.get(peer)
        if link is not None and link.leaving and peer in self._network.peers:
            self._forget(peer)  # it is back already
            link = None
        if link is None and not self._closing:
            info = self._network.peers.get(peer)
            if info is not None:
                link = self._links[peer] = PeerLink(
                    peer,
                    self._network,
                    self._options,
                    self._counters,
                    hello=self._hello,
                    has_room=self._relieved,
                )
                outbound = info.direction is Direction.OUTBOUND
                self._router.add_peer(peer, trio.current_time(), outbound=outbound, address=_ip(info))
                self._nursery.start_soon(self._run, link)
                self.flush()
                logger.debug("relay peer joined: peer=%s", peer.short())
        return link

    def _forget(self, peer: PeerId) -> None:
        link = self._links.pop(peer, None)
        if link is not None:
            link.scope.cancel()
            self._relieved(peer)
            self._router.remove_peer(peer, trio.current_time())
            if not self._closing:
                self.flush()
            if not self._links:
                self._idle.set()
            logger.debug("relay peer left: peer=%s", peer.short())

    async def _run(self, link: PeerLink) -> None:
        try:
            end = await link.run()
        except Exception as error:
            logger.exception("relay peer failed: peer=%s error=%s", link.peer.short(), type(error).__name__)
            end = LinkEnd.GIVEN_UP
        if self._links.get(link.peer) is link and not link.leaving:
            if end is LinkEnd.GIVEN_UP and not self._closing:
                self._counters.peers_given_up += 1
                self._router.penalize(link.peer, trio.current_time())
            self._forget(link.peer)

    def _hello(self) -> Rpc:
        return Rpc(
            subscriptions=tuple(Subscription(True, topic) for topic in sorted(self._router.subscriptions))
        )

    # Out

    def flush(self) -> int:
        """Put what the router has for peers into their outboxes; returns how many outboxes took messages."""
        links = self._links
        counters = self._counters
        count = 0
        for peer, (control, messages) in self._router.take_outgoing().items():
            link = links.get(peer)
            if link is None or link.leaving:  # nobody would take it off the outbox any more
                continue
            outbox = link.outbox
            if control is not NOTHING:
                before = outbox.control_dropped
                outbox.put_control(control)
                counters.dropped_control += outbox.control_dropped - before
            if messages:
                taken = outbox.put_messages(messages)
                if taken:
                    count += 1
                counters.dropped_slow_peer += len(messages) - taken
                if outbox.congested and peer not in self.congested:
                    self.congested.add(peer)
                    link.patience_ends = trio.current_time() + self._options.slow_peer_grace_s
            link.wake()
        return count

    async def wait_for_room(self, topic: str, params: GossipParams) -> None:
        """Hold a publisher back while the peers that its message would go to have no room for it.

        A peer whose outbox has filled up is waited for once, for `slow_peer_grace_s`: time enough for one
        that keeps pace. From then on, until it has caught up, it is a slow peer, and only when all peers are
        is there a wait, for `publish_wait_s` at most.
        """
        router = self._router
        deadline: float | None = None
        while not self._closing:
            if params.flood_publish or topic not in router.subscriptions:
                targets = router.peers_of(topic)
            else:
                targets = router.mesh(topic)
            behind = targets & self.congested
            if not behind:
                return
            now = trio.current_time()
            until = max(self._links[peer].patience_ends for peer in behind)
            if until <= now:
                lowest = params.score.publish_threshold
                if any(router.score(peer, now) >= lowest for peer in targets - behind):
                    return
                if deadline is None:
                    deadline = now + self._options.publish_wait_s
                if deadline <= now:
                    return
                until = deadline
            self._counters.publish_waits += 1
            with trio.move_on_at(until):
                await self._room.park()

    def _relieved(self, peer: PeerId) -> None:
        if peer in self.congested:
            self.congested.discard(peer)
            self._room.unpark_all()

    # In

    async def _serve(self, stream: Stream) -> None:
        """Read one inbound stream to its end."""
        peer = stream.peer
        if self._ensure(peer) is None:
            stream.reset()
            return
        scope = trio.CancelScope()  # the task is the network's, so relay must end it by itself
        self._readers[scope] = peer
        try:
            with scope:
                await self._read(stream, peer)
        except DecodeError as error:
            self._counters.invalid_rpcs += 1
            self._router.penalize(peer, trio.current_time())
            self.flush()
            stream.reset()
            logger.debug("relay RPC refused: peer=%s error=%s", peer.short(), error)
        except NetworkError as error:
            logger.debug("relay stream ended: peer=%s error=%s", peer.short(), error)
        finally:
            del self._readers[scope]
            link = self._links.get(peer)
            if link is not None and link.leaving and peer not in self._readers.values():
                self._forget(peer)

    async def _read(self, stream: Stream, peer: PeerId) -> None:
        decoder = FrameDecoder(self._options.max_frame_size)
        handled = 0
        while data := await stream.receive():
            self._counters.bytes_in += len(data)
            for frame in decoder.feed(data):
                handled = await self._take_in(peer, frame, handled)
                if peer not in self._links:
                    stream.reset()  # given up, or gone
                    return
            self.flush()

    async def _take_in(self, peer: PeerId, frame: bytes, handled: int) -> int:
        """Handle one RPC; `handled` counts messages since others had a turn."""
        rpc = decode_rpc(frame)
        now = trio.current_time()
        candidates = self._router.receive(peer, rpc, now)
        self._echoes.tell()
        received = len(rpc.publish)
        self._counters.received += received
        self._counters.duplicates += received - len(candidates)
        if rpc.idontwant:
            link = self._links.get(peer)
            if link is not None:
                link.outbox.forget(frozenset(rpc.idontwant))
        handled += 1 + received - len(candidates)
        delivery = self._delivery
        for candidate in candidates:
            self._judge(candidate, now)
            handled += 1
            if handled >= _TURN or delivery.pressed:
                handled = 0
                self.flush()
                if delivery.pressed:
                    await delivery.wait_for_room(self._options.delivery_wait_s)
                else:
                    await trio.lowlevel.checkpoint()
                now = trio.current_time()
        if handled >= _TURN:
            handled = 0
            self.flush()
            await trio.lowlevel.checkpoint()
        return handled


def _ip(info: PeerInfo) -> str | None:
    address = info.remote_address
    return None if address is None else address.get("ip4") or address.get("ip6")
