"""Node records: EIP-778 with its vector, and each demand of 31/WAKU2-ENR and of relay sharding."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address

import pytest
from Crypto.Hash import keccak
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import DecodeError, InvalidInput
from pywaku.ids import PeerId
from pywaku.keys import PrivateKey
from pywaku.wire import rlp
from pywaku.wire.enr import MAX_SIZE, Capability, Enr, RelayShards
from pywaku.wire.enr_waku import (
    decode_bit_vector,
    decode_index_list,
    decode_multiaddrs,
    encode_multiaddrs,
    encode_shards,
)
from pywaku.wire.multiaddr import Multiaddr

# devp2p/enr.md, "Test Vectors"
VECTOR = (
    "enr:-IS4QHCYrYZbAKWCBRlAy5zzaDZXJBGkcnh4MHcBFZntXNFrdvJjX04jRzjzCBOonrkTfj499SZuOh8R33Ls8RRcy5w"
    "BgmlkgnY0gmlwhH8AAAGJc2VjcDI1NmsxoQPKY0yuDUmstAHYpMa2_oxVtw0RW_QAdpzBQA8yWM0xOIN1ZHCCdl8"
)
VECTOR_KEY = PrivateKey.from_hex("b71c71a67e1177ad4e901695e1b4b9ee17ae16c6668d313eac2f96dbcda3f291")
VECTOR_NODE_ID = "a448f24c6d18e575453db13171562b71999873db5b286df957af199ec94617f7"
VECTOR_SIGNATURE = (
    "7098ad865b00a582051940cb9cf36836572411a47278783077011599ed5cd16b"
    "76f2635f4e234738f30813a89eb9137e3e3df5266e3a1f11df72ecf1145ccb9c"
)

KEY = PrivateKey.from_bytes("secp256k1", b"\1" * 32)
PEER = KEY.peer_id
RELAY = PrivateKey.from_bytes("secp256k1", b"\2" * 32).peer_id
WSS = Multiaddr.parse("/dns4/example.com/tcp/443/wss")
QUIC = Multiaddr.parse("/dns4/quic.example.com/udp/443/quic")
THROUGH_RELAY = Multiaddr.parse(f"/ip4/1.2.3.4/tcp/55555/p2p/{RELAY}/p2p-circuit")


def signed(
    pairs: Sequence[tuple[bytes, rlp.Encodable]], *, seq: bytes = b"\1", key: PrivateKey = KEY
) -> bytes:
    """A record with exactly these pairs, properly signed whatever they are."""
    content: list[rlp.Encodable] = [seq]
    for name, value in pairs:
        content += (name, value)
    digest = keccak.new(digest_bits=256, data=rlp.encode(content)).digest()
    return rlp.encode([key.sign_digest(digest), *content])


def with_values(*values: tuple[bytes, rlp.Encodable]) -> Enr:
    pairs: list[tuple[bytes, rlp.Encodable]] = [(b"id", b"v4"), (b"secp256k1", KEY.public.raw), *values]
    return Enr.decode(signed(sorted(pairs, key=lambda pair: pair[0])))


# EIP-778


def test_the_vector_decodes() -> None:
    record = Enr.parse(VECTOR)
    assert record.node_id.hex() == VECTOR_NODE_ID
    assert record.signature.hex() == VECTOR_SIGNATURE
    assert record.seq == 1
    assert record.ip == IPv4Address("127.0.0.1")
    assert record.udp == 30303
    assert record.tcp is None
    assert list(record.pairs) == [b"id", b"ip", b"secp256k1", b"udp"]
    assert record.public_key == VECTOR_KEY.public
    assert record.peer_id == VECTOR_KEY.peer_id
    assert record.text == str(record) == VECTOR


def test_the_vector_is_reproduced() -> None:
    record = Enr.create(VECTOR_KEY, ip=IPv4Address("127.0.0.1"), udp=30303)
    assert record.text == VECTOR
    assert record == Enr.parse(VECTOR)
    assert hash(record) == hash(Enr.parse(VECTOR))
    assert repr(record) == f"Enr({VECTOR!r})"


def test_all_keys_but_id_are_optional_to_fill() -> None:
    record = Enr.create(KEY)
    assert Enr.decode(record.encode()) == record
    for value in (record.ip, record.ip6, record.tcp, record.udp, record.tcp6, record.udp6):
        assert value is None
    assert record.shards is None
    assert record.capabilities is None
    assert record.multiaddrs == record.dial_addresses == ()


def test_the_ports_apply_to_both_addresses_unless_ipv6_has_its_own() -> None:
    both = Enr.create(KEY, ip=IPv4Address("1.2.3.4"), ip6=IPv6Address("::1"), tcp=1, udp=2)
    assert (both.tcp6, both.udp6) == (1, 2)
    assert [str(address) for address in both.dial_addresses] == [
        f"/ip4/1.2.3.4/tcp/1/p2p/{PEER}",
        f"/ip6/::1/tcp/1/p2p/{PEER}",
    ]
    own = both.update(KEY, tcp6=3, udp6=4)
    assert (own.tcp, own.udp, own.tcp6, own.udp6) == (1, 2, 3, 4)
    assert str(own.dial_addresses[1]) == f"/ip6/::1/tcp/3/p2p/{PEER}"


def test_records_larger_than_300_bytes_are_rejected() -> None:
    with pytest.raises(InvalidInput, match="300"):
        Enr.create(KEY, multiaddrs=[Multiaddr.parse(f"/dns4/{'a' * 60}.{n}/tcp/443/wss") for n in range(3)])
    pairs: list[tuple[bytes, rlp.Encodable]] = [(b"id", b"v4"), (b"secp256k1", KEY.public.raw)]
    for filling in range(MAX_SIZE):
        data = signed([*pairs, (b"z", b"\xff" * filling)])
        if len(data) <= MAX_SIZE:
            continue
        assert len(data) == MAX_SIZE + 1
        with pytest.raises(DecodeError, match="300"):
            Enr.decode(data)
        Enr.decode(signed([*pairs, (b"z", b"\xff" * (filling - 1))]))
        break


def test_keys_are_sorted_and_unique() -> None:
    key = (b"secp256k1", KEY.public.raw)
    Enr.decode(signed([(b"id", b"v4"), key]))
    for pairs in (
        [key, (b"id", b"v4")],
        [(b"id", b"v4"), (b"id", b"v4"), key],
        [(b"id", b"v4"), key, key],
    ):
        with pytest.raises(DecodeError, match="sorted"):
            Enr.decode(signed(pairs))


def test_other_identity_schemes_and_missing_keys_are_rejected() -> None:
    key, scheme = (b"secp256k1", KEY.public.raw), (b"id", b"v4")
    cases: list[list[tuple[bytes, rlp.Encodable]]] = [
        [],
        [key],
        [(b"id", b"v5"), key],
        [scheme],
        [scheme, (b"secp256k1", RELAY)],
        [scheme, (b"secp256k1", ())],
    ]
    for pairs in cases:
        with pytest.raises(DecodeError):
            Enr.decode(signed(pairs))


def test_records_that_are_not_signed_by_their_key_are_rejected() -> None:
    pairs: list[tuple[bytes, rlp.Encodable]] = [(b"id", b"v4"), (b"secp256k1", KEY.public.raw)]
    with pytest.raises(DecodeError, match="signed"):
        Enr.decode(signed(pairs, key=VECTOR_KEY))
    data = bytearray(Enr.parse(VECTOR).encode())
    data[-1] ^= 1
    with pytest.raises(DecodeError, match="signed"):
        Enr.decode(bytes(data))
    signatures: tuple[rlp.Item, ...] = (b"", bytes(63), bytes(64), bytes(65), [])
    for signature in signatures:
        with pytest.raises(DecodeError):
            Enr.decode(rlp.encode([signature, b"\1", b"id", b"v4", b"secp256k1", KEY.public.raw]))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xc0", b"\xc1\x80", b"\xc2\x80\x80", b"\xc3\x80\x80\x80"])
def test_what_is_no_record_does_not_decode(data: bytes) -> None:
    with pytest.raises(DecodeError):
        Enr.decode(data)


def test_the_sequence_number_has_64_bits() -> None:
    largest = Enr.create(KEY, seq=2**64 - 1)
    assert Enr.decode(largest.encode()).seq == 2**64 - 1
    assert Enr.create(KEY, seq=0).seq == 0
    for seq in (-1, 2**64):
        with pytest.raises(InvalidInput):
            Enr.create(KEY, seq=seq)
    with pytest.raises(InvalidInput):
        largest.update(KEY, tcp=1)
    pairs: list[tuple[bytes, rlp.Encodable]] = [(b"id", b"v4"), (b"secp256k1", KEY.public.raw)]
    for number in (b"\0", bytes([1] * 9)):
        with pytest.raises(DecodeError):
            Enr.decode(signed(pairs, seq=number))


def test_the_sequence_number_increases_whenever_the_record_changes() -> None:
    record = Enr.create(KEY, ip=IPv4Address("1.2.3.4"), tcp=1, capabilities=Capability.RELAY)
    changed = record.update(KEY, tcp=2, ip=None)
    assert changed.seq == 2
    assert changed.tcp == 2
    assert changed.ip is None
    assert changed.capabilities == Capability.RELAY
    assert changed.update(KEY, tcp=2) is changed
    with pytest.raises(InvalidInput):
        record.update(VECTOR_KEY, tcp=2)


def test_values_that_we_do_not_know_survive_an_update() -> None:
    record = with_values((b"eth", [[b"\1\2\3\4", b""]]), (b"zz", b"x"))
    changed = record.update(KEY, udp=9)
    assert changed.pairs[b"eth"] == [[b"\1\2\3\4", b""]]
    assert changed.pairs[b"zz"] == b"x"
    assert list(changed.pairs) == sorted(changed.pairs)
    assert Enr.decode(changed.encode()) == changed


def test_the_text_is_url_safe_base64_without_padding() -> None:
    record = Enr.create(KEY)
    record = record.update(KEY, tcp=1)
    body = base64.urlsafe_b64encode(record.encode()).decode()
    assert record.text == "enr:" + body.rstrip("=")
    for text in (
        "",
        "enr:",
        "enr",
        record.text[4:],
        "ENR:" + record.text[4:],
        record.text + "=",
        record.text + "\n",
        record.text[:-1],
        record.text.replace("_", "/").replace("-", "+"),
        "enr:" + "A" * 401,
        "enr:ü",
        "enr:A",
    ):
        with pytest.raises(DecodeError):
            Enr.parse(text)


def test_ed25519_identities_have_no_record() -> None:
    with pytest.raises(InvalidInput):
        Enr.create(PrivateKey.generate("ed25519"))


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_ports_out_of_range_are_refused(port: int) -> None:
    for name in ("tcp", "udp", "tcp6", "udp6"):
        with pytest.raises(InvalidInput):
            Enr.create(KEY, **{name: port})  # pyright: ignore[reportArgumentType]


def test_values_that_make_no_sense_are_as_good_as_absent() -> None:
    record = with_values(
        (b"ip", b"\1\2\3"),
        (b"ip6", b"\1"),
        (b"tcp", b"\0\1"),
        (b"udp", b"\1\2\3"),
        (b"tcp6", [b"\1"]),
        (b"udp6", b""),
        (b"waku2", b"\1\1"),
        (b"rs", b"\0"),
        (b"multiaddrs", b"\0\5\4"),
    )
    values = (record.ip, record.ip6, record.tcp, record.udp, record.tcp6, record.udp6)
    assert values == (None,) * 6
    assert record.capabilities is None
    assert record.shards is None
    assert record.multiaddrs == record.dial_addresses == ()


# 31/WAKU2-ENR, the `multiaddrs` key


def test_multiaddrs_is_a_list_of_binary_multiaddrs_prefixed_by_their_size_in_two_bytes_big_endian() -> None:
    record = Enr.create(KEY, multiaddrs=[WSS, QUIC])
    first, second = WSS.encode(), QUIC.encode()
    expected = b"\0" + bytes([len(first)]) + first + b"\0" + bytes([len(second)]) + second
    assert record.pairs[b"multiaddrs"] == expected
    assert Enr.decode(record.encode()).multiaddrs == (WSS, QUIC)


def test_the_secp256k1_value_is_present_and_the_peer_id_deduced_from_it() -> None:
    record = Enr.create(KEY, multiaddrs=[WSS])
    assert record.pairs[b"secp256k1"] == KEY.public.raw
    assert record.peer_id == PEER
    assert record.dial_addresses == (WSS.with_peer(PEER),)


def test_multiaddrs_do_not_contain_a_peer_id_except_for_circuit_relay_addresses() -> None:
    record = Enr.create(KEY, multiaddrs=[WSS.with_peer(PEER), THROUGH_RELAY.with_peer(PEER)])
    raw = record.pairs[b"multiaddrs"]
    assert isinstance(raw, bytes)
    stored = decode_multiaddrs(raw)
    assert stored == (WSS, Multiaddr.parse(f"/ip4/1.2.3.4/tcp/55555/p2p/{RELAY}"))


def test_circuit_relay_addresses_get_their_p2p_circuit_back() -> None:
    record = Enr.create(KEY, multiaddrs=[THROUGH_RELAY])
    assert record.multiaddrs == (THROUGH_RELAY,)
    assert record.dial_addresses == (THROUGH_RELAY.with_peer(PEER),)


def test_circuit_relay_addresses_stored_whole_are_understood_too() -> None:
    record = with_values((b"multiaddrs", encode_multiaddrs([THROUGH_RELAY, THROUGH_RELAY.with_peer(PEER)])))
    assert record.dial_addresses == (THROUGH_RELAY.with_peer(PEER),)


def test_the_own_peer_id_in_a_stored_address_makes_no_circuit_of_it() -> None:
    record = with_values((b"multiaddrs", encode_multiaddrs([WSS.with_peer(PEER)])))
    assert record.dial_addresses == (WSS.with_peer(PEER),)


def test_addresses_of_other_peers_are_refused() -> None:
    nameless = Multiaddr.parse("/ip4/1.2.3.4/tcp/1/p2p-circuit")
    for address in (WSS.with_peer(RELAY), nameless, Multiaddr.parse("/p2p-circuit")):
        with pytest.raises(InvalidInput):
            Enr.create(KEY, multiaddrs=[address])


def test_raw_tcp_and_udp_use_the_predefined_keys() -> None:
    tcp, udp = Multiaddr.parse("/ip4/1.2.3.4/tcp/60000"), Multiaddr.parse("/ip4/1.2.3.4/udp/9000")
    tcp6 = Multiaddr.parse("/ip6/::1/tcp/60001").with_peer(PEER)
    other = Multiaddr.parse("/ip4/1.2.3.4/tcp/60002")
    record = Enr.create(
        KEY,
        ip=IPv4Address("1.2.3.4"),
        tcp=60000,
        udp=9000,
        ip6=IPv6Address("::1"),
        tcp6=60001,
        multiaddrs=[tcp, udp, tcp6, other, WSS, WSS],
    )
    assert record.multiaddrs == (other, WSS)
    assert record.update(KEY, multiaddrs=[tcp]).pairs.get(b"multiaddrs") is None


def test_many_connection_types_as_in_the_example_of_the_specification() -> None:
    circuit = THROUGH_RELAY.with_peer(PEER)
    record = Enr.create(
        KEY,
        ip=IPv4Address("1.2.3.4"),
        tcp=10101,
        udp=20202,
        ip6=IPv6Address("1234:5600:101:1::142"),
        tcp6=30303,
        udp6=40404,
        multiaddrs=[WSS, circuit],
    )
    assert len(record.encode()) <= MAX_SIZE
    assert [str(address) for address in Enr.decode(record.encode()).dial_addresses] == [
        f"/ip4/1.2.3.4/tcp/10101/p2p/{PEER}",
        f"/ip6/1234:5600:101:1::142/tcp/30303/p2p/{PEER}",
        f"/dns4/example.com/tcp/443/wss/p2p/{PEER}",
        f"/ip4/1.2.3.4/tcp/55555/p2p/{RELAY}/p2p-circuit/p2p/{PEER}",
    ]


def test_addresses_of_kinds_we_do_not_know_are_skipped() -> None:
    wss = WSS.encode()
    raw = b"\0\2\x05\1" + len(wss).to_bytes(2) + wss + b"\0\0"
    assert decode_multiaddrs(raw) == (WSS,)
    for cut in (b"\0", b"\0\1", raw + b"\1"):
        with pytest.raises(DecodeError):
            decode_multiaddrs(cut)


# 31/WAKU2-ENR, the `waku2` key


@pytest.mark.parametrize(
    ("capability", "bit"),
    [
        (Capability.RELAY, 0),
        (Capability.STORE, 1),
        (Capability.FILTER, 2),
        (Capability.LIGHTPUSH, 3),
        (Capability.SYNC, 4),
    ],
)
def test_waku2_is_an_8_bit_flag_field(capability: Capability, bit: int) -> None:
    record = Enr.create(KEY, capabilities=capability)
    assert record.pairs[b"waku2"] == bytes([1 << bit])
    assert Enr.decode(record.encode()).capabilities == capability


def test_protocols_that_are_not_supported_are_false() -> None:
    assert Enr.create(KEY, capabilities=Capability(0)).pairs[b"waku2"] == b"\0"
    both = Capability.RELAY | Capability.STORE
    assert Enr.create(KEY, capabilities=both).pairs[b"waku2"] == b"\3"


def test_undefined_flags_are_false_and_ignored() -> None:
    everything = (
        Capability.RELAY | Capability.STORE | Capability.FILTER | Capability.LIGHTPUSH | Capability.SYNC
    )
    assert Enr.create(KEY, capabilities=everything).pairs[b"waku2"] == b"\x1f"
    assert with_values((b"waku2", b"\xff")).capabilities == everything
    assert with_values((b"waku2", b"\xe0")).capabilities == Capability(0)


def test_records_without_a_true_flag_can_be_filtered_out() -> None:
    assert not Enr.create(KEY).is_waku
    assert not Enr.create(KEY, capabilities=Capability(0)).is_waku
    assert not with_values((b"waku2", b"\xe0")).is_waku
    assert Enr.create(KEY, capabilities=Capability.STORE).is_waku


# WAKU2-RELAY-SHARDING, "Discovery"


def test_the_index_list_of_the_example() -> None:
    record = Enr.create(KEY, shards=RelayShards(16, (45, 13, 14)))
    assert record.pairs[b"rs"] == bytes.fromhex("0010" + "03" + "000d" + "000e" + "002d")
    assert Enr.decode(record.encode()).shards == RelayShards(16, (13, 14, 45))


def test_the_right_most_bit_of_the_bit_vector_is_shard_0_and_the_left_most_shard_1023() -> None:
    assert decode_bit_vector(b"\0\x10" + bytes(127) + b"\1") == RelayShards(16, (0,))
    assert decode_bit_vector(b"\0\x10" + b"\x80" + bytes(127)) == RelayShards(16, (1023,))
    vector = bytes(120) + bytes.fromhex("0000200000006000")
    assert decode_bit_vector(b"\0\x10" + vector) == RelayShards(16, (13, 14, 45))


def test_fewer_than_64_shards_take_the_index_list_and_more_the_bit_vector() -> None:
    few, many = tuple(range(63)), tuple(range(64))
    assert encode_shards(RelayShards(1, few))[0] == b"rs"
    assert encode_shards(RelayShards(1, many))[0] == b"rsv"
    for shards in (few, many, tuple(range(1024))):
        record = Enr.create(KEY, shards=RelayShards(65535, shards))
        assert Enr.decode(record.encode()).shards == RelayShards(65535, shards)


def test_nodes_do_not_use_both_index_list_and_bit_vector() -> None:
    record = Enr.create(KEY, shards=RelayShards(1, (1,)))
    many = record.update(KEY, shards=RelayShards(1, tuple(range(100))))
    assert b"rs" not in many.pairs
    assert b"rsv" in many.pairs
    few = many.update(KEY, shards=RelayShards(1, (1,)))
    assert b"rsv" not in few.pairs
    assert few.update(KEY, shards=None).shards is None


def test_shards_of_a_record_with_both_keys_are_ignored() -> None:
    rs = b"\0\1\1\0\1"
    assert with_values((b"rs", rs)).shards == RelayShards(1, (1,))
    assert with_values((b"rs", rs), (b"rsv", b"\0\1" + bytes(128))).shards is None


def test_shards_out_of_range_are_refused() -> None:
    for shards in (
        RelayShards(65536, ()),
        RelayShards(-1, ()),
        RelayShards(0, (1024,)),
        RelayShards(0, (-1,)),
    ):
        with pytest.raises(InvalidInput):
            encode_shards(shards)
    for value in (b"", b"\0\1", b"\0\1\1", b"\0\1\0\0", b"\0\1\1\4\0"):
        with pytest.raises(DecodeError):
            decode_index_list(value)
    for value in (b"", b"\0\1" + bytes(127), b"\0\1" + bytes(129)):
        with pytest.raises(DecodeError):
            decode_bit_vector(value)
    assert decode_index_list(b"\0\1\0") == RelayShards(1, ())


@given(st.integers(0, 65535), st.sets(st.integers(0, 1023), max_size=200))
def test_any_shards_round_trip(cluster_id: int, numbers: set[int]) -> None:
    shards = RelayShards(cluster_id, tuple(sorted(numbers)))
    key, value = encode_shards(shards)
    assert (decode_bit_vector if key == b"rsv" else decode_index_list)(value) == shards


# Hostile input


def look_at(record: Enr) -> None:
    """Every property of a valid record has a value, whatever the pairs are."""
    _ = (
        record.ip,
        record.ip6,
        record.tcp,
        record.tcp6,
        record.udp,
        record.udp6,
        record.node_id,
        record.is_waku,
    )
    _ = (record.capabilities, record.shards, record.multiaddrs, repr(record))
    for address in record.dial_addresses:
        assert address.peer_id == record.peer_id
        assert Multiaddr.parse(str(address)) == address


@given(st.binary(max_size=320))
def test_hostile_bytes_raise_decode_error_only(data: bytes) -> None:
    for attempt in (data, rlp.encode([bytes(64), b"\1", b"id", b"v4", b"secp256k1", data[:33]])):
        with pytest.raises(DecodeError):
            Enr.decode(attempt)


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_any_change_to_a_record_is_noticed(position: int, change: int) -> None:
    data = bytearray(Enr.parse(VECTOR).encode())
    data[position % len(data)] ^= change
    with pytest.raises(DecodeError):
        Enr.decode(bytes(data))


@given(st.text(max_size=60))
def test_hostile_text_raises_decode_error_only(text: str) -> None:
    for attempt in (text, "enr:" + text):
        with pytest.raises(DecodeError):
            Enr.parse(attempt)


known_keys = st.sampled_from(
    (b"ip", b"ip6", b"tcp", b"udp", b"tcp6", b"udp6", b"waku2", b"rs", b"rsv", b"multiaddrs")
)
stored_addresses = st.lists(
    st.sampled_from((WSS, QUIC, THROUGH_RELAY, WSS.with_peer(PEER), Multiaddr.parse(f"/p2p/{PEER}")))
    | st.binary(max_size=12)
    .filter(bool)
    .map(lambda raw: Multiaddr.decode(b"\x90\x03" + bytes([len(raw)]) + raw)),
    max_size=4,
).map(encode_multiaddrs)


@given(
    st.dictionaries(
        known_keys, st.binary(max_size=20) | st.lists(st.binary(max_size=4), max_size=2), max_size=5
    ),
    stored_addresses,
)
def test_properly_signed_nonsense_has_all_properties(
    values: dict[bytes, bytes | list[bytes]], addresses: bytes
) -> None:
    pairs: list[tuple[bytes, rlp.Item]] = [
        (name, value if isinstance(value, bytes) else list[rlp.Item](value)) for name, value in values.items()
    ]
    if b"multiaddrs" not in values and len(addresses) < 70:  # a record has up to 300 bytes
        pairs.append((b"multiaddrs", addresses))
    look_at(with_values(*pairs))


def test_peer_ids_of_records_are_inlined_keys() -> None:
    assert PeerId.from_bytes(Enr.create(KEY).peer_id) == PEER
