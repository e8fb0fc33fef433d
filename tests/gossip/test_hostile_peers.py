"""Whatever peers say, whenever they come and go: nothing raises, bounds hold, nothing is delivered twice."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pywaku.gossip import Gossip, GossipParams, Verdict
from pywaku.gossip.types import Outgoing
from pywaku.ids import PeerId
from pywaku.wire.relay import (
    IHave,
    PeerRecord,
    Prune,
    RelayMessage,
    Rpc,
    Subscription,
    decode_rpc,
    encode_rpc,
)
from tests.support.gossip_lone import id_of
from tests.support.gossip_net import peer_id

PEERS = [peer_id(number) for number in range(12)]
TOPICS = ["a", "b", "c", "d"]
DATA = [bytes([number]) * (1_200 if number % 3 == 0 else 20) for number in range(40)]

peers = st.sampled_from(PEERS)
topics = st.sampled_from(TOPICS)


def content_of(number: int) -> bytes:
    """One of the messages; the strategies are printed, so they do not have the bytes."""
    return DATA[number]


contents = st.integers(0, len(DATA) - 1).map(content_of)
ids = st.lists(contents.map(id_of) | st.sampled_from([b"", b"?" * 40]), max_size=6).map(tuple)
rpcs = st.builds(
    Rpc,
    subscriptions=st.lists(st.builds(Subscription, st.booleans(), topics), max_size=4).map(tuple),
    publish=st.lists(
        st.builds(RelayMessage, topics, contents, st.sampled_from([False] * 9 + [True])),
        max_size=6,
    ).map(tuple),
    ihave=st.lists(st.builds(IHave, topics, ids), max_size=2).map(tuple),
    iwant=ids,
    graft=st.lists(topics, max_size=4).map(tuple),
    prune=st.lists(
        st.builds(
            Prune,
            topics,
            st.lists(st.builds(PeerRecord, st.sampled_from([*PEERS, b"junk"]), st.binary(max_size=2))).map(
                tuple
            ),
            st.one_of(st.none(), st.integers(0, 2**64 - 1)),
        ),
        max_size=2,
    ).map(tuple),
    idontwant=ids,
)

PARAMS = replace(
    GossipParams(),
    d=4,
    d_low=3,
    d_high=5,
    d_out=2,
    d_score=2,
    max_topics_per_peer=3,
    max_seen=25,
    max_cached_bytes=5_000,
    max_pending=8,
    max_backoffs=10,
    max_promises=10,
    max_wishes=3,
    max_outgoing_messages=10,
    max_idontwant_ids_per_heartbeat=5,
    seen_ttl_s=5.0,
)


class HostilePeers(RuleBasedStateMachine):
    """A router among peers that say anything."""

    @initialize(seed=st.integers(0, 100), flood=st.booleans(), direct=st.booleans())
    def begin(self, seed: int, flood: bool, direct: bool) -> None:
        params = replace(PARAMS, flood_publish=flood)
        direct_peers = PEERS[:1] if direct else []
        self.gossip = Gossip(params, rng=random.Random(seed), direct_peers=direct_peers)
        self.now = 0.0
        self.connected: set[PeerId] = set()
        self.joined: set[str] = set()
        self.waiting: set[bytes] = set()
        self.delivered: dict[bytes, float] = {}

    @rule(peer=peers, outbound=st.booleans())
    def peer_comes(self, peer: PeerId, outbound: bool) -> None:
        self.gossip.add_peer(peer, self.now, outbound=outbound, address="203.0.113.1")
        self.connected.add(peer)

    @rule(peer=peers)
    def peer_goes(self, peer: PeerId) -> None:
        self.gossip.remove_peer(peer, self.now)
        self.connected.discard(peer)

    @rule(topic=topics)
    def join(self, topic: str) -> None:
        self.gossip.join(topic, self.now)
        self.joined.add(topic)

    @rule(topic=topics)
    def leave(self, topic: str) -> None:
        self.gossip.leave(topic, self.now)
        self.joined.discard(topic)

    @rule(peer=peers, rpc=rpcs)
    def peer_says(self, peer: PeerId, rpc: Rpc) -> None:
        for candidate in self.gossip.receive(peer, rpc, self.now):
            assert candidate.message_id == id_of(candidate.data)
            assert candidate.topic in self.joined
            assert candidate.message_id not in self.waiting
            self.waiting.add(candidate.message_id)

    @rule(verdict=st.sampled_from(list(Verdict)), data=st.data())
    def verdict(self, verdict: Verdict, data: st.DataObject) -> None:
        if not self.waiting:
            return
        message_id = data.draw(st.sampled_from(sorted(self.waiting)))
        self.waiting.discard(message_id)
        if self.gossip.validated(message_id, verdict, self.now):
            assert verdict is Verdict.ACCEPT
            last = self.delivered.get(message_id)
            seen_evicted = self.gossip.counters.seen_evicted
            assert last is None or self.now - last >= PARAMS.seen_ttl_s or seen_evicted
            self.delivered[message_id] = self.now
        assert not self.gossip.validated(message_id, Verdict.ACCEPT, self.now)

    @rule(topic=topics, content=contents)
    def publish(self, topic: str, content: bytes) -> None:
        published = self.gossip.publish(topic, content, self.now)
        assert set(published.peers) <= self.connected
        assert not (published.duplicate and published.peers)

    @rule(seconds=st.sampled_from([0.1, 1.0, 7.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.gossip.heartbeat(self.now)
        for topic in self.joined:
            assert len(self.gossip.mesh(topic)) <= PARAMS.d_high
        if seconds >= PARAMS.seen_ttl_s:
            self.waiting.clear()

    @rule(peer=peers, count=st.sampled_from([1.0, 4.0, 40.0]))
    def penalize(self, peer: PeerId, count: float) -> None:
        self.gossip.penalize(peer, self.now, count)

    @rule()
    def take(self) -> None:
        for peer, outgoing in self.gossip.take_outgoing().items():
            assert peer in self.connected
            assert len(outgoing.messages) <= PARAMS.max_outgoing_messages
            self._check_encoding(outgoing)

    def _check_encoding(self, outgoing: Outgoing) -> None:
        rpc = decode_rpc(encode_rpc(outgoing.control) + b"".join(part for _, part in outgoing.messages))
        assert [id_of(message.data) for message in rpc.publish] == [key for key, _ in outgoing.messages]
        assert rpc == replace(outgoing.control, publish=rpc.publish)

    @invariant()
    def mesh_peers_are_connected_and_subscribed(self) -> None:
        if not hasattr(self, "gossip"):
            return
        assert set(self.gossip.peers) == self.connected
        assert set(self.gossip.subscriptions) == self.joined
        for topic in TOPICS:
            assert self.gossip.peers_of(topic) <= self.connected
            assert self.gossip.mesh(topic) <= self.gossip.peers_of(topic)
            assert self.gossip.fanout(topic) <= self.gossip.peers_of(topic)
            assert topic in self.joined or not self.gossip.mesh(topic)
        for peer in PEERS:
            assert sum(peer in self.gossip.peers_of(topic) for topic in TOPICS) <= PARAMS.max_topics_per_peer

    @invariant()
    def tables_are_bounded(self) -> None:
        if not hasattr(self, "gossip"):
            return
        sizes = self.gossip.sizes()
        assert sizes.seen <= PARAMS.max_seen
        assert sizes.cached_bytes <= PARAMS.max_cached_bytes
        assert sizes.pending <= PARAMS.max_pending
        assert sizes.backoffs <= PARAMS.max_backoffs
        assert sizes.requests <= PARAMS.max_promises
        assert len(self.gossip.take_wishes()) <= PARAMS.max_wishes


HostilePeers.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestHostilePeers = HostilePeers.TestCase
