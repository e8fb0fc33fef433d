"""Messages of Scalable Data Sync (SDS, Wire protocol)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pywaku.errors import DecodeError
from pywaku.wire.proto import parse, sds_pb2

MAX_HISTORY: Final = 1_000
"""Entries that a causal history, or a repair request, may have."""


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
    def kind(self) -> SdsKind:
        """What the message is for, as its timestamp and its content tell."""
        if not self.content:
            return SdsKind.SYNC
        return SdsKind.EPHEMERAL if self.lamport_timestamp is None else SdsKind.CONTENT


def encode_sds(message: SdsMessage) -> bytes:
    """The message in protobuf."""
    return sds_pb2.Message(
        sender_id=message.sender_id,
        message_id=message.message_id,
        channel_id=message.channel_id,
        lamport_timestamp=message.lamport_timestamp,
        causal_history=_entries_to_proto(message.causal_history),
        bloom_filter=message.bloom_filter,
        repair_request=_entries_to_proto(message.repair_request),
        content=message.content,
    ).SerializeToString(deterministic=True)


def decode_sds(data: bytes) -> SdsMessage:
    """The message in `data`; one with neither a timestamp nor content is none."""
    found = parse(sds_pb2.Message, data)
    timed = found.HasField("lamport_timestamp")
    if not timed and not found.content:
        raise DecodeError("an SDS message has neither a lamport timestamp nor content")
    return SdsMessage(
        found.sender_id,
        found.message_id,
        found.channel_id,
        found.lamport_timestamp if timed else None,
        _entries("causal history", found.causal_history),
        found.bloom_filter if found.HasField("bloom_filter") else None,
        _entries("repair request", found.repair_request),
        found.content if found.HasField("content") else None,
    )


def _entries_to_proto(entries: Iterable[HistoryEntry]) -> list[sds_pb2.HistoryEntry]:
    return [
        sds_pb2.HistoryEntry(
            message_id=entry.message_id, retrieval_hint=entry.retrieval_hint, sender_id=entry.sender_id
        )
        for entry in entries
    ]


def _entries(what: str, entries: Iterable[sds_pb2.HistoryEntry]) -> tuple[HistoryEntry, ...]:
    found = tuple(
        [
            HistoryEntry(
                entry.message_id,
                entry.retrieval_hint if entry.HasField("retrieval_hint") else None,
                entry.sender_id if entry.HasField("sender_id") else None,
            )
            for entry in entries
        ]
    )
    if len(found) > MAX_HISTORY:
        raise DecodeError(f"a {what} has {len(found)} entries; {MAX_HISTORY} are allowed")
    return found
