"""MESSAGE-SEGMENTATION-AND-RECONSTRUCTION, Denial of Service: whatever comes, memory is bounded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pywaku.errors import InvalidInput
from pywaku.segments import (
    GivenUp,
    PayloadIrretrievable,
    ReassemblyLimits,
)
from pywaku.wire.segments import Segment
from tests.support.segmented import SIZE, WITH_PARITY, Receiver, payload_of, segments_of

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


def test_who_has_waited_longest_is_who_has_not_advanced() -> None:
    receiver = Receiver(ReassemblyLimits(max_reassemblies_per_sender=2, timeout_s=60))
    one, two, three = firsts(3)
    receiver.give_all([one, two])
    receiver.now = 30.0
    receiver.give(replace(one, index=1))
    assert receiver.reassembler.next_tick() == 60.0  # that of `two`
    (event,) = receiver.give(three)
    assert isinstance(event, PayloadIrretrievable)
    assert event.entire_message_hash == two.entire_message_hash
    assert receiver.reassembler.next_tick() == 90.0


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


def test_a_payload_sent_over_and_over_is_forgotten_too() -> None:
    receiver = Receiver(ReassemblyLimits(max_remembered_segments=10))
    for _ in range(50):
        receiver.give_all(segments_of(b"ok"))
    (sendings,) = receiver.reassembler._sendings.values()
    assert len(sendings.known) == sendings.count == 10
    assert len(receiver.payloads) == 50


@pytest.mark.parametrize("name", list(ReassemblyLimits.__slots__))
def test_limits_that_cannot_be_meant(name: str) -> None:
    options: dict[str, Any] = {name: 0}
    with pytest.raises(InvalidInput, match=f"{name} is above 0, not 0"):
        ReassemblyLimits(**options)
