"""What is written to the PostgreSQL archive: plain functions of a connection, run in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from psycopg import errors, sql

from pywaku.archive.keys import LAST, SortKey, flags_of, topic_key
from pywaku.archive.port import StoredMessage
from pywaku.archive.postgres.connections import Connection
from pywaku.archive.postgres.queries import OLDEST, oldest_arguments, select_pubsub_topics, used_bytes
from pywaku.archive.postgres.schema import (
    create_partitions,
    list_partitions,
    partition_end_ns,
    partition_of,
    partition_table,
)

STEP_MESSAGES: Final = 500
"""Messages that one statement removes, where it does not remove a whole partition."""

INSERT: Final = (
    b"INSERT INTO waku_archive_messages SELECT * FROM unnest("
    b"%b::bytea[], %b::bigint[], %b::integer[], %b::bigint[], %b::bytea[], %b::bytea[], %b::bytea[], "
    b"%b::bigint[], %b::bytea[], %b::smallint[], %b::bigint[]) ON CONFLICT DO NOTHING"
)
_DELETE: Final = f"""WITH gone AS MATERIALIZED ({OLDEST})
    DELETE FROM waku_archive_messages m USING gone
    WHERE m.message_hash = gone.message_hash AND m.timestamp = gone.timestamp""".encode()  # noqa: S608


class Known:
    """What this process has seen in the database: partitions, and the ids of pubsub topics."""

    def __init__(self) -> None:
        self.partitions: set[int] = set()
        self.pubsub_ids: dict[str, int] = {}


def insert_messages(
    connection: Connection, name: str, messages: Sequence[StoredMessage], known: Known
) -> int:
    """Insert those that are not there; returns how many."""
    for topic in {message.pubsub_topic for message in messages} - known.pubsub_ids.keys():
        _add_pubsub_topic(connection, topic, known)
    # In the order of hashes, so that two nodes with the same messages do not wait for each other in a circle.
    ordered = sorted(messages, key=lambda message: message.message_hash)
    columns = columns_of(ordered, known.pubsub_ids)
    wanted = {partition_of(message.timestamp_ns) for message in ordered}
    if not wanted <= known.partitions:
        known.partitions = create_partitions(connection, name, wanted)
    try:
        return connection.execute(INSERT, columns, prepare=True).rowcount
    except errors.CheckViolation:  # another node has dropped a partition in the meantime
        known.partitions = create_partitions(connection, name, wanted)
        return connection.execute(INSERT, columns, prepare=True).rowcount


def columns_of(messages: Sequence[StoredMessage], pubsub_ids: dict[str, int]) -> list[list[object]]:
    """What to insert for the messages, column by column."""
    rows: list[tuple[object, ...]] = []
    for stored in messages:
        message = stored.message
        rows.append(
            (
                stored.message_hash,
                message.timestamp_ns or 0,
                pubsub_ids[stored.pubsub_topic],
                topic_key(stored.pubsub_topic, message.content_topic),
                message.content_topic.encode(),
                message.payload,
                message.meta,
                message.version,
                message.rate_limit_proof,
                flags_of(message),
                stored.received_ns,
            )
        )
    return [list(column) for column in zip(*rows, strict=True)]


def _add_pubsub_topic(connection: Connection, topic: str, known: Known) -> None:
    connection.execute(
        "INSERT INTO waku_archive_pubsub_topics (name) SELECT %(name)b WHERE NOT EXISTS "
        "(SELECT FROM waku_archive_pubsub_topics WHERE name = %(name)b) ON CONFLICT DO NOTHING",
        {"name": topic.encode()},
    )
    known.pubsub_ids.update(select_pubsub_topics(connection))


def count_messages(connection: Connection, number: int | None = None) -> int:
    """How many messages a partition holds, or all of them."""
    table = sql.Identifier("waku_archive_messages") if number is None else partition_table(number)
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = 0")
        row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table)).fetchone()
    return 0 if row is None else row[0]


def drop_before(connection: Connection, oldest_ns: int) -> int | None:
    """Drop a partition of which nothing is young enough; how many messages went, None if there is no such."""
    for number in list_partitions(connection):
        if partition_end_ns(number) <= oldest_ns:
            return _drop(connection, number)
    return None


def drop_empty(connection: Connection, before: int) -> int | None:
    """Drop a partition before the one of this number that holds nothing; None if there is none.

    Queries without times look into every partition there is.
    """
    for number in list_partitions(connection):
        if number >= before:
            break
        if _is_empty(connection, number):
            with connection.transaction():
                connection.execute("SET LOCAL lock_timeout = '1s'")
                # First the whole, then the part, as queries and inserts do.
                connection.execute("LOCK TABLE ONLY waku_archive_messages IN ACCESS EXCLUSIVE MODE")
                if _is_empty(connection, number):
                    connection.execute(sql.SQL("DROP TABLE {}").format(partition_table(number)))
                    return 0
    return None


def drop_beyond_count(connection: Connection, excess: int) -> int | None:
    """Drop the oldest partition if it is no larger than the excess."""
    for number in list_partitions(connection)[:-1]:
        count = count_messages(connection, number)
        if count:
            return _drop(connection, number) if count <= excess else None
    return None


def drop_beyond_size(connection: Connection, most: int) -> int | None:
    """Drop the oldest partition while all of them are too large; the newest with messages stays."""
    if used_bytes(connection) <= most:
        return None
    filled = [number for number in list_partitions(connection) if not _is_empty(connection, number)]
    return _drop(connection, filled[0]) if len(filled) > 1 else None


def remove_oldest(connection: Connection, limit: int = STEP_MESSAGES, before: SortKey = LAST) -> int:
    """Remove a step's worth of the oldest messages that lie before a key."""
    if limit <= 0:
        return 0
    arguments = oldest_arguments(select_pubsub_topics(connection), min(limit, STEP_MESSAGES), before)
    return connection.execute(_DELETE, arguments).rowcount


def _is_empty(connection: Connection, number: int) -> bool:
    statement = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(partition_table(number))
    row = connection.execute(statement).fetchone()
    return row is None or not row[0]


def _drop(connection: Connection, number: int) -> int:
    # Dropping waits for the queries under way, and new ones queue up behind it: not for long.
    count = count_messages(connection, number)
    with connection.transaction():
        connection.execute("SET LOCAL lock_timeout = '1s'")
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(partition_table(number)))
    return count
