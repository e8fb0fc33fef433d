"""The generated protobuf code has the fields, numbers and types of the specifications."""

from __future__ import annotations

import re
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from pywaku.wire.proto import (
    filter_pb2,
    lightpush_legacy_pb2,
    lightpush_pb2,
    message_pb2,
    metadata_pb2,
    peer_exchange_pb2,
    relay_pb2,
    sds_pb2,
    segments_pb2,
    store_pb2,
)

MESSAGE = """
message WakuMessage {
  bytes payload = 1; string content_topic = 2; optional uint32 version = 3; optional sint64 timestamp = 10;
  optional bytes meta = 11; optional bytes rate_limit_proof = 21; optional bool ephemeral = 31;
}
"""
METADATA = """
message WakuMetadataRequest { optional uint32 cluster_id = 1; repeated uint32 shards = 2; }
message WakuMetadataResponse { optional uint32 cluster_id = 1; repeated uint32 shards = 2; }
"""
LIGHTPUSH = """
message LightPushRequest {
  string request_id = 1; optional string pubsub_topic = 20; WakuMessage message = 21;
}
message LightPushResponse {
  string request_id = 1; uint32 status_code = 10; optional string status_desc = 11;
  optional uint32 relay_peer_count = 12;
}
"""
LEGACY = """
message PushRequest { string pubsub_topic = 1; WakuMessage message = 2; }
message PushResponse { bool is_success = 1; string info = 2; }
message PushRPC { string request_id = 1; PushRequest request = 2; PushResponse response = 3; }
"""
FILTER = """
message FilterSubscribeRequest {
  string request_id = 1; FilterSubscribeType filter_subscribe_type = 2; optional string pubsub_topic = 10;
  repeated string content_topics = 11;
}
message FilterSubscribeResponse {
  string request_id = 1; uint32 status_code = 10; optional string status_desc = 11;
}
message MessagePush { WakuMessage waku_message = 1; optional string pubsub_topic = 2; }
"""
STORE = """
message WakuMessageKeyValue {
  optional bytes message_hash = 1; optional WakuMessage message = 2; optional string pubsub_topic = 3;
}
message StoreQueryRequest {
  string request_id = 1; bool include_data = 2; optional string pubsub_topic = 10;
  repeated string content_topics = 11; optional sint64 time_start = 12; optional sint64 time_end = 13;
  repeated bytes message_hashes = 20; optional bytes pagination_cursor = 51; bool pagination_forward = 52;
  optional uint64 pagination_limit = 53;
}
message StoreQueryResponse {
  string request_id = 1; optional uint32 status_code = 10; optional string status_desc = 11;
  repeated WakuMessageKeyValue messages = 20; optional bytes pagination_cursor = 51;
}
"""
PEER_EXCHANGE = """
message PeerInfo { bytes enr = 1; }
message PeerExchangeQuery { uint64 num_peers = 1; }
message PeerExchangeResponse { repeated PeerInfo peer_infos = 1; }
message PeerExchangeRPC { PeerExchangeQuery query = 1; PeerExchangeResponse response = 2; }
"""
# History entries are bytes here, decoded when they are first seen: the same on the wire.
SDS = """
message HistoryEntry {
  string message_id = 1; optional bytes retrieval_hint = 2; optional string sender_id = 3;
}
message Message {
  string sender_id = 1; string message_id = 2; string channel_id = 3; optional uint64 lamport_timestamp = 10;
  repeated bytes causal_history = 11; optional bytes bloom_filter = 12;
  repeated bytes repair_request = 13; optional bytes content = 20;
}
"""
SEGMENTS = """
message SegmentMessageProto {
  bytes entire_message_hash = 1; uint32 data_segment_index = 2; uint32 data_segment_count = 3;
  bytes payload = 4; uint32 parity_segment_index = 5; uint32 parity_segment_count = 6; bool is_parity = 7;
}
"""
# Strings of the specification are bytes here, and the four fields that StrictNoSign forbids are in a oneof:
# both the same on the wire.
RELAY = """
message RPC {
  repeated SubOpts subscriptions = 1; repeated Message publish = 2; optional ControlMessage control = 3;
}
message SubOpts { optional bool subscribe = 1; optional bytes topicid = 2; }
message Message {
  oneof bytes from = 1; optional bytes data = 2; oneof bytes seqno = 3; optional bytes topic = 4;
  oneof bytes signature = 5; oneof bytes key = 6;
}
message ControlMessage {
  repeated ControlIHave ihave = 1; repeated ControlIWant iwant = 2; repeated ControlGraft graft = 3;
  repeated ControlPrune prune = 4; repeated ControlIDontWant idontwant = 5;
}
message ControlIHave { optional bytes topic_id = 1; repeated bytes message_ids = 2; }
message ControlIWant { repeated bytes message_ids = 1; }
message ControlGraft { optional bytes topic_id = 1; }
message ControlPrune {
  optional bytes topic_id = 1; repeated PeerInfo peers = 2; optional uint64 backoff = 3;
}
message PeerInfo { optional bytes peer_id = 1; optional bytes signed_peer_record = 2; }
message ControlIDontWant { repeated bytes message_ids = 1; }
"""

FILES = {
    "message": (message_pb2, MESSAGE),
    "metadata": (metadata_pb2, METADATA),
    "lightpush": (lightpush_pb2, LIGHTPUSH),
    "lightpush_legacy": (lightpush_legacy_pb2, LEGACY),
    "filter": (filter_pb2, FILTER),
    "store": (store_pb2, STORE),
    "peer_exchange": (peer_exchange_pb2, PEER_EXCHANGE),
    "sds": (sds_pb2, SDS),
    "segments": (segments_pb2, SEGMENTS),
    "relay": (relay_pb2, RELAY),
}


def expected(text: str) -> dict[str, list[str]]:
    """Message names and their fields, from what a specification says."""
    found = re.findall(r"message (\w+) \{([^}]*)\}", text)
    return {
        name: [" ".join(field.split()) for field in body.split(";") if field.strip()] for name, body in found
    }


def generated(module: Any) -> dict[str, list[str]]:
    """The same, from the generated code."""
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    messages = [*file.message_type, *(inner for outer in file.message_type for inner in outer.nested_type)]
    return {
        message.name: [
            described(field, file.syntax) for field in sorted(message.field, key=lambda field: field.number)
        ]
        for message in messages
    }


def described(field: FieldDescriptorProto, syntax: str) -> str:
    """A field as a specification writes it."""
    label = ""
    if field.label == FieldDescriptorProto.LABEL_REPEATED:
        label = "repeated "
    elif field.HasField("oneof_index") and not field.proto3_optional:
        label = "oneof "
    elif field.proto3_optional or syntax != "proto3":
        label = "optional "
    kind = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    if field.type_name:
        kind = field.type_name.rpartition(".")[2]
    return f"{label}{kind} {field.name} = {field.number}"


@pytest.mark.parametrize("name", FILES)
def test_the_generated_code_has_the_fields_of_the_specification(name: str) -> None:
    module, text = FILES[name]
    assert generated(module) == expected(text)


def test_the_kinds_of_filter_requests() -> None:
    kinds = filter_pb2.FilterSubscribeRequest.FilterSubscribeType.items()
    assert dict(kinds) == {"SUBSCRIBER_PING": 0, "SUBSCRIBE": 1, "UNSUBSCRIBE": 2, "UNSUBSCRIBE_ALL": 3}


def test_names_do_not_collide_with_other_packages() -> None:
    for module, _ in FILES.values():
        assert module.DESCRIPTOR.package.startswith("pywaku.wire.")
        assert module.DESCRIPTOR.name.startswith("pywaku/wire/proto/")
