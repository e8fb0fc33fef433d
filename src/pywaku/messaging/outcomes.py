"""What the outcome of a request says about the service node, and which nodes serve a shard."""

from __future__ import annotations

from functools import lru_cache

from pywaku.errors import NetworkError, NotConnected, ProtocolNotSupported, RequestTimeout, StreamReset
from pywaku.peers.selection import Need
from pywaku.peers.services import (
    CONNECTION_LOST,
    TIMED_OUT,
    UNSUITABLE,
    WITHOUT_CODE,
    Outcome,
    Service,
)
from pywaku.topics import parse_shard_topic


def outcome_of(error: NetworkError) -> Outcome:
    """What a failed request says about a service node."""
    match error:
        case RequestTimeout():
            return TIMED_OUT
        case ProtocolNotSupported():
            return UNSUITABLE
        case NotConnected() | StreamReset():
            return CONNECTION_LOST
        case _:
            return WITHOUT_CODE


@lru_cache(maxsize=4096)  # it is asked for each message; a cluster has 1,024 shards
def need_of(service: Service, pubsub_topic: str) -> Need:
    """The nodes that provide a service on the shard of a pubsub topic."""
    cluster, shard = parse_shard_topic(pubsub_topic)
    return Need(service, cluster, frozenset({shard}))
