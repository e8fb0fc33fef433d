"""What is encoded is decoded to the same value, for every codec; encoding is deterministic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pywaku.errors import DecodeError
from pywaku.wire import filter as filter_wire
from pywaku.wire import (
    lightpush,
    lightpush_legacy,
    message,
    metadata,
    peer_exchange,
    relay,
    sds,
    segments,
    store,
    varint,
)
from tests.support import wire_values as values

Codec = tuple[SearchStrategy[Any], Callable[[Any], bytes], Callable[[bytes], object]]

CODECS: dict[str, Codec] = {
    "message": (values.MESSAGES, message.encode_message, message.decode_message),
    "relay": (values.RPCS, relay.encode_rpc, relay.decode_rpc),
    "metadata": (values.METADATA, metadata.encode_metadata, metadata.decode_metadata),
    "lightpush request": (values.LIGHTPUSH_REQUESTS, lightpush.encode_request, lightpush.decode_request),
    "lightpush response": (values.LIGHTPUSH_RESPONSES, lightpush.encode_response, lightpush.decode_response),
    "legacy request": (
        values.LEGACY_REQUESTS,
        lightpush_legacy.encode_request,
        lightpush_legacy.decode_request,
    ),
    "legacy response": (
        values.LEGACY_RESPONSES,
        lightpush_legacy.encode_response,
        lightpush_legacy.decode_response,
    ),
    "filter request": (
        values.FILTER_REQUESTS,
        filter_wire.encode_subscribe_request,
        filter_wire.decode_subscribe_request,
    ),
    "filter response": (
        values.FILTER_RESPONSES,
        filter_wire.encode_subscribe_response,
        filter_wire.decode_subscribe_response,
    ),
    "filter push": (values.FILTER_PUSHES, filter_wire.encode_push, filter_wire.decode_push),
    "store request": (values.STORE_REQUESTS, store.encode_request, store.decode_request),
    "store response": (values.STORE_RESPONSES, store.encode_response, store.decode_response),
    "peer exchange query": (values.PEER_QUERIES, peer_exchange.encode_query, peer_exchange.decode_query),
    "peer exchange response": (
        values.PEER_RESPONSES,
        peer_exchange.encode_response,
        peer_exchange.decode_response,
    ),
    "sds": (values.SDS_MESSAGES, sds.encode_sds, sds.decode_sds),
    "segment": (values.SEGMENTS, segments.encode_segment, segments.decode_segment),
}

each_codec = pytest.mark.parametrize("name", CODECS)


@each_codec
@given(data=st.data())
def test_what_is_encoded_is_decoded(name: str, data: st.DataObject) -> None:
    strategy, encode, decode = CODECS[name]
    value = data.draw(strategy)
    encoding = encode(value)
    assert decode(encoding) == value
    assert encode(decode(encoding)) == encoding


@each_codec
@given(data=st.data(), unknown=st.binary(max_size=20), number=st.integers(100, 2000))
def test_unknown_fields_are_skipped(name: str, data: st.DataObject, unknown: bytes, number: int) -> None:
    strategy, encode, decode = CODECS[name]
    value = data.draw(strategy)
    field = varint.encode(number << 3 | 2) + varint.encode(len(unknown)) + unknown
    assert decode(encode(value) + field) == value
    assert decode(field + encode(value)) == value


@each_codec
@given(data=st.data())
def test_a_truncated_field_is_refused(name: str, data: st.DataObject) -> None:
    strategy, encode, decode = CODECS[name]
    encoding = encode(data.draw(strategy))
    with pytest.raises(DecodeError):
        decode(encoding + b"\x9a\x3f\x05four")  # field 1011, five bytes, of which four are there
