"""Known networks by name. A cluster id never implies a preset: what a node does is what it was told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pywaku.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Preset:
    """What all nodes of a network agree on, and where to find some of them."""

    name: str
    cluster_id: int
    num_shards_in_network: int
    validate_timestamps: bool
    free_bandwidth_bps: int | None
    require_metadata: bool
    bootstrap_nodes: tuple[str, ...] = ()
    """What stands in for `bootstrap_nodes` where none are given."""


PRESETS: Final[dict[str, Preset]] = {
    preset.name: preset
    for preset in (
        # 64/WAKU2-NETWORK: eight shards of cluster 1; "Invalid timestamp", "Free bandwidth exceeded", and
        # peers whose metadata request fails are disconnected. The node list is the one of MESSAGING-API,
        # TheWakuNetworkPreset.
        Preset(
            "twn",
            1,
            8,
            validate_timestamps=True,
            free_bandwidth_bps=1_000_000,
            require_metadata=True,
            bootstrap_nodes=(
                "enrtree://AIRVQ5DDA4FFWLRBCHJWUWOO6X6S4ZTZ5B667LQ6AJU6PEYDLRD5O@sandbox.waku.nodes.status.im",
            ),
        ),
    )
}


def preset_named(name: str) -> Preset:
    """The preset of that name; raises `InvalidInput` with the names there are."""
    try:
        return PRESETS[name.lower()]
    except KeyError:
        raise InvalidInput(f"preset: there is no {name!r}; known are {', '.join(PRESETS)}") from None
