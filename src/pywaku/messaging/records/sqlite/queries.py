"""What is read from the records: plain functions of a connection, run in a thread.

Every list comes off an index in its own order and ends with its page, so a page costs the same however many
records there are; only what is skipped is counted off, entry by entry, on the index.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from pywaku.messaging.record import MessageRecord, RequestId, SubscriptionId
from pywaku.messaging.records.port import HASH_SIZE
from pywaku.messaging.records.sqlite.bulk import select_in
from pywaku.messaging.records.sqlite.names import CONTENT, PUBSUB, SUBSCRIPTION
from pywaku.messaging.records.sqlite.rows import (
    COLUMNS,
    JOINS,
    PROPAGATED,
    RECEIVED,
    hash_key,
    record_of,
    request_key,
)

_LARGEST: Final = (1 << 63) - 1
_NAME: Final = "(SELECT id FROM names WHERE kind = ? AND name = ?)"
_SELECT: Final = f"SELECT {COLUMNS} FROM"
_SELECT_PAGE: Final = f"SELECT {COLUMNS}, page.place FROM"
_PLACE: Final = -1
# All of these are constants. CROSS JOIN: in the order in which it is written.
BY_REQUEST: Final = (
    f"{_SELECT} records AS r INDEXED BY records_by_request {JOINS} "
    "WHERE r.request_key = ? AND r.request_id = ? ORDER BY r.id LIMIT 1"
)
BY_HASH: Final = (
    f"{_SELECT} records AS r INDEXED BY records_by_hash {JOINS} "
    "WHERE r.hash_key = ? AND r.message_hash = ? ORDER BY r.id LIMIT ?"
)
BY_CONTENT: Final = (
    f"{_SELECT_PAGE} (SELECT id, id AS place FROM records INDEXED BY records_by_content "  # noqa: S608
    f"WHERE content = {_NAME} ORDER BY id LIMIT ? OFFSET ?) AS page "
    f"CROSS JOIN records AS r ON r.id = page.id {JOINS}"
)
BY_SUBSCRIPTION: Final = (
    f"{_SELECT_PAGE} (SELECT record AS id, place FROM receipts "  # noqa: S608
    f"WHERE subscription = {_NAME} ORDER BY place LIMIT ? OFFSET ?) AS page "
    f"CROSS JOIN records AS r ON r.id = page.id {JOINS}"
)
PENDING: Final = (
    f"{_SELECT_PAGE} (SELECT id, id AS place FROM states INDEXED BY states_pending "  # noqa: S608
    f"WHERE flags & 1 ORDER BY id) AS page CROSS JOIN records AS r ON r.id = page.id {JOINS}"
)
_KNOWN: Final = RECEIVED | PROPAGATED  # what came and what left need not be fetched
KNOWN_OF: Final = (
    "SELECT r.message_hash FROM records AS r INDEXED BY records_by_hash "  # noqa: S608
    f"CROSS JOIN states AS s ON s.id = r.id WHERE s.flags & {_KNOWN} AND r.hash_key IN"
)
KNOWN_SINCE: Final = (
    "SELECT r.message_hash FROM records AS r INDEXED BY records_by_time "  # noqa: S608
    f"CROSS JOIN states AS s ON s.id = r.id WHERE r.created >= ? AND s.flags & {_KNOWN} "
    "ORDER BY r.created DESC, r.id DESC"
)
FETCHED: Final = f"SELECT until FROM fetched WHERE content = {_NAME} AND pubsub = {_NAME}"  # noqa: S608


def select_by_request_id(connection: sqlite3.Connection, request_id: RequestId) -> MessageRecord | None:
    """The record of a send."""
    if not request_id.isascii():
        return None
    row = connection.execute(BY_REQUEST, (request_key(request_id), request_id)).fetchone()
    return None if row is None else record_of(row)


def select_by_hash(
    connection: sqlite3.Connection, message_hash: bytes, limit: int = -1
) -> list[MessageRecord]:
    """The records of a message."""
    if len(message_hash) != HASH_SIZE:
        return []
    found = connection.execute(BY_HASH, (hash_key(message_hash), message_hash, limit))
    return [record_of(row) for row in found.fetchall()]


def select_by_content_topic(
    connection: sqlite3.Connection, content_topic: str, skip: int, take: int | None
) -> list[MessageRecord]:
    """A page of the records of a content topic."""
    return _page(connection, BY_CONTENT, (CONTENT, content_topic), skip, take)


def select_by_subscription_id(
    connection: sqlite3.Connection, subscription_id: SubscriptionId, skip: int, take: int | None
) -> list[MessageRecord]:
    """A page of what was received under a subscription."""
    return _page(connection, BY_SUBSCRIPTION, (SUBSCRIPTION, subscription_id), skip, take)


def select_pending(connection: sqlite3.Connection) -> list[MessageRecord]:
    """The sends that are not finished."""
    return _in_order(connection.execute(PENDING).fetchall())


def select_missing(connection: sqlite3.Connection, hashes: Sequence[bytes]) -> list[bytes]:
    """Those of the messages that have neither been received nor given to a peer."""
    wanted = dict.fromkeys(hashes)
    keys = list({hash_key(message_hash): None for message_hash in wanted if len(message_hash) == HASH_SIZE})
    for (message_hash,) in select_in(connection, KNOWN_OF, keys):
        wanted.pop(message_hash, None)
    return list(wanted)


def select_known_since(connection: sqlite3.Connection, since_ns: int, limit: int) -> list[bytes]:
    """The latest messages received or given to a peer."""
    found: dict[bytes, None] = {}
    rows = connection.execute(KNOWN_SINCE, (since_ns,))
    while len(found) < limit and (some := rows.fetchmany(limit - len(found))):
        found.update(dict.fromkeys(message_hash for (message_hash,) in some))
    rows.close()
    return list(found)


def select_fetched_until(connection: sqlite3.Connection, pubsub_topic: str, content_topic: str) -> int | None:
    """Up to when messages of the topics have been fetched."""
    if not (_is_text(pubsub_topic) and _is_text(content_topic)):
        return None
    row = connection.execute(FETCHED, (CONTENT, content_topic, PUBSUB, pubsub_topic)).fetchone()
    return None if row is None else row[0]


def _page(
    connection: sqlite3.Connection, statement: str, name: tuple[int, str], skip: int, take: int | None
) -> list[MessageRecord]:
    if take == 0 or not _is_text(name[1]):
        return []
    limit = -1 if take is None else min(take, _LARGEST)
    return _in_order(connection.execute(statement, (*name, limit, min(skip, _LARGEST))).fetchall())


def _in_order(rows: list[Any]) -> list[MessageRecord]:
    # A join need not keep the order of what it starts from, though it does; this costs next to nothing then.
    rows.sort(key=itemgetter(_PLACE))
    return [record_of(row) for row in rows]


def _is_text(name: str) -> bool:
    """Whether the file can hold it: a name that UTF-8 cannot express is nowhere in it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
