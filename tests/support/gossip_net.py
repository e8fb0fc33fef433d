"""Many gossip routers in one process: a queue of events, one seed, no clock but the queue's.

Links lose whole frames: what one call of a router sends to one peer, messages and control alike. Only
subscriptions always arrive (a stream that loses them would be a broken connection, for they are not
repeated). That is stricter than TCP, where a frame is lost only to a full queue, and GRAFT and PRUNE never
are. What is not lost arrives in order.
"""

from __future__ import annotations

import hashlib
import heapq
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from pywaku.gossip import Gossip, GossipParams, Verdict
from pywaku.gossip.types import NOTHING
from pywaku.ids import PeerId
from pywaku.wire.relay import RelayMessage, Rpc


def peer_id(number: int) -> PeerId:
    """A peer id for a number."""
    return PeerId(b"\x00\x25" + b"\x08\x02\x12\x21\x02" + number.to_bytes(32))


@dataclass(slots=True)
class Link:
    """One direction of a connection."""

    alive: bool = True
    busy_until: float = 0.0


@dataclass(slots=True)
class Node:
    """A router, its links, and what it has received."""

    number: int
    peer: PeerId
    gossip: Gossip
    links: dict[PeerId, tuple[Node, Link]] = field(default_factory=dict[PeerId, "tuple[Node, Link]"])
    online_since: float | None = None
    delivered: dict[bytes, int] = field(default_factory=dict[bytes, int])


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the network does to frames."""

    latency_s: tuple[float, float] = (0.01, 0.08)
    loss: float = 0.0
    validation_s: float = 0.002


class GossipNet:
    """Routers on a simulated network. All that happens goes into a trace, whose hash `trace` is."""

    def __init__(
        self,
        count: int,
        seed: int,
        *,
        params: GossipParams | None = None,
        conditions: Conditions | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.conditions = conditions or Conditions()
        self.params = params or GossipParams()
        self.now = 0.0
        self.frames = 0
        self.lost = 0
        self.receives = 0
        self.on_heartbeat: Callable[[Node], None] = lambda node: None
        self._messages: dict[bytes, RelayMessage] = {}
        self._alone: dict[bytes, Rpc] = {}
        self._events: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._sequence = 0
        self._trace = hashlib.blake2b(digest_size=16)
        self.nodes = [
            Node(number, peer_id(number), Gossip(self.params, rng=random.Random(self.rng.getrandbits(64))))
            for number in range(count)
        ]
        for node in self.nodes:
            self.at(self.rng.random() * self.params.heartbeat_interval_s, self._heartbeat, node)

    @property
    def trace(self) -> str:
        """The hash of all that has happened."""
        return self._trace.hexdigest()

    def at(self, when: float, call: Callable[..., None], *arguments: object) -> None:
        """Have something happen at a time."""
        self._sequence += 1
        heapq.heappush(self._events, (when, self._sequence, call, arguments))

    def run(self, until: float) -> None:
        """Let time pass."""
        events = self._events
        while events and events[0][0] <= until:
            self.now, _, call, arguments = heapq.heappop(events)
            call(*arguments)
        self.now = until

    def connect(self, dialler: Node, listener: Node) -> bool:
        """Connect two nodes, unless they are."""
        if dialler is listener or listener.peer in dialler.links:
            return False
        dialler.links[listener.peer] = (listener, Link())
        listener.links[dialler.peer] = (dialler, Link())
        dialler.gossip.add_peer(listener.peer, self.now, outbound=True, address="127.0.0.1")
        listener.gossip.add_peer(dialler.peer, self.now, outbound=False, address="127.0.0.1")
        self._flush(dialler)
        self._flush(listener)
        return True

    def disconnect(self, one: Node, other: Node) -> None:
        """End a connection; what is under way on it is lost."""
        for node, peer in ((one, other), (other, one)):
            node.links.pop(peer.peer)[1].alive = False
            node.gossip.remove_peer(peer.peer, self.now)
            self._flush(node)

    def go_online(self, node: Node, connections: int) -> None:
        """Connect a node with others that are online, chosen at random."""
        others = [other for other in self.nodes if other.online_since is not None and other is not node]
        for other in self.rng.sample(others, min(connections, len(others))):
            self.connect(node, other)
        node.online_since = self.now

    def go_offline(self, node: Node) -> None:
        """Take a node off the network."""
        for other, _ in list(node.links.values()):
            self.disconnect(node, other)
        node.online_since = None

    def join(self, node: Node, topic: str) -> None:
        """Have a node subscribe."""
        node.gossip.join(topic, self.now)
        self._flush(node)

    def leave(self, node: Node, topic: str) -> None:
        """Have a node unsubscribe."""
        node.gossip.leave(topic, self.now)
        self._flush(node)

    def publish(self, node: Node, topic: str, data: bytes) -> bytes:
        """Have a node publish; returns the message id."""
        published = node.gossip.publish(topic, data, self.now)
        message = RelayMessage(topic, data, signed=False)
        self._messages[published.message_id] = message
        self._alone[published.message_id] = Rpc(publish=(message,))
        node.delivered[published.message_id] = 1
        self._flush(node)
        return published.message_id

    def _heartbeat(self, node: Node) -> None:
        node.gossip.heartbeat(self.now)
        self.on_heartbeat(node)
        self._flush(node)
        self.at(self.now + self.params.heartbeat_interval_s, self._heartbeat, node)

    def _flush(self, node: Node) -> None:
        conditions = self.conditions
        low, high = conditions.latency_s
        random_ = self.rng.random
        for peer, (control, messages) in node.gossip.take_outgoing().items():
            receiver, link = node.links[peer]
            self.frames += 1
            if conditions.loss and random_() < conditions.loss:
                self.lost += 1
                if not control.subscriptions:
                    continue
                rpc = Rpc(subscriptions=control.subscriptions)
            elif not messages:
                rpc = control
            elif control is NOTHING and len(messages) == 1:
                rpc = self._alone[messages[0][0]]
            else:
                rpc = Rpc(
                    control.subscriptions,
                    tuple([self._messages[message_id] for message_id, _ in messages]),
                    control.ihave,
                    control.iwant,
                    control.graft,
                    control.prune,
                    control.idontwant,
                )
            when = max(link.busy_until, self.now + low + (high - low) * random_())
            link.busy_until = when
            self.at(when, self._arrive, node, receiver, link, rpc)

    def _arrive(self, sender: Node, receiver: Node, link: Link, rpc: Rpc) -> None:
        if not link.alive:
            return
        self.receives += len(rpc.publish)
        candidates = receiver.gossip.receive(sender.peer, rpc, self.now)
        self._trace.update(struct.pack("<dHHB", self.now, sender.number, receiver.number, len(candidates)))
        self._flush(receiver)
        if candidates:
            ids = [candidate.message_id for candidate in candidates]
            self.at(self.now + self.conditions.validation_s, self._validate, receiver, ids)

    def _validate(self, node: Node, message_ids: list[bytes]) -> None:
        for message_id in message_ids:
            if node.gossip.validated(message_id, Verdict.ACCEPT, self.now):
                node.delivered[message_id] = node.delivered.get(message_id, 0) + 1
                self._trace.update(message_id[:4])
        self._flush(node)
