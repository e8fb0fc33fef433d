"""Strategies for the values that travel on the wire."""

from __future__ import annotations

from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pywaku.message import MAX_META_SIZE, WakuMessage
from pywaku.wire import filter as filter_wire
from pywaku.wire import lightpush, lightpush_legacy, metadata, peer_exchange, relay, sds, segments, store

_Value = TypeVar("_Value")


def optional(values: SearchStrategy[_Value]) -> SearchStrategy[_Value | None]:
    """One of `values`, or None."""
    return st.none() | values


def several(values: SearchStrategy[_Value]) -> SearchStrategy[tuple[_Value, ...]]:
    """Some of `values`, or none at all."""
    return st.lists(values, max_size=4).map(lambda found: tuple(found))


UINT32 = st.integers(0, 2**32 - 1)
UINT64 = st.integers(0, 2**64 - 1)
SINT64 = st.integers(-(2**63), 2**63 - 1)
BYTES = st.binary(max_size=40)
HASH = st.binary(min_size=32, max_size=32)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CONTENT_TOPIC = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)

MESSAGES = st.builds(
    WakuMessage,
    payload=st.binary(max_size=300),
    content_topic=CONTENT_TOPIC,
    meta=optional(st.binary(max_size=MAX_META_SIZE)),
    version=optional(UINT32),
    timestamp_ns=optional(SINT64),
    ephemeral=optional(st.booleans()),
    rate_limit_proof=optional(BYTES),
)

PUBLISHED = st.builds(relay.RelayMessage, TEXT, BYTES, st.just(False))
RPCS = st.builds(
    relay.Rpc,
    subscriptions=several(st.builds(relay.Subscription, st.booleans(), TEXT)),
    publish=several(PUBLISHED),
    ihave=several(st.builds(relay.IHave, TEXT, several(BYTES))),
    iwant=several(BYTES),
    graft=several(TEXT),
    prune=several(
        st.builds(relay.Prune, TEXT, several(st.builds(relay.PeerRecord, BYTES, BYTES)), optional(UINT64))
    ),
    idontwant=several(BYTES),
)

METADATA = st.builds(metadata.Metadata, optional(UINT32), several(UINT32))

LIGHTPUSH_REQUESTS = st.builds(lightpush.LightPushRequest, TEXT, MESSAGES, optional(TEXT))
LIGHTPUSH_RESPONSES = st.builds(lightpush.LightPushResponse, TEXT, UINT32, optional(TEXT), optional(UINT32))
LEGACY_REQUESTS = st.builds(lightpush_legacy.PushRequest, TEXT, TEXT, MESSAGES)
LEGACY_RESPONSES = st.builds(lightpush_legacy.PushResponse, TEXT, st.booleans(), TEXT)

FILTER_REQUESTS = st.builds(
    filter_wire.FilterSubscribeRequest,
    TEXT,
    st.sampled_from(filter_wire.FilterSubscribeType),
    optional(TEXT),
    several(TEXT),
)
FILTER_RESPONSES = st.builds(filter_wire.FilterSubscribeResponse, TEXT, UINT32, optional(TEXT))
FILTER_PUSHES = st.builds(filter_wire.MessagePush, MESSAGES, optional(TEXT))

STORE_REQUESTS = st.builds(
    store.StoreQueryRequest,
    request_id=TEXT,
    include_data=st.booleans(),
    pubsub_topic=optional(TEXT),
    content_topics=several(TEXT),
    time_start=optional(SINT64),
    time_end=optional(SINT64),
    message_hashes=several(HASH),
    pagination_cursor=optional(HASH),
    pagination_forward=st.booleans(),
    pagination_limit=optional(UINT64),
)
STORE_ENTRIES = st.builds(store.StoreEntry, HASH) | st.builds(store.StoreEntry, HASH, MESSAGES, TEXT)
STORE_RESPONSES = st.builds(
    store.StoreQueryResponse, TEXT, optional(UINT32), optional(TEXT), several(STORE_ENTRIES), optional(HASH)
)

PEER_QUERIES = st.builds(peer_exchange.PeerExchangeQuery, UINT64)
PEER_RESPONSES = st.builds(peer_exchange.PeerExchangeResponse, several(BYTES))

HISTORY = several(st.builds(sds.HistoryEntry, TEXT, optional(BYTES), optional(TEXT)))
SDS_MESSAGES = st.builds(
    sds.SdsMessage,
    sender_id=TEXT,
    message_id=TEXT,
    channel_id=TEXT,
    lamport_timestamp=optional(UINT64),
    causal_history=HISTORY,
    bloom_filter=optional(BYTES),
    repair_request=HISTORY,
    content=optional(BYTES),
).filter(lambda message: message.lamport_timestamp is not None or bool(message.content))


@st.composite
def _segments(draw: st.DrawFn) -> segments.Segment:
    parity = draw(st.booleans())
    data_count = draw(st.integers(1, 200))
    parity_count = draw(st.integers(1 if parity else 0, segments.MAX_TOTAL_SEGMENTS - 1 - data_count))
    index = draw(st.integers(0, (parity_count if parity else data_count) - 1))
    return segments.Segment(draw(HASH), index, data_count, draw(BYTES), parity_count, parity)


SEGMENTS = _segments()
