"""Run the measurements: `python -m bench [--quick] [--only NAME …]`. Writes bench/report.json."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import trio

from bench import hashing, heartbeat, memory, relay, streams
from bench.report import Row, table, write_report
from bench.sides import FULL, QUICK, Scale
from interop.node import what_is_missing

REPORT: Final = Path(__file__).parent / "report.json"

# The names are fixed, so that runs compare.
MEASUREMENTS: Final[dict[tuple[str, ...], Callable[[Scale], Awaitable[list[Row]]]]] = {
    ("request-200B-sequential",): streams.sequential,
    ("request-200B-32",): streams.concurrent,
    ("relay-200B",): relay.small,
    ("relay-10KB",): relay.large,
    ("bulk-64KB",): streams.bulk,
    ("hash",): hashing.hashes,
    ("connection-memory",): memory.connections,
    ("heartbeat-100", "heartbeat-500", "heartbeat-1000"): heartbeat.heartbeats,
}


async def _measure(wanted: set[str], scale: Scale) -> list[Row]:
    rows: list[Row] = []
    for names, measure in MEASUREMENTS.items():
        if not wanted.isdisjoint(names):
            print(f"measuring {', '.join(names)}", file=sys.stderr, flush=True)
            rows += await measure(scale)
    return [row for row in rows if row.name in wanted]


def main() -> None:
    """The command."""
    known = [name for names in MEASUREMENTS for name in names]
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure pywaku against its peers.")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=known, help=f"some of: {', '.join(known)}"
    )
    parser.add_argument("--quick", action="store_true", help="less than a minute, and less exact")
    options = parser.parse_args()
    missing = what_is_missing()
    if missing is not None:
        print(f"measuring ours alone: {missing}", file=sys.stderr)
    rows = trio.run(_measure, set(options.only or known), QUICK if options.quick else FULL)
    write_report(REPORT, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
