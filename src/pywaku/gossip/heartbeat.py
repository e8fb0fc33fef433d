"""The heartbeat (gossipsub v1.0, "Heartbeat", with the maintenance rules of v1.1)."""

from __future__ import annotations

from pywaku.gossip.state import PeerState, RouterState, TopicState
from pywaku.ids import PeerId
from pywaku.wire.relay import IHave

_BACKOFF_SWEEP_HEARTBEATS = 15


def beat(state: RouterState, now: float) -> None:
    """Penalise, maintain the meshes, gossip, and let old things go. Linear in peers and in what is old."""
    state.heartbeats += 1
    state.wishes_taken = 0
    _settle_scores(state, now)
    _begin_limits(state)
    _miss_direct_peers(state)
    _ask_again(state, now)
    for topic in state.joined.values():
        _maintain_mesh(state, topic, now)
        _gossip(state, topic, topic.mesh)
    for topic in list(state.fanouts.values()):
        _maintain_fanout(state, topic, now)
    state.cache.shift()
    state.seen.expire(now)
    state.echoes.expire(now)
    if state.heartbeats % _BACKOFF_SWEEP_HEARTBEATS == 0:
        state.backoffs.expire(now)


def _settle_scores(state: RouterState, now: float) -> None:
    for peer_id in state.promises.broken(now):
        state.counters.promises_broken += 1
        score = state.scores.find(peer_id)
        if score is not None:
            score.penalize(now, 1.0)
    state.scores.decay(now)
    for score in state.scores.connected.values():
        if score.stale:
            score.recompute(now)


def _begin_limits(state: RouterState) -> None:
    # What is of no use may grow with what is: in a mesh most of what comes is a duplicate.
    state.waste_limit = state.params.max_waste_per_heartbeat + 2 * state.fresh
    state.fresh = 0
    oldest = state.heartbeats - state.params.idontwant_heartbeats
    for peer in state.peers.values():
        peer.begin_heartbeat()
        if peer.dont_want:
            _forget_dont_want(peer, oldest)


def _forget_dont_want(peer: PeerState, oldest: int) -> None:
    old: list[bytes] = []
    for message_id, said_at in peer.dont_want.items():
        if said_at > oldest:
            break
        old.append(message_id)
    for message_id in old:
        del peer.dont_want[message_id]


def _miss_direct_peers(state: RouterState) -> None:
    """Now and then ask for those peering agreements that are not connected (v1.1)."""
    if (
        state.heartbeats % state.params.direct_connect_heartbeats
        == 1 % state.params.direct_connect_heartbeats
    ):
        for peer_id in state.direct:
            if peer_id not in state.peers:
                state.wish(peer_id, b"")


def _ask_again(state: RouterState, now: float) -> None:
    """Ask for messages that did not come from where they were asked for first."""
    for peer_id, message_id in state.promises.retry(now):
        peer = state.peers.get(peer_id)
        if peer is not None:
            state.control_of(peer).iwant.append(message_id)
            state.counters.iwant_sent += 1


def _maintain_mesh(state: RouterState, topic: TopicState, now: float) -> None:
    params = state.params
    mesh = topic.mesh
    for peer in [peer for peer in mesh.values() if peer.score.value < 0]:
        state.prune(topic, peer, now, exchange=False)
    if len(mesh) < params.d_low:
        state.fill_mesh(topic, state.may_graft(topic, now), now)
    # The outbound quota comes before oversubscription, not after it as in other routers: so a heartbeat never
    # leaves a mesh above d_high behind.
    if len(mesh) >= params.d_low:
        missing = params.d_out - sum(peer.outbound for peer in mesh.values())
        if missing > 0:
            for peer in state.choose(state.may_graft(topic, now, outbound=True), missing):
                state.graft(topic, peer, now)
    if state.heartbeats % params.opportunistic_graft_heartbeats == 0 and len(mesh) > 1:
        _graft_opportunistically(state, topic, now)
    if len(mesh) > params.d_high:
        for peer in _superfluous(state, topic):
            state.prune(topic, peer, now, exchange=True)


def _graft_opportunistically(state: RouterState, topic: TopicState, now: float) -> None:
    scores = sorted(peer.score.value for peer in topic.mesh.values())
    median = scores[len(scores) // 2]
    if median < state.params.score.opportunistic_graft_threshold:
        better = state.may_graft(topic, now, above=median)
        for peer in state.choose(better, state.params.opportunistic_graft_peers):
            state.graft(topic, peer, now)


def _superfluous(state: RouterState, topic: TopicState) -> list[PeerState]:
    """Whom to prune from a mesh that is too large: the best d_score stay, and d_out outbound ones."""
    params = state.params
    peers = list(topic.mesh.values())
    state.rng.shuffle(peers)
    peers.sort(key=lambda peer: -peer.score.value)
    others = peers[params.d_score :]
    state.rng.shuffle(others)
    ranked = peers[: params.d_score] + others
    kept, rest = ranked[: params.d], ranked[params.d :]
    missing = params.d_out - sum(peer.outbound for peer in kept)
    for peer in rest:
        if missing <= 0:
            break
        if peer.outbound:
            # replaces the last, so the worst or a random one, that is not outbound itself
            last = next((i for i in range(len(kept) - 1, -1, -1) if not kept[i].outbound), None)
            if last is None:
                break
            kept[last] = peer
            missing -= 1
    keep = {peer.id for peer in kept}
    return [peer for peer in peers if peer.id not in keep]


def _maintain_fanout(state: RouterState, topic: TopicState, now: float) -> None:
    params = state.params
    if topic.published_at + params.fanout_ttl_s < now:
        topic.fanout.clear()
        del state.fanouts[topic.name]
        state.tidy(topic)
        return
    lowest = params.score.publish_threshold
    for peer in [peer for peer in topic.fanout.values() if peer.score.value < lowest]:
        del topic.fanout[peer.id]
    fill_fanout(state, topic)
    _gossip(state, topic, topic.fanout)


def fill_fanout(state: RouterState, topic: TopicState) -> None:
    """Bring the fanout of a topic to d peers, if there are so many."""
    missing = state.params.d - len(topic.fanout)
    if missing > 0:
        lowest = state.params.score.publish_threshold
        others = [
            peer
            for peer in topic.peers.values()
            if peer.id not in topic.fanout and not peer.direct and peer.score.value >= lowest
        ]
        for peer in state.choose(others, missing):
            topic.fanout[peer.id] = peer


def _gossip(state: RouterState, topic: TopicState, eager: dict[PeerId, PeerState]) -> None:
    """Tell some of the others which messages there are (v1.1, "Adaptive Gossip Dissemination")."""
    params = state.params
    lowest = params.score.gossip_threshold
    peers = [
        peer
        for peer in topic.peers.values()
        if peer.id not in eager and not peer.direct and peer.score.value >= lowest
    ]
    if not peers:
        return
    message_ids = state.cache.gossip_ids(topic.name)
    if not message_ids:
        return
    count = max(params.d_lazy, int(params.gossip_factor * len(peers)))
    everything = IHave(topic.name, tuple(message_ids)) if len(message_ids) <= params.max_ihave_ids else None
    for peer in state.choose(peers, count):
        room = params.max_ihave_ids - peer.ihave_ids_sent
        if room <= 0:
            continue
        if everything is not None and len(message_ids) <= room:
            ihave = everything
        else:  # each peer hears of others, so that together they hear of all
            start = state.rng.randrange(len(message_ids))
            some = message_ids[start : start + room]
            some += message_ids[: min(start, room - len(some))]
            ihave = IHave(topic.name, tuple(some))
        peer.ihave_ids_sent += len(ihave.message_ids)
        state.control_of(peer).ihave.append(ihave)
