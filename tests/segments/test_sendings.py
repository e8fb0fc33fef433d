"""The same payload sent again is delivered again, although its segments are the same."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from pywaku.segments import PayloadIrretrievable, PayloadReceived, ReassemblyLimits
from tests.support.segmented import SIZE, WITH_PARITY, Receiver, payload_of, segments_of, with_parity

PAYLOAD = payload_of(3 * SIZE)
SEGMENTS = segments_of(PAYLOAD, WITH_PARITY)


def test_a_single_segment_sent_twice_is_delivered_twice() -> None:
    receiver = Receiver()
    receiver.give_all(segments_of(b"ok") * 2)
    assert receiver.payloads == [b"ok", b"ok"]


def test_one_after_the_other() -> None:
    receiver = Receiver()
    for count in range(1, 6):
        receiver.give_all(SEGMENTS)
        assert receiver.payloads == [PAYLOAD] * count
    assert receiver.reassembler.sizes.reassemblies == 0


def test_in_parallel() -> None:
    receiver = Receiver()
    for segment in SEGMENTS:
        receiver.give(segment)
        receiver.give(segment)
    assert receiver.payloads == [PAYLOAD, PAYLOAD]
    assert receiver.reassembler.sizes.reassemblies == 0


@given(st.integers(1, 5), st.integers(0, 2**32), st.booleans())
def test_everything_that_arrives_in_whatever_order_is_delivered_as_often_as_it_was_sent(
    times: int, seed: int, restarts: bool
) -> None:
    rng = random.Random(seed)
    arriving = SEGMENTS * times
    rng.shuffle(arriving)
    receiver = Receiver()
    for segment in arriving:
        receiver.give(segment)
        if restarts and rng.random() < 0.3:
            receiver.restart()
    assert receiver.payloads == [PAYLOAD] * times
    assert receiver.reassembler.sizes.reassemblies == 0


@given(st.data())
def test_in_the_order_of_sending_two_may_lose_together_what_parity_makes_up_for(draw: st.DataObject) -> None:
    """As SDS delivers: one sender's segments in their order, some of them given up as lost."""
    segments = segments_of(payload_of(6 * SIZE), with_parity(0.5))
    receiver = Receiver()
    lost_first = draw.draw(st.sets(st.integers(0, 8), max_size=3))
    lost_then = draw.draw(st.sets(st.integers(0, 8), max_size=3 - len(lost_first)))
    for lost in (lost_first, lost_then):
        receiver.give_all(segment for position, segment in enumerate(segments) if position not in lost)
    assert len(receiver.payloads) == 2


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7)), max_size=60))
def test_never_more_often_than_it_was_sent(arrivals: list[tuple[int, int]]) -> None:
    """Whatever is lost, repeated and reordered."""
    receiver = Receiver()
    for sending, position in arrivals:
        receiver.give(SEGMENTS[position % 4], segment_id=f"{sending} {position % 4}")
    seen = {(sending, position % 4) for sending, position in arrivals}
    assert len(receiver.payloads) <= len({sending for sending, _ in seen})
    assert len(receiver.payloads) <= len(seen) / 3


def test_a_duplicate_of_a_remembered_sending_is_not_another_sending() -> None:
    receiver = Receiver()
    for _ in range(2):
        for number, segment in enumerate(SEGMENTS):
            receiver.give(segment, segment_id=f"first {number}")
    for number, segment in enumerate(SEGMENTS):
        receiver.give(segment, segment_id=f"second {number}")
    assert receiver.payloads == [PAYLOAD, PAYLOAD]


def test_the_same_payload_with_and_without_parity_is_two_payloads() -> None:
    receiver = Receiver()
    receiver.give_all(segments_of(PAYLOAD))
    receiver.give_all(SEGMENTS)
    assert receiver.payloads == [PAYLOAD, PAYLOAD]


def test_what_is_sent_again_after_it_was_given_up_is_delivered() -> None:
    receiver = Receiver(ReassemblyLimits(timeout_s=60))
    receiver.give_all(SEGMENTS[:2])
    (given_up,) = receiver.tick(60)
    assert isinstance(given_up, PayloadIrretrievable)
    receiver.give_all(SEGMENTS)
    assert receiver.payloads == [PAYLOAD]
    assert receiver.give(SEGMENTS[2]) == []  # the rest of the first one


def test_many_sendings_whose_parity_never_comes_cost_no_more_each() -> None:
    receiver = Receiver()
    for _ in range(200):
        receiver.give_all(SEGMENTS[:3])
    assert receiver.payloads == [PAYLOAD] * 200
    (sendings,) = receiver.reassembler._sendings.values()
    assert len(sendings.open_places) == 8
    receiver.restart()
    (sendings,) = receiver.reassembler._sendings.values()
    assert len(sendings.open_places) == 8
    assert [type(event) for event in receiver.give_all(SEGMENTS[:3])] == [PayloadReceived]
