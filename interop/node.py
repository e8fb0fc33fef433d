"""Node.js and the JavaScript peers in `interop/js`: is all there, and how to start one."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from interop.peer_process import PeerProcess, open_peer_process

OLDEST_NODE = 20
_HERE = Path(__file__).parent
_SCRIPTS = _HERE / "js"
_OWN_NODE = _HERE.parent / ".node" / "bin" / "node"  # put there by node-setup.sh


def _major_version(node: str) -> int:
    try:
        result = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=False)
        return int(result.stdout.removeprefix("v").split(".")[0])
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return 0


@functools.cache
def find_node() -> str | None:
    """The node program to use: the machine's own if it is new enough, else the one in `.node`."""
    for node in (shutil.which("node"), str(_OWN_NODE)):
        if node is not None and _major_version(node) >= OLDEST_NODE:
            return node
    return None


def what_is_missing() -> str | None:
    """Why no JavaScript peer can be started here, in one line; None when all is there."""
    if find_node() is None:
        return f"no Node.js of version {OLDEST_NODE} or newer: run 'make interop', which installs one"
    if not (_SCRIPTS / "node_modules" / "libp2p").is_dir():
        return "the JavaScript packages are not installed: run 'make interop', which installs them"
    return None


def open_js_peer(script: str, **options: Any) -> AbstractAsyncContextManager[PeerProcess]:
    """Start a peer, for instance `open_js_peer("peer", transport="ws", muxer="mplex")`."""
    node = find_node()
    if node is None:
        raise FileNotFoundError(what_is_missing())
    command = [node, "--expose-gc", str(_SCRIPTS / f"{script}.mjs"), json.dumps(options)]
    return open_peer_process(command)
