"""A network under load and loss, with a service node that fails every minute: what becomes of messages."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

import trio

from pywaku.messaging.config import NodeProperties
from pywaku.messaging.record import Message, MessageRecord, RequestId
from pywaku.network.simulated import LinkProfile
from pywaku.peers.selection import Need
from pywaku.peers.services import Service
from tests.support.faults import Actor, Stage
from tests.support.waku_nodes import CLUSTER, SHARD, TOPIC, open_waku_world, until

_DOWN_S = 20.0
_EVERY_S = 60.0


@dataclass(slots=True)
class Outcome:
    """What was measured."""

    seed: int
    messages: int
    lost: int = 0
    """A subscriber never got a message, and its sender has no error."""
    unheard: int = 0
    """A subscriber never got a message, whatever its sender knows."""
    duplicates: int = 0
    unfinished: int = 0
    errors: Counter[str] = field(default_factory=Counter[str])
    attempts: int = 0
    crashes: int = 0
    replaced: int = 0
    """Service nodes, by edge nodes."""
    dropped: int = 0
    """Messages that a subscription had no room for."""
    virtual_s: float = 0.0
    real_s: float = 0.0

    def __str__(self) -> str:
        return (
            f"seed={self.seed} messages={self.messages} lost={self.lost} unheard={self.unheard} "
            f"duplicates={self.duplicates} unfinished={self.unfinished} errors={dict(self.errors)} "
            f"attempts={self.attempts} crashes={self.crashes} replaced={self.replaced} "
            f"dropped={self.dropped} virtual={self.virtual_s / 60:.1f} min real={self.real_s:.0f} s"
        )


class _Party:
    """A node that sends, and one subscription of it."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.heard: Counter[bytes] = Counter()
        self.sent: dict[RequestId, bytes] = {}

    async def subscribe(self) -> None:
        node = self.actor.node
        await node.subscribe(node.codec(TOPIC), self._hear, capacity=10_000)

    def _hear(self, record: MessageRecord) -> None:
        self.heard[record.message.payload] += 1


async def run_rounds(
    *, seed: int, messages: int, rate_per_s: float, link: LinkProfile, services: int = 5
) -> Outcome:
    """Two edge nodes and two relay nodes send and subscribe, an edge node and a relay node only subscribe."""
    began, outcome = time.monotonic(), Outcome(seed, messages)
    async with open_waku_world(seed, link) as waku, trio.open_nursery() as nursery:
        stage = Stage(waku, nursery)
        parties = await _assemble(stage, services)
        senders = parties[:4]
        start = trio.current_time()
        nursery.start_soon(_fail_every_minute, stage, outcome)
        async with trio.open_nursery() as sending:
            for number, party in enumerate(senders):
                count = len(range(number, messages, len(senders)))
                sending.start_soon(_send, party, number, count, rate_per_s / len(senders))
        await _come_to_rest(senders, parties, messages)
        outcome.virtual_s = trio.current_time() - start
        await _judge(outcome, senders, parties)
        nursery.cancel_scope.cancel()
    outcome.real_s = time.monotonic() - began
    return outcome


async def _assemble(stage: Stage, services: int) -> list[_Party]:
    for number in range(services):
        actor = Actor(stage, f"service-{number}", *stage.services, mode="relay")
        stage.services.append(actor)
        await actor.start()
    for number in range(2):
        known = (*stage.services, *stage.stores)
        actor = Actor(stage, f"store-{number}", *known, keeps=True, lightpush=False, filter=False)
        stage.stores.append(actor)
        await actor.start()
    known = (*stage.services, *stage.stores)
    edge = NodeProperties(mode="edge", store_confirmation=True)
    relay = NodeProperties(mode="relay", store_confirmation=True, lightpush=False, filter=False)
    parties: list[_Party] = []
    for name, properties in (
        ("edge sender 0", edge),
        ("edge sender 1", edge),
        ("relay sender 0", relay),
        ("relay sender 1", relay),
        ("edge subscriber", edge),
        ("relay subscriber", relay),
    ):
        party = _Party(Actor(stage, name, *known, **properties))
        parties.append(party)
        await party.actor.start()
        await party.subscribe()
    await until(lambda: all(party.actor.node.health != "Unhealthy" for party in parties))
    await until(
        lambda: all(len(each.node.relay.mesh(SHARD)) >= min(3, services + 1) for each in stage.services)
    )
    return parties


async def _fail_every_minute(stage: Stage, outcome: Outcome) -> None:
    """Crash the service nodes by turns, every third time without a word; each comes back after a while."""
    while True:
        await trio.sleep(_EVERY_S - _DOWN_S)
        actor = stage.services[outcome.crashes % len(stage.services)]
        outcome.crashes += 1
        actor.crash(silent=outcome.crashes % 3 == 0)
        await trio.sleep(_DOWN_S)
        await actor.gone()
        await actor.start()


async def _send(party: _Party, number: int, count: int, rate_per_s: float) -> None:
    node = party.actor.node
    codec = node.codec(TOPIC)
    for each in range(count):
        payload = b"%d of %d" % (each, number)
        party.sent[node.send(codec, Message(payload))] = payload
        await trio.sleep(1 / rate_per_s)


async def _come_to_rest(senders: list[_Party], parties: list[_Party], messages: int) -> None:
    """Until nothing is pending and everybody has everything; where that never comes, five minutes."""
    await until(lambda: not any(party.actor.node.pending_requests for party in senders), seconds=600)
    with trio.move_on_after(300):
        while any(len(party.heard) < messages for party in parties):
            await trio.sleep(1)
    await trio.sleep(70)  # for what must not come


async def _judge(outcome: Outcome, senders: list[_Party], parties: list[_Party]) -> None:
    for party in senders:
        for request_id, payload in party.sent.items():
            record = await party.actor.node.messages.get_by_request_id(request_id)
            assert record is not None
            outcome.attempts += record.attempts
            outcome.unfinished += record.sending or record.sent == (record.error is not None)
            if record.error is not None:
                outcome.errors[record.error] += 1
            missing = sum(payload not in other.heard for other in parties)
            outcome.unheard += missing
            outcome.lost += missing if record.error is None else 0
    for party in parties:
        outcome.duplicates += sum(count - 1 for count in party.heard.values())
        node = party.actor.node
        outcome.dropped += node.parts.messaging.inbox.counters.dropped
        if node.config.mode == "edge":
            for service in (Service.LIGHTPUSH, Service.FILTER, Service.STORE):
                pool = node.finding.pools.open(Need(service, CLUSTER, frozenset({0})))
                outcome.replaced += pool.counters.replaced
