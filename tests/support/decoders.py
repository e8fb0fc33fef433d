"""Every decoder of bytes from outside, and valid encodings to start from when looking for trouble.

The hostile input tests and the fuzzer go over all of them. A new decoder is one line in `DECODERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pywaku.wire import (
    filter as filter_wire,
)
from pywaku.wire import (
    framing,
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


class Decoder(NamedTuple):
    """What decodes (and raises `DecodeError` or nothing), and bytes that it takes."""

    name: str
    decode: Callable[[bytes], object]
    encodings: SearchStrategy[bytes]


def _frames(data: bytes) -> list[bytes]:
    decoder = framing.FrameDecoder(1000)
    frames = decoder.feed(data[:3]) + decoder.feed(data[3:])
    decoder.finish()
    return frames


DECODERS: Final = (
    Decoder("varint", varint.decode, values.UINT64.map(varint.encode)),
    Decoder("framing", _frames, st.lists(values.BYTES.map(framing.frame), max_size=5).map(b"".join)),
    Decoder("message", message.decode_message, values.MESSAGES.map(message.encode_message)),
    Decoder("relay", relay.decode_rpc, values.RPCS.map(relay.encode_rpc)),
    Decoder("metadata", metadata.decode_metadata, values.METADATA.map(metadata.encode_metadata)),
    Decoder(
        "lightpush request", lightpush.decode_request, values.LIGHTPUSH_REQUESTS.map(lightpush.encode_request)
    ),
    Decoder(
        "lightpush response",
        lightpush.decode_response,
        values.LIGHTPUSH_RESPONSES.map(lightpush.encode_response),
    ),
    Decoder(
        "legacy lightpush request",
        lightpush_legacy.decode_request,
        values.LEGACY_REQUESTS.map(lightpush_legacy.encode_request),
    ),
    Decoder(
        "legacy lightpush response",
        lightpush_legacy.decode_response,
        values.LEGACY_RESPONSES.map(lightpush_legacy.encode_response),
    ),
    Decoder(
        "filter request",
        filter_wire.decode_subscribe_request,
        values.FILTER_REQUESTS.map(filter_wire.encode_subscribe_request),
    ),
    Decoder(
        "filter response",
        filter_wire.decode_subscribe_response,
        values.FILTER_RESPONSES.map(filter_wire.encode_subscribe_response),
    ),
    Decoder("filter push", filter_wire.decode_push, values.FILTER_PUSHES.map(filter_wire.encode_push)),
    Decoder("store request", store.decode_request, values.STORE_REQUESTS.map(store.encode_request)),
    Decoder("store response", store.decode_response, values.STORE_RESPONSES.map(store.encode_response)),
    Decoder(
        "peer exchange query", peer_exchange.decode_query, values.PEER_QUERIES.map(peer_exchange.encode_query)
    ),
    Decoder(
        "peer exchange response",
        peer_exchange.decode_response,
        values.PEER_RESPONSES.map(peer_exchange.encode_response),
    ),
    Decoder("sds", sds.decode_sds, values.SDS_MESSAGES.map(sds.encode_sds)),
    Decoder("segment", segments.decode_segment, values.SEGMENTS.map(segments.encode_segment)),
)
