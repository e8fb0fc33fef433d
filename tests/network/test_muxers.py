"""What holds for every stream multiplexer, shown with two of them talking to each other over cut-up bytes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pywaku.errors import LimitExceeded
from pywaku.network.libp2p.muxer import (
    DataReceived,
    Muxer,
    MuxerLimits,
    StreamId,
    StreamOpened,
    StreamWasReset,
    WindowOpened,
    WriteClosed,
)
from tests.support.muxers import MUXERS, MuxerType, held, pair, pass_on, said, seen_by_peer

KIB = 1024
PATTERN = bytes(n * 7 % 251 for n in range(251)) * 1300

each_muxer = pytest.mark.parametrize("kind", MUXERS)


class End:
    """One end of one stream, as the application sees it."""

    def __init__(self, side: Side, stream_id: StreamId) -> None:
        self.side = side
        self.stream_id = stream_id
        self.sent = bytearray()
        self.got = bytearray()
        self.unread = 0
        self.backlog = b""
        self.starved = False
        self.closed = False
        self.peer_closed = False
        self.discarded = False
        self.gone = False

    def write(self, data: bytes) -> None:
        taken = self.side.muxer.send(self.stream_id, data)
        self.sent += data[:taken]
        self.backlog = data[taken:]
        self.starved = bool(self.backlog)

    def read(self, size: int) -> None:
        self.unread -= size
        self.side.muxer.consumed(self.stream_id, size)


class Side:
    """One end of the connection: a muxer, its streams, and the bytes on their way to it."""

    def __init__(self, muxer: Muxer) -> None:
        self.muxer = muxer
        self.ends: dict[StreamId, End] = {}
        self.incoming = bytearray()

    def handle(self, data: bytes) -> None:
        for event in self.muxer.receive(data):
            match event:
                case StreamOpened(stream_id):
                    assert stream_id not in self.ends
                    self.ends[stream_id] = End(self, stream_id)
                case DataReceived(stream_id, piece):
                    end = self.ends[stream_id]
                    assert piece
                    assert (end.gone, end.peer_closed, end.discarded) == (False, False, False)
                    end.got += piece
                    end.unread += len(piece)
                case WriteClosed(stream_id):
                    end = self.ends[stream_id]
                    assert (end.gone, end.peer_closed) == (False, False)
                    end.peer_closed = True
                case StreamWasReset(stream_id, reason):
                    assert reason == "reset by the peer"
                    assert not self.ends[stream_id].gone
                    self.ends[stream_id].gone = True
                case WindowOpened(stream_id):
                    assert self.ends[stream_id].starved
                    self.ends[stream_id].starved = False
                case _:
                    pytest.fail(f"not expected: {event}")


class Conversation(RuleBasedStateMachine):
    """Both ends do whatever an application may do, in any order, and the wire is cut anywhere."""

    kind: MuxerType

    @initialize()
    def start(self) -> None:
        limits = MuxerLimits(
            max_buffered_per_stream=1 << 40, max_buffered_total=1 << 41, max_discarded=1 << 40
        )
        self.sides = [Side(muxer) for muxer in pair(self.kind, limits)]
        for side in (0, 1, 0, 1):
            self.open(side)

    def pick(self, number: int, wanted: Callable[[End], bool]) -> End | None:
        ends = [end for side in self.sides for end in side.ends.values() if not end.gone and wanted(end)]
        return ends[number % len(ends)] if ends else None

    def carry(self, number: int, size: int) -> bool:
        source, target = self.sides[number], self.sides[1 - number]
        target.incoming += said(source.muxer)
        data = bytes(target.incoming[:size])
        del target.incoming[:size]
        if data:
            target.handle(data)
        return bool(data)

    @rule(side=st.integers(0, 1))
    def open(self, side: int) -> None:
        chosen = self.sides[side]
        stream_id = chosen.muxer.open()
        assert stream_id not in chosen.ends
        chosen.ends[stream_id] = End(chosen, stream_id)

    @rule(number=st.integers(0, 20), size=st.integers(0, 300) | st.integers(90_000, 300_000))
    def send(self, number: int, size: int) -> None:
        end = self.pick(number, lambda end: not end.closed and not end.backlog)
        if end is not None:
            end.write(PATTERN[len(end.sent) % 251 :][:size])

    @rule(number=st.integers(0, 20))
    def go_on(self, number: int) -> None:
        end = self.pick(number, lambda end: not end.closed and not end.starved and bool(end.backlog))
        if end is not None:
            end.write(end.backlog)

    @rule(number=st.integers(0, 20), share=st.integers(1, 4))
    def read(self, number: int, share: int) -> None:
        end = self.pick(number, lambda end: not end.discarded and end.unread > 0)
        if end is not None:
            end.read(max(1, end.unread // share))

    @rule(number=st.integers(0, 20), seldom=st.integers(0, 2))
    def close(self, number: int, seldom: int) -> None:
        end = self.pick(number, lambda end: not end.closed)
        if end is not None and not seldom:
            end.side.muxer.close_write(end.stream_id)
            end.closed = True
            end.backlog = b""

    @rule(number=st.integers(0, 20), seldom=st.integers(0, 4))
    def discard(self, number: int, seldom: int) -> None:
        end = self.pick(number, lambda end: not end.discarded)
        if end is not None and not seldom:
            end.side.muxer.discard(end.stream_id)
            end.discarded = True

    @rule(number=st.integers(0, 20), seldom=st.integers(0, 5))
    def reset(self, number: int, seldom: int) -> None:
        end = self.pick(number, lambda _end: True)
        if end is not None and not seldom:
            end.side.muxer.reset(end.stream_id)
            end.gone = True

    @rule(side=st.integers(0, 1), size=st.integers(1, 30) | st.integers(1, 400_000))
    def transfer(self, side: int, size: int) -> None:
        self.carry(side, size)

    @rule(side=st.integers(0, 1), size=st.integers(1, 13), pieces=st.integers(1, 30))
    def trickle(self, side: int, size: int, pieces: int) -> None:
        for _ in range(pieces):
            self.carry(side, size)

    @precondition(lambda self: hasattr(self, "sides"))
    @invariant()
    def what_arrives_is_what_was_sent(self) -> None:
        for side, other in zip(self.sides, reversed(self.sides), strict=True):
            assert not side.muxer.ended
            unread = 0
            for end in side.ends.values():
                twin = other.ends.get(seen_by_peer(self.kind, end.stream_id))
                assert twin is None or twin.sent.startswith(end.got)
                if not end.gone and not end.discarded:
                    unread += end.unread
            assert side.muxer.buffered_bytes == unread

    def teardown(self) -> None:
        """Everything that can still arrive does, all streams come to their end, and nothing stays behind."""
        if not hasattr(self, "sides"):
            return
        ends = [end for side in self.sides for end in side.ends.values()]
        while True:
            moved = [self.carry(number, 100_000) for number in (0, 1)]
            ends = [end for side in self.sides for end in side.ends.values()]
            for end in ends:
                if end.unread and not end.gone and not end.discarded:
                    end.read(end.unread)
                if end.backlog and not end.gone and not end.starved:
                    end.write(end.backlog)
                elif not end.backlog and not end.gone and not end.closed:
                    end.side.muxer.close_write(end.stream_id)
                    end.closed = True
            if not any(moved) and not any(side.muxer.queued_bytes for side in self.sides):
                break
        for end in ends:
            other = self.sides[0] if end.side is self.sides[1] else self.sides[1]
            twin = other.ends.get(seen_by_peer(self.kind, end.stream_id))
            if twin is not None and not end.gone and not twin.gone:
                assert end.peer_closed
                assert not twin.backlog
                assert end.discarded or end.got == twin.sent
        for side in self.sides:
            assert not side.muxer.ended
            assert (side.muxer.open_streams, side.muxer.buffered_bytes) == (0, 0)
            assert (side.muxer.refused_streams, side.muxer.overflowed_streams) == (0, 0)


def conversation(kind: MuxerType) -> type:
    """The test case for one kind of muxer."""
    machine = type(f"{kind.__name__}Conversation", (Conversation,), {"kind": kind})
    case = machine.TestCase
    case.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
    return case


TestYamuxConversation = conversation(MUXERS[0])
TestMplexConversation = conversation(MUXERS[1])


@each_muxer
@given(pieces=st.lists(st.binary(max_size=200), max_size=20), initiator=st.booleans())
def test_garbage_never_raises_and_fills_no_memory(
    kind: MuxerType, pieces: list[bytes], initiator: bool
) -> None:
    muxer = kind(initiator=initiator)
    stream = muxer.open()
    muxer.send(stream, b"hello")
    size = 0
    for piece in pieces:
        muxer.receive(piece)
        size += len(piece)
        assert muxer.buffered_bytes <= size
        assert held(muxer) <= 40 + size
        assert muxer.queued_bytes <= 100 + 12 * size


@each_muxer
@given(data=st.data())
def test_damaged_conversations_never_raise(kind: MuxerType, data: st.DataObject) -> None:
    sender, receiver = pair(kind)
    for _ in range(4):
        stream = sender.open()
        sender.send(stream, b"some data" * 10)
        sender.close_write(stream)
    wire = bytearray(said(sender))
    for _ in range(data.draw(st.integers(1, 8))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(wire)))
    for event in receiver.receive(bytes(wire[:cut])) + receiver.receive(bytes(wire[cut:])):
        if isinstance(event, DataReceived):
            receiver.consumed(event.stream_id, len(event.data))
            receiver.reset(event.stream_id)
    said(receiver)
    assert receiver.buffered_bytes == 0


@each_muxer
def test_byte_by_byte_is_the_same_as_all_at_once(kind: MuxerType) -> None:
    def wire() -> bytes:
        sender = pair(kind)[0]
        for _ in range(3):
            stream = sender.open()
            sender.send(stream, b"0123456789" * 30)
            sender.close_write(stream)
        return said(sender)

    at_once, piecemeal = pair(kind)[1], pair(kind)[1]
    expected = at_once.receive(wire())
    events = [event for byte in wire() for event in piecemeal.receive(bytes((byte,)))]
    assert [event for event in events if not isinstance(event, DataReceived)] == [
        event for event in expected if not isinstance(event, DataReceived)
    ]
    assert sum(isinstance(event, DataReceived) for event in events) == 900


def open_and_close(kind: MuxerType, streams: int) -> None:
    """Streams that end in all ways, one after the other; nothing of them stays."""
    left, right = pair(kind)
    for number in range(streams):
        stream = left.open()
        peer = seen_by_peer(kind, stream)
        left.send(stream, b"request")
        left.close_write(stream)
        pass_on(left, right)
        right.consumed(peer, 7)
        if number % 4 == 0:
            right.reset(peer)
        else:
            right.send(peer, b"response")
            if number % 4 == 1:
                right.discard(peer)
            right.close_write(peer)
        pass_on(right, left)
        if number % 4 == 2:
            left.reset(stream)
        else:
            left.consumed(stream, 8)
        assert left.open_streams == right.open_streams == 0
    for muxer in (left, right):
        assert (held(muxer), muxer.buffered_bytes, muxer.ended) == (0, 0, False)


@each_muxer
def test_nothing_stays_of_streams_that_ended(kind: MuxerType) -> None:
    open_and_close(kind, 5_000)


@pytest.mark.long
@each_muxer
def test_nothing_stays_of_a_hundred_thousand_streams(kind: MuxerType) -> None:
    open_and_close(kind, 100_000)


@each_muxer
def test_half_open_streams_are_bounded(kind: MuxerType) -> None:
    left, right = (
        kind(initiator=True, limits=MuxerLimits(max_outbound_streams=5000, max_ack_backlog=5000)),
        pair(kind)[1],
    )
    for _ in range(3000):
        stream = left.open()
        left.send(stream, b"x")
        pass_on(left, right)
        right.take_output()
    assert right.open_streams == 1024
    assert right.refused_streams == 3000 - 1024
    assert held(right) <= 1024 + 1024 + 1024
    assert not right.ended


@each_muxer
def test_opening_is_bounded_and_goes_on_when_streams_end(kind: MuxerType) -> None:
    left, right = pair(kind)
    streams: list[StreamId] = []
    for _ in count():
        try:
            streams.append(left.open())
        except LimitExceeded:
            break
    assert len(streams) <= 1024
    pass_on(left, right)
    for stream in streams:
        right.reset(seen_by_peer(kind, stream))
    pass_on(right, left)
    assert left.open_streams == 0
    left.open()


@each_muxer
def test_a_payload_may_be_a_memoryview(kind: MuxerType) -> None:
    left, right = pair(kind)
    for size in (10, 10_000, 100_000):
        stream = left.open()
        left.send(stream, memoryview(PATTERN)[5 : 5 + size])
        events = pass_on(left, right)
        assert b"".join(e.data for e in events if isinstance(e, DataReceived)) == PATTERN[5 : 5 + size]


@each_muxer
def test_what_was_queued_still_leaves_after_the_end(kind: MuxerType) -> None:
    left, right = pair(kind)
    stream = left.open()
    left.send(stream, b"last words")
    left.end()
    events = pass_on(left, right)
    assert DataReceived(seen_by_peer(kind, stream), b"last words") in events
