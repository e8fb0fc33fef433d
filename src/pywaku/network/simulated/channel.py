"""One direction of a connection: an ordered, delayed, possibly silent way for calls to the other side."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pywaku.network.simulated.profile import LinkProfile

if TYPE_CHECKING:
    from pywaku.network.simulated.world import SimulatedWorld

Delivery = Callable[[Any], None]


class Channel:
    """Delivers calls in the order they were sent, each when its bytes would have arrived.

    What is sent at one instant travels in one packet and shares one draw of latency and loss. While the
    channel is silent nothing is delivered; what is in flight then, or sent meanwhile, is sent again when it
    is silent no longer. The streams' flow control bounds what a channel holds.
    """

    __slots__ = (
        "_drawn_at",
        "_free_at",
        "_in_flight",
        "_last_arrival",
        "_latency",
        "_name",
        "_wake_at",
        "_world",
        "profile",
        "silent",
    )

    def __init__(self, world: SimulatedWorld, name: str, profile: LinkProfile) -> None:
        self._world = world
        self._name = name
        self._in_flight: deque[tuple[float, int, Delivery, Any]] = deque()
        self._drawn_at = -math.inf
        self._latency = 0.0
        self._free_at = -math.inf
        self._last_arrival = -math.inf
        self._wake_at = math.inf
        self.profile = profile
        self.silent = False

    def send(self, size: int, deliver: Delivery, argument: Any) -> None:
        """Call `deliver(argument)` when `size` bytes sent now have arrived."""
        now = self._world.now()
        arrival = self._arrival(now, size)
        self._in_flight.append((arrival, size, deliver, argument))
        if not self.silent and self._wake_at == math.inf:
            self._wake(arrival)

    def fall_silent(self) -> None:
        """Deliver nothing until `speak`."""
        self.silent = True
        self._wake_at = math.inf

    def speak(self) -> None:
        """Deliver again: everything that has not arrived sets out anew."""
        if not self.silent:
            return
        self.silent = False
        self._last_arrival = self._free_at = -math.inf
        held = tuple(self._in_flight)
        self._in_flight.clear()
        for _, size, deliver, argument in held:
            self.send(size, deliver, argument)

    def clear(self) -> None:
        """Forget all that is in flight."""
        self._in_flight.clear()
        self._wake_at = math.inf

    def _arrival(self, now: float, size: int) -> float:
        profile = self.profile
        if now != self._drawn_at:
            world = self._world
            self._drawn_at = now
            self._latency = profile.latency.draw(world.rng)
            if profile.loss:
                times = profile.retransmissions(world.rng)
                self._latency += profile.retransmit_after * (2**times - 1)
                world.counters.retransmissions += times
        departure = now
        if profile.bandwidth_bytes_per_s is not None:
            departure = self._free_at = max(now, self._free_at) + size / profile.bandwidth_bytes_per_s
        arrival = self._world.on_tick(departure + self._latency, now)
        if arrival < self._last_arrival:
            return self._last_arrival
        self._last_arrival = arrival
        return arrival

    def _wake(self, when: float) -> None:
        self._wake_at = when
        self._world.call_at(when, self._run)

    def _run(self, when: float) -> None:
        if when != self._wake_at:
            return  # the channel fell silent or was cleared since
        world, in_flight = self._world, self._in_flight
        while in_flight and in_flight[0][0] <= when:
            _, size, deliver, argument = in_flight.popleft()
            world.counters.deliveries += 1
            world.counters.bytes_delivered += size
            if world.traces:
                world.note(self._name, deliver.__name__, argument)
            deliver(argument)
            if self._wake_at != when:
                return  # that delivery ended the connection, or set the channel to silence
        if in_flight:
            self._wake(in_flight[0][0])
        else:
            self._wake_at = math.inf
