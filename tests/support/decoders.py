"""Every decoder of bytes from outside, and valid encodings to start from when looking for trouble.

The hostile input tests and the fuzzer go over all of them. A new decoder is one line in `DECODERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pywaku.keys import PrivateKey, PublicKey
from pywaku.wire import (
    enr_waku,
    framing,
    identify,
    lightpush,
    lightpush_legacy,
    message,
    metadata,
    peer_exchange,
    relay,
    rlp,
    sds,
    segments,
    store,
    varint,
)
from pywaku.wire import (
    filter as filter_wire,
)
from pywaku.wire.enr import Enr
from pywaku.wire.multiaddr import Multiaddr
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


_KEY: Final = PrivateKey.from_bytes("secp256k1", b"\1" * 32)
_ADDRESSES: Final = st.sampled_from(
    (
        f"/ip4/1.2.3.4/tcp/60000/p2p/{_KEY.peer_id}",
        "/dns4/a.example/tcp/443/wss",
        f"/ip6/::1/udp/1/quic-v1/p2p/{_KEY.peer_id}/p2p-circuit",
        "/unix/%2Fa/http",
    )
).map(Multiaddr.parse)
_ADDRESS_LISTS: Final = st.lists(_ADDRESSES, max_size=3)
_IDENTIFIED: Final = st.builds(
    identify.Identify,
    agent_version=st.text(max_size=20),
    public_key=st.just(_KEY.public.encode()),
    listen_addresses=_ADDRESS_LISTS.map(tuple),
    protocols=st.lists(st.text(max_size=20), max_size=4).map(tuple),
)
_RLP_ITEMS: Final[SearchStrategy[rlp.Item]] = st.recursive(
    st.binary(max_size=70), lambda items: st.lists(items, max_size=4), max_leaves=8
)


def _made_record(seq: int, port: int) -> Enr:
    return Enr.create(_KEY, seq=seq, tcp=port, multiaddrs=[Multiaddr.parse("/dns4/a/tcp/1/wss")])


_RECORDS: Final = st.builds(_made_record, st.integers(0, 2**64 - 1), st.integers(1, 65535))


def _record(data: bytes) -> Enr:
    """A record by its bytes, and by its text."""
    record = Enr.decode(data)
    return Enr.parse(record.text)


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
    Decoder("multiaddr", Multiaddr.decode, _ADDRESSES.map(Multiaddr.encode)),
    Decoder("public key", PublicKey.decode, st.just(_KEY.public).map(PublicKey.encode)),
    Decoder("identify", identify.decode_identify, _IDENTIFIED.map(identify.encode_identify)),
    Decoder("rlp", rlp.decode, _RLP_ITEMS.map(rlp.encode)),
    Decoder("enr", _record, _RECORDS.map(Enr.encode)),
    Decoder("multiaddrs", enr_waku.decode_multiaddrs, _ADDRESS_LISTS.map(enr_waku.encode_multiaddrs)),
    Decoder("rs", enr_waku.decode_index_list, st.just(b"\0\1\2\0\1\0\2")),
    Decoder("rsv", enr_waku.decode_bit_vector, st.binary(min_size=130, max_size=130)),
)
