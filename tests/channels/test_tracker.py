"""RELIABLE-CHANNEL-API, Event lifecycle: what is told of a message, segment by segment."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.channels.events import (
    ChannelEvent,
    ChunkInfo,
    MessageAcknowledged,
    MessagePossiblyAcknowledged,
    MessageSent,
    ReliableMessageDelivered,
    ReliableMessageDeliveryError,
    ReliableMessageSendError,
    ReliableMessageSent,
    SendingMessage,
    SendingMessageIrrecoverableError,
)
from pywaku.channels.tracker import Tracker
from pywaku.errors import DecodeError
from tests.support.damage import damaged

FINAL = (ReliableMessageDelivered, ReliableMessageSendError, ReliableMessageDeliveryError)
PROGRESS = SendingMessage | MessageSent | MessagePossiblyAcknowledged | MessageAcknowledged
STEPS = ("sending", "sent", "possibly", "bob", "carol", "not-acknowledged", "failed", "restart")


def tracking(segments: int, data: int | None = None) -> Tracker:
    """A message in so many segments, of which `data` are enough."""
    tracker = Tracker()
    tracker.add("m", [f"s{number}" for number in range(segments)], segments if data is None else data)
    return tracker


def restarted(tracker: Tracker, saved: dict[str, bytes]) -> Tracker:
    """What another process makes of what was saved."""
    for message_id, row in tracker.take_changes():
        if row is None:
            saved.pop(message_id, None)
        else:
            saved[message_id] = row
    return Tracker(saved.items())


def step(tracker: Tracker, name: str, number: int) -> list[ChannelEvent]:
    """One thing that may happen to a segment."""
    segment = f"s{number}"
    match name:
        case "sending":
            return tracker.sending(segment)
        case "sent":
            return tracker.sent(segment)
        case "possibly":
            return tracker.possibly_acknowledged(segment)
        case "not-acknowledged":
            return tracker.not_acknowledged(segment)
        case "failed":
            return tracker.failed("m", "encryption failed")
        case _:
            return tracker.acknowledged(segment, (name,))


def test_a_message_in_one_chunk_goes_through_the_events_of_both_vocabularies() -> None:
    tracker = tracking(1)
    one = ChunkInfo((0,), 1)
    assert tracker.sending("s0") == [SendingMessage("m", one)]
    assert tracker.sent("s0") == [MessageSent("m", one), ReliableMessageSent("m")]
    assert tracker.possibly_acknowledged("s0") == [MessagePossiblyAcknowledged("m", one)]
    assert tracker.acknowledged("s0", ("bob",)) == [
        MessageAcknowledged("m", one),
        ReliableMessageDelivered("m", ("bob",)),
    ]
    assert tracker.unfinished == ()


def test_chunk_info_has_all_chunks_so_far_in_order() -> None:
    """The progression of the specification: 0, 1, 3, 2, 4."""
    tracker = tracking(5)
    told = [tracker.acknowledged(f"s{number}", ("bob",))[0] for number in (0, 1, 3, 2, 4)]
    assert told == [
        MessageAcknowledged("m", ChunkInfo(chunks, 5))
        for chunks in ((0,), (0, 1), (0, 1, 3), (0, 1, 2, 3), (0, 1, 2, 3, 4))
    ]


def test_sending_may_be_emitted_again_by_retries() -> None:
    tracker = tracking(2)
    first = tracker.sending("s0")
    assert tracker.sending("s0") == first
    assert tracker.sent("s0") == tracker.sent("s0") == [MessageSent("m", ChunkInfo((0,), 2))]


def test_reliable_sent_comes_once_when_all_segments_have_been_handed_over() -> None:
    tracker = tracking(2)
    tracker.sent("s1")
    assert ReliableMessageSent("m") in tracker.sent("s0")
    assert ReliableMessageSent("m") not in tracker.sent("s0")


def test_a_possible_acknowledgement_is_told_once_for_each_chunk() -> None:
    tracker = tracking(2)
    assert len(tracker.possibly_acknowledged("s0")) == 1
    assert tracker.possibly_acknowledged("s0") == []


def test_with_parity_enough_segments_at_one_participant_deliver() -> None:
    tracker = tracking(5, data=3)
    tracker.acknowledged("s0", ("bob",))
    tracker.acknowledged("s4", ("carol",))
    tracker.acknowledged("s2", ("bob",))
    assert tracker.unfinished == ("m",)  # three segments have come, but nobody has three
    assert tracker.acknowledged("s3", ("bob",)) == [
        MessageAcknowledged("m", ChunkInfo((0, 1, 2, 3, 4), 5)),
        ReliableMessageDelivered("m", ("bob", "carol")),
    ]


def test_with_parity_segments_may_fail_as_long_as_enough_are_left() -> None:
    tracker = tracking(4, data=3)
    for number in range(4):
        tracker.sent(f"s{number}")
    assert tracker.not_acknowledged("s0") == []
    error, later = tracker.not_acknowledged("s1")
    assert isinstance(error, SendingMessageIrrecoverableError)
    assert error.chunk_info == ChunkInfo((0, 1), 4)
    assert isinstance(later, ReliableMessageDeliveryError)


def test_with_parity_a_message_ends_when_nothing_more_will_be_heard_of_any_segment() -> None:
    for last_fails in (False, True):
        tracker = tracking(4, data=3)
        tracker.acknowledged("s0", ("bob",))
        tracker.acknowledged("s1", ("carol",))
        if last_fails:
            tracker.acknowledged("s2", ("bob",))
            events = tracker.not_acknowledged("s3")
        else:
            tracker.not_acknowledged("s3")
            events = tracker.acknowledged("s2", ("bob",))
        assert events == [
            MessageAcknowledged("m", ChunkInfo((0, 1, 2, 3), 4)),
            ReliableMessageDelivered("m", ("bob", "carol")),
        ]
        assert tracker.unfinished == ()


def test_a_message_that_never_reached_the_network_has_a_send_error() -> None:
    tracker = tracking(2)
    tracker.sent("s0")
    _, later = tracker.not_acknowledged("s1")
    assert isinstance(later, ReliableMessageSendError)
    assert "handed to the network" in later.error


def test_a_message_that_reached_the_network_has_a_delivery_error() -> None:
    tracker = tracking(2)
    tracker.sent("s0")
    tracker.sent("s1")
    _, later = tracker.not_acknowledged("s1")
    assert isinstance(later, ReliableMessageDeliveryError)
    assert "not acknowledged" in later.error


def test_an_irrecoverable_error_is_final() -> None:
    tracker = tracking(2)
    error, later = tracker.failed("m", "encryption failed")
    assert error == SendingMessageIrrecoverableError("m", ChunkInfo((0, 1), 2), "encryption failed")
    assert later == ReliableMessageSendError("m", "encryption failed")
    assert tracker.unfinished == ()
    for name in STEPS[:-1]:
        assert step(tracker, name, 0) == []


def test_events_of_segments_that_nobody_knows_are_none() -> None:
    tracker = tracking(1)
    for name in STEPS[:-2]:
        assert step(tracker, name, 9) == []
    assert tracker.failed("another", "x") == []
    assert tracker.place_of("s9") is None
    assert tracker.place_of("s0") == ("m", 0)


@given(
    data=st.integers(1, 4),
    parity=st.integers(0, 3),
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 6)), max_size=60),
    end=st.sampled_from(["bob", "not-acknowledged"]),
)
def test_there_is_exactly_one_final_event_in_each_vocabulary(
    data: int, parity: int, steps: list[tuple[str, int]], end: str
) -> None:
    count = data + parity
    tracker, saved = tracking(count, data), dict[str, bytes]()
    told: list[ChannelEvent] = []
    for name, number in [*steps, *((end, number) for number in range(count))]:
        if name == "restart":
            tracker = restarted(tracker, saved)
        else:
            told += step(tracker, name, number)
    assert tracker.unfinished == ()
    restarted(tracker, saved)
    assert saved == {}
    later = [event for event in told if isinstance(event, FINAL)]
    earlier = [
        event
        for event in told
        if isinstance(event, SendingMessageIrrecoverableError)
        or (isinstance(event, MessageAcknowledged) and event.chunk_info.complete)
    ]
    assert len(later) == len(earlier) == 1
    assert told[-2:] == [earlier[0], later[0]]  # and nothing after them
    assert isinstance(later[0], ReliableMessageDelivered) == isinstance(earlier[0], MessageAcknowledged)


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 4)), max_size=60))
def test_chunk_info_never_loses_a_chunk(steps: list[tuple[str, int]]) -> None:
    tracker, saved = tracking(5, 4), dict[str, bytes]()
    last: dict[str, set[int]] = {}
    for name, number in steps:
        if name == "restart":
            tracker = restarted(tracker, saved)
            continue
        for event in step(tracker, name, number):
            if isinstance(
                event, SendingMessage | MessageSent | MessagePossiblyAcknowledged | MessageAcknowledged
            ):
                chunks = event.chunk_info.chunks
                assert list(chunks) == sorted(set(chunks))
                assert set(chunks) >= last.get(event.name, set())
                assert number in chunks
                assert event.chunk_info.total_chunks == 5
                last[event.name] = set(chunks)


def test_messages_stay_in_the_order_in_which_they_were_sent() -> None:
    tracker = Tracker()
    for name in "cab":
        tracker.add(name, [f"{name}0"], 1)
    assert tracker.unfinished == ("c", "a", "b")
    tracker.acknowledged("a0", ("bob",))
    assert tracker.unfinished == ("c", "b")
    again = restarted(tracker, {})
    again.add("aa", ["s"], 1)
    assert again.unfinished == ("c", "b", "aa")
    saved = [(name, row) for name, row in again.take_changes() if row] + [
        ("c", b'[0,["c0"],1,[],[],[],[],[],[],[]]')
    ]
    assert Tracker(saved).unfinished == ("c", "aa")


def test_only_what_changed_is_saved() -> None:
    tracker = tracking(2)
    assert [key for key, _ in tracker.take_changes()] == ["m"]
    tracker.sent("s0")
    assert [key for key, _ in tracker.take_changes()] == ["m"]
    tracker.sent("s0")
    assert tracker.take_changes() == []


@given(st.randoms(use_true_random=False))
def test_a_damaged_row_is_a_decode_error(rng: random.Random) -> None:
    tracker = tracking(3, 2)
    tracker.sent("s1")
    tracker.acknowledged("s2", ("bob",))
    ((_, row),) = tracker.take_changes()
    assert row is not None
    with contextlib.suppress(DecodeError):
        Tracker([("m", damaged(row, b"[1,[2]]", rng))])


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"7",
        b"{}",
        b"[]",
        b"null",
        b'[0,["s"],1,[5],[],[],[],[],[],[]]',
        b'[0,"s",1,[],[],[],[],[],[],[]]',
    ],
)
def test_a_row_of_another_shape_is_a_decode_error(row: bytes) -> None:
    with pytest.raises(DecodeError):
        Tracker([("m", row)])
