"""A hundred routers on a bad network: everything arrives, meshes keep their shape, and it all replays."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.gossip_lone import TOPIC
from tests.support.gossip_net import Conditions, GossipNet, Node

NODES = 100
MESSAGES = 1_000
SIZES = (100, 8_000)  # on average the 4 kB that 64/WAKU2-NETWORK recommends
DIALS = 10  # each node dials so many: it has about twice as many connections
SETTLED_S = 10.0
PUBLISHING_S = 40.0
REST_S = 8.0


@dataclass
class Proof:
    """What came of one run."""

    trace: str
    live_pairs: int = 0
    missed: int = 0
    doubled: int = 0
    duplicates: float = 0.0
    degrees: list[int] = field(default_factory=list[int])


def prove(
    seed: int, *, nodes: int = NODES, messages: int = MESSAGES, loss: float = 0.1, churn: float = 0.2
) -> Proof:
    """Publish messages while frames get lost and some of the nodes go away and come back."""
    net = GossipNet(nodes, seed, conditions=Conditions(loss=loss))
    rng = net.rng
    proof = Proof("")
    published: list[tuple[float, bytes]] = []
    leaves_at: dict[int, float] = {}

    def leaves(node: Node) -> float:
        return leaves_at.get(node.number, 0.0)

    def heartbeat(node: Node) -> None:
        if node.online_since is not None and net.now - node.online_since >= SETTLED_S:
            proof.degrees.append(len(node.gossip.mesh(TOPIC)))

    def publish() -> None:
        # What a node publishes in the moment in which it vanishes goes down with its connections.
        staying = [n for n in net.nodes if n.online_since is not None and not 0 <= leaves(n) - net.now < 1]
        node = rng.choice(staying)
        published.append((net.now, net.publish(node, TOPIC, rng.randbytes(rng.randint(*SIZES)))))

    def come_back(node: Node) -> None:
        net.go_online(node, 2 * DIALS)

    net.on_heartbeat = heartbeat
    for node in net.nodes:
        node.online_since = 0.0
        for other in rng.sample(net.nodes, DIALS):
            net.connect(node, other)
        net.join(node, TOPIC)
    for node in net.nodes[: int(churn * nodes)]:
        gone = SETTLED_S + rng.random() * PUBLISHING_S * 0.6
        leaves_at[node.number] = gone
        net.at(gone, net.go_offline, node)
        net.at(gone + 5.0 + rng.random() * 5.0, come_back, node)
    for number in range(messages):
        net.at(SETTLED_S + PUBLISHING_S * number / messages, publish)
    net.run(SETTLED_S + PUBLISHING_S + REST_S)

    for node in net.nodes:
        proof.doubled += sum(times > 1 for times in node.delivered.values())
        for when, message_id in published:
            if node.online_since is not None and node.online_since < when:
                proof.live_pairs += 1
                proof.missed += message_id not in node.delivered
    proof.duplicates = sum(node.gossip.counters.duplicates for node in net.nodes) / nodes / messages
    proof.trace = net.trace
    return proof


def check(proof: Proof) -> None:
    """What has to hold of a run at full size."""
    assert proof.live_pairs > 0.8 * NODES * MESSAGES
    assert proof.missed == 0
    assert proof.doubled == 0
    assert len(proof.degrees) > 0.7 * NODES * (PUBLISHING_S + REST_S)
    assert min(proof.degrees) >= 4
    assert max(proof.degrees) <= 8
    assert proof.duplicates <= 4.0


def test_every_message_reaches_every_live_node() -> None:
    check(prove(1))


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_every_message_reaches_every_live_node_whatever_the_seed(seed: int) -> None:
    check(prove(seed))


def test_without_loss_and_churn_every_message_arrives_as_well() -> None:
    proof = prove(1, nodes=30, messages=200, loss=0.0, churn=0.0)
    assert (proof.missed, proof.doubled) == (0, 0)


def test_the_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    traces = [prove(seed, nodes=20, messages=100).trace for seed in (7, 7, 8)]
    assert traces[0] == traces[1] != traces[2]


def test_the_trace_does_not_depend_on_hash_randomisation() -> None:
    """Sets of bytes have another order in each process: nothing that happens may follow it."""
    program = "from tests.gossip.test_network import prove; print(prove(7, nodes=20, messages=100).trace)"
    root = Path(__file__).parent.parent.parent
    traces = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(traces) == 1
