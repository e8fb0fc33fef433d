"""Every decoder of bytes from outside, and valid encodings to start from when looking for trouble.

The hostile input tests and the fuzzer go over all of them. A new decoder is one line in `DECODERS`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from pywaku.encryption import layout
from pywaku.keys import PrivateKey, PublicKey
from pywaku.network.libp2p import multistream
from pywaku.network.libp2p.mplex import Mplex
from pywaku.network.libp2p.muxer import Event
from pywaku.network.libp2p.noise import NoiseHandshake
from pywaku.network.libp2p.yamux import Yamux
from pywaku.peers import enrtree
from pywaku.wire import (
    enr_waku,
    framing,
    identify,
    lightpush,
    lightpush_legacy,
    message,
    metadata,
    peer_exchange,
    peer_record,
    protobuf_lite,
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


def _made_peer_record(seq: int, addresses: list[Multiaddr]) -> peer_record.PeerRecord:
    return peer_record.PeerRecord(_KEY.peer_id, seq, tuple(addresses))


_PEER_RECORDS: Final = st.builds(_made_peer_record, st.integers(0, 2**64 - 1), _ADDRESS_LISTS)


def _sealed(record: peer_record.PeerRecord) -> bytes:
    return peer_record.seal_record(record, _KEY)


def _entry(data: bytes) -> object:
    """An entry of a DNS node list, which is text."""
    return enrtree.parse_entry(data.decode(errors="replace"))


def _root(data: bytes) -> bool:
    """The root of one, and its signature."""
    return enrtree.Root.parse(data.decode(errors="replace")).verify(_KEY.public)


_LINK: Final = f"enrtree://{base64.b32encode(_KEY.public.raw).decode().rstrip('=')}@nodes.example.org"
_ENTRIES: Final = st.one_of(
    _RECORDS.map(lambda record: record.text),
    st.just(_LINK),
    st.lists(
        st.binary(min_size=16, max_size=16).map(lambda data: enrtree.hash_of(data.hex())), max_size=5
    ).map(lambda hashes: str(enrtree.Branch(tuple(hashes)))),
).map(str.encode)
_ROOTS: Final = st.integers(0, 2**32).map(
    lambda seq: str(
        enrtree.Root.sign(_KEY, records=enrtree.hash_of("a"), links=enrtree.hash_of("b"), seq=seq)
    ).encode()
)


_SIGNINGS: Final = st.sampled_from((layout.Signing(), layout.Signing(_KEY, v_base=27)))
_ENCRYPTED: Final = st.builds(layout.encode_data, values.BYTES, _SIGNINGS)


def _fields(data: bytes) -> list[tuple[int, int | bytes]]:
    return list(protobuf_lite.read_fields(data))


def _proposed(data: bytes) -> str | None:
    return multistream.Listener(["/one/1"], names=["/one/1"]).receive(data)


def _agreed(data: bytes) -> str | None:
    return multistream.Dialer(["/one/1", "/two/1"]).receive(data)


def _shaken(data: bytes) -> bool:
    handshake = NoiseHandshake(False, _KEY)
    handshake.receive(data)
    return handshake.finished


def _greetings(_: object) -> bytes:
    return NoiseHandshake(True, _KEY).take_output()


def _muxed_by(
    muxer: type[Yamux] | type[Mplex],
) -> tuple[Callable[[bytes], list[Event]], SearchStrategy[bytes]]:
    """What a peer says on a connection: a muxer raises nothing at all."""

    def said(parts: list[bytes]) -> bytes:
        peer = muxer(initiator=True)
        for part in parts:
            stream = peer.open()
            peer.send(stream, part)
            peer.close_write(stream)
        return b"".join(peer.take_output())

    return lambda data: muxer(initiator=False).receive(data), st.lists(
        st.binary(max_size=20), max_size=4
    ).map(said)


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
    Decoder("rlp integer", rlp.decode_int, values.UINT64.map(rlp.encode_int)),
    Decoder("enr", _record, _RECORDS.map(Enr.encode)),
    Decoder("multiaddrs", enr_waku.decode_multiaddrs, _ADDRESS_LISTS.map(enr_waku.encode_multiaddrs)),
    Decoder("peer record", peer_record.decode_record, _PEER_RECORDS.map(peer_record.encode_record)),
    Decoder("envelope", peer_record.decode_envelope, _PEER_RECORDS.map(_sealed)),
    Decoder("peer record envelope", peer_record.open_record, _PEER_RECORDS.map(_sealed)),
    Decoder("dns entry", _entry, _ENTRIES),
    Decoder("dns root", _root, _ROOTS),
    Decoder("waku2", enr_waku.decode_capabilities, st.binary(min_size=1, max_size=1)),
    Decoder("rs", enr_waku.decode_index_list, st.just(b"\0\1\2\0\1\0\2")),
    Decoder("rsv", enr_waku.decode_bit_vector, st.binary(min_size=130, max_size=130)),
    Decoder("protobuf fields", _fields, _IDENTIFIED.map(identify.encode_identify)),
    Decoder("multistream proposals", _proposed, st.just(multistream.lazy_open("/one/1"))),
    Decoder(
        "multistream answers", _agreed, st.just(multistream.lazy_open("na") + multistream.message("/two/1"))
    ),
    Decoder("noise handshake", _shaken, st.none().map(_greetings)),
    Decoder("yamux", *_muxed_by(Yamux)),
    Decoder("mplex", *_muxed_by(Mplex)),
    Decoder("encrypted data", layout.decode_data, _ENCRYPTED),
)
