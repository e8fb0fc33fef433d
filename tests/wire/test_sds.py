"""SDS, Wire protocol: known encodings, and what each message is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pywaku.errors import DecodeError
from pywaku.wire.sds import (
    MAX_ID_LENGTH,
    EntryMemo,
    HistoryEntry,
    SdsKind,
    SdsMessage,
    decode_sds,
    encode_entry,
    encode_sds,
)
from tests.support.fields import field

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "data" / "sds.json").read_text(encoding="utf-8")
)


def optional_bytes(value: str | None) -> bytes | None:
    return None if value is None else bytes.fromhex(value)


def history(entries: list[dict[str, Any]]) -> tuple[HistoryEntry, ...]:
    return tuple(
        HistoryEntry(entry["message_id"], optional_bytes(entry["retrieval_hint"]), entry["sender_id"])
        for entry in entries
    )


@pytest.mark.parametrize("vector", VECTORS["messages"], ids=lambda vector: vector["name"])
def test_known_encodings(vector: dict[str, Any]) -> None:
    message = SdsMessage(
        sender_id=vector["sender_id"],
        message_id=vector["message_id"],
        channel_id=vector["channel_id"],
        lamport_timestamp=vector["lamport_timestamp"],
        causal_history=history(vector["causal_history"]),
        bloom_filter=optional_bytes(vector["bloom_filter"]),
        repair_request=history(vector["repair_request"]),
        content=optional_bytes(vector["content"]),
    )
    encoding = bytes.fromhex(vector["hex"])
    assert encode_sds(message) == encoding
    assert decode_sds(encoding) == message
    assert message.kind is SdsKind(vector["kind"])


@pytest.mark.parametrize("vector", VECTORS["none"], ids=lambda vector: vector["name"])
def test_known_encodings_of_what_is_no_message(vector: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        decode_sds(bytes.fromhex(vector["hex"]))


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        (field(10, 0) + field(20, b"x"), SdsKind.CONTENT),
        (field(20, b"x"), SdsKind.EPHEMERAL),
        (field(10, 1), SdsKind.SYNC),
        (field(10, 1) + field(20, b""), SdsKind.SYNC),
    ],
)
def test_timestamp_and_content_tell_the_kind(fields: bytes, kind: SdsKind) -> None:
    assert decode_sds(fields).kind is kind


@pytest.mark.parametrize("fields", [b"", field(20, b""), field(1, b"sender") + field(12, b"bloom")])
def test_without_timestamp_and_content_it_is_no_message(fields: bytes) -> None:
    with pytest.raises(DecodeError, match="neither a lamport timestamp nor content"):
        decode_sds(fields)


def test_the_last_value_of_a_field_wins_and_unknown_fields_are_skipped() -> None:
    found = decode_sds(field(1, b"s") + field(99, b"?") + field(10, 1) + field(1, b"t") + field(20, b"x"))
    assert found == SdsMessage("t", "", "", lamport_timestamp=1, content=b"x")


@pytest.mark.parametrize("number", [11, 13])
def test_histories_are_bounded(number: int) -> None:
    entry = field(number, field(1, b"id"))
    decode_sds(field(10, 1) + entry * 1000)
    with pytest.raises(DecodeError, match="1001 entries"):
        decode_sds(field(10, 1) + entry * 1001)


@pytest.mark.parametrize(
    "fields", [field(1, b"\xff"), field(11, field(1, b"\xff")), field(13, field(3, b"\xff"))]
)
def test_ids_that_are_not_utf_8_are_refused(fields: bytes) -> None:
    with pytest.raises(DecodeError, match="not a "):
        decode_sds(field(10, 1) + fields)


@pytest.mark.parametrize("length", [MAX_ID_LENGTH, MAX_ID_LENGTH + 1])
@pytest.mark.parametrize("numbers", [(1,), (2,), (3,), (11, 1), (11, 2), (11, 3), (13, 1), (13, 2), (13, 3)])
def test_ids_and_hints_are_bounded(length: int, numbers: tuple[int, ...]) -> None:
    data = b"x" * length
    for number in reversed(numbers):
        data = field(number, data)
    if length == MAX_ID_LENGTH:
        decode_sds(field(10, 1) + data)
    else:
        with pytest.raises(DecodeError, match="513"):
            decode_sds(field(10, 1) + data)


def test_entries_that_came_before_are_the_same_values_and_a_memo_is_bounded() -> None:
    memo = EntryMemo(limit=3)
    entries = tuple(HistoryEntry(f"id-{number}", b"hint", "sender") for number in range(3))
    data = encode_sds(SdsMessage("s", "m", "c", 1, entries, repair_request=entries))
    first, second = decode_sds(data, memo), decode_sds(data, memo)
    assert first == second == decode_sds(data)
    assert all(one is other for one, other in zip(first.causal_history, second.causal_history, strict=True))
    more = tuple(HistoryEntry(f"more-{number}") for number in range(10))
    message = SdsMessage("s", "m", "c", 1, more)
    assert decode_sds(encode_sds(message), memo) == message
    assert len(memo) <= 3


def test_what_is_no_entry_is_refused_each_time() -> None:
    memo = EntryMemo()
    for _ in range(2):
        with pytest.raises(DecodeError, match="HistoryEntry"):
            decode_sds(field(10, 1) + field(11, b"\xff"), memo)
    assert not memo


def test_encoded_entries_take_the_place_of_the_history() -> None:
    entries = (HistoryEntry("a", b"hint", "alice"), HistoryEntry("b", None, ""), HistoryEntry(""))
    message = SdsMessage("s", "m", "c", 1, content=b"x")
    whole = SdsMessage("s", "m", "c", 1, entries, content=b"x")
    assert encode_sds(message, [encode_entry(entry) for entry in entries]) == encode_sds(whole)
    assert decode_sds(encode_sds(whole)) == whole
    assert whole.history_ids == ["a", "b", ""]
