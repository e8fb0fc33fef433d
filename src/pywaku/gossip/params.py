"""What a gossip router can be told: overlay, history, limits and scoring, in one frozen value.

The defaults are those of the Waku network (29/WAKU2-CONFIG, 64/WAKU2-NETWORK and what its nodes run with).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from pywaku.errors import InvalidInput


def _no_topics() -> Mapping[str, TopicScoreParams]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TopicScoreParams:
    """How behaviour within one topic is scored (gossipsub v1.1, "The Score Function", P1 to P4)."""

    topic_weight: float = 1.0
    time_in_mesh_weight: float = 0.01
    time_in_mesh_quantum_s: float = 1.0
    time_in_mesh_cap: float = 10.0
    first_message_deliveries_weight: float = 1.0
    first_message_deliveries_decay: float = 0.5
    first_message_deliveries_cap: float = 10.0
    mesh_message_deliveries_weight: float = 0.0
    mesh_message_deliveries_decay: float = 0.5
    mesh_message_deliveries_cap: float = 100.0
    mesh_message_deliveries_threshold: float = 20.0
    mesh_message_deliveries_activation_s: float = 60.0
    mesh_message_deliveries_window_s: float = 0.01
    mesh_failure_penalty_weight: float = 0.0
    mesh_failure_penalty_decay: float = 0.5
    invalid_message_deliveries_weight: float = -100.0
    invalid_message_deliveries_decay: float = 0.5

    @property
    def counts_mesh_deliveries(self) -> bool:
        """Whether P3 or P3b matter, so that deliveries within the mesh have to be counted."""
        return bool(self.mesh_message_deliveries_weight or self.mesh_failure_penalty_weight)

    def __post_init__(self) -> None:
        _need(self.topic_weight >= 0, "topic_weight", "at least 0")
        _need(self.time_in_mesh_weight >= 0, "time_in_mesh_weight", "at least 0")
        _need(self.time_in_mesh_quantum_s > 0, "time_in_mesh_quantum_s", "positive")
        _need(self.time_in_mesh_cap >= 0, "time_in_mesh_cap", "at least 0")
        _need(self.first_message_deliveries_weight >= 0, "first_message_deliveries_weight", "at least 0")
        _need(self.first_message_deliveries_cap >= 0, "first_message_deliveries_cap", "at least 0")
        _need(self.mesh_message_deliveries_weight <= 0, "mesh_message_deliveries_weight", "at most 0")
        _need(self.mesh_message_deliveries_threshold > 0, "mesh_message_deliveries_threshold", "positive")
        _need(
            self.mesh_message_deliveries_cap >= self.mesh_message_deliveries_threshold,
            "mesh_message_deliveries_cap",
            "at least mesh_message_deliveries_threshold",
        )
        _need(self.mesh_message_deliveries_activation_s >= 0, "mesh_message_deliveries_activation_s", "≥ 0")
        _need(0 <= self.mesh_message_deliveries_window_s <= 1, "mesh_message_deliveries_window_s", "0 to 1")
        _need(self.mesh_failure_penalty_weight <= 0, "mesh_failure_penalty_weight", "at most 0")
        _need(self.invalid_message_deliveries_weight <= 0, "invalid_message_deliveries_weight", "at most 0")
        for name in ("first_message_deliveries", "mesh_message_deliveries", "mesh_failure_penalty"):
            _decay(getattr(self, f"{name}_decay"), f"{name}_decay")
        _decay(self.invalid_message_deliveries_decay, "invalid_message_deliveries_decay")


@dataclass(frozen=True, slots=True)
class ScoreParams:
    """How peers are scored, and what follows from a score (gossipsub v1.1, "Peer Scoring").

    `topic` holds for each topic that `topics` does not name.
    """

    topic: TopicScoreParams = field(default_factory=TopicScoreParams)
    topics: Mapping[str, TopicScoreParams] = field(default_factory=_no_topics, hash=False)
    topic_score_cap: float | None = None
    app_specific_weight: float = 1.0
    ip_colocation_factor_weight: float = -50.0
    ip_colocation_factor_threshold: int = 5
    ip_colocation_allowed: tuple[str, ...] = ("127.0.0.0/8", "::1/128")
    behaviour_penalty_weight: float = -10.0
    behaviour_penalty_threshold: float = 0.0
    behaviour_penalty_decay: float = 0.986
    decay_interval_s: float = 12.0
    decay_to_zero: float = 0.01
    retain_score_s: float = 600.0
    max_retained_scores: int = 10_000

    gossip_threshold: float = -100.0
    publish_threshold: float = -1_000.0
    graylist_threshold: float = -10_000.0
    accept_px_threshold: float = 10.0
    opportunistic_graft_threshold: float = 0.0

    def of_topic(self, topic: str) -> TopicScoreParams:
        """The parameters of one topic."""
        return self.topics.get(topic, self.topic)

    def __post_init__(self) -> None:
        _need(self.topic_score_cap is None or self.topic_score_cap > 0, "topic_score_cap", "positive")
        _need(self.app_specific_weight >= 0, "app_specific_weight", "at least 0")
        _need(self.ip_colocation_factor_weight <= 0, "ip_colocation_factor_weight", "at most 0")
        _need(self.ip_colocation_factor_threshold >= 1, "ip_colocation_factor_threshold", "at least 1")
        for network in self.ip_colocation_allowed:
            try:
                ipaddress.ip_network(network)
            except ValueError:
                raise InvalidInput(f"ip_colocation_allowed has {network!r}, which is no network") from None
        _need(self.behaviour_penalty_weight <= 0, "behaviour_penalty_weight", "at most 0")
        _need(self.behaviour_penalty_threshold >= 0, "behaviour_penalty_threshold", "at least 0")
        _decay(self.behaviour_penalty_decay, "behaviour_penalty_decay")
        _need(self.decay_interval_s > 0, "decay_interval_s", "positive")
        _need(0 < self.decay_to_zero < 1, "decay_to_zero", "between 0 and 1")
        _need(self.retain_score_s >= 0, "retain_score_s", "at least 0")
        _need(self.max_retained_scores >= 0, "max_retained_scores", "at least 0")
        _need(self.gossip_threshold < 0, "gossip_threshold", "negative")
        _need(
            self.publish_threshold <= self.gossip_threshold, "publish_threshold", "at most gossip_threshold"
        )
        _need(
            self.graylist_threshold < self.publish_threshold, "graylist_threshold", "below publish_threshold"
        )
        _need(self.accept_px_threshold >= 0, "accept_px_threshold", "at least 0")
        _need(self.opportunistic_graft_threshold >= 0, "opportunistic_graft_threshold", "at least 0")


@dataclass(frozen=True, slots=True)
class GossipParams:
    """All parameters of a router. Raises `InvalidInput` for values that contradict the specs."""

    # the overlay
    d: int = 6
    d_low: int = 4
    d_high: int = 8
    d_score: int = 4
    d_out: int = 3
    d_lazy: int = 6
    gossip_factor: float = 0.25
    heartbeat_interval_s: float = 1.0
    history_length: int = 6
    history_gossip: int = 3
    fanout_ttl_s: float = 60.0
    seen_ttl_s: float = 120.0
    prune_backoff_s: float = 60.0
    unsubscribe_backoff_s: float = 5.0
    graft_flood_threshold_s: float = 10.0
    backoff_slack_heartbeats: int = 2
    flood_publish: bool = True
    peer_exchange: bool = True
    prune_peers: int = 16
    one_sided_heartbeats: int = 3
    opportunistic_graft_heartbeats: int = 60
    opportunistic_graft_peers: int = 2
    direct_connect_heartbeats: int = 300
    idontwant_threshold_bytes: int = 1_024

    # IHAVE and IWANT
    max_ihave_messages: int = 10
    max_ihave_ids: int = 5_000
    max_iwant_ids: int = 5_000
    max_iwant_bytes: int = 16 * 1_048_576
    gossip_retransmission: int = 3
    iwant_followup_s: float = 3.0
    iwant_retry_s: float = 0.3

    # bounds; "per heartbeat" is for each peer
    max_topics_per_peer: int = 1_024
    max_topic_length: int = 256
    max_seen: int = 1_000_000
    max_cached_bytes: int = 64 * 1_048_576
    max_pending: int = 10_000
    max_pending_bytes: int = 64 * 1_048_576
    max_backoffs: int = 20_000
    max_promises: int = 100_000
    max_wishes: int = 128
    max_wishes_per_heartbeat: int = 16
    max_outgoing_messages: int = 16_384
    max_untaken: int = 4_096
    max_own: int = 65_536
    max_echoes: int = 4_096
    max_idontwant_ids_per_heartbeat: int = 2_000
    idontwant_heartbeats: int = 3
    max_control_per_heartbeat: int = 2_500
    max_waste_per_heartbeat: int = 2_000

    score: ScoreParams = field(default_factory=ScoreParams)

    def __post_init__(self) -> None:
        _need(0 <= self.d_low <= self.d <= self.d_high, "d_low, d, d_high", "in ascending order")
        _need(self.d_out >= 0 and self.d_out * 2 <= self.d, "d_out", "at most half of d")
        _need(self.d_out < self.d_low or self.d_low == self.d_out == 0, "d_out", "below d_low")
        _need(0 <= self.d_score <= self.d, "d_score", "at most d")
        _need(self.d_lazy >= 0, "d_lazy", "at least 0")
        _need(0 <= self.gossip_factor <= 1, "gossip_factor", "between 0 and 1")
        _need(1 <= self.history_gossip <= self.history_length, "history_gossip", "1 to history_length")
        for name in (
            "heartbeat_interval_s",
            "fanout_ttl_s",
            "seen_ttl_s",
            "prune_backoff_s",
            "unsubscribe_backoff_s",
            "iwant_followup_s",
        ):
            _need(getattr(self, name) > 0, name, "positive")
        _need(0 <= self.iwant_retry_s <= self.iwant_followup_s, "iwant_retry_s", "0 to iwant_followup_s")
        for name in (
            "one_sided_heartbeats",
            "opportunistic_graft_heartbeats",
            "direct_connect_heartbeats",
            "idontwant_heartbeats",
            "max_topics_per_peer",
            "max_topic_length",
            "max_seen",
            "max_pending",
            "max_backoffs",
            "max_promises",
            "max_outgoing_messages",
            "max_untaken",
            "max_own",
            "max_echoes",
        ):
            _need(getattr(self, name) >= 1, name, "at least 1")
        for name in (
            "graft_flood_threshold_s",
            "backoff_slack_heartbeats",
            "prune_peers",
            "opportunistic_graft_peers",
            "idontwant_threshold_bytes",
            "max_ihave_messages",
            "max_ihave_ids",
            "max_iwant_ids",
            "max_iwant_bytes",
            "gossip_retransmission",
            "max_cached_bytes",
            "max_pending_bytes",
            "max_wishes",
            "max_wishes_per_heartbeat",
            "max_idontwant_ids_per_heartbeat",
            "max_control_per_heartbeat",
            "max_waste_per_heartbeat",
        ):
            _need(getattr(self, name) >= 0, name, "at least 0")


def _need(holds: bool, name: str, what: str) -> None:
    if not holds:
        raise InvalidInput(f"gossip parameter {name} must be {what}")


def _decay(value: float, name: str) -> None:
    _need(0 <= value < 1, name, "between 0 and 1")
