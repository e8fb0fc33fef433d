"""Keys and ranges that both back ends look messages up by. Pure.

Entries are sorted by (timestamp, hash). A range of entries is given by two such keys, neither of which is in
it: as a hash is never empty, `(t, b"")` lies before all entries of time t, and after all earlier ones.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

from pywaku.archive.port import EARLIEST_NS, HASH_SIZE, LATEST_NS, ArchiveQuery
from pywaku.message import WakuMessage

SortKey = tuple[int, bytes]
FIRST: Final[SortKey] = (EARLIEST_NS, b"")
LAST: Final[SortKey] = (LATEST_NS, b"\xff" * (HASH_SIZE + 1))

_NO_TIMESTAMP: Final = 1
_EPHEMERAL: Final = 2
_NOT_EPHEMERAL: Final = 4


@lru_cache(maxsize=8192)
def topic_key(pubsub_topic: str, content_topic: str) -> int:
    """64 bits that stand for the two topics in an index.

    Two pairs of topics may share a key, so whoever looks up by it compares the topics as well. Keys rather
    than topics keep the index small, and a topic too long for an index costs nothing.
    """
    pubsub = pubsub_topic.encode()
    digest = blake2b(b"%d:%b%b" % (len(pubsub), pubsub, content_topic.encode()), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def key_range(query: ArchiveQuery, cursor: SortKey | None) -> tuple[SortKey, SortKey]:
    """The keys between which the entries of the query lie, the cursor considered."""
    low = FIRST if query.start_ns is None else (query.start_ns, b"")
    high = LAST if query.end_ns is None else (query.end_ns, b"")
    if cursor is not None and query.ascending:
        low = max(low, cursor)
    elif cursor is not None:
        high = min(high, cursor)
    return low, high


def flags_of(message: WakuMessage) -> int:
    """What the columns do not tell: whether the timestamp is absent, and which of three `ephemeral` is."""
    flags = 0 if message.timestamp_ns is not None else _NO_TIMESTAMP
    if message.ephemeral is not None:
        flags |= _EPHEMERAL if message.ephemeral else _NOT_EPHEMERAL
    return flags


def message_of(
    content_topic: str,
    payload: bytes,
    meta: bytes | None,
    version: int | None,
    rate_limit_proof: bytes | None,
    timestamp_ns: int,
    flags: int,
) -> WakuMessage:
    """The message, exactly as it was stored."""
    return WakuMessage(
        payload,
        content_topic,
        meta=meta,
        version=version,
        timestamp_ns=None if flags & _NO_TIMESTAMP else timestamp_ns,
        ephemeral=True if flags & _EPHEMERAL else False if flags & _NOT_EPHEMERAL else None,
        rate_limit_proof=rate_limit_proof,
    )
