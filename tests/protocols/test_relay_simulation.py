"""Whole relay networks on virtual time: latency, loss and churn, from one seed."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
import trio

from pywaku.errors import NetworkError
from pywaku.gossip import GossipParams
from pywaku.network.simulated import LinkProfile, LogNormal, SimulatedWorld
from pywaku.protocols.relay import ReceivedMessage, Relay
from tests.support.relays import TOPIC, Node, message, open_node
from tests.support.replay import run_replayable

LINKS = 8
"""Connections that each node makes."""

SETTLED_S = 10.0
"""After as long a node that has come counts as one that is there."""

DELIVERED_S = 12.0
"""So long a message may take, gossip included."""


@dataclass
class Life:
    """One node's presence, from when to when, and what it got."""

    name: str
    since: float
    until: float = float("inf")
    received: Counter[bytes] = field(default_factory=Counter[bytes])


@dataclass
class Run:
    """What became of a simulation."""

    lives: list[Life] = field(default_factory=list[Life])
    sent: dict[bytes, float] = field(default_factory=dict[bytes, float])
    degrees: list[int] = field(default_factory=list[int])
    duplicates: float = 0.0
    trace: str = ""

    def missed(self) -> list[tuple[str, float]]:
        """Messages that a node which was there did not get."""
        return [
            (life.name, when)
            for life in self.lives
            for message_hash, when in self.sent.items()
            if life.since + SETTLED_S <= when <= life.until - DELIVERED_S and not life.received[message_hash]
        ]


class Simulation:
    """Some nodes in random connections; a share of them keeps crashing and coming back."""

    def __init__(
        self, seed: int, *, nodes: int, messages: int, churn: float, loss: float, trace: bool
    ) -> None:
        link = LinkProfile(latency=LogNormal(0.05), loss=loss)
        self.world = SimulatedWorld(seed, link=link, trace=trace)
        self.rng = random.Random(f"simulation {seed}")
        self.names = [f"node-{i}" for i in range(nodes)]
        self.restless = self.names[: round(nodes * churn)]
        self.messages = messages
        self.up: dict[str, Node] = {}
        self.run = Run()

    async def play(self) -> Run:
        """Let it happen: 20 seconds to settle, messages for a minute, time for the last ones to arrive."""
        async with self.world, trio.open_nursery() as nursery:
            for name in self.names:
                if name in self.restless:
                    nursery.start_soon(self._come_and_go, name)
                else:
                    nursery.start_soon(self._live, name, trio.Event())
            await trio.sleep(20)
            for number in range(self.messages):
                await trio.sleep(60 / self.messages)
                name = self.rng.choice(self.names)
                if name in self.up:
                    relay = self.up[name].relay
                    outcome = await relay.publish(
                        TOPIC, message(f"{number} {'x' * self.rng.randint(100, 8_000)}")
                    )
                    assert outcome.peers > 0 or name in self.restless
                    if outcome.peers:  # who has just come back and knows nobody yet is told so
                        self.run.sent[outcome.message_hash] = trio.current_time()
                if number % 10 == 0:
                    self._look()
            await trio.sleep(DELIVERED_S + 1)
            steady = [self.up[name].relay for name in self.names if name not in self.restless]
            self.run.duplicates = sum(duplicates_of(relay) for relay in steady) / len(steady)
            self.run.trace = self.world.trace
            nursery.cancel_scope.cancel()
        return self.run

    def _look(self) -> None:
        now = trio.current_time()
        since = {life.name: life.since for life in self.run.lives}
        self.run.degrees += [
            len(node.relay.mesh(TOPIC))
            for name, node in self.up.items()
            if name not in self.restless and now - since[name] >= SETTLED_S
        ]

    async def _come_and_go(self, name: str) -> None:
        while True:
            gone = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._live, name, gone)
                await trio.sleep(self.rng.uniform(15, 40))
                gone.set()
            await trio.sleep(self.rng.uniform(1, 10))

    async def _live(self, name: str, gone: trio.Event) -> None:
        life = Life(name, trio.current_time())
        self.run.lives.append(life)

        def count(received: ReceivedMessage) -> None:
            life.received[received.message_hash] += 1

        async with open_node(self.world, name, params=GossipParams()) as node:
            node.relay.subscribe_callback(TOPIC, count)
            self.up[name] = node
            try:
                await self._mingle(node, gone)
            finally:
                del self.up[name]
                life.until = trio.current_time()
            if self.rng.random() < 0.5:
                self.world.crash(node.network)

    async def _mingle(self, node: Node, gone: trio.Event) -> None:
        """Keep as many connections as wanted, until it is time to go."""
        while not gone.is_set():
            others = [other for other in self.up.values() if other is not node]
            for other in self.rng.sample(others, min(LINKS, len(others))):
                if len(node.network.peers) < LINKS:
                    with trio.move_on_after(5), contextlib.suppress(NetworkError):
                        await node.network.connect(other.network.addresses)
            with trio.move_on_after(self.rng.uniform(2, 3)):
                await gone.wait()


def duplicates_of(relay: Relay) -> float:
    """How often a relay got a message that it had, per message."""
    return relay.counters.duplicates / max(1, relay.counters.delivered)


def play(seed: int, *, nodes: int, messages: int, churn: float = 0.2, trace: bool = False) -> Run:
    """A whole simulation, repeatable."""
    simulation = Simulation(seed, nodes=nodes, messages=messages, churn=churn, loss=0.1, trace=trace)
    return run_replayable(simulation.play, seed=seed)


def check(run: Run) -> None:
    """What every run has to show."""
    assert run.missed() == []
    assert all(times == 1 for life in run.lives for times in life.received.values()), "delivered twice"
    params = GossipParams()
    within = sum(params.d_low <= degree <= params.d_high for degree in run.degrees)
    # Peers may have crashed, or have grafted us, since the last heartbeat.
    assert within >= 0.97 * len(run.degrees), sorted(run.degrees)
    # A link of the mesh carries a message once, or twice if it crosses itself: each node has 6 to 7 links.
    assert run.duplicates <= 5.5


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_every_message_reaches_every_live_node_despite_loss_and_churn(seed: int) -> None:
    run = play(seed, nodes=30, messages=200)
    assert len(run.sent) > 150
    assert len(run.lives) > 30
    check(run)


def test_the_same_seed_gives_the_same_trace() -> None:
    one = play(7, nodes=12, messages=20, trace=True)
    assert one.trace == play(7, nodes=12, messages=20, trace=True).trace
    assert one.trace != play(8, nodes=12, messages=20, trace=True).trace


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 6))
def test_100_nodes_with_1000_messages_10_percent_loss_and_20_percent_churn(seed: int) -> None:
    run = play(seed, nodes=100, messages=1000)
    assert len(run.sent) > 800
    check(run)
