"""Length-delimited frames, however the bytes arrive."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import DecodeError
from pywaku.wire import varint
from pywaku.wire.framing import FrameDecoder, frame


@given(st.lists(st.binary(max_size=400), max_size=8), st.lists(st.integers(0, 3000), max_size=20))
def test_frames_come_out_whole_however_the_bytes_are_cut(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, payloads))
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    decoder = FrameDecoder(400)
    found: list[bytes] = []
    for start, stop in itertools.pairwise(bounds):
        found += decoder.feed(stream[start:stop])
    assert found == payloads
    assert decoder.pending == 0
    decoder.finish()


def test_frames_come_out_as_soon_as_they_are_complete() -> None:
    decoder = FrameDecoder(1000)
    found: list[int] = []
    for byte in frame(b"a" * 300) + frame(b"") + frame(b"b"):
        found += map(len, decoder.feed(bytes((byte,))))
        if not found:
            assert decoder.pending > 0
    assert found == [300, 0, 1]


def test_a_frame_of_the_maximum_size_is_allowed() -> None:
    assert FrameDecoder(300).feed(frame(bytes(300))) == [bytes(300)]
    assert FrameDecoder(0).feed(b"\x00\x00") == [b"", b""]


@pytest.mark.parametrize("size", [301, 2**20, 2**63, 2**64 - 1])
def test_a_length_above_the_maximum_is_refused_before_its_body_arrives(size: int) -> None:
    decoder = FrameDecoder(300)
    with pytest.raises(DecodeError, match=f"a frame of {size} bytes is larger than 300"):
        decoder.feed(varint.encode(size))
    assert decoder.pending == 0


def test_a_length_above_the_maximum_is_refused_in_pieces_too() -> None:
    decoder = FrameDecoder(300)
    assert decoder.feed(b"\xff") == []
    assert decoder.pending == 1
    with pytest.raises(DecodeError):
        decoder.feed(b"\xff\x03" + bytes(1000))
    assert decoder.pending == 0


@pytest.mark.parametrize("length", [b"\x80\x00", b"\x81\x80\x00", b"\xff" * 10, b"\xff" * 9 + b"\x02"])
def test_a_length_that_is_no_minimal_varint_is_refused(length: bytes) -> None:
    with pytest.raises(DecodeError):
        FrameDecoder(300).feed(length)
    pieces = FrameDecoder(300)
    for byte in length[:-1]:
        assert pieces.feed(bytes((byte,))) == []
    with pytest.raises(DecodeError):
        pieces.feed(length[-1:])


def test_after_a_refusal_everything_is_refused() -> None:
    decoder = FrameDecoder(5)
    with pytest.raises(DecodeError):
        decoder.feed(b"\x06")
    with pytest.raises(DecodeError):
        decoder.feed(frame(b"fine"))


@pytest.mark.parametrize("part", [b"\x80", b"\x05", b"\x05abcd", b"\x01a\x02b"])
def test_a_stream_that_ends_within_a_frame_is_refused(part: bytes) -> None:
    decoder = FrameDecoder(300)
    decoder.feed(part)
    with pytest.raises(DecodeError, match="ended within a frame"):
        decoder.finish()


def test_never_more_is_held_than_the_largest_frame_and_its_length() -> None:
    decoder = FrameDecoder(1000)
    stream = frame(bytes(1000)) * 3
    for start in range(0, len(stream), 7):
        decoder.feed(stream[start : start + 7])
        assert decoder.pending <= 1002


def test_a_frame_in_very_many_pieces_costs_no_more_than_its_bytes() -> None:
    decoder = FrameDecoder(1 << 20)
    payload = bytes(1 << 20)
    stream = frame(payload)
    found: list[bytes] = []
    for start in range(0, len(stream), 8):  # 131,073 pieces: with a quadratic decoder this takes minutes
        found += decoder.feed(stream[start : start + 8])
    assert found == [payload]
