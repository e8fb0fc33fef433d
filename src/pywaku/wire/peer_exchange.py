"""Peer exchange: a node asks another one for the records of some peers (34/WAKU2-PEER-EXCHANGE)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pywaku.errors import DecodeError
from pywaku.wire.proto import parse, peer_exchange_pb2

PROTOCOL: Final = "/vac/waku/peer-exchange/2.0.0-alpha1"

MAX_PEERS: Final = 1_000
"""Records that one response may have."""
MAX_ENR_SIZE: Final = 300
"""Bytes that a node record may have (EIP-778)."""


@dataclass(frozen=True, slots=True)
class PeerExchangeQuery:
    """Please tell me of up to `num_peers` peers."""

    num_peers: int


@dataclass(frozen=True, slots=True)
class PeerExchangeResponse:
    """Node records, encoded; none of them is checked here."""

    enrs: tuple[bytes, ...] = ()


def encode_query(query: PeerExchangeQuery) -> bytes:
    """The query in protobuf: a `PeerExchangeRPC` with a query."""
    return peer_exchange_pb2.PeerExchangeRPC(
        query=peer_exchange_pb2.PeerExchangeQuery(num_peers=query.num_peers)
    ).SerializeToString(deterministic=True)


def decode_query(data: bytes) -> PeerExchangeQuery:
    """The query in `data`."""
    found = parse(peer_exchange_pb2.PeerExchangeRPC, data)
    if not found.HasField("query"):
        raise DecodeError("a peer exchange RPC has no query")
    return PeerExchangeQuery(found.query.num_peers)


def encode_response(response: PeerExchangeResponse) -> bytes:
    """The response in protobuf: a `PeerExchangeRPC` with a response."""
    return peer_exchange_pb2.PeerExchangeRPC(
        response=peer_exchange_pb2.PeerExchangeResponse(
            peer_infos=[peer_exchange_pb2.PeerInfo(enr=enr) for enr in response.enrs]
        )
    ).SerializeToString(deterministic=True)


def decode_response(data: bytes) -> PeerExchangeResponse:
    """The response in `data`."""
    found = parse(peer_exchange_pb2.PeerExchangeRPC, data)
    if not found.HasField("response"):
        raise DecodeError("a peer exchange RPC has no response")
    peers = found.response.peer_infos
    if len(peers) > MAX_PEERS:
        raise DecodeError(f"a peer exchange response has {len(peers)} peers; {MAX_PEERS} are allowed")
    enrs = tuple([peer.enr for peer in peers])
    if any(len(enr) > MAX_ENR_SIZE for enr in enrs):
        raise DecodeError(f"a node record has more than {MAX_ENR_SIZE} bytes")
    return PeerExchangeResponse(enrs)
