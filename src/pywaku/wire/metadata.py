"""What a node says of itself (66/WAKU2-METADATA); request and response have the same shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pywaku.errors import DecodeError
from pywaku.wire.proto import metadata_pb2, parse

PROTOCOL: Final = "/vac/waku/metadata/1.0.0"

MAX_SHARDS: Final = 1024
"""Shards that a cluster has (RELAY-SHARDING, Static Sharding), and so the most that a node can be part of."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """The cluster that a node is part of, and the shards that it relays."""

    cluster_id: int | None
    shards: tuple[int, ...] = ()


def encode_metadata(metadata: Metadata) -> bytes:
    """The metadata in protobuf."""
    return metadata_pb2.WakuMetadataRequest(
        cluster_id=metadata.cluster_id, shards=metadata.shards
    ).SerializeToString(deterministic=True)


def decode_metadata(data: bytes) -> Metadata:
    """The metadata in `data`."""
    found = parse(metadata_pb2.WakuMetadataRequest, data)
    if len(found.shards) > MAX_SHARDS:
        raise DecodeError(f"metadata names {len(found.shards)} shards; a cluster has {MAX_SHARDS}")
    return Metadata(found.cluster_id if found.HasField("cluster_id") else None, tuple(found.shards))
