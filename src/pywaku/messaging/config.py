"""What a node is told when it is made, checked before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

from pywaku.archive import DEFAULT_RETENTION, DEFAULT_URL
from pywaku.errors import InvalidInput, InvalidTopic
from pywaku.gossip import GossipParams
from pywaku.keys import PrivateKey
from pywaku.messaging.checks import (
    addresses_among,
    check_config,
    is_list,
    is_record,
    record_retention,
    topics_to_confirm,
)
from pywaku.messaging.presets import Preset, preset_named
from pywaku.messaging.records.port import Retention
from pywaku.topics import shard_topic
from pywaku.wire.multiaddr import Multiaddr

_REQUIRED: Final[Any] = None  # what is missing is refused by name, like what cannot be meant
DEFAULT_RECORDS_RETENTION: Final = "time:604800;capacity:200000"
"""Seven days, and no more than 200,000 records."""


class NodeProperties(TypedDict, total=False):
    """The properties of `NodeConfig`, as keywords of `open_node`."""

    mode: Literal["edge", "relay", "core"]
    cluster_id: int | None
    shards: Sequence[int] | None
    preset: str | None
    num_shards_in_network: int | None
    node_key: PrivateKey | str | None
    listen_address: str
    tcp_port: int | None
    websocket_port: int | None
    websocket_secure_cert: Path | str | None
    websocket_secure_key: Path | str | None
    announce: Sequence[Multiaddr | str]
    bootstrap_nodes: Sequence[Multiaddr | str] | None
    store_nodes: Sequence[Multiaddr | str]
    preferred_service_nodes: Sequence[Multiaddr | str]
    store_confirmation: bool
    filter_confirmation: bool
    confirm_content_topics: Sequence[str]
    subscribe_on_send: bool
    fetch_missed: bool
    max_pending_sends: int
    records_path: Path | str | None
    records_retention: str
    journal_path: Path | str | None
    max_connections: int
    validate_timestamps: bool | None
    free_bandwidth_bps: int | None
    require_metadata: bool | None
    lightpush: bool
    filter: bool
    store: bool
    store_url: str
    store_retention: str
    peer_exchange: bool
    dns_discovery_urls: Sequence[str]
    dns_servers: Sequence[str]
    peers_path: Path | str | None
    gossip: GossipParams
    seed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Configuration of a node. Raises `InvalidInput` with the property's name and what is right."""

    mode: Literal["edge", "relay", "core"] = _REQUIRED
    """`relay` (or its later name, `core`, which becomes `relay`) takes part in the gossip of its shards and
    serves light nodes; `edge` is one of those: it sends, receives and queries through service nodes."""
    cluster_id: int | None = None
    """The cluster to operate in, 0 to 65535. Required unless a preset says it."""
    shards: Sequence[int] | None = None
    """The shards of the cluster to operate on, 0 to 1023. Required, unless a preset or
    `num_shards_in_network` says how many the network has: without it all of those."""
    preset: str | None = None
    """A known network by name: `twn`."""
    num_shards_in_network: int | None = None
    """How many shards content topics are spread over (auto sharding); 0, the default, is static sharding."""
    bootstrap_nodes: Sequence[Multiaddr | str] | None = None
    """Peers to begin with; required (`[]`: none), unless a preset knows some. Addresses that end in `/p2p/…`
    and node records (`enr:…`, of which a bad one is logged and skipped) are kept connected; node lists in DNS
    (`enrtree://…`) are looked up."""
    store_nodes: Sequence[Multiaddr | str] = ()
    """Store nodes to query before all others: addresses that end in `/p2p/…`."""
    preferred_service_nodes: Sequence[Multiaddr | str] = ()
    """Service nodes to use before those that are discovered, for whatever they serve."""
    store_confirmation: bool = False
    """Ask store nodes for the messages of `confirm_content_topics` and of subscriptions, so that records tell
    what is `stored`; a message that is not gets sent again."""
    filter_confirmation: bool = True
    """Listen on `confirm_content_topics`, so that records tell what was `received`."""
    confirm_content_topics: Sequence[str] = ()
    """Content topics to monitor from the start. With static sharding on each of the node's shards."""
    subscribe_on_send: bool = True
    """A first message on a content topic subscribes to it (later MESSAGING-API, Messaging)."""
    fetch_missed: bool = True
    """Fetch from store nodes what was missed while offline or not running."""
    max_pending_sends: int = 10_000
    """Messages that may wait to be sent; `send` refuses more."""
    records_path: Path | str | None = None
    """A file to keep message records in; without it they are in memory, and end with the node."""
    records_retention: str = DEFAULT_RECORDS_RETENTION
    """Which records are kept: `time:<seconds>` since the last change, `capacity:<records>`, joined by `;`, or
    `none` for all. Messages that wait to be sent always are."""
    journal_path: Path | str | None = None
    """A directory to write the event journal to; without it there is none."""
    node_key: PrivateKey | str | None = field(default=None, repr=False)
    """The identity: a key, or the 64 hex digits of a secp256k1 key. A new one without it."""
    listen_address: str = "0.0.0.0"  # noqa: S104 - a relay node is there to be reached
    """The IP address to listen on."""
    tcp_port: int | None = 0
    """The port for TCP; 0 takes a free one, None does not listen."""
    websocket_port: int | None = None
    """The port for WebSocket; 0 takes a free one, None (the default) does not listen."""
    websocket_secure_cert: Path | str | None = None
    """A PEM certificate chain; with it and its key the WebSocket port speaks wss."""
    websocket_secure_key: Path | str | None = None
    """The PEM private key of the certificate."""
    announce: Sequence[Multiaddr | str] = ()
    """Addresses to tell peers instead of those listened on (behind a NAT or a proxy)."""
    max_connections: int = 150
    """Connections at a time."""
    validate_timestamps: bool | None = None
    """Reject messages stamped more than 20 s from now. Off unless a preset says so."""
    free_bandwidth_bps: int | None = None
    """Ignore messages without a proof beyond that many bits per second and shard. None: no limit."""
    require_metadata: bool | None = None
    """Disconnect peers that do not answer a metadata request. Off unless a preset says so."""
    lightpush: bool = True
    """Publish for light nodes."""
    filter: bool = True
    """Push messages to light nodes that subscribe."""
    store: bool = False
    """Keep messages and answer queries for them."""
    store_url: str = field(default=DEFAULT_URL, repr=False)  # there may be a password in it
    """Where messages are kept: `sqlite://<file>`, `sqlite://:memory:` or `postgres://…`."""
    store_retention: str = DEFAULT_RETENTION
    """What is kept: `time:<seconds>`, `capacity:<messages>`, `size:<n>GB`, joined by `;`."""
    peer_exchange: bool = True
    """Tell others of the peers that were discovered (relay), or ask others for theirs (edge)."""
    dns_discovery_urls: Sequence[str] = ()
    """Node lists in DNS to discover peers by: `enrtree://…`."""
    dns_servers: Sequence[str] = ()
    """The name servers for that, instead of the system's: `1.1.1.1`, `[::1]:5353`."""
    peers_path: Path | str | None = None
    """A file to remember peers in; without it a restart begins with the bootstrap nodes."""
    gossip: GossipParams = field(default_factory=GossipParams)
    """Parameters of the relay's router."""
    seed: int | None = None
    """For the choices that are left to chance; a random one without it."""

    def __post_init__(self) -> None:
        if self.mode == "core":
            object.__setattr__(self, "mode", "relay")
        check_config(self)

    @property
    def preset_values(self) -> Preset | None:
        """What the preset says."""
        return None if self.preset is None else preset_named(self.preset)

    @property
    def cluster(self) -> int:
        """The cluster id in force."""
        if self.cluster_id is not None:
            return self.cluster_id
        preset = self.preset_values
        return -1 if preset is None else preset.cluster_id

    @property
    def shard_count(self) -> int:
        """Shards that content topics are spread over; 0 with static sharding."""
        if self.num_shards_in_network is not None:
            return self.num_shards_in_network
        return 0 if self.preset_values is None else self.preset_values.num_shards_in_network

    @property
    def topics(self) -> tuple[str, ...]:
        """The pubsub topics of the node's shards."""
        shards = range(self.shard_count) if self.shards is None else self.shards
        try:
            return tuple(dict.fromkeys(shard_topic(self.cluster, shard) for shard in shards))
        except InvalidTopic as error:
            raise InvalidInput(f"shards: {error}") from error

    @property
    def timestamps_validated(self) -> bool:
        """Whether the timestamp rule is in force."""
        return self._or_preset(self.validate_timestamps, "validate_timestamps")

    @property
    def metadata_required(self) -> bool:
        """Whether peers have to answer a metadata request."""
        return self._or_preset(self.require_metadata, "require_metadata")

    @property
    def bandwidth_limit(self) -> int | None:
        """The free-bandwidth rule's limit in force."""
        if self.free_bandwidth_bps is not None or self.preset_values is None:
            return self.free_bandwidth_bps
        return self.preset_values.free_bandwidth_bps

    def key(self) -> PrivateKey | None:
        """The identity that was given."""
        if isinstance(self.node_key, str):
            try:
                return PrivateKey.from_hex(self.node_key)
            except InvalidInput as error:
                raise InvalidInput(f"node_key: {error}") from error
        return self.node_key

    def listen_addresses(self) -> tuple[Multiaddr, ...]:
        """The multiaddrs to listen on."""
        protocol = "ip6" if ":" in self.listen_address else "ip4"
        host = f"/{protocol}/{self.listen_address}"
        found: list[Multiaddr] = []
        try:
            if self.tcp_port is not None:
                found.append(Multiaddr.parse(f"{host}/tcp/{self.tcp_port}"))
            if self.websocket_port is not None:
                suffix = "wss" if self.websocket_secure_cert else "ws"
                found.append(Multiaddr.parse(f"{host}/tcp/{self.websocket_port}/{suffix}"))
        except InvalidInput as error:
            raise InvalidInput(f"listen_address: is an IP address, not {self.listen_address!r}") from error
        return tuple(found)

    def announced(self) -> tuple[Multiaddr, ...]:
        """The addresses to tell peers."""
        return addresses_among(self.announce, "announce")

    def bootstrap(self) -> tuple[Multiaddr, ...]:
        """The addresses among the bootstrap nodes."""
        nodes = [node for node in self._bootstrap_nodes if not is_record(node) and not is_list(node)]
        return addresses_among(nodes, "bootstrap_nodes")

    def bootstrap_records(self) -> tuple[str, ...]:
        """The node records among the bootstrap nodes, good and bad."""
        return tuple(str(node) for node in self._bootstrap_nodes if is_record(node))

    def discovery_urls(self) -> tuple[str, ...]:
        """The node lists in DNS: those given as such, and those among the bootstrap nodes."""
        lists = [str(node).strip() for node in self._bootstrap_nodes if is_list(node)]
        return tuple(dict.fromkeys([*self.dns_discovery_urls, *lists]))

    def stores(self) -> tuple[Multiaddr, ...]:
        """The addresses of `store_nodes`."""
        return addresses_among(self.store_nodes, "store_nodes")

    def preferred(self) -> tuple[Multiaddr, ...]:
        """The addresses of `preferred_service_nodes`."""
        return addresses_among(self.preferred_service_nodes, "preferred_service_nodes")

    def confirm_topics(self) -> tuple[tuple[str, str], ...]:
        """What to monitor from the start, as pairs of pubsub topic and content topic."""
        return topics_to_confirm(self)

    def record_retention(self) -> Retention:
        """Which records are kept."""
        return record_retention(self.records_retention)

    @property
    def _bootstrap_nodes(self) -> Sequence[Multiaddr | str]:
        """Those that were given; else those of the preset, unless other node lists were."""
        if self.bootstrap_nodes is not None:
            return self.bootstrap_nodes
        preset = self.preset_values
        return () if preset is None or self.dns_discovery_urls else preset.bootstrap_nodes

    def _or_preset(self, own: bool | None, name: str) -> bool:
        if own is not None:
            return own
        return self.preset_values is not None and bool(getattr(self.preset_values, name))
