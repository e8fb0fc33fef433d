"""What a channel saves: rows of named tables, written in one transaction per step."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar, cast

from pywaku.errors import DecodeError
from pywaku.segments import (
    Change as SegmentChange,
)
from pywaku.segments import (
    KeptSending,
    SegmentKept,
    SendingForgotten,
    SendingOpened,
    SendingSettled,
)

OUTBOX: Final = "outbox"
EVENTS: Final = "events"
SEGMENTS: Final = "segments"
META: Final = "meta"
CHARGES: Final = "charges"

_HEAD: Final = 18  # the position of a segment, and its key
_DIGEST: Final = re.compile("([0-9a-f]{2})*")

T = TypeVar("T")


class RowChange(NamedTuple):
    """Put a row into a table, or (`value` is None) delete it if it is there."""

    table: str
    key: str
    value: bytes | None


class Row(NamedTuple):
    """A saved row."""

    table: str
    key: str
    value: bytes


KeptHeads = dict[int, list[bytes]]
"""Position and key of each stored segment, by the number of its sending."""


def segment_rows(changes: Sequence[SegmentChange], kept: KeptHeads) -> list[RowChange]:
    """What a reassembler wants stored, as rows; `kept` is brought up to date."""
    rows: list[RowChange] = []
    for change in changes:
        number = change.number
        match change:
            case SendingOpened():
                rows.append(RowChange(SEGMENTS, f"{number}", _opened(change)))
                kept[number] = []
            case SegmentKept(_, position, key, payload):
                head = position.to_bytes(2) + key
                rows.append(RowChange(SEGMENTS, f"{number}/{len(kept[number])}", head + payload))
                kept[number].append(head)
            case SendingSettled():
                rows.append(RowChange(SEGMENTS, f"{number}!", b""))
                rows += [
                    RowChange(SEGMENTS, f"{number}/{place}", head) for place, head in enumerate(kept[number])
                ]
            case SendingForgotten():
                heads = kept.pop(number, [])
                keys = [f"{number}", f"{number}!", *(f"{number}/{place}" for place in range(len(heads)))]
                rows += [RowChange(SEGMENTS, key, None) for key in keys]
    return rows


def kept_sendings(rows: Iterable[Row], kept: KeptHeads) -> list[KeptSending]:
    """The sendings that such rows are of."""
    opened: dict[int, SendingOpened] = {}
    segments: dict[int, list[tuple[int, SegmentKept]]] = {}
    settled: set[int] = set()
    for row in rows:
        number, slash, place = row.key.removesuffix("!").partition("/")
        if row.key.endswith("!"):
            settled.add(_number(number))
        elif slash:
            value = row.value
            if len(value) < _HEAD:
                raise DecodeError("a saved segment of a channel is damaged")
            segment = SegmentKept(_number(number), int.from_bytes(value[:2]), value[2:_HEAD], value[_HEAD:])
            segments.setdefault(_number(number), []).append((_number(place), segment))
        else:
            opened[_number(number)] = _read_opened(_number(number), row.value)
    found: list[KeptSending] = []
    for number, sending in sorted(opened.items()):
        own = sorted(segments.get(number, ()), key=lambda item: item[0])
        kept[number] = [each.position.to_bytes(2) + each.segment_key for _, each in own]
        done = sending.settled or number in settled
        found.append(
            KeptSending(
                SendingOpened(
                    number,
                    sending.sender,
                    sending.entire_message_hash,
                    sending.data_segment_count,
                    sending.parity_segment_count,
                    settled=done,
                ),
                tuple(
                    SegmentKept(number, each.position, each.segment_key, b"") if done else each
                    for _, each in own
                ),
            )
        )
    return found


def pack(*values: object) -> bytes:
    """Numbers, texts and lists of them as a row."""
    return json.dumps(values, separators=(",", ":")).encode()


def unpack(value: bytes) -> list[Any]:
    """The values in a row; raises `DecodeError`."""
    try:
        return list_of(object, json.loads(value))
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"a row of a saved channel is damaged: {error}") from None


def list_of(kind: type[T], values: Any) -> list[T]:
    """These values, if they are a list of that kind; raises `DecodeError`."""
    if isinstance(values, list):
        found = cast("list[Any]", values)
        if all(isinstance(value, kind) for value in found):
            return found
    raise DecodeError(f"a row of a saved channel is damaged: this is no list of {kind.__name__}")


def _opened(change: SendingOpened) -> bytes:
    return pack(
        change.sender,
        change.entire_message_hash.hex(),
        change.data_segment_count,
        change.parity_segment_count,
        change.settled,
    )


def _read_opened(number: int, value: bytes) -> SendingOpened:
    match unpack(value):
        case [str(sender), str(digest), int(data), int(parity), bool(settled)] if _DIGEST.fullmatch(digest):
            return SendingOpened(number, sender, bytes.fromhex(digest), data, parity, settled)
        case _:
            raise DecodeError("a saved reassembly of a channel is damaged")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise DecodeError(f"a saved segment of a channel has no number, but {text!r}")
    return int(text)
