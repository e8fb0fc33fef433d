"""MESSAGE-SEGMENTATION-AND-RECONSTRUCTION, Wire Format and Validation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pywaku.errors import DecodeError
from pywaku.wire.segments import Segment, decode_segment, encode_segment
from tests.support.fields import field

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "segments.json").read_text(encoding="utf-8")
)
HASH = field(1, bytes(32))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_known_encodings(vector: dict[str, Any]) -> None:
    segment = Segment(
        bytes.fromhex(vector["entire_message_hash"]),
        vector["index"],
        vector["data_segment_count"],
        bytes.fromhex(vector["payload"]),
        vector["parity_segment_count"],
        vector["is_parity"],
    )
    assert encode_segment(segment) == bytes.fromhex(vector["hex"])
    assert decode_segment(bytes.fromhex(vector["hex"])) == segment


@pytest.mark.parametrize(
    ("fields", "segment"),
    [
        (field(3, 1), Segment(bytes(32), 0, 1, b"")),
        (field(2, 254) + field(3, 255), Segment(bytes(32), 254, 255, b"")),
        (field(3, 200) + field(6, 55), Segment(bytes(32), 0, 200, b"", 55)),
        (
            field(3, 1) + field(5, 1) + field(6, 2) + field(7, 1),
            Segment(bytes(32), 1, 1, b"", 2, is_parity=True),
        ),
    ],
)
def test_segments_that_are_allowed(fields: bytes, segment: Segment) -> None:
    assert decode_segment(HASH + fields) == segment


@pytest.mark.parametrize("size", [0, 31, 33])
def test_the_hash_must_have_32_bytes(size: int) -> None:
    with pytest.raises(DecodeError, match=f"32 bytes, not {size}"):
        decode_segment(field(1, bytes(size)) + field(3, 1))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (b"", "no data segments"),
        (field(6, 1) + field(7, 1), "no data segments"),
        (field(3, 256), "256 segments are not fewer than 256"),
        (field(3, 255) + field(6, 1), "256 segments are not fewer"),
        (field(3, 2**32 - 1) + field(6, 2**32 - 1), "are not fewer"),
        (field(2, 1) + field(3, 1), "number 1 of 1"),
        (field(2, 2**32 - 1) + field(3, 3), "number 4294967295 of 3"),
        (field(3, 3) + field(7, 1), "number 0 of 0"),
        (field(3, 3) + field(5, 2) + field(6, 2) + field(7, 1), "number 2 of 2"),
        (field(3, 3) + field(5, 1) + field(6, 2), "both as data and as parity"),
        (field(2, 1) + field(3, 3) + field(6, 2) + field(7, 1), "both as data and as parity"),
    ],
)
def test_no_other_combinations_are_permitted(fields: bytes, reason: str) -> None:
    with pytest.raises(DecodeError, match=reason):
        decode_segment(HASH + fields)
