"""`pywaku node`: a node as a process of its own."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from typing import Any

import click

_GRACE_S = 1.0  # for a node that is told to stop while it starts
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
# What a configuration's property is called on the command line, where it is not its name with hyphens.
_OPTIONS = {
    "shards": "shard",
    "node_key": "nodekey",
    "announce": "ext-multiaddr",
    "bootstrap_nodes": "staticnode",
    "store_nodes": "storenode",
    "preferred_service_nodes": "preferred-service-node",
    "confirm_content_topics": "confirm-content-topic",
    "dns_discovery_urls": "dns-discovery-url",
    "dns_servers": "dns-addrs-name-server",
    "peers_path": "peer-persistence",
    "store_url": "store-message-db-url",
    "store_retention": "store-message-retention-policy",
    "websocket_secure_cert": "websocket-secure-cert-path",
    "websocket_secure_key": "websocket-secure-key-path",
}
_FLAG: dict[str, Any] = {
    "is_flag": False,
    "flag_value": True,
    "type": click.BOOL,
    "default": False,
    "metavar": "[true|false]",
}

_ON: dict[str, Any] = {**_FLAG, "default": True}


@click.command()
@click.option(
    "--mode",
    type=click.Choice(("relay", "edge", "core")),
    default="relay",
    show_default=True,
    help="Relay, or use service nodes that do; core is another name for relay.",
)
@click.option(
    "--cluster-id", type=int, help="The cluster to operate in, 0 to 65535. Required without a preset."
)
@click.option(
    "--shard", "shards", type=int, multiple=True, help="A shard to operate on, 0 to 1023; may be repeated."
)
@click.option("--preset", help="A known network: twn.")
@click.option(
    "--num-shards-in-network",
    type=int,
    help="Shards that content topics are spread over; 0 is static sharding.",
)
@click.option("--listen-address", default="0.0.0.0", show_default=True, help="The IP address to listen on.")  # noqa: S104
@click.option(
    "--tcp-port", type=int, default=60000, show_default=True, help="The TCP port; 0 takes a free one."
)
@click.option("--websocket-support", **_FLAG, help="Listen for WebSocket connections as well.")
@click.option("--websocket-port", type=int, default=8000, show_default=True, help="The WebSocket port.")
@click.option("--websocket-secure-cert-path", help="A PEM certificate chain: WebSocket becomes wss.")
@click.option("--websocket-secure-key-path", help="The PEM private key of the certificate.")
@click.option("--ports-shift", type=int, default=0, help="Added to each port that is not 0.")
@click.option("--ext-multiaddr", "announce", multiple=True, help="An address to tell peers; may be repeated.")
@click.option("--nodekey", help="The identity: a secp256k1 key as 64 hex digits. A new one without it.")
@click.option(
    "--staticnode", "bootstrap_nodes", multiple=True, help="A peer to stay connected with; may be repeated."
)
@click.option(
    "--storenode", "store_nodes", multiple=True, help="A store node to query first; may be repeated."
)
@click.option(
    "--preferred-service-node",
    "preferred_service_nodes",
    multiple=True,
    help="A service node to use before those that are discovered; may be repeated.",
)
@click.option(
    "--confirm-content-topic",
    "confirm_content_topics",
    multiple=True,
    help="A content topic to monitor; may be repeated.",
)
@click.option("--store-confirmation", **_FLAG, help="Ask store nodes for the messages of these topics.")
@click.option("--filter-confirmation", **_ON, help="Listen on these topics; on by default.")
@click.option("--fetch-missed", **_ON, help="Fetch what was missed from store nodes; on by default.")
@click.option("--records-path", help="A file to keep message records in; in memory without it.")
@click.option(
    "--records-retention",
    default="time:604800;capacity:200000",
    show_default=True,
    help="Which records are kept: time:SECONDS, capacity:RECORDS, both with ';' between, or none for all.",
)
@click.option("--journal-path", help="A directory to write the event journal to.")
@click.option("--lightpush", **_ON, help="Publish for light nodes; on by default.")
@click.option("--filter", "filter_", **_ON, help="Push messages to light nodes; on by default.")
@click.option("--store", **_FLAG, help="Keep messages and answer queries for them.")
@click.option(
    "--store-message-db-url",
    default="sqlite://store.sqlite3",
    show_default=True,
    help="Where messages are kept: sqlite://FILE or postgres://USER:PASSWORD@HOST/DATABASE.",
)
@click.option(
    "--store-message-retention-policy",
    default="time:172800",
    show_default=True,
    help="What is kept: time:SECONDS, capacity:MESSAGES, size:NGB; several with ';' between.",
)
@click.option("--peer-exchange", **_ON, help="Tell light nodes of discovered peers; on by default.")
@click.option(
    "--dns-discovery-url",
    "dns_discovery_urls",
    multiple=True,
    help="A node list in DNS, enrtree://…, to discover peers by; may be repeated.",
)
@click.option(
    "--dns-addrs-name-server",
    "dns_servers",
    multiple=True,
    help="A name server to ask instead of the system's; may be repeated.",
)
@click.option("--peer-persistence", help="A file to remember peers in.")
@click.option("--max-connections", type=int, default=150, show_default=True, help="Connections at a time.")
@click.option(
    "--log-level", type=click.Choice(_LEVELS, case_sensitive=False), default="INFO", show_default=True
)
def node(**options: Any) -> None:
    """Run a node until SIGINT or SIGTERM.

    Prints the peer id, an address a line and the node record, then `ready`; logs peers that join and leave.
    """
    from pywaku.errors import InvalidInput

    logging.basicConfig(level=options["log_level"].upper(), format="%(asctime)s %(levelname)-7s %(message)s")
    try:
        _open(options)
    except InvalidInput as error:
        raise InvalidInput(_with_options_names(str(error))) from error


def _open(options: dict[str, Any]) -> None:
    import trio

    from pywaku.messaging import NodeConfig

    websocket = options["websocket_support"]
    preset, count = options["preset"], options["num_shards_in_network"]
    knows_shards = preset if count is None else count
    config = NodeConfig(
        mode=options["mode"],
        cluster_id=options["cluster_id"],
        shards=options["shards"] or (None if knows_shards else (0,)),
        preset=preset,
        num_shards_in_network=count,
        node_key=options["nodekey"],
        listen_address=options["listen_address"],
        tcp_port=_shifted("tcp_port", options),
        websocket_port=_shifted("websocket_port", options) if websocket else None,
        websocket_secure_cert=options["websocket_secure_cert_path"],
        websocket_secure_key=options["websocket_secure_key_path"],
        announce=options["announce"],
        bootstrap_nodes=options["bootstrap_nodes"] or (None if preset else ()),
        store_nodes=options["store_nodes"],
        preferred_service_nodes=options["preferred_service_nodes"],
        store_confirmation=options["store_confirmation"],
        filter_confirmation=options["filter_confirmation"],
        confirm_content_topics=options["confirm_content_topics"],
        fetch_missed=options["fetch_missed"],
        records_path=options["records_path"],
        records_retention=options["records_retention"],
        journal_path=options["journal_path"],
        lightpush=options["lightpush"],
        filter=options["filter_"],
        store=options["store"],
        store_url=options["store_message_db_url"],
        store_retention=options["store_message_retention_policy"],
        peer_exchange=options["peer_exchange"],
        dns_discovery_urls=options["dns_discovery_urls"],
        dns_servers=options["dns_servers"],
        peers_path=options["peer_persistence"],
        max_connections=options["max_connections"],
    )
    trio.run(_run, config)


def _shifted(name: str, options: dict[str, Any]) -> int:
    port, shift = options[name], options["ports_shift"]
    if port == 0 or shift == 0:
        return port
    if not 1 <= port + shift <= 65535:
        from pywaku.errors import InvalidInput

        raise InvalidInput(f"ports_shift: {shift} moves {name} {port} out of 1 to 65535")
    return port + shift


def _with_options_names(complaint: str) -> str:
    """A complaint about a configuration, in the words of the command line."""
    name, colon, what = complaint.partition(": ")
    if not colon or not re.fullmatch("[a-z_]+", name):
        return complaint
    what = re.sub(r"\ba websocket_port\b", "--websocket-support", what)
    what = re.sub(
        r"\b(?:(?:tcp|websocket)_port|websocket_secure_cert|(?:store|filter)_confirmation|[a-z]+_path)\b",
        lambda match: _option(match[0]),
        what,
    )
    return f"{_option(name)}: {what}"


def _option(name: str) -> str:
    return "--" + _OPTIONS.get(name, name.replace("_", "-"))


async def _run(config: Any) -> None:
    import trio

    from pywaku.messaging import open_node
    from pywaku.tasks import open_service_nursery

    stop = _Stop(trio.Event(), trio.CancelScope())
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals, stop.at_once:
        async with open_service_nursery() as nursery:
            nursery.start_soon(_heed, signals, stop)
            async with open_node(config) as running:
                stop.ready = True
                click.echo(f"peer id {running.peer_id}")
                for address in running.addresses:
                    click.echo(f"address {address}")
                if running.enr is not None:
                    click.echo(f"record {running.enr.text}")
                click.echo("ready")
                await stop.asked.wait()


class _Stop:
    """How the node is asked to stop: in order once it is ready, at once before that or when asked again."""

    def __init__(self, asked: Any, at_once: Any) -> None:
        self.asked = asked
        self.at_once = at_once
        self.ready = False


async def _heed(signals: Any, stop: _Stop) -> None:
    async for number in signals:
        logging.getLogger(__name__).info("signal received: signal=%s", signal.Signals(number).name)
        if stop.ready and not stop.asked.is_set():
            stop.asked.set()
            continue
        if not stop.ready:
            # What it waits for may be in a thread that cannot be interrupted, as a database is; there is
            # nothing to lose yet.
            last = threading.Timer(_GRACE_S, os._exit, (0,))
            last.daemon = True
            last.start()
        stop.at_once.cancel()
