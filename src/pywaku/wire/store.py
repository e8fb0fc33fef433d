"""Store queries: messages of the past, by content or by hash, in pages (13/WAKU2-STORE)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pywaku.errors import DecodeError
from pywaku.message import WakuMessage
from pywaku.wire.message import from_proto, to_proto
from pywaku.wire.proto import parse, store_pb2

PROTOCOL: Final = "/vac/waku/store-query/3.0.0"

HASH_SIZE: Final = 32
MAX_CONTENT_TOPICS: Final = 1_000
"""Content topics that one query may name."""
MAX_MESSAGE_HASHES: Final = 1_000
"""Hashes that one query may look up."""
MAX_MESSAGES: Final = 1_000
"""Entries that one response may have."""


@dataclass(frozen=True, slots=True)
class StoreQueryRequest:
    """A query by content (topics, both kinds together, and times in nanoseconds) or by hash.

    `time_start` is inclusive, `time_end` exclusive; `pagination_cursor` is the hash after which the page
    starts. A request that mixes both kinds of query, or has only one kind of topic, is decoded all the same:
    a store answers it with an error.
    """

    request_id: str
    include_data: bool = False
    pubsub_topic: str | None = None
    content_topics: tuple[str, ...] = ()
    time_start: int | None = None
    time_end: int | None = None
    message_hashes: tuple[bytes, ...] = ()
    pagination_cursor: bytes | None = None
    pagination_forward: bool = False
    pagination_limit: int | None = None


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A message hash and, if data was asked for, the message and its pubsub topic (`WakuMessageKeyValue`)."""

    message_hash: bytes
    message: WakuMessage | None = None
    pubsub_topic: str | None = None


@dataclass(frozen=True, slots=True)
class StoreQueryResponse:
    """A page of entries in ascending order; with a `pagination_cursor` there are more."""

    request_id: str
    status_code: int | None
    status_desc: str | None = None
    messages: tuple[StoreEntry, ...] = ()
    pagination_cursor: bytes | None = None

    @property
    def is_success(self) -> bool:
        """Whether the query was answered: the code is in the 2xx range."""
        return self.status_code is not None and 200 <= self.status_code < 300


def encode_request(request: StoreQueryRequest) -> bytes:
    """The request in protobuf."""
    return store_pb2.StoreQueryRequest(
        request_id=request.request_id,
        include_data=request.include_data,
        pubsub_topic=request.pubsub_topic,
        content_topics=request.content_topics,
        time_start=request.time_start,
        time_end=request.time_end,
        message_hashes=request.message_hashes,
        pagination_cursor=request.pagination_cursor,
        pagination_forward=request.pagination_forward,
        pagination_limit=request.pagination_limit,
    ).SerializeToString(deterministic=True)


def decode_request(data: bytes) -> StoreQueryRequest:
    """The request in `data`; its hashes have 32 bytes."""
    found = parse(store_pb2.StoreQueryRequest, data)
    _limit("content topics", len(found.content_topics), MAX_CONTENT_TOPICS)
    _limit("message hashes", len(found.message_hashes), MAX_MESSAGE_HASHES)
    return StoreQueryRequest(
        found.request_id,
        found.include_data,
        found.pubsub_topic if found.HasField("pubsub_topic") else None,
        tuple(found.content_topics),
        found.time_start if found.HasField("time_start") else None,
        found.time_end if found.HasField("time_end") else None,
        tuple([_hash(value) for value in found.message_hashes]),
        _hash(found.pagination_cursor) if found.HasField("pagination_cursor") else None,
        found.pagination_forward,
        found.pagination_limit if found.HasField("pagination_limit") else None,
    )


def encode_response(response: StoreQueryResponse) -> bytes:
    """The response in protobuf."""
    return store_pb2.StoreQueryResponse(
        request_id=response.request_id,
        status_code=response.status_code,
        status_desc=response.status_desc,
        messages=[
            store_pb2.WakuMessageKeyValue(
                message_hash=entry.message_hash,
                message=None if entry.message is None else to_proto(entry.message),
                pubsub_topic=entry.pubsub_topic,
            )
            for entry in response.messages
        ],
        pagination_cursor=response.pagination_cursor,
    ).SerializeToString(deterministic=True)


def decode_response(data: bytes) -> StoreQueryResponse:
    """The response in `data`; each entry has a hash, and message and topic both or neither."""
    found = parse(store_pb2.StoreQueryResponse, data)
    _limit("messages", len(found.messages), MAX_MESSAGES)
    return StoreQueryResponse(
        found.request_id,
        found.status_code if found.HasField("status_code") else None,
        found.status_desc if found.HasField("status_desc") else None,
        tuple([_entry(entry) for entry in found.messages]),
        _hash(found.pagination_cursor) if found.HasField("pagination_cursor") else None,
    )


def _entry(found: store_pb2.WakuMessageKeyValue) -> StoreEntry:
    message_hash = _hash(found.message_hash)
    if found.HasField("message") != found.HasField("pubsub_topic"):
        raise DecodeError("a store entry has one of message and pubsub topic without the other")
    if not found.HasField("message"):
        return StoreEntry(message_hash)
    return StoreEntry(message_hash, from_proto(found.message), found.pubsub_topic)


def _hash(value: bytes) -> bytes:
    if len(value) != HASH_SIZE:
        raise DecodeError(f"a message hash has {HASH_SIZE} bytes, not {len(value)}")
    return value


def _limit(what: str, count: int, most: int) -> None:
    if count > most:
        raise DecodeError(f"{count} {what} are more than the {most} allowed")
