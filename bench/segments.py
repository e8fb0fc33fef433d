"""Segmentation: payloads cut and put together against a bare copy and hash; and Reed-Solomon alone."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Final

from bench.report import Row, compare
from bench.sides import Scale
from pywaku.segments import PayloadReceived, Reassembler, SegmentationConfig, entire_message_hash, split
from pywaku.segments.leopard import encode, recover
from pywaku.wire.segments import decode_segment, encode_segment

_PAYLOAD_SIZE: Final = 1024 * 1024
_PAYLOADS: Final = 50
_SHARD_SIZE: Final = 100 * 1024
_SHARDS: Final = ((10, 2), (64, 8), (224, 28))
_CONFIG: Final = SegmentationConfig(enable_reed_solomon=True)
REED_SOLOMON_NAMES: Final = tuple(
    f"rs-{what}-{data}+{parity}" for data, parity in _SHARDS for what in ("encode", "decode")
)


async def segments(scale: Scale) -> list[Row]:
    """Payloads of 1 MiB with parity at 0.125, wire format included; decoded after the worst possible loss."""
    payload = os.urandom(_PAYLOAD_SIZE)
    size = _CONFIG.segment_size_bytes
    cut = [payload[start : start + size] for start in range(0, len(payload), size)]
    lossy = _with_worst_loss(payload)
    count = scale.of(_PAYLOADS)

    def ours_encode() -> None:
        for segment in split(payload, _CONFIG):
            encode_segment(segment)

    def bare_encode() -> None:
        entire_message_hash(payload)
        for start in range(0, len(payload), size):
            payload[start : start + size]

    def ours_decode() -> None:
        reassembler = Reassembler()
        for number, data in enumerate(lossy):
            step = reassembler.receive(decode_segment(data), sender="a", segment_id=f"{number}", now=0.0)
        (event,) = step.events  # pyright: ignore[reportPossiblyUnboundVariable]
        assert isinstance(event, PayloadReceived)
        assert len(event.payload) == _PAYLOAD_SIZE

    def bare_decode() -> None:
        entire_message_hash(b"".join(cut))

    return [
        _against_bare("segments-encode", ours_encode, bare_encode, count, scale.rounds),
        _against_bare("segments-decode", ours_decode, bare_decode, count, scale.rounds),
    ]


def _with_worst_loss(payload: bytes) -> list[bytes]:
    """Segments on the wire, without as many as there is parity; the last data segment is one of them."""
    segmented = split(payload, _CONFIG)
    first_lost = segmented.data_segment_count - segmented.parity_segment_count
    return [
        encode_segment(segment)
        for position, segment in enumerate(segmented)
        if not first_lost <= position < segmented.data_segment_count
    ]


def _against_bare(
    name: str, ours: Callable[[], None], bare: Callable[[], None], count: int, rounds: int
) -> Row:
    speeds: dict[Callable[[], None], list[float]] = {ours: [], bare: []}
    for _ in range(rounds):
        for work, measured in speeds.items():
            measured.append(count * _PAYLOAD_SIZE / 1e6 / _seconds(work, count))
    return compare(
        name,
        ours=statistics.median(speeds[ours]),
        theirs=statistics.median(speeds[bare]),
        peer="copy and Keccak-256 alone",
        goal=0.5,
        unit="MB/s",
    )


async def reed_solomon(scale: Scale) -> list[Row]:
    """Megabytes of data for which parity is made, or out of which as much as there is parity was lost."""
    rows: list[Row] = []
    for data_count, parity_count in _SHARDS:
        data = [os.urandom(_SHARD_SIZE) for _ in range(data_count)]
        parity = dict(enumerate(encode(data, parity_count)))
        holed = [None if index < parity_count else shard for index, shard in enumerate(data)]
        works: tuple[tuple[str, Callable[[], object]], ...] = (
            ("encode", lambda data=data, count=parity_count: encode(data, count)),
            ("decode", lambda data=holed, kept=parity, count=parity_count: recover(data, kept, count)),
        )
        for what, work in works:
            once = max(1, scale.of(512) // data_count)
            times = [_seconds(work, once) / once for _ in range(scale.rounds)]
            speed = data_count * _SHARD_SIZE / 1e6 / statistics.median(times)
            rows.append(compare(f"rs-{what}-{data_count}+{parity_count}", ours=speed, unit="MB/s"))
    return rows


def _seconds(work: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        work()
    return time.perf_counter() - start
