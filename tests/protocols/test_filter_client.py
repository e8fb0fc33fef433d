"""What a filter client asks, and what it takes (12/WAKU2-FILTER; REQ-RES-RELIABILITY, Filter)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
import trio

from pywaku.errors import (
    InvalidInput,
    NetworkError,
    NodeClosed,
    NotConnected,
    ProtocolNotSupported,
    RequestTimeout,
)
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.network.frames import FrameReader, write_frame
from pywaku.network.port import Stream
from pywaku.network.simulated import SimulatedNetwork, SimulatedWorld
from pywaku.protocols.filter import (
    PUSH_PROTOCOL,
    SUBSCRIBE_PROTOCOL,
    Criterion,
    FilterClientOptions,
    ReceivedMessage,
)
from pywaku.protocols.filter.interests import Interests
from pywaku.wire.filter import (
    FilterSubscribeRequest,
    FilterSubscribeResponse,
    FilterSubscribeType,
    MessagePush,
    decode_subscribe_request,
    encode_push,
    encode_subscribe_response,
)
from pywaku.wire.framing import frame
from tests.support.light import Light, open_filter_world, open_light
from tests.support.relays import CONTENT_TOPIC, TOPIC, message

OTHER = "/test/1/other/proto"
OTHER_SHARD = "/waku/2/rs/42/1"


class Stub:
    """A service node that answers what it is told to."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.requests: list[FilterSubscribeRequest] = []
        self.code = 200
        self.raw: bytes | None = None
        """Answer this instead."""
        self.foreign = False
        """Answer with an id that is not the request's."""
        self.silent = False
        self.early: list[bytes] = []
        """Push this before a request is answered."""
        network.serve(SUBSCRIBE_PROTOCOL, self._serve)

    async def _serve(self, stream: Stream) -> None:
        data = await FrameReader(stream, 100_000).read()
        assert data is not None
        asked = decode_subscribe_request(data)
        self.requests.append(asked)
        for early in self.early:
            await self.push_raw(frame(early), stream)
            await trio.sleep(1)
        if self.silent:
            await trio.sleep_forever()
        request_id = "another" if self.foreign else asked.request_id
        answer = encode_subscribe_response(FilterSubscribeResponse(request_id, self.code, "as told"))
        await write_frame(stream, answer if self.raw is None else self.raw)

    async def push_raw(self, data: bytes, towards: Stream) -> Stream:
        """Open a push stream and write whatever bytes."""
        stream = await self.network.open_stream(towards.peer, PUSH_PROTOCOL)
        await stream.send(data)
        return stream


class ClientWorld(NamedTuple):
    """A light node and a stub of a service node."""

    world: SimulatedWorld
    light: Light
    stub: Stub

    async def subscribe(self, *content_topics: str, pubsub_topic: str = TOPIC) -> None:
        """The light node subscribes."""
        topics = content_topics or (CONTENT_TOPIC,)
        await self.light.client.subscribe(self.stub.network.peer_id, pubsub_topic, topics)

    async def push(self, *pushes: MessagePush | bytes) -> None:
        """The stub pushes."""
        data = b"".join(frame(p if isinstance(p, bytes) else encode_push(p)) for p in pushes)
        async with await self.stub.network.open_stream(self.light.network.peer_id, PUSH_PROTOCOL) as stream:
            await stream.send(data)
        await trio.sleep(0.5)


@asynccontextmanager
async def open_client(options: FilterClientOptions | None = None) -> AsyncGenerator[ClientWorld, None]:
    async with (
        SimulatedWorld(1) as world,
        world.host("stub") as network,
        open_light(world, "light", network, options=options) as light,
    ):
        stub = Stub(network)
        await trio.sleep(1)
        yield ClientWorld(world, light, stub)


# Requests


@pytest.mark.virtual
async def test_every_request_has_a_unique_request_id_and_a_type() -> None:
    async with open_client() as world:
        client, peer = world.light.client, world.stub.network.peer_id
        for _ in range(5):
            await client.subscribe(peer, TOPIC, [CONTENT_TOPIC])
            await client.ping(peer)
            await client.unsubscribe(peer, TOPIC, [CONTENT_TOPIC])
            await client.unsubscribe_all(peer)
        assert len({request.request_id for request in world.stub.requests}) == 20
        assert [request.filter_subscribe_type.value for request in world.stub.requests] == [1, 0, 2, 3] * 5


@pytest.mark.virtual
async def test_ping_and_unsubscribe_all_exclude_filter_criteria() -> None:
    async with open_client() as world:
        await world.light.client.ping(world.stub.network.peer_id)
        await world.light.client.unsubscribe_all(world.stub.network.peer_id)
        for request in world.stub.requests:
            assert (request.pubsub_topic, request.content_topics) == (None, ())


@pytest.mark.virtual
async def test_subscribe_and_unsubscribe_include_filter_criteria() -> None:
    async with open_client() as world:
        await world.subscribe(CONTENT_TOPIC, OTHER, OTHER)
        await world.light.client.unsubscribe(world.stub.network.peer_id, TOPIC, [OTHER])
        assert [request.content_topics for request in world.stub.requests] == [
            (CONTENT_TOPIC, OTHER),
            (OTHER,),
        ]
        assert {request.pubsub_topic for request in world.stub.requests} == {TOPIC}


@pytest.mark.virtual
@pytest.mark.parametrize("code", [0, 100, 199, 300, 400, 404, 429, 503, 999])
async def test_status_codes_outside_2xx_are_failures(code: int) -> None:
    async with open_client() as world:
        world.stub.code = code
        peer = world.stub.network.peer_id
        result = await world.light.client.subscribe(peer, TOPIC, [CONTENT_TOPIC])
        assert (result.is_success, result.status, result.description) == (False, code, "as told")
        assert world.light.client.peers == frozenset()
        assert world.light.client.counters.refused == 1


@pytest.mark.virtual
async def test_more_than_100_content_topics_go_in_several_requests() -> None:
    async with open_filter_world(1) as filters:
        topics = [f"/test/1/{number}/proto" for number in range(250)]
        client = filters.lights[0].client
        assert (await client.subscribe(filters.peer, TOPIC, topics)).is_success
        assert filters.service.criteria == len(client.criteria_at(filters.peer)) == 250
        assert filters.service.requests.counters.answered == 3
        assert (await client.unsubscribe(filters.peer, TOPIC, topics[:249])).is_success
        assert client.criteria_at(filters.peer) == (Criterion(TOPIC, topics[249]),)
        assert filters.service.criteria == 1


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("pubsub_topic", "topics"), [("", ["/a"]), (TOPIC, []), (TOPIC, [""]), (TOPIC, "/a")]
)
async def test_criteria_that_are_none_are_refused_at_once(pubsub_topic: str, topics: list[str]) -> None:
    async with open_client() as world:
        with pytest.raises(InvalidInput):
            await world.light.client.subscribe(world.stub.network.peer_id, pubsub_topic, topics)
        assert not world.stub.requests


@pytest.mark.virtual
async def test_network_failures_can_be_told_apart() -> None:
    async with open_client() as world, world.world.host("plain") as plain:
        client, stub = world.light.client, world.stub
        peer = stub.network.peer_id
        with pytest.raises(NotConnected):
            await client.ping(plain.peer_id)
        await world.light.network.connect(plain.addresses)
        with pytest.raises(ProtocolNotSupported):
            await client.ping(plain.peer_id)
        stub.silent = True
        with pytest.raises(RequestTimeout):
            await client.ping(peer, timeout=3)
        stub.silent = False
        stub.raw = b"\xff\xff"
        with pytest.raises(NetworkError, match="no proper answer"):
            await client.ping(peer)
        stub.raw = bytes(20_000)
        with pytest.raises(NetworkError, match="no proper answer"):
            await client.ping(peer)
        stub.raw, stub.foreign = None, True
        with pytest.raises(NetworkError, match="another"):
            await client.ping(peer)
        assert client.counters.failed == 6


@pytest.mark.virtual
async def test_a_subscribe_that_fails_leaves_nothing_but_what_was_there() -> None:
    async with open_client() as world:
        await world.subscribe(OTHER)
        world.stub.silent = True
        with pytest.raises(RequestTimeout):
            await world.subscribe(CONTENT_TOPIC, OTHER)
        assert world.light.client.criteria_at(world.stub.network.peer_id) == (Criterion(TOPIC, OTHER),)


@pytest.mark.virtual
async def test_a_node_that_is_forgotten_while_it_answers_stays_forgotten() -> None:
    async with open_client() as world:
        peer = world.stub.network.peer_id
        client = world.light.client
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.subscribe, peer, TOPIC, [CONTENT_TOPIC])
            await trio.testing.wait_all_tasks_blocked()
            assert client.peers == {peer}
            client.forget(peer)
        assert client.peers == frozenset()
        assert client.counters.failed == 0
        await client.subscribe(peer, TOPIC, [CONTENT_TOPIC])
        assert client.peers == {peer}


# Pushes


@pytest.mark.virtual
async def test_a_push_that_overtakes_the_answer_is_taken() -> None:
    async with open_client() as world:
        world.stub.early = [encode_push(MessagePush(message("early"), TOPIC))]
        await world.subscribe()
        assert world.light.payloads == [b"early"]


@pytest.mark.virtual
async def test_a_push_from_a_peer_without_a_subscription_is_dropped() -> None:
    async with open_client() as world:
        await world.push(MessagePush(message(1), TOPIC))
        assert world.light.payloads == []
        assert world.light.client.counters.strangers == 1
        assert world.light.client.counters.received == 0


@pytest.mark.virtual
@pytest.mark.parametrize(
    "push",
    [
        MessagePush(WakuMessage(b"x", OTHER), TOPIC),
        MessagePush(WakuMessage(b"x", CONTENT_TOPIC), OTHER_SHARD),
        MessagePush(WakuMessage(b"x", OTHER)),
    ],
)
async def test_a_push_that_matches_no_criteria_at_its_peer_is_dropped(push: MessagePush) -> None:
    async with open_client() as world:
        await world.subscribe()
        await world.push(push, MessagePush(message("good"), TOPIC))
        assert world.light.payloads == [b"good"]
        assert world.light.client.counters.unwanted == 1


@pytest.mark.virtual
async def test_what_one_node_may_push_another_may_not() -> None:
    async with open_client() as world, world.world.host("other") as network:
        await world.light.network.connect(network.addresses)
        other = Stub(network)
        await world.subscribe(CONTENT_TOPIC)
        await world.light.client.subscribe(network.peer_id, TOPIC, [OTHER])
        async with await other.network.open_stream(world.light.network.peer_id, PUSH_PROTOCOL) as stream:
            await stream.send(frame(encode_push(MessagePush(message("forged"), TOPIC))))
        await trio.sleep(1)
        assert world.light.payloads == []
        await world.push(MessagePush(message("forged"), TOPIC))  # nor does it count as a duplicate
        assert world.light.payloads == [b"forged"]


@pytest.mark.virtual
async def test_a_push_without_a_pubsub_topic_is_taken_where_it_can_be_only_one() -> None:
    async with open_client() as world:
        await world.subscribe()
        await world.push(MessagePush(message("clear")))
        await world.subscribe(pubsub_topic=OTHER_SHARD)
        await world.push(MessagePush(message("ambiguous")))
        assert world.light.payloads == [b"clear"]
        assert world.light.received[0].pubsub_topic == TOPIC


@pytest.mark.virtual
async def test_duplicates_are_dropped_by_deterministic_message_hash() -> None:
    async with open_filter_world(1) as filters:
        light = filters.lights[0]
        await filters.subscribe()
        filters.service.push(TOPIC, message("same"))
        filters.service.push(TOPIC, message("same"))
        filters.service.push(TOPIC, message("same", timestamp_ns=1))
        await trio.sleep(1)
        assert light.payloads == [b"same", b"same"]
        assert light.client.counters.duplicates == 1


@pytest.mark.virtual
async def test_a_message_that_two_service_nodes_push_is_delivered_once() -> None:
    async with open_client() as world, world.world.host("second") as network:
        second = Stub(network)
        await world.light.network.connect(network.addresses)
        await world.subscribe()
        await world.light.client.subscribe(network.peer_id, TOPIC, [CONTENT_TOPIC])
        await world.push(MessagePush(message("same"), TOPIC))
        async with await second.network.open_stream(world.light.network.peer_id, PUSH_PROTOCOL) as stream:
            await stream.send(frame(encode_push(MessagePush(message("same"), TOPIC))))
        await trio.sleep(1)
        assert world.light.payloads == [b"same"]


@pytest.mark.virtual
async def test_what_was_seen_is_forgotten_in_time_and_by_number() -> None:
    async with open_client(FilterClientOptions(seen_ttl_s=10, max_seen=5)) as world:
        await world.subscribe()
        await world.push(MessagePush(message(0), TOPIC))
        await trio.sleep(12)
        await world.push(MessagePush(message(0), TOPIC))
        assert len(world.light.received) == 2
        await world.push(*(MessagePush(message(number), TOPIC) for number in range(1, 7)))
        await world.push(MessagePush(message(0), TOPIC))
        assert len(world.light.received) == 9


@pytest.mark.virtual
async def test_after_unsubscribing_nothing_is_taken_whatever_the_node_does() -> None:
    async with open_client() as world:
        world.stub.code = 200
        client, peer = world.light.client, world.stub.network.peer_id
        await world.subscribe(CONTENT_TOPIC, OTHER)
        await client.unsubscribe(peer, TOPIC, [CONTENT_TOPIC])
        await world.push(MessagePush(message(1), TOPIC), MessagePush(WakuMessage(b"2", OTHER), TOPIC))
        assert world.light.payloads == [b"2"]
        await client.unsubscribe_all(peer)
        await world.push(MessagePush(WakuMessage(b"3", OTHER), TOPIC))
        assert world.light.payloads == [b"2"]
        await world.subscribe()
        client.forget(peer)
        await world.push(MessagePush(message(4), TOPIC))
        assert world.light.payloads == [b"2"]


@pytest.mark.virtual
async def test_a_push_that_cannot_be_decoded_costs_itself_only() -> None:
    async with open_client() as world:
        await world.subscribe()
        await world.push(b"\xff\xff", MessagePush(message(1), TOPIC), b"", MessagePush(message(2), TOPIC))
        assert world.light.payloads == [b"1", b"2"]
        assert world.light.client.counters.undecodable == 2


@pytest.mark.virtual
async def test_a_push_that_is_too_large_ends_its_stream() -> None:
    async with open_client(FilterClientOptions(max_push=1000)) as world:
        await world.subscribe()
        await world.push(MessagePush(message("x" * 2000), TOPIC))
        assert world.light.client.counters.undecodable == 1
        await world.push(MessagePush(message(1), TOPIC))
        assert world.light.payloads == [b"1"]


@pytest.mark.virtual
async def test_the_client_does_not_respond_to_pushes() -> None:
    async with open_client() as world:
        await world.subscribe()
        stream = await world.stub.network.open_stream(world.light.network.peer_id, PUSH_PROTOCOL)
        await stream.send(frame(encode_push(MessagePush(message(1), TOPIC))))
        with trio.move_on_after(5) as scope:
            await stream.receive()
        assert scope.cancelled_caught
        assert world.light.payloads == [b"1"]


# Delivery


@pytest.mark.virtual
async def test_messages_come_as_an_iterator_with_a_bound() -> None:
    async with open_client() as world:
        await world.subscribe()
        async with world.light.client.messages(TOPIC, capacity=10) as subscription:
            await world.push(*(MessagePush(message(number), TOPIC) for number in range(25)))
            assert (len(subscription), subscription.dropped) == (10, 15)
            assert world.light.client.counters.dropped_slow_subscription == 15
            assert len(world.light.received) == 25
            await subscription.unsubscribe()
            payloads = [received.message.payload async for received in subscription]
        assert payloads == [str(number).encode() for number in range(10)]


@pytest.mark.virtual
async def test_a_callback_that_raises_is_counted_and_harms_nobody() -> None:
    async with open_client() as world:
        await world.subscribe()

        def fail(_: ReceivedMessage) -> None:
            raise RuntimeError("no")

        end = world.light.client.subscribe_callback(TOPIC, fail)
        await world.push(MessagePush(message(1), TOPIC), MessagePush(message(2), TOPIC))
        end()
        await world.push(MessagePush(message(3), TOPIC))
        assert world.light.client.counters.callback_errors == 2
        assert world.light.payloads == [b"1", b"2", b"3"]


@pytest.mark.virtual
async def test_closing_the_client_ends_iterations_and_requests() -> None:
    async with open_client() as world:
        client = world.light.client
        await world.subscribe()
        subscription = client.messages(TOPIC)
        await world.push(MessagePush(message(1), TOPIC))
        client.close()
        assert [received.message.payload async for received in subscription] == [b"1"]
        with pytest.raises(NodeClosed):
            await client.ping(world.stub.network.peer_id)
        with pytest.raises(NodeClosed):
            client.messages(TOPIC)


@pytest.mark.virtual
async def test_pings_and_resubscription_survive_a_restart_of_the_service_node() -> None:
    async with open_filter_world(1) as filters:
        light = filters.lights[0]
        await filters.subscribe()
        await light.client.ping(filters.peer)
        filters.service._end(light.network.peer_id)  # it has forgotten
        result = await light.client.ping(filters.peer)
        assert (result.status, result.description) == (404, "peer has no subscriptions")
        for criterion in light.client.criteria_at(filters.peer):
            await light.client.subscribe(filters.peer, criterion.pubsub_topic, [criterion.content_topic])
        await filters.publish(message("again"))
        assert light.payloads == [b"again"]


def test_interests_forget_what_is_empty() -> None:
    interests, peer = Interests(), PeerId(b"peer")
    interests.add(peer, TOPIC, [CONTENT_TOPIC])
    interests.remove(peer, OTHER_SHARD, [CONTENT_TOPIC])
    assert peer in interests
    interests.remove(peer, TOPIC, [CONTENT_TOPIC, OTHER])
    assert peer not in interests


def test_kinds_are_numbered_as_the_specification_does() -> None:
    assert [kind.value for kind in FilterSubscribeType] == [0, 1, 2, 3]
