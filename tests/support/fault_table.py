"""Prints the fault matrix as measured: `python -m tests.support.fault_table`, for docs/fault-matrix.md."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Final

from tests.support.fault_cells import CELLS, Cell, play
from tests.support.faults import Fate
from tests.support.replay import run_replayable

_HANDLED_BY: Final = (
    ("one service node", "two service nodes at once"),
    ("answers 400", "a refusal is final"),
    ("answers 413", "a refusal is final"),
    ("answers after", "10 s of patience; what was seen in the network is sent"),
    ("lies about success", "store check, then other service nodes"),
    ("die after the answer", "store check, then other service nodes"),
    ("every service node", "three retries, then `error`"),
    ("both service nodes", "retry at 1 s through other nodes of the pool"),
    ("all service nodes", "pause while unhealthy; retry; store check"),
    ("some relay peers", "the other mesh peers; store search after a subscription and every minute"),
    ("relay peers", "store check; resend; pause while unhealthy"),
    ("the subscribers are parted", "what was in flight; store search on return"),
    ("is parted", "pause while unhealthy; no attempt counts while no store answers"),
    ("are parted", "other service nodes; no attempt counts while no store answers"),
    ("island", "store check; resend, which service nodes relay once more"),
    ("comes and goes", "pause while unhealthy; no attempt counts while no store answers"),
    ("push nothing", "store search every minute"),
    ("filter nodes", "ping and replacement; store search after each new subscription"),
    ("is killed", "the accepted send is on disk, and goes on"),
    ("is stopped", "the accepted send is on disk, and goes on"),
    ("store", "the next store; echo from another filter node; then `error`"),
    ("the sender's clock", "echo from another filter node; else stores refuse it: `error`"),
    ("the subscribers' clocks", "search from the earliest time that either clock means"),
)


def _handled_by(fault: str) -> str:
    return next(how for what, how in _HANDLED_BY if what in fault)


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s" if value >= 0.05 else "at once"


def _told(fate: Fate) -> str:
    heard = list(fate.heard_after_s.values())
    last = None if None in heard else max(value for value in heard if value is not None)
    attempts = f"{fate.record.attempts} attempt{'s' * (fate.record.attempts != 1)}"
    end = "`error`" if fate.record.error is not None else "sent"
    return f"heard {_seconds(last)}, {end} {fate.final_after_s:.0f} s, {attempts}"


def measure(cell: Cell, seed: int = 1) -> Fate:
    """Play a cell in a way that repeats."""
    with tempfile.TemporaryDirectory() as directory:
        return run_replayable(partial(play, cell, Path(directory), seed=seed), seed=seed)


def main() -> None:
    """Print the table."""
    rows: dict[str, dict[str, str]] = {}
    for cell in CELLS:
        rows.setdefault(cell.fault, {})[cell.mode] = _told(measure(cell))
    print("| fault | edge | relay | handled by |\n| --- | --- | --- | --- |")
    for fault, modes in rows.items():
        print(f"| {fault} | {modes.get('edge', '')} | {modes.get('relay', '')} | {_handled_by(fault)} |")


if __name__ == "__main__":
    main()
