"""MESSAGE-SEGMENTATION-AND-RECONSTRUCTION, Sending; RELIABLE-CHANNEL-API, SegmentationConfig."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import InvalidInput
from pywaku.segments import SegmentationConfig, entire_message_hash, split
from pywaku.segments.leopard import encode, fits
from pywaku.wire.segments import decode_segment, encode_segment, objection_to
from tests.support.segmented import PLAIN, SIZE, WITH_PARITY, payload_of, segments_of, with_parity

WIRE: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "wire" / "data" / "segments.json").read_text(encoding="utf-8")
)


def test_defaults_are_those_of_the_specifications() -> None:
    config = SegmentationConfig()
    assert config.segment_size_bytes == 102_400
    assert config.enable_reed_solomon is False
    assert config.parity_rate == 0.125


def test_segments_on_the_wire_are_those_of_the_vectors() -> None:
    payload = bytes(range(150))
    wire = [encode_segment(segment).hex() for segment in split(b"hello")]
    wire += [encode_segment(segment).hex() for segment in split(payload, PLAIN)]
    wire += [encode_segment(segment).hex() for segment in split(payload, WITH_PARITY)]
    assert wire == [vector["hex"] for vector in WIRE]


def test_must_compute_a_32_byte_keccak256_hash() -> None:
    assert entire_message_hash(b"hello").hex() == (
        "1c8aff950685c2ed4bc3174f3472287b56d9517b9c948127319a09a7a36deac8"
    )
    assert {segment.entire_message_hash for segment in segments_of(payload_of(200), WITH_PARITY)} == {
        entire_message_hash(payload_of(200))
    }


@pytest.mark.parametrize("config", [PLAIN, WITH_PARITY])
@pytest.mark.parametrize("size", [0, 1, SIZE - 1, SIZE])
def test_a_payload_up_to_the_segment_size_is_a_single_data_segment(
    size: int, config: SegmentationConfig
) -> None:
    """Also with parity on: parity of one segment would be a copy of it."""
    (segment,) = segments_of(payload_of(size), config)
    assert (segment.index, segment.data_segment_count, segment.parity_segment_count) == (0, 1, 0)
    assert segment.payload == payload_of(size)


@given(st.binary(max_size=40 * SIZE), st.booleans())
def test_must_split_into_data_segments_of_up_to_the_segment_size(payload: bytes, parity: bool) -> None:
    segments = segments_of(payload, WITH_PARITY if parity else PLAIN)
    data = [segment for segment in segments if not segment.is_parity]
    assert b"".join(segment.payload for segment in data) == payload
    assert len(data) == max(1, -(-len(payload) // SIZE)) == segments[0].data_segment_count
    assert all(len(segment.payload) == SIZE for segment in data[:-1])
    assert [segment.index for segment in data] == list(range(len(data)))
    assert [segment.index for segment in segments[len(data) :]] == list(range(len(segments) - len(data)))


@given(st.binary(min_size=1, max_size=12 * SIZE))
def test_must_pad_the_last_segment_for_parity_but_not_on_the_wire(payload: bytes) -> None:
    segments = segments_of(payload, WITH_PARITY)
    data = [segment.payload for segment in segments if not segment.is_parity]
    parity = [segment.payload for segment in segments if segment.is_parity]
    assert len(data[-1]) == (len(payload) - 1) % SIZE + 1
    if parity:
        assert parity == encode([shard.ljust(SIZE, b"\0") for shard in data], len(parity))


def test_must_set_the_counts_on_every_segment() -> None:
    segments = segments_of(payload_of(20 * SIZE), WITH_PARITY)
    assert len(segments) == 23
    assert {(s.data_segment_count, s.parity_segment_count) for s in segments} == {(20, 3)}
    plain = segments_of(payload_of(20 * SIZE))
    assert {(s.data_segment_count, s.parity_segment_count) for s in plain} == {(20, 0)}


@given(st.integers(0, 255 * SIZE), st.floats(0.001, 1))
def test_all_that_is_made_is_valid_and_within_leopard(size: int, rate: float) -> None:
    data, parity = with_parity(rate).counts(size)
    assert data + parity < 256
    assert parity <= data
    assert (parity == 0) == (data in (1, 255))
    assert not parity or fits(data, parity)


@pytest.mark.parametrize("config", [PLAIN, WITH_PARITY, with_parity(1)])
def test_segments_pass_the_checks_of_receivers(config: SegmentationConfig) -> None:
    for segments in (1, 2, 10, 127, 128, 200, 254, 255):
        for segment in segments_of(payload_of(segments * SIZE), config):
            assert objection_to(segment) is None
            assert decode_segment(encode_segment(segment)) == segment


@pytest.mark.parametrize(
    ("rate", "data", "parity"),
    [
        (0.125, 2, 1),
        (0.125, 8, 1),
        (0.125, 10, 2),
        (0.125, 64, 8),
        (0.125, 224, 28),
        (0.125, 225, 16),  # 29 would need 32 points, and there are 31
        (0.125, 240, 15),  # 30 would be 270 in all
        (0.125, 253, 2),
        (0.125, 254, 1),
        (0.125, 255, 0),
        (0.07, 100, 7),
        (0.3, 20, 6),
        (1, 2, 2),
        (1, 128, 127),
        (1, 129, 64),
    ],
)
def test_parity_is_the_rate_rounded_up_as_far_as_it_goes(rate: float, data: int, parity: int) -> None:
    assert with_parity(rate).counts(data * SIZE) == (data, parity)


def test_too_large_a_payload_says_what_would_be_possible() -> None:
    assert SegmentationConfig().max_payload_bytes == 26_112_000
    assert len(split(bytes(255 * SIZE), PLAIN)) == 255
    with pytest.raises(InvalidInput, match="at most 16320 bytes, in 255 segments"):
        split(bytes(255 * SIZE + 1), PLAIN)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"segment_size_bytes": 0}, "at least one byte, not 0"),
        ({"segment_size_bytes": 100, "enable_reed_solomon": True}, "multiple of 64, which 100 is not"),
        ({"parity_rate": 0}, "above 0 and at most 1, not 0"),
        ({"parity_rate": 1.5}, "above 0 and at most 1"),
        ({"parity_rate": float("nan")}, "above 0 and at most 1"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        SegmentationConfig(**options)


def test_without_parity_any_segment_size_will_do() -> None:
    assert len(split(bytes(100), SegmentationConfig(segment_size_bytes=7))) == 15


def test_a_segmented_payload_is_a_sequence_cut_as_needed() -> None:
    segmented = split(payload_of(3 * SIZE), WITH_PARITY)
    assert len(segmented) == 4
    assert (segmented.data_segment_count, segmented.parity_segment_count) == (3, 1)
    assert segmented[1] == list(segmented)[1]
    assert segmented[3].is_parity
    for position in (-1, 4):
        with pytest.raises(IndexError, match="4 segments"):
            segmented[position]
