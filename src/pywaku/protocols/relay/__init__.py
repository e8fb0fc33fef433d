"""Relay (11/WAKU2-RELAY): publish and subscribe as a full node of the gossip network."""

from pywaku.gossip import GossipParams, Verdict
from pywaku.protocols.relay.counters import RelayCounters
from pywaku.protocols.relay.delivery import ReceivedMessage, Subscription
from pywaku.protocols.relay.options import MAX_MESSAGE_SIZE, MessageRefused, PublishOutcome, RelayOptions
from pywaku.protocols.relay.outbox import OutboxLimits
from pywaku.protocols.relay.relay import Relay, open_relay
from pywaku.protocols.relay.validation import Validator
from pywaku.wire.relay import PROTOCOL

__all__ = [
    "MAX_MESSAGE_SIZE",
    "PROTOCOL",
    "GossipParams",
    "MessageRefused",
    "OutboxLimits",
    "PublishOutcome",
    "ReceivedMessage",
    "Relay",
    "RelayCounters",
    "RelayOptions",
    "Subscription",
    "Validator",
    "Verdict",
    "open_relay",
]
