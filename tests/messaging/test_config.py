"""A configuration that cannot be meant is refused at creation, with the property's name and what is right."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from pywaku import InvalidInput, NodeConfig, PrivateKey
from pywaku.messaging.config import NodeProperties
from pywaku.messaging.presets import PRESETS
from pywaku.messaging.records import Retention

PEER = "16Uiu2HAmL1Bc5EJDopSBtZtD9q3E6KzqbDvQ1NmEY5pqnMBG7qDj"
ADDRESS = f"/ip4/127.0.0.1/tcp/60000/p2p/{PEER}"
OTHER = "/dns4/store.example/tcp/443/wss/p2p/16Uiu2HAmPLe7Mzm8TsYUubgCAW1aJoeFScxrLj8ppHFivPo97bUZ"
TREE = "enrtree://AM5FCQLWIZX2QFPNJAP7VUERCCRNGRHWZG3YYHIUV7BVDQ5FDPRT2@nodes.example.org"
TOPIC = "/myapp/1/mytopic/cbor"  # shard 0 of 8


def config(**more: Any) -> NodeConfig:
    """A configuration that names what has to be named."""
    properties: dict[str, Any] = {"mode": "relay", "cluster_id": 42, "shards": [0], "bootstrap_nodes": []}
    return NodeConfig(**{**properties, **more})


def complaint_of(**more: Any) -> str:
    """What is said of a configuration that differs in this from a good one."""
    with pytest.raises(InvalidInput) as caught:
        config(**more)
    return str(caught.value)


# What must be provided.


@pytest.mark.parametrize("missing", ["mode", "cluster_id", "shards", "bootstrap_nodes"])
def test_what_must_be_provided_is_missed_by_name(missing: str) -> None:
    assert complaint_of(**{missing: None}).startswith(f"{missing}: is required")


def test_nothing_at_all_is_no_configuration() -> None:
    with pytest.raises(InvalidInput, match="mode: is required: 'edge' or 'relay'"):
        NodeConfig()


def test_a_network_of_known_size_stands_in_for_its_shards() -> None:
    whole = config(cluster_id=42, shards=None, num_shards_in_network=3)
    assert whole.topics == tuple(f"/waku/2/rs/42/{shard}" for shard in range(3))
    assert complaint_of(shards=None, num_shards_in_network=0).startswith("shards: is required")


def test_core_is_the_later_name_of_relay() -> None:
    assert config(mode="core") == config(mode="relay")
    assert config(mode="edge").mode == "edge"
    assert complaint_of(mode="full") == "mode: is 'edge' or 'relay', not 'full'"


def test_a_preset_provides_cluster_shards_and_bootstrap() -> None:
    twn = NodeConfig(mode="edge", preset="twn")
    assert twn.topics == tuple(f"/waku/2/rs/1/{shard}" for shard in range(8))
    assert twn.discovery_urls() == PRESETS["twn"].bootstrap_nodes
    assert twn.bootstrap() == ()


@pytest.mark.parametrize("nodes", [[], [ADDRESS]])
def test_bootstrap_nodes_that_are_said_go_before_those_of_the_preset(nodes: list[str]) -> None:
    twn = NodeConfig(mode="edge", preset="twn", bootstrap_nodes=nodes)
    assert twn.discovery_urls() == ()
    assert [str(address) for address in twn.bootstrap()] == nodes


def test_node_lists_that_are_said_go_before_those_of_the_preset() -> None:
    assert NodeConfig(mode="edge", preset="twn", dns_discovery_urls=[TREE]).discovery_urls() == (TREE,)


def test_the_waku_network_is_eight_shards_of_cluster_one() -> None:
    twn = NodeConfig(mode="relay", preset="twn")
    assert twn.cluster == 1
    assert twn.shard_count == 8
    assert twn.timestamps_validated
    assert twn.metadata_required
    assert twn.bandwidth_limit == 1_000_000


def test_what_is_said_goes_before_the_preset() -> None:
    said = NodeConfig(mode="relay", preset="twn", shards=[3], validate_timestamps=False, free_bandwidth_bps=5)
    assert said.topics == ("/waku/2/rs/1/3",)
    assert not said.timestamps_validated
    assert said.bandwidth_limit == 5


def test_a_cluster_id_never_implies_a_preset() -> None:
    plain = config(cluster_id=1)
    assert plain.shard_count == 0
    assert plain.discovery_urls() == ()
    assert not plain.timestamps_validated
    assert not plain.metadata_required
    assert plain.bandwidth_limit is None


# What cannot be meant.


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"cluster_id": -1}, "cluster_id: is 0 to 65535"),
        ({"cluster_id": 65536}, "cluster_id: is 0 to 65535"),
        ({"shards": []}, "shards: names no shard"),
        ({"shards": [1024]}, "shards: "),
        ({"shards": [-1]}, "shards: "),
        ({"shards": [8], "num_shards_in_network": 8}, "shards: are 0 to 7"),
        ({"num_shards_in_network": 1025}, "num_shards_in_network: is 0 to 1024"),
        ({"num_shards_in_network": -1}, "num_shards_in_network: is 0 to 1024"),
        ({"preset": "nowhere"}, "preset: there is no 'nowhere'; known are twn"),
        ({"preset": "twn", "cluster_id": 2}, "cluster_id: 2 contradicts preset 'twn'"),
        (
            {"preset": "twn", "cluster_id": 1, "num_shards_in_network": 4},
            "num_shards_in_network: 4 contradicts preset 'twn'",
        ),
        ({"tcp_port": 65536}, "tcp_port: is 0 to 65535"),
        ({"websocket_port": -1}, "websocket_port: is 0 to 65535"),
        ({"tcp_port": 60000, "websocket_port": 60000}, "websocket_port: is also the tcp_port"),
        ({"listen_address": "localhost"}, "listen_address: is an IP address"),
        ({"websocket_secure_cert": "cert.pem"}, "websocket_secure_key: and"),
        (
            {"websocket_secure_cert": "cert.pem", "websocket_secure_key": "key.pem"},
            "websocket_secure_cert: needs a websocket_port",
        ),
        ({"max_connections": 0}, "max_connections: is at least 1"),
        ({"free_bandwidth_bps": 0}, "free_bandwidth_bps: is positive"),
        ({"announce": ["no address"]}, "announce: "),
        ({"node_key": "abc"}, "node_key: "),
        ({"bootstrap_nodes": ["enrtree://nonsense"]}, "bootstrap_nodes: "),
        ({"dns_discovery_urls": ["enrtree://nonsense"]}, "dns_discovery_urls: "),
        ({"mode": "edge", "store": True}, "store: is for relay nodes"),
        ({"store_retention": "a while"}, "store_retention: "),
        # The Messaging API.
        (
            {"confirm_content_topics": [TOPIC], "filter_confirmation": False},
            "confirm_content_topics: need store_confirmation or filter_confirmation, which are both False",
        ),
        ({"confirm_content_topics": ["mytopic"]}, "confirm_content_topics: content topic 'mytopic' does not"),
        ({"confirm_content_topics": ["/a/b"]}, "confirm_content_topics: content topic '/a/b' has 2 parts"),
        (
            {"confirm_content_topics": [TOPIC], "shards": [3, 4], "num_shards_in_network": 8},
            "confirm_content_topics: '/myapp/1/mytopic/cbor' is on /waku/2/rs/42/0, which is not among the "
            "node's shards: /waku/2/rs/42/3, /waku/2/rs/42/4",
        ),
        (
            {"confirm_content_topics": [f"/7{TOPIC}"], "num_shards_in_network": 8},
            "confirm_content_topics: content topic '/7/myapp/1/mytopic/cbor' is of generation 7",
        ),
        ({"max_pending_sends": 0}, "max_pending_sends: is at least 1, not 0"),
        ({"records_retention": "a while"}, "records_retention: retention policy 'a while' is not of the"),
        ({"records_retention": "size:1GB"}, "records_retention: is by time and capacity, not by size"),
        ({"records_path": ""}, "records_path: is a path, not ''"),
        ({"records_path": "a", "peers_path": Path("a")}, "peers_path: a is also the records_path"),
        ({"records_path": "./a", "journal_path": "a"}, "journal_path: a is also the records_path"),
        (
            {"store": True, "store_url": "sqlite://a.sqlite3", "records_path": "a.sqlite3"},
            "records_path: a.sqlite3 is also the store_url",
        ),
    ],
)
def test_a_property_that_cannot_be_meant_is_refused_by_name(
    properties: dict[str, Any], complaint: str
) -> None:
    assert complaint_of(**properties).startswith(complaint)


@pytest.mark.parametrize("name", ["bootstrap_nodes", "store_nodes", "preferred_service_nodes"])
@pytest.mark.parametrize(
    ("node", "complaint"),
    [
        ("no address", "'no address' is not a multiaddr"),
        ("/ip4/127.0.0.1/tcp/60000", "end in /p2p/ and a peer id: /ip4/127.0.0.1/tcp/60000"),
        (f"/ip4/127.0.0.1/udp/1/quic-v1/p2p/{PEER}", "are addresses for TCP, ws or wss, which /ip4/"),
        (None, "are multiaddrs or their texts, not None"),
    ],
)
def test_a_node_that_cannot_be_reached_is_refused_by_name(name: str, node: object, complaint: str) -> None:
    assert complaint_of(**{name: [node]}).startswith(f"{name}: {complaint}")


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
        ("max_pending_sends", 1.5, "is an int, not 1.5"),
        ("bootstrap_nodes", ADDRESS, "is a list, not '/ip4/"),
        ("store_nodes", ADDRESS, "is a list, not '/ip4/"),
        ("store_nodes", None, "is a list, not None"),
        ("preferred_service_nodes", ADDRESS, "is a list, not '/ip4/"),
        ("confirm_content_topics", TOPIC, "is a list, not '/myapp/"),
        ("confirm_content_topics", [1], "a content topic is a str, not 1"),
        ("announce", None, "is a list, not None"),
        ("preset", 1, "is a name, not 1"),
        ("node_key", b"1" * 32, "is a PrivateKey or 64 hex digits, not bytes"),
        ("listen_address", None, "is a str, not None"),
        ("gossip", None, "is a GossipParams, not None"),
        ("store_confirmation", "no", "is True or False, not 'no'"),
        ("filter_confirmation", None, "is True or False, not None"),
        ("subscribe_on_send", 1, "is True or False, not 1"),
        ("fetch_missed", 0, "is True or False, not 0"),
        ("validate_timestamps", "no", "is True, False or None, not 'no'"),
        ("require_metadata", 1, "is True, False or None, not 1"),
        ("records_path", 1, "is a path, not 1"),
        ("journal_path", b"journal", "is a path, not b'journal'"),
        ("records_retention", None, "is a str, not None"),
    ],
)
def test_a_property_of_the_wrong_kind_is_refused_by_name(
    property_: str, value: object, complaint: str
) -> None:
    assert complaint_of(**{property_: value}).startswith(f"{property_}: {complaint}")


def test_open_node_knows_every_property_by_name_and_type() -> None:
    assert {field.name: field.type for field in dataclasses.fields(NodeConfig)} == {
        name: str(kind.__forward_arg__) for name, kind in NodeProperties.__annotations__.items()
    }


def test_every_property_is_documented_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(documented) == sorted(NodeProperties.__annotations__)


# What is made of it.


def test_the_messaging_api_s_defaults() -> None:
    plain = config()
    assert plain.store_confirmation is False
    assert plain.filter_confirmation is True
    assert (plain.confirm_content_topics, plain.confirm_topics()) == ((), ())
    assert (plain.store_nodes, plain.preferred_service_nodes) == ((), ())
    assert plain.subscribe_on_send is True
    assert plain.fetch_missed is True
    assert plain.max_pending_sends == 10_000
    assert plain.records_path is None
    assert plain.journal_path is None
    assert plain.record_retention() == Retention()


def test_confirm_content_topics_are_on_the_shard_that_auto_sharding_says() -> None:
    auto = config(shards=None, num_shards_in_network=8, confirm_content_topics=[TOPIC, TOPIC])
    assert auto.confirm_topics() == (("/waku/2/rs/42/0", TOPIC),)


def test_confirm_content_topics_are_on_every_shard_of_static_sharding() -> None:
    static = config(shards=[4, 5], confirm_content_topics=[TOPIC])
    assert static.confirm_topics() == (("/waku/2/rs/42/4", TOPIC), ("/waku/2/rs/42/5", TOPIC))


@pytest.mark.parametrize(
    ("store_confirmation", "filter_confirmation"), [(True, False), (False, True), (True, True)]
)
def test_confirm_content_topics_take_either_confirmation(
    store_confirmation: bool, filter_confirmation: bool
) -> None:
    confirming = config(
        confirm_content_topics=[TOPIC],
        store_confirmation=store_confirmation,
        filter_confirmation=filter_confirmation,
    )
    assert len(confirming.confirm_topics()) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time:60", Retention(60, None)),
        ("capacity:5", Retention(None, 5)),
        ("time:60;capacity:5", Retention(60, 5)),
        ("none", Retention(None, None)),
    ],
)
def test_records_retention_is_by_age_and_count(text: str, expected: Retention) -> None:
    assert config(records_retention=text).record_retention() == expected


def test_service_nodes_are_addresses_with_a_peer_id() -> None:
    given = config(mode="edge", store_nodes=[OTHER], preferred_service_nodes=[ADDRESS, OTHER])
    assert [str(address) for address in given.stores()] == [OTHER]
    assert [str(address) for address in given.preferred()] == [ADDRESS, OTHER]


def test_bootstrap_nodes_are_addresses_records_and_node_lists() -> None:
    given = config(bootstrap_nodes=[ADDRESS, "enr:-nonsense", TREE], dns_discovery_urls=[TREE])
    assert [str(address.peer_id) for address in given.bootstrap()] == [PEER]
    assert given.bootstrap_records() == ("enr:-nonsense",)
    assert given.discovery_urls() == (TREE,)


def test_a_shard_named_twice_is_one_shard() -> None:
    assert config(shards=[1, 1, 0]).topics == ("/waku/2/rs/42/1", "/waku/2/rs/42/0")


def test_a_node_key_is_a_key_or_its_hex_digits() -> None:
    key = PrivateKey.generate()
    for given in (key, key.raw.hex()):
        made = config(node_key=given).key()
        assert made is not None
        assert made.public.peer_id == key.public.peer_id


def test_listening_can_be_switched_off() -> None:
    assert config(tcp_port=None).listen_addresses() == ()


def test_the_text_of_a_configuration_holds_no_secrets() -> None:
    """It ends up in logs and in tracebacks."""
    config = NodeConfig(
        mode="relay",
        cluster_id=42,
        shards=[0],
        bootstrap_nodes=[],
        node_key="ab" * 32,
        store=True,
        store_url="postgres://user:secret@host/waku",
    )
    assert "abab" not in repr(config)
    assert "secret" not in repr(config)
