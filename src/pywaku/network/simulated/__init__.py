"""A network in memory, on trio's clock, from one seed: for tests and simulations."""

from pywaku.network.simulated.host import SimulatedNetwork
from pywaku.network.simulated.profile import Constant, Latency, LinkProfile, LogNormal, Uniform
from pywaku.network.simulated.world import SimulatedWorld, WorldCounters

__all__ = [
    "Constant",
    "Latency",
    "LinkProfile",
    "LogNormal",
    "SimulatedNetwork",
    "SimulatedWorld",
    "Uniform",
    "WorldCounters",
]
