"""Run the measurements: `python -m bench [--quick | --long] [--only NAME …]`. Writes bench/report.json."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import trio

from bench import (
    archive,
    filter,
    hashing,
    heartbeat,
    journal,
    lightpush,
    memory,
    messaging,
    records,
    relay,
    sds,
    segments,
    store,
    streams,
)
from bench.report import Row, table, write_report
from bench.sides import FULL, QUICK, Scale
from interop.node import what_is_missing

REPORT: Final = Path(__file__).parent / "report.json"
REPORT_LONG: Final = Path(__file__).parent / "report-long.json"

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
    ("lightpush",): lightpush.pushes,
    ("filter-fanout-100", "filter-delay-10-stalled"): filter.fanout,
    ("filter-memory-distinct", "filter-memory-shared"): filter.subscription_memory,
    ("filter-match-100000",): filter.matching,
    ("store-query",): store.queries,
    ("send-relay",): messaging.relay,
    ("send-edge",): messaging.edge,
    ("messaging-memory",): messaging.memory,
    ("archive-insert-sqlite",): archive.insert_sqlite,
    ("archive-insert-postgres",): archive.insert_postgres,
    archive.page_names(archive.SIZES): archive.pages,
    ("records-apply",): records.apply,
    records.query_names(records.SIZES): records.queries,
    ("journal-write",): journal.writes,
    sds.RATE_NAMES: sds.rates,
    ("bloom-insert", "bloom-lookup"): sds.bloom,
    ("sds-memory-50k",): sds.memory,
    ("segments-encode", "segments-decode"): segments.segments,
    segments.REED_SOLOMON_NAMES: segments.reed_solomon,
}
LONG: Final[dict[tuple[str, ...], Callable[[Scale], Awaitable[list[Row]]]]] = {
    archive.page_names(archive.LONG_SIZES): archive.pages_long,
}
"""Those that take many minutes or much disk, in place of the others."""


async def _measure(
    measurements: dict[tuple[str, ...], Callable[[Scale], Awaitable[list[Row]]]],
    wanted: set[str],
    scale: Scale,
) -> list[Row]:
    rows: list[Row] = []
    for names, measure in measurements.items():
        if not wanted.isdisjoint(names):
            print(f"measuring {', '.join(names)}", file=sys.stderr, flush=True)
            rows += await measure(scale)
    return [row for row in rows if row.name in wanted]


def main() -> None:
    """The command."""
    known = list(dict.fromkeys(name for names in (*MEASUREMENTS, *LONG) for name in names))
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure pywaku against its peers.")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", choices=known, help=f"some of: {', '.join(known)}"
    )
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true", help="less than two minutes, and less exact")
    extent.add_argument("--long", action="store_true", help="an archive of ten million messages instead")
    options = parser.parse_args()
    missing = what_is_missing()
    if missing is not None:
        print(f"measuring ours alone: {missing}", file=sys.stderr)
    measurements = LONG if options.long else MEASUREMENTS
    rows = trio.run(_measure, measurements, set(options.only or known), QUICK if options.quick else FULL)
    write_report(REPORT_LONG if options.long else REPORT, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
