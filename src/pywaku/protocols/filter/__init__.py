"""Filter (12/WAKU2-FILTER): light nodes name content topics to service nodes, which push their messages."""

from pywaku.protocols.filter.client import FilterClient, FilterResult, open_filter_client
from pywaku.protocols.filter.counters import FilterClientCounters, FilterServiceCounters
from pywaku.protocols.filter.options import FilterClientOptions, FilterServiceOptions
from pywaku.protocols.filter.queue import QueueLimits
from pywaku.protocols.filter.service import FilterService, open_filter_service
from pywaku.protocols.filter.table import Criterion
from pywaku.protocols.relay.delivery import ReceivedMessage, Subscription
from pywaku.wire.filter import MAX_CONTENT_TOPICS, PUSH_PROTOCOL, SUBSCRIBE_PROTOCOL

__all__ = [
    "MAX_CONTENT_TOPICS",
    "PUSH_PROTOCOL",
    "SUBSCRIBE_PROTOCOL",
    "Criterion",
    "FilterClient",
    "FilterClientCounters",
    "FilterClientOptions",
    "FilterResult",
    "FilterService",
    "FilterServiceCounters",
    "FilterServiceOptions",
    "QueueLimits",
    "ReceivedMessage",
    "Subscription",
    "open_filter_client",
    "open_filter_service",
]
