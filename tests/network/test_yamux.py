"""yamux against yamux.md: its bytes, its flow control, and what a peer gets for breaking the rules."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from pywaku.errors import InvalidInput, LimitExceeded, StreamClosed, StreamReset
from pywaku.network.libp2p.muxer import (
    DataReceived,
    Event,
    MuxerLimits,
    PongReceived,
    SessionEnded,
    StreamOpened,
    StreamWasReset,
    WindowOpened,
    WriteClosed,
)
from pywaku.network.libp2p.yamux import Yamux
from tests.support.muxers import held, pass_on, received, said

DATA, WINDOW, PING, GO_AWAY = range(4)
SYN, ACK, FIN, RST = 1, 2, 4, 8
KIB = 1024
GO_AWAY_PROTOCOL_ERROR = bytes.fromhex("000300000000000000000001")


def frame(kind: int, flags: int, stream_id: int, length: int | None = None, body: bytes = b"") -> bytes:
    length = len(body) if length is None else length
    return struct.pack(">BBHII", 0, kind, flags, stream_id, length) + body


def client(limits: MuxerLimits | None = None) -> Yamux:
    return Yamux(initiator=True, limits=limits)


def server(limits: MuxerLimits | None = None) -> Yamux:
    return Yamux(initiator=False, limits=limits)


def serving(stream_id: int = 1, limits: MuxerLimits | None = None) -> Yamux:
    """A server with one stream that the peer opened and that was acknowledged."""
    muxer = server(limits)
    assert muxer.receive(frame(WINDOW, SYN, stream_id)) == [StreamOpened(stream_id)]
    muxer.send(stream_id, b"x")
    muxer.take_output()
    return muxer


# The bytes.


def test_open_and_data_are_one_frame() -> None:
    muxer = client()
    stream = muxer.open()
    assert muxer.send(stream, b"hello") == 5
    assert said(muxer) == bytes.fromhex("00 00 0001 00000001 00000005") + b"hello"


def test_a_stream_without_data_is_announced_by_the_next_output() -> None:
    muxer = client()
    muxer.open()
    assert muxer.queued_bytes == 12
    assert said(muxer) == bytes.fromhex("00 01 0001 00000001 00000000")
    assert said(muxer) == b""


def test_a_stream_that_is_closed_at_once_is_announced_with_its_end() -> None:
    muxer = client()
    muxer.close_write(muxer.open())
    assert said(muxer) == bytes.fromhex("00 01 0005 00000001 00000000")


def test_a_stream_that_is_reset_before_it_was_announced_is_never_mentioned() -> None:
    muxer = client()
    muxer.reset(muxer.open())
    assert said(muxer) == b""
    assert muxer.open_streams == 0


def test_the_initiator_uses_odd_ids_and_the_responder_even_ones() -> None:
    assert [client().open(), server().open()] == [1, 2]
    muxer = server()
    assert [muxer.open() for _ in range(3)] == [2, 4, 6]


def test_streams_are_announced_in_the_order_of_their_ids() -> None:
    muxer = client()
    first, second, third = muxer.open(), muxer.open(), muxer.open()
    muxer.send(second, b"b")
    muxer.send(first, b"a")
    assert said(muxer) == (
        frame(WINDOW, SYN, first)
        + frame(DATA, SYN, second, body=b"b")
        + frame(DATA, 0, first, body=b"a")
        + frame(WINDOW, SYN, third)
    )


def test_the_acknowledgement_rides_on_the_answer() -> None:
    muxer = server()
    muxer.receive(frame(DATA, SYN, 1, body=b"ask"))
    muxer.consumed(1, 3)
    muxer.send(1, b"answer")
    muxer.send(1, b"more")
    assert said(muxer) == frame(DATA, ACK, 1, body=b"answer") + frame(DATA, 0, 1, body=b"more")


def test_a_stream_is_acknowledged_once_its_first_bytes_were_taken() -> None:
    muxer = server()
    muxer.receive(frame(DATA, SYN, 1, body=b"ask"))
    assert said(muxer) == b""
    muxer.consumed(1, 3)
    assert said(muxer) == frame(WINDOW, ACK, 1)


def test_an_acknowledgement_does_not_hurry_because_a_stream_is_opened() -> None:
    muxer = server()
    muxer.receive(frame(DATA, SYN, 1, body=b"ask"))
    muxer.consumed(1, 3)
    muxer.send(muxer.open(), b"ours")
    muxer.send(1, b"answer")
    assert said(muxer) == frame(DATA, SYN, 2, body=b"ours") + frame(DATA, ACK, 1, body=b"answer")


def test_the_acknowledgement_rides_on_the_end() -> None:
    muxer = server()
    muxer.receive(frame(WINDOW, SYN, 1))
    muxer.close_write(1)
    assert said(muxer) == frame(WINDOW, ACK | FIN, 1)


def test_a_larger_first_window_is_granted_with_the_announcement() -> None:
    muxer = client(MuxerLimits(initial_window=1024 * KIB))
    muxer.send(muxer.open(), b"hello")
    assert said(muxer) == frame(WINDOW, SYN, 1, 768 * KIB) + frame(DATA, 0, 1, body=b"hello")


def test_reset_is_a_window_update() -> None:
    muxer = serving()
    muxer.reset(1)
    assert said(muxer) == bytes.fromhex("00 01 0008 00000001 00000000")


def test_taking_leave_is_a_go_away_without_error() -> None:
    muxer = serving()
    muxer.end()
    assert said(muxer) == bytes.fromhex("00 03 0000 00000000 00000000")
    muxer.end()
    assert said(muxer) == b""
    assert muxer.open_streams == 0


def test_large_data_goes_out_in_frames_of_bounded_size() -> None:
    muxer = client()
    data = bytes(range(256)) * 600
    assert muxer.send(muxer.open(), data) == len(data)
    assert said(muxer) == (
        frame(DATA, SYN, 1, body=data[: 64 * KIB])
        + frame(DATA, 0, 1, body=data[64 * KIB : 128 * KIB])
        + frame(DATA, 0, 1, body=data[128 * KIB :])
    )


# Half-close, reset, forgetting.


def test_the_end_of_the_peer_comes_after_its_data() -> None:
    assert serving().receive(frame(DATA, FIN, 1, body=b"last")) == [DataReceived(1, b"last"), WriteClosed(1)]


def test_open_data_and_end_in_one_frame() -> None:
    events = server().receive(frame(DATA, SYN | FIN, 1, body=b"all"))
    assert events == [StreamOpened(1), DataReceived(1, b"all"), WriteClosed(1)]


def test_a_half_closed_stream_still_sends() -> None:
    muxer = serving()
    muxer.receive(frame(WINDOW, FIN, 1))
    assert muxer.send(1, b"answer") == 6
    assert said(muxer) == frame(DATA, 0, 1, body=b"answer")


def test_writing_after_the_close_is_an_error() -> None:
    muxer = serving()
    muxer.close_write(1)
    with pytest.raises(StreamClosed):
        muxer.send(1, b"more")


def test_writing_to_a_forgotten_stream_is_an_error() -> None:
    muxer = serving()
    assert muxer.receive(frame(WINDOW, RST, 1)) == [StreamWasReset(1, "reset by the peer")]
    with pytest.raises(StreamReset):
        muxer.send(1, b"more")


def test_a_stream_is_forgotten_when_both_sides_closed_it_and_all_is_consumed() -> None:
    muxer = serving()
    muxer.receive(frame(DATA, FIN, 1, body=b"last"))
    muxer.close_write(1)
    assert muxer.open_streams == 1
    assert muxer.buffered_bytes == 4
    muxer.consumed(1, 4)
    assert muxer.open_streams == 0
    assert muxer.buffered_bytes == 0


def test_nothing_is_said_on_a_stream_that_both_sides_closed() -> None:
    muxer = serving()
    muxer.receive(frame(DATA, FIN, 1, body=b"last"))
    muxer.close_write(1)
    muxer.take_output()
    muxer.reset(1)
    assert said(muxer) == b""
    assert muxer.open_streams == 0


def test_a_reset_drops_the_rest_of_a_payload_under_way() -> None:
    muxer = serving()
    muxer.receive(frame(DATA, 0, 1, 10) + b"12345")
    muxer.reset(1)
    assert muxer.receive(b"67890" + frame(WINDOW, SYN, 3)) == [StreamOpened(3)]
    assert muxer.buffered_bytes == 0


def test_a_reset_by_the_peer_frees_what_was_not_read() -> None:
    muxer = serving()
    muxer.receive(frame(DATA, 0, 1, body=b"unread"))
    muxer.receive(frame(DATA, RST, 1, body=b"whatever"))
    assert muxer.buffered_bytes == 0
    assert muxer.open_streams == 0


def test_data_after_the_end_resets_the_stream_only() -> None:
    muxer = serving()
    muxer.receive(frame(WINDOW, FIN, 1))
    events = muxer.receive(frame(DATA, 0, 1, body=b"more") + frame(WINDOW, SYN, 3))
    assert events == [StreamWasReset(1, "data after its end"), StreamOpened(3)]
    assert said(muxer) == frame(WINDOW, RST, 1)


def test_data_for_no_stream_is_answered_with_a_reset() -> None:
    muxer = serving()
    assert muxer.receive(frame(DATA, 0, 77, body=b"what?")) == []
    assert said(muxer) == frame(WINDOW, RST, 77)
    assert muxer.ignored_frames == 1


def test_window_updates_and_ends_for_no_stream_are_ignored() -> None:
    muxer = serving()
    assert muxer.receive(frame(WINDOW, 0, 77, 1000) + frame(WINDOW, FIN, 77) + frame(WINDOW, RST, 77)) == []
    assert said(muxer) == b""


def test_late_frames_of_a_stream_that_we_reset_are_ignored() -> None:
    muxer = serving()
    muxer.reset(1)
    muxer.take_output()
    assert muxer.receive(frame(DATA, 0, 1, body=b"late") * 100 + frame(WINDOW, FIN, 1)) == []
    assert said(muxer) == b""
    assert muxer.ignored_frames == 0
    assert held(muxer) == 0


def test_the_memory_of_streams_that_we_reset_is_bounded() -> None:
    muxer = server()
    for stream_id in range(1, 10_001, 2):
        muxer.receive(frame(WINDOW, SYN, stream_id))
        muxer.reset(stream_id)
        muxer.take_output()
    assert held(muxer) <= 1024


# Flow control.


def test_no_more_is_sent_than_the_smallest_known_first_window() -> None:
    muxer = client()
    stream = muxer.open()
    assert muxer.send(stream, bytes(300_000)) == 256_000
    assert muxer.send(stream, b"more") == 0
    assert len(said(muxer)) == 256_000 + 4 * 12


def test_a_window_update_lets_a_starved_stream_go_on() -> None:
    muxer = client()
    stream = muxer.open()
    muxer.send(stream, bytes(300_000))
    assert muxer.receive(frame(WINDOW, 0, stream, 1000)) == [WindowOpened(stream)]
    assert muxer.receive(frame(WINDOW, 0, stream, 1000)) == []
    assert muxer.send(stream, bytes(3000)) == 2000


def test_a_window_update_is_no_event_for_a_stream_that_could_send() -> None:
    muxer = client()
    stream = muxer.open()
    muxer.send(stream, b"hello")
    assert muxer.receive(frame(WINDOW, ACK, stream, 1000)) == []


def test_windows_are_returned_once_half_of_them_is_owed() -> None:
    muxer = serving(limits=MuxerLimits(max_window=256 * KIB))
    muxer.receive(frame(DATA, 0, 1, body=bytes(200 * KIB)))
    muxer.consumed(1, 127 * KIB)
    assert said(muxer) == b""
    muxer.consumed(1, KIB)
    assert said(muxer) == frame(WINDOW, 0, 1, 128 * KIB)
    muxer.consumed(1, 72 * KIB)
    assert said(muxer) == b""


def test_the_window_doubles_while_the_application_keeps_up() -> None:
    muxer = serving()
    granted: list[int] = []
    for size in (128, 256, 512, 512):
        muxer.receive(frame(DATA, 0, 1, body=bytes(size * KIB)))
        muxer.consumed(1, size * KIB)
        granted.append(struct.unpack(">I", said(muxer)[8:])[0] // KIB)
    assert granted == [384, 768, 512, 512]


def test_the_window_does_not_grow_while_the_application_is_behind() -> None:
    muxer = serving()
    muxer.receive(frame(DATA, 0, 1, body=bytes(256 * KIB)))
    muxer.consumed(1, 200 * KIB)
    assert said(muxer) == frame(WINDOW, 0, 1, 200 * KIB)


def test_all_windows_together_grow_within_a_bound() -> None:
    muxer = server(MuxerLimits(max_buffered_total=1024 * KIB))
    granted = 0
    for stream_id in range(1, 41, 2):
        muxer.receive(frame(DATA, SYN, stream_id, body=bytes(128 * KIB)))
        muxer.consumed(stream_id, 128 * KIB)
        granted += struct.unpack(">I", said(muxer)[8:])[0]
    assert granted == 20 * 128 * KIB + 512 * KIB
    for stream_id in range(1, 41, 2):
        muxer.reset(stream_id)
    muxer.receive(frame(DATA, SYN, 51, body=bytes(128 * KIB)))
    muxer.take_output()
    muxer.consumed(51, 128 * KIB)
    assert said(muxer) == frame(WINDOW, ACK, 51, 384 * KIB)


def test_no_window_is_returned_after_the_end_of_the_peer() -> None:
    muxer = serving()
    muxer.receive(frame(DATA, FIN, 1, body=bytes(200 * KIB)))
    muxer.consumed(1, 200 * KIB)
    assert said(muxer) == b""


def test_consuming_more_than_there_was_grants_nothing_more() -> None:
    muxer = serving(limits=MuxerLimits(max_window=256 * KIB))
    muxer.receive(frame(DATA, 0, 1, body=bytes(128 * KIB)))
    muxer.consumed(1, 10_000 * KIB)
    assert said(muxer) == frame(WINDOW, 0, 1, 128 * KIB)
    assert muxer.buffered_bytes == 0


def test_what_is_discarded_returns_the_window_and_is_no_event() -> None:
    muxer = serving()
    muxer.receive(frame(DATA, 0, 1, body=bytes(100 * KIB)))
    muxer.discard(1)
    assert muxer.buffered_bytes == 0
    assert muxer.receive(frame(DATA, 0, 1, body=bytes(100 * KIB))) == []
    assert said(muxer) == frame(WINDOW, 0, 1, (200 + 256) * KIB)
    assert muxer.receive(frame(WINDOW, FIN, 1)) == [WriteClosed(1)]


def test_a_peer_that_keeps_sending_on_a_discarded_stream_is_refused() -> None:
    muxer = serving(limits=MuxerLimits(max_discarded=300 * KIB, max_window=256 * KIB))
    muxer.discard(1)
    for _ in range(3):
        assert muxer.receive(frame(DATA, 0, 1, body=bytes(100 * KIB))) == []
    events = muxer.receive(frame(DATA, 0, 1, body=b"x"))
    assert events == [StreamWasReset(1, "kept sending on a stream that is not read")]
    assert said(muxer).endswith(frame(WINDOW, RST, 1))


def test_a_peer_that_ignores_the_window_ends_the_session_and_fills_no_memory() -> None:
    muxer = serving()
    peak = 0
    events: list[Event] = []
    for _ in range(1000):
        events = muxer.receive(frame(DATA, 0, 1, body=bytes(64 * KIB)))
        peak = max(peak, muxer.buffered_bytes)
        if muxer.ended:
            break
    assert isinstance(events[-1], SessionEnded)
    assert peak <= 256 * KIB
    assert muxer.receive(frame(DATA, 0, 1, body=bytes(64 * KIB))) == []
    assert held(muxer) == 1  # the go-away


def test_a_frame_beyond_the_window_is_refused_by_its_header() -> None:
    muxer = serving()
    events = muxer.receive(frame(DATA, 0, 1, 256 * KIB + 1))
    assert events == [SessionEnded("stream 1: 262145 bytes are beyond the receive window", clean=False)]


def test_all_streams_together_hold_a_bounded_number_of_bytes() -> None:
    muxer = server(MuxerLimits(max_buffered_total=1024 * KIB))
    resets = 0
    for stream_id in range(1, 201, 2):
        events = muxer.receive(frame(DATA, SYN, stream_id, body=bytes(256 * KIB)))
        resets += StreamWasReset(stream_id, "receive buffer exceeded") in events
        assert muxer.buffered_bytes <= 1024 * KIB
    assert not muxer.ended
    assert resets == muxer.overflowed_streams == 96


# Opening within bounds.


def test_at_most_256_streams_wait_for_their_acknowledgement() -> None:
    muxer = client()
    streams = [muxer.open() for _ in range(256)]
    with pytest.raises(LimitExceeded):
        muxer.open()
    muxer.take_output()
    muxer.receive(frame(WINDOW, ACK, streams[0]))
    streams.append(muxer.open())
    with pytest.raises(LimitExceeded):
        muxer.open()
    muxer.receive(frame(WINDOW, RST, streams[1]))
    muxer.open()
    muxer.reset(streams[2])
    muxer.open()


def test_outbound_streams_are_bounded() -> None:
    muxer = client(MuxerLimits(max_outbound_streams=2))
    first = muxer.open()
    muxer.open()
    with pytest.raises(LimitExceeded):
        muxer.open()
    muxer.reset(first)
    muxer.open()


def test_inbound_streams_beyond_the_bound_are_reset() -> None:
    muxer = server(MuxerLimits(max_inbound_streams=2))
    muxer.receive(frame(WINDOW, SYN, 1) + frame(WINDOW, SYN, 3))
    assert muxer.receive(frame(DATA, SYN, 5, body=b"too much") + frame(DATA, FIN, 5, body=b"more")) == []
    assert said(muxer) == frame(WINDOW, RST, 5)
    assert muxer.refused_streams == 1
    muxer.receive(frame(WINDOW, RST, 1))
    assert muxer.receive(frame(WINDOW, SYN, 7)) == [StreamOpened(7)]


def test_streams_announced_out_of_order_are_accepted() -> None:
    muxer = server()
    events = muxer.receive(b"".join(frame(WINDOW, SYN, stream_id) for stream_id in (5, 1, 9, 3, 7)))
    assert events == [StreamOpened(stream_id) for stream_id in (5, 1, 9, 3, 7)]


# The session.


def test_a_ping_is_answered_with_its_value() -> None:
    muxer = server()
    assert muxer.receive(frame(PING, SYN, 0, 0xDEADBEEF)) == []
    assert said(muxer) == bytes.fromhex("00 02 0002 00000000 deadbeef")


def test_our_ping_and_its_answer() -> None:
    muxer = client()
    assert muxer.ping(7)
    assert said(muxer) == bytes.fromhex("00 02 0001 00000000 00000007")
    assert muxer.receive(frame(PING, ACK, 0, 7)) == [PongReceived(7)]
    assert muxer.receive(frame(PING, ACK, 0, 7)) == []
    assert muxer.ignored_frames == 1


def test_our_pings_under_way_are_bounded() -> None:
    muxer = client(MuxerLimits(max_pending_pings=2))
    assert [muxer.ping(1), muxer.ping(1), muxer.ping(2), muxer.ping(3)] == [True, False, True, False]
    with pytest.raises(InvalidInput):
        muxer.ping(2**32)


@pytest.mark.parametrize(("code", "clean"), [(0, True), (1, False), (2, False), (99, False)])
def test_the_go_away_of_the_peer_ends_the_session(code: int, clean: bool) -> None:
    muxer = serving()
    events = muxer.receive(frame(GO_AWAY, 0, 0, code) + frame(WINDOW, SYN, 3))
    assert [type(event) for event in events] == [SessionEnded]
    assert isinstance(events[0], SessionEnded)
    assert events[0].clean is clean
    assert said(muxer) == b""
    assert muxer.ended
    assert muxer.open_streams == 0


def test_after_the_end_nothing_happens_any_more() -> None:
    muxer = serving()
    muxer.receive(frame(GO_AWAY, 0, 0, 0))
    with pytest.raises(LimitExceeded):
        muxer.open()
    with pytest.raises(StreamReset):
        muxer.send(1, b"x")
    muxer.consumed(1, 1)
    muxer.discard(1)
    muxer.close_write(1)
    muxer.reset(1)
    assert not muxer.ping(1)
    muxer.end()
    assert said(muxer) == b""
    assert held(muxer) == 0


VIOLATIONS = {
    "unknown version": b"\x01" + frame(DATA, 0, 1, body=b"x")[1:],
    "unknown type": frame(4, 0, 1),
    "data on the session's id": frame(DATA, 0, 0, body=b"x"),
    "window update on the session's id": frame(WINDOW, SYN, 0),
    "ping on a stream": frame(PING, SYN, 1),
    "go-away on a stream": frame(GO_AWAY, 0, 1),
    "ping that is neither question nor answer": frame(PING, 0, 0),
    "ping that is both": frame(PING, SYN | ACK, 0),
    "id of a living stream": frame(WINDOW, SYN, 1),
    "id of a forgotten stream": frame(WINDOW, RST, 1) + frame(WINDOW, SYN, 1),
    "id of a forgotten stream, at once reset": frame(WINDOW, RST, 1) + frame(WINDOW, SYN | RST, 1),
    "id that was announced out of order, again": frame(WINDOW, SYN, 7)
    + frame(WINDOW, SYN, 3)
    + frame(WINDOW, RST, 3)
    + frame(WINDOW, SYN, 3),
    "id that is ours": frame(WINDOW, SYN, 2),
    "data beyond the window": frame(DATA, 0, 1, 256 * KIB + 1),
    "first data beyond the window": frame(DATA, SYN, 3, 256 * KIB + 1),
    "window beyond 32 bits": frame(WINDOW, 0, 1, 2**32 - 1),
}


@pytest.mark.parametrize("violation", VIOLATIONS.values(), ids=VIOLATIONS.keys())
def test_a_violation_is_answered_with_a_go_away_and_ends_the_session(violation: bytes) -> None:
    muxer = serving()
    events = muxer.receive(violation + frame(WINDOW, SYN, 5))
    last = events.pop()
    assert isinstance(last, SessionEnded)
    assert not last.clean
    assert StreamOpened(5) not in events
    assert said(muxer) == GO_AWAY_PROTOCOL_ERROR
    assert muxer.receive(frame(WINDOW, SYN, 5)) == []


def test_an_old_id_stays_used() -> None:
    muxer = serving(stream_id=1)
    muxer.receive(frame(WINDOW, RST, 1))
    muxer.receive(frame(WINDOW, SYN, 2**32 - 1))
    assert isinstance(muxer.receive(frame(WINDOW, SYN, 1))[-1], SessionEnded)


FLOODS: dict[str, Callable[[int], bytes]] = {
    "streams opened and reset": lambda n: frame(WINDOW, SYN, 2 * n + 3) + frame(WINDOW, RST, 2 * n + 3),
    "streams opened and reset in one frame": lambda n: frame(WINDOW, SYN | RST, 2 * n + 3),
    "streams opened and closed": lambda n: frame(WINDOW, SYN | FIN, 2 * n + 3),
    "pings": lambda n: frame(PING, SYN, 0, n),
    "answers to no ping": lambda n: frame(PING, ACK, 0, n),
    "empty data": lambda n: frame(DATA, 0, 1),
    "empty window updates": lambda n: frame(WINDOW, 0, 1, 0),
    "ends": lambda n: frame(WINDOW, FIN, 1),
    "frames for no stream": lambda n: frame(DATA, 0, 77, body=b"x"),
}


@pytest.mark.parametrize("flood", FLOODS.keys())
def test_a_flood_of_frames_without_progress_ends_the_session(flood: str) -> None:
    muxer = serving()
    make = FLOODS[flood]
    peak = 0
    for start in range(0, 100_000, 500):
        muxer.receive(b"".join(make(n) for n in range(start, start + 500)))
        peak = max(peak, held(muxer), muxer.queued_bytes // 12)
        muxer.take_output()
        if muxer.ended:
            break
    assert muxer.ended
    assert peak <= 3000


def test_a_peer_that_makes_us_answer_and_does_not_read_ends_the_session() -> None:
    muxer = serving()
    for n in range(100_000):
        muxer.receive(frame(PING, SYN, 0, n))
        if muxer.ended:
            break
    assert muxer.ended
    assert muxer.queued_bytes <= 64 * KIB


def test_pings_now_and_then_are_no_flood() -> None:
    muxer = server()
    for n in range(30_000):
        muxer.receive(frame(PING, SYN, 0, n))
        muxer.take_output()
    assert not muxer.ended


def test_many_small_requests_are_no_flood() -> None:
    asking, answering = client(), server()
    for _ in range(300):
        streams = [asking.open() for _ in range(60)]
        for stream in streams:
            asking.send(stream, b"ask")
            asking.close_write(stream)
        pass_on(asking, answering)
        for stream in streams:
            answering.consumed(stream, 3)
            answering.send(stream, b"answer")
            answering.close_write(stream)
        events = pass_on(answering, asking)
        for stream in streams:
            assert received(events, stream) == b"answer"
            asking.consumed(stream, 6)
    assert not asking.ended
    assert not answering.ended
    assert held(asking) == held(answering) == 0


# Cheap where it counts.


def test_what_has_arrived_of_a_frame_is_delivered_at_once_and_not_copied() -> None:
    muxer = serving()
    body = bytes(100 * KIB)
    assert muxer.receive(frame(DATA, FIN, 1, 200 * KIB)) == []
    first = muxer.receive(body)
    assert isinstance(first[0], DataReceived)
    assert first[0].data is body
    assert muxer.receive(body) == [DataReceived(1, body), WriteClosed(1)]


def test_large_data_is_not_copied_on_its_way_out() -> None:
    muxer = client()
    data = bytes(60 * KIB)
    muxer.send(muxer.open(), data)
    assert any(chunk is data for chunk in muxer.take_output())
