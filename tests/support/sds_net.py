"""Participants of one channel on a bad link, on virtual milliseconds, replayed from one seed.

A transmission goes to each other participant by itself: lost, late (so that later ones overtake it) or twice.
A participant may crash: what it has not saved is gone, and it comes back from what it has.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from pywaku.sds import (
    Acknowledged,
    Delivered,
    MessagesLost,
    NotAcknowledged,
    SdsChannel,
    SdsOptions,
    Transmission,
)
from pywaku.wire.sds import decode_sds
from tests.support.sds_channels import CHANNEL, START_MS, Rows, save


@dataclass(frozen=True, slots=True)
class Weather:
    """What becomes of transmissions."""

    loss: float = 0.2
    twice: float = 0.05
    delay_ms: tuple[int, int] = (5, 3_000)


@dataclass
class Member:
    """A participant, what it has saved, and what it was told."""

    name: str
    sds: SdsChannel
    rows: Rows = field(default_factory=Rows)
    delivered: list[Delivered] = field(default_factory=list[Delivered])
    lost: set[str] = field(default_factory=set[str])
    finals: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    sent: list[str] = field(default_factory=list[str])
    down: bool = False
    part: int = 0
    """Those of different parts do not hear each other."""
    crashes: int = 0


class SdsNet:
    """The participants and the queue of what will happen to them."""

    def __init__(self, count: int, seed: int, options: SdsOptions, weather: Weather) -> None:
        self.rng = random.Random(seed)
        self.options = options
        self.weather = weather
        self.now_ms = 0
        self.histories: dict[str, tuple[str, ...]] = {}
        self.bytes = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self.members = [Member(f"p{number}", self._open(f"p{number}")) for number in range(count)]
        for member in self.members:
            self.settle(member)

    @property
    def now_ns(self) -> int:
        """The time for channels."""
        return (START_MS + self.now_ms) * 1_000_000

    def _open(self, name: str, rows: Rows | None = None) -> SdsChannel:
        saved = [] if rows is None else [(table, key, value) for (table, key), value in rows.items()]
        rng = random.Random(self.rng.random())
        return SdsChannel.restore(CHANNEL, name, self.options, rows=saved, rng=rng, now_ns=self.now_ns)

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Have something happen later."""
        self._number += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._number, action))

    def run(self, until_ms: int) -> None:
        """Let things happen up to a time."""
        while True:
            due = [(member.sds.next_tick(), member) for member in self.members if not member.down]
            ticks = [(at // 1_000_000 - START_MS, member) for at, member in due if at is not None]
            first = min((at for at, _ in ticks), default=until_ms)
            if self._queue and self._queue[0][0] <= min(first, until_ms):
                at, _, action = heapq.heappop(self._queue)
                self.now_ms = max(self.now_ms, at)
                action()
                continue
            if first >= until_ms:
                break
            self.now_ms = max(self.now_ms, first)
            for at, member in ticks:
                if at <= self.now_ms:
                    member.sds.tick(self.now_ns)
                    self.settle(member)
        self.now_ms = until_ms

    def send(self, member: Member, content: bytes) -> None:
        """A message of a participant that is up."""
        made = member.sds.send(content, self.now_ns)
        member.sent.append(made.message_id)
        self.histories[made.message_id] = tuple(
            entry.message_id for entry in decode_sds(made.data).causal_history
        )
        self.settle(member, made)

    def settle(self, member: Member, *made: Transmission) -> None:
        """Save, note what happened, and only then send: as a program would."""
        outgoing = [*made, *member.sds.take_transmissions()]
        events = member.sds.take_events()
        for one in outgoing:
            member.sds.sent(one.message_id, self.now_ns)
        save(member.rows, member.sds.take_changes())
        for event in events:
            if isinstance(event, Delivered):
                member.delivered.append(event)
            elif isinstance(event, MessagesLost):
                member.lost.update(entry.message_id for entry in event.entries)
            elif isinstance(event, Acknowledged | NotAcknowledged):
                member.finals.setdefault(event.message_id, []).append(type(event).__name__)
        for one in outgoing:
            self._broadcast(member, one.data)

    def _broadcast(self, sender: Member, data: bytes) -> None:
        self.bytes += len(data)
        for member in self.members:
            if member is sender or member.part != sender.part:
                continue
            if self.rng.random() >= self.weather.loss:
                for _ in range(1 + (self.rng.random() < self.weather.twice)):
                    self.after(self.rng.randint(*self.weather.delay_ms), self._arrival(member, data))

    def _arrival(self, member: Member, data: bytes) -> Callable[[], None]:
        def arrive() -> None:
            if not member.down:
                member.sds.receive(data, self.now_ns)
                self.settle(member)

        return arrive

    def divide(self, parts: int) -> None:
        """Have only some hear some; one part is all."""
        for member in self.members:
            member.part = self.rng.randrange(parts)

    def crash(self, member: Member, for_ms: int) -> None:
        """Take a participant down; it comes back from what it saved."""
        if not member.down:
            member.down = True
            member.crashes += 1
            self.after(for_ms, lambda: self._come_back(member))

    def _come_back(self, member: Member) -> None:
        member.sds = self._open(member.name, member.rows)
        member.down = False
        self.settle(member)
