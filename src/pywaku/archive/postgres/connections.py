"""Connections to a PostgreSQL server that may come and go: a few lanes, each of them with one."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pywaku.archive.postgres.errors import Redaction, clear_error
from pywaku.errors import ArchiveError, InvalidInput

Connection = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")

STATEMENT_TIMEOUT_MS: Final = 30_000
# Every query is made to walk an index in the order of its answer and to stop after a page. The planner would
# rather fetch all that match and sort them wherever it believes that few do, and statistics lag behind.
# Planning anew for each query costs more than most queries, and more with each partition.
_SETTINGS: Final = f"""
    SET statement_timeout = {STATEMENT_TIMEOUT_MS};
    SET client_encoding = 'UTF8';
    SET enable_seqscan = off;
    SET enable_bitmapscan = off;
    SET enable_sort = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET plan_cache_mode = force_generic_plan;
    SET jit = off""".encode()
FIRST_DELAY_S: Final = 0.2
MAX_DELAY_S: Final = 10.0

# A host that vanishes without a word is noticed within about half a minute.
_DEFAULTS: Final = {
    "application_name": "pywaku",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}


class Server:
    """Makes connections, and holds back after failures: a server that is down is not asked all the time."""

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        try:
            given = conninfo_to_dict(url)
            _ = urlsplit(url).port
        except (psycopg.Error, ValueError):  # what they say may quote the URL, password and all
            raise InvalidInput("the archive's URL is not one that PostgreSQL takes") from None
        parameters = {**_DEFAULTS, **{key: str(value) for key, value in given.items() if value is not None}}
        host, port = parameters.get("host", "local"), parameters.get("port", "5432")
        self.name = f"postgres://{host}:{port}/{parameters.get('dbname', '')}"
        self.redact = Redaction(parameters.get("password"), parameters.get("sslpassword"))
        self._conninfo = make_conninfo("", **parameters)
        self._clock = clock
        self._guard = Lock()
        self._delay_s = 0.0
        self._not_before = 0.0

    def connect(self) -> Connection:
        """A new connection; fails at once while the server is being left alone after a failure."""
        with self._guard:
            wait = self._not_before - self._clock()
        if wait > 0:
            raise ArchiveError(
                f"archive {self.name}: no connection, next attempt in {wait:.1f} s", reason="connection"
            )
        connection: Connection | None = None
        try:
            connection = psycopg.connect(self._conninfo, autocommit=True)
            connection.execute(_SETTINGS)
        except psycopg.Error as error:
            if connection is not None:
                connection.close()
            with self._guard:
                self._delay_s = min(max(2 * self._delay_s, FIRST_DELAY_S), MAX_DELAY_S)
                self._not_before = self._clock() + self._delay_s
            raise clear_error(self.name, error, self.redact) from None
        with self._guard:
            self._delay_s = self._not_before = 0.0
        return connection


class Lane:
    """Room for one connection; it is used by one thread at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection: Connection | None = None
        self._connected_before = False
        self.reconnects = 0
        """Connections made in place of one that was lost."""

    def run(self, work: Callable[[Connection], T]) -> T:
        """Do the work; once more on a new connection where the old one turns out to be dead.

        So the work is to be harmless when done twice. Errors are `ArchiveError`s.
        """
        for last in (False, True):
            fresh = self._connection is None
            connection = self._connection or self._connect()
            try:
                return work(connection)
            except psycopg.Error as error:
                if not connection.closed:
                    raise clear_error(self._server.name, error, self._server.redact) from error
                self._connection = None
                if fresh or last:
                    raise clear_error(self._server.name, error, self._server.redact) from error
        raise AssertionError("unreachable")  # pragma: no cover

    def _connect(self) -> Connection:
        connection = self._connection = self._server.connect()
        self.reconnects += self._connected_before
        self._connected_before = True
        return connection

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
