"""What channels save comes back as it was; what is damaged is a `DecodeError`, never something else."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.channels.eventrows import decode_events, encode_events, groups_of
from pywaku.channels.events import (
    ChannelEvent,
    ChunkInfo,
    EphemeralMessageDropped,
    IrretrievableMessage,
    MessageAcknowledged,
    MessageReceived,
    MessageSent,
    ReliableMessageDelivered,
    ReliableMessageDeliveryError,
    ReliableMessageReceived,
    ReliableMessageSendError,
    SendingMessageIrrecoverableError,
)
from pywaku.channels.rows import (
    SEGMENTS,
    KeptHeads,
    Row,
    RowChange,
    kept_sendings,
    pack,
    segment_rows,
    unpack,
)
from pywaku.errors import DecodeError
from pywaku.segments import PayloadReceived, Reassembler, SegmentationConfig, split
from tests.support.damage import damaged

SMALL = SegmentationConfig(segment_size_bytes=64, enable_reed_solomon=True, parity_rate=0.5)

_names = st.text(max_size=20)


@st.composite
def groups(draw: st.DrawFn) -> tuple[ChannelEvent, ...]:
    """Something that matters, by all its names."""
    one, other = draw(_names), draw(_names)
    info = ChunkInfo(tuple(draw(st.lists(st.integers(0, 254), max_size=5))), draw(st.integers(0, 255)))
    names = tuple(draw(st.lists(_names, max_size=3)))
    payload = draw(st.binary())
    return draw(
        st.sampled_from(
            [
                (MessageReceived(payload, one), ReliableMessageReceived(payload, one)),
                (IrretrievableMessage(names, draw(st.none() | _names), one),),
                (MessageAcknowledged(one, info), ReliableMessageDelivered(one, names)),
                (SendingMessageIrrecoverableError(one, info, other), ReliableMessageSendError(one, other)),
                (
                    SendingMessageIrrecoverableError(one, info, other),
                    ReliableMessageDeliveryError(one, other),
                ),
                (EphemeralMessageDropped(one, other),),
            ]
        )
    )


@given(groups())
def test_events_that_matter_come_back_as_they_were(group: tuple[ChannelEvent, ...]) -> None:
    row = encode_events(group)
    assert row is not None
    assert decode_events(row) == group


def test_events_of_progress_are_not_kept() -> None:
    info = ChunkInfo((0,), 2)
    for event in (MessageSent("m", info), MessageAcknowledged("m", info), MessageReceived(b"", "s", True)):
        assert encode_events((event,)) is None


def test_two_names_of_one_thing_make_one_row() -> None:
    info = ChunkInfo((0,), 1)
    events: list[ChannelEvent] = [
        MessageAcknowledged("m", info),
        MessageAcknowledged("n", info),
        ReliableMessageDelivered("n", ()),
        SendingMessageIrrecoverableError("m", info, "e"),
        ReliableMessageSendError("m", "e"),
        MessageReceived(b"1", "s"),
        ReliableMessageReceived(b"1", "s"),
    ]
    assert [len(group) for group in groups_of(events)] == [1, 2, 2, 2]
    assert [event for group in groups_of(events) for event in group] == events


@given(groups(), st.randoms(use_true_random=False))
def test_a_damaged_event_is_a_decode_error(group: tuple[ChannelEvent, ...], rng: random.Random) -> None:
    row = encode_events(group)
    assert row is not None
    with contextlib.suppress(DecodeError):
        decode_events(damaged(row, b'["received","x",7]', rng))


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"{}",
        b"[",
        b"\xff",
        b"[" * 100_000,
        b'["received"]\n',
        b'["received","x"]',
        b'["delivered","m",["a",7],[0],1]',
        b'["delivered","m",["a"],["0"],1]',
        b'["irretrievable","m",null,"r"]',
        b'["unheard-of"]',
    ],
    ids=range(11),
)
def test_an_event_of_another_shape_is_a_decode_error(row: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_events(row)


@given(st.lists(st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers())))
def test_values_come_back_from_a_row(values: list[object]) -> None:
    assert unpack(pack(*values)) == values


# Segments


def _apply(rows: dict[str, bytes], changes: list[RowChange]) -> None:
    for table, key, value in changes:
        assert table == SEGMENTS
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value


def _of(rows: dict[str, bytes], rng: random.Random) -> list[Row]:
    found = [Row(SEGMENTS, key, value) for key, value in rows.items()]
    rng.shuffle(found)  # stores give them in no particular order
    return found


@given(
    payloads=st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=4),
    rng=st.randoms(use_true_random=False),
)
def test_partially_reassembled_messages_must_survive_restarts(
    payloads: list[bytes], rng: random.Random
) -> None:
    """RELIABLE-CHANNEL-API, SegmentationConfig.persistence: at any segment, any number of times."""
    segments = [
        (f"{number}.{place}", f"sender-{number % 2}", segment)
        for number, payload in enumerate(payloads)
        for place, segment in enumerate(split(payload, SMALL))
    ]
    rng.shuffle(segments)
    kept: KeptHeads = {}
    rows: dict[str, bytes] = {}
    reassembler = Reassembler()
    received: list[bytes] = []
    for segment_id, sender, segment in segments:
        step = reassembler.receive(segment, sender=sender, segment_id=segment_id, now=1.0)
        received += [event.payload for event in step.events if isinstance(event, PayloadReceived)]
        _apply(rows, segment_rows(step.changes, kept))
        if rng.random() < 0.3:
            again: KeptHeads = {}
            reassembler = Reassembler(None, kept_sendings(_of(rows, rng), again), 1.0)
            assert again == kept
            kept = again
    assert sorted(received) == sorted(payloads)


def test_a_settled_reassembly_keeps_no_payloads() -> None:
    kept: KeptHeads = {}
    rows: dict[str, bytes] = {}
    reassembler = Reassembler()
    for place, segment in enumerate(split(bytes(300), SMALL)):
        step = reassembler.receive(segment, sender="s", segment_id=f"{place}", now=1.0)
        _apply(rows, segment_rows(step.changes, kept))
    assert max(len(value) for key, value in rows.items() if "/" in key) == 18


def _some_rows() -> dict[str, bytes]:
    kept: KeptHeads = {}
    rows: dict[str, bytes] = {}
    reassembler = Reassembler()
    for number, payload in enumerate((bytes(300), bytes(40))):
        for place, segment in enumerate(list(split(payload, SMALL))[: 2 if number == 0 else None]):
            step = reassembler.receive(segment, sender="s", segment_id=f"{number}.{place}", now=1.0)
            _apply(rows, segment_rows(step.changes, kept))
    return rows


@given(st.randoms(use_true_random=False))
def test_damaged_segments_are_a_decode_error(rng: random.Random) -> None:
    rows = _some_rows()
    key = rng.choice(sorted(rows))
    if rng.random() < 0.3:
        rows[damaged(key.encode(), b"1/2!", rng).decode(errors="replace")] = rows.pop(key)
    else:
        rows[key] = damaged(rows[key], b"[true]", rng)
    with contextlib.suppress(DecodeError):
        Reassembler(None, kept_sendings(_of(rows, rng), {}), 1.0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("x", b"[]"),
        ("-1", b"[]"),
        ("1/x", bytes(18)),
        ("1/2/3", bytes(18)),
        ("1/2", bytes(17)),
        ("x!", b""),
        ("²", b"[]"),
        ("1", b'["s","zz",1,0,false]'),
        ("1", b'["s","00",1,0]'),
    ],
)
def test_rows_of_segments_of_another_shape_are_a_decode_error(key: str, value: bytes) -> None:
    with pytest.raises(DecodeError):
        kept_sendings([Row(SEGMENTS, key, value)], {})
