"""What a router knows: its peers, its topics, and the tables they share."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable

from pywaku.gossip.backoff import Backoffs
from pywaku.gossip.echoes import Echoes
from pywaku.gossip.mcache import MessageCache
from pywaku.gossip.params import GossipParams
from pywaku.gossip.promises import Promises
from pywaku.gossip.score import PeerScore, ScoreBoard
from pywaku.gossip.seen import SeenCache
from pywaku.gossip.types import NOTHING, Counters, Outgoing, Wish
from pywaku.gossip.untaken import Untaken
from pywaku.ids import PeerId
from pywaku.wire.relay import IHave, PeerRecord, Prune, Rpc, Subscription

MAX_IDONTWANT_IDS = 512
"""Ids in one RPC; other implementations refuse to decode more."""


class PeerState:
    """A connected peer: what it subscribes to, what it is to be sent, what it has used of its limits."""

    __slots__ = (
        "control",
        "direct",
        "dont_want",
        "flooded",
        "graft",
        "has_control",
        "id",
        "idontwant",
        "idontwant_ids",
        "ihave",
        "ihave_ids",
        "ihave_ids_sent",
        "ihave_messages",
        "iwant",
        "iwant_bytes",
        "iwant_ids",
        "messages",
        "outbound",
        "prune",
        "record",
        "score",
        "subscriptions",
        "topics",
        "waste",
    )

    def __init__(self, peer: PeerId, *, outbound: bool, direct: bool, score: PeerScore) -> None:
        self.id = peer
        self.outbound = outbound
        self.direct = direct
        self.score = score
        self.record = b""
        self.topics: dict[str, None] = {}
        self.dont_want: dict[bytes, int] = {}  # message id → the heartbeat at which it was said
        self.messages: list[tuple[bytes, bytes]] = []
        self.has_control = False
        self.begin_heartbeat()
        self._clear_control()

    def begin_heartbeat(self) -> None:
        """Give the peer its limits anew."""
        self.waste = 0  # what it sent that was of no use
        self.flooded = False
        self.control = 0
        self.ihave_messages = 0
        self.ihave_ids = 0
        self.ihave_ids_sent = 0
        self.iwant_ids = 0
        self.iwant_bytes = 0
        self.idontwant_ids = 0

    def _clear_control(self) -> None:
        self.has_control = False
        self.subscriptions: list[Subscription] = []
        self.ihave: list[IHave] = []
        self.iwant: list[bytes] = []
        self.graft: list[str] = []
        self.prune: list[Prune] = []
        self.idontwant: list[bytes] = []

    def take(self) -> Outgoing:
        """What has gathered for the peer."""
        messages = self.messages
        self.messages = []
        if not self.has_control:
            return Outgoing(NOTHING, messages)
        control = Rpc(
            subscriptions=tuple(self.subscriptions),
            ihave=tuple(self.ihave),
            iwant=tuple(self.iwant),
            graft=tuple(self.graft),
            prune=tuple(self.prune),
            idontwant=tuple(self.idontwant),
        )
        self._clear_control()
        return Outgoing(control, messages)


class TopicState:
    """A topic that we or a peer have to do with. `mesh` is of use while `joined`, `fanout` otherwise.

    `grafted_again`: when peers that were in the mesh already have grafted us (once more).
    """

    __slots__ = ("direct", "fanout", "grafted_again", "joined", "mesh", "name", "peers", "published_at")

    def __init__(self, name: str) -> None:
        self.name = name
        self.joined = False
        self.peers: dict[PeerId, PeerState] = {}
        self.direct: dict[PeerId, PeerState] = {}
        self.mesh: dict[PeerId, PeerState] = {}
        self.fanout: dict[PeerId, PeerState] = {}
        self.grafted_again: dict[PeerId, float] = {}
        self.published_at = 0.0


class RouterState:
    """All of a router. Everything that is chosen or sent follows insertion order and `rng`, nothing else."""

    __slots__ = (
        "backoffs",
        "cache",
        "counters",
        "direct",
        "dirty",
        "echoes",
        "fanouts",
        "fresh",
        "heartbeats",
        "joined",
        "params",
        "peers",
        "promises",
        "rng",
        "scores",
        "seen",
        "topics",
        "untaken",
        "waste_limit",
        "wishes",
        "wishes_taken",
    )

    def __init__(self, params: GossipParams, rng: random.Random, direct: Iterable[PeerId]) -> None:
        self.params = params
        self.direct = dict.fromkeys(sorted(direct))
        self.rng = rng
        self.counters = Counters()
        self.peers: dict[PeerId, PeerState] = {}
        self.topics: dict[str, TopicState] = {}
        self.joined: dict[str, TopicState] = {}
        self.fanouts: dict[str, TopicState] = {}
        self.dirty: dict[PeerId, PeerState] = {}
        self.wishes: dict[PeerId, Wish] = {}
        self.wishes_taken = 0  # in this heartbeat
        self.heartbeats = 0
        self.fresh = 0  # messages first seen, or published, in this heartbeat
        self.waste_limit = params.max_waste_per_heartbeat
        self.scores = ScoreBoard(params.score)
        self.seen = SeenCache(params.seen_ttl_s, params.max_seen)
        self.cache = MessageCache(params.history_length, params.history_gossip, params.max_cached_bytes)
        self.untaken = Untaken(params.max_untaken)
        self.echoes = Echoes(params.seen_ttl_s, params.max_own, params.max_echoes)
        self.promises = Promises(params.iwant_followup_s, params.iwant_retry_s, params.max_promises)
        slack_s = params.backoff_slack_heartbeats * params.heartbeat_interval_s
        self.backoffs = Backoffs(slack_s, params.max_backoffs)

    def topic(self, name: str) -> TopicState:
        """The state of a topic, made if there is none."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicState(name)
        return topic

    def tidy(self, topic: TopicState) -> None:
        """Forget a topic that nobody has to do with any more."""
        if not topic.peers and not topic.joined and topic.name not in self.fanouts:
            self.topics.pop(topic.name, None)

    def choose(self, peers: list[PeerState], count: int) -> list[PeerState]:
        """Up to `count` of `peers`, at random."""
        if count >= len(peers):
            return peers
        return self.rng.sample(peers, count)

    def fill_mesh(self, topic: TopicState, peers: list[PeerState], now: float) -> None:
        """GRAFT some of `peers`, chosen at random, so that the mesh has d.

        The outbound quota is filled first: otherwise the next heartbeat would add to d what is missing of it,
        and each peer more in a mesh is one more duplicate of each message.
        """
        missing = self.params.d_out - sum(peer.outbound for peer in topic.mesh.values())
        if missing > 0:
            outbound = [peer for peer in peers if peer.outbound]
            for peer in self.choose(outbound, min(missing, self.params.d - len(topic.mesh))):
                self.graft(topic, peer, now)
            peers = [peer for peer in peers if peer.id not in topic.mesh]
        for peer in self.choose(peers, max(0, self.params.d - len(topic.mesh))):
            self.graft(topic, peer, now)

    def send(self, peer: PeerState, message_id: bytes, part: bytes) -> None:
        """Queue a message for a peer; a full queue loses its oldest."""
        messages = peer.messages
        if not messages:
            self.dirty[peer.id] = peer
        elif len(messages) >= self.params.max_outgoing_messages:
            half = len(messages) // 2 + 1
            del messages[:half]
            self.counters.outgoing_dropped += half
        messages.append((message_id, part))

    def control_of(self, peer: PeerState) -> PeerState:
        """The peer, to add control messages to."""
        peer.has_control = True
        self.dirty[peer.id] = peer
        return peer

    def announce(self, subscription: Subscription) -> None:
        """Tell all peers that we join or leave a topic."""
        for peer in self.peers.values():
            self.control_of(peer).subscriptions.append(subscription)

    def wish(self, peer: PeerId, record: bytes) -> None:
        """Ask for a connection, within bounds."""
        if peer in self.peers or peer in self.wishes:
            return
        if (
            len(self.wishes) >= self.params.max_wishes
            or self.wishes_taken >= self.params.max_wishes_per_heartbeat
        ):
            self.counters.wishes_dropped += 1
            return
        self.wishes_taken += 1
        self.wishes[peer] = Wish(peer, record)

    def add_to_mesh(self, topic: TopicState, peer: PeerState, now: float) -> None:
        """The peer is in the mesh from now on, whoever wanted it; it hears what there was lately.

        Gossip goes to peers outside the mesh only, so that a newcomer would never hear of what was published
        just before it came: of the first message of a node, say, that has waited for a peer.
        """
        topic.mesh[peer.id] = peer
        peer.score.grafted(topic.name, now)
        room = self.params.max_ihave_ids - peer.ihave_ids_sent
        message_ids = self.cache.gossip_ids(topic.name)[: max(0, room)]
        if message_ids:
            peer.ihave_ids_sent += len(message_ids)
            self.control_of(peer).ihave.append(IHave(topic.name, tuple(message_ids)))

    def take_from_mesh(self, topic: TopicState, peer: PeerState, now: float) -> bool:
        """The peer is no longer in the mesh; whether it was."""
        topic.grafted_again.pop(peer.id, None)
        if topic.mesh.pop(peer.id, None) is None:
            return False
        peer.score.pruned(topic.name, now)
        return True

    def graft(self, topic: TopicState, peer: PeerState, now: float) -> None:
        """Take the peer into the mesh and tell it."""
        self.add_to_mesh(topic, peer, now)
        self.control_of(peer).graft.append(topic.name)
        self.counters.grafts_sent += 1

    def prune(
        self, topic: TopicState, peer: PeerState, now: float, *, exchange: bool, leaving: bool = False
    ) -> None:
        """Take the peer out of the mesh (if it is there), tell it, and have both sides back off."""
        self.take_from_mesh(topic, peer, now)
        backoff_s = self.params.unsubscribe_backoff_s if leaving else self.params.prune_backoff_s
        self.backoffs.add(topic.name, peer.id, now + backoff_s)
        peers = self._to_exchange(topic, peer) if exchange and self.params.peer_exchange else ()
        self.control_of(peer).prune.append(Prune(topic.name, peers, round(backoff_s)))
        self.counters.prunes_sent += 1

    def _to_exchange(self, topic: TopicState, receiver: PeerState) -> tuple[PeerRecord, ...]:
        """Other peers of the topic, none with a negative score (gossipsub v1.1, Peer Exchange)."""
        wanted = self.params.prune_peers
        sample = self.choose(list(topic.peers.values()), 2 * wanted + 1)  # some will not do
        found = [peer for peer in sample if peer is not receiver and peer.score.value >= 0]
        return tuple(PeerRecord(peer.id, peer.record) for peer in found[:wanted])

    def may_graft(
        self, topic: TopicState, now: float, *, above: float | None = None, outbound: bool = False
    ) -> list[PeerState]:
        """Who could be taken into the mesh: not there, not direct, not backing off, not of negative score."""
        blocked: Collection[PeerId] = self.backoffs.blocked(topic.name, now)
        mesh = topic.mesh
        return [
            peer
            for peer in topic.peers.values()
            if peer.id not in mesh
            and not peer.direct
            and peer.id not in blocked
            and peer.score.value >= 0
            and (above is None or peer.score.value > above)
            and (peer.outbound or not outbound)
        ]
