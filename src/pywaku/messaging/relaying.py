"""Sending and receiving by relay: the transport of relay nodes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Final, Literal

from pywaku.errors import NodeClosed
from pywaku.ids import PeerId
from pywaku.messaging.attempts import Verdict
from pywaku.messaging.health import ShardPeers
from pywaku.messaging.record import MessageRecord
from pywaku.messaging.transport import Handover, OnEcho, OnGap
from pywaku.protocols.relay import MessageRefused, Relay, Subscription

_TEMPORARY: Final = frozenset({"bandwidth", "validator-error", "validator-timeout", "overload"})
"""Reasons for which a message is refused now and may be taken later."""
_MAX_SENT: Final = 16_384
"""Messages of which an echo is recognized."""
_CAPACITY: Final = 4096


class Relaying:
    """The transport of a node that relays."""

    name: Literal["relay"] = "relay"
    concurrency = 8

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._sent: OrderedDict[bytes, bytes] = OrderedDict()  # what relay calls it → its hash
        self._listeners: list[OnEcho] = []
        self._leave: list[Callable[[], None]] = [relay.on_echo(self._echo)]

    async def send(
        self, record: MessageRecord, *, resend: bool, given_to: Collection[PeerId] = ()
    ) -> Handover:
        """Publish; peers have taken it when it is in what waits to be written to them."""
        try:
            outcome = await self._relay.publish(record.pubsub_topic, record.message, resend=resend)
        except MessageRefused as refused:
            verdict = Verdict.FAILED if refused.reason in _TEMPORARY else Verdict.REFUSED
            return Handover(verdict, str(refused))
        except NodeClosed:
            return Handover(Verdict.FAILED, "the node is closing")
        self._sent[outcome.message_id] = record.message_hash
        if len(self._sent) > _MAX_SENT:
            self._sent.popitem(last=False)
        if outcome.peers or outcome.duplicate:  # a duplicate was taken before
            return Handover(Verdict.TAKEN)
        return Handover(Verdict.FAILED, "no relay peer took it")

    def _echo(self, message_id: bytes, peer: PeerId) -> None:
        message_hash = self._sent.get(message_id)
        if message_hash is not None:
            for listener in self._listeners:
                listener(message_hash, peer)

    def on_echo(self, listener: OnEcho) -> None:
        """Tell of messages that peers have sent back."""
        self._listeners.append(listener)

    def on_gap(self, listener: OnGap) -> None:
        """Peers of a mesh tell each other what they have: only without a mesh there is a gap."""

    def listen(self, pubsub_topic: str) -> Subscription:
        """What comes on the shard, which is joined for as long as the node runs."""
        subscription = self._relay.subscribe(pubsub_topic, capacity=_CAPACITY)
        subscription.content_topics = frozenset()
        return subscription

    def want(self, pubsub_topic: str, content_topic: str) -> None:
        """All of the shard comes anyway."""

    def want_no_more(self, pubsub_topic: str, content_topic: str) -> None:
        """All of the shard comes anyway."""

    async def established(self, pubsub_topic: str, content_topic: str) -> None:
        """The shard was joined when the node started."""

    def peers(self, pubsub_topic: str) -> ShardPeers:
        """The mesh of the shard."""
        return ShardPeers(mesh=len(self._relay.mesh(pubsub_topic)))

    @property
    def offline(self) -> bool:
        """Without peers there is no mesh, which says it all."""
        return False

    def busy_peers(self, pubsub_topic: str) -> Collection[PeerId]:
        """Any peer may have been sent a message; a store node's answer counts all the same."""
        return ()

    def close(self) -> None:
        """Hear no more."""
        for leave in self._leave:
            leave()
        self._leave.clear()
