"""What was measured, as a file for programs (`report.json`) and a table for people."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. A ratio above 1 always means that ours is better; None where there is no peer."""

    name: str
    ours: float
    theirs: float | None
    peer: str | None
    ratio: float | None
    goal: float | None
    unit: str


def compare(
    name: str,
    *,
    ours: float,
    unit: str,
    theirs: float | None = None,
    peer: str | None = None,
    goal: float | None = None,
    less_is_better: bool = False,
) -> Row:
    """A row with its ratio."""
    ratio = None
    if theirs is not None and ours > 0 and theirs > 0:
        ratio = theirs / ours if less_is_better else ours / theirs
    return Row(
        name=name,
        ours=_rounded(ours),
        theirs=None if theirs is None else _rounded(theirs),
        peer=None if theirs is None else peer,
        ratio=None if ratio is None else _rounded(ratio),
        goal=goal,
        unit=unit,
    )


def write_report(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows of one run, in place of those of an earlier one."""
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


def table(rows: Sequence[Row]) -> str:
    """The rows for people to read."""
    lines = [("name", "ours", "theirs", "unit", "ratio", "goal", "", "peer")]
    for row in rows:
        met = "" if row.goal is None or row.ratio is None else ("met" if row.ratio >= row.goal else "MISSED")
        lines.append(
            (
                row.name,
                _number(row.ours),
                _number(row.theirs),
                row.unit,
                "-" if row.ratio is None else f"{row.ratio:.2f}",
                "-" if row.goal is None else f"{row.goal:.2f}",
                met,
                row.peer or "-",
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    numbers = {1, 2, 4, 5}
    return "\n".join(
        "  ".join(
            text.rjust(width) if column in numbers else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
