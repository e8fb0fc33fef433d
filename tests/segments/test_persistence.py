"""Partial reassemblies survive restarts at any step (RELIABLE-CHANNEL-API, Node initialization 3)."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pywaku.segments import (
    PayloadIrretrievable,
    PayloadReceived,
    Reassembler,
    ReassemblyLimits,
    SegmentKept,
    SendingOpened,
    SendingSettled,
)
from tests.support.segmented import SIZE, WITH_PARITY, Receiver, payload_of, segments_of, with_parity


def test_a_partially_reassembled_payload_survives_a_restart() -> None:
    receiver = Receiver()
    segments = segments_of(payload_of(10 * SIZE), WITH_PARITY)
    for segment in segments[2:]:
        receiver.give(segment)
        receiver.restart()
    assert receiver.payloads == [payload_of(10 * SIZE)]


def test_completion_survives_a_restart() -> None:
    receiver = Receiver()
    segments = segments_of(payload_of(10 * SIZE), WITH_PARITY)
    for number, segment in enumerate(segments[:10]):
        receiver.give(segment, segment_id=f"early {number}")
    receiver.restart()
    assert receiver.give_all(segments[10:]) == []
    for number, segment in enumerate(segments[:10]):
        assert receiver.give(segment, segment_id=f"early {number}") == []
    assert receiver.reassembler.counters.duplicates == 10


def test_what_is_stored_holds_no_payloads_that_are_over() -> None:
    receiver = Receiver(ReassemblyLimits(timeout_s=1))
    segments = segments_of(payload_of(3 * SIZE), WITH_PARITY)
    receiver.give_all(segments)
    receiver.give_all(segments[:2], "bob")
    receiver.tick(1)
    kept = [segment for sending in receiver.store.segments.values() for segment in sending]
    assert len(kept) == 6
    assert all(segment.payload == b"" for segment in kept)


def test_the_segment_that_completes_a_payload_is_stored_without_it() -> None:
    reassembler = Reassembler()
    one, two = segments_of(payload_of(2 * SIZE))
    first = reassembler.receive(one, sender="a", segment_id="1", now=0.0)
    assert [type(change) for change in first.changes] == [SendingOpened, SegmentKept]
    second = reassembler.receive(two, sender="a", segment_id="2", now=0.0)
    assert [type(change) for change in second.changes] == [SegmentKept, SendingSettled]
    assert [change.payload for change in second.changes if isinstance(change, SegmentKept)] == [b""]


def test_a_payload_in_one_segment_takes_two_small_rows() -> None:
    step = Reassembler().receive(segments_of(b"hello")[0], sender="a", segment_id="1", now=0.0)
    opened, kept = step.changes
    assert isinstance(opened, SendingOpened)
    assert opened.settled
    assert isinstance(kept, SegmentKept)
    assert kept.payload == b""
    assert len(kept.segment_key) == 16


def test_numbers_are_not_used_twice_among_what_is_stored() -> None:
    receiver = Receiver()
    for number in range(10):
        receiver.give_all(segments_of(payload_of(2 * SIZE, number))[: 1 + number % 2])
        receiver.restart()
    assert sorted(receiver.store.sendings) == list(range(10))  # the store checks it too


@given(st.integers(0, 2**32))
def test_restarts_at_any_step_change_nothing(seed: int) -> None:
    """Two receivers of the same segments, one of which is restarted all the time, report the same."""
    rng = random.Random(seed)
    steady, restarted = Receiver(), Receiver()
    segments = [
        s for n in range(6) for s in segments_of(payload_of(rng.randint(1, 500), n), with_parity(0.3))
    ]
    arriving = segments * 2
    rng.shuffle(arriving)
    for number, segment in enumerate(arriving):
        sender = rng.choice("ab")
        assert steady.give(segment, sender, f"{number}") == restarted.give(segment, sender, f"{number}")
        restarted.restart()
        restarted.tick(0.0)
        assert steady.reassembler.sizes == restarted.reassembler.sizes
        assert steady.store.sendings == restarted.store.sendings


class Lossy(RuleBasedStateMachine):
    """Payloads are sent, their segments arrive in any order, some twice, some never; there are restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.receiver = Receiver(ReassemblyLimits(timeout_s=100))
        self.on_the_way: list[tuple[str, int, int]] = []
        self.sent: list[tuple[str, bytes, int]] = []
        self.arrived: dict[int, set[int]] = {}

    @rule(sender=st.sampled_from("ab"), size=st.integers(1, 8 * SIZE), again=st.booleans())
    def send(self, sender: str, size: int, again: bool) -> None:
        number = len(self.sent)
        mine = [payload for who, payload, _ in self.sent if who == sender]
        payload = mine[-1] if again and mine else payload_of(size, salt=number)
        count = len(segments_of(payload, with_parity(0.5)))
        self.sent.append((sender, payload, count))
        self.arrived[number] = set()
        self.on_the_way += [(sender, number, position) for position in range(count)]

    @precondition(lambda self: self.on_the_way)
    @rule(data=st.data(), keep=st.booleans())
    def arrive(self, data: st.DataObject, keep: bool) -> None:
        index = data.draw(st.integers(0, len(self.on_the_way) - 1))
        sender, number, position = self.on_the_way[index]
        if not keep:
            del self.on_the_way[index]
        segment = segments_of(self.sent[number][1], with_parity(0.5))[position]
        self.receiver.give(segment, sender, f"{number} {position}")
        self.arrived[number].add(position)

    @rule()
    def restart(self) -> None:
        self.receiver.restart()

    @rule(seconds=st.integers(1, 60))
    def wait(self, seconds: int) -> None:
        self.receiver.tick(self.receiver.now + seconds)

    @invariant()
    def nothing_is_delivered_that_was_not_sent_or_more_often(self) -> None:
        sent = [(sender, payload) for sender, payload, _ in self.sent]
        for event in self.receiver.events:
            assert isinstance(event, PayloadReceived | PayloadIrretrievable)
            if isinstance(event, PayloadReceived):
                sent.remove((event.sender, event.payload))

    def teardown(self) -> None:
        """What is left arrives: as many payloads as were sent are over, one way or the other."""
        random.Random(len(self.sent)).shuffle(self.on_the_way)
        for sender, number, position in self.on_the_way:
            segment = segments_of(self.sent[number][1], with_parity(0.5))[position]
            self.receiver.give(segment, sender, f"{number} {position}")
        self.receiver.tick(self.receiver.now + 1000)
        assert len(self.receiver.events) == len(self.sent)


TestLossy = Lossy.TestCase
