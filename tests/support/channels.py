"""Participants of a reliable channel on a bad link, on virtual milliseconds, replayed from one seed.

What is between them loses, delays, doubles and overtakes, for each receiver by itself, and can fall apart for
a while. A store keeps what was handed over, and is asked for what is missing. A participant may crash at any
time: it comes back from the rows that it has saved.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from pywaku.channels import ReliableChannelOptions
from pywaku.channels.conversation import Conversation, Outbound
from pywaku.channels.events import (
    ChannelEvent,
    IrretrievableMessage,
    MessageAcknowledged,
    MessageReceived,
    ReliableMessageDelivered,
    ReliableMessageDeliveryError,
    ReliableMessageSendError,
    SendingMessageIrrecoverableError,
)
from pywaku.channels.retrieval import MissingMessages, Search
from pywaku.channels.rows import Row

CHANNEL = "room"
START_MS = 1_700_000_000_000
SECOND_MS = 1_000
MINUTE_MS = 60_000

Name = tuple[str, bytes, int]
"""A message: who sent it, the digest of its payload, and the how-manieth of that sender and payload it is."""


@dataclass(frozen=True, slots=True)
class Weather:
    """What becomes of transmissions."""

    loss: float = 0.2
    twice: float = 0.05
    delay_ms: tuple[int, int] = (5, 3_000)
    not_taken: float = 0.05
    """How often nobody takes what a participant wants to send."""
    store: bool = True
    """Can a store be asked, with the same loss?"""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message, and what its sender had sent and received before it."""

    name: Name
    message_id: str
    sent_before: int
    received_before: int


@dataclass
class Member:
    """A participant: its machine, what it has saved, and what its application was told."""

    name: str
    conversation: Conversation
    rows: dict[tuple[str, str], bytes] = field(default_factory=dict[tuple[str, str], bytes])
    received: list[Name] = field(default_factory=list[Name])
    times: Counter[tuple[str, bytes]] = field(default_factory=Counter[tuple[str, bytes]])
    sent: list[Sent] = field(default_factory=list[Sent])
    sent_times: Counter[bytes] = field(default_factory=Counter[bytes])
    finals: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    irretrievable: list[IrretrievableMessage] = field(default_factory=list[IrretrievableMessage])
    missing: MissingMessages = field(default_factory=lambda: MissingMessages(10.0))
    search: Search = field(default_factory=lambda: Search(10.0))
    down: bool = False
    life: int = 0
    side: int = 0
    """On which side of a partition it is."""
    wake_ms: int = -1


class ChannelNet:
    """The participants, and the queue of what will happen to them."""

    def __init__(
        self,
        count: int,
        seed: int,
        options: ReliableChannelOptions | None = None,
        weather: Weather | None = None,
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.options = options or ReliableChannelOptions()
        self.weather = weather or Weather()
        self.now_ms = 0
        self.transmissions: Counter[str] = Counter()
        self.crashes = 0
        self._last_ns = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._store: dict[bytes, bytes] = {}
        self._by_id: dict[str, bytes] = {}
        self.members: list[Member] = []
        for number in range(count):
            name = f"p{number}"
            member = Member(name, self._open(name, ()))
            self.members.append(member)
            self.settle(member)
            self.after(self.rng.randrange(10 * SECOND_MS), self._retrieval(member))

    def now_ns(self) -> int:
        """The time, never the same twice."""
        self._last_ns = max(self._last_ns + 1, (START_MS + self.now_ms) * 1_000_000)
        return self._last_ns

    def _open(self, name: str, saved: Sequence[Row]) -> Conversation:
        rng = random.Random(self.rng.random())
        return Conversation(CHANNEL, name, self.options, rng=rng, now_ns=self.now_ns(), saved=saved)

    # Time

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Have something happen later."""
        self._number += 1
        heapq.heappush(self._queue, (self.now_ms + delay_ms, self._number, action))

    def run(self, until_ms: int) -> None:
        """Let things happen up to a time."""
        while self._queue and self._queue[0][0] <= until_ms:
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
        self.now_ms = until_ms

    def run_until_settled(self, *, within_ms: int) -> bool:
        """Let things happen until everybody has everything; False if that takes too long."""
        end = self.now_ms + within_ms
        while self.now_ms < end:
            self.run(self.now_ms + 30 * SECOND_MS)
            if self.settled:
                return True
        return False

    @property
    def settled(self) -> bool:
        """Does everybody have everything, and is every sender told?"""
        total = sum(len(member.sent) for member in self.members)
        return not any(
            member.down
            or len(member.received) + len(member.sent) < total
            or member.conversation.tracker.unfinished
            or member.conversation.missing()
            or member.conversation.sds.sizes().incoming
            or member.conversation.sds.sizes().outgoing
            for member in self.members
        )

    # Participants

    def send(self, member: Member, payload: bytes) -> None:
        """A message of a participant, if it is up."""
        if member.down:
            return
        conversation, now_ns = member.conversation, self.now_ns()
        message_id = conversation.new_id(payload, now_ns)
        segments = conversation.segments(payload)
        conversation.send(message_id, payload, segments, now_ns)
        digest = sha256(payload).digest()
        name = (member.name, digest, member.sent_times[digest])
        member.sent_times[digest] += 1
        member.sent.append(Sent(name, message_id, len(member.sent), len(member.received)))
        self.settle(member)

    def settle(self, member: Member) -> None:
        """Save, then tell and send: as a channel does."""
        step = member.conversation.take(self.now_ns())
        for table, key, value in step.changes:
            if value is None:
                member.rows.pop((table, key), None)
            else:
                member.rows[table, key] = value
        for event in step.events:
            self._told(member, event)
        for outbound in step.outbound:
            self.after(self.rng.randint(1, 500), self._handing_over(member, outbound))
        due = member.conversation.next_tick()
        if due is not None:
            wake_ms = max(self.now_ms, -(-due // 1_000_000) - START_MS)
            if wake_ms != member.wake_ms:
                member.wake_ms = wake_ms
                self.after(wake_ms - self.now_ms, self._waking(member, member.life, wake_ms))

    def crash(self, member: Member, for_ms: int) -> None:
        """Take a participant down; it comes back from what it has saved."""
        if not member.down:
            member.down = True
            member.life += 1
            self.crashes += 1
            self.after(for_ms, lambda: self._come_back(member))

    def part(self, for_ms: int) -> None:
        """Nothing gets from one side to the other for a while."""
        for member in self.members:
            member.side = self.rng.randrange(2)
        self.after(for_ms, self._join)

    def _join(self) -> None:
        for member in self.members:
            member.side = 0

    def _come_back(self, member: Member) -> None:
        rows = [Row(table, key, value) for (table, key), value in member.rows.items()]
        self.rng.shuffle(rows)
        member.conversation = self._open(member.name, rows)
        member.down = False
        member.wake_ms = -1
        member.missing = MissingMessages(10.0)
        self.settle(member)

    def _told(self, member: Member, event: ChannelEvent) -> None:
        match event:
            case MessageReceived(payload, sender):
                digest = sha256(payload).digest()
                member.received.append((sender, digest, member.times[sender, digest]))
                member.times[sender, digest] += 1
            case MessageAcknowledged(message_id, info) if info.complete:
                member.finals.setdefault(message_id, []).append("first")
            case SendingMessageIrrecoverableError(message_id):
                member.finals.setdefault(message_id, []).append("first")
            case (
                ReliableMessageDelivered(message_id)
                | ReliableMessageSendError(message_id)
                | ReliableMessageDeliveryError(message_id)
            ):
                member.finals.setdefault(message_id, []).append(event.name)
            case IrretrievableMessage():
                member.irretrievable.append(event)
            case _:
                pass

    # What happens by itself

    def _waking(self, member: Member, life: int, wake_ms: int) -> Callable[[], None]:
        def wake() -> None:
            if member.life == life and member.wake_ms == wake_ms and not member.down:
                member.wake_ms = -1
                member.conversation.tick(self.now_ns())
                self.settle(member)

        return wake

    def _handing_over(self, member: Member, outbound: Outbound) -> Callable[[], None]:
        life = member.life

        def hand_over() -> None:
            if member.life != life:
                return  # it was never sent
            member.conversation.sending(outbound.sds_id)
            self.transmissions[outbound.kind.name] += 1
            if self.rng.random() < self.weather.not_taken:
                member.conversation.not_sent(outbound.sds_id, self.now_ns())
            else:
                hint = sha256(outbound.data).digest()
                self._broadcast(member, outbound.sds_id, outbound.data, hint)
                member.conversation.sent(outbound.sds_id, self.now_ns(), hint)
            self.settle(member)

        return hand_over

    def _broadcast(self, sender: Member, sds_id: str, data: bytes, hint: bytes) -> None:
        self._store[hint] = data
        self._by_id[sds_id] = hint
        for member in self.members:
            if member is sender or member.side != sender.side or self.rng.random() < self.weather.loss:
                continue
            for _ in range(1 + (self.rng.random() < self.weather.twice)):
                self.after(self.rng.randint(*self.weather.delay_ms), self._arriving(member, data, hint))

    def _arriving(self, member: Member, data: bytes, hint: bytes) -> Callable[[], None]:
        def arrive() -> None:
            if not member.down:
                member.conversation.receive(data, self.now_ns(), hint)
                self.settle(member)

        return arrive

    def _retrieval(self, member: Member) -> Callable[[], None]:
        def retrieve() -> None:
            self.after(10 * SECOND_MS, retrieve)
            if member.down or not self.weather.store or member.side:
                return
            missing, now = member.conversation.missing(), self.now_ms / SECOND_MS
            sought = member.missing.beyond_hints(missing)
            hints = member.missing.due(missing, now)
            if member.search.due(sought, now):
                hints += [self._by_id[message_id] for message_id in sought if message_id in self._by_id]
                member.search.done(now, found=True)
            for hint in hints:
                if hint in self._store and self.rng.random() >= self.weather.loss:
                    arrive = self._arriving(member, self._store[hint], hint)
                    self.after(self.rng.randint(*self.weather.delay_ms), arrive)

        return retrieve


def prove(net: ChannelNet, *, at_least: int) -> None:
    """Everybody has everything once, in an order that respects causality; senders know of each message."""
    everything = {one.name for member in net.members for one in member.sent}
    assert len(everything) >= at_least
    sends = {one.name: one for member in net.members for one in member.sent}
    by_name = {member.name: member for member in net.members}
    logs = {frozenset(member.conversation.sds.log(1 << 20)) for member in net.members}
    assert len(logs) == 1
    for member in net.members:
        assert member.irretrievable == []
        assert len(member.received) == len(set(member.received))
        assert set(member.received) == everything - {one.name for one in member.sent}
        _prove_causal(member, sends, by_name)
        finals = {one.message_id: member.finals.get(one.message_id, []) for one in member.sent}
        assert all(len(each) == 2 and "first" in each for each in finals.values()), finals
        assert set(member.finals) == set(finals)
        sizes = member.conversation.reassembler.sizes
        assert (sizes.reassemblies, sizes.held_bytes) == (0, 0)


def _prove_causal(member: Member, sends: dict[Name, Sent], by_name: dict[str, Member]) -> None:
    """Whatever a sender had sent or received before a message, is here before the message."""
    known = {one.name for one in member.sent}
    sent_seen: Counter[str] = Counter()
    received_seen: Counter[str] = Counter()
    for name in member.received:
        sender, one = by_name[name[0]], sends[name]
        assert all(each.name in known for each in sender.sent[sent_seen[sender.name] : one.sent_before])
        assert known.issuperset(sender.received[received_seen[sender.name] : one.received_before])
        sent_seen[sender.name], received_seen[sender.name] = one.sent_before, one.received_before
        known.add(name)
