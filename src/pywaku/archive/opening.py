"""An archive by its URL, kept within its retention policy while it is open."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import unquote

import trio

from pywaku.archive.port import Archive, RetentionPolicy
from pywaku.archive.retention import DEFAULT_RETENTION, parse_retention
from pywaku.archive.sqlite import open_sqlite
from pywaku.errors import ArchiveError, InvalidInput
from pywaku.tasks import open_service_nursery

_log = logging.getLogger(__name__)

DEFAULT_URL: Final = "sqlite://store.sqlite3"
RETENTION_INTERVAL_S: Final = 300.0

_SHAPES: Final = "sqlite://store.sqlite3, sqlite:///var/lib/store.sqlite3, sqlite://:memory: or postgres://…"


def _wall_clock() -> int:
    return time.time_ns()


@asynccontextmanager
async def open_archive(
    url: str = DEFAULT_URL,
    *,
    retention: str | RetentionPolicy = DEFAULT_RETENTION,
    retention_interval_s: float = RETENTION_INTERVAL_S,
    clock: Callable[[], int] = _wall_clock,
) -> AsyncGenerator[Archive]:
    """The archive at `url`, created if need be: SQLite in a file or in memory, or PostgreSQL.

    The retention policy is applied once at the start and then at intervals, in the background. `clock` gives
    the time of day in nanoseconds. Passwords in the URL show up in no error and no log.
    """
    policy = parse_retention(retention) if isinstance(retention, str) else retention
    archive = await _open(url)
    _log.info("archive opened name=%s", archive.name)
    try:
        async with open_service_nursery() as nursery:
            if not policy.keeps_everything:
                nursery.start_soon(keep_within, archive, policy, retention_interval_s, clock)
            yield archive
    finally:
        await archive.close()


async def keep_within(
    archive: Archive, policy: RetentionPolicy, interval_s: float, clock: Callable[[], int]
) -> None:
    """Apply the policy now and then, for ever; an archive that fails is tried again the next time."""
    while True:
        try:
            removed = await archive.retain(policy, clock())
            if removed:
                _log.info("archive retention name=%s removed=%d", archive.name, removed)
        except ArchiveError as error:
            _log.warning("archive retention failed: %s", error)
        except Exception:  # a bug here is not to end the node
            _log.exception("archive retention failed name=%s", archive.name)
        await trio.sleep(interval_s)


async def _open(url: str) -> Archive:
    scheme, separator, rest = url.partition("://")
    match scheme:
        case "sqlite" if separator and rest and "\0" not in unquote(rest):
            return await open_sqlite(unquote(rest))
        case "postgres" | "postgresql" if separator and rest:
            try:
                from pywaku.archive.postgres import open_postgres
            except ImportError as error:
                raise ArchiveError(
                    "an archive in PostgreSQL needs the package psycopg: pip install 'pywaku[postgres]'"
                ) from error
            return await open_postgres(url)
        case _:  # what was given may hold a password, so it is not repeated
            raise InvalidInput(f"the archive's URL is not of the form {_SHAPES}")
