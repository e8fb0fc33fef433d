"""What a store answers, demand by demand (13/WAKU2-STORE)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pywaku.archive import ArchivePage, ArchiveQuery
from pywaku.errors import ArchiveError, InvalidInput, NetworkError
from pywaku.message import message_hash
from pywaku.protocols.service import RateLimit
from pywaku.protocols.store import (
    PROTOCOL,
    PageLimits,
    StoreQueryRequest,
    StoreStatus,
    answer_query,
    open_store_service,
)
from pywaku.wire import store as wire
from tests.support.archives import MemoryArchive
from tests.support.stores import (
    OTHER_SHARD,
    OTHER_TOPIC,
    SHARD,
    START,
    TOPIC,
    UNLIMITED,
    archive_of,
    hashes_of,
    history,
    in_order,
    open_stores,
    raw_query,
    stored,
)

HISTORY = history(250)
MIXED = in_order(
    [
        stored(0),
        stored(1, topic=OTHER_TOPIC),
        stored(2, shard=OTHER_SHARD),
        stored(3),
        stored(4, topic=OTHER_TOPIC, shard=OTHER_SHARD),
        stored(5, topic="/app/1/else/proto"),
    ]
)


def numbers(*wanted: int) -> list[bytes]:
    """The hashes of these of the mixed messages."""
    return [MIXED[number].message_hash for number in wanted]


# What an entry is


@pytest.mark.virtual
async def test_an_entry_has_the_deterministic_hash_as_its_key() -> None:
    async with open_stores(HISTORY) as stores:
        response, _ = await stores.ask(include_data=True, pagination_forward=True)
        for entry in response.messages:
            assert entry.message is not None
            assert entry.pubsub_topic is not None
            assert entry.message_hash == message_hash(entry.pubsub_topic, entry.message)


@pytest.mark.virtual
async def test_with_include_data_both_message_and_pubsub_topic_are_populated() -> None:
    async with open_stores(MIXED) as stores:
        response, _ = await stores.ask(include_data=True, pagination_forward=True)
        assert [(entry.message, entry.pubsub_topic) for entry in response.messages] == [
            (one.message, one.pubsub_topic) for one in MIXED
        ]


@pytest.mark.virtual
async def test_without_include_data_only_the_hash_is_populated() -> None:
    """Which is the default."""
    async with open_stores(MIXED) as stores:
        response, _ = await stores.ask()
        assert hashes_of(response.messages) == hashes_of(MIXED)
        assert all(entry.message is None and entry.pubsub_topic is None for entry in response.messages)


# The response


@pytest.mark.virtual
@pytest.mark.parametrize("request_id", ["1", "a" * 64, "ünïcode"])
async def test_the_request_id_of_the_response_matches_that_of_the_request(request_id: str) -> None:
    async with open_stores(HISTORY) as stores:
        response, _ = await stores.ask(request_id=request_id)
        assert response.request_id == request_id
        refused, _ = await stores.ask(request_id=request_id, content_topics=(TOPIC,))
        assert refused.request_id == request_id
        assert not refused.is_success


@pytest.mark.virtual
async def test_a_response_has_a_status_code_and_a_description() -> None:
    """Success is 200; nwaku wants a description always."""
    async with open_stores(HISTORY) as stores:
        response, _ = await stores.ask()
        assert (response.status_code, response.status_desc) == (200, "OK")


@pytest.mark.virtual
async def test_a_request_without_a_request_id_is_refused() -> None:
    async with open_stores(HISTORY) as stores:
        response, _ = await stores.ask(request_id="")
        assert response.status_code == StoreStatus.BAD_REQUEST
        assert "request_id" in (response.status_desc or "")


# Content filtered queries


@pytest.mark.virtual
async def test_without_filters_everything_matches() -> None:
    async with open_stores(MIXED) as stores:
        response, _ = await stores.ask()
        assert hashes_of(response.messages) == hashes_of(MIXED)


@pytest.mark.virtual
async def test_a_topic_filter_matches_pubsub_topic_and_content_topics_together() -> None:
    async with open_stores(MIXED) as stores:
        response, _ = await stores.ask(pubsub_topic=SHARD, content_topics=(TOPIC,))
        assert hashes_of(response.messages) == numbers(0, 3)
        response, _ = await stores.ask(pubsub_topic=SHARD, content_topics=(TOPIC, OTHER_TOPIC, TOPIC))
        assert hashes_of(response.messages) == numbers(0, 1, 3)
        response, _ = await stores.ask(pubsub_topic=OTHER_SHARD, content_topics=(OTHER_TOPIC,))
        assert hashes_of(response.messages) == numbers(4)
        response, _ = await stores.ask(pubsub_topic=SHARD, content_topics=("/no/1/such/proto",))
        assert response.is_success
        assert response.messages == ()


@pytest.mark.virtual
async def test_a_pubsub_topic_without_content_topics_is_an_invalid_request() -> None:
    async with open_stores(MIXED) as stores:
        response, _ = await stores.ask(pubsub_topic=SHARD)
        assert response.status_code == 400
        assert response.messages == ()


@pytest.mark.virtual
@pytest.mark.parametrize("pubsub_topic", [None, ""])
async def test_content_topics_without_a_pubsub_topic_are_an_invalid_request(
    pubsub_topic: str | None,
) -> None:
    async with open_stores(MIXED) as stores:
        response, _ = await stores.ask(content_topics=(TOPIC,), pubsub_topic=pubsub_topic)
        assert response.status_code == 400
        assert "pubsub_topic and content_topics" in (response.status_desc or "")


@pytest.mark.virtual
async def test_time_start_is_inclusive_and_time_end_exclusive() -> None:
    async with open_stores(MIXED) as stores:
        response, _ = await stores.ask(time_start=START + 1, time_end=START + 4)
        assert hashes_of(response.messages) == numbers(1, 2, 3)


@pytest.mark.virtual
async def test_an_unset_time_start_is_from_the_oldest_entry() -> None:
    async with open_stores(MIXED) as stores:
        response, _ = await stores.ask(time_end=START + 2)
        assert hashes_of(response.messages) == numbers(0, 1)


@pytest.mark.virtual
async def test_an_unset_time_end_is_up_to_the_youngest_entry() -> None:
    async with open_stores(MIXED) as stores:
        response, _ = await stores.ask(time_start=START + 4)
        assert hashes_of(response.messages) == numbers(4, 5)


@pytest.mark.virtual
@pytest.mark.parametrize("time", [0, -1, -(1 << 63)])
async def test_times_that_are_not_positive_count_as_unset(time: int) -> None:
    """As in nwaku."""
    async with open_stores(MIXED) as stores:
        response, _ = await stores.ask(time_start=time, time_end=time)
        assert hashes_of(response.messages) == hashes_of(MIXED)


@pytest.mark.virtual
async def test_topics_and_times_are_combined() -> None:
    async with open_stores(MIXED) as stores:
        response, _ = await stores.ask(pubsub_topic=SHARD, content_topics=(TOPIC,), time_start=START + 1)
        assert hashes_of(response.messages) == numbers(3)


@pytest.mark.virtual
async def test_a_span_of_time_that_ends_before_it_starts_is_empty() -> None:
    async with open_stores(MIXED) as stores:
        response, _ = await stores.ask(time_start=START + 4, time_end=START + 1)
        assert response.is_success
        assert response.messages == ()
        assert response.pagination_cursor is None


# Lookup and presence queries


@pytest.mark.virtual
async def test_a_lookup_query_matches_the_entries_of_the_hashes() -> None:
    """In the order of the store; one that is asked for twice is there once."""
    async with open_stores(MIXED) as stores:
        wanted = (*numbers(4, 0, 4), bytes(32))
        response, _ = await stores.ask(message_hashes=wanted, include_data=True)
        assert hashes_of(response.messages) == numbers(0, 4)
        assert response.messages[0].message == MIXED[0].message
        assert response.pagination_cursor is None


@pytest.mark.virtual
async def test_a_presence_query_returns_the_hashes_that_are_present() -> None:
    async with open_stores(MIXED) as stores:
        response, _ = await stores.ask(message_hashes=(bytes(32), *numbers(5, 1)))
        assert hashes_of(response.messages) == numbers(1, 5)
        assert all(entry.message is None for entry in response.messages)


@pytest.mark.virtual
@pytest.mark.parametrize(
    "fields",
    [
        {"pubsub_topic": SHARD, "content_topics": (TOPIC,)},
        {"content_topics": (TOPIC,)},
        {"time_start": START},
        {"time_end": START},
    ],
)
async def test_hashes_together_with_content_filters_are_refused(fields: dict[str, Any]) -> None:
    async with open_stores(MIXED) as stores:
        response, store = await stores.ask(message_hashes=tuple(numbers(0)), **fields)
        assert response.status_code == 400
        assert "message_hashes" in (response.status_desc or "")
        assert store.service.counters.refused == 1
        assert store.archive.counters.queries == 0


@pytest.mark.virtual
async def test_a_lookup_may_name_the_pubsub_topic_as_that_of_js_waku_does() -> None:
    """By itself it is no content filter."""
    async with open_stores(MIXED) as stores:
        response, _ = await stores.ask(message_hashes=tuple(numbers(0)), pubsub_topic=SHARD)
        assert hashes_of(response.messages) == numbers(0)


@pytest.mark.virtual
async def test_a_lookup_of_more_hashes_than_a_page_has_is_paged() -> None:
    async with open_stores(HISTORY) as stores:
        wanted = tuple(hashes_of(HISTORY))
        found: list[bytes] = []
        cursor = None
        for size in (100, 100, 50):
            response, _ = await stores.ask(
                message_hashes=wanted,
                pagination_limit=100,
                pagination_forward=True,
                pagination_cursor=cursor,
            )
            assert len(response.messages) == size
            found += hashes_of(response.messages)
            cursor = response.pagination_cursor
        assert cursor is None
        assert found == hashes_of(HISTORY)


# Sorting


@pytest.mark.virtual
@pytest.mark.parametrize("forward", [True, False])
async def test_entries_are_sorted_by_timestamp_and_then_by_hash(forward: bool) -> None:
    """In ascending order, whatever the direction."""
    messages = [stored(number, at=number % 3) for number in range(20)]
    async with open_stores(messages) as stores:
        response, _ = await stores.ask(include_data=True, pagination_forward=forward)
        keys = [
            (entry.message.timestamp_ns or 0, entry.message_hash)
            for entry in response.messages
            if entry.message is not None
        ]
        assert keys == sorted(keys)
        assert len(keys) == 20


# Pagination


@pytest.mark.virtual
async def test_without_direction_a_query_is_backward() -> None:
    """So that the first page is that of the newest messages."""
    async with open_stores(HISTORY) as stores:
        response, _ = await stores.ask(pagination_limit=3)
        assert hashes_of(response.messages) == hashes_of(HISTORY[-3:])


@pytest.mark.virtual
async def test_without_cursor_a_forward_query_starts_at_the_first_entry() -> None:
    async with open_stores(HISTORY) as stores:
        response, _ = await stores.ask(pagination_limit=3, pagination_forward=True)
        assert hashes_of(response.messages) == hashes_of(HISTORY[:3])
        assert response.pagination_cursor == HISTORY[2].message_hash


@pytest.mark.virtual
async def test_the_cursor_is_exclusive_forward() -> None:
    """The entries that follow it."""
    async with open_stores(HISTORY) as stores:
        response, _ = await stores.ask(
            pagination_limit=3, pagination_forward=True, pagination_cursor=HISTORY[10].message_hash
        )
        assert hashes_of(response.messages) == hashes_of(HISTORY[11:14])


@pytest.mark.virtual
async def test_the_cursor_is_exclusive_backward() -> None:
    """The entries that precede it, in ascending order, and a cursor that is the first of them."""
    async with open_stores(HISTORY) as stores:
        response, _ = await stores.ask(pagination_limit=3, pagination_cursor=HISTORY[10].message_hash)
        assert hashes_of(response.messages) == hashes_of(HISTORY[7:10])
        assert response.pagination_cursor == HISTORY[7].message_hash


@pytest.mark.virtual
async def test_a_cursor_that_does_not_match_the_filter_is_a_place_all_the_same() -> None:
    async with open_stores(MIXED) as stores:
        response, _ = await stores.ask(
            pubsub_topic=SHARD,
            content_topics=(TOPIC,),
            pagination_cursor=MIXED[1].message_hash,
            pagination_forward=True,
        )
        assert hashes_of(response.messages) == numbers(3)


@pytest.mark.virtual
async def test_an_unknown_cursor_is_refused() -> None:
    async with open_stores(HISTORY) as stores:
        response, _ = await stores.ask(pagination_cursor=bytes(32))
        assert response.status_code == 400
        assert response.status_desc == "BAD_REQUEST: cursor not found"
        assert response.request_id == "r1"


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("asked", "given_"),
    [(None, 20), (0, 20), (1, 1), (7, 7), (100, 100), (101, 100), ((1 << 64) - 1, 100)],
)
@pytest.mark.parametrize("forward", [True, False])
async def test_a_page_has_what_was_asked_for_up_to_the_stores_own_maximum(
    asked: int | None, given_: int, forward: bool
) -> None:
    """20 if nothing was, as in nwaku."""
    async with open_stores(HISTORY) as stores:
        response, _ = await stores.ask(pagination_limit=asked, pagination_forward=forward)
        assert len(response.messages) == given_
        assert response.pagination_cursor is not None


@pytest.mark.virtual
@pytest.mark.parametrize("count", [99, 100, 101])
@pytest.mark.parametrize("forward", [True, False])
async def test_there_is_a_cursor_if_and_only_if_there_is_more(count: int, forward: bool) -> None:
    async with open_stores(history(count)) as stores:
        response, _ = await stores.ask(pagination_limit=100, pagination_forward=forward)
        assert (response.pagination_cursor is not None) == (count > 100)


@given(
    st.integers(0, 60),
    st.integers(1, 5),
    st.integers(1, 25),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1024, 4096, 1 << 22]),
)
def test_the_pages_together_are_the_result(
    count: int, per_time: int, size: int, forward: bool, data: bool, max_bytes: int
) -> None:
    """No entry lost, none twice, both ways, also where pages are cut short by their bytes."""
    sizes = (30, 30, 700, 300)
    messages = in_order([stored(n, at=n // per_time, size=sizes[n // 7 % 4]) for n in range(count)])
    archive = archive_of(messages)
    limits = PageLimits(max_bytes=max_bytes)
    request = StoreQueryRequest("r", data, pagination_forward=forward, pagination_limit=size)

    async def collect() -> list[bytes]:
        found: list[bytes] = []
        asked = request
        while True:
            response = await answer_query(archive, asked, limits)
            assert len(wire.encode_response(response)) <= max_bytes
            assert len(response.messages) <= size
            page = hashes_of(response.messages)
            found = found + page if forward else page + found
            if response.pagination_cursor is None:
                return found
            assert page
            asked = replace(request, pagination_cursor=response.pagination_cursor)

    assert trio.run(collect) == hashes_of(messages)


# Size


@pytest.mark.virtual
@pytest.mark.parametrize("forward", [True, False])
async def test_a_page_of_large_messages_is_cut_to_what_clients_take(forward: bool) -> None:
    """4 MiB; the cursor is that of the cut."""
    messages = history(60, size=150_000)
    async with open_stores(messages) as stores:
        response, _ = await stores.ask(include_data=True, pagination_limit=60, pagination_forward=forward)
        count = len(response.messages)
        assert 20 < count < 28
        assert len(wire.encode_response(response)) <= 4 * 1024 * 1024
        expected = messages[:count] if forward else messages[-count:]
        assert hashes_of(response.messages) == hashes_of(expected)
        edge = expected[-1 if forward else 0]
        assert response.pagination_cursor == edge.message_hash


@pytest.mark.virtual
async def test_a_message_larger_than_a_page_is_sent_alone() -> None:
    """Otherwise nobody could ever read on."""
    async with open_stores(history(3, size=5000), pages=PageLimits(max_bytes=1024)) as stores:
        response, _ = await stores.ask(include_data=True, pagination_forward=True)
        assert len(response.messages) == 1
        assert response.pagination_cursor is not None


@pytest.mark.virtual
async def test_an_oversized_request_is_refused() -> None:
    """Unread."""
    async with open_stores(MIXED) as stores:
        with pytest.raises(NetworkError):
            await raw_query(stores.network, stores.peers[0], bytes(UNLIMITED.max_request + 1))
        assert stores.stores[0].service.requests.counters.undecodable == 1
        response, _ = await stores.ask()
        assert response.is_success


# Errors


@pytest.mark.virtual
@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 20,
        wire.encode_request(StoreQueryRequest("r", message_hashes=(b"short",))),
        wire.encode_request(StoreQueryRequest("r", pagination_cursor=b"short")),
        wire.encode_request(StoreQueryRequest("r", message_hashes=(bytes(32),) * 1001)),
        wire.encode_request(StoreQueryRequest("r", pubsub_topic=SHARD, content_topics=("t",) * 1001)),
    ],
)
async def test_a_request_that_does_not_decode_is_a_bad_request(data: bytes) -> None:
    async with open_stores(MIXED) as stores:
        response = await raw_query(stores.network, stores.peers[0], data)
        assert response.status_code == 400
        assert response.status_desc
        assert response.request_id == ("r" if data.startswith(b"\n") else "")
        assert stores.stores[0].service.requests.counters.undecodable == 1


@pytest.mark.virtual
async def test_an_archive_that_fails_is_an_unavailable_service() -> None:
    """It comes back as the archive does."""
    async with open_stores(MIXED) as stores:
        store = stores.stores[0]
        store.archive.failure = ArchiveError("the disk is gone", reason="disk-full")
        response, _ = await stores.ask()
        assert (response.status_code, response.status_desc) == (503, "SERVICE_UNAVAILABLE")
        assert response.request_id == "r1"
        assert store.service.counters.errors == {"disk-full": 1}
        store.archive.failure = None
        response, _ = await stores.ask()
        assert response.is_success


@pytest.mark.virtual
async def test_an_archive_with_a_bug_is_an_internal_error() -> None:
    async with open_stores(MIXED) as stores:
        archive = stores.stores[0].archive
        archive.kept = None  # pyright: ignore[reportAttributeAccessIssue]
        response, store = await stores.ask()
        assert (response.status_code, response.request_id) == (500, "r1")
        assert store.service.requests.counters.failed == 1


@pytest.mark.virtual
async def test_a_peer_over_its_rate_gets_too_many_requests() -> None:
    """With its request id."""
    limits = replace(UNLIMITED, per_peer=RateLimit(2, 60.0))
    async with open_stores(MIXED, limits=limits) as stores:
        codes = [(await stores.ask(request_id=f"r{n}"))[0] for n in range(4)]
        assert [one.status_code for one in codes] == [200, 200, 429, 429]
        assert codes[3].request_id == "r3"
        assert codes[3].status_desc == "TOO_MANY_REQUESTS"
        await trio.sleep(30)
        assert (await stores.ask())[0].is_success


@pytest.mark.virtual
async def test_all_peers_together_get_too_many_requests_beyond_the_total() -> None:
    limits = replace(UNLIMITED, total=RateLimit(3, 60.0))
    async with open_stores(MIXED, limits=limits) as stores, stores.world.host() as other:
        await other.connect(stores.stores[0].network.addresses)
        request = wire.encode_request(StoreQueryRequest("r"))
        codes: list[int | None] = []
        for _ in range(2):
            codes.append((await stores.ask())[0].status_code)
            codes.append((await raw_query(other, stores.peers[0], request)).status_code)
        assert codes == [200, 200, 200, 429]


@pytest.mark.virtual
async def test_queries_wait_their_turn_at_the_archive() -> None:
    """No more at a time than were allowed."""
    most = now = 0

    class Slow(MemoryArchive):
        async def query(self, query: ArchiveQuery) -> ArchivePage:
            nonlocal most, now
            now += 1
            most = max(most, now)
            await trio.sleep(0.5)
            now -= 1
            return self.query_now(query)

    async with open_stores() as stores, stores.world.host() as host:
        async with open_store_service(host, Slow(), limits=UNLIMITED, max_queries=2) as service:
            await stores.network.connect(host.addresses)
            request = wire.encode_request(StoreQueryRequest("r"))
            async with trio.open_nursery() as nursery:
                for _ in range(6):
                    nursery.start_soon(raw_query, stores.network, host.peer_id, request)
        assert most == 2
        assert service.counters.answered == 6


@pytest.mark.virtual
async def test_the_protocol_is_served_while_the_service_is_open() -> None:
    async with open_stores() as stores, stores.world.host() as host:
        async with open_store_service(host, MemoryArchive()):
            await stores.network.connect(host.addresses)
            await trio.sleep(1)
            assert PROTOCOL in stores.network.peers[host.peer_id].protocols
        await trio.sleep(1)
        assert PROTOCOL not in stores.network.peers[host.peer_id].protocols


@pytest.mark.parametrize(
    ("default", "most", "size"), [(0, 100, 4096), (20, 101, 4096), (50, 20, 4096), (20, 100, 10)]
)
def test_impossible_page_limits_are_refused(default: int, most: int, size: int) -> None:
    with pytest.raises(InvalidInput):
        PageLimits(default, most, size)
