"""The command line, run as a process like a user's shell would."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
import trio

from pywaku import Message, NodeConfig, open_node
from tests.support.networks import eventually
from tests.support.processes import COMMAND, running_node

PEER = NodeConfig(mode="relay", cluster_id=42, shards=[0], bootstrap_nodes=[], listen_address="127.0.0.1")
LOCAL = ("--cluster-id", "42", "--shard", "0", "--listen-address", "127.0.0.1", "--tcp-port", "0")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


async def test_node_prints_its_peer_id_and_addresses() -> None:
    key = "364d111d729a6eb6d3e6113e163f017b5ef03a6f94c9b5b7bb1bb36fa5cb07a9"
    async with running_node(*LOCAL, "--nodekey", key, "--websocket-support", "--websocket-port", "0") as node:
        assert node.peer_id.startswith("16Uiu2")
        assert len(node.addresses) == 2
        assert all(address.endswith(f"/p2p/{node.peer_id}") for address in node.addresses)
        assert sum("/ws/" in address for address in node.addresses) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_node_stops_cleanly_on_a_signal(number: signal.Signals) -> None:
    async with running_node(*LOCAL) as node, open_node(PEER) as peer:
        await peer.connect(node.addresses[0])
        await eventually(lambda: bool(peer.relay.mesh("/waku/2/rs/42/0")))
        started = time.monotonic()
        assert await node.stop(number) == 0
        assert time.monotonic() - started < 2, "within 2 s, says the promise"
        await eventually(lambda: not peer.network.peers)
    assert f"peer joined: peer={peer.peer_id}" in node.log
    assert "node stopping" in node.log
    assert "Traceback" not in node.log
    assert " ERROR " not in node.log
    assert " WARNING " not in node.log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_node_that_waits_for_its_database_stops_on_a_signal_too(number: signal.Signals) -> None:
    (silent,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = silent.socket.getsockname()[1]
    url = f"postgres://user:word@127.0.0.1:{port}/waku"
    process = await trio.lowlevel.open_process(
        [*COMMAND, "node", *LOCAL, "--store", "--store-message-db-url", url], stdout=-1, stderr=-1
    )
    async with silent:
        with trio.fail_after(30):
            connection = await silent.accept()  # and no word to it
        async with connection:
            started = time.monotonic()
            process.send_signal(number)
            with trio.fail_after(30):
                assert await process.wait() == 0
            assert time.monotonic() - started < 2, "within 2 s, says the promise"
    assert process.stdout is not None
    assert process.stderr is not None
    async with process.stdout, process.stderr:
        assert b"".join([chunk async for chunk in process.stdout]) == b""
        assert b"Traceback" not in b"".join([chunk async for chunk in process.stderr])


async def test_nodes_as_processes_relay_for_each_other() -> None:
    """Two nodes that know only the one in the middle."""
    async with (
        running_node(*LOCAL, "--websocket-support=true", "--websocket-port=0") as middle,
        open_node(PEER) as one,
        open_node(PEER) as two,
    ):
        await one.connect(middle.addresses[0])
        await two.connect(middle.addresses[1])
        for node in (one, two):
            await eventually(lambda node=node: bool(node.relay.mesh("/waku/2/rs/42/0")))
        codec = one.codec("/test/1/cli/proto")
        async with await two.subscribe(codec) as subscription:
            one.send(codec, Message(b"through the middle"))
            with trio.fail_after(30):
                assert (await anext(subscription)).message.payload == b"through the middle"


async def test_static_nodes_are_connected() -> None:
    async with running_node(*LOCAL) as one, running_node(*LOCAL, "--staticnode", one.addresses[0]) as two:
        await one.wait_for_log(f"peer joined: peer={two.peer_id}")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ((), "pywaku: --cluster-id: is required"),
        (("--cluster-id", "70000"), "pywaku: --cluster-id: is 0 to 65535"),
        (("--cluster-id", "1", "--shard", "1024"), "pywaku: --shard: "),
        (("--cluster-id", "1", "--nodekey", "xyz"), "pywaku: --nodekey: "),
        (("--cluster-id", "1", "--staticnode", "xyz"), "pywaku: --staticnode: 'xyz' is not a multiaddr"),
        (
            ("--cluster-id", "1", "--ext-multiaddr", "xyz"),
            "pywaku: --ext-multiaddr: 'xyz' is not a multiaddr",
        ),
        (("--preset", "nowhere"), "pywaku: --preset: there is no 'nowhere'"),
        (
            ("--cluster-id", "1", "--ports-shift", "9999"),
            "pywaku: --ports-shift: 9999 moves --tcp-port 60000 out of 1 to 65535",
        ),
        (
            ("--cluster-id", "1", "--websocket-secure-cert-path", "a"),
            "pywaku: --websocket-secure-key-path: and --websocket-secure-cert-path go together",
        ),
        (
            (
                *("--cluster-id", "1", "--tcp-port", "0", "--websocket-secure-cert-path", "a"),
                *("--websocket-secure-key-path", "b"),
            ),
            "pywaku: --websocket-secure-cert-path: needs --websocket-support",
        ),
        (
            (
                *("--cluster-id", "1", "--tcp-port", "0", "--websocket-secure-cert-path", "/nowhere/a"),
                *("--websocket-secure-key-path", "b", "--websocket-support", "--websocket-port", "0"),
            ),
            "pywaku: --websocket-secure-cert-path: cannot read /nowhere/a",
        ),
        (
            ("--cluster-id", "1", "--confirm-content-topic", "/a/1/b/c", "--filter-confirmation=false"),
            "pywaku: --confirm-content-topic: need --store-confirmation or --filter-confirmation, which",
        ),
        (("--cluster-id", "1", "--storenode", "xyz"), "pywaku: --storenode: 'xyz' is not a multiaddr"),
        (
            ("--cluster-id", "1", "--records-path", "a", "--peer-persistence", "a"),
            "pywaku: --peer-persistence: a is also the --records-path",
        ),
        (("--cluster-id", "1", "--mode", "edge", "--store"), "pywaku: --store: is for relay nodes"),
        (("--cluster-id", "one"), "'one' is not a valid integer"),
        (("--no-such-option",), "No such option"),
    ],
)
def test_wrong_options_are_refused_with_what_is_right(options: tuple[str, ...], complaint: str) -> None:
    done = run("node", *options)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_port_in_use_is_one_line_and_exit_code_1() -> None:
    async with running_node(*LOCAL) as node:
        port = node.addresses[0].split("/")[4]
        done = await trio.to_thread.run_sync(
            lambda: run("node", *LOCAL[:-2], "--tcp-port", port), abandon_on_cancel=True
        )
    assert done.returncode == 1
    assert done.stderr.strip() == f"pywaku: cannot listen on /ip4/127.0.0.1/tcp/{port}: the address is in use"


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-m", "pywaku", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("pywaku ")


def test_version_and_help() -> None:
    assert run("--version").stdout.startswith("pywaku ")
    shown = run("node", "--help").stdout
    for option in ("--cluster-id", "--shard", "--tcp-port", "--websocket-support", "--staticnode"):
        assert option in shown


def test_help_imports_neither_network_nor_cryptography() -> None:
    code = (
        "import sys; sys.argv = ['pywaku', '--help']\n"
        "from pywaku.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "assert not {'trio', 'cryptography', 'google.protobuf'} & set(sys.modules)"
    )
    done = subprocess.run([COMMAND[0], "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_demo_shows_messages_arriving() -> None:
    done = run("demo")
    assert done.returncode == 0, done.stderr
    assert "every message reached every node" in done.stdout
    for line in (
        "bob reads 'hello from the edge'",
        "carol reads 'hello carol, alice here'",
        "dave reads 'still here'",
    ):
        assert line in done.stdout
    assert "carol's 'still here': stored" in done.stdout
