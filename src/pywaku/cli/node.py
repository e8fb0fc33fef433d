"""`pywaku node`: a relay node as a process of its own."""

from __future__ import annotations

import logging
import signal
from typing import Any

import click

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_FLAG: dict[str, Any] = {"is_flag": False, "flag_value": True, "type": click.BOOL, "default": False}


@click.command()
@click.option(
    "--cluster-id", type=int, help="The cluster to operate in, 0 to 65535. Required without a preset."
)
@click.option(
    "--shard", "shards", type=int, multiple=True, help="A shard to relay, 0 to 1023; may be repeated."
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
@click.option("--max-connections", type=int, default=150, show_default=True, help="Connections at a time.")
@click.option(
    "--log-level", type=click.Choice(_LEVELS, case_sensitive=False), default="INFO", show_default=True
)
def node(**options: Any) -> None:
    """Run a relay node until SIGINT or SIGTERM.

    Prints the peer id and an address a line, then `ready`; logs peers that join and leave.
    """
    import trio

    from pywaku.messaging import NodeConfig

    logging.basicConfig(level=options["log_level"].upper(), format="%(asctime)s %(levelname)-7s %(message)s")
    shift = options["ports_shift"]
    config = NodeConfig(
        cluster_id=options["cluster_id"],
        shards=options["shards"] or None,
        preset=options["preset"],
        num_shards_in_network=options["num_shards_in_network"],
        node_key=options["nodekey"],
        listen_address=options["listen_address"],
        tcp_port=_shifted(options["tcp_port"], shift),
        websocket_port=_shifted(options["websocket_port"], shift) if options["websocket_support"] else None,
        websocket_secure_cert=options["websocket_secure_cert_path"],
        websocket_secure_key=options["websocket_secure_key_path"],
        announce=options["announce"],
        bootstrap_nodes=options["bootstrap_nodes"],
        max_connections=options["max_connections"],
    )
    trio.run(_run, config)


def _shifted(port: int, shift: int) -> int:
    return port + shift if port else port


async def _run(config: Any) -> None:
    import trio

    from pywaku.messaging import open_node

    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with open_node(config) as running:
            click.echo(f"peer id {running.peer_id}")
            for address in running.addresses:
                click.echo(f"address {address}")
            click.echo("ready")
            async for number in signals:
                logging.getLogger(__name__).info("signal received: signal=%s", signal.Signals(number).name)
                break
