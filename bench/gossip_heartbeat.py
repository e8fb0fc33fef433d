"""What a heartbeat costs a router with many peers, all in one topic, and with messages in its history."""

from __future__ import annotations

import random
import statistics
import time

from pywaku.gossip import Gossip, Verdict
from pywaku.ids import PeerId
from pywaku.wire.relay import RelayMessage, Rpc, Subscription

_TOPIC = "/waku/2/rs/42/0"
_MESSAGES_PER_HEARTBEAT = 50
_WARM_UP = 10
_ROUNDS = 60


def heartbeat_seconds(peers: int) -> float:
    """The median cost of a heartbeat with so many connected and subscribed peers."""
    rng = random.Random(peers)
    gossip = Gossip(rng=random.Random(1))
    gossip.join(_TOPIC, 0.0)
    ids = [PeerId(b"\x12\x20" + rng.randbytes(32)) for _ in range(peers)]
    for number, peer in enumerate(ids):
        gossip.add_peer(peer, 0.0, outbound=number % 2 == 0)
        gossip.receive(peer, Rpc(subscriptions=(Subscription(True, _TOPIC),)), 0.0)
    costs: list[float] = []
    for second in range(1, _WARM_UP + _ROUNDS + 1):
        now = float(second)
        for _ in range(_MESSAGES_PER_HEARTBEAT):
            message = RelayMessage(_TOPIC, rng.randbytes(200), signed=False)
            for candidate in gossip.receive(rng.choice(ids), Rpc(publish=(message,)), now):
                gossip.validated(candidate.message_id, Verdict.ACCEPT, now)
        gossip.take_outgoing()
        started = time.perf_counter()
        gossip.heartbeat(now)
        elapsed = time.perf_counter() - started
        gossip.take_outgoing()
        if second > _WARM_UP:
            costs.append(elapsed)
    return statistics.median(costs)


if __name__ == "__main__":
    for count in (100, 500, 1_000):
        print(f"{count} peers: {heartbeat_seconds(count) * 1e6:.0f} µs")
