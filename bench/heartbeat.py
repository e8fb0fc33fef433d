"""How a gossip heartbeat grows with the peers: no faster than they do."""

from __future__ import annotations

import statistics

from bench.gossip_heartbeat import heartbeat_seconds
from bench.report import Row, compare
from bench.sides import Scale

_SIZES = (100, 500, 1000)


async def heartbeats(scale: Scale) -> list[Row]:
    """Milliseconds of one heartbeat with so many peers; theirs is that of 100 peers, scaled."""
    rounds: dict[int, list[float]] = {peers: [] for peers in _SIZES}
    for _ in range(scale.rounds):
        for peers in _SIZES:
            rounds[peers].append(heartbeat_seconds(peers) * 1000)
    medians = {peers: statistics.median(values) for peers, values in rounds.items()}
    base = medians[_SIZES[0]]
    rows = [compare(f"heartbeat-{_SIZES[0]}", ours=base, unit="ms")]
    for peers in _SIZES[1:]:
        rows.append(
            compare(
                f"heartbeat-{peers}",
                ours=medians[peers],
                theirs=base * peers / _SIZES[0],
                peer="linear growth",
                goal=1.0,
                unit="ms",
                less_is_better=True,
            )
        )
    return rows
