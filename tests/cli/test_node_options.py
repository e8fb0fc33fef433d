"""What the options of `pywaku node` make of a node's configuration."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from click.testing import CliRunner

from pywaku import NodeConfig
from pywaku.cli import cli
from pywaku.messaging.presets import PRESETS

NODE = "/ip4/127.0.0.1/tcp/60000/p2p/16Uiu2HAmL1Bc5EJDopSBtZtD9q3E6KzqbDvQ1NmEY5pqnMBG7qDj"
TREE = "enrtree://AM5FCQLWIZX2QFPNJAP7VUERCCRNGRHWZG3YYHIUV7BVDQ5FDPRT2@nodes.example.org"
TOPIC = "/my-app/1/chat/proto"


def config_of(monkeypatch: pytest.MonkeyPatch, *options: str) -> NodeConfig:
    """The configuration of the node that the command would run."""
    configs: list[NodeConfig] = []

    def keep(_: object, config: NodeConfig) -> None:
        configs.append(config)

    monkeypatch.setattr(trio, "run", keep)
    done = CliRunner().invoke(cli, ["node", *options], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (config,) = configs
    return config


def test_the_defaults_are_a_relay_on_shard_0_that_knows_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config_of(monkeypatch, "--cluster-id", "42") == NodeConfig(
        mode="relay",
        cluster_id=42,
        shards=(0,),
        bootstrap_nodes=(),
        tcp_port=60000,
    )


def test_the_messaging_api_s_options(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {
        "--mode": "edge",
        "--cluster-id": "42",
        "--staticnode": NODE,
        "--storenode": NODE,
        "--preferred-service-node": NODE,
        "--confirm-content-topic": TOPIC,
        "--store-confirmation": "true",
        "--filter-confirmation": "false",
        "--fetch-missed": "false",
        "--records-path": "records.sqlite3",
        "--records-retention": "time:60",
        "--journal-path": "journal",
    }
    assert config_of(monkeypatch, *(word for pair in options.items() for word in pair)) == NodeConfig(
        mode="edge",
        cluster_id=42,
        shards=(0,),
        bootstrap_nodes=(NODE,),
        store_nodes=(NODE,),
        preferred_service_nodes=(NODE,),
        confirm_content_topics=(TOPIC,),
        store_confirmation=True,
        filter_confirmation=False,
        fetch_missed=False,
        records_path="records.sqlite3",
        records_retention="time:60",
        journal_path="journal",
        tcp_port=60000,
    )


def test_a_network_of_known_size_means_all_of_its_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(monkeypatch, "--cluster-id", "42", "--num-shards-in-network", "3")
    assert config.topics == tuple(f"/waku/2/rs/42/{shard}" for shard in range(3))
    static = config_of(monkeypatch, "--cluster-id", "42", "--num-shards-in-network", "0")
    assert static.topics == ("/waku/2/rs/42/0",)


@pytest.mark.parametrize(
    ("options", "lists", "nodes"),
    [
        ((), PRESETS["twn"].bootstrap_nodes, 0),
        (("--staticnode", NODE), (), 1),
        (("--dns-discovery-url", TREE), (TREE,), 0),
    ],
)
def test_a_preset_s_node_list_is_for_who_names_no_nodes(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], lists: tuple[str, ...], nodes: int
) -> None:
    config = config_of(monkeypatch, "--preset", "twn", *options)
    assert config.discovery_urls() == lists
    assert len(config.bootstrap()) == nodes
