"""The SDS of js-waku in a process of its own (`interop/js-sds`)."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from interop.node import find_node, what_is_missing
from interop.peer_process import PeerProcess, open_peer_process

_FOLDER = Path(__file__).parent / "js-sds"


def what_is_missing_for_sds() -> str | None:
    """Why it cannot be started here, in one line; None when all is there."""
    missing = what_is_missing()
    if missing is None and not (_FOLDER / "node_modules" / "@waku" / "sds").is_dir():
        return "the packages of interop/js-sds are not installed: run 'interop/node-setup.sh python3'"
    return missing


def open_js_sds() -> AbstractAsyncContextManager[PeerProcess]:
    """Start it."""
    node = find_node()
    if node is None:
        raise FileNotFoundError(what_is_missing_for_sds())
    return open_peer_process([node, "--expose-gc", str(_FOLDER / "sds.mjs")])
