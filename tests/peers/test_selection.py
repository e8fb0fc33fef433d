"""Which peers are used for what (REQ-RES-RELIABILITY, Selection of discovered service nodes)."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.peers.entry import Origin, PeerEntry
from pywaku.peers.selection import TRANSPORTS, Need, dialable, select, suits, transport_of
from pywaku.peers.services import Service
from pywaku.wire.enr import Capability
from pywaku.wire.lightpush import PROTOCOL as LIGHTPUSH_3
from pywaku.wire.lightpush_legacy import PROTOCOL as LIGHTPUSH_2
from pywaku.wire.multiaddr import Multiaddr
from pywaku.wire.peer_exchange import PROTOCOL as PEER_EXCHANGE
from tests.support.peers import CLUSTER, address_of, entry_of, peer_of

LIGHTPUSH = Need(Service.LIGHTPUSH, CLUSTER, frozenset({0}))
RELAY_ADDRESS = f"/ip4/192.0.2.7/tcp/1/p2p/{peer_of('relay')}/p2p-circuit"


def names(entries: list[PeerEntry], *candidates: str) -> list[str]:
    by_peer = {peer_of(name): name for name in candidates}
    return [by_peer[entry.peer] for entry in entries]


def selected(need: Need, entries: dict[str, PeerEntry], **options: object) -> list[str]:
    found = select(entries.values(), need, rng=random.Random(1), **options)  # pyright: ignore[reportArgumentType]
    return names(found, *entries)


def test_only_nodes_of_the_needed_cluster_and_shard_are_selected() -> None:
    entries = {
        "right": entry_of("right"),
        "more": entry_of("more", shards=frozenset({0, 1})),
        "other shard": entry_of("other shard", shards=frozenset({1})),
        "other cluster": entry_of("other cluster", cluster_id=1),
        "no shards": entry_of("no shards", shards=None),
        "no cluster": entry_of("no cluster", cluster_id=None),
    }
    assert set(selected(LIGHTPUSH, entries)) == {"right", "more"}


def test_all_the_needed_shards_must_be_there() -> None:
    entries = {"0": entry_of("0"), "01": entry_of("01", shards=frozenset({0, 1}))}
    assert selected(Need(Service.FILTER, CLUSTER, frozenset({0, 1})), entries) == ["01"]


def test_configured_nodes_have_the_benefit_of_the_doubt_until_they_say_otherwise() -> None:
    entries = {
        "silent": entry_of("silent", Origin.STATIC, cluster_id=None, shards=None, capabilities=None),
        "other cluster": entry_of("other cluster", Origin.STATIC, cluster_id=1),
        "other shard": entry_of("other shard", Origin.STATIC, shards=frozenset({1})),
        "other service": entry_of("other service", Origin.STATIC, protocols=frozenset({"/other"})),
    }
    assert selected(LIGHTPUSH, entries) == ["silent"]


def test_only_nodes_that_provide_the_service_are_selected() -> None:
    entries = {
        "says so": entry_of("says so", capabilities=None, protocols=frozenset({LIGHTPUSH_3})),
        "announces it": entry_of("announces it", capabilities=Capability.LIGHTPUSH),
        "announces others": entry_of("announces others", capabilities=Capability.RELAY),
        "announces, but does not": entry_of("announces, but does not", protocols=frozenset({"/other"})),
        "does not say": entry_of("does not say", capabilities=None),
    }
    assert set(selected(LIGHTPUSH, entries)) == {"says so", "announces it"}


def test_peer_exchange_does_not_discriminate_by_shards() -> None:
    need = Need(Service.PEER_EXCHANGE, CLUSTER, frozenset({0}))
    entries = {
        "other shard": entry_of("other shard", shards=frozenset({9})),
        "speaks it": entry_of("speaks it", protocols=frozenset({PEER_EXCHANGE})),
        "does not": entry_of("does not", protocols=frozenset({LIGHTPUSH_3})),
        "other cluster": entry_of("other cluster", cluster_id=1),
    }
    assert set(selected(need, entries)) == {"other shard", "speaks it"}


def test_the_most_recent_version_of_a_protocol_goes_first() -> None:
    entries = {
        "old": entry_of("old", Origin.STATIC, protocols=frozenset({LIGHTPUSH_2})),
        "both": entry_of("both", failures=3, protocols=frozenset({LIGHTPUSH_2, LIGHTPUSH_3})),
    }
    assert selected(LIGHTPUSH, entries) == ["both", "old"]


def test_only_needed_transports_are_used() -> None:
    entries = {
        "quic": entry_of("quic", recorded=(address_of(peer_of("quic"), "/ip4/192.0.2.1/udp/1/quic-v1"),)),
        "wss": entry_of("wss", recorded=(address_of(peer_of("wss"), "/dns4/a.example/tcp/443/wss"),)),
        "tcp": entry_of("tcp"),
        "none": entry_of("none", recorded=()),
    }
    assert set(selected(LIGHTPUSH, entries)) == {"wss", "tcp"}
    assert selected(LIGHTPUSH, entries, transports=frozenset({"wss"})) == ["wss"]


def test_nodes_reached_directly_go_before_those_behind_a_circuit_relay() -> None:
    circuit = address_of(peer_of("circuit"), RELAY_ADDRESS)
    entries = {
        "circuit": entry_of("circuit", Origin.STATIC, recorded=(circuit,)),
        "direct": entry_of("direct", failures=2),
    }
    assert selected(LIGHTPUSH, entries, transports=TRANSPORTS | {"p2p-circuit"}) == ["direct", "circuit"]
    assert selected(LIGHTPUSH, entries) == ["direct"]


def test_direct_addresses_of_a_node_are_dialed_first() -> None:
    peer = peer_of("a")
    direct, circuit = address_of(peer), address_of(peer, RELAY_ADDRESS)
    entry = entry_of("a", recorded=(circuit, direct))
    assert dialable(entry, TRANSPORTS | {"p2p-circuit"}) == (direct, circuit)


def test_configured_nodes_go_before_discovered_ones() -> None:
    entries = {"found": entry_of("found"), "configured": entry_of("configured", Origin.STATIC, failures=5)}
    assert selected(LIGHTPUSH, entries) == ["configured", "found"]


def test_nodes_with_fewer_failures_go_first() -> None:
    entries = {name: entry_of(name, failures=int(name)) for name in ("2", "0", "1")}
    assert selected(LIGHTPUSH, entries) == ["0", "1", "2"]


def test_among_equals_chance_decides() -> None:
    entries = [entry_of(n) for n in range(10)]
    firsts = {select(entries, LIGHTPUSH, rng=random.Random(seed))[0].peer for seed in range(100)}
    assert len(firsts) == 10


def test_the_same_chance_selects_the_same() -> None:
    entries = [entry_of(n) for n in range(10)]
    one, other = (select(entries, LIGHTPUSH, rng=random.Random(7)) for _ in range(2))
    assert one == other


def test_excluded_nodes_and_those_in_back_off_are_left_out() -> None:
    entries = {name: entry_of(name) for name in "abc"} | {"d": entry_of("d", connected=True)}

    def may_dial(entry: PeerEntry) -> bool:
        return entry.peer in {peer_of("a"), peer_of("c")}

    found = selected(LIGHTPUSH, entries, exclude=frozenset({peer_of("c")}), may_dial=may_dial)
    assert set(found) == {"a", "d"}, "one that is connected need not be dialed"


@pytest.mark.parametrize(
    ("text", "transport"),
    [
        ("/ip4/1.2.3.4/tcp/1", "tcp"),
        ("/dns4/a/tcp/1/ws", "ws"),
        ("/dns4/a/tcp/1/wss", "wss"),
        ("/dns4/a/tcp/1/tls/ws", "wss"),
        ("/dns4/a/tcp/1/tls/sni/b/ws", "wss"),
        ("/ip4/1.2.3.4/udp/1/quic-v1", "quic-v1"),
        ("/ip4/1.2.3.4/udp/1/quic-v1/webtransport", "webtransport"),
        ("/memory/7", "memory"),
        ("/ip4/1.2.3.4/udp/1", None),
        (RELAY_ADDRESS, "p2p-circuit"),
    ],
)
def test_transports_are_told_by_the_address(text: str, transport: str | None) -> None:
    assert transport_of(Multiaddr.parse(text)) == transport
    assert transport_of(address_of(peer_of("x"), text)) == transport


def made(
    number: int,
    origin: Origin,
    cluster_id: int | None,
    shards: frozenset[int] | None,
    failures: int,
    protocols: frozenset[str] | None,
) -> PeerEntry:
    return entry_of(
        number, origin, cluster_id=cluster_id, shards=shards, failures=failures, protocols=protocols
    )


ENTRIES = st.lists(
    st.builds(
        made,
        st.integers(0, 1000),
        st.sampled_from(list(Origin)),
        st.sampled_from([None, CLUSTER, 1]),
        st.none() | st.frozensets(st.integers(0, 2)),
        st.integers(0, 3),
        st.sampled_from([None, frozenset({LIGHTPUSH_2}), frozenset({LIGHTPUSH_3}), frozenset({"/x"})]),
    ),
    max_size=12,
    unique_by=lambda entry: entry.peer,
)


@given(ENTRIES, st.randoms(use_true_random=False))
def test_a_selection_holds_those_that_suit_in_the_order_of_the_spec(
    entries: list[PeerEntry], rng: random.Random
) -> None:
    found = select(entries, LIGHTPUSH, rng=rng)
    assert {entry.peer for entry in found} == {entry.peer for entry in entries if suits(entry, LIGHTPUSH)}

    def order(entry: PeerEntry) -> tuple[bool, int, int]:
        old = entry.protocols == frozenset({LIGHTPUSH_2})
        place = {Origin.PREFERRED: 0, Origin.STATIC: 1}.get(entry.origin, 2)
        return old, place, entry.failures

    assert all(order(one) <= order(other) for one, other in pairwise(found))
    for entry in found:
        assert entry.cluster_id in (None, CLUSTER)
        assert entry.origin.configured or (entry.cluster_id == CLUSTER and 0 in (entry.shards or ()))
