"""Multiaddrs: text and bytes, both ways, and nothing but `DecodeError` from strangers."""

from __future__ import annotations

import ipaddress
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import DecodeError, InvalidInput
from pywaku.ids import PeerId
from pywaku.wire import varint
from pywaku.wire.multiaddr import Multiaddr

PEER = "16Uiu2HAm4v86W3bmT1BiH6oSPzcsSr24iDQpSN5Qa992BCjjwgrD"
HASHED_PEER = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
CERTHASH = "uEiAkH5a4DPGKUuOBjYw0CgwjvcJCJMD2K_1aluKR_tpevQ"
ONION = "vww6ybal4bd7szmgncyruucpgfkqahzddi37ktceo3ah7ngmcopnpyyd"


@pytest.mark.parametrize(
    ("text", "encoded"),
    [
        ("/ip4/127.0.0.1/udp/1234", "047f000001910204d2"),
        ("/ip4/127.0.0.1/tcp/4321/wss", "047f0000010610e1de03"),
        ("/ip6/2001:8a0:7ac5:4201:3ac9:86ff:fe31:7095/tcp/8000", "29200108a07ac542013ac986fffe317095061f40"),
        ("/ip4/1.2.3.4/tcp/80/ws", "0401020304060050dd03"),
        ("/dns4/example.com/tcp/443/wss", "360b6578616d706c652e636f6d0601bbde03"),
        ("/dnsaddr/a/p2p-circuit", "380161a202"),
        ("/ip4/1.2.3.4/udp/443/quic-v1/webtransport", "0401020304910201bbcd03d103"),
        ("/unix/%2Fa%2Fb%2Fc", "9003062f612f622f63"),
        ("/unix/socket/tcp/1", "900306736f636b6574060001"),
        ("/unix/%2F%252F%00%FF", "9003062f2532" + "4600ff"),
        ("/memory/4294967296", "89060000000100000000"),
        ("/dns/a/tcp/443/tls/sni/b/http", "3501610601bbc003c1030162e003"),
        ("/ip6zone/eth0/ip6/fe80::1", "2a0465746830" + "29fe800000000000000000000000000001"),
        ("/ip4/1.2.3.4/udp/1/webrtc-direct", "04010203049102000198" + "02"),
        ("/ip4/1.2.3.4/udp/1/quic/webrtc/https", "040102030491020001cc039902bb03"),
    ],
)
def test_text_and_bytes_are_those_of_the_multiaddr_table(text: str, encoded: str) -> None:
    address = Multiaddr.parse(text)
    assert address.encode().hex() == encoded
    assert str(address) == text
    assert Multiaddr.decode(bytes.fromhex(encoded)) == address
    assert hash(Multiaddr.decode(bytes.fromhex(encoded))) == hash(address)


@pytest.mark.parametrize(
    "text",
    [
        f"/ip4/1.2.3.4/tcp/60000/p2p/{PEER}",
        f"/dns4/a.example/tcp/443/tls/ws/p2p/{HASHED_PEER}/p2p-circuit/p2p/{PEER}",
        f"/ip4/1.2.3.4/udp/1/quic-v1/webtransport/certhash/{CERTHASH}/certhash/{CERTHASH}",
        f"/onion3/{ONION}:1234",
        "/ip6/::ffff:1.2.3.4/tcp/1",
        "/ip6/::/tcp/0",
    ],
)
def test_text_round_trips(text: str) -> None:
    address = Multiaddr.parse(text)
    assert str(address) == text
    assert str(Multiaddr.decode(address.encode())) == text
    assert repr(address) == f"Multiaddr({text!r})"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("/ip4/1.2.3.4/tcp/80/", "/ip4/1.2.3.4/tcp/80"),
        (f"/ipfs/{PEER}", f"/p2p/{PEER}"),
        ("/ip6/0:0::1", "/ip6/::1"),
        ("/unix/%2f%61", "/unix/%2Fa"),
        ("/certhash/f1220" + "ab" * 32, "/certhash/uEiCrq6urq6urq6urq6urq6urq6urq6urq6urq6urq6urqw"),
        ("/p2p/bafzaajaiaejcbycd3j6p5zkzz3n5zuzc2wnuz5ej53b2enrv2ee2t4tp4p5tedxj", None),
    ],
)
def test_other_notations_become_the_canonical_one(text: str, canonical: str | None) -> None:
    address = Multiaddr.parse(text)
    assert canonical is None or str(address) == canonical
    assert Multiaddr.parse(str(address)) == address


def test_peer_ids_as_cids_in_base32_and_base36() -> None:
    cid = b"\x01\x72" + PeerId.from_text(HASHED_PEER)
    number, digits = int.from_bytes(cid), ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    assert Multiaddr.parse(f"/p2p/k{digits}").peer_id == PeerId.from_text(HASHED_PEER)
    # From the libp2p peer id spec.
    text = "bafzbeie5745rpv2m6tjyuugywy4d5ewrqgqqhfnf445he3omzpjbx5xqxe"
    assert str(Multiaddr.parse(f"/p2p/{text}").peer_id) == "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
    for wrong in ("kzz", "k-1", "k", "b", "b1", "bafkqaaa", "k" + "z" * 200, "z123"):
        with pytest.raises(InvalidInput):
            Multiaddr.parse(f"/p2p/{wrong}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "ip4/1.2.3.4",
        "//ip4/1.2.3.4",
        "/ip4",
        "/ip4/1.2.3",
        "/ip4/1.2.3.04",
        "/ip4/256.0.0.1",
        "/ip6/::1%eth0",
        "/ip6/1",
        "/tcp/65536",
        "/tcp/-1",
        "/tcp/+1",
        "/tcp/01",
        "/tcp/",
        "/tcp//ws",
        "/tcp/²",
        "/tcp/1_0",
        "/udp/99999999999999999999999",
        "/nonsense/1",
        "/ws/1",
        "/dns4",
        "/dns4/\0",
        "/p2p/0",
        "/p2p/",
        "/p2p/1",
        "/unix",
        "/unix/",
        "/unix/%",
        "/unix/%2",
        "/unix/%zz",
        "/unix/ü",
        "/certhash/u",
        "/certhash/uEiA",
        "/certhash/x00",
        "/certhash/fzz",
        "/certhash/z0",
        f"/onion3/{ONION}",
        f"/onion3/{ONION}:0",
        f"/onion3/{ONION[1:]}:1",
        "/onion3/a:1",
        "/memory/18446744073709551616",
        "/dns/" + "a" * 1100,
        "/dns/\ud800",
    ],
)
def test_what_is_no_multiaddr_does_not_parse(text: str) -> None:
    with pytest.raises(InvalidInput):
        Multiaddr.parse(text)


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "04",
        "04010203",
        "0401020304ff",
        "8400",  # a code in more bytes than needed
        "047f00000106",
        "ffffffffffffffffffff01",
        "3600",
        "36012f",
        "3601ff",
        "3681",
        "36ffffffff0f61",
        "a50300",
        "a5030401020304",
        "900300",
        "d20300",
        "d20302120f",
        "bd03" + "00" * 37,
    ],
)
def test_what_is_no_multiaddr_does_not_decode(encoded: str) -> None:
    with pytest.raises(DecodeError):
        Multiaddr.decode(bytes.fromhex(encoded))


def test_long_addresses_are_refused_before_they_are_read() -> None:
    with pytest.raises(DecodeError):
        Multiaddr.decode(b"\xdd\x03" * 513)
    longest = Multiaddr.decode(b"\xdd\x03" * 512)
    assert len(longest.components) == 512
    assert longest.with_peer(PeerId.from_text(PEER)).without_peer() == longest  # adding to one does not raise


def test_components_can_be_asked_for() -> None:
    address = Multiaddr.parse("/dns4/a.example/tcp/443/tls/ws")
    assert address.components == (("dns4", "a.example"), ("tcp", "443"), ("tls", None), ("ws", None))
    assert address.get("tcp") == "443"
    assert address.get("tls") is None
    assert address.has("tls")
    assert not address.has("wss")
    assert address.get("udp") is None


def test_the_peer_of_an_address_is_the_last_one() -> None:
    peer, relay = PeerId.from_text(PEER), PeerId.from_text(HASHED_PEER)
    bare = Multiaddr.parse("/ip4/1.2.3.4/tcp/1")
    assert bare.peer_id is None
    full = bare.with_peer(peer)
    assert str(full) == f"/ip4/1.2.3.4/tcp/1/p2p/{PEER}"
    assert full.peer_id == peer
    assert full.without_peer() == bare
    assert bare.without_peer() == bare
    assert full.with_peer(relay).peer_id == relay
    assert Multiaddr.parse(f"/p2p/{PEER}").without_peer() == Multiaddr.parse(f"/p2p/{PEER}")
    circuit = Multiaddr.parse(f"/ip4/1.2.3.4/tcp/1/p2p/{HASHED_PEER}/p2p-circuit")
    assert circuit.peer_id is None
    assert circuit.with_peer(peer).peer_id == peer
    assert circuit.with_peer(peer).without_peer() == circuit


names = st.text(min_size=1, max_size=20).filter(lambda text: "/" not in text and "\0" not in text)
ports = st.integers(0, 65535).map(str)
components = st.one_of(
    st.tuples(st.just("ip4"), st.ip_addresses(v=4).map(str)),
    st.tuples(st.just("ip6"), st.ip_addresses(v=6).map(str)),
    st.tuples(st.sampled_from(("tcp", "udp")), ports),
    st.tuples(
        st.sampled_from(("dns", "dns4", "dns6", "dnsaddr", "sni", "ip6zone")),
        names.filter(lambda text: text.encode("utf-8", "ignore").decode() == text),
    ),
    st.tuples(
        st.sampled_from(("ws", "wss", "tls", "http", "https", "quic", "p2p-circuit", "webrtc")), st.none()
    ),
    st.tuples(
        st.just("p2p"),
        st.binary(max_size=60)
        .map(lambda key: str(PeerId.of_public_key(key)))
        .filter(lambda text: len(text) > 3),
    ),
    st.tuples(
        st.just("unix"),
        st.binary(min_size=1, max_size=20).map(quote_from_bytes).map(lambda text: text.replace("/", "%2F")),
    ),
    st.tuples(st.just("memory"), st.integers(0, 2**64 - 1).map(str)),
)


@given(st.lists(components, min_size=1, max_size=6))
def test_any_address_round_trips(parts: list[tuple[str, str | None]]) -> None:
    text = "".join(f"/{name}" if value is None else f"/{name}/{value}" for name, value in parts)
    address = Multiaddr.parse(text)
    assert Multiaddr.parse(str(address)) == address
    decoded = Multiaddr.decode(address.encode())
    assert decoded == address
    assert decoded.components == address.components
    assert [name for name, _ in address.components] == [name for name, _ in parts]


chunk = st.one_of(
    st.binary(max_size=8),
    st.sampled_from((4, 6, 41, 42, 53, 54, 55, 56, 273, 290, 400, 421, 445, 448, 449, 466, 477, 777, 5)).map(
        varint.encode
    ),
    st.binary(max_size=40).map(lambda body: varint.encode(len(body)) + body),
    st.ip_addresses(v=4).map(lambda address: b"\4" + address.packed),
    st.builds(lambda: ipaddress.IPv6Address("::1").packed),
)


@given(st.binary(max_size=64) | st.lists(chunk, max_size=6).map(b"".join))
def test_hostile_bytes_raise_decode_error_only(data: bytes) -> None:
    try:
        address = Multiaddr.decode(data)
    except DecodeError:
        return
    assert address.encode() == data
    assert Multiaddr.parse(str(address)).encode() == data
    assert address.peer_id is None or address.has("p2p")


@given(
    st.text(max_size=40)
    | st.lists(st.sampled_from(("/", "ip4", "1.2.3.4", "tcp", "p2p", "b", "unix", "x")), max_size=8).map(
        "".join
    )
)
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        address = Multiaddr.parse(text)
    except InvalidInput:
        return
    assert Multiaddr.decode(address.encode()) == address
