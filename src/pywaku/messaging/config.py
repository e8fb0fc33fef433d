"""What a node is told when it is made, checked before anything starts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypedDict

from pywaku.archive import DEFAULT_RETENTION, DEFAULT_URL, parse_retention
from pywaku.errors import InvalidInput, InvalidTopic
from pywaku.gossip import GossipParams
from pywaku.keys import PrivateKey
from pywaku.messaging.presets import Preset, preset_named
from pywaku.network.libp2p.transports import Endpoint
from pywaku.peers.enrtree import parse_url
from pywaku.topics import shard_topic
from pywaku.wire.multiaddr import Multiaddr

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
_LISTS: Final = ("shards", "announce", "bootstrap_nodes", "dns_discovery_urls", "dns_servers")


class NodeProperties(TypedDict, total=False):
    """The properties of `NodeConfig`, as keywords of `open_node`."""

    mode: Literal["relay", "edge"]
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
    bootstrap_nodes: Sequence[Multiaddr | str]
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

    mode: Literal["relay", "edge"] = "relay"
    """A relay node takes part in the gossip of its shards and serves light nodes; an edge node is one of
    those: it sends, receives and queries through service nodes."""
    cluster_id: int | None = None
    """The cluster to operate in, 0 to 65535. Required unless a preset says it."""
    shards: Sequence[int] | None = None
    """Shards of the cluster to relay, 0 to 1023; without it all shards of the network, or shard 0."""
    preset: str | None = None
    """A known network by name: `twn`."""
    num_shards_in_network: int | None = None
    """How many shards content topics are spread over (auto sharding); 0, the default, is static sharding."""
    node_key: PrivateKey | str | None = None
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
    bootstrap_nodes: Sequence[Multiaddr | str] = ()
    """Peers to connect to and to stay connected with: addresses that end in `/p2p/…`, and node records
    (`enr:…`), of which a bad one is logged and skipped."""
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
    store_url: str = DEFAULT_URL
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
        self._check_kinds()
        _check(
            self.preset_values is None or self.cluster_id in (None, self.preset_values.cluster_id),
            "cluster_id",
            f"{self.cluster_id} contradicts preset {self.preset!r}; leave one of them out",
        )
        _check(
            self.cluster_id is not None or self.preset is not None, "cluster_id", "is required (0 to 65535)"
        )
        _check(self.cluster in _CLUSTERS, "cluster_id", f"is 0 to 65535, not {self.cluster_id}")
        count = self.shard_count
        _check(0 <= count <= len(_SHARDS), "num_shards_in_network", f"is 0 to 1024, not {count}")
        _check(bool(self.topics), "shards", "names no shard; give at least one")
        for shard in self.shards or ():
            limit = count or len(_SHARDS)
            _check(shard in range(limit), "shards", f"are 0 to {limit - 1} in this network, not {shard}")
        for name, port in (("tcp_port", self.tcp_port), ("websocket_port", self.websocket_port)):
            _check(port is None or port in _PORTS, name, f"is 0 to 65535, not {port}")
        _check(
            not self.tcp_port or self.tcp_port != self.websocket_port,
            "websocket_port",
            "is also the tcp_port",
        )
        secure = (self.websocket_secure_cert, self.websocket_secure_key)
        _check(
            all(secure) or not any(secure), "websocket_secure_key", "and websocket_secure_cert go together"
        )
        _check(
            not any(secure) or self.websocket_port is not None,
            "websocket_secure_cert",
            "needs a websocket_port",
        )
        _check(self.max_connections >= 1, "max_connections", f"is at least 1, not {self.max_connections}")
        _check(
            self.free_bandwidth_bps is None or self.free_bandwidth_bps > 0,
            "free_bandwidth_bps",
            "is positive",
        )
        _check(self.mode in ("relay", "edge"), "mode", f"is relay or edge, not {self.mode!r}")
        _check(
            not (self.store and self.mode == "edge"),
            "store",
            "is for relay nodes",
        )
        for url in self.dns_discovery_urls:
            try:
                parse_url(url)
            except InvalidInput as error:
                raise InvalidInput(f"dns_discovery_urls: {error}") from error
        try:
            parse_retention(self.store_retention)
        except InvalidInput as error:
            raise InvalidInput(f"store_retention: {error}") from error
        self.listen_addresses()
        self.announced()
        for address in self.bootstrap():
            _check(address.peer_id is not None, "bootstrap_nodes", f"end in /p2p/ and a peer id: {address}")
            _check(
                Endpoint.of(address) is not None,
                "bootstrap_nodes",
                f"are addresses for TCP, ws or wss, which {address} is not",
            )
        self.key()

    def _check_kinds(self) -> None:
        """Programs that are not type-checked deserve a name and a reason too."""
        for name in _INTEGERS:
            value: object = getattr(self, name)
            _check(value is None or _is_integer(value), name, f"is an int, not {value!r}")
        _check(
            _is_integer(self.max_connections), "max_connections", f"is an int, not {self.max_connections!r}"
        )
        for name in _LISTS:
            value = getattr(self, name)
            listed = isinstance(value, Collection) and not isinstance(value, str | bytes)
            _check(listed or (value is None and name == "shards"), name, f"is a list, not {value!r}")
        for shard in self.shards or ():
            _check(_is_integer(shard), "shards", f"are ints, not {shard!r}")
        for name in ("announce", "bootstrap_nodes"):
            for item in getattr(self, name):
                _check(_is_a(item, str, Multiaddr), name, f"are multiaddrs or their texts, not {item!r}")
        _check(_is_a(self.preset, str, type(None)), "preset", f"is a name, not {self.preset!r}")
        _check(
            _is_a(self.node_key, PrivateKey, str, type(None)),
            "node_key",
            f"is a PrivateKey or 64 hex digits, not {type(self.node_key).__name__}",
        )
        _check(
            _is_a(self.listen_address, str),
            "listen_address",
            f"is an IP address, not {self.listen_address!r}",
        )
        _check(_is_a(self.gossip, GossipParams), "gossip", f"is a GossipParams, not {self.gossip!r}")

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
        shards = tuple(range(self.shard_count or 1)) if self.shards is None else tuple(self.shards)
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
        return _parsed(self.announce, "announce")

    def bootstrap(self) -> tuple[Multiaddr, ...]:
        """The addresses among the bootstrap nodes."""
        return _parsed([node for node in self.bootstrap_nodes if not _is_record(node)], "bootstrap_nodes")

    def bootstrap_records(self) -> tuple[str, ...]:
        """The node records among the bootstrap nodes, good and bad."""
        return tuple(str(node) for node in self.bootstrap_nodes if _is_record(node))

    def _or_preset(self, own: bool | None, name: str) -> bool:
        if own is not None:
            return own
        return self.preset_values is not None and bool(getattr(self.preset_values, name))


def _is_record(node: Multiaddr | str) -> bool:
    return isinstance(node, str) and node.strip().startswith("enr:")


def _parsed(addresses: Sequence[Multiaddr | str], name: str) -> tuple[Multiaddr, ...]:
    try:
        return tuple(Multiaddr.parse(item) if isinstance(item, str) else item for item in addresses)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from error


def _check(holds: bool, name: str, what: str) -> None:
    if not holds:
        raise InvalidInput(f"{name}: {what}")


def _is_a(value: object, *kinds: type) -> bool:
    return isinstance(value, kinds)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
