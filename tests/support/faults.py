"""A stage for faults: a sender, live subscribers, service nodes and stores, any of which may fail.

Everything happens on virtual time in a simulated network. What misbehaves is a real node, of which one
handler is replaced or whose link, clock or life is meddled with.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Unpack

import trio

from pywaku.messaging import Environment, Node
from pywaku.messaging.config import NodeProperties
from pywaku.messaging.event import Event
from pywaku.messaging.record import Message, MessageRecord, RequestId
from pywaku.network.simulated import LinkProfile, SimulatedNetwork
from pywaku.peers.selection import Need
from pywaku.peers.services import Service
from pywaku.wire.multiaddr import Multiaddr
from tests.support.waku_nodes import CLUSTER, SHARD, TOPIC, WakuWorld, open_waku_world, until

Mode = Literal["edge", "relay"]

HOUR_NS = 3_600_000_000_000


class Actor:
    """A node that can be stopped, crashed and started again, as the same one."""

    def __init__(
        self,
        stage: Stage,
        name: str,
        *knows: Actor,
        keeps: bool = False,
        records: Path | None = None,
        **properties: Unpack[NodeProperties],
    ) -> None:
        self.name = name
        self.skew_ns = 0
        """How far its clock is ahead."""
        self.address: Multiaddr | None = None
        self.records = records
        self._stage = stage
        self._knows = knows
        self._keeps = keeps
        self._properties = properties
        self._node: Node | None = None
        self._scope = trio.CancelScope()
        self._gone = trio.Event()
        self._stop = trio.Event()
        self._lives = 0
        self._clock = Environment.simulated(0).clock

    @property
    def node(self) -> Node:
        """The node, which is up."""
        assert self._node is not None, f"{self.name} is down"
        return self._node

    @property
    def up(self) -> bool:
        """Whether it is."""
        return self._node is not None

    @property
    def host(self) -> SimulatedNetwork:
        """What it runs on."""
        return self._stage.waku.host(self.node)

    async def start(self) -> Node:
        """Start it (again)."""
        assert self._node is None, f"{self.name} is up"
        self._scope, self._gone, self._stop = trio.CancelScope(), trio.Event(), trio.Event()
        return await self._stage.nursery.start(self._live)

    async def stop(self) -> None:
        """Stop it in order."""
        self._stop.set()
        await self._gone.wait()

    def crash(self, *, silent: bool = False) -> None:
        """End its process on the spot. What it had not written to its disk by then is lost."""
        if self.records is not None:
            self._lives += 1
            left = self.records.parent
            self.records = left.with_name(f"{left.name}-{self._lives}") / self.records.name
            shutil.copytree(left, self.records.parent)
        if self._node is not None:
            self._stage.waku.world.crash(self.node.peer_id, silent=silent)
            self._node = None
        self._scope.cancel()

    async def gone(self) -> None:
        """Returns when nothing is left of it."""
        await self._gone.wait()

    def _wall(self) -> int:
        return self._clock() + self.skew_ns

    async def _live(self, task_status: trio.TaskStatus[Node]) -> None:
        properties = self._properties.copy()
        if self.records is not None:
            properties["records_path"] = self.records
        addresses = [known.address for known in self._knows if known.address is not None]
        with self._scope:
            async with self._stage.waku.node(
                self.name, *addresses, keeps=self._keeps, clock=self._wall, **properties
            ) as node:
                self._node = node
                self.address = node.addresses[0]
                task_status.started(node)
                await self._stop.wait()
        self._node = None
        self._gone.set()


class Listener:
    """A live subscriber: what it has heard, how often, and when first."""

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.heard: Counter[bytes] = Counter()
        self.at: dict[bytes, float] = {}

    async def subscribe(self) -> None:
        """Begin, or begin again after a restart."""
        node = self.actor.node
        await node.subscribe(node.codec(TOPIC), self._hear)

    def _hear(self, record: MessageRecord) -> None:
        self.heard[record.message.payload] += 1
        self.at.setdefault(record.message.payload, trio.current_time())


@dataclass(slots=True)
class Fate:
    """What has become of one message that was sent."""

    record: MessageRecord
    final_after_s: float
    """Until the record was final."""
    heard_after_s: dict[str, float | None]
    """Until each subscriber had it."""
    error_events: int


@dataclass(slots=True)
class Stage:
    """See the module; made by `open_stage`."""

    waku: WakuWorld
    nursery: trio.Nursery
    services: list[Actor] = field(default_factory=list[Actor])
    stores: list[Actor] = field(default_factory=list[Actor])
    listeners: list[Listener] = field(default_factory=list[Listener])
    errors: list[MessageRecord] = field(default_factory=list[MessageRecord])
    requests: dict[RequestId, tuple[bytes, float]] = field(
        default_factory=dict[RequestId, tuple[bytes, float]]
    )
    sender: Actor = field(init=False)

    # What is to happen

    async def start_sender(self) -> Node:
        """Start the sender (again), with a subscription of its own and an ear for errors."""
        node = await self.sender.start()
        self.watch(node)
        return node

    def watch(self, node: Node) -> None:
        """Keep the errors that it reports."""

        def hear(event: Event[Any]) -> None:
            assert isinstance(event.detail, MessageRecord)
            self.errors.append(event.detail)

        node.events.add_event_listener("message:error", hear)

    def send(self, payload: bytes = b"hello") -> RequestId:
        """Have the sender send a message."""
        node = self.sender.node
        request_id = node.send(node.codec(TOPIC), Message(payload))
        self.requests[request_id] = (payload, trio.current_time())
        return request_id

    def in_use(self, service: Service, actor: Actor | None = None) -> list[Actor]:
        """The service nodes that a node has in use."""
        node = (actor or self.sender).node
        pool = node.finding.pools.open(Need(service, CLUSTER, frozenset({0})))
        return [each for each in (*self.services, *self.stores) if each.node.peer_id in pool.in_use]

    def neighbours(self) -> list[Actor]:
        """The nodes that the sender gives its messages to."""
        if self.sender.node.config.mode == "edge":
            return self.in_use(Service.LIGHTPUSH)
        mesh = self.sender.node.relay.mesh(SHARD)
        return [each for each in (*self.services, *self.stores) if each.node.peer_id in mesh]

    async def part(self, *actors: Actor, seconds: float) -> None:
        """Part these from everybody else for a while."""
        world = self.waku.world
        world.partition([actor.host for actor in actors])
        await trio.sleep(seconds)
        world.heal()

    # What became of it

    async def fate(self, request_id: RequestId, *, within: float = 400.0, quiet: float = 70.0) -> Fate:
        """Wait until a message has its fate, and a while longer for what must not come."""
        payload, sent_at = self.requests[request_id]
        with trio.fail_after(within):
            while True:
                record = await self.sender.node.messages.get_by_request_id(request_id)
                if record is not None and not record.sending:
                    break
                await trio.sleep(0.25)
        final_after = trio.current_time() - sent_at
        with trio.move_on_after(within):
            while not all(payload in listener.heard for listener in self.listeners):
                if record.error is not None and trio.current_time() - sent_at > final_after + quiet:
                    break
                await trio.sleep(0.25)
        await trio.sleep(quiet)
        again = await self.sender.node.messages.get_by_request_id(request_id)
        assert again is not None
        assert (again.sending, again.sent, again.error) == (record.sending, record.sent, record.error)
        heard = {
            listener.actor.name: (None if payload not in listener.at else listener.at[payload] - sent_at)
            for listener in self.listeners
        }
        events = sum(error.request_id == request_id for error in self.errors)
        return Fate(again, final_after, heard, events)

    def hold(self, fate: Fate) -> None:
        """What is promised of every message: it came to every live subscriber once, or there is an error."""
        record = fate.record
        payload = record.message.payload
        assert not record.sending
        assert record.sent != (record.error is not None), record
        assert (fate.error_events > 0) == (record.error is not None), fate
        for listener in self.listeners:
            count = listener.heard[payload]
            assert count <= 1, f"{listener.actor.name} got it {count} times: {fate}"
            assert count == 1 or record.error is not None, f"{listener.actor.name} never got it: {fate}"


@asynccontextmanager
async def open_stage(
    mode: Mode,
    *,
    seed: int = 1,
    services: int = 3,
    stores: int = 1,
    records: Path | None = None,
    link: LinkProfile | None = None,
    regular: bool = False,
) -> AsyncGenerator[Stage]:
    """A sender of that mode, an edge and a relay subscriber, service nodes and stores, all up and meshed.

    The sender asks stores for confirmation. A relay sender knows two of the service nodes and the stores; an
    edge sender knows them all. With `records` its records are in that directory, and outlive it.
    """
    async with open_waku_world(seed, link) as waku, trio.open_nursery() as nursery:
        stage = Stage(waku, nursery)
        for number in range(services):
            actor = Actor(stage, f"service-{number}", *stage.services, mode="relay")
            stage.services.append(actor)
            await actor.start()
        for number in range(stores):
            actor = Actor(
                stage, f"store-{number}", *stage.services, keeps=True, lightpush=False, filter=False
            )
            stage.stores.append(actor)
            await actor.start()
        known = (*stage.services, *stage.stores)
        for name, properties in (
            ("edge subscriber", NodeProperties(mode="edge", store_confirmation=regular)),
            ("relay subscriber", NodeProperties(mode="relay", lightpush=False, filter=False)),
        ):
            listener = Listener(Actor(stage, name, *known, **properties))
            stage.listeners.append(listener)
            await listener.actor.start()
        path = None
        if records is not None:
            records.mkdir(parents=True, exist_ok=True)
            path = records / "records.sqlite3"
        asked: NodeProperties = {"mode": mode, "store_confirmation": True}
        if mode == "relay":
            asked["lightpush"] = asked["filter"] = False
            known = (*stage.services[:2], *stage.stores)
        stage.sender = Actor(stage, "sender", *known, records=path, **asked)
        await stage.start_sender()
        for listener in stage.listeners:
            await listener.subscribe()
        least = 2 if services > 1 else 1
        await until(lambda: all(len(each.node.relay.mesh(SHARD)) >= least for each in stage.services))
        await until(lambda: stage.sender.node.health != "Unhealthy" and len(stage.neighbours()) >= least)
        await trio.sleep(3)  # heartbeats, pings and meshes come to rest
        try:
            yield stage
        finally:
            nursery.cancel_scope.cancel()
