"""Light push, version 3: a node asks another one to relay a message (WAKU-LIGHTPUSH, Payloads)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from pywaku.errors import DecodeError
from pywaku.message import WakuMessage
from pywaku.wire.message import from_proto, to_proto
from pywaku.wire.proto import lightpush_pb2, parse

PROTOCOL: Final = "/vac/waku/lightpush/3.0.0"


class Status(IntEnum):
    """The codes that the specification names; a response may have others."""

    SUCCESS = 200
    BAD_REQUEST = 400
    PAYLOAD_TOO_LARGE = 413
    UNSUPPORTED_PUBSUB_TOPIC = 421
    TOO_MANY_REQUESTS = 429
    INTERNAL_SERVER_ERROR = 500
    NO_PEERS_TO_RELAY = 503


@dataclass(frozen=True, slots=True)
class LightPushRequest:
    """Please relay `message`; without a `pubsub_topic`, on the one that its content topic belongs to."""

    request_id: str
    message: WakuMessage
    pubsub_topic: str | None = None


@dataclass(frozen=True, slots=True)
class LightPushResponse:
    """What became of it: a code (`Status`, or another one), and to how many peers the message went."""

    request_id: str
    status_code: int
    status_desc: str | None = None
    relay_peer_count: int | None = None

    @property
    def is_success(self) -> bool:
        """Whether the message was relayed."""
        return self.status_code == Status.SUCCESS


def encode_request(request: LightPushRequest) -> bytes:
    """The request in protobuf."""
    return lightpush_pb2.LightPushRequest(
        request_id=request.request_id, pubsub_topic=request.pubsub_topic, message=to_proto(request.message)
    ).SerializeToString(deterministic=True)


def decode_request(data: bytes) -> LightPushRequest:
    """The request in `data`; one without a message is none."""
    found = parse(lightpush_pb2.LightPushRequest, data)
    if not found.HasField("message"):
        raise DecodeError("a light push request has no message")
    return LightPushRequest(
        found.request_id,
        from_proto(found.message),
        found.pubsub_topic if found.HasField("pubsub_topic") else None,
    )


def encode_response(response: LightPushResponse) -> bytes:
    """The response in protobuf."""
    return lightpush_pb2.LightPushResponse(
        request_id=response.request_id,
        status_code=response.status_code,
        status_desc=response.status_desc,
        relay_peer_count=response.relay_peer_count,
    ).SerializeToString(deterministic=True)


def decode_response(data: bytes) -> LightPushResponse:
    """The response in `data`; a code that is missing is 0, which is no success."""
    found = parse(lightpush_pb2.LightPushResponse, data)
    return LightPushResponse(
        found.request_id,
        found.status_code,
        found.status_desc if found.HasField("status_desc") else None,
        found.relay_peer_count if found.HasField("relay_peer_count") else None,
    )
