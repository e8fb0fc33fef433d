"""Segments of payloads too large for one message (MESSAGE-SEGMENTATION-AND-RECONSTRUCTION, Wire Format)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pywaku.errors import DecodeError
from pywaku.wire.proto import parse, segments_pb2

HASH_SIZE: Final = 32
MAX_TOTAL_SEGMENTS: Final = 256
"""`maxTotalSegments`: data and parity segments of a payload are fewer than this."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a payload, or, if `is_parity`, what helps to do without some parts.

    `index` counts the segments of its own kind from zero (`data_segment_index` or `parity_segment_index`).
    """

    entire_message_hash: bytes
    index: int
    data_segment_count: int
    payload: bytes
    parity_segment_count: int = 0
    is_parity: bool = False


def encode_segment(segment: Segment) -> bytes:
    """The segment in protobuf."""
    return segments_pb2.SegmentMessageProto(
        entire_message_hash=segment.entire_message_hash,
        data_segment_index=0 if segment.is_parity else segment.index,
        data_segment_count=segment.data_segment_count,
        payload=segment.payload,
        parity_segment_index=segment.index if segment.is_parity else 0,
        parity_segment_count=segment.parity_segment_count,
        is_parity=segment.is_parity,
    ).SerializeToString(deterministic=True)


def decode_segment(data: bytes) -> Segment:
    """The segment in `data`, which has passed all checks of the specification (Validation)."""
    found = parse(segments_pb2.SegmentMessageProto, data)
    if found.is_parity:
        index, other = found.parity_segment_index, found.data_segment_index
    else:
        index, other = found.data_segment_index, found.parity_segment_index
    segment = Segment(
        found.entire_message_hash,
        index,
        found.data_segment_count,
        found.payload,
        found.parity_segment_count,
        found.is_parity,
    )
    objection = objection_to(segment)
    if objection is not None:
        raise DecodeError(objection)
    if other:
        raise DecodeError("a segment is numbered both as data and as parity")
    return segment


def objection_to(segment: Segment) -> str | None:
    """What is wrong with a segment by the specification (Validation); None if nothing is."""
    if len(segment.entire_message_hash) != HASH_SIZE:
        return f"the hash in a segment has {HASH_SIZE} bytes, not {len(segment.entire_message_hash)}"
    data_count, parity_count = segment.data_segment_count, segment.parity_segment_count
    if data_count < 1:
        return "a segment says that there are no data segments"
    if data_count + parity_count >= MAX_TOTAL_SEGMENTS:
        return f"{data_count + parity_count} segments are not fewer than {MAX_TOTAL_SEGMENTS}"
    count = parity_count if segment.is_parity else data_count
    if not 0 <= segment.index < count:
        return f"a segment is number {segment.index} of {count}, counted from 0"
    return None
