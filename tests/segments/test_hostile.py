"""MESSAGE-SEGMENTATION-AND-RECONSTRUCTION, Validation: hostile segments are dropped and harm nobody."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.segments import (
    PayloadReceived,
    Reassembler,
    ReassemblyLimits,
    Refusal,
    SegmentRefused,
    entire_message_hash,
)
from pywaku.wire.segments import Segment
from tests.support.segmented import SIZE, WITH_PARITY, Receiver, payload_of, segments_of, with_parity


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
