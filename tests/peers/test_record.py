"""This node's own record (31/WAKU2-ENR; RELAY-SHARDING, Discovery; 64/WAKU2-NETWORK, Bootstrapping)."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import InvalidInput
from pywaku.keys import PrivateKey
from pywaku.peers.record import NodeRecord
from pywaku.wire.enr import MAX_SIZE, Capability, Enr, RelayShards
from pywaku.wire.multiaddr import Multiaddr
from tests.support.peers import key_of, peer_of

KEY = key_of("me")


def addresses(*texts: str) -> list[Multiaddr]:
    return [Multiaddr.parse(text) for text in texts]


def test_the_record_says_what_it_is_told() -> None:
    own = NodeRecord(KEY)
    own.set_addresses(addresses("/ip4/192.0.2.1/tcp/60000", "/dns4/node.example/tcp/443/wss"))
    own.set_capabilities(Capability.RELAY | Capability.FILTER)
    own.set_shards(16, [45, 13, 14, 13])
    record = Enr.parse(own.text)
    assert record == own.record
    assert (record.ip, record.tcp) == (IPv4Address("192.0.2.1"), 60000)
    assert record.multiaddrs == tuple(addresses("/dns4/node.example/tcp/443/wss"))
    assert record.capabilities == Capability.RELAY | Capability.FILTER
    assert record.shards == RelayShards(16, (13, 14, 45))
    assert record.peer_id == KEY.peer_id


def test_the_record_is_updated_when_the_set_of_supported_shards_changes() -> None:
    own = NodeRecord(KEY)
    assert own.set_shards(1, [0, 1])
    seq = own.seq
    assert not own.set_shards(1, [1, 0])
    assert own.seq == seq
    assert own.set_shards(1, [0, 1, 2])
    assert own.seq == seq + 1
    assert own.record.shards == RelayShards(1, (0, 1, 2))


def test_addresses_and_services_that_change_make_the_number_grow_and_others_do_not() -> None:
    own = NodeRecord(KEY)
    steps = [
        own.set_addresses(addresses("/ip4/192.0.2.1/tcp/1")),
        own.set_addresses(addresses("/ip4/192.0.2.1/tcp/1")),
        own.set_addresses(addresses("/ip4/192.0.2.1/tcp/2")),
        own.set_capabilities(Capability.RELAY),
        own.set_capabilities(Capability.RELAY),
        own.set_addresses([]),
        own.set_addresses([]),
    ]
    assert steps == [True, False, True, True, False, True, False]
    assert own.seq == 1 + sum(steps)


def test_64_shards_and_more_are_written_as_a_bit_vector() -> None:
    own = NodeRecord(KEY)
    own.set_shards(1, range(64))
    assert b"rsv" in own.record.pairs
    own.set_shards(1, range(63))
    assert b"rs" in own.record.pairs
    assert b"rsv" not in own.record.pairs


def test_predefined_keys_carry_the_first_address_of_each_ip_version() -> None:
    own = NodeRecord(KEY)
    own.set_addresses(
        addresses(
            "/ip4/192.0.2.1/tcp/60000",
            "/ip6/2001:db8::1/tcp/60000",
            "/ip4/192.0.2.2/tcp/60000",
            "/ip4/192.0.2.1/tcp/8000/ws",
        )
    )
    record = own.record
    assert (record.ip, record.ip6) == (IPv4Address("192.0.2.1"), IPv6Address("2001:db8::1"))
    assert b"tcp6" not in record.pairs, "the port for both needs not be said twice"
    assert record.multiaddrs == tuple(addresses("/ip4/192.0.2.2/tcp/60000", "/ip4/192.0.2.1/tcp/8000/ws"))
    own.set_addresses(addresses("/ip6/2001:db8::1/tcp/1", "/ip4/192.0.2.1/tcp/2"))
    assert (own.record.tcp, own.record.tcp6) == (2, 1)


def test_multiaddrs_do_not_contain_the_own_peer_id() -> None:
    own = NodeRecord(KEY)
    with_peer = [
        address.with_peer(KEY.peer_id) for address in addresses("/ip4/192.0.2.1/tcp/1", "/dns4/a/tcp/2/wss")
    ]
    own.set_addresses(with_peer)
    assert not any(address.has("p2p") for address in own.record.multiaddrs)
    assert own.record.dial_addresses == tuple(with_peer)


def test_circuit_addresses_are_stored_as_the_spec_says() -> None:
    own = NodeRecord(KEY)
    circuit = Multiaddr.parse(f"/ip4/192.0.2.7/tcp/1/p2p/{peer_of('relay')}/p2p-circuit")
    own.set_addresses([circuit.with_peer(KEY.peer_id)])
    assert own.record.multiaddrs == (circuit,)


def test_addresses_that_mean_nothing_to_others_are_left_out() -> None:
    own = NodeRecord(KEY)
    assert not own.set_addresses(
        addresses("/ip4/0.0.0.0/tcp/1", "/ip6/::/tcp/1", "/ip4/192.0.2.1/tcp/0", "/memory/1")
    )
    assert own.record.dial_addresses == ()


def test_what_does_not_fit_is_left_out_last_first() -> None:
    own = NodeRecord(KEY)
    many = addresses(
        "/ip4/192.0.2.1/tcp/1", *(f"/dns4/node-{n}.a-long-name.example/tcp/443/wss" for n in range(9))
    )
    own.set_shards(1, range(8))
    own.set_addresses(many)
    kept = own.record.multiaddrs
    assert 0 < len(kept) < 9
    assert kept == tuple(many[1 : 1 + len(kept)])
    assert own.left_out == tuple(many[1 + len(kept) :])
    assert len(own.encode()) <= MAX_SIZE
    own.set_addresses(many[:2])
    assert own.left_out == ()


def test_more_shards_take_the_room_of_addresses_and_give_it_back() -> None:
    own = NodeRecord(KEY)
    names = ("a-name-that-is-long.example", "another-name-that-is-long.example")
    own.set_addresses(addresses(*(f"/dns4/{name}/tcp/443/wss" for name in names)))
    assert own.set_shards(1, range(60))
    assert own.record.shards == RelayShards(1, tuple(range(60)))
    assert own.left_out
    assert own.set_shards(1, range(8))
    assert len(own.record.multiaddrs) == 2
    assert own.left_out == ()


def test_an_address_of_another_peer_is_refused() -> None:
    with pytest.raises(InvalidInput, match="another peer"):
        NodeRecord(KEY).set_addresses([Multiaddr.parse("/dns4/a/tcp/1/wss").with_peer(peer_of("x"))])


def test_the_record_goes_on_from_where_it_was_saved() -> None:
    first = NodeRecord(KEY, seq=1000)
    first.set_shards(1, [0])
    again = NodeRecord(KEY, saved=first.encode())
    assert not again.set_shards(1, [0])
    assert again.record == first.record
    assert again.set_shards(1, [1])
    assert again.seq == first.seq + 1


@pytest.mark.parametrize("saved", [b"", b"junk", NodeRecord(key_of("other"), seq=99).encode()])
def test_what_was_saved_and_is_of_no_use_is_left_alone(saved: bytes) -> None:
    assert NodeRecord(KEY, saved=saved, seq=7).seq == 7


def test_the_port_of_discv5_is_said_where_there_is_one() -> None:
    assert NodeRecord(KEY, udp=9000).record.udp == 9000


def test_a_record_needs_a_secp256k1_key() -> None:
    with pytest.raises(InvalidInput, match="secp256k1"):
        NodeRecord(PrivateKey.generate("ed25519"))


@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                addresses(
                    "/ip4/192.0.2.1/tcp/1",
                    "/ip4/192.0.2.2/tcp/2",
                    "/ip6/2001:db8::1/tcp/1",
                    "/dns4/node.example/tcp/443/wss",
                    "/ip4/192.0.2.1/udp/1/quic-v1",
                )
            ),
            st.from_regex(r"[a-z]{1,40}", fullmatch=True).map(
                lambda name: Multiaddr.parse(f"/dns4/{name}/tcp/1/ws")
            ),
        ),
        max_size=12,
    ),
    st.sets(st.integers(0, 1023), max_size=80),
)
def test_whatever_it_is_told_the_record_is_valid(given_addresses: list[Multiaddr], shards: set[int]) -> None:
    own = NodeRecord(KEY)
    own.set_shards(1, shards)
    own.set_addresses(given_addresses)
    own.set_capabilities(Capability.RELAY)
    record = Enr.decode(own.encode())
    assert record == own.record
    assert record.shards == RelayShards(1, tuple(sorted(shards)))
    said = {address.without_peer() for address in record.dial_addresses}
    assert said | set(own.left_out) == set(given_addresses)
