"""How a journal is kept, and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from pywaku.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """How rows are gathered, what is held while the disk fails, and what is kept."""

    flush_interval_s: float = 10.0
    """How long a row waits for others; about what a killed process loses."""
    flush_rows: int = 10_000
    """Rows at which a file is written at once, and the most that one holds."""
    max_rows: int = 50_000
    """Rows that wait to be written; further ones are dropped, counted, and their number is journaled."""
    closing_s: float = 5.0
    """How long a journal that is being closed goes on with what is left."""
    keep_days: int | None = None
    """Files of this many days stay, today's included; without it all do."""

    def __post_init__(self) -> None:
        _require(self.flush_interval_s > 0, "flush_interval_s", "is more than 0", self.flush_interval_s)
        _require(self.flush_rows >= 1, "flush_rows", "is at least 1", self.flush_rows)
        _require(self.max_rows >= self.flush_rows, "max_rows", "is at least flush_rows", self.max_rows)
        _require(self.closing_s >= 0, "closing_s", "is at least 0", self.closing_s)
        kept = self.keep_days is None or self.keep_days >= 1
        _require(kept, "keep_days", "is at least 1, or None", self.keep_days)


@dataclass(slots=True)
class JournalCounters:
    """What has become of the rows; each number only grows."""

    written: int = 0
    """Rows in files."""
    files: int = 0
    dropped: int = 0
    """Rows lost: too many were waiting, or the disk was still failing at the end."""
    mended: int = 0
    """Values that their column could not hold as they were."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """Files that could not be written, by reason (`ENOSPC`, `EROFS`, …)."""
    leftovers: int = 0
    """Temporary files of killed writers, removed."""
    removed: int = 0
    """Files removed because of `keep_days`."""


def _require(holds: bool, name: str, what: str, value: object) -> None:
    if not holds:
        raise InvalidInput(f"{name}: {what}, not {value!r}")
