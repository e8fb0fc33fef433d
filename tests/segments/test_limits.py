"""MESSAGE-SEGMENTATION-AND-RECONSTRUCTION, Denial of Service: whatever comes, memory is bounded."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import InvalidInput
from pywaku.segments import (
    GivenUp,
    PayloadIrretrievable,
    PayloadReceived,
    Reassembler,
    ReassemblyLimits,
    Refusal,
    SegmentRefused,
    entire_message_hash,
)
from pywaku.wire.segments import Segment
from tests.support.segmented import SIZE, WITH_PARITY, Receiver, payload_of, segments_of, with_parity

HELD = SIZE + 256
"""What a full segment counts for."""


def firsts(count: int) -> Iterator[Segment]:
    """First segments of as many payloads of three."""
    return (segments_of(payload_of(3 * SIZE, salt=number))[0] for number in range(count))


# Timeouts


def test_incomplete_reconstructions_are_given_up_after_a_timeout_and_reported() -> None:
    receiver = Receiver(ReassemblyLimits(timeout_s=60))
    segments = segments_of(payload_of(10 * SIZE), WITH_PARITY)
    receiver.give_all([segments[0], segments[3], segments[11]], "bob")
    assert receiver.tick(59.9) == []
    assert receiver.tick(60) == [
        PayloadIrretrievable(
            "bob",
            segments[0].entire_message_hash,
            data_segment_count=10,
            received=3,
            missing=7,
            missing_data=(1, 2, 4, 5, 6, 7, 8, 9),
            reason=GivenUp.TIMEOUT,
        )
    ]
    assert receiver.reassembler.sizes[:2] == (0, 0)
    assert receiver.reassembler.counters.timed_out == 1


def test_each_segment_extends_the_time_for_large_payloads_take_many_epochs() -> None:
    receiver = Receiver(ReassemblyLimits(timeout_s=60))
    segments = segments_of(payload_of(5 * SIZE))
    for number, segment in enumerate(segments):
        assert receiver.tick(number * 59.0) == []
        receiver.give(segment)
    assert len(receiver.payloads) == 1


def test_segments_that_come_after_the_timeout_are_dropped_and_not_reported_again() -> None:
    receiver = Receiver(ReassemblyLimits(timeout_s=60))
    segments = segments_of(payload_of(5 * SIZE))
    receiver.give_all(segments[:2])
    receiver.tick(60)
    assert receiver.give_all(segments[2:]) == []
    assert receiver.tick(1e9) == []
    assert receiver.reassembler.counters.late == 3


def test_next_tick_says_when_the_first_timeout_is() -> None:
    receiver = Receiver(ReassemblyLimits(timeout_s=60))
    assert receiver.reassembler.next_tick() == math.inf
    one, two = firsts(2)
    receiver.give(one)
    receiver.now = 5.0
    receiver.give(two)
    assert receiver.reassembler.next_tick() == 60.0
    receiver.give(replace(one, index=1))
    assert receiver.reassembler.next_tick() == 65.0
    assert len(receiver.tick(65.0)) == 2
    assert receiver.reassembler.next_tick() == math.inf


def test_a_restart_starts_timeouts_anew() -> None:
    """Nothing could arrive meanwhile; the clock may be another one."""
    receiver = Receiver(ReassemblyLimits(timeout_s=60))
    segments = segments_of(payload_of(5 * SIZE))
    receiver.give_all(segments[:4])
    receiver.now = 1000.0
    receiver.restart()
    assert receiver.tick(1059.0) == []
    receiver.give(segments[4])
    assert len(receiver.payloads) == 1


# Bounds


def test_concurrent_reconstructions_of_a_sender_are_limited() -> None:
    receiver = Receiver(ReassemblyLimits(max_reassemblies_per_sender=3))
    receiver.give_all(segments_of(payload_of(2 * SIZE, salt=99))[:1], "bob")
    events = receiver.give_all(firsts(5))
    assert [event.reason for event in events if isinstance(event, PayloadIrretrievable)] == [
        GivenUp.SENDER_LIMIT
    ] * 2
    oldest = [segment.entire_message_hash for segment in firsts(2)]
    assert [
        event.entire_message_hash for event in events if isinstance(event, PayloadIrretrievable)
    ] == oldest
    assert receiver.reassembler.sizes.reassemblies == 4
    assert receiver.reassembler.sizes.senders == 2


def test_bytes_of_a_sender_are_limited() -> None:
    receiver = Receiver(ReassemblyLimits(max_bytes_per_sender=3 * HELD))
    events = receiver.give_all(firsts(4))
    assert [type(event) for event in events] == [PayloadIrretrievable]
    assert receiver.reassembler.sizes.held_bytes == 3 * HELD
    assert receiver.give_all(firsts(1), "bob") == []


def test_concurrent_reconstructions_in_total_are_limited_and_who_has_most_loses_the_oldest() -> None:
    receiver = Receiver(ReassemblyLimits(max_reassemblies=4))
    quiet = segments_of(payload_of(2 * SIZE, salt=99))
    receiver.give(quiet[0], "quiet")
    events = receiver.give_all(firsts(20), "greedy")
    assert {event.sender for event in events if isinstance(event, PayloadIrretrievable)} == {"greedy"}
    assert {event.reason for event in events if isinstance(event, PayloadIrretrievable)} == {
        GivenUp.TOTAL_LIMIT
    }
    assert receiver.reassembler.sizes.reassemblies == 4
    receiver.give(quiet[1], "quiet")
    assert receiver.payloads == [payload_of(2 * SIZE, salt=99)]


def test_with_many_names_who_has_waited_longest_goes_first() -> None:
    receiver = Receiver(ReassemblyLimits(max_reassemblies=4))
    for number, segment in enumerate(firsts(6)):
        receiver.now += 1.0
        receiver.give(segment, f"name {number}")
    assert [event.sender for event in receiver.events if isinstance(event, PayloadIrretrievable)] == [
        "name 0",
        "name 1",
    ]


def test_bytes_in_total_are_limited_and_who_holds_most_loses_the_oldest() -> None:
    receiver = Receiver(ReassemblyLimits(max_bytes=5 * HELD))
    receiver.give_all(firsts(2), "quiet")
    events = receiver.give_all(firsts(5), "greedy")
    assert [event.sender for event in events if isinstance(event, PayloadIrretrievable)] == ["greedy"] * 2
    assert receiver.reassembler.sizes.held_bytes == 5 * HELD


def test_a_payload_that_alone_exceeds_the_bytes_of_a_sender_is_given_up() -> None:
    receiver = Receiver(ReassemblyLimits(max_bytes_per_sender=5 * HELD))
    events = receiver.give_all(segments_of(payload_of(20 * SIZE)))
    assert [event.missing for event in events if isinstance(event, PayloadIrretrievable)] == [14]
    assert len(events) == 1
    assert receiver.reassembler.sizes[:2] == (0, 0)


def test_what_completes_is_delivered_also_where_it_would_exceed_a_bound() -> None:
    receiver = Receiver(ReassemblyLimits(max_bytes_per_sender=3 * HELD))
    receiver.give_all(segments_of(payload_of(4 * SIZE)))
    assert len(receiver.payloads) == 1


def test_empty_segments_count_too() -> None:
    receiver = Receiver(ReassemblyLimits(max_bytes=2560))
    for number in range(254):
        receiver.give(Segment(bytes(32), number, 255, b""))
        assert receiver.reassembler.sizes.held_bytes <= 2560


def test_what_is_remembered_is_limited_and_the_oldest_goes_first() -> None:
    receiver = Receiver(ReassemblyLimits(max_remembered_segments=10))
    for number in range(30):
        receiver.give_all(segments_of(b"%d" % number))
    assert receiver.reassembler.sizes.remembered_segments == 10
    assert len(receiver.store.sendings) == 10
    assert receiver.reassembler.counters.forgotten == 20
    assert len(receiver.reassembler._sendings) == 10
    receiver.give_all(segments_of(payload_of(20 * SIZE)))  # more than may be remembered
    assert receiver.reassembler.sizes.remembered_segments == 0
    assert receiver.store.sendings == {}
    assert len(receiver.payloads) == 31


def test_lower_limits_apply_to_what_was_stored_under_higher_ones() -> None:
    receiver = Receiver()
    receiver.give_all(firsts(6))
    receiver.give_all(segments_of(payload_of(100)))
    receiver.limits = ReassemblyLimits(max_reassemblies_per_sender=2, max_remembered_segments=1)
    receiver.restart()
    assert receiver.reassembler.next_tick() <= 0.0
    assert len(receiver.tick(0.0)) == 4
    assert receiver.reassembler.sizes.reassemblies == 2
    assert receiver.reassembler.sizes.remembered_segments <= 1
    assert receiver.reassembler.next_tick() > 0.0


@pytest.mark.parametrize("name", list(ReassemblyLimits.__slots__))
def test_limits_that_cannot_be_meant(name: str) -> None:
    options: dict[str, Any] = {name: 0}
    with pytest.raises(InvalidInput, match=f"{name} is above 0, not 0"):
        ReassemblyLimits(**options)


# Hostile segments


def refused(receiver: Receiver, segment: Segment, sender: str = "alice") -> Refusal:
    """Why a segment is dropped, which it must be without a trace."""
    before = receiver.reassembler.sizes
    (event,) = receiver.give(segment, sender, "an id")
    assert isinstance(event, SegmentRefused)
    assert (event.sender, event.segment_id) == (sender, "an id")
    assert receiver.reassembler.sizes == before
    return event.reason


@pytest.mark.parametrize(
    "segment",
    [
        Segment(bytes(31), 0, 1, b"x"),
        Segment(bytes(32), 0, 0, b"x"),
        Segment(bytes(32), 3, 3, b"x"),
        Segment(bytes(32), -1, 3, b"x"),
        Segment(bytes(32), 0, 256, b"x"),
        Segment(bytes(32), 0, 200, b"x", 56),
        Segment(bytes(32), 0, 3, b"x", 0, is_parity=True),
        Segment(bytes(32), 2, 3, b"x", 2, is_parity=True),
    ],
)
def test_must_validate_each_segment(segment: Segment) -> None:
    assert refused(Receiver(), segment) is Refusal.INVALID


def test_a_segment_that_is_too_large_is_dropped() -> None:
    receiver = Receiver(ReassemblyLimits(max_segment_bytes=10))
    assert refused(receiver, Segment(bytes(32), 0, 2, bytes(11))) is Refusal.OVERSIZE
    assert receiver.give(Segment(bytes(32), 0, 2, bytes(10))) == []


def test_a_name_too_long_to_remember_is_refused() -> None:
    assert refused(Receiver(), segments_of(b"x")[0], "a" * 1025) is Refusal.INVALID
    receiver = Receiver()
    receiver.give(segments_of(b"x")[0], "a" * 1024)
    assert receiver.payloads == [b"x"]


def test_a_conflicting_segment_for_a_place_that_is_taken_is_dropped() -> None:
    receiver = Receiver()
    segments = segments_of(payload_of(3 * SIZE), WITH_PARITY)
    receiver.give_all(segments[:2])
    assert refused(receiver, replace(segments[1], payload=b"something else")) is Refusal.CONFLICT
    receiver.give(segments[2])
    assert receiver.payloads == [payload_of(3 * SIZE)]


def test_other_counts_for_a_hash_are_another_payload_and_harm_nobody() -> None:
    receiver = Receiver(ReassemblyLimits(timeout_s=60))
    segments = segments_of(payload_of(3 * SIZE))
    for count in (2, 4, 200):
        receiver.give(replace(segments[0], data_segment_count=count))
    receiver.give(replace(segments[0], parity_segment_count=2))
    receiver.give_all(segments)
    assert receiver.payloads == [payload_of(3 * SIZE)]
    assert len(receiver.tick(60)) == 4


def test_parity_of_another_length_is_dropped() -> None:
    segments = segments_of(payload_of(6 * SIZE), with_parity(0.5))
    receiver = Receiver()
    receiver.give_all([segments[0], segments[6]])
    for wrong in (b"", b"short", bytes(SIZE + 64)):
        assert refused(receiver, replace(segments[7], payload=wrong)) is Refusal.UNFITTING
    assert refused(receiver, replace(segments[1], payload=bytes(SIZE + 1))) is Refusal.UNFITTING
    receiver.give_all([segments[2], segments[4], segments[7], segments[8]])
    assert receiver.payloads == [payload_of(6 * SIZE)]


def test_parity_shorter_than_the_data_is_dropped() -> None:
    segments = segments_of(payload_of(3 * SIZE), WITH_PARITY)
    receiver = Receiver()
    receiver.give(segments[0])
    assert refused(receiver, replace(segments[3], payload=b"short")) is Refusal.UNFITTING


def test_parity_that_is_not_leopard_ff8_is_dropped_and_the_data_suffices() -> None:
    payload = payload_of(225 * SIZE)
    segments = [replace(segment, parity_segment_count=29) for segment in segments_of(payload)]
    receiver = Receiver()
    receiver.give_all(segments[1:])
    parity = replace(segments[0], is_parity=True)
    assert refused(receiver, parity) is Refusal.PARITY_UNUSABLE
    receiver.give(segments[0])
    assert receiver.payloads == [payload]


def test_parity_alone_of_a_payload_in_one_segment() -> None:
    payload = b"hello\0"
    copy = Segment(entire_message_hash(payload), 1, 1, payload.ljust(64, b"\0"), 2, is_parity=True)
    receiver = Receiver()
    receiver.give(copy)
    assert receiver.payloads == [payload]


@given(st.integers(0, 2**32))
def test_nothing_crashes_it_and_everything_stays_bounded(seed: int) -> None:
    """Random segments of few hashes, senders and ids, so that they meet and contradict each other."""
    rng = random.Random(seed)
    limits = ReassemblyLimits(
        max_segment_bytes=100,
        max_reassemblies=6,
        max_reassemblies_per_sender=4,
        max_bytes=4000,
        max_bytes_per_sender=2500,
        timeout_s=20,
        max_remembered_segments=12,
        max_trailing_zeros=10,
    )
    receiver = Receiver(limits)
    genuine = [s for n in range(3) for s in segments_of(payload_of(40 * n + 90, n), with_parity(0.5))]
    for _ in range(150):
        segment = rng.choice(genuine)
        if rng.random() < 0.5:
            segment = Segment(
                segment.entire_message_hash,
                rng.randrange(-1, 5),
                rng.randrange(0, 5),
                bytes(rng.choice((0, 1, 64, 99, 101))),
                rng.randrange(0, 4),
                rng.random() < 0.5,
            )
        receiver.give(segment, rng.choice("abc"), rng.choice((None, "1", "2", "3")))
        sizes = receiver.reassembler.sizes
        assert sizes.reassemblies <= 6
        assert sizes.held_bytes <= 4000
        assert sizes.remembered_segments <= 12
        assert sum(len(kept) for kept in receiver.store.segments.values()) <= 12 + 4000 // 256
        if rng.random() < 0.1:
            receiver.tick(receiver.now + rng.choice((1, 10, 25)))
        if rng.random() < 0.05:
            receiver.restart()
    genuine_payloads = {payload_of(40 * n + 90, n) for n in range(3)}
    assert {e.payload for e in receiver.events if isinstance(e, PayloadReceived)} <= genuine_payloads
    receiver.tick(receiver.now + 1000)
    assert receiver.reassembler.sizes[:2] == (0, 0)


def test_many_payloads_leave_a_bounded_memory() -> None:
    reassembler = Reassembler(ReassemblyLimits(max_remembered_segments=100))
    for number in range(2000):
        reassembler.receive(segments_of(b"%d" % number)[0], sender=f"{number}", segment_id="x", now=0.0)
    assert len(reassembler._sendings) == len(reassembler._remembered) == 100
    assert reassembler.sizes.senders == 0
