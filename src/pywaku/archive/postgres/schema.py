"""The tables of the PostgreSQL archive, their versions and their partitions.

Messages are partitioned by time. A partition holds the timestamps from `number * PARTITION_NS` on; it is
made ahead of time, or when the first message for it comes, and dropped as a whole when it is too old.
Topics are kept as bytes: PostgreSQL's texts cannot hold every string that is a topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from psycopg import sql

from pywaku.archive.port import EARLIEST_NS, LATEST_NS
from pywaku.archive.postgres.connections import Connection
from pywaku.errors import ArchiveError

OLDEST_SERVER: Final = 130_000
PARTITION_NS: Final = 6 * 3_600 * 1_000_000_000
MAX_PARTITIONS: Final = 10_000
"""More than six years' worth; messages that need more are refused."""

# Whoever changes tables holds this lock for as long as its transaction lasts.
_LOCK: Final = b"SELECT pg_advisory_xact_lock(hashtext('waku_archive'))"
_PREFIX: Final = "waku_archive_messages_"
_PARTITION: Final = re.compile(rf"{_PREFIX}([mp])(\d+)", re.ASCII)

_TABLES: Final = (
    b"""CREATE TABLE waku_archive_pubsub_topics (
        id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name bytea NOT NULL UNIQUE
    )""",
    # The hash alone is unique, as the timestamp is hashed too. As part of the key it lets the key span
    # partitions; as its second part it lets a hash be looked up alone.
    b"""CREATE TABLE waku_archive_messages (
        message_hash bytea NOT NULL,
        timestamp bigint NOT NULL,
        pubsub integer NOT NULL,
        topic_key bigint NOT NULL,
        content_topic bytea NOT NULL,
        payload bytea NOT NULL,
        meta bytea,
        version bigint,
        rate_limit_proof bytea,
        flags smallint NOT NULL,
        received bigint NOT NULL,
        PRIMARY KEY (message_hash, timestamp)
    ) PARTITION BY RANGE (timestamp)""",
    # Payloads are encrypted as a rule: no use in trying to compress them.
    b"ALTER TABLE waku_archive_messages ALTER COLUMN payload SET STORAGE EXTERNAL",
    b"CREATE INDEX ON waku_archive_messages (topic_key, timestamp, message_hash)",
    b"CREATE INDEX ON waku_archive_messages (pubsub, timestamp, message_hash)",
)


def _from_0_to_1(connection: Connection) -> None:
    for statement in _TABLES:
        connection.execute(statement)


STEPS: Final[tuple[Callable[[Connection], None], ...]] = (_from_0_to_1,)
"""The step at n leads from version n to n + 1."""


def prepare(
    connection: Connection, name: str, steps: tuple[Callable[[Connection], None], ...] = STEPS
) -> None:
    """Create the tables or bring them up to date, in one transaction; refuse those of a newer version."""
    if connection.info.server_version < OLDEST_SERVER:
        raise ArchiveError(
            f"archive {name}: PostgreSQL {OLDEST_SERVER // 10_000} is the oldest that will do, "
            f"this is {connection.info.server_version // 10_000}",
            reason="version",
        )
    version = _version(connection)
    if version == len(steps):
        return
    if version > len(steps):
        raise ArchiveError(
            f"archive {name}: its tables are of version {version}, this program knows up to {len(steps)}; "
            "use a newer pywaku",
            reason="version",
        )
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute(_LOCK)
        connection.execute("CREATE TABLE IF NOT EXISTS waku_archive_meta (version integer NOT NULL)")
        for step in steps[_version(connection) :]:  # another node may have been faster
            step(connection)
        connection.execute("DELETE FROM waku_archive_meta")
        connection.execute("INSERT INTO waku_archive_meta VALUES (%s)", [len(steps)])


def _version(connection: Connection) -> int:
    found = connection.execute("SELECT to_regclass('waku_archive_meta') IS NOT NULL").fetchone()
    if found is None or not found[0]:
        return 0
    version = connection.execute("SELECT version FROM waku_archive_meta").fetchone()
    return 0 if version is None else version[0]


def partition_of(timestamp_ns: int) -> int:
    """The number of the partition that holds a timestamp."""
    return timestamp_ns // PARTITION_NS


def partition_end_ns(number: int) -> int:
    """The first timestamp after the partition."""
    return (number + 1) * PARTITION_NS


def partition_table(number: int) -> sql.Identifier:
    """The table of a partition."""
    return sql.Identifier(f"{_PREFIX}{'m' if number < 0 else 'p'}{abs(number)}")


def list_partitions(connection: Connection) -> list[int]:
    """The numbers of the partitions there are, oldest first; not those that an operator has attached."""
    rows = connection.execute(
        "SELECT relname FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid "
        "WHERE inhparent = 'waku_archive_messages'::regclass"
    ).fetchall()
    numbers: list[int] = []
    for (name,) in rows:
        found = _PARTITION.fullmatch(name)
        if found is not None:
            sign, digits = found.groups()
            numbers.append(-int(digits) if sign == "m" else int(digits))
    return sorted(numbers)


def create_partitions(connection: Connection, name: str, wanted: Iterable[int]) -> set[int]:
    """Create those that are missing; returns all there are.

    Attaching a table that has been made beforehand waits for neither readers nor writers.
    """
    with connection.transaction():
        connection.execute(_LOCK)
        there = set(list_partitions(connection))
        for number in sorted(set(wanted) - there):
            if len(there) >= MAX_PARTITIONS:
                raise ArchiveError(
                    f"archive {name}: it has {MAX_PARTITIONS} partitions, and none of them is for this time",
                    reason="partitions",
                )
            table = partition_table(number)
            start, end = number * PARTITION_NS, partition_end_ns(number)
            connection.execute(
                sql.SQL("CREATE TABLE {} (LIKE waku_archive_messages INCLUDING ALL)").format(table)
            )
            connection.execute(
                sql.SQL(
                    "ALTER TABLE waku_archive_messages ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})"
                ).format(
                    table,
                    sql.SQL("MINVALUE") if start < EARLIEST_NS else sql.Literal(start),
                    sql.SQL("MAXVALUE") if end > LATEST_NS else sql.Literal(end),
                )
            )
            there.add(number)
    return there
