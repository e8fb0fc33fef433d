"""What is read from the PostgreSQL archive: plain functions of a connection, run in a thread.

As in SQLite, the entries of an answer come off an index in the order of the answer, a page at most for each
topic. One statement does it all: the inner part finds the keys of the page, the outer part its data.
"""

from __future__ import annotations

from typing import Any, Final

from pywaku.archive.keys import FIRST, LAST, SortKey, key_range, message_of, topic_key
from pywaku.archive.port import ArchiveEntry, ArchivePage, ArchiveQuery, ArchiveStats
from pywaku.archive.postgres.connections import Connection
from pywaku.errors import CursorNotFound

# Adding 0 keeps an index from being used: that of pubsub topics would be read to its end for a rare topic.
# Partitions are chosen by the plain comparisons of timestamps, entries by those of both.
_RANGE: Final = (
    "m.timestamp >= %(low_ns)s AND m.timestamp <= %(high_ns)s "
    "AND (m.timestamp, m.message_hash) > (%(low_ns)s, %(low_hash)b) "
    "AND (m.timestamp, m.message_hash) < (%(high_ns)s, %(high_hash)b)"
)
_ORDERS: Final = {
    True: "ORDER BY {0}timestamp, {0}message_hash",
    False: "ORDER BY {0}timestamp DESC, {0}message_hash DESC",
}


def _keys(streams: str, match: str, ascending: bool) -> str:
    order = _ORDERS[ascending]
    return f"""SELECT s.timestamp, s.message_hash FROM {streams} CROSS JOIN LATERAL (
        SELECT m.timestamp, m.message_hash FROM waku_archive_messages m
        WHERE {match} AND {_RANGE} {order.format("m.")} LIMIT %(limit)s
    ) s {order.format("s.")} LIMIT %(limit)s"""  # noqa: S608


_BY_TOPIC: Final = {
    ascending: _keys(
        "unnest(%(keys)b::bigint[], %(pubsubs)b::integer[], %(topics)b::bytea[]) AS t (key, pubsub, topic)",
        "m.topic_key = t.key AND m.pubsub + 0 = t.pubsub AND m.content_topic = t.topic",
        ascending,
    )
    for ascending in (True, False)
}
_BY_TIME: Final = {
    ascending: _keys("unnest(%(pubsubs)b::integer[]) AS t (pubsub)", "m.pubsub = t.pubsub", ascending)
    for ascending in (True, False)
}
_BY_HASH: Final = {
    ascending: f"""SELECT m.timestamp, m.message_hash FROM waku_archive_messages m
        WHERE m.message_hash = ANY(%(hashes)b::bytea[]) AND {_RANGE}
        {order.format("m.")} LIMIT %(limit)s"""  # noqa: S608
    for ascending, order in _ORDERS.items()
}
# The limit keeps the planner from anything but looking up one entry after the other.
_DATA: Final = """SELECT k.timestamp, k.message_hash, d.* FROM ({keys}) k CROSS JOIN LATERAL (
    SELECT m.pubsub, m.content_topic, m.payload, m.meta, m.version, m.rate_limit_proof, m.flags
    FROM waku_archive_messages m
    WHERE m.message_hash = k.message_hash AND m.timestamp = k.timestamp LIMIT 1
) d"""
OLDEST: Final = _BY_TIME[True]
"""The keys of the oldest entries; for its arguments see `oldest_arguments`."""


def select_pubsub_topics(connection: Connection) -> dict[str, int]:
    """All pubsub topics that messages came on, with their ids. There are few, and they never change."""
    rows = connection.execute("SELECT name, id FROM waku_archive_pubsub_topics", binary=True).fetchall()
    return {name.decode(): number for name, number in rows}


def select_page(connection: Connection, query: ArchiveQuery, known: dict[str, int]) -> ArchivePage:
    """The page. `known` are ids of pubsub topics seen earlier; if they do not do, all are looked up."""
    cursor = None if query.cursor is None else _find_cursor(connection, query.cursor)
    low, high = key_range(query, cursor)
    arguments = _range_arguments(low, high, query.limit + 1)
    chosen: dict[str, int]
    if query.pubsub_topic is None:
        chosen = select_pubsub_topics(connection)
    elif query.pubsub_topic in known:
        chosen = {query.pubsub_topic: known[query.pubsub_topic]}
    else:
        number = select_pubsub_topics(connection).get(query.pubsub_topic)
        chosen = {} if number is None else {query.pubsub_topic: number}
    if query.hashes:
        statement = _BY_HASH[query.ascending]
        arguments["hashes"] = list(dict.fromkeys(query.hashes))
    elif query.content_topics:
        statement = _BY_TOPIC[query.ascending]
        pairs = [(name, topic) for name in chosen for topic in dict.fromkeys(query.content_topics)]
        arguments["keys"] = [topic_key(*pair) for pair in pairs]
        arguments["pubsubs"] = [chosen[name] for name, _ in pairs]
        arguments["topics"] = [topic.encode() for _, topic in pairs]
    else:
        statement = _BY_TIME[query.ascending]
        arguments["pubsubs"] = list(chosen.values())
    if query.include_data:
        statement = _DATA.format(keys=statement)
    found = connection.execute(statement.encode(), arguments, binary=True, prepare=True).fetchall()
    found.sort(reverse=not query.ascending, key=lambda row: row[:2])
    more = len(found) > query.limit
    page = found[: query.limit]
    edge: bytes | None = page[-1][1] if more else None
    if not query.ascending:
        page.reverse()
    names = {number: name for name, number in chosen.items()}
    if query.include_data and any(row[2] not in names for row in page):  # topics that came in the meantime
        names = {number: name for name, number in select_pubsub_topics(connection).items()}
    return ArchivePage(tuple([_entry(row, names) for row in page]), edge)


def select_stats(connection: Connection) -> ArchiveStats:
    """What is kept; counting reads an index of every message."""
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = 0")
        pubsub_ids = select_pubsub_topics(connection)
        ends: list[int | None] = []
        for ascending in (True, False):
            row = connection.execute(
                _BY_TIME[ascending].encode(), oldest_arguments(pubsub_ids, 1), binary=True
            ).fetchone()
            ends.append(None if row is None else row[0])
        count = connection.execute("SELECT count(*) FROM waku_archive_messages").fetchone()
        return ArchiveStats(0 if count is None else count[0], used_bytes(connection), *ends)


def used_bytes(connection: Connection) -> int:
    """What all partitions take, indexes included."""
    row = connection.execute(
        "SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0)::bigint FROM pg_inherits "
        "WHERE inhparent = 'waku_archive_messages'::regclass"
    ).fetchone()
    return 0 if row is None else row[0]


def oldest_arguments(pubsub_ids: dict[str, int], limit: int, before: SortKey = LAST) -> dict[str, Any]:
    """The arguments for the oldest entries of all that lie before a key."""
    return {**_range_arguments(FIRST, before, limit), "pubsubs": list(pubsub_ids.values())}


def _range_arguments(low: SortKey, high: SortKey, limit: int) -> dict[str, Any]:
    return {
        "low_ns": low[0],
        "low_hash": low[1],
        "high_ns": high[0],
        "high_hash": high[1],
        "limit": limit,
    }


def _find_cursor(connection: Connection, message_hash: bytes) -> SortKey:
    row = connection.execute(
        "SELECT timestamp FROM waku_archive_messages WHERE message_hash = %b",
        [message_hash],
        binary=True,
        prepare=True,
    ).fetchone()
    if row is None:
        raise CursorNotFound(f"the archive has no message {message_hash.hex()} to go on from")
    return row[0], message_hash


def _entry(row: tuple[Any, ...], names: dict[int, str]) -> ArchiveEntry:
    timestamp, message_hash, *data = row
    if not data:
        return ArchiveEntry(message_hash, timestamp)
    pubsub, content_topic, payload, meta, version, proof, flags = data
    message = message_of(content_topic.decode(), payload, meta, version, proof, timestamp, flags)
    return ArchiveEntry(message_hash, timestamp, names[pubsub], message)
