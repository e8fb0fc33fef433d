"""What we think of a peer (gossipsub v1.1, "Peer Scoring"): the score function and its counters, P1 to P7."""

from __future__ import annotations

import ipaddress

from pywaku.gossip.params import ScoreParams, TopicScoreParams
from pywaku.ids import PeerId


class TopicStats:
    """The counters of one peer in one topic, P1 to P4."""

    __slots__ = (
        "failures",
        "first",
        "grafted_at",
        "invalid",
        "mesh_active",
        "mesh_deliveries",
        "params",
        "time",
    )

    def __init__(self, params: TopicScoreParams) -> None:
        self.params = params
        self.grafted_at: float | None = None
        self.time = 0.0
        self.first = 0.0
        self.mesh_active = False
        self.mesh_deliveries = 0.0
        self.failures = 0.0
        self.invalid = 0.0

    @property
    def deficit(self) -> float:
        """How many deliveries within the mesh are missing from what is expected (P3)."""
        if not self.mesh_active:
            return 0.0
        return max(0.0, self.params.mesh_message_deliveries_threshold - self.mesh_deliveries)

    def value(self) -> float:
        """The weighted sum of this topic."""
        params = self.params
        value = params.first_message_deliveries_weight * self.first
        if self.grafted_at is not None:
            value += params.time_in_mesh_weight * min(
                self.time / params.time_in_mesh_quantum_s, params.time_in_mesh_cap
            )
            if params.mesh_message_deliveries_weight:
                value += params.mesh_message_deliveries_weight * self.deficit**2
        value += params.mesh_failure_penalty_weight * self.failures
        value += params.invalid_message_deliveries_weight * self.invalid**2
        return params.topic_weight * value

    def decay(self, to_zero: float) -> bool:
        """Let the counters fade; whether nothing is left to remember."""
        params = self.params
        self.first = _faded(self.first, params.first_message_deliveries_decay, to_zero)
        self.mesh_deliveries = _faded(self.mesh_deliveries, params.mesh_message_deliveries_decay, to_zero)
        self.failures = _faded(self.failures, params.mesh_failure_penalty_decay, to_zero)
        self.invalid = _faded(self.invalid, params.invalid_message_deliveries_decay, to_zero)
        nothing = not (self.first or self.mesh_deliveries or self.failures or self.invalid)
        return nothing and self.grafted_at is None


class PeerScore:
    """The score of one peer. `value` is up to date except for gains noted since `stale` was set."""

    __slots__ = (
        "address",
        "application",
        "behaviour",
        "expires",
        "params",
        "stale",
        "surplus",
        "topics",
        "value",
    )

    def __init__(self, params: ScoreParams) -> None:
        self.params = params
        self.topics: dict[str, TopicStats] = {}
        self.behaviour = 0.0
        self.application = 0.0
        self.surplus = 0
        self.address: str | None = None
        self.expires = 0.0
        self.stale = False
        self.value = 0.0

    def in_topic(self, topic: str) -> TopicStats:
        """The counters of a topic. Ask for topics only that we have joined, so that they stay few."""
        stats = self.topics.get(topic)
        if stats is None:
            stats = self.topics[topic] = TopicStats(self.params.of_topic(topic))
        return stats

    def recompute(self, now: float) -> float:
        """Bring `value` up to date and return it."""
        params = self.params
        value = 0.0
        for stats in self.topics.values():
            if stats.grafted_at is not None:
                stats.time = now - stats.grafted_at
            value += stats.value()
        if params.topic_score_cap is not None:
            value = min(value, params.topic_score_cap)
        value += params.app_specific_weight * self.application
        value += params.ip_colocation_factor_weight * self.surplus**2
        excess = self.behaviour - params.behaviour_penalty_threshold
        if excess > 0:
            value += params.behaviour_penalty_weight * excess**2
        self.value = value
        self.stale = False
        return value

    def grafted(self, topic: str, now: float) -> None:
        """The peer is in the mesh from now on."""
        stats = self.in_topic(topic)
        stats.grafted_at = now
        stats.time = 0.0
        stats.mesh_active = False
        self.stale = True

    def pruned(self, topic: str, now: float) -> None:
        """The peer is no longer in the mesh; a deficit at this time stays with it (P3b)."""
        stats = self.in_topic(topic)
        stats.failures += stats.deficit**2
        stats.grafted_at = None
        stats.mesh_active = False
        self.recompute(now)

    def delivered_first(self, topic: str) -> None:
        """The peer was the first to send a valid message (P2, and P3 if it is in the mesh)."""
        stats = self.in_topic(topic)
        cap = stats.params.first_message_deliveries_cap
        if stats.first < cap:
            stats.first = min(stats.first + 1.0, cap)
            self.stale = True
        if stats.grafted_at is not None:
            self.delivered_in_mesh(topic)

    def delivered_in_mesh(self, topic: str) -> None:
        """The peer sent a valid message when, or hardly after, we first had it (P3)."""
        stats = self.in_topic(topic)
        if stats.grafted_at is not None:
            cap = stats.params.mesh_message_deliveries_cap
            stats.mesh_deliveries = min(stats.mesh_deliveries + 1.0, cap)
            self.stale = True

    def delivered_invalid(self, topic: str, now: float) -> None:
        """The peer sent a message that is not valid (P4)."""
        self.in_topic(topic).invalid += 1.0
        self.recompute(now)

    def penalize(self, now: float, count: float) -> None:
        """The peer misbehaved (P7)."""
        self.behaviour += count
        self.recompute(now)

    def decay(self, now: float) -> None:
        """Let the counters fade, and see for whom deliveries in the mesh count by now."""
        params = self.params
        over: list[str] = []
        for topic, stats in self.topics.items():
            if stats.decay(params.decay_to_zero):
                over.append(topic)
            elif stats.grafted_at is not None:
                in_mesh_s = now - stats.grafted_at
                stats.mesh_active = in_mesh_s > stats.params.mesh_message_deliveries_activation_s
        for topic in over:
            del self.topics[topic]
        self.behaviour = _faded(self.behaviour, params.behaviour_penalty_decay, params.decay_to_zero)
        self.recompute(now)


class ScoreBoard:
    """The scores of all connected peers, and for a while of those that were.

    A retained score does not decay: nobody improves by going away (nor loses what was earned).
    """

    __slots__ = ("_addresses", "_allowed", "_next_decay", "_params", "_retained", "connected", "evicted")

    def __init__(self, params: ScoreParams) -> None:
        self.connected: dict[PeerId, PeerScore] = {}
        self.evicted = 0
        self._params = params
        self._retained: dict[PeerId, PeerScore] = {}
        self._addresses: dict[str, dict[PeerId, PeerScore]] = {}
        self._next_decay: float | None = None
        self._allowed = [ipaddress.ip_network(network) for network in params.ip_colocation_allowed]

    @property
    def retained(self) -> int:
        """How many scores of peers that are away are kept."""
        return len(self._retained)

    def connect(self, peer: PeerId, address: str | None, now: float) -> PeerScore:
        """The peer is here. `address` is its IP address; None leaves it out of colocation."""
        score = self._retained.pop(peer, None)
        if score is None or score.expires <= now:
            score = PeerScore(self._params)
        self.connected[peer] = score
        score.address = address = self._colocated_at(address)
        if address is not None:
            neighbours = self._addresses.setdefault(address, {})
            neighbours[peer] = score
            self._colocate(neighbours, now)
        score.recompute(now)
        return score

    def disconnect(self, peer: PeerId, now: float) -> None:
        """The peer is gone; its meshes have been left before."""
        score = self.connected.pop(peer)
        if score.address is not None:
            neighbours = self._addresses[score.address]
            del neighbours[peer]
            if neighbours:
                self._colocate(neighbours, now)
            else:
                del self._addresses[score.address]
        score.surplus = 0
        score.recompute(now)
        if not (score.topics or score.behaviour or score.application):
            return  # like a peer never met
        self._retain(peer, score, now)

    def find(self, peer: PeerId) -> PeerScore | None:
        """The score of a peer that is or was connected."""
        return self.connected.get(peer) or self._retained.get(peer)

    def current(self, peer: PeerId, former: PeerScore, now: float) -> PeerScore:
        """The score of a peer that had `former`: going away does not save it from a late verdict."""
        score = self.find(peer)
        if score is None:
            score = former
            self._retain(peer, score, now)
        return score

    def decay(self, now: float) -> None:
        """Once per decay interval: let all counters fade, and forget what was retained long enough."""
        if self._next_decay is None:
            self._next_decay = now + self._params.decay_interval_s
        if now < self._next_decay:
            return
        self._next_decay = now + self._params.decay_interval_s
        for score in self.connected.values():
            score.decay(now)
        over = [peer for peer, score in self._retained.items() if score.expires <= now]
        for peer in over:
            del self._retained[peer]

    def _retain(self, peer: PeerId, score: PeerScore, now: float) -> None:
        score.expires = now + self._params.retain_score_s
        self._retained[peer] = score
        if len(self._retained) > self._params.max_retained_scores:
            del self._retained[next(iter(self._retained))]
            self.evicted += 1

    def _colocated_at(self, address: str | None) -> str | None:
        """The address in one form, or None where any number of peers may live together."""
        if address is None:
            return None
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return address  # a name
        if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        return None if any(parsed in network for network in self._allowed) else str(parsed)

    def _colocate(self, neighbours: dict[PeerId, PeerScore], now: float) -> None:
        surplus = max(0, len(neighbours) - self._params.ip_colocation_factor_threshold)
        if surplus == 0 and len(neighbours) < self._params.ip_colocation_factor_threshold:
            return  # neither now nor before this change
        for score in neighbours.values():
            if score.surplus != surplus:
                score.surplus = surplus
                score.recompute(now)


def _faded(value: float, factor: float, to_zero: float) -> float:
    value *= factor
    return value if value >= to_zero else 0.0
