"""Filter: a node names content topics to another one, which pushes their messages (12/WAKU2-FILTER)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from pywaku.errors import DecodeError
from pywaku.message import WakuMessage
from pywaku.wire.message import from_proto, to_proto
from pywaku.wire.proto import filter_pb2, parse

SUBSCRIBE_PROTOCOL: Final = "/vac/waku/filter-subscribe/2.0.0-beta1"
PUSH_PROTOCOL: Final = "/vac/waku/filter-push/2.0.0-beta1"

MAX_CONTENT_TOPICS: Final = 100
"""Content topics that one request may name."""


class FilterSubscribeType(IntEnum):
    """What a request is for (12/WAKU2-FILTER, Filter Subscribe Types)."""

    SUBSCRIBER_PING = 0
    SUBSCRIBE = 1
    UNSUBSCRIBE = 2
    UNSUBSCRIBE_ALL = 3


@dataclass(frozen=True, slots=True)
class FilterSubscribeRequest:
    """A request about the sender's subscription; topics belong to SUBSCRIBE and UNSUBSCRIBE only."""

    request_id: str
    filter_subscribe_type: FilterSubscribeType
    pubsub_topic: str | None = None
    content_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FilterSubscribeResponse:
    """Whether the request was honoured, as an HTTP-like code."""

    request_id: str
    status_code: int
    status_desc: str | None = None

    @property
    def is_success(self) -> bool:
        """Whether the request was honoured: the code is in the 2xx range."""
        return 200 <= self.status_code < 300


@dataclass(frozen=True, slots=True)
class MessagePush:
    """A message that matches a subscription, and the topic it came from."""

    message: WakuMessage
    pubsub_topic: str | None = None


def encode_subscribe_request(request: FilterSubscribeRequest) -> bytes:
    """The request in protobuf."""
    return filter_pb2.FilterSubscribeRequest(
        request_id=request.request_id,
        filter_subscribe_type=request.filter_subscribe_type.name,
        pubsub_topic=request.pubsub_topic,
        content_topics=request.content_topics,
    ).SerializeToString(deterministic=True)


def decode_subscribe_request(data: bytes) -> FilterSubscribeRequest:
    """The request in `data`; one of an unknown type, or with too many content topics, is none."""
    found = parse(filter_pb2.FilterSubscribeRequest, data)
    if len(found.content_topics) > MAX_CONTENT_TOPICS:
        raise DecodeError(
            f"a filter request has {len(found.content_topics)} content topics, more than {MAX_CONTENT_TOPICS}"
        )
    try:
        kind = FilterSubscribeType(found.filter_subscribe_type)
    except ValueError as error:
        raise DecodeError(f"a filter request is of no known type: {error}") from None
    return FilterSubscribeRequest(
        found.request_id,
        kind,
        found.pubsub_topic if found.HasField("pubsub_topic") else None,
        tuple(found.content_topics),
    )


def encode_subscribe_response(response: FilterSubscribeResponse) -> bytes:
    """The response in protobuf."""
    return filter_pb2.FilterSubscribeResponse(
        request_id=response.request_id, status_code=response.status_code, status_desc=response.status_desc
    ).SerializeToString(deterministic=True)


def decode_subscribe_response(data: bytes) -> FilterSubscribeResponse:
    """The response in `data`; a code that is missing is 0, which is no success."""
    found = parse(filter_pb2.FilterSubscribeResponse, data)
    return FilterSubscribeResponse(
        found.request_id,
        found.status_code,
        found.status_desc if found.HasField("status_desc") else None,
    )


def encode_push(push: MessagePush) -> bytes:
    """The push in protobuf."""
    return filter_pb2.MessagePush(
        waku_message=to_proto(push.message), pubsub_topic=push.pubsub_topic
    ).SerializeToString(deterministic=True)


def decode_push(data: bytes) -> MessagePush:
    """The push in `data`; one without a message is none."""
    found = parse(filter_pb2.MessagePush, data)
    if not found.HasField("waku_message"):
        raise DecodeError("a filter push has no message")
    return MessagePush(
        from_proto(found.waku_message), found.pubsub_topic if found.HasField("pubsub_topic") else None
    )
