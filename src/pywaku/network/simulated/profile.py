"""What the way between two hosts is like: latency, bandwidth, loss."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Protocol

from pywaku.errors import InvalidInput

_MOST_RETRANSMISSIONS = 6  # with the wait doubling each time; TCP gives up not much later


class Latency(Protocol):
    """A distribution of one-way delays, in seconds."""

    def draw(self, rng: random.Random) -> float:
        """One delay."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same delay."""

    seconds: float

    def __post_init__(self) -> None:
        if not 0 <= self.seconds < math.inf:
            raise InvalidInput(f"a latency is a number of seconds, not {self.seconds}")

    def draw(self, rng: random.Random) -> float:
        """One delay."""
        return self.seconds


@dataclass(frozen=True, slots=True)
class Uniform:
    """Any delay between two bounds, all alike."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high < math.inf:
            raise InvalidInput(f"a latency lies between 0 ≤ low ≤ high, not {self.low} and {self.high}")

    def draw(self, rng: random.Random) -> float:
        """One delay."""
        return rng.uniform(self.low, self.high)


@dataclass(frozen=True, slots=True)
class LogNormal:
    """Delays as the internet has them: mostly near the median, some much longer (up to `highest`)."""

    median: float
    sigma: float = 0.5
    highest: float = 5.0

    def __post_init__(self) -> None:
        if not 0 < self.median <= self.highest < math.inf or self.sigma < 0:
            raise InvalidInput("a log-normal latency takes 0 < median ≤ highest and sigma ≥ 0")

    def draw(self, rng: random.Random) -> float:
        """One delay."""
        return min(self.highest, rng.lognormvariate(math.log(self.median), self.sigma))


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """One way between two hosts, the same in both directions.

    `loss` is the probability that a packet has to be sent again, as TCP does it: it arrives
    `retransmit_after` seconds later (twice that for the second time, and so on), and what was sent after it
    waits behind it.

    `write_loss` is harsher than anything TCP does: the probability that a whole `send` vanishes without a
    trace, on streams of `lossy_protocols` (of all protocols if there are none). It is for protocols that are
    to be tried with real message loss and that put whole frames in each `send`.
    """

    latency: Latency = Constant(0.02)
    loss: float = 0.0
    retransmit_after: float = 0.2
    bandwidth_bytes_per_s: float | None = None
    write_loss: float = 0.0
    lossy_protocols: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not 0 <= self.loss < 1 or not 0 <= self.write_loss <= 1:
            raise InvalidInput("loss and write_loss are probabilities, and loss is less than 1")
        if self.retransmit_after <= 0:
            raise InvalidInput(
                f"retransmit_after is a number of seconds above 0, not {self.retransmit_after}"
            )
        if self.bandwidth_bytes_per_s is not None and self.bandwidth_bytes_per_s <= 0:
            raise InvalidInput("bandwidth_bytes_per_s is above 0, or None for no limit")

    def retransmissions(self, rng: random.Random) -> int:
        """How many times a packet is lost before it arrives."""
        times = 0
        while times < _MOST_RETRANSMISSIONS and rng.random() < self.loss:
            times += 1
        return times

    def swallows(self, protocol: str, rng: random.Random) -> bool:
        """Whether one `send` on a stream of `protocol` vanishes."""
        if self.lossy_protocols and protocol not in self.lossy_protocols:
            return False
        return rng.random() < self.write_loss
