"""What a filter service node answers (12/WAKU2-FILTER, Filter-Subscribe), and what it takes on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from pywaku.errors import NetworkError
from pywaku.message import WakuMessage
from pywaku.protocols.filter import Criterion, FilterServiceOptions
from pywaku.protocols.service import RateLimit, ServiceLimits
from pywaku.wire.filter import FilterSubscribeRequest, FilterSubscribeType, encode_subscribe_request
from tests.support.light import FilterWorld, RawSubscriber, open_filter_world, open_raw_subscriber
from tests.support.relays import CONTENT_TOPIC, TOPIC, message

pytestmark = pytest.mark.virtual

PING = FilterSubscribeType.SUBSCRIBER_PING
SUBSCRIBE = FilterSubscribeType.SUBSCRIBE
UNSUBSCRIBE = FilterSubscribeType.UNSUBSCRIBE
UNSUBSCRIBE_ALL = FilterSubscribeType.UNSUBSCRIBE_ALL
OTHER = "/test/1/other/proto"


@asynccontextmanager
async def open_raw(
    options: FilterServiceOptions | None = None,
) -> AsyncGenerator[tuple[FilterWorld, RawSubscriber], None]:
    async with open_filter_world(0, options=options) as filters, open_raw_subscriber(filters) as raw:
        yield filters, raw


async def publish(filters: FilterWorld, *content_topics: str) -> None:
    await filters.publish(*(WakuMessage(topic.encode(), topic) for topic in content_topics))


# Responses


@pytest.mark.parametrize("kind", list(FilterSubscribeType))
async def test_the_response_has_the_request_id_of_the_request(kind: FilterSubscribeType) -> None:
    async with open_raw() as (_, raw):
        answer = await raw.ask(kind, CONTENT_TOPIC, pubsub_topic=TOPIC, request_id=f"id-{kind}")
        assert answer.request_id == f"id-{kind}"


async def test_successful_status_codes_are_in_the_2xx_range() -> None:
    async with open_raw() as (_, raw):
        for kind in (SUBSCRIBE, PING, UNSUBSCRIBE, SUBSCRIBE, UNSUBSCRIBE_ALL):
            answer = await raw.ask(kind, CONTENT_TOPIC, pubsub_topic=TOPIC)
            assert (answer.status_code, answer.status_desc) == (200, "OK")


# SUBSCRIBER_PING


async def test_ping_tells_whether_there_are_active_subscriptions() -> None:
    async with open_raw() as (_, raw):
        answer = await raw.ask(PING)
        assert (answer.status_code, answer.status_desc) == (404, "peer has no subscriptions")
        await raw.subscribe()
        assert (await raw.ask(PING)).is_success


async def test_ping_ignores_filter_criteria() -> None:
    async with open_raw() as (filters, raw):
        await raw.subscribe()
        assert (await raw.ask(PING, OTHER, pubsub_topic="/waku/2/rs/42/9")).is_success
        assert filters.service.subscriptions == {
            raw.network.peer_id: (Criterion(TOPIC, CONTENT_TOPIC),),
        }


# SUBSCRIBE


async def test_messages_that_match_are_pushed_and_no_others() -> None:
    async with open_raw() as (filters, raw):
        await raw.subscribe()
        await publish(filters, OTHER, CONTENT_TOPIC)
        assert raw.payloads == [CONTENT_TOPIC.encode()]


async def test_a_message_matches_only_on_the_pubsub_topic_of_the_criteria() -> None:
    async with open_raw() as (filters, raw):
        elsewhere = "/waku/2/rs/42/1"
        filters.relay.subscribe_callback(elsewhere, lambda _: None)
        await raw.subscribe()
        await filters.relay.publish(elsewhere, message("elsewhere"))
        await filters.relay.publish(TOPIC, message("here"))
        await trio.sleep(1)
        assert raw.payloads == [b"here"]


async def test_subscribing_again_with_additional_criteria_modifies_the_subscription() -> None:
    async with open_raw() as (filters, raw):
        await raw.subscribe()
        await raw.subscribe(OTHER)
        await publish(filters, OTHER, CONTENT_TOPIC)
        assert raw.payloads == [OTHER.encode(), CONTENT_TOPIC.encode()]
        assert (filters.service.peers, filters.service.criteria) == (1, 2)


async def test_subscribing_again_with_the_same_criteria_refreshes_the_subscription() -> None:
    async with open_raw() as (filters, raw):
        await raw.subscribe()
        await trio.sleep(290)
        await raw.subscribe()
        await trio.sleep(290)
        await publish(filters, CONTENT_TOPIC)
        assert raw.payloads == [CONTENT_TOPIC.encode()]
        assert filters.service.criteria == 1


@pytest.mark.parametrize("kind", [SUBSCRIBE, UNSUBSCRIBE])
@pytest.mark.parametrize(
    ("pubsub_topic", "content_topics"),
    [(None, (CONTENT_TOPIC,)), ("", (CONTENT_TOPIC,)), (TOPIC, ()), (TOPIC, (CONTENT_TOPIC, ""))],
)
async def test_a_request_without_valid_filter_criteria_is_discarded_with_an_error(
    kind: FilterSubscribeType, pubsub_topic: str | None, content_topics: tuple[str, ...]
) -> None:
    async with open_raw() as (filters, raw):
        await raw.subscribe(OTHER)
        answer = await raw.ask(kind, *content_topics, pubsub_topic=pubsub_topic)
        assert answer.status_code == 400
        assert answer.status_desc == "pubsubTopic and contentTopics must be specified"
        assert filters.service.criteria == 1


async def test_a_subscription_that_cannot_be_honoured_for_its_shard_is_refused() -> None:
    async with open_raw() as (filters, raw):
        answer = await raw.ask(SUBSCRIBE, CONTENT_TOPIC, pubsub_topic="/waku/2/rs/42/9")
        assert answer.status_code == 400
        assert answer.status_desc == "service node is not subscribed to pubsub topic /waku/2/rs/42/9"
        assert filters.relay.topics == {TOPIC}


# UNSUBSCRIBE


async def test_unsubscribing_stops_the_pushes_of_these_criteria_only() -> None:
    async with open_raw() as (filters, raw):
        await raw.subscribe(CONTENT_TOPIC, OTHER)
        assert (await raw.ask(UNSUBSCRIBE, CONTENT_TOPIC, pubsub_topic=TOPIC)).is_success
        await publish(filters, OTHER, CONTENT_TOPIC)
        assert raw.payloads == [OTHER.encode()]


async def test_unsubscribing_from_what_was_not_subscribed_is_an_error() -> None:
    async with open_raw() as (filters, raw):
        answer = await raw.ask(UNSUBSCRIBE, CONTENT_TOPIC, pubsub_topic=TOPIC)
        assert (answer.status_code, answer.status_desc) == (404, "peer has no subscriptions")
        await raw.subscribe(OTHER)
        answer = await raw.ask(UNSUBSCRIBE, CONTENT_TOPIC, pubsub_topic=TOPIC)
        assert answer.status_code == 404
        assert filters.service.criteria == 1


async def test_a_subscription_ends_with_its_last_criterion() -> None:
    async with open_raw() as (filters, raw):
        await raw.subscribe(CONTENT_TOPIC, OTHER)
        await publish(filters, CONTENT_TOPIC)
        assert (await raw.ask(UNSUBSCRIBE, CONTENT_TOPIC, OTHER, pubsub_topic=TOPIC)).is_success
        assert (await raw.ask(PING)).status_code == 404
        assert filters.service.peers == 0


# UNSUBSCRIBE_ALL


async def test_unsubscribe_all_removes_every_subscription_of_the_client_and_of_no_other() -> None:
    async with open_raw() as (filters, raw), open_raw_subscriber(filters, "other") as other:
        for subscriber in (raw, other):
            await subscriber.subscribe(CONTENT_TOPIC, OTHER)
        assert (await raw.ask(UNSUBSCRIBE_ALL)).is_success
        await publish(filters, OTHER, CONTENT_TOPIC)
        assert raw.payloads == []
        assert len(other.payloads) == 2


async def test_unsubscribe_all_without_a_subscription_is_an_error() -> None:
    async with open_raw() as (_, raw):
        assert (await raw.ask(UNSUBSCRIBE_ALL)).status_code == 404


async def test_unsubscribe_all_ignores_filter_criteria() -> None:
    async with open_raw() as (filters, raw):
        await raw.subscribe(CONTENT_TOPIC, OTHER)
        assert (await raw.ask(UNSUBSCRIBE_ALL, CONTENT_TOPIC, pubsub_topic=TOPIC)).is_success
        assert filters.service.criteria == 0


# Expiry


async def test_a_subscription_expires_300_s_after_the_last_request() -> None:
    async with open_raw() as (filters, raw):
        await raw.subscribe()
        await trio.sleep(299)
        assert filters.service.peers == 1
        await trio.sleep(2)
        assert filters.service.peers == 0
        assert filters.service.counters.expired == 1
        await publish(filters, CONTENT_TOPIC)
        assert raw.pushes == []
        assert (await raw.ask(PING)).status_code == 404


async def test_pings_keep_a_subscription_alive() -> None:
    async with open_raw() as (filters, raw):
        await raw.subscribe()
        for _ in range(20):
            await trio.sleep(60)
            assert (await raw.ask(PING)).is_success
        await publish(filters, CONTENT_TOPIC)
        assert len(raw.pushes) == 1


async def test_an_expired_subscription_makes_room_for_another_peer() -> None:
    options = FilterServiceOptions(max_peers=1, subscription_timeout_s=10)
    async with open_raw(options) as (filters, raw), open_raw_subscriber(filters, "other") as other:
        await raw.subscribe()
        assert (await other.ask(SUBSCRIBE, CONTENT_TOPIC, pubsub_topic=TOPIC)).status_code == 503
        await trio.sleep(10)
        await other.subscribe()


async def test_a_topic_is_held_for_as_long_as_there_are_subscriptions_on_it() -> None:
    async with open_raw() as (filters, raw):
        other = "/waku/2/rs/42/1"
        leave = filters.relay.subscribe_callback(other, lambda _: None)
        assert (await raw.ask(SUBSCRIBE, CONTENT_TOPIC, pubsub_topic=other)).is_success
        leave()
        assert other in filters.relay.topics
        await raw.ask(UNSUBSCRIBE, CONTENT_TOPIC, pubsub_topic=other)
        assert other not in filters.relay.topics


# Limits


async def test_a_request_names_at_most_100_content_topics() -> None:
    async with open_raw() as (filters, raw):
        topics = [f"/test/1/{number}/proto" for number in range(101)]
        answer = await raw.ask(SUBSCRIBE, *topics, pubsub_topic=TOPIC, request_id="too many")
        assert (answer.status_code, answer.request_id) == (400, "too many")
        assert filters.service.criteria == 0
        assert (await raw.ask(SUBSCRIBE, *topics[:100], pubsub_topic=TOPIC)).is_success


async def test_a_peer_has_at_most_1000_criteria() -> None:
    async with open_raw() as (filters, raw):
        for start in range(0, 1000, 100):
            await raw.subscribe(*(f"/test/1/{number}/proto" for number in range(start, start + 100)))
        answer = await raw.ask(SUBSCRIBE, "/test/1/0/proto", "/test/1/1000/proto", pubsub_topic=TOPIC)
        assert answer.status_code == 503
        assert answer.status_desc == "peer has reached maximum number of filter criteria: 1000"
        assert filters.service.criteria == 1000
        assert (await raw.ask(SUBSCRIBE, "/test/1/0/proto", pubsub_topic=TOPIC)).is_success  # a refresh


async def test_the_content_topics_of_a_peer_have_a_bounded_size() -> None:
    """A thousand of them may be as long as a request each."""
    async with open_raw(options=FilterServiceOptions(max_criteria_bytes=50_000)) as (filters, raw):
        for number in range(2):
            await raw.subscribe(f"/test/1/{number}{'x' * 20_000}/proto")
        answer = await raw.ask(SUBSCRIBE, f"/test/1/2{'x' * 20_000}/proto", pubsub_topic=TOPIC)
        assert answer.status_code == 503
        assert answer.status_desc == "peer has reached maximum size of filter criteria: 50000 bytes"
        assert filters.service.criteria == 2
        await raw.ask(UNSUBSCRIBE, f"/test/1/0{'x' * 20_000}/proto", pubsub_topic=TOPIC)
        await raw.subscribe(f"/test/1/2{'x' * 20_000}/proto")


async def test_a_node_has_at_most_so_many_subscribers() -> None:
    assert FilterServiceOptions().max_peers == 1000
    async with open_filter_world(3, options=FilterServiceOptions(max_peers=2)) as filters:
        answers = [
            await light.client.subscribe(filters.peer, TOPIC, [CONTENT_TOPIC]) for light in filters.lights
        ]
        assert [answer.status for answer in answers] == [200, 200, 503]
        assert answers[2].description == "node has reached maximum number of subscriptions: 2"
        assert not filters.lights[2].client.peers


async def test_a_peer_makes_at_most_30_requests_a_minute() -> None:
    async with open_raw() as (filters, raw), open_raw_subscriber(filters, "other") as other:
        await raw.subscribe()
        codes = [(await raw.ask(PING, request_id=str(number))).status_code for number in range(31)]
        assert codes[:28] == [200] * 28
        assert codes[-1] == 429
        answer = await raw.ask(PING, request_id="much")
        assert (answer.status_code, answer.request_id) == (429, "much")
        await other.subscribe()
        await trio.sleep(60)
        assert (await raw.ask(PING)).is_success


async def test_all_peers_together_keep_to_a_rate() -> None:
    requests = ServiceLimits(per_peer=None, total=RateLimit(5, 60.0))
    async with open_raw(FilterServiceOptions(requests=requests)) as (filters, raw):
        async with open_raw_subscriber(filters, "other") as other:
            codes = [(await peer.ask(PING)).status_code for peer in (raw, other) * 3]
        assert codes == [404] * 5 + [429]


# Malformed requests


async def test_a_request_of_no_known_type_is_answered_with_its_id() -> None:
    async with open_raw() as (_, raw):
        data = encode_subscribe_request(FilterSubscribeRequest("strange", SUBSCRIBE, TOPIC, (CONTENT_TOPIC,)))
        strange = data.replace(b"\x10\x01", b"\x10\x63")
        answer = await raw.ask_bytes(strange)
        assert (answer.status_code, answer.request_id) == (400, "strange")


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x0a\xff", b"\x0a\x02\xff\xfe", b"\x08\x01\xff"])
async def test_what_is_no_request_is_answered_as_a_bad_one(data: bytes) -> None:
    async with open_raw() as (_, raw):
        answer = await raw.ask_bytes(data)
        assert (answer.status_code, answer.request_id) == (400, "N/A")


async def test_a_request_that_is_too_large_is_not_read() -> None:
    limits = FilterServiceOptions().requests
    async with open_raw() as (_, raw):
        with pytest.raises(NetworkError):
            await raw.ask_bytes(bytes(limits.max_request + 1))
        await raw.subscribe()


async def test_answers_are_counted_by_code() -> None:
    options = FilterServiceOptions(requests=replace(FilterServiceOptions().requests, per_peer=None))
    async with open_raw(options) as (filters, raw):
        await raw.ask(PING)
        await raw.subscribe()
        await raw.ask(SUBSCRIBE)
        assert filters.service.counters.answers == {404: 1, 200: 1, 400: 1}
        assert filters.service.requests.counters.answered == 3
