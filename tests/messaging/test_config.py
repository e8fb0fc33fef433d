"""A configuration that cannot be meant is refused at creation, with the property's name and what is right."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pywaku import InvalidInput, NodeConfig, PrivateKey
from pywaku.messaging.config import NodeProperties

PEER = "16Uiu2HAmL1Bc5EJDopSBtZtD9q3E6KzqbDvQ1NmEY5pqnMBG7qDj"


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({}, "cluster_id: is required"),
        ({"cluster_id": -1}, "cluster_id: is 0 to 65535"),
        ({"cluster_id": 65536}, "cluster_id: is 0 to 65535"),
        ({"cluster_id": 1, "shards": []}, "shards: names no shard"),
        ({"cluster_id": 1, "shards": [1024]}, "shards: "),
        ({"cluster_id": 1, "shards": [-1]}, "shards: "),
        ({"cluster_id": 1, "shards": [8], "num_shards_in_network": 8}, "shards: are 0 to 7"),
        ({"cluster_id": 1, "num_shards_in_network": 1025}, "num_shards_in_network: is 0 to 1024"),
        ({"cluster_id": 1, "num_shards_in_network": -1}, "num_shards_in_network: is 0 to 1024"),
        ({"preset": "nowhere"}, "preset: there is no 'nowhere'; known are twn"),
        ({"preset": "twn", "cluster_id": 2}, "cluster_id: 2 contradicts preset 'twn'"),
        ({"cluster_id": 1, "tcp_port": 65536}, "tcp_port: is 0 to 65535"),
        ({"cluster_id": 1, "websocket_port": -1}, "websocket_port: is 0 to 65535"),
        (
            {"cluster_id": 1, "tcp_port": 60000, "websocket_port": 60000},
            "websocket_port: is also the tcp_port",
        ),
        ({"cluster_id": 1, "listen_address": "localhost"}, "listen_address: is an IP address"),
        ({"cluster_id": 1, "websocket_secure_cert": "cert.pem"}, "websocket_secure_key: and"),
        (
            {"cluster_id": 1, "websocket_secure_cert": "cert.pem", "websocket_secure_key": "key.pem"},
            "websocket_secure_cert: needs a websocket_port",
        ),
        ({"cluster_id": 1, "max_connections": 0}, "max_connections: is at least 1"),
        ({"cluster_id": 1, "free_bandwidth_bps": 0}, "free_bandwidth_bps: is positive"),
        ({"cluster_id": 1, "bootstrap_nodes": ["/ip4/127.0.0.1/tcp/60000"]}, "bootstrap_nodes: end in /p2p/"),
        ({"cluster_id": 1, "bootstrap_nodes": ["no address"]}, "bootstrap_nodes: "),
        ({"cluster_id": 1, "announce": ["no address"]}, "announce: "),
        ({"cluster_id": 1, "node_key": "abc"}, "node_key: "),
        (
            {"cluster_id": 1, "bootstrap_nodes": [f"/ip4/127.0.0.1/udp/1/quic-v1/p2p/{PEER}"]},
            "bootstrap_nodes: are addresses for TCP, ws or wss",
        ),
    ],
)
def test_a_property_that_cannot_be_meant_is_refused_by_name(
    properties: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        NodeConfig(**properties)
    assert str(caught.value).startswith(complaint)


@pytest.mark.parametrize(
    ("property_", "value", "complaint"),
    [
        ("cluster_id", "42", "is an int, not '42'"),
        ("cluster_id", True, "is an int, not True"),
        ("shards", 0, "is a list, not 0"),
        ("shards", "0", "is a list, not '0'"),
        ("shards", ["0"], "are ints, not '0'"),
        ("tcp_port", "60000", "is an int, not '60000'"),
        ("max_connections", None, "is an int, not None"),
        ("bootstrap_nodes", f"/ip4/127.0.0.1/tcp/1/p2p/{PEER}", "is a list, not '/ip4/"),
        ("bootstrap_nodes", [None], "are multiaddrs or their texts, not None"),
        ("announce", None, "is a list, not None"),
        ("preset", 1, "is a name, not 1"),
        ("node_key", b"1" * 32, "is a PrivateKey or 64 hex digits, not bytes"),
        ("listen_address", None, "is an IP address, not None"),
        ("gossip", None, "is a GossipParams, not None"),
    ],
)
def test_a_property_of_the_wrong_kind_is_refused_by_name(
    property_: str, value: object, complaint: str
) -> None:
    properties: dict[str, Any] = {"cluster_id": 42, property_: value}
    with pytest.raises(InvalidInput) as caught:
        NodeConfig(**properties)
    assert str(caught.value).startswith(f"{property_}: {complaint}")


def test_open_node_knows_every_property_by_name_and_type() -> None:
    assert {field.name: field.type for field in dataclasses.fields(NodeConfig)} == {
        name: str(kind.__forward_arg__) for name, kind in NodeProperties.__annotations__.items()
    }


def test_the_waku_network_is_eight_shards_of_cluster_one() -> None:
    config = NodeConfig(preset="twn")
    assert config.topics == tuple(f"/waku/2/rs/1/{shard}" for shard in range(8))
    assert config.timestamps_validated
    assert config.metadata_required
    assert config.bandwidth_limit == 1_000_000


def test_what_is_said_goes_before_the_preset() -> None:
    config = NodeConfig(preset="twn", shards=[3], validate_timestamps=False, free_bandwidth_bps=5)
    assert config.topics == ("/waku/2/rs/1/3",)
    assert not config.timestamps_validated
    assert config.bandwidth_limit == 5


def test_a_cluster_id_never_implies_a_preset() -> None:
    config = NodeConfig(cluster_id=1)
    assert config.topics == ("/waku/2/rs/1/0",)
    assert not config.timestamps_validated
    assert not config.metadata_required
    assert config.bandwidth_limit is None


def test_a_shard_named_twice_is_one_shard() -> None:
    assert NodeConfig(cluster_id=42, shards=[1, 1, 0]).topics == ("/waku/2/rs/42/1", "/waku/2/rs/42/0")


def test_a_node_key_is_a_key_or_its_hex_digits() -> None:
    key = PrivateKey.generate()
    for given in (key, key.raw.hex()):
        made = NodeConfig(cluster_id=1, node_key=given).key()
        assert made is not None
        assert made.public.peer_id == key.public.peer_id


def test_bootstrap_nodes_are_addresses_with_a_peer_id() -> None:
    config = NodeConfig(cluster_id=1, bootstrap_nodes=[f"/ip4/127.0.0.1/tcp/60000/p2p/{PEER}"])
    assert [str(address.peer_id) for address in config.bootstrap()] == [PEER]


def test_listening_can_be_switched_off() -> None:
    assert NodeConfig(cluster_id=1, tcp_port=None).listen_addresses() == ()
