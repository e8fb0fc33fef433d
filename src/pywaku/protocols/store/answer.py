"""From a request to its response: what an archive holds, in the terms of the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from pywaku.archive import ArchiveEntry, ArchivePage, ArchiveQuery
from pywaku.errors import CursorNotFound, InvalidInput
from pywaku.protocols.store.errors import StoreStatus
from pywaku.wire.store import StoreEntry, StoreQueryRequest, StoreQueryResponse

DEFAULT_PAGE_SIZE: Final = 20
MAX_PAGE_SIZE: Final = 100
MAX_RESPONSE: Final = 4 * 1024 * 1024
_ENTRY_OVERHEAD: Final = (
    160  # bytes: hash, numbers, and what protobuf puts before each field, at their largest
)
_RESPONSE_OVERHEAD: Final = 256


@dataclass(frozen=True, slots=True)
class PageLimits:
    """How large pages are.

    A request without a limit, or with 0, gets `default_size` entries, others up to `max_size`, and all up to
    `max_bytes`, for which 4 MiB is what js-waku takes: a page of larger messages has fewer of them, and a
    cursor to go on with. (A message that is larger by itself is sent all the same.)
    """

    default_size: int = DEFAULT_PAGE_SIZE
    max_size: int = MAX_PAGE_SIZE
    max_bytes: int = MAX_RESPONSE

    def __post_init__(self) -> None:
        if not 1 <= self.default_size <= self.max_size <= MAX_PAGE_SIZE:
            raise InvalidInput(
                f"default_size and max_size are 1 to {MAX_PAGE_SIZE}, the first not the larger"
            )
        if self.max_bytes < 1024:
            raise InvalidInput(f"max_bytes is at least 1024, not {self.max_bytes}")


class Queryable(Protocol):
    """An archive, as far as it is read."""

    async def query(self, query: ArchiveQuery) -> ArchivePage:
        """The page; raises `CursorNotFound` and `ArchiveError`."""
        ...


def refuse(request_id: str, status: StoreStatus, cause: str = "") -> StoreQueryResponse:
    """The response with an error code, in the words of nwaku."""
    return StoreQueryResponse(request_id, status, f"{status.name}: {cause}" if cause else status.name)


async def answer_query(
    archive: Queryable, request: StoreQueryRequest, limits: PageLimits | None = None
) -> StoreQueryResponse:
    """The page that a request asks for (13/WAKU2-STORE); raises `ArchiveError` where the archive fails.

    As in nwaku, times that are not positive count as unset, and so does an empty pubsub topic. A lookup by
    hash may name a pubsub topic, as js-waku does: it is not a content filter by itself, and changes nothing.
    """
    limits = limits or PageLimits()
    wrong = what_is_wrong(request)
    if wrong is not None:
        return refuse(request.request_id, StoreStatus.BAD_REQUEST, wrong)
    hashes = tuple(dict.fromkeys(request.message_hashes))
    query = ArchiveQuery(
        pubsub_topic=None if hashes else request.pubsub_topic or None,
        content_topics=tuple(dict.fromkeys(request.content_topics)),
        start_ns=_time(request.time_start),
        end_ns=_time(request.time_end),
        hashes=hashes,
        cursor=request.pagination_cursor,
        ascending=request.pagination_forward,
        limit=min(request.pagination_limit or limits.default_size, limits.max_size),
        include_data=request.include_data,
    )
    try:
        page = await archive.query(query)
    except CursorNotFound:
        return refuse(request.request_id, StoreStatus.BAD_REQUEST, "cursor not found")
    entries, cursor = _fitting(page.messages, page.cursor, query.ascending, limits.max_bytes)
    return StoreQueryResponse(
        request.request_id,
        StoreStatus.OK,
        StoreStatus.OK.name,
        tuple([StoreEntry(entry.message_hash, entry.message, entry.pubsub_topic) for entry in entries]),
        cursor,
    )


def what_is_wrong(request: StoreQueryRequest) -> str | None:
    """Why a request is to be refused; None if it is not."""
    if not request.request_id:
        return "request_id is missing"
    if request.message_hashes:
        if request.content_topics or _time(request.time_start) or _time(request.time_end):
            return "message_hashes cannot be combined with content filters"
    elif bool(request.pubsub_topic) != bool(request.content_topics):
        return "pubsub_topic and content_topics must both be set or unset"
    return None


def _time(value: int | None) -> int | None:
    return value if value is not None and value > 0 else None


def _fitting(
    entries: tuple[ArchiveEntry, ...], cursor: bytes | None, ascending: bool, max_bytes: int
) -> tuple[tuple[ArchiveEntry, ...], bytes | None]:
    """As many of the entries, from where the page begins, as fit; and where the next page begins."""
    room = max_bytes - _RESPONSE_OVERHEAD
    count = 0
    for entry in entries if ascending else reversed(entries):
        room -= _size(entry)
        if room < 0 and count:
            break
        count += 1
    if count == len(entries):
        return entries, cursor
    kept = entries[:count] if ascending else entries[-count:]
    return kept, kept[-1 if ascending else 0].message_hash


def _size(entry: ArchiveEntry) -> int:
    """No less than what the entry takes in the response."""
    size = _ENTRY_OVERHEAD
    message = entry.message
    if message is not None:
        # A character of a topic has up to four bytes.
        size += len(message.payload) + 4 * (len(message.content_topic) + len(entry.pubsub_topic or ""))
        size += len(message.meta or b"") + len(message.rate_limit_proof or b"")
    return size
