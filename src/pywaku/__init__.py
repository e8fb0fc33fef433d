"""pywaku: the Waku v2 messaging stack for Python.

What is named here is public. Nothing is imported before it is used, so that importing pywaku is cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pywaku._version import __version__

if TYPE_CHECKING:
    from pywaku.channels import (
        RateLimitConfig,
        ReliableChannel,
        ReliableChannelOptions,
        create_reliable_channel,
        open_channels,
    )
    from pywaku.encryption import EciesEncryption, Encryption, SharedKeyEncryption, SymmetricEncryption
    from pywaku.errors import (
        DecodeError,
        DecryptionFailed,
        DialError,
        InvalidInput,
        InvalidTopic,
        LimitExceeded,
        ListenError,
        NetworkError,
        NodeClosed,
        NotConnected,
        RecordError,
        UnsupportedTopic,
        WakuError,
    )
    from pywaku.gossip import GossipParams, Verdict
    from pywaku.ids import PeerId
    from pywaku.keys import PrivateKey, PublicKey
    from pywaku.message import WakuMessage, message_hash
    from pywaku.messaging import Node, NodeConfig, Subscription, open_node
    from pywaku.messaging.event import Event
    from pywaku.messaging.health import HealthStatus, TopicHealth
    from pywaku.messaging.record import (
        BACKGROUND_SUBSCRIPTION,
        Decoder,
        Encoder,
        Message,
        MessageRecord,
        PlainCodec,
    )
    from pywaku.protocols.relay import MessageRefused, PublishOutcome, ReceivedMessage, Relay
    from pywaku.protocols.store import StoreQuery
    from pywaku.segments import SegmentationConfig
    from pywaku.topics import ContentTopic, auto_shard, auto_shard_topic, parse_shard_topic, shard_topic
    from pywaku.wire.enr import Enr
    from pywaku.wire.multiaddr import Multiaddr

_HOMES = {
    "pywaku.channels": (
        "RateLimitConfig",
        "ReliableChannel",
        "ReliableChannelOptions",
        "create_reliable_channel",
        "open_channels",
    ),
    "pywaku.encryption": (
        "EciesEncryption",
        "Encryption",
        "SharedKeyEncryption",
        "SymmetricEncryption",
    ),
    "pywaku.errors": (
        "DecodeError",
        "DecryptionFailed",
        "DialError",
        "InvalidInput",
        "InvalidTopic",
        "LimitExceeded",
        "ListenError",
        "NetworkError",
        "NodeClosed",
        "NotConnected",
        "RecordError",
        "UnsupportedTopic",
        "WakuError",
    ),
    "pywaku.gossip": (
        "GossipParams",
        "Verdict",
    ),
    "pywaku.ids": ("PeerId",),
    "pywaku.keys": (
        "PrivateKey",
        "PublicKey",
    ),
    "pywaku.message": (
        "WakuMessage",
        "message_hash",
    ),
    "pywaku.messaging": (
        "Node",
        "NodeConfig",
        "Subscription",
        "open_node",
    ),
    "pywaku.messaging.event": ("Event",),
    "pywaku.messaging.health": (
        "HealthStatus",
        "TopicHealth",
    ),
    "pywaku.messaging.record": (
        "BACKGROUND_SUBSCRIPTION",
        "Decoder",
        "Encoder",
        "Message",
        "MessageRecord",
        "PlainCodec",
    ),
    "pywaku.protocols.relay": (
        "MessageRefused",
        "PublishOutcome",
        "ReceivedMessage",
        "Relay",
    ),
    "pywaku.protocols.store": ("StoreQuery",),
    "pywaku.segments": ("SegmentationConfig",),
    "pywaku.topics": (
        "ContentTopic",
        "auto_shard",
        "auto_shard_topic",
        "parse_shard_topic",
        "shard_topic",
    ),
    "pywaku.wire.enr": ("Enr",),
    "pywaku.wire.multiaddr": ("Multiaddr",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "BACKGROUND_SUBSCRIPTION",
    "ContentTopic",
    "DecodeError",
    "Decoder",
    "DecryptionFailed",
    "DialError",
    "EciesEncryption",
    "Encoder",
    "Encryption",
    "Enr",
    "Event",
    "GossipParams",
    "HealthStatus",
    "InvalidInput",
    "InvalidTopic",
    "LimitExceeded",
    "ListenError",
    "Message",
    "MessageRecord",
    "MessageRefused",
    "Multiaddr",
    "NetworkError",
    "Node",
    "NodeClosed",
    "NodeConfig",
    "NotConnected",
    "PeerId",
    "PlainCodec",
    "PrivateKey",
    "PublicKey",
    "PublishOutcome",
    "RateLimitConfig",
    "ReceivedMessage",
    "RecordError",
    "Relay",
    "ReliableChannel",
    "ReliableChannelOptions",
    "SegmentationConfig",
    "SharedKeyEncryption",
    "StoreQuery",
    "Subscription",
    "SymmetricEncryption",
    "TopicHealth",
    "UnsupportedTopic",
    "Verdict",
    "WakuError",
    "WakuMessage",
    "__version__",
    "auto_shard",
    "auto_shard_topic",
    "create_reliable_channel",
    "message_hash",
    "open_channels",
    "open_node",
    "parse_shard_topic",
    "shard_topic",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'pywaku' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
