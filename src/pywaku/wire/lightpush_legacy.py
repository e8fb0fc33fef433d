"""Light push as it was before version 3 (19/WAKU2-LIGHTPUSH, Payloads)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pywaku.errors import DecodeError
from pywaku.message import WakuMessage
from pywaku.wire.message import from_proto, to_proto
from pywaku.wire.proto import lightpush_legacy_pb2, parse

PROTOCOL: Final = "/vac/waku/lightpush/2.0.0-beta1"


@dataclass(frozen=True, slots=True)
class PushRequest:
    """Please relay `message` on `pubsub_topic`."""

    request_id: str
    pubsub_topic: str
    message: WakuMessage


@dataclass(frozen=True, slots=True)
class PushResponse:
    """Whether it was relayed; `info` says why not."""

    request_id: str
    is_success: bool
    info: str = ""


def encode_request(request: PushRequest) -> bytes:
    """The request in protobuf: a `PushRPC` with a request."""
    return lightpush_legacy_pb2.PushRPC(
        request_id=request.request_id,
        request=lightpush_legacy_pb2.PushRequest(
            pubsub_topic=request.pubsub_topic, message=to_proto(request.message)
        ),
    ).SerializeToString(deterministic=True)


def decode_request(data: bytes) -> PushRequest:
    """The request in `data`; one without a message is none."""
    found = parse(lightpush_legacy_pb2.PushRPC, data)
    if not found.HasField("request"):
        raise DecodeError("a light push RPC has no request")
    if not found.request.HasField("message"):
        raise DecodeError("a light push request has no message")
    return PushRequest(found.request_id, found.request.pubsub_topic, from_proto(found.request.message))


def encode_response(response: PushResponse) -> bytes:
    """The response in protobuf: a `PushRPC` with a response."""
    return lightpush_legacy_pb2.PushRPC(
        request_id=response.request_id,
        response=lightpush_legacy_pb2.PushResponse(is_success=response.is_success, info=response.info),
    ).SerializeToString(deterministic=True)


def decode_response(data: bytes) -> PushResponse:
    """The response in `data`."""
    found = parse(lightpush_legacy_pb2.PushRPC, data)
    if not found.HasField("response"):
        raise DecodeError("a light push RPC has no response")
    return PushResponse(found.request_id, found.response.is_success, found.response.info)
