"""GossipSub v1.1 with the IDONTWANT of v1.2, on Waku's terms (11/WAKU2-RELAY), as a pure state machine.

Peers, RPCs and `now` go in; RPCs to send, messages to validate and wishes come out. It knows no network, no
clock, and no chance but the one it is given.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, KeysView, Sequence
from dataclasses import replace
from hashlib import sha256

from pywaku.gossip.control import handle_control, handle_subscriptions, unsubscribe_peer
from pywaku.gossip.heartbeat import beat, fill_fanout
from pywaku.gossip.messages import MessageFlow
from pywaku.gossip.params import GossipParams
from pywaku.gossip.state import PeerState, RouterState, TopicState
from pywaku.gossip.types import Candidate, Counters, Echo, Outgoing, Published, Sizes, Verdict, Wish
from pywaku.ids import PeerId
from pywaku.wire.relay import Rpc, Subscription, encode_publish


class Gossip:
    """One node's router.

    After each call that takes `now`, `take_outgoing` and `take_wishes` have what is to be done. Message ids
    are the SHA-256 of the data, and messages with a signature, author or number are refused (StrictNoSign).
    """

    def __init__(
        self,
        params: GossipParams = GossipParams(),  # noqa: B008 (it is frozen)
        *,
        rng: random.Random,
        direct_peers: Iterable[PeerId] = (),
    ) -> None:
        self._params = params
        self._state = RouterState(params, rng, direct_peers)
        self._messages = MessageFlow(self._state)

    @property
    def params(self) -> GossipParams:
        """What the router was told."""
        return self._params

    @property
    def subscriptions(self) -> KeysView[str]:
        """The topics we have joined."""
        return self._state.joined.keys()

    @property
    def peers(self) -> KeysView[PeerId]:
        """The connected peers."""
        return self._state.peers.keys()

    @property
    def counters(self) -> Counters:
        """What has happened so far; a copy."""
        state = self._state
        return replace(
            state.counters,
            seen_evicted=state.seen.evicted,
            cache_evicted=state.cache.evicted,
            backoffs_evicted=state.backoffs.evicted,
            promises_evicted=state.promises.evicted,
            scores_evicted=state.scores.evicted,
            untaken_evicted=state.untaken.evicted,
            own_evicted=state.echoes.evicted,
            echoes_dropped=state.echoes.dropped,
        )

    def sizes(self) -> Sizes:
        """How full the tables are."""
        state = self._state
        pending, pending_bytes = self._messages.sizes
        return Sizes(
            peers=len(state.peers),
            topics=len(state.topics),
            seen=len(state.seen),
            cached=len(state.cache),
            cached_bytes=state.cache.size,
            pending=pending,
            pending_bytes=pending_bytes,
            backoffs=state.backoffs.count,
            requests=len(state.promises),
            retained_scores=state.scores.retained,
            untaken=len(state.untaken),
            own=len(state.echoes.own_ids),
            echoes=len(state.echoes),
        )

    # peers

    def add_peer(self, peer: PeerId, now: float, *, outbound: bool, address: str | None = None) -> None:
        """A peer that speaks the protocol is connected: tell it our subscriptions (v1.0, "Peer Discovery").

        `outbound`: we have dialled it. `address`: its IP address, for colocation (P6).
        """
        state = self._state
        if peer in state.peers:
            return
        score = state.scores.connect(peer, address, now)
        added = PeerState(peer, outbound=outbound, direct=peer in state.direct, score=score)
        state.peers[peer] = added
        state.wishes.pop(peer, None)
        if state.joined:
            state.control_of(added).subscriptions += [Subscription(True, topic) for topic in state.joined]

    def remove_peer(self, peer: PeerId, now: float) -> None:
        """The peer is gone; its score stays for a while."""
        state = self._state
        removed = state.peers.get(peer)
        if removed is None:
            return
        for topic in list(removed.topics):
            unsubscribe_peer(state, removed, topic, now)
        del state.peers[peer]
        state.dirty.pop(peer, None)
        state.scores.disconnect(peer, now)

    def learn_record(self, peer: PeerId, signed_record: bytes) -> None:
        """Note a connected peer's signed record, to offer it in peer exchange."""
        known = self._state.peers.get(peer)
        if known is not None:
            known.record = signed_record

    def penalize(self, peer: PeerId, now: float, count: float = 1.0) -> None:
        """The peer misbehaved outside the router's sight, as with an RPC that cannot be decoded (P7)."""
        score = self._state.scores.find(peer)
        if score is not None:
            score.penalize(now, count)

    def set_application_score(self, peer: PeerId, score: float, now: float) -> None:
        """What the application thinks of a connected peer (P5)."""
        known = self._state.scores.connected.get(peer)
        if known is not None:
            known.application = score
            known.recompute(now)

    # topics

    def join(self, topic: str, now: float) -> None:
        """Subscribe: tell all peers, and build a mesh, of the fanout's first (v1.0, "Topic Membership")."""
        state = self._state
        if topic in state.joined:
            return
        joined = state.topic(topic)
        joined.joined = True
        state.joined[topic] = joined
        state.announce(Subscription(True, topic))
        fanout = joined.fanout
        joined.fanout = {}
        state.fanouts.pop(topic, None)
        usable = state.may_graft(joined, now)
        for peer in [peer for peer in usable if peer.id in fanout][: self._params.d]:
            state.graft(joined, peer, now)
        state.fill_mesh(joined, [peer for peer in usable if peer.id not in fanout], now)

    def leave(self, topic: str, now: float) -> None:
        """Unsubscribe: PRUNE the mesh with a short back-off, and tell all peers."""
        state = self._state
        left = state.joined.pop(topic, None)
        if left is None:
            return
        for peer in list(left.mesh.values()):
            state.prune(left, peer, now, exchange=True, leaving=True)
        left.joined = False
        state.announce(Subscription(False, topic))
        state.tidy(left)

    # messages

    def publish(self, topic: str, data: bytes, now: float, *, resend: bool = False) -> Published:
        """Send a message of our own: to all of the topic, or without flood publishing to mesh or fanout.

        What was seen before is a duplicate, unless it was published here and no peer has taken it, or it is
        to be sent in any case (`resend`).
        """
        state = self._state
        message_id = sha256(data).digest()
        again = message_id in state.seen.ids
        if again:
            if not resend and state.untaken.topics.get(message_id) != topic:
                return Published(message_id, (), True)
        else:
            state.seen.add(message_id, now)
            state.promises.arrived(message_id)
            state.counters.published += 1
        state.echoes.published(message_id, now)
        state.fresh += 1  # it will come back as a duplicate by no fault of the peers
        part = encode_publish(topic, data)
        state.cache.put(message_id, topic, part)
        known = state.topics.get(topic)
        receivers = [] if known is None else self._receivers(known, now)
        if receivers:
            if state.untaken.topics:
                state.untaken.taken(message_id)
            for peer in receivers:
                state.send(peer, message_id, part)
            state.counters.forwarded += len(receivers)
        else:
            state.untaken.add(message_id, topic)
        return Published(message_id, tuple([peer.id for peer in receivers]), False, again)

    def not_taken(self, message_id: bytes, topic: str) -> None:
        """No receiver of a message of our own took it: there was no room in what waits for them."""
        self._state.untaken.add(message_id, topic)

    def _receivers(self, topic: TopicState, now: float) -> list[PeerState]:
        if self._params.flood_publish:
            lowest = self._params.score.publish_threshold
            return [peer for peer in topic.peers.values() if peer.score.value >= lowest or peer.direct]
        if topic.joined:
            return [*topic.mesh.values(), *topic.direct.values()]
        topic.published_at = now
        self._state.fanouts[topic.name] = topic
        if not topic.fanout:
            fill_fanout(self._state, topic)
        return [*topic.fanout.values(), *topic.direct.values()]

    def receive(self, peer: PeerId, rpc: Rpc, now: float) -> list[Candidate]:
        """An RPC has come. Returns the messages in it that are new and of a joined topic, for validation."""
        state = self._state
        sender = state.peers.get(peer)
        if sender is None:
            state.counters.unknown_peer += 1
            return []
        if not sender.direct:
            if sender.score.value < self._params.score.graylist_threshold:
                state.counters.graylisted += 1
                return []
            if sender.waste > state.waste_limit + 2 * state.fresh:
                self._ignore_flood(sender, now)
                return []
        if rpc.subscriptions:
            handle_subscriptions(state, sender, rpc.subscriptions, now)
        candidates = self._messages.receive(sender, rpc.publish, now) if rpc.publish else []
        if rpc.ihave or rpc.iwant or rpc.graft or rpc.prune or rpc.idontwant:
            handle_control(state, sender, rpc, now)
        elif not rpc.publish and not rpc.subscriptions:
            sender.waste += 1  # a single byte says nothing, and yet costs a turn
        return candidates

    def _ignore_flood(self, sender: PeerState, now: float) -> None:
        self._state.counters.flooded += 1
        if not sender.flooded:
            sender.flooded = True
            sender.score.penalize(now, 1.0)

    def validated(self, message_id: bytes, verdict: Verdict, now: float) -> bool:
        """The verdict on a candidate. ACCEPT forwards it; REJECT counts against all who have sent it (P4).

        Returns whether to deliver it: it was pending, is accepted, and its topic is still joined.
        """
        return self._messages.validated(message_id, verdict, now)

    # time and output

    def heartbeat(self, now: float) -> None:
        """Maintain the meshes and gossip; due every `params.heartbeat_interval_s`."""
        beat(self._state, now)
        self._state.counters.pending_expired += self._messages.expire(now)

    def take_outgoing(self) -> dict[PeerId, Outgoing]:
        """All that is to be sent and was not taken before, by peer."""
        dirty = self._state.dirty
        if not dirty:
            return {}
        self._state.dirty = {}
        return {peer_id: peer.take() for peer_id, peer in dirty.items()}

    def take_wishes(self) -> list[Wish]:
        """The peers to connect to that were not taken before."""
        wishes = list(self._state.wishes.values())
        self._state.wishes.clear()
        return wishes

    def listen_for_echoes(self, listening: bool) -> None:
        """Whether messages of our own that peers send us gather for `take_echoes`; at first they do not."""
        self._state.echoes.listen(listening)

    def take_echoes(self) -> Sequence[Echo]:
        """The messages of our own that peers have sent since the last call.

        Each time that a peer sends one which we have published within `params.seen_ttl_s`, on a topic that we
        have joined, is an echo.
        """
        return self._state.echoes.take()

    # inspection

    def mesh(self, topic: str) -> frozenset[PeerId]:
        """The peers with whom we exchange all messages of a topic."""
        known = self._state.joined.get(topic)
        return frozenset() if known is None else frozenset(known.mesh)

    def fanout(self, topic: str) -> frozenset[PeerId]:
        """The peers to whom we publish in a topic that we have not joined (without flood publishing)."""
        known = self._state.fanouts.get(topic)
        return frozenset() if known is None else frozenset(known.fanout)

    def peers_of(self, topic: str) -> frozenset[PeerId]:
        """The connected peers that are subscribed to a topic."""
        known = self._state.topics.get(topic)
        return frozenset() if known is None else frozenset(known.peers)

    def score(self, peer: PeerId, now: float) -> float:
        """What we think of a peer, connected or lately so; 0 of one unknown."""
        score = self._state.scores.find(peer)
        return 0.0 if score is None else score.recompute(now)

    def unwanted(self, peer: PeerId, message_id: bytes) -> bool:
        """Whether the peer has said that it has the message: one that waits to be sent may be dropped."""
        known = self._state.peers.get(peer)
        return known is not None and message_id in known.dont_want
