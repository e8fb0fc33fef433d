"""mplex against mplex.md: its bytes, its bounds, and what a peer gets for breaking the rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pywaku.errors import InvalidInput, LimitExceeded, StreamClosed, StreamReset
from pywaku.network.libp2p.mplex import Mplex
from pywaku.network.libp2p.muxer import (
    DataReceived,
    MuxerLimits,
    SessionEnded,
    StreamOpened,
    StreamWasReset,
    WriteClosed,
)
from pywaku.wire import varint
from tests.support.muxers import held, said

NEW, MESSAGE_RECEIVER, MESSAGE_INITIATOR, CLOSE_RECEIVER, CLOSE_INITIATOR, RESET_RECEIVER, RESET_INITIATOR = (
    range(7)
)
KIB = 1024


def frame(wire_id: int, flag: int, body: bytes = b"") -> bytes:
    return varint.encode(wire_id << 3 | flag) + varint.encode(len(body)) + body


def theirs(wire_id: int) -> int:
    """Our handle for a stream that the peer opened."""
    return wire_id * 2


def ours(wire_id: int) -> int:
    """Our handle for a stream that we opened."""
    return wire_id * 2 + 1


def muxer_of(limits: MuxerLimits | None = None) -> Mplex:
    return Mplex(initiator=True, limits=limits)


def serving(limits: MuxerLimits | None = None) -> Mplex:
    """A muxer with one stream that the peer opened."""
    muxer = muxer_of(limits)
    assert muxer.receive(frame(0, NEW)) == [StreamOpened(theirs(0))]
    return muxer


# The bytes.


def test_open_data_close_and_reset_as_initiator() -> None:
    muxer = muxer_of()
    stream = muxer.open()
    assert muxer.send(stream, b"hello") == 5
    muxer.close_write(stream)
    muxer.reset(stream)
    assert said(muxer) == bytes.fromhex("00 00  02 05 68656c6c6f  04 00  06 00")


def test_data_close_and_reset_as_receiver() -> None:
    muxer = serving()
    muxer.send(theirs(0), b"hello")
    muxer.close_write(theirs(0))
    muxer.reset(theirs(0))
    assert said(muxer) == bytes.fromhex("01 05 68656c6c6f  03 00  05 00")


def test_ids_and_lengths_of_more_than_one_byte() -> None:
    muxer = muxer_of()
    stream = [muxer.open() for _ in range(17)][-1]
    muxer.take_output()
    muxer.send(stream, b"x" * 300)
    assert said(muxer) == bytes.fromhex("8201 ac02") + b"x" * 300


def test_what_a_peer_of_js_libp2p_says() -> None:
    events = muxer_of().receive(bytes.fromhex("00 01 30  02 03 616263  04 00  06 00"))
    assert events == [
        StreamOpened(theirs(0)),
        DataReceived(theirs(0), b"abc"),
        WriteClosed(theirs(0)),
        StreamWasReset(theirs(0), "reset by the peer"),
    ]


def test_both_sides_may_use_the_same_id() -> None:
    muxer = serving()
    assert muxer.open() == ours(0)
    events = muxer.receive(frame(0, MESSAGE_INITIATOR, b"a") + frame(0, MESSAGE_RECEIVER, b"b"))
    assert events == [DataReceived(theirs(0), b"a"), DataReceived(ours(0), b"b")]
    assert muxer.receive(frame(0, RESET_RECEIVER)) == [StreamWasReset(ours(0), "reset by the peer")]
    assert muxer.send(theirs(0), b"x") == 1


def test_the_largest_id_is_understood() -> None:
    wire_id = 2**60 - 1
    assert muxer_of().receive(frame(wire_id, NEW)) == [StreamOpened(theirs(wire_id))]


def test_names_are_skipped() -> None:
    assert muxer_of().receive(frame(0, NEW, b"n" * 1024) + frame(0, CLOSE_INITIATOR)) == [
        StreamOpened(theirs(0)),
        WriteClosed(theirs(0)),
    ]


def test_a_payload_where_none_belongs_is_skipped() -> None:
    events = serving().receive(frame(0, CLOSE_INITIATOR, b"bye") + frame(0, RESET_INITIATOR, b"bye"))
    assert events == [WriteClosed(theirs(0)), StreamWasReset(theirs(0), "reset by the peer")]


def test_large_data_goes_out_in_messages_of_bounded_size() -> None:
    muxer = serving()
    data = bytes(range(256)) * 600
    assert muxer.send(theirs(0), data) == len(data)
    assert said(muxer) == b"".join(
        frame(0, MESSAGE_RECEIVER, data[start : start + 64 * KIB]) for start in range(0, len(data), 64 * KIB)
    )


def test_nothing_sent_says_nothing() -> None:
    muxer = serving()
    assert muxer.send(theirs(0), b"") == 0
    assert said(muxer) == b""


# Half-close, reset, forgetting.


def test_a_half_closed_stream_still_sends() -> None:
    muxer = serving()
    muxer.receive(frame(0, CLOSE_INITIATOR))
    muxer.send(theirs(0), b"answer")
    assert said(muxer) == frame(0, MESSAGE_RECEIVER, b"answer")


def test_writing_after_the_close_is_an_error() -> None:
    muxer = serving()
    muxer.close_write(theirs(0))
    with pytest.raises(StreamClosed):
        muxer.send(theirs(0), b"more")


def test_writing_to_a_forgotten_stream_is_an_error() -> None:
    muxer = serving()
    muxer.receive(frame(0, RESET_INITIATOR))
    with pytest.raises(StreamReset):
        muxer.send(theirs(0), b"more")


def test_a_stream_is_forgotten_when_both_sides_closed_it_and_all_is_consumed() -> None:
    muxer = serving()
    muxer.receive(frame(0, MESSAGE_INITIATOR, b"last") + frame(0, CLOSE_INITIATOR))
    muxer.close_write(theirs(0))
    assert (muxer.open_streams, muxer.buffered_bytes) == (1, 4)
    muxer.consumed(theirs(0), 4)
    assert (muxer.open_streams, muxer.buffered_bytes) == (0, 0)
    assert held(muxer) == 1  # the close


def test_nothing_is_said_on_a_stream_that_the_peer_has_forgotten() -> None:
    muxer = serving()
    muxer.receive(frame(0, RESET_INITIATOR))
    muxer.close_write(theirs(0))
    muxer.reset(theirs(0))
    muxer.receive(
        frame(0, MESSAGE_INITIATOR, b"late") + frame(9, RESET_INITIATOR) + frame(9, MESSAGE_RECEIVER)
    )
    assert said(muxer) == b""


def test_data_after_the_end_resets_the_stream_only() -> None:
    muxer = serving()
    events = muxer.receive(frame(0, CLOSE_INITIATOR) + frame(0, MESSAGE_INITIATOR, b"more") + frame(1, NEW))
    assert events[1:] == [StreamWasReset(theirs(0), "data after its end"), StreamOpened(theirs(1))]
    assert said(muxer) == frame(0, RESET_RECEIVER)


def test_late_messages_of_a_stream_that_we_reset_are_dropped() -> None:
    muxer = serving()
    muxer.reset(theirs(0))
    late = frame(0, MESSAGE_INITIATOR, bytes(200)) * 20_000 + frame(0, CLOSE_INITIATOR)
    assert muxer.receive(late) == []
    assert (muxer.ignored_frames, muxer.buffered_bytes) == (0, 0)
    assert said(muxer) == frame(0, RESET_RECEIVER)
    assert held(muxer) == 0


# Bounds.


def test_a_stream_that_is_not_read_is_reset_and_the_session_goes_on() -> None:
    muxer = serving(MuxerLimits(max_buffered_per_stream=100 * KIB))
    muxer.receive(frame(0, MESSAGE_INITIATOR, bytes(100 * KIB)))
    events = muxer.receive(frame(0, MESSAGE_INITIATOR, b"x") + frame(1, NEW))
    assert StreamWasReset(theirs(0), "receive buffer exceeded") in events
    assert events[-1] == StreamOpened(theirs(1))
    assert said(muxer) == frame(0, RESET_RECEIVER)
    assert (muxer.buffered_bytes, muxer.overflowed_streams) == (0, 1)


def test_a_stream_that_is_read_may_bring_any_number_of_bytes() -> None:
    muxer = serving(MuxerLimits(max_buffered_per_stream=100 * KIB))
    for _ in range(100):
        assert muxer.receive(frame(0, MESSAGE_INITIATOR, bytes(90 * KIB)))[-1] == DataReceived(
            0, bytes(90 * KIB)
        )
        muxer.consumed(theirs(0), 90 * KIB)
    assert not muxer.overflowed_streams


def test_all_streams_together_hold_a_bounded_number_of_bytes() -> None:
    muxer = muxer_of(MuxerLimits(max_buffered_total=1024 * KIB))
    for wire_id in range(100):
        muxer.receive(frame(wire_id, NEW) + frame(wire_id, MESSAGE_INITIATOR, bytes(256 * KIB)))
        assert muxer.buffered_bytes <= 1024 * KIB
    assert not muxer.ended
    assert muxer.overflowed_streams == 96


def test_a_peer_that_keeps_sending_on_a_discarded_stream_is_refused() -> None:
    muxer = serving(MuxerLimits(max_discarded=300 * KIB))
    muxer.discard(theirs(0))
    for _ in range(3):
        assert muxer.receive(frame(0, MESSAGE_INITIATOR, bytes(100 * KIB))) == []
    assert muxer.buffered_bytes == 0
    events = muxer.receive(frame(0, MESSAGE_INITIATOR, b"x"))
    assert events == [StreamWasReset(theirs(0), "kept sending on a stream that is not read")]
    assert said(muxer) == frame(0, RESET_RECEIVER)


def test_inbound_streams_beyond_the_bound_are_reset() -> None:
    muxer = muxer_of(MuxerLimits(max_inbound_streams=2))
    muxer.receive(frame(0, NEW) + frame(1, NEW))
    assert muxer.receive(frame(2, NEW, b"name") + frame(2, MESSAGE_INITIATOR, b"data")) == []
    assert said(muxer) == frame(2, RESET_RECEIVER)
    assert (muxer.refused_streams, muxer.ignored_frames) == (1, 0)
    muxer.receive(frame(0, RESET_INITIATOR))
    assert muxer.receive(frame(3, NEW)) == [StreamOpened(theirs(3))]


def test_outbound_streams_are_bounded() -> None:
    muxer = muxer_of(MuxerLimits(max_outbound_streams=2))
    first = muxer.open()
    muxer.open()
    with pytest.raises(LimitExceeded):
        muxer.open()
    muxer.reset(first)
    muxer.open()


def test_a_large_message_is_delivered_as_it_arrives_and_not_copied() -> None:
    muxer = serving()
    message = frame(0, MESSAGE_INITIATOR, bytes(1024 * KIB))
    body = bytes(256 * KIB)
    assert muxer.receive(message[:4]) == []
    events = muxer.receive(body)
    assert isinstance(events[0], DataReceived)
    assert events[0].data is body


# The session.


def test_there_is_no_ping_and_no_farewell() -> None:
    muxer = serving()
    assert not muxer.ping(1)
    with pytest.raises(InvalidInput):
        muxer.ping(-1)
    muxer.end()
    assert said(muxer) == b""
    assert muxer.ended
    with pytest.raises(LimitExceeded):
        muxer.open()


VIOLATIONS = {
    "message of more than 1 MiB": varint.encode(MESSAGE_INITIATOR) + varint.encode(2**20 + 1),
    "endless name": varint.encode(1 << 3 | NEW) + varint.encode(1025),
    "unknown flag": frame(0, 7),
    "endless id": b"\xff" * 9,
    "id of more than 60 bits": b"\x84" + b"\x80" * 8 + b"\x01" + b"\x00",
    "endless length": b"\x02" + b"\xff" * 9,
    "id of a living stream": frame(0, NEW),
    "id of a forgotten stream": frame(0, RESET_INITIATOR) + frame(0, NEW),
}


@pytest.mark.parametrize("piece", [1, 1000])
@pytest.mark.parametrize("violation", VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_a_violation_ends_the_session(violation: bytes, piece: int) -> None:
    muxer = serving()
    wire = violation + frame(5, NEW)
    events = [
        event for start in range(0, len(wire), piece) for event in muxer.receive(wire[start : start + piece])
    ]
    last = events.pop()
    assert isinstance(last, SessionEnded)
    assert not last.clean
    assert StreamOpened(theirs(5)) not in events
    assert muxer.ended
    assert held(muxer) == 0


FLOODS: dict[str, Callable[[int], bytes]] = {
    "streams opened and reset": lambda n: frame(n + 1, NEW) + frame(n + 1, RESET_INITIATOR),
    "streams opened and closed": lambda n: frame(n + 1, NEW) + frame(n + 1, CLOSE_INITIATOR),
    "streams opened": lambda n: frame(n + 1, NEW),
    "empty messages": lambda n: frame(0, MESSAGE_INITIATOR),
    "ends": lambda n: frame(0, CLOSE_INITIATOR),
    "messages for no stream": lambda n: frame(77, MESSAGE_INITIATOR, b"x"),
}


@pytest.mark.parametrize("flood", FLOODS.keys())
def test_a_flood_of_frames_without_progress_ends_the_session(flood: str) -> None:
    muxer = serving()
    make = FLOODS[flood]
    peak = 0
    for start in range(0, 100_000, 500):
        muxer.receive(b"".join(make(n) for n in range(start, start + 500)))
        peak = max(peak, held(muxer))
        muxer.take_output()
        if muxer.ended:
            break
    assert muxer.ended
    assert peak <= 3000


def test_a_peer_that_makes_us_answer_and_does_not_read_ends_the_session() -> None:
    muxer = muxer_of(MuxerLimits(max_inbound_streams=0))
    for wire_id in range(100_000):
        muxer.receive(frame(wire_id, NEW))
        if muxer.ended:
            break
    assert muxer.ended
    assert muxer.queued_bytes <= 64 * KIB
