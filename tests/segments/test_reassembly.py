"""MESSAGE-SEGMENTATION-AND-RECONSTRUCTION, Receiving: payloads out of segments in any order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.segments import (
    PayloadInvalid,
    PayloadReceived,
    ReassemblyLimits,
    SegmentationConfig,
    entire_message_hash,
    reassembly,
)
from tests.support.segmented import (
    PLAIN,
    SIZE,
    WITH_PARITY,
    Receiver,
    payload_of,
    segments_of,
    with_parity,
)


def test_a_single_segment_is_delivered_at_once() -> None:
    receiver = Receiver()
    (segment,) = segments_of(b"hello")
    assert receiver.give(segment, "bob") == [
        PayloadReceived("bob", entire_message_hash(b"hello"), b"hello", data_segment_count=1, recovered=0)
    ]
    assert receiver.reassembler.sizes.reassemblies == 0


def test_must_cache_segments_until_data_segment_count_distinct_ones_are_there() -> None:
    receiver = Receiver()
    *first, last = segments_of(payload_of(5 * SIZE))
    assert receiver.give_all(first) == []
    assert receiver.reassembler.sizes.reassemblies == 1
    assert receiver.reassembler.sizes.held_bytes >= 4 * SIZE
    assert [type(event) for event in receiver.give(last)] == [PayloadReceived]
    assert receiver.reassembler.sizes[:2] == (0, 0)


@given(st.permutations(range(9)))
def test_segment_order_must_be_preserved_whatever_order_they_come_in(order: list[int]) -> None:
    payload = payload_of(9 * SIZE - 5)
    receiver = Receiver()
    segments = segments_of(payload)
    receiver.give_all(segments[position] for position in order)
    assert receiver.payloads == [payload]


@given(st.data())
def test_any_segments_that_are_enough_recover_the_payload(draw: st.DataObject) -> None:
    """Any subset of at least `data_segment_count` segments, data and parity combined, in any order."""
    size = draw.draw(st.integers(SIZE + 1, 24 * SIZE), "size")
    config = with_parity(draw.draw(st.sampled_from([0.125, 0.3, 1.0]), "rate"))
    payload = random.Random(size).randbytes(size)
    segments = segments_of(payload, config)
    count = segments[0].data_segment_count
    order = draw.draw(st.permutations(range(len(segments))), "order")
    left = order[: draw.draw(st.integers(count, len(segments)), "how many")]
    receiver = Receiver()
    events = receiver.give_all(segments[position] for position in left[:count])
    (event,) = events
    assert isinstance(event, PayloadReceived)
    assert event.payload == payload
    assert event.recovered == count - sum(position < count for position in left[:count])
    assert receiver.give_all(segments[position] for position in left[count:]) == []
    assert receiver.reassembler.counters.late == len(left) - count


@given(st.binary(max_size=SIZE), st.integers(1, SIZE), st.integers(0, SIZE))
def test_a_last_segment_that_was_recovered_ends_where_it_did(start: bytes, size: int, zeros: int) -> None:
    """Also where it ends in zeros of its own, or is nothing but zeros."""
    last = (start + bytes(zeros))[:size].ljust(1, b"\0")
    payload = payload_of(3 * SIZE) + last
    segments = segments_of(payload, WITH_PARITY)
    receiver = Receiver()
    receiver.give_all([*segments[:3], segments[4]])
    assert receiver.payloads == [payload]


def test_a_payload_of_zeros_is_recovered() -> None:
    payload = bytes(10 * SIZE - 1)
    segments = segments_of(payload, with_parity(0.5))
    receiver = Receiver()
    receiver.give_all(segments[5:])
    assert receiver.payloads == [payload]


def test_where_a_recovered_end_is_not_found_within_the_limit_the_last_segment_is_waited_for() -> None:
    payload = payload_of(2 * SIZE) + b"end".ljust(40, b"\0")
    *first, last, parity = segments_of(payload, WITH_PARITY)
    receiver = Receiver(ReassemblyLimits(max_trailing_zeros=36))
    assert receiver.give_all([*first, parity]) == []
    assert [event.recovered for event in receiver.give(last) if isinstance(event, PayloadReceived)] == [0]
    assert receiver.payloads == [payload]
    exactly = Receiver(ReassemblyLimits(max_trailing_zeros=37))
    exactly.give_all([*first, parity])
    assert exactly.payloads == [payload]


def test_while_the_last_segment_is_waited_for_other_parity_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payload = payload_of(2 * SIZE) + b"end".ljust(40, b"\0")
    segments = segments_of(payload, with_parity(1))
    receiver = Receiver(ReassemblyLimits(max_trailing_zeros=1))
    assert receiver.give_all([segments[0], *segments[3:5]]) == []
    with monkeypatch.context() as patched:  # trying again would cost as much as the first time
        patched.setattr(reassembly, "join", None)
        assert receiver.give(segments[5]) == []
    receiver.restart()
    assert receiver.give(segments[2]) != []
    assert receiver.payloads == [payload]


def test_must_verify_the_hash_and_discard_on_mismatch() -> None:
    one, two = segments_of(payload_of(2 * SIZE)), segments_of(payload_of(2 * SIZE, salt=1))
    forged = type(one[0])(one[0].entire_message_hash, 1, 2, two[1].payload)
    receiver = Receiver()
    assert receiver.give_all([one[0], forged]) == [PayloadInvalid("alice", one[0].entire_message_hash, 2)]
    assert receiver.reassembler.sizes[:2] == (0, 0)
    assert receiver.payloads == []
    receiver.give_all(one)  # sent anew, it arrives
    assert receiver.payloads == [payload_of(2 * SIZE)]


def test_a_single_segment_whose_hash_is_wrong_is_discarded() -> None:
    (segment,) = segments_of(b"hello")
    forged = type(segment)(segment.entire_message_hash, 0, 1, b"hullo")
    receiver = Receiver()
    assert receiver.give(forged) == [PayloadInvalid("alice", segment.entire_message_hash, 1)]


def test_duplicates_are_saved_once() -> None:
    receiver = Receiver()
    segments = segments_of(payload_of(3 * SIZE), WITH_PARITY)
    for _ in range(3):
        for number, segment in enumerate(segments):
            receiver.give(segment, segment_id=f"id {number}")
    assert receiver.payloads == [payload_of(3 * SIZE)]
    assert receiver.reassembler.counters.duplicates == 8
    assert sum(len(kept) for kept in receiver.store.segments.values()) == 4


def test_completion_is_remembered_for_segments_that_come_late() -> None:
    receiver = Receiver()
    segments = segments_of(payload_of(10 * SIZE), WITH_PARITY)
    receiver.give_all(segments[:10])
    assert receiver.give_all(segments[10:]) == []
    assert receiver.reassembler.counters.late == 2
    assert receiver.reassembler.sizes.reassemblies == 0


@given(st.integers(0, 2**32), st.integers(2, 6))
def test_interleaved_payloads_of_several_senders_do_not_mix(seed: int, count: int) -> None:
    rng = random.Random(seed)
    sent = [(f"sender {n % 3}", payload_of(rng.randint(1, 8 * SIZE), salt=n)) for n in range(count)]
    arriving = [(sender, segment) for sender, p in sent for segment in segments_of(p, WITH_PARITY)]
    rng.shuffle(arriving)
    receiver = Receiver()
    for sender, segment in arriving:
        receiver.give(segment, sender)
    received = [(e.sender, e.payload) for e in receiver.events if isinstance(e, PayloadReceived)]
    assert sorted(received) == sorted(sent)
    assert len(receiver.events) == count


def test_segments_of_one_payload_by_different_senders_are_different_payloads() -> None:
    receiver = Receiver()
    one, two = segments_of(payload_of(2 * SIZE))
    receiver.give(one, "alice")
    assert receiver.give(two, "bob") == []
    assert receiver.give(two, "alice") != []
    assert [event.sender for event in receiver.events if isinstance(event, PayloadReceived)] == ["alice"]


@pytest.mark.parametrize("config", [SegmentationConfig(), SegmentationConfig(enable_reed_solomon=True)])
def test_a_payload_as_large_as_possible(config: SegmentationConfig) -> None:
    payload = random.Random(1).randbytes(config.segment_size_bytes * 200 - 3)
    segments = segments_of(payload, config)
    random.Random(2).shuffle(segments)
    receiver = Receiver()
    receiver.give_all(segments)
    assert receiver.payloads == [payload]


def test_segments_of_varying_length_without_parity_are_concatenated() -> None:
    """The specification says "up to `segmentSize`" of every data segment."""
    payload = b"abcdef"
    make = type(segments_of(payload)[0])
    key = entire_message_hash(payload)
    receiver = Receiver()
    receiver.give_all([make(key, 2, 3, b"f"), make(key, 0, 3, b"abcd"), make(key, 1, 3, b"e")])
    assert receiver.payloads == [payload]


def test_counters_tell_what_has_happened() -> None:
    receiver = Receiver()
    segments = segments_of(payload_of(10 * SIZE), WITH_PARITY)
    receiver.give_all(segments[2:])
    receiver.give_all(segments_of(b"small", PLAIN))
    counters = receiver.reassembler.counters
    assert (counters.segments, counters.payloads) == (11, 2)
    assert (counters.recovered_payloads, counters.recovered_segments) == (1, 2)
