"""The way of a message through the router: seen, validated, kept for gossip, forwarded."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from pywaku.gossip.pending import PendingMessage, Verdicts
from pywaku.gossip.state import MAX_IDONTWANT_IDS, PeerState, RouterState, TopicState
from pywaku.gossip.types import Candidate, Echo, Verdict
from pywaku.ids import PeerId
from pywaku.wire.relay import RelayMessage, encode_publish


class MessageFlow:
    """What happens to messages of other peers. The cost of one depends on the mesh, not on all peers."""

    __slots__ = ("_idontwant_threshold", "_state", "_verdicts")

    def __init__(self, state: RouterState) -> None:
        self._state = state
        self._verdicts = Verdicts(state.params)
        self._idontwant_threshold = state.params.idontwant_threshold_bytes

    @property
    def sizes(self) -> tuple[int, int]:
        """How many messages await their verdict, and how many bytes they are."""
        return len(self._verdicts.pending), self._verdicts.size

    def expire(self, now: float) -> int:
        """Forget what is over; how many messages never got a verdict."""
        return self._verdicts.expire(now)

    def receive(self, sender: PeerState, messages: Sequence[RelayMessage], now: float) -> list[Candidate]:
        """Messages have come; those that are new, unsigned and of a joined topic are candidates."""
        state = self._state
        joined = state.joined
        seen = state.seen.ids
        candidates: list[Candidate] = []
        for name, data, signed in messages:
            topic = joined.get(name)
            if topic is None:
                state.counters.unjoined += 1
                sender.waste += 1
                continue
            if signed:
                state.counters.signed_refused += 1
                sender.waste += 1
                sender.score.delivered_invalid(name, now)
                continue
            message_id = sha256(data).digest()
            if message_id in seen:
                self._duplicate(message_id, topic, sender, now)
            elif self._take_in(message_id, topic, data, sender, now):
                candidates.append(Candidate(message_id, name, data, sender.id))
        return candidates

    def _take_in(
        self, message_id: bytes, topic: TopicState, data: bytes, sender: PeerState, now: float
    ) -> bool:
        state = self._state
        if not self._verdicts.has_room(len(data)):
            state.counters.pending_full += 1  # not seen, so that it may come again
            return False
        # Seen before it is validated, so that no duplicate is ever validated again.
        state.seen.add(message_id, now)
        state.counters.received += 1
        state.fresh += 1
        self._verdicts.add(message_id, PendingMessage(topic, data, sender, now))
        asked = state.promises.arrived(message_id)
        if len(data) >= self._idontwant_threshold:
            self._say_dont_want(message_id, topic, sender, asked)
        return True

    def _say_dont_want(
        self, message_id: bytes, topic: TopicState, sender: PeerState, asked: list[PeerId] | None
    ) -> None:
        """Tell the mesh, and whom we have asked for the message, that we have it (v1.2)."""
        state = self._state
        receivers = list(topic.mesh.values())
        for peer_id in asked or ():
            peer = state.peers.get(peer_id)
            if peer is not None and peer_id not in topic.mesh:
                receivers.append(peer)
        for peer in receivers:
            if peer is not sender and len(peer.idontwant) < MAX_IDONTWANT_IDS:
                peer.idontwant.append(message_id)
                peer.has_control = True
                state.dirty[peer.id] = peer
                state.counters.idontwant_sent += 1

    def _duplicate(self, message_id: bytes, topic: TopicState, sender: PeerState, now: float) -> None:
        state = self._state
        state.counters.duplicates += 1
        sender.waste += 1
        if state.untaken.topics:
            state.untaken.taken(message_id)
        if state.echoes.listening and message_id in state.echoes.own_ids:
            state.counters.echoes += 1
            state.echoes.heard(Echo(message_id, sender.id))
        pending = self._verdicts.pending.get(message_id)
        if pending is not None:
            state.counters.duplicates_while_pending += 1
            if sender not in pending.senders:
                pending.senders.append(sender)
        elif message_id in self._verdicts.rejected.ids:
            sender.score.delivered_invalid(topic.name, now)
        else:
            self._verdicts.late_duplicate(message_id, sender, now)

    def validated(self, message_id: bytes, verdict: Verdict, now: float) -> bool:
        """What becomes of a candidate; whether to deliver it."""
        state = self._state
        message = self._verdicts.take(message_id)
        if message is None or not message.topic.joined:
            return False
        topic = message.topic
        if verdict is Verdict.REJECT:
            state.counters.rejected += 1
            self._verdicts.rejected.add(message_id, now)
            for sender in message.senders:
                state.scores.current(sender.id, sender.score, now).delivered_invalid(topic.name, now)
            return False
        if verdict is Verdict.IGNORE:
            state.counters.ignored += 1
            return False
        state.counters.accepted += 1
        message.senders[0].score.delivered_first(topic.name)
        self._verdicts.accepted(message_id, message, now)
        part = encode_publish(topic.name, message.data)
        state.cache.put(message_id, topic.name, part)
        self._forward(message_id, part, message)
        return True

    def _forward(self, message_id: bytes, part: bytes, message: PendingMessage) -> None:
        """To the mesh and the direct peers, but to nobody who has sent it or does not want it."""
        state = self._state
        senders = message.senders
        topic = message.topic
        receivers = [*topic.mesh.values(), *topic.direct.values()] if topic.direct else topic.mesh.values()
        for peer in receivers:
            if peer in senders:
                continue
            if peer.dont_want and message_id in peer.dont_want:
                state.counters.idontwant_saved += 1
                continue
            state.send(peer, message_id, part)
            state.counters.forwarded += 1
