"""What peers say besides messages: subscriptions, GRAFT, PRUNE, IHAVE, IWANT, IDONTWANT.

Each handler gets the sender and does no more for it than its limits allow; what is beyond them is counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from pywaku.errors import InvalidInput
from pywaku.gossip.state import PeerState, RouterState, TopicState
from pywaku.ids import PeerId
from pywaku.wire.relay import IHave, PeerRecord, Prune, Rpc, Subscription

LONGEST_BACKOFF_S = 3_600
"""A peer may keep us from grafting it for that long at a time."""


def handle_control(state: RouterState, peer: PeerState, rpc: Rpc, now: float) -> None:
    """The control messages of an RPC, in the order of the v1.0 spec, IDONTWANT first."""
    if rpc.idontwant:
        _handle_idontwant(state, peer, rpc.idontwant)
    if rpc.graft:
        _handle_graft(state, peer, rpc.graft, now)
    if rpc.prune:
        _handle_prune(state, peer, rpc.prune, now)
    if rpc.ihave:
        _handle_ihave(state, peer, rpc.ihave, now)
    if rpc.iwant:
        _handle_iwant(state, peer, rpc.iwant)


def handle_subscriptions(
    state: RouterState, peer: PeerState, subscriptions: Sequence[Subscription], now: float
) -> None:
    """The peer joins and leaves topics (pubsub, "The RPC")."""
    for subscribe, name in subscriptions[: _allowance(state, peer, len(subscriptions))]:
        if subscribe:
            subscribe_peer(state, peer, name)
        else:
            unsubscribe_peer(state, peer, name, now)


def subscribe_peer(state: RouterState, peer: PeerState, name: str) -> bool:
    """Note that the peer is in a topic; False if it is in too many."""
    if name in peer.topics:
        return True
    if len(peer.topics) >= state.params.max_topics_per_peer or len(name) > state.params.max_topic_length:
        state.counters.subscriptions_refused += 1
        return False
    peer.topics[name] = None
    topic = state.topic(name)
    topic.peers[peer.id] = peer
    if peer.direct:
        topic.direct[peer.id] = peer
    return True


def unsubscribe_peer(state: RouterState, peer: PeerState, name: str, now: float) -> None:
    """Note that the peer is not in a topic, and so neither in its mesh."""
    if name not in peer.topics:
        return
    del peer.topics[name]
    topic = state.topics[name]
    state.take_from_mesh(topic, peer, now)
    del topic.peers[peer.id]
    topic.fanout.pop(peer.id, None)
    topic.direct.pop(peer.id, None)
    state.tidy(topic)


def _handle_graft(state: RouterState, peer: PeerState, names: Sequence[str], now: float) -> None:
    for name in dict.fromkeys(names[: _allowance(state, peer, len(names))]):
        topic = state.joined.get(name)
        # A GRAFT for an unknown topic is ignored (v1.1, "Spam Protection Measures"). One without a
        # subscription before it stands for the subscription too: nobody grafts a topic they are not in.
        if topic is None:
            continue
        if peer.id in topic.mesh:
            topic.grafted_again[peer.id] = now
            continue
        if not subscribe_peer(state, peer, name):
            continue
        _graft_or_refuse(state, topic, peer, now)


def _graft_or_refuse(state: RouterState, topic: TopicState, peer: PeerState, now: float) -> None:
    params = state.params
    exchange = False
    if not peer.direct:
        until = state.backoffs.until(topic.name, peer.id)
        if until is not None and now < until:
            state.counters.backoff_violations += 1
            flood = now < until - params.prune_backoff_s + params.graft_flood_threshold_s
            peer.score.penalize(now, 2.0 if flood else 1.0)
        elif peer.score.recompute(now) >= 0:
            exchange = len(topic.mesh) >= params.d_high
            if not exchange or peer.outbound:
                state.add_to_mesh(topic, peer, now)
                return
    state.counters.grafts_refused += 1
    state.prune(topic, peer, now, exchange=exchange)


def _handle_prune(state: RouterState, peer: PeerState, prunes: Sequence[Prune], now: float) -> None:
    for name, offered, backoff_s in prunes[: _allowance(state, peer, len(prunes))]:
        topic = state.joined.get(name)
        if topic is None:
            continue
        state.take_from_mesh(topic, peer, now)
        wait_s = float(min(backoff_s, LONGEST_BACKOFF_S)) if backoff_s else state.params.prune_backoff_s
        state.backoffs.add(name, peer.id, now + wait_s)
        if offered:
            _accept_peers(state, peer, offered, now)


def _accept_peers(state: RouterState, peer: PeerState, offered: Sequence[PeerRecord], now: float) -> None:
    if peer.score.recompute(now) < state.params.score.accept_px_threshold:
        state.counters.px_ignored += len(offered)
        return
    chosen = list(offered)
    if len(chosen) > state.params.prune_peers:
        state.counters.px_ignored += len(chosen) - state.params.prune_peers
        chosen = state.rng.sample(chosen, state.params.prune_peers)
    for peer_id, record in chosen:
        try:
            state.wish(PeerId.from_bytes(peer_id), record)
        except InvalidInput:
            state.counters.px_ignored += 1


def _handle_ihave(state: RouterState, peer: PeerState, ihaves: Sequence[IHave], now: float) -> None:
    params = state.params
    peer.ihave_messages += 1
    if peer.ihave_messages > params.max_ihave_messages or peer.score.value < params.score.gossip_threshold:
        state.counters.ihave_ignored += 1
        return
    seen = state.seen.ids
    unseen: dict[bytes, None] = {}
    for name, message_ids in ihaves:
        topic = state.joined.get(name)
        if topic is None:
            continue
        if peer.id in topic.mesh:
            _give_up_one_sided(state, topic, peer, now)
        room = params.max_ihave_ids - peer.ihave_ids
        if len(message_ids) > room:
            state.counters.ihave_ignored += 1
        peer.ihave_ids += min(len(message_ids), room)
        for message_id in message_ids[:room]:
            if message_id not in seen:
                unseen[message_id] = None
    asked = [message_id for message_id in unseen if state.promises.ask(message_id, peer.id, now)]
    if asked:
        state.promises.promise(asked[state.rng.randrange(len(asked))], peer.id, now)
        state.control_of(peer).iwant += asked
        state.counters.iwant_sent += len(asked)


def _give_up_one_sided(state: RouterState, topic: TopicState, peer: PeerState, now: float) -> None:
    """Gossip goes to peers outside the mesh only (v1.0, "Gossip Emission"): the peer has us not in its mesh.

    Such a link (a GRAFT or PRUNE was lost) brings nothing and sends a duplicate of almost every message. But
    what the peer said may have crossed our GRAFT, or come with one of its own (see `add_to_mesh`), so a young
    link is left alone.
    """
    grafted_at = topic.grafted_again.get(peer.id, peer.score.in_topic(topic.name).grafted_at)
    young_s = state.params.one_sided_heartbeats * state.params.heartbeat_interval_s
    if grafted_at is not None and now - grafted_at > young_s:
        state.counters.one_sided += 1
        state.prune(topic, peer, now, exchange=False)


def _handle_iwant(state: RouterState, peer: PeerState, message_ids: Sequence[bytes]) -> None:
    params = state.params
    counters = state.counters
    if peer.score.value < params.score.gossip_threshold:
        counters.iwant_ignored += len(message_ids)
        return
    room = max(0, params.max_iwant_ids - peer.iwant_ids)
    peer.iwant_ids += min(room, len(message_ids))
    counters.iwant_ignored += max(0, len(message_ids) - room)
    for message_id in message_ids[:room]:
        message = state.cache.get(message_id)
        if message is None or message_id in peer.dont_want:
            continue
        if (
            peer.iwant_bytes + len(message.part) > params.max_iwant_bytes
            or message.count_request(peer.id) > params.gossip_retransmission
        ):
            counters.iwant_ignored += 1
            continue
        peer.iwant_bytes += len(message.part)
        state.untaken.taken(message_id)
        counters.iwant_served += 1
        counters.forwarded += 1
        state.send(peer, message_id, message.part)


def _handle_idontwant(state: RouterState, peer: PeerState, message_ids: Sequence[bytes]) -> None:
    room = max(0, state.params.max_idontwant_ids_per_heartbeat - peer.idontwant_ids)
    if len(message_ids) > room:
        state.counters.idontwant_ignored += len(message_ids) - room
        message_ids = message_ids[:room]
    peer.idontwant_ids += len(message_ids)
    heartbeat = state.heartbeats
    for message_id in message_ids:
        peer.dont_want.setdefault(message_id, heartbeat)  # in order of time, so that old ones are in front


def _allowance(state: RouterState, peer: PeerState, entries: int) -> int:
    """How many of so many more control entries are to be read in this heartbeat."""
    allowed = min(entries, max(0, state.params.max_control_per_heartbeat - peer.control))
    peer.control += allowed
    state.counters.control_ignored += entries - allowed
    return allowed
