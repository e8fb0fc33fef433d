"""What a client looks for in a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pywaku.errors import InvalidInput
from pywaku.wire.store import HASH_SIZE, MAX_CONTENT_TOPICS, MAX_MESSAGE_HASHES, StoreQueryRequest

MAX_PAGE_SIZE: Final = 100
"""Entries that stores put on a page at most, nwaku's as well as ours."""
LATEST: Final = (1 << 63) - 1
"""The latest time there is, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class StoreQuery:
    """A query for a whole result, however many pages it has (13/WAKU2-STORE, Store Query Request).

    By content: `pubsub_topic` and `content_topics`, both or neither, and `time_start` (inclusive) and
    `time_end` (exclusive), in nanoseconds; or by `message_hashes`; without any, for everything. `forward` is
    from the oldest entry on, else from the newest back. `cursor` is the hash of the entry to go on after,
    from an earlier query that was the same otherwise. Raises `InvalidInput` for what stores refuse.
    """

    pubsub_topic: str | None = None
    content_topics: tuple[str, ...] = ()
    time_start: int | None = None
    time_end: int | None = None
    message_hashes: tuple[bytes, ...] = ()
    include_data: bool = True
    forward: bool = True
    page_size: int = MAX_PAGE_SIZE
    cursor: bytes | None = None

    def __post_init__(self) -> None:
        if bool(self.pubsub_topic) != bool(self.content_topics):
            raise InvalidInput(
                "a query by topic names a pubsub topic and content topics, not just one of them"
            )
        if self.message_hashes and (
            self.pubsub_topic or self.time_start is not None or self.time_end is not None
        ):
            raise InvalidInput("a query is by hashes or by content (topics, times), not both")
        if len(self.content_topics) > MAX_CONTENT_TOPICS:
            raise InvalidInput(
                f"a query names up to {MAX_CONTENT_TOPICS} content topics, not {len(self.content_topics)}"
            )
        if len(self.message_hashes) > MAX_MESSAGE_HASHES:
            raise InvalidInput(
                f"a query looks up to {MAX_MESSAGE_HASHES} hashes up, not {len(self.message_hashes)}"
            )
        for value in (*self.message_hashes, *(() if self.cursor is None else (self.cursor,))):
            if len(value) != HASH_SIZE:
                raise InvalidInput(f"a message hash has {HASH_SIZE} bytes, not {len(value)}")
        if self.time_start is not None and not -LATEST <= self.time_start <= LATEST:
            raise InvalidInput(f"time_start is in nanoseconds since 1970, in 64 bits, not {self.time_start}")
        if self.time_end is not None and not 0 < self.time_end <= LATEST:
            raise InvalidInput(
                f"time_end is in nanoseconds since 1970, positive, in 64 bits, not {self.time_end}"
            )
        if not 1 <= self.page_size <= MAX_PAGE_SIZE:
            raise InvalidInput(f"page_size is 1 to {MAX_PAGE_SIZE}, not {self.page_size}")

    def request(self, request_id: str) -> StoreQueryRequest:
        """The request for the page after the cursor."""
        return StoreQueryRequest(
            request_id,
            include_data=self.include_data,
            pubsub_topic=self.pubsub_topic or None,
            content_topics=self.content_topics,
            time_start=self.time_start,
            time_end=self.time_end,
            message_hashes=self.message_hashes,
            pagination_cursor=self.cursor,
            pagination_forward=self.forward,
            pagination_limit=self.page_size,
        )
