"""Messages of Scalable Data Sync (SDS, Wire protocol)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pywaku.errors import DecodeError
from pywaku.wire import varint
from pywaku.wire.proto import parse, sds_pb2
from pywaku.wire.protobuf_lite import bytes_field, text_field

MAX_HISTORY: Final = 1_000
"""Entries that a causal history, or a repair request, may have."""
MAX_ID_LENGTH: Final = 512
"""Characters of an id, and bytes of a retrieval hint: what is kept of a message has to have a bound."""

_CAUSAL_HISTORY: Final = 11
_REPAIR_REQUEST: Final = 13
_LAMPORT_TAG: Final = varint.encode(10 << 3)


class SdsKind(Enum):
    """What a message is for."""

    CONTENT = "content"
    """It has content and takes part in the log."""
    EPHEMERAL = "ephemeral"
    """It has content and takes no part in the log (SDS, Ephemeral Messages)."""
    SYNC = "sync"
    """It has no content, and tells what its sender knows (SDS, Periodic Sync Message)."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """A message that another one depends on; `sender_id` is for SDS Repair."""

    message_id: str
    retrieval_hint: bytes | None = None
    sender_id: str | None = None


@dataclass(frozen=True, slots=True)
class SdsMessage:
    """A message of a channel (`Message` in the specification)."""

    sender_id: str
    message_id: str
    channel_id: str
    lamport_timestamp: int | None = None
    causal_history: tuple[HistoryEntry, ...] = ()
    bloom_filter: bytes | None = None
    repair_request: tuple[HistoryEntry, ...] = ()
    content: bytes | None = None

    @property
    def history_ids(self) -> list[str]:
        """The ids in the causal history."""
        return [entry.message_id for entry in self.causal_history]

    @property
    def kind(self) -> SdsKind:
        """What the message is for, as its timestamp and its content tell."""
        if not self.content:
            return SdsKind.SYNC
        return SdsKind.EPHEMERAL if self.lamport_timestamp is None else SdsKind.CONTENT


class EntryMemo(dict[bytes, HistoryEntry]):
    """Entries decoded before, by their encoding; forgets all of them when there are `limit`.

    With 200 entries a message, 199 were in the one before: decoding them anew is most of the work.
    """

    def __init__(self, limit: int = 2_048) -> None:
        super().__init__()
        self._limit = limit

    def __missing__(self, encoding: bytes) -> HistoryEntry:
        entry = _entry(encoding)
        if len(self) >= self._limit:
            self.clear()
        self[encoding] = entry
        return entry


def encode_entry(entry: HistoryEntry) -> bytes:
    """An entry as a part of a message's causal history, for `encode_sds`."""
    return bytes_field(_CAUSAL_HISTORY, _entry_fields(entry))


def encode_sds(message: SdsMessage, history: Sequence[bytes] | None = None) -> bytes:
    """The message in protobuf; `history` (see `encode_entry`) takes the place of its causal history."""
    parts = [
        text_field(number, text)
        for number, text in ((1, message.sender_id), (2, message.message_id), (3, message.channel_id))
        if text
    ]
    if message.lamport_timestamp is not None:
        parts += (_LAMPORT_TAG, varint.encode(message.lamport_timestamp))
    if history is None:
        history = [encode_entry(entry) for entry in message.causal_history]
    parts += history
    if message.bloom_filter is not None:
        parts.append(bytes_field(12, message.bloom_filter))
    parts += [bytes_field(_REPAIR_REQUEST, _entry_fields(entry)) for entry in message.repair_request]
    if message.content is not None:
        parts.append(bytes_field(20, message.content))
    return b"".join(parts)


def decode_sds(data: bytes, memo: EntryMemo | None = None) -> SdsMessage:
    """The message in `data`; one with neither a timestamp nor content is none.

    With a `memo`, entries that came before are not decoded again.
    """
    found = parse(sds_pb2.Message, data)
    timed = found.HasField("lamport_timestamp")
    if not timed and not found.content:
        raise DecodeError("an SDS message has neither a lamport timestamp nor content")
    message = SdsMessage(
        found.sender_id,
        found.message_id,
        found.channel_id,
        found.lamport_timestamp if timed else None,
        _entries("causal history", found.causal_history, memo),
        found.bloom_filter if found.HasField("bloom_filter") else None,
        _entries("repair request", found.repair_request, memo),
        found.content if found.HasField("content") else None,
    )
    for name, text in (
        ("sender id", message.sender_id),
        ("message id", message.message_id),
        ("channel id", message.channel_id),
    ):
        if len(text) > MAX_ID_LENGTH:
            raise DecodeError(f"a {name} has {len(text)} characters; {MAX_ID_LENGTH} are allowed")
    return message


def _entry_fields(entry: HistoryEntry) -> bytes:
    fields = text_field(1, entry.message_id) if entry.message_id else b""
    if entry.retrieval_hint is not None:
        fields += bytes_field(2, entry.retrieval_hint)
    if entry.sender_id is not None:
        fields += text_field(3, entry.sender_id)
    return fields


def _entries(what: str, encodings: Iterable[bytes], memo: EntryMemo | None) -> tuple[HistoryEntry, ...]:
    parts = list(encodings)
    if len(parts) > MAX_HISTORY:
        raise DecodeError(f"a {what} has {len(parts)} entries; {MAX_HISTORY} are allowed")
    if memo is None:
        return tuple([_entry(part) for part in parts])
    return tuple([memo[part] for part in parts])


def _entry(encoding: bytes) -> HistoryEntry:
    found = parse(sds_pb2.HistoryEntry, encoding)
    entry = HistoryEntry(
        found.message_id,
        found.retrieval_hint if found.HasField("retrieval_hint") else None,
        found.sender_id if found.HasField("sender_id") else None,
    )
    longest = max(len(entry.message_id), len(entry.retrieval_hint or b""), len(entry.sender_id or ""))
    if longest > MAX_ID_LENGTH:
        raise DecodeError(f"a history entry has an id or a hint of {longest}; {MAX_ID_LENGTH} are allowed")
    return entry
