"""Asking stores: what a client believes, and how it comes by a whole result although stores fail."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import trio

from pywaku.archive import StoredMessage
from pywaku.errors import DecodeError, InvalidInput, NetworkError, NotConnected, RequestTimeout
from pywaku.network.port import Stream
from pywaku.protocols.service import RateLimit
from pywaku.protocols.store import (
    PROTOCOL,
    PageLimits,
    StoreAnswerInvalid,
    StoreClientOptions,
    StoreEntry,
    StoreQuery,
    StoreQueryFailed,
    StoreQueryRequest,
    StoreQueryResponse,
    StoresExhausted,
    StoreStatus,
)
from pywaku.protocols.store.answer import refuse
from tests.support.stores import (
    OTHER_SHARD,
    OTHER_TOPIC,
    SHARD,
    START,
    TOPIC,
    UNLIMITED,
    Stores,
    Twist,
    archive_of,
    hashes_of,
    history,
    open_stores,
    serve_twisted,
    stored,
)

HISTORY = history(95, per_time=2)
QUERY = StoreQuery(SHARD, (TOPIC,), page_size=10)

Request = StoreQueryRequest
Response = StoreQueryResponse


async def collect(stores: Stores, query: StoreQuery, *, limit: int | None = None) -> list[bytes]:
    """The result of a query at all stores, hash by hash."""
    return [entry.message_hash async for entry in stores.client.messages(query, stores.peers, limit=limit)]


def expected(query: StoreQuery, messages: list[StoredMessage]) -> list[bytes]:
    """The hashes in the order of the query."""
    return hashes_of(messages if query.forward else messages[::-1])


DIRECTIONS = pytest.mark.parametrize("forward", [True, False], ids=["forward", "backward"])
KINDS = pytest.mark.parametrize(
    "query",
    [
        QUERY,
        StoreQuery(page_size=10),
        replace(QUERY, include_data=False),
        StoreQuery(message_hashes=tuple(hashes_of(HISTORY)), page_size=10),
        StoreQuery(message_hashes=tuple(hashes_of(HISTORY)), page_size=10, include_data=False),
    ],
    ids=["topic", "all", "keys", "lookup", "presence"],
)


def fails(_: Request, __: Response) -> None:
    """Reset the stream."""


# One page


@pytest.mark.virtual
async def test_a_query_returns_the_page_of_one_store() -> None:
    async with open_stores(HISTORY) as stores:
        response = await stores.client.query(stores.peers[0], QUERY)
        assert hashes_of(response.messages) == hashes_of(HISTORY[:10])
        assert response.messages[0].message == HISTORY[0].message
        assert response.pagination_cursor == HISTORY[9].message_hash
        counters = stores.client.counters
        assert (counters.queries, counters.answered, counters.entries) == (1, 1, 10)


@pytest.mark.virtual
async def test_each_request_has_an_id_of_its_own() -> None:
    seen: list[str] = []

    def note(request: Request, response: Response) -> Response:
        seen.append(request.request_id)
        return response

    async with open_stores(HISTORY) as stores:
        serve_twisted(stores.stores[0].network, stores.stores[0].archive, note)
        assert await collect(stores, QUERY) == hashes_of(HISTORY)
    assert len(seen) == 10
    assert len(set(seen)) == 10
    assert all(seen)


@pytest.mark.virtual
async def test_the_requests_for_further_pages_are_the_same_but_for_the_cursor() -> None:
    seen: list[Request] = []

    def note(request: Request, response: Response) -> Response:
        seen.append(request)
        return response

    query = replace(QUERY, time_start=START, time_end=START + 1000, forward=False)
    async with open_stores(HISTORY) as stores:
        serve_twisted(stores.stores[0].network, stores.stores[0].archive, note)
        await collect(stores, query)
    cursors = {request.pagination_cursor for request in seen}
    assert len(cursors) == len(seen)
    assert len({replace(request, request_id="", pagination_cursor=None) for request in seen}) == 1


@pytest.mark.virtual
@pytest.mark.parametrize("code", [300, 400, 429, 500, 503, 199, 0, 1000])
async def test_codes_outside_2xx_are_errors(code: int) -> None:
    """With the code and what the store says about it."""
    async with open_stores(HISTORY) as stores:
        store = stores.stores[0]
        serve_twisted(store.network, store.archive, lambda r, _: Response(r.request_id, code, "because"))
        with pytest.raises(StoreQueryFailed) as caught:
            await stores.client.query(store.peer, QUERY)
        assert (caught.value.status_code, caught.value.status_desc) == (code, "because")
        assert caught.value.peer == store.peer
        assert isinstance(caught.value, NetworkError)
        counters = stores.client.counters
        assert (counters.limited, counters.refused) == ((1, 0) if code == 429 else (0, 1))


@pytest.mark.virtual
async def test_an_error_need_not_have_the_request_id() -> None:
    """nwaku leaves it out."""
    async with open_stores(HISTORY) as stores:
        store = stores.stores[0]
        serve_twisted(store.network, store.archive, lambda _, __: Response("", 429))
        with pytest.raises(StoreQueryFailed):
            await stores.client.query(store.peer, QUERY)


@pytest.mark.virtual
async def test_any_code_of_2xx_is_a_success() -> None:
    async with open_stores(HISTORY) as stores:
        store = stores.stores[0]
        serve_twisted(store.network, store.archive, lambda _, response: replace(response, status_code=204))
        assert (await stores.client.query(store.peer, QUERY)).status_code == 204


@pytest.mark.virtual
async def test_a_store_that_does_not_answer_times_out() -> None:
    async with open_stores(HISTORY, options=StoreClientOptions(timeout_s=4.0)) as stores:
        store = stores.stores[0]
        serve_twisted(store.network, store.archive, lambda _, r: r, pause=trio.sleep_forever)
        started = trio.current_time()
        with pytest.raises(RequestTimeout):
            await stores.client.query(store.peer, QUERY)
        assert trio.current_time() - started == pytest.approx(4.0, abs=0.1)
        with pytest.raises(RequestTimeout):
            await stores.client.query(store.peer, QUERY, timeout=1.0)
        assert stores.client.counters.timed_out == 2


@pytest.mark.virtual
async def test_an_answer_that_is_too_large_is_refused() -> None:
    async with open_stores(history(5, size=1000), options=StoreClientOptions(max_response=3000)) as stores:
        with pytest.raises(DecodeError):
            await stores.client.query(stores.peers[0], QUERY)
        assert stores.client.counters.invalid == 1


@pytest.mark.virtual
async def test_a_store_that_is_not_connected_cannot_be_asked() -> None:
    async with open_stores(HISTORY) as stores:
        await stores.network.disconnect(stores.peers[0])
        with pytest.raises(NotConnected):
            await stores.client.query(stores.peers[0], QUERY)
        assert stores.client.counters.failed == 1


# What is believed


def with_entry(number: int, **fields: Any) -> Twist:
    """Change an entry of the page."""

    def twist(_: Request, response: Response) -> Response:
        entries = list(response.messages)
        entries[number] = replace(entries[number], **fields)
        return replace(response, messages=tuple(entries))

    return twist


def page_of(*messages: StoredMessage, cursor: bytes | None = None) -> Twist:
    """Answer with these."""
    entries = tuple([StoreEntry(one.message_hash, one.message, one.pubsub_topic) for one in messages])
    return lambda request, _: Response(request.request_id, 200, "OK", entries, cursor)


TIMED = replace(QUERY, time_start=START + 10, time_end=START + 20)

LIES: dict[str, tuple[StoreQuery, Twist]] = {
    "another request": (QUERY, lambda _, response: replace(response, request_id="other")),
    "no status": (QUERY, lambda _, response: replace(response, status_code=None)),
    "garbage": (QUERY, lambda _, __: b"\xff\xff\xff"),
    "a false hash": (QUERY, with_entry(3, message_hash=bytes(32))),
    "a changed message": (QUERY, with_entry(3, message=replace(HISTORY[3].message, payload=b"lie"))),
    "another pubsub topic": (QUERY, page_of(stored(1, shard=OTHER_SHARD))),
    "another content topic": (QUERY, page_of(stored(1, topic=OTHER_TOPIC))),
    "too early": (TIMED, page_of(stored(9))),
    "too late": (TIMED, page_of(stored(20))),
    "no data": (QUERY, lambda r, _: Response(r.request_id, 200, "OK", (StoreEntry(bytes(32)),))),
    "disorder": (QUERY, page_of(stored(2), stored(1))),
    "twice": (QUERY, page_of(stored(1), stored(1))),
    "twice without data": (
        replace(QUERY, include_data=False),
        lambda r, _: Response(r.request_id, 200, "OK", (StoreEntry(bytes(32)),) * 2),
    ),
    "a lookup of others": (
        StoreQuery(message_hashes=(HISTORY[0].message_hash,)),
        page_of(HISTORY[1]),
    ),
    "too many": (replace(QUERY, page_size=2), page_of(*HISTORY[:3])),
    "an empty page that is not the last": (QUERY, page_of(cursor=HISTORY[0].message_hash)),
    "a strange cursor": (QUERY, page_of(*HISTORY[:3], cursor=HISTORY[0].message_hash)),
    "the entry of the cursor": (replace(QUERY, cursor=HISTORY[0].message_hash), page_of(HISTORY[0])),
}


@pytest.mark.virtual
@pytest.mark.parametrize("lie", LIES)
async def test_a_store_that_lies_is_found_out(lie: str) -> None:
    """The answer is refused, and the store reported."""
    query, twist = LIES[lie]
    async with open_stores(HISTORY) as stores:
        store = stores.stores[0]
        serve_twisted(store.network, store.archive, twist)
        with pytest.raises((StoreAnswerInvalid, DecodeError)):
            await stores.client.query(store.peer, query)
        assert stores.client.counters.invalid == 1
        assert [peer for peer, _ in stores.accused] == [store.peer]


@pytest.mark.virtual
@pytest.mark.parametrize("lie", LIES)
async def test_a_store_that_lies_is_left_for_an_honest_one(lie: str) -> None:
    """It is asked once only."""
    query, twist = LIES[lie]
    async with open_stores(HISTORY, HISTORY) as stores:
        liar = stores.stores[0]
        serve_twisted(liar.network, liar.archive, twist)
        found = await collect(stores, query)
        honest = replace(query, page_size=100)
        assert found == hashes_of((await stores.client.query(stores.peers[1], honest)).messages)
        assert [peer for peer, _ in stores.accused] == [liar.peer]


@pytest.mark.virtual
@KINDS
async def test_a_store_that_goes_in_circles_is_found_out(query: StoreQuery) -> None:
    """Each of its pages by itself would be fine."""

    def circle(request: Request, response: Response) -> Response:
        if request.pagination_cursor != HISTORY[19].message_hash:
            return response
        again = tuple(
            [
                StoreEntry(one.message_hash, one.message, one.pubsub_topic)
                if request.include_data
                else StoreEntry(one.message_hash)
                for one in HISTORY[:10]
            ]
        )
        return replace(response, messages=again, pagination_cursor=HISTORY[9].message_hash)

    async with open_stores(HISTORY, HISTORY) as stores:
        serve_twisted(stores.stores[0].network, stores.stores[0].archive, circle)
        assert await collect(stores, query) == hashes_of(HISTORY)
        assert len(stores.accused) == 1


# Whole results


@pytest.mark.virtual
@KINDS
@DIRECTIONS
async def test_messages_are_the_whole_result_in_the_direction_of_the_query(
    query: StoreQuery, forward: bool
) -> None:
    query = replace(query, forward=forward)
    async with open_stores(HISTORY) as stores:
        assert await collect(stores, query) == expected(query, HISTORY)
        assert stores.client.counters.queries == 10


@pytest.mark.virtual
@DIRECTIONS
async def test_pages_are_in_ascending_order_each(forward: bool) -> None:
    async with open_stores(HISTORY) as stores:
        pages = stores.client.pages(replace(QUERY, forward=forward), stores.peers)
        sizes: list[int] = []
        async for page in pages:
            sizes.append(len(page.entries))
            assert page.peer == stores.peers[0]
            wanted = [one for one in HISTORY if one.message_hash in hashes_of(page.entries)]
            assert hashes_of(page.entries) == hashes_of(wanted)
        assert sizes == [10] * 9 + [5]
        assert pages.complete


@pytest.mark.virtual
async def test_an_empty_result_is_one_empty_page() -> None:
    async with open_stores([]) as stores:
        assert [page.entries async for page in stores.client.pages(QUERY, stores.peers)] == [()]
        assert await collect(stores, QUERY) == []


@pytest.mark.virtual
@pytest.mark.parametrize("limit", [0, 1, 9, 10, 11, 25, 95, 1000])
@DIRECTIONS
async def test_a_limit_ends_the_result_and_asks_for_no_more(limit: int, forward: bool) -> None:
    query = replace(QUERY, forward=forward)
    async with open_stores(HISTORY) as stores:
        assert await collect(stores, query, limit=limit) == expected(query, HISTORY)[:limit]
        assert stores.client.counters.entries == min(limit, 95)


@pytest.mark.virtual
async def test_max_pages_ends_the_result_and_the_cursor_leads_on() -> None:
    async with open_stores(HISTORY) as stores:
        first = stores.client.messages(QUERY, stores.peers, max_pages=3)
        found = [entry.message_hash async for entry in first]
        assert found == hashes_of(HISTORY[:30])
        assert not first.pages.complete
        found += await collect(stores, replace(QUERY, cursor=first.pages.cursor))
        assert found == hashes_of(HISTORY)


@pytest.mark.virtual
async def test_the_cursor_of_a_complete_result_leads_to_what_comes_later() -> None:
    async with open_stores(HISTORY) as stores:
        first = stores.client.messages(QUERY, stores.peers)
        async for _ in first:
            pass
        later = [stored(1000), stored(1001)]
        stores.stores[0].archive.insert_now(later)
        assert await collect(stores, replace(QUERY, cursor=first.pages.cursor)) == hashes_of(later)


@pytest.mark.virtual
async def test_stores_may_have_smaller_pages_than_were_asked_for() -> None:
    async with open_stores(HISTORY, pages=PageLimits(default_size=3, max_size=3)) as stores:
        assert await collect(stores, QUERY) == hashes_of(HISTORY)
        assert stores.client.counters.queries == 32


# Stores that fail


def after(pages: int, twist: Twist) -> Twist:
    """Behave for so many pages."""
    left = pages

    def count(request: Request, response: Response) -> Response | bytes | None:
        nonlocal left
        left -= 1
        return response if left >= 0 else twist(request, response)

    return count


FAILURES: dict[str, Twist] = {
    "resets": fails,
    "is unavailable": lambda r, _: refuse(r.request_id, StoreStatus.SERVICE_UNAVAILABLE),
    "has a bug": lambda r, _: refuse(r.request_id, StoreStatus.INTERNAL_SERVER_ERROR),
    "refuses": lambda r, _: refuse(r.request_id, StoreStatus.BAD_REQUEST),
    "limits": lambda r, _: refuse(r.request_id, StoreStatus.TOO_MANY_REQUESTS),
    "talks nonsense": lambda _, __: b"\xff\xff",
    "answers half": lambda _, response: b"\x0a\x05abc",
}


@pytest.mark.virtual
@KINDS
@DIRECTIONS
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("pages", [0, 4])
async def test_when_a_store_fails_the_result_goes_on_at_another(
    query: StoreQuery, forward: bool, failure: str, pages: int
) -> None:
    """Nothing lost, nothing twice."""
    query = replace(query, forward=forward)
    async with open_stores(HISTORY, HISTORY) as stores:
        store = stores.stores[0]
        serve_twisted(store.network, store.archive, after(pages, FAILURES[failure]))
        assert await collect(stores, query) == expected(query, HISTORY)
        assert stores.client.counters.switched == (1 if pages else 0)
        assert stores.stores[1].service.counters.answered == 10 - pages


@pytest.mark.virtual
@KINDS
async def test_when_a_store_stalls_the_result_goes_on_at_another(query: StoreQuery) -> None:
    """After the timeout."""
    async with open_stores(HISTORY, HISTORY) as stores:
        messages = stores.client.messages(query, stores.peers)
        found = [(await anext(messages)).message_hash for _ in range(15)]
        stores.world.stall(stores.stores[0].network)
        found += [entry.message_hash async for entry in messages]
        assert found == hashes_of(HISTORY)
        assert stores.client.counters.timed_out == 1


@pytest.mark.virtual
@pytest.mark.parametrize("silent", [True, False])
async def test_when_a_store_crashes_the_result_goes_on_at_another(silent: bool) -> None:
    async with open_stores(HISTORY, HISTORY) as stores:
        messages = stores.client.messages(QUERY, stores.peers)
        found = [(await anext(messages)).message_hash for _ in range(15)]
        stores.world.crash(stores.stores[0].network, silent=silent)
        found += [entry.message_hash async for entry in messages]
        assert found == hashes_of(HISTORY)


@pytest.mark.virtual
async def test_a_store_that_crashes_while_it_answers_is_left() -> None:
    """The answer is on its way when the connection goes."""
    async with open_stores(HISTORY, HISTORY) as stores:
        first = stores.stores[0]

        async def handle(stream: Stream) -> None:
            await stream.send(b"\x80\x10" + bytes(100))
            stores.world.crash(first.network)

        first.network.unserve(PROTOCOL)
        first.network.serve(PROTOCOL, handle)
        assert await collect(stores, QUERY) == hashes_of(HISTORY)


@pytest.mark.virtual
async def test_every_store_may_fail_now_and_then() -> None:
    """Each third answer of each store is lost; no two in a row."""
    async with open_stores(HISTORY, HISTORY, HISTORY) as stores:
        for offset, store in enumerate(stores.stores):
            count = offset

            def flaky(_: Request, response: Response) -> Response | None:
                nonlocal count
                count += 1
                return None if count % 3 == 0 else response

            serve_twisted(store.network, store.archive, flaky)
        assert await collect(stores, QUERY) == hashes_of(HISTORY)


@pytest.mark.virtual
async def test_a_single_store_that_fails_once_is_asked_again() -> None:
    """After a second."""
    async with open_stores(HISTORY) as stores:
        failed = False

        def once(_: Request, response: Response) -> Response | None:
            nonlocal failed
            if not failed:
                failed = True
                return None
            return response

        serve_twisted(stores.stores[0].network, stores.stores[0].archive, once)
        started = trio.current_time()
        assert await collect(stores, QUERY) == hashes_of(HISTORY)
        assert trio.current_time() - started >= 1.0


@pytest.mark.virtual
async def test_a_store_that_answers_every_other_time_is_enough() -> None:
    """It is given up for failures in a row."""
    async with open_stores(HISTORY) as stores:
        count = 0

        def flaky(_: Request, response: Response) -> Response | None:
            nonlocal count
            count += 1
            return response if count % 2 == 0 else None

        serve_twisted(stores.stores[0].network, stores.stores[0].archive, flaky)
        assert await collect(stores, QUERY) == hashes_of(HISTORY)


@pytest.mark.virtual
async def test_without_stores_that_answer_the_query_fails_and_says_where_it_was() -> None:
    """With what was wrong with each; a later query goes on from there."""
    async with open_stores(HISTORY, HISTORY) as stores:
        for store in stores.stores:
            serve_twisted(store.network, store.archive, after(2, FAILURES["has a bug"]))
        found: list[bytes] = []
        with pytest.raises(StoresExhausted) as caught:
            async for entry in stores.client.messages(QUERY, stores.peers):
                found.append(entry.message_hash)
        assert found == hashes_of(HISTORY[:40])
        assert set(caught.value.failures) == set(stores.peers)
        assert caught.value.cursor == HISTORY[39].message_hash
        for store in stores.stores:
            serve_twisted(store.network, store.archive, lambda _, response: response)
        found += await collect(stores, replace(QUERY, cursor=caught.value.cursor))
        assert found == hashes_of(HISTORY)


@pytest.mark.virtual
async def test_without_stores_there_is_no_result() -> None:
    async with open_stores() as stores:
        with pytest.raises(StoresExhausted, match="none to ask"):
            await collect(stores, QUERY)


@pytest.mark.virtual
async def test_a_peer_that_is_no_store_is_passed_over() -> None:
    async with open_stores(HISTORY) as stores, stores.world.host() as other:
        await stores.network.connect(other.addresses)
        found = [e async for e in stores.client.messages(QUERY, [other.peer_id, *stores.peers])]
        assert len(found) == 95


@pytest.mark.virtual
async def test_limited_stores_are_waited_for() -> None:
    """A result of ten pages, at two stores that give two pages in ten seconds."""
    limits = replace(UNLIMITED, per_peer=RateLimit(2, 10.0))
    async with open_stores(HISTORY, HISTORY, limits=limits) as stores:
        started = trio.current_time()
        assert await collect(stores, QUERY) == hashes_of(HISTORY)
        assert 10 < trio.current_time() - started < 40
        assert stores.client.counters.limited > 0


@pytest.mark.virtual
async def test_as_long_as_pages_come_limited_stores_are_waited_for() -> None:
    """One page in fifty seconds."""
    limits = replace(UNLIMITED, per_peer=RateLimit(1, 50.0))
    async with open_stores(HISTORY, limits=limits) as stores:
        assert await collect(stores, QUERY) == hashes_of(HISTORY)
        assert trio.current_time() > 400


@pytest.mark.virtual
async def test_limited_stores_are_not_waited_for_forever() -> None:
    limits = replace(UNLIMITED, per_peer=RateLimit(1, 1_000_000.0))
    async with open_stores(HISTORY, limits=limits) as stores:
        started = trio.current_time()
        with pytest.raises(StoresExhausted):
            await collect(stores, QUERY)
        assert trio.current_time() - started == pytest.approx(120, abs=5)
        assert stores.client.counters.queries < 15


# Stores that do not have the cursor


@pytest.mark.virtual
@KINDS
@DIRECTIONS
async def test_a_store_without_the_entry_of_the_cursor_goes_on_all_the_same(
    query: StoreQuery, forward: bool
) -> None:
    """It never got some of the messages, among them the last before the switch."""
    query = replace(query, forward=forward)
    order = HISTORY if forward else HISTORY[::-1]
    lacking = [one for number, one in enumerate(order) if number not in (39, 38, 35)]
    async with open_stores(HISTORY, lacking) as stores:
        serve_twisted(stores.stores[0].network, stores.stores[0].archive, after(4, fails))
        assert await collect(stores, query) == hashes_of(order)
        assert stores.client.counters.detours >= 1
        assert stores.accused == []


@pytest.mark.virtual
@DIRECTIONS
async def test_the_way_by_time_passes_many_messages_of_one_time(forward: bool) -> None:
    """More of them than a page has."""
    messages = history(90, per_time=45)
    query = replace(QUERY, forward=forward)
    order = messages if forward else messages[::-1]
    lacking = [one for number, one in enumerate(order) if number != 29]
    async with open_stores(messages, lacking) as stores:
        serve_twisted(stores.stores[0].network, stores.stores[0].archive, after(3, fails))
        found: list[bytes] = []
        async for page in stores.client.pages(query, stores.peers):
            assert page.entries, "a page without anything new is not shown"
            found += hashes_of(page.entries if forward else page.entries[::-1])
        assert found == hashes_of(order)


@pytest.mark.virtual
async def test_a_store_that_forgets_the_cursor_goes_on_by_time() -> None:
    """Retention has taken its entry in the meantime; there is no other store."""
    async with open_stores(HISTORY) as stores:
        archive = stores.stores[0].archive
        messages = stores.client.messages(QUERY, stores.peers)
        found = [(await anext(messages)).message_hash for _ in range(10)]
        for one in HISTORY[:12]:
            del archive.kept[one.message_hash]
        found += [entry.message_hash async for entry in messages]
        assert found == hashes_of(HISTORY[:10] + HISTORY[12:])


@pytest.mark.virtual
async def test_an_unknown_cursor_of_the_caller_is_an_error() -> None:
    """There is no telling where it was."""
    async with open_stores(HISTORY, HISTORY) as stores:
        with pytest.raises(StoresExhausted) as caught:
            await collect(stores, replace(QUERY, cursor=bytes(32)))
        assert all(isinstance(error, StoreQueryFailed) for error in caught.value.failures.values())


@pytest.mark.virtual
@pytest.mark.parametrize("data", [True, False])
@DIRECTIONS
async def test_stores_with_gaps_and_failures_give_all_that_the_first_to_answer_has(
    data: bool, forward: bool
) -> None:
    """Whatever fails when: no entry twice, all in order, and none missing that all stores have."""
    rng = random.Random(5)
    for _ in range(30):
        archives = [[one for one in HISTORY if rng.random() < 0.9] for _ in range(3)]
        query = replace(QUERY, include_data=data, forward=forward, page_size=rng.randint(1, 20))
        async with open_stores(*archives) as stores:
            for store in stores.stores[:2]:
                serve_twisted(
                    store.network,
                    archive_of(list(store.archive.kept.values())),
                    after(rng.randint(0, 4), fails),
                )
            found = await collect(stores, query)
            assert len(set(found)) == len(found)
            everywhere = (
                set(hashes_of(archives[0])) & set(hashes_of(archives[1])) & set(hashes_of(archives[2]))
            )
            assert everywhere <= set(found)
            if data:
                assert found == [value for value in expected(query, HISTORY) if value in set(found)]


# Presence


@pytest.mark.virtual
async def test_which_stored_says_which_messages_are_present() -> None:
    """Asked for a hundred at a time, without their data."""
    messages = history(250)
    async with open_stores(messages[::2]) as stores:
        found = await stores.client.which_stored(hashes_of(messages), stores.peers)
        assert found == set(hashes_of(messages[::2]))
        assert stores.client.counters.queries == 3
        assert stores.stores[0].service.counters.entries == 125


@pytest.mark.virtual
async def test_which_stored_asks_the_next_store_for_what_is_missing() -> None:
    messages = history(50)
    async with open_stores(messages[:20], messages[15:30], messages[30:40]) as stores:
        found = await stores.client.which_stored(hashes_of(messages), stores.peers)
        assert found == set(hashes_of(messages[:40]))
        found = await stores.client.which_stored(hashes_of(messages[:5]), stores.peers)
        assert found == set(hashes_of(messages[:5]))
        assert stores.stores[1].service.counters.answered == 1


@pytest.mark.virtual
async def test_which_stored_needs_one_store_that_answers() -> None:
    messages = history(5)
    options = StoreClientOptions(timeout_s=1.0)
    async with open_stores(messages, messages, options=options) as stores:
        stores.world.stall(stores.stores[0].network)
        assert await stores.client.which_stored(hashes_of(messages), stores.peers) == set(hashes_of(messages))
        stores.world.stall(stores.stores[1].network)
        with pytest.raises(StoresExhausted):
            await stores.client.which_stored(hashes_of(messages), stores.peers)
        assert await stores.client.which_stored([], stores.peers) == set()


@pytest.mark.virtual
async def test_which_stored_does_not_believe_in_hashes_it_did_not_ask_for() -> None:
    messages = history(5)
    async with open_stores(messages) as stores:
        store = stores.stores[0]
        serve_twisted(
            store.network,
            store.archive,
            lambda r, _: Response(r.request_id, 200, "OK", (StoreEntry(messages[4].message_hash),)),
        )
        with pytest.raises(StoresExhausted):
            await stores.client.which_stored([messages[0].message_hash], stores.peers)
        assert len(stores.accused) == 1


# Input


@pytest.mark.parametrize(
    "fields",
    [
        {"pubsub_topic": SHARD},
        {"content_topics": (TOPIC,)},
        {"message_hashes": (bytes(32),), "time_start": 5},
        {"message_hashes": (bytes(32),), "pubsub_topic": SHARD, "content_topics": (TOPIC,)},
        {"message_hashes": (bytes(31),)},
        {"message_hashes": (bytes(32),) * 1001},
        {"pubsub_topic": SHARD, "content_topics": (TOPIC,) * 1001},
        {"cursor": bytes(31)},
        {"time_end": 0},
        {"time_end": 1 << 63},
        {"time_start": 1 << 63},
        {"page_size": 0},
        {"page_size": 101},
    ],
)
def test_queries_that_stores_refuse_are_not_made(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        StoreQuery(**fields)


@pytest.mark.parametrize(
    "fields",
    [{"timeout_s": 0}, {"attempts": 0}, {"max_response": 0}, {"limited_wait_s": 0}, {"retry_wait_s": -1}],
)
def test_impossible_options_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        StoreClientOptions(**fields)


@pytest.mark.virtual
async def test_negative_limits_are_refused() -> None:
    async with open_stores() as stores:
        with pytest.raises(InvalidInput):
            stores.client.messages(QUERY, [], limit=-1)
        with pytest.raises(InvalidInput):
            stores.client.pages(QUERY, [], max_pages=-1)
