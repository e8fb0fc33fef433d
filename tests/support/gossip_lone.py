"""One router and peers that exist only in what they say: the rig of the gossip tests."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from typing import Any

from pywaku.gossip import Candidate, Gossip, GossipParams, Outgoing, Verdict
from pywaku.ids import PeerId
from pywaku.wire.relay import RelayMessage, Rpc, Subscription
from tests.support.gossip_net import peer_id

TOPIC = "/waku/2/rs/42/0"
OTHER = "/waku/2/rs/42/1"

NO_FLOOD = GossipParams(flood_publish=False)


def id_of(data: bytes) -> bytes:
    """The message id of data, on Waku's terms."""
    return sha256(data).digest()


class Lone:
    """A router with a clock to turn by hand."""

    def __init__(
        self,
        params: GossipParams | None = None,
        *,
        seed: int = 1,
        direct: Iterable[PeerId] = (),
        join: bool = True,
    ) -> None:
        self.gossip = Gossip(params or GossipParams(), rng=random.Random(seed), direct_peers=direct)
        self.now = 100.0
        self.said: dict[PeerId, Outgoing] = {}
        self._peers = 0
        if join:
            self.gossip.join(TOPIC, self.now)

    def peer(
        self, *, outbound: bool = False, topics: Iterable[str] = (TOPIC,), address: str | None = None
    ) -> PeerId:
        """A new peer that subscribes to the topics."""
        self._peers += 1
        peer = peer_id(self._peers)
        self.gossip.add_peer(peer, self.now, outbound=outbound, address=address)
        self.say(peer, Rpc(subscriptions=tuple(Subscription(True, topic) for topic in topics)))
        return peer

    def peers(self, count: int, *, outbound: bool = False) -> list[PeerId]:
        """Several such peers."""
        return [self.peer(outbound=outbound) for _ in range(count)]

    def mesh_peers(self, count: int, *, outbound: bool = False) -> list[PeerId]:
        """Several peers that have grafted us."""
        peers = self.peers(count, outbound=outbound)
        for peer in peers:
            self.say(peer, Rpc(graft=(TOPIC,)))
            assert peer in self.gossip.mesh(TOPIC)
        self.sent()
        return peers

    def say(self, peer: PeerId, rpc: Rpc) -> list[Candidate]:
        """A peer sends an RPC."""
        return self.gossip.receive(peer, rpc, self.now)

    def message(
        self, peer: PeerId, data: bytes, *, topic: str = TOPIC, signed: bool = False
    ) -> list[Candidate]:
        """A peer sends a message."""
        return self.say(peer, Rpc(publish=(RelayMessage(topic, data, signed),)))

    def deliver(self, peer: PeerId, data: bytes, verdict: Verdict = Verdict.ACCEPT) -> bool:
        """A peer sends a message, and it gets its verdict at once."""
        (candidate,) = self.message(peer, data)
        return self.gossip.validated(candidate.message_id, verdict, self.now)

    def beat(self, times: int = 1) -> None:
        """Seconds pass, each with a heartbeat."""
        for _ in range(times):
            self.now += 1.0
            self.gossip.heartbeat(self.now)

    def sent(self) -> dict[PeerId, Outgoing]:
        """What the router sends; also kept in `said`."""
        self.said = self.gossip.take_outgoing()
        return self.said

    def control(self, peer: PeerId) -> Rpc:
        """The control messages the router last sent to a peer (see `sent`)."""
        outgoing = self.said.get(peer)
        return Rpc() if outgoing is None else outgoing.control

    def got(self, peer: PeerId) -> list[bytes]:
        """The ids of the messages the router last sent to a peer."""
        outgoing = self.said.get(peer)
        return [] if outgoing is None else [message_id for message_id, _ in outgoing.messages]

    def score(self, peer: PeerId) -> float:
        """What the router thinks of a peer."""
        return self.gossip.score(peer, self.now)


def with_score(**changes: Any) -> GossipParams:
    """Parameters with other scoring."""
    params = GossipParams()
    return replace(params, score=replace(params.score, **changes))


def with_topic_score(**changes: Any) -> GossipParams:
    """Parameters with other scoring within topics."""
    return with_score(topic=replace(GossipParams().score.topic, **changes))
