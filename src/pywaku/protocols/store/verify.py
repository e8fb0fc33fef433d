"""Whether a page can be the answer to a request: all that can be checked, so all but what is missing."""

from __future__ import annotations

from pywaku.message import WakuMessage, message_hash
from pywaku.protocols.store.errors import StoreAnswerInvalid
from pywaku.wire.store import StoreEntry, StoreQueryRequest, StoreQueryResponse

SortKey = tuple[int, bytes]


def sort_key(entry: StoreEntry) -> SortKey | None:
    """Timestamp and hash, by which entries are sorted; None where the message is not there."""
    message = entry.message
    return None if message is None else (message.timestamp_ns or 0, entry.message_hash)


def verify_page(request: StoreQueryRequest, response: StoreQueryResponse) -> None:
    """Hold a successful response to its request (Filter matching); raises `StoreAnswerInvalid`."""
    if response.request_id != request.request_id:
        raise StoreAnswerInvalid("the answer is to another request")
    entries = response.messages
    if request.pagination_limit and len(entries) > request.pagination_limit:
        raise StoreAnswerInvalid(
            f"the page has {len(entries)} entries, {request.pagination_limit} were asked for"
        )
    _verify_hashes(request, entries)
    _verify_content(request, entries)
    if response.pagination_cursor is not None:
        if not entries:
            raise StoreAnswerInvalid("the page is empty and yet not the last")
        edge = entries[-1 if request.pagination_forward else 0]
        if response.pagination_cursor != edge.message_hash:
            raise StoreAnswerInvalid("the cursor is not the entry at the edge of the page")


def _verify_hashes(request: StoreQueryRequest, entries: tuple[StoreEntry, ...]) -> None:
    hashes = {entry.message_hash for entry in entries}
    if len(hashes) < len(entries):
        raise StoreAnswerInvalid("an entry is there twice")
    if request.message_hashes and not hashes.issubset(request.message_hashes):
        raise StoreAnswerInvalid("an entry was not asked for")
    if request.pagination_cursor in hashes:
        raise StoreAnswerInvalid("the entry of the cursor is there, which is exclusive")


def _verify_content(request: StoreQueryRequest, entries: tuple[StoreEntry, ...]) -> None:
    last: SortKey | None = None
    for entry in entries:
        message, topic = entry.message, entry.pubsub_topic
        if message is None or topic is None:
            if request.include_data:
                raise StoreAnswerInvalid("an entry is without its message")
            continue
        if message_hash(topic, message) != entry.message_hash:
            raise StoreAnswerInvalid("a message has another hash than its entry")
        _verify_match(request, topic, message)
        key = (message.timestamp_ns or 0, entry.message_hash)
        if last is not None and key <= last:
            raise StoreAnswerInvalid("the entries are not in order")
        last = key


def _verify_match(request: StoreQueryRequest, topic: str, message: WakuMessage) -> None:
    timestamp = message.timestamp_ns or 0
    if request.message_hashes:
        return
    if request.content_topics:
        if topic != request.pubsub_topic:
            raise StoreAnswerInvalid("a message is of another pubsub topic")
        if message.content_topic not in request.content_topics:
            raise StoreAnswerInvalid("a message is of another content topic")
    # Stores take times that are not positive for unset ones.
    if request.time_start is not None and timestamp < request.time_start:
        raise StoreAnswerInvalid("a message is from before the time asked for")
    if request.time_end is not None and timestamp >= request.time_end > 0:
        raise StoreAnswerInvalid("a message is from after the time asked for")
