"""Store (13/WAKU2-STORE): ask for messages of the past, and answer those who ask."""

from pywaku.protocols.store.answer import PageLimits, answer_query
from pywaku.protocols.store.client import (
    MAX_RESPONSE,
    StoreClient,
    StoreClientCounters,
    StoreClientOptions,
)
from pywaku.protocols.store.errors import (
    StoreAnswerInvalid,
    StoreQueryFailed,
    StoresExhausted,
    StoreStatus,
)
from pywaku.protocols.store.feed import RelayFeed, store_from_relay
from pywaku.protocols.store.pages import StoreMessages, StorePage, StorePages
from pywaku.protocols.store.query import StoreQuery
from pywaku.protocols.store.service import STORE_LIMITS, StoreCounters, StoreService, open_store_service
from pywaku.wire.store import PROTOCOL, StoreEntry, StoreQueryRequest, StoreQueryResponse

__all__ = [
    "MAX_RESPONSE",
    "PROTOCOL",
    "STORE_LIMITS",
    "PageLimits",
    "RelayFeed",
    "StoreAnswerInvalid",
    "StoreClient",
    "StoreClientCounters",
    "StoreClientOptions",
    "StoreCounters",
    "StoreEntry",
    "StoreMessages",
    "StorePage",
    "StorePages",
    "StoreQuery",
    "StoreQueryFailed",
    "StoreQueryRequest",
    "StoreQueryResponse",
    "StoreService",
    "StoreStatus",
    "StoresExhausted",
    "answer_query",
    "open_store_service",
    "store_from_relay",
]
