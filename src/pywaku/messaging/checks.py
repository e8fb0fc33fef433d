"""Whether a configuration can be meant: each complaint names the property and what is right."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pywaku.archive import parse_retention
from pywaku.errors import InvalidInput, InvalidTopic
from pywaku.gossip import GossipParams
from pywaku.keys import PrivateKey
from pywaku.messaging.records.port import Retention
from pywaku.network.libp2p.transports import Endpoint
from pywaku.peers.enrtree import parse_url
from pywaku.topics import ContentTopic, auto_shard_topic
from pywaku.wire.multiaddr import Multiaddr

if TYPE_CHECKING:
    from pywaku.messaging.config import NodeConfig

_PORTS: Final = range(65536)
_CLUSTERS: Final = range(65536)
_SHARDS: Final = range(1024)
_INTEGERS: Final = (
    "cluster_id",
    "num_shards_in_network",
    "tcp_port",
    "websocket_port",
    "free_bandwidth_bps",
    "seed",
)
_COUNTS: Final = ("max_connections", "max_pending_sends")
_SWITCHES: Final = (
    "store_confirmation",
    "filter_confirmation",
    "subscribe_on_send",
    "fetch_missed",
    "lightpush",
    "filter",
    "store",
    "peer_exchange",
)
_SWITCHES_OF_PRESETS: Final = ("validate_timestamps", "require_metadata")
_PATHS: Final = ("records_path", "journal_path", "peers_path")
_TEXTS: Final = ("listen_address", "store_url", "store_retention", "records_retention")
_NODES: Final = ("bootstrap_nodes", "store_nodes", "preferred_service_nodes", "announce")
_LISTS: Final = (*_NODES, "shards", "confirm_content_topics", "dns_discovery_urls", "dns_servers")
_MAY_BE_MISSING: Final = ("shards", "bootstrap_nodes")


def check_config(config: NodeConfig) -> None:
    """Raise `InvalidInput` for what is missing, contradictory or no value of its property."""
    _check_required(config)
    _check_kinds(config)
    _check_network(config)
    _check_listening(config)
    _check_nodes(config)
    _check_messaging(config)
    config.key()


def is_record(node: Multiaddr | str) -> bool:
    """Is it written as a node record?"""
    return isinstance(node, str) and node.strip().startswith("enr:")


def is_list(node: Multiaddr | str) -> bool:
    """Is it written as a node list in DNS?"""
    return isinstance(node, str) and node.strip().startswith("enrtree:")


def addresses_among(addresses: Sequence[Multiaddr | str], name: str) -> tuple[Multiaddr, ...]:
    """The addresses, read."""
    try:
        return tuple(Multiaddr.parse(item) if isinstance(item, str) else item for item in addresses)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error


def record_retention(text: str) -> Retention:
    """The retention of records, written as that of a store, save that files have no limit."""
    try:
        policy = parse_retention(text)
    except InvalidInput as error:
        raise InvalidInput(f"records_retention: {error}") from error
    _check(
        policy.max_bytes is None, "records_retention", f"is by time and capacity, not by size as in {text!r}"
    )
    return Retention(policy.max_age_s, policy.max_messages)


def topics_to_confirm(config: NodeConfig) -> tuple[tuple[str, str], ...]:
    """Pubsub topic and content topic of each of `confirm_content_topics`, on a shard of the node."""
    topics = config.topics
    pairs: list[tuple[str, str]] = []
    for content_topic in config.confirm_content_topics:
        if not config.shard_count:
            pairs.extend((topic, content_topic) for topic in topics)
            continue
        try:
            topic = auto_shard_topic(content_topic, config.cluster, config.shard_count)
        except InvalidTopic as error:
            raise InvalidInput(f"confirm_content_topics: {error}") from error
        _check(
            topic in topics,
            "confirm_content_topics",
            f"{content_topic!r} is on {topic}, which is not among the node's shards: {', '.join(topics)}",
        )
        pairs.append((topic, content_topic))
    return tuple(dict.fromkeys(pairs))


def _check_required(config: NodeConfig) -> None:
    _check(not _is_a(config.mode, type(None)), "mode", "is required: 'edge' or 'relay'")
    _check(config.mode in ("edge", "relay"), "mode", f"is 'edge' or 'relay', not {config.mode!r}")
    _check(_is_a(config.preset, str, type(None)), "preset", f"is a name, not {config.preset!r}")
    preset = config.preset_values
    _check(config.cluster_id is not None or preset is not None, "cluster_id", "is required: 0 to 65535")
    count = config.num_shards_in_network
    _check(
        config.shards is not None or bool(preset if count is None else count),
        "shards",
        "is required: such as [0], or num_shards_in_network for all of the network's",
    )
    _check(
        config.bootstrap_nodes is not None or bool(preset and preset.bootstrap_nodes),
        "bootstrap_nodes",
        "is required: addresses, node records and node lists in DNS, or [] where there are none",
    )


def _check_kinds(config: NodeConfig) -> None:
    """Programs that are not type-checked deserve a name and a reason too."""
    for name in _INTEGERS:
        value: object = getattr(config, name)
        _check(value is None or _is_integer(value), name, f"is an int, not {value!r}")
    for name in _COUNTS:
        value = getattr(config, name)
        _check(_is_integer(value), name, f"is an int, not {value!r}")
        _check(getattr(config, name) >= 1, name, f"is at least 1, not {value}")
    for name in _SWITCHES:
        value = getattr(config, name)
        _check(isinstance(value, bool), name, f"is True or False, not {value!r}")
    for name in _SWITCHES_OF_PRESETS:
        value = getattr(config, name)
        _check(value is None or isinstance(value, bool), name, f"is True, False or None, not {value!r}")
    for name in _TEXTS:
        value = getattr(config, name)
        _check(isinstance(value, str), name, f"is a str, not {value!r}")
    for name in _PATHS:
        value = getattr(config, name)
        _check(_is_a(value, str, Path, type(None)) and value != "", name, f"is a path, not {value!r}")
    for name in _LISTS:
        value = getattr(config, name)
        listed = isinstance(value, Collection) and not isinstance(value, str | bytes)
        _check(listed or (value is None and name in _MAY_BE_MISSING), name, f"is a list, not {value!r}")
    for shard in config.shards or ():
        _check(_is_integer(shard), "shards", f"are ints, not {shard!r}")
    for name in _NODES:
        for item in getattr(config, name) or ():
            _check(_is_a(item, str, Multiaddr), name, f"are multiaddrs or their texts, not {item!r}")
    _check(
        _is_a(config.node_key, PrivateKey, str, type(None)),
        "node_key",
        f"is a PrivateKey or 64 hex digits, not {type(config.node_key).__name__}",
    )
    _check(_is_a(config.gossip, GossipParams), "gossip", f"is a GossipParams, not {config.gossip!r}")


def _check_network(config: NodeConfig) -> None:
    preset = config.preset_values
    if preset is not None:
        _check(
            config.cluster_id in (None, preset.cluster_id),
            "cluster_id",
            f"{config.cluster_id} contradicts preset {config.preset!r}; leave one of them out",
        )
        _check(
            config.num_shards_in_network in (None, 0, preset.num_shards_in_network),
            "num_shards_in_network",
            f"{config.num_shards_in_network} contradicts preset {config.preset!r}; leave one of them out",
        )
    _check(config.cluster in _CLUSTERS, "cluster_id", f"is 0 to 65535, not {config.cluster_id}")
    count = config.shard_count
    _check(0 <= count <= len(_SHARDS), "num_shards_in_network", f"is 0 to 1024, not {count}")
    _check(bool(config.topics), "shards", "names no shard; give at least one")
    limit = count or len(_SHARDS)
    for shard in config.shards or ():
        _check(shard in range(limit), "shards", f"are 0 to {limit - 1} in this network, not {shard}")
    _check(
        config.free_bandwidth_bps is None or config.free_bandwidth_bps > 0,
        "free_bandwidth_bps",
        "is positive",
    )
    _check(not (config.store and config.mode == "edge"), "store", "is for relay nodes")
    _retention_of_store(config)


def _check_listening(config: NodeConfig) -> None:
    for name, port in (("tcp_port", config.tcp_port), ("websocket_port", config.websocket_port)):
        _check(port is None or port in _PORTS, name, f"is 0 to 65535, not {port}")
    _check(
        not config.tcp_port or config.tcp_port != config.websocket_port,
        "websocket_port",
        "is also the tcp_port",
    )
    secure = (config.websocket_secure_cert, config.websocket_secure_key)
    _check(all(secure) or not any(secure), "websocket_secure_key", "and websocket_secure_cert go together")
    _check(
        not any(secure) or config.websocket_port is not None,
        "websocket_secure_cert",
        "needs a websocket_port",
    )
    config.listen_addresses()
    config.announced()


def _check_nodes(config: NodeConfig) -> None:
    for name, addresses in (
        ("bootstrap_nodes", config.bootstrap()),
        ("store_nodes", config.stores()),
        ("preferred_service_nodes", config.preferred()),
    ):
        for address in addresses:
            _check(address.peer_id is not None, name, f"end in /p2p/ and a peer id: {address}")
            _check(
                Endpoint.of(address) is not None or address.has("memory"),  # the latter in simulations
                name,
                f"are addresses for TCP, ws or wss, which {address} is not",
            )
    for url in config.discovery_urls():
        name = "dns_discovery_urls" if url in config.dns_discovery_urls else "bootstrap_nodes"
        try:
            parse_url(url)
        except InvalidInput as error:
            raise InvalidInput(f"{name}: {error}") from error


def _check_messaging(config: NodeConfig) -> None:
    for topic in config.confirm_content_topics:
        try:
            ContentTopic.parse(topic)
        except InvalidTopic as error:
            raise InvalidInput(f"confirm_content_topics: {error}") from error
    _check(
        not config.confirm_content_topics or config.store_confirmation or config.filter_confirmation,
        "confirm_content_topics",
        "need store_confirmation or filter_confirmation, which are both False",
    )
    topics_to_confirm(config)
    record_retention(config.records_retention)
    used: dict[Path, str] = {}
    if config.store and config.store_url.startswith("sqlite://"):
        used[Path(config.store_url.removeprefix("sqlite://"))] = "store_url"
    for name in _PATHS:
        path: Path | str | None = getattr(config, name)
        if path is not None:
            other = used.setdefault(Path(path), name)
            _check(other == name, name, f"{path} is also the {other}; give each a path of its own")


def _retention_of_store(config: NodeConfig) -> None:
    try:
        parse_retention(config.store_retention)
    except InvalidInput as error:
        raise InvalidInput(f"store_retention: {error}") from error


def _check(holds: bool, name: str, what: str) -> None:
    if not holds:
        raise InvalidInput(f"{name}: {what}")


def _is_a(value: object, *kinds: type) -> bool:
    return isinstance(value, kinds)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
