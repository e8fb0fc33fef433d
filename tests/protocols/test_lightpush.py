"""What a light push service node does and answers (WAKU-LIGHTPUSH, 19/WAKU2-LIGHTPUSH)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

import pytest
import trio

from pywaku.errors import InvalidTopic, NetworkError
from pywaku.gossip import Verdict
from pywaku.message import WakuMessage
from pywaku.network.frames import request
from pywaku.network.simulated import SimulatedNetwork, SimulatedWorld
from pywaku.protocols.lightpush import (
    LEGACY_PROTOCOL,
    MAX_REQUEST,
    PROTOCOL,
    AutoSharding,
    LightpushService,
    LightpushServiceOptions,
    open_lightpush_service,
)
from pywaku.protocols.relay import MAX_MESSAGE_SIZE, ReceivedMessage, RelayOptions
from pywaku.protocols.service import RateLimit
from pywaku.topics import auto_shard_topic
from pywaku.wire import lightpush, lightpush_legacy
from pywaku.wire.lightpush import LightPushRequest, LightPushResponse
from pywaku.wire.lightpush_legacy import PushRequest, PushResponse
from tests.support.relays import CONTENT_TOPIC, NOW_NS, TOPIC, Node, message, open_node

pytestmark = pytest.mark.virtual

OTHER_SHARD = "/waku/2/rs/42/1"


class PushWorld(NamedTuple):
    """A light node, a service node, and what the relay nodes beyond that got."""

    world: SimulatedWorld
    light: SimulatedNetwork
    node: Node
    service: LightpushService
    others: list[Node]
    received: list[ReceivedMessage]

    @property
    def payloads(self) -> list[bytes]:
        """What the relay nodes got."""
        return [entry.message.payload for entry in self.received]

    async def ask_bytes(self, data: bytes, protocol: str = PROTOCOL) -> bytes:
        """Make a request of whatever bytes."""
        return await request(self.light, self.node.network.peer_id, protocol, data, max_response=10_000)

    async def ask(
        self, pushed: WakuMessage, pubsub_topic: str | None = TOPIC, request_id: str = "one"
    ) -> LightPushResponse:
        """Ask for a message to be relayed."""
        data = lightpush.encode_request(LightPushRequest(request_id, pushed, pubsub_topic))
        response = lightpush.decode_response(await self.ask_bytes(data))
        await trio.sleep(1)
        return response

    async def ask_legacy(
        self, pushed: WakuMessage, pubsub_topic: str = TOPIC, request_id: str = "one"
    ) -> PushResponse:
        """The same in the legacy protocol."""
        data = lightpush_legacy.encode_request(PushRequest(request_id, pubsub_topic, pushed))
        response = lightpush_legacy.decode_response(await self.ask_bytes(data, LEGACY_PROTOCOL))
        await trio.sleep(1)
        return response


@asynccontextmanager
async def open_push(
    others: int = 1,
    *,
    options: LightpushServiceOptions | None = None,
    relay_options: RelayOptions | None = None,
) -> AsyncGenerator[PushWorld, None]:
    """See `PushWorld`; `others` is how many relay nodes there are beyond the service node."""
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(SimulatedWorld(1))
        node = await stack.enter_async_context(open_node(world, "service", options=relay_options))
        node.relay.subscribe_callback(TOPIC, lambda _: None)
        received: list[ReceivedMessage] = []
        nodes: list[Node] = []
        for number in range(others):
            other = await stack.enter_async_context(open_node(world, f"relay-{number}"))
            other.relay.subscribe_callback(TOPIC, received.append)
            await other.network.connect(node.network.addresses)
            nodes.append(other)
        service = await stack.enter_async_context(
            open_lightpush_service(node.network, node.relay, options=options)
        )
        light = await stack.enter_async_context(world.host("light"))
        await light.connect(node.network.addresses)
        await trio.sleep(3)
        yield PushWorld(world, light, node, service, nodes, received)


# Relaying


async def test_the_message_is_relayed_on_the_specified_pubsub_topic() -> None:
    async with open_push() as push:
        pushed = message("hello", meta=b"m", timestamp_ns=5, ephemeral=True, version=1)
        response = await push.ask(pushed)
        assert (response.status_code, response.request_id) == (200, "one")
        assert [entry.message for entry in push.received] == [pushed]
        assert push.received[0].pubsub_topic == TOPIC


@pytest.mark.parametrize("others", [1, 3])
async def test_relay_peer_count_is_the_number_of_peers_relayed_to(others: int) -> None:
    async with open_push(others) as push:
        response = await push.ask(message(1))
        assert (response.status_code, response.relay_peer_count) == (200, others)
        assert len(push.received) == others


async def test_without_a_pubsub_topic_automatic_sharding_finds_it() -> None:
    cluster, shards = 42, 1
    options = LightpushServiceOptions(auto_sharding=AutoSharding(cluster, shards))
    async with open_push(options=options) as push:
        assert auto_shard_topic(CONTENT_TOPIC, cluster, shards) == TOPIC
        assert (await push.ask(message(1), None)).status_code == 200
        assert push.payloads == [b"1"]


async def test_an_impossible_network_is_refused_at_once() -> None:
    with pytest.raises(InvalidTopic):
        AutoSharding(1, 0)
    with pytest.raises(InvalidTopic):
        AutoSharding(70_000, 8)


# Status codes


async def test_bad_request_without_a_pubsub_topic_where_sharding_is_static() -> None:
    async with open_push() as push:
        response = await push.ask(message(1), None)
        assert response.status_code == 400
        assert response.status_desc == "Pubsub topic must be specified when static sharding is enabled"


async def test_bad_request_for_a_content_topic_that_has_no_shard() -> None:
    options = LightpushServiceOptions(auto_sharding=AutoSharding(42, 1))
    async with open_push(options=options) as push:
        response = await push.ask(WakuMessage(b"x", "no content topic"), None)
        assert response.status_code == 400
        assert response.status_desc
        assert response.status_desc.startswith("Invalid content-topic: ")


@pytest.mark.parametrize("topic", ["", "  "])
async def test_bad_request_for_an_empty_pubsub_topic(topic: str) -> None:
    async with open_push() as push:
        response = await push.ask(message(1), topic)
        assert (response.status_code, response.status_desc) == (400, "topic must not be empty")


async def test_bad_request_for_what_is_no_request_with_its_id_if_it_has_one() -> None:
    async with open_push() as push:
        for data, request_id in ((b"\xff\xff", "N/A"), (b"", "N/A"), (b"\x0a\x03abc", "abc")):
            response = lightpush.decode_response(await push.ask_bytes(data))
            assert (response.status_code, response.request_id) == (400, request_id)
            assert response.status_desc
            assert response.status_desc.startswith("decode_rpc_failure: ")


async def test_payload_too_large_for_a_message_that_relay_would_not_carry() -> None:
    async with open_push() as push:
        response = await push.ask(message("x" * MAX_MESSAGE_SIZE))
        assert response.status_code == 413
        assert response.status_desc
        assert "153600" in response.status_desc
        assert not push.received
        fits = message("x" * (MAX_MESSAGE_SIZE - 100))
        assert (await push.ask(fits)).status_code == 200


async def test_a_request_that_is_too_large_is_not_read() -> None:
    async with open_push() as push:
        with pytest.raises(NetworkError):
            await push.ask_bytes(bytes(MAX_REQUEST + 1))
        assert (await push.ask(message(1))).status_code == 200


async def test_invalid_message_for_one_that_breaks_a_rule_of_relay() -> None:
    async with open_push(relay_options=RelayOptions(validate_timestamps=True)) as push:
        response = await push.ask(message(1, timestamp_ns=NOW_NS - 60 * 10**9))
        assert response.status_code == 420
        assert response.status_desc
        assert "timestamp" in response.status_desc
        now = NOW_NS + round(trio.current_time() * 1e9)
        assert (await push.ask(message(1, timestamp_ns=now))).status_code == 200


@pytest.mark.parametrize("verdict", [Verdict.REJECT, Verdict.IGNORE])
async def test_invalid_message_for_one_that_a_validator_refuses(verdict: Verdict) -> None:
    async with open_push() as push:
        push.node.relay.add_validator(lambda _topic, _message, _peer: verdict)
        assert (await push.ask(message(1))).status_code == 420
        assert not push.received


async def test_unsupported_pubsub_topic_for_one_that_the_node_has_not_joined() -> None:
    async with open_push() as push:
        response = await push.ask(message(1), OTHER_SHARD)
        assert response.status_code == 421
        assert response.status_desc == f"node not subscribed to topic: {OTHER_SHARD}"


async def test_too_many_requests_for_a_peer_beyond_its_rate() -> None:
    requests = replace(LightpushServiceOptions().requests, per_peer=RateLimit(2, 10.0))
    async with open_push(options=LightpushServiceOptions(requests=requests)) as push:
        codes = [(await push.ask(message(n), request_id=str(n))).status_code for n in range(4)]
        assert codes == [200, 200, 429, 429]
        response = await push.ask(message("more"), request_id="limited")
        assert (response.status_code, response.request_id) == (429, "limited")
        assert response.status_desc == "Request rejected due to too many requests"
        await trio.sleep(10)
        assert (await push.ask(message("later"))).status_code == 200


async def test_too_many_requests_of_all_peers_together() -> None:
    requests = replace(LightpushServiceOptions().requests, total=RateLimit(3, 60.0))
    async with open_push(options=LightpushServiceOptions(requests=requests)) as push:
        assert [(await push.ask(message(n))).status_code for n in range(4)] == [200, 200, 200, 429]


async def test_too_many_requests_where_the_shard_carries_all_that_it_may() -> None:
    async with open_push(relay_options=RelayOptions(free_bandwidth_bps=800)) as push:
        codes = [(await push.ask(message(f"{n}{'x' * 500}"))).status_code for n in range(5)]
        assert codes[0] == 200
        assert codes[-1] == 429


async def test_internal_server_error_where_a_validator_fails() -> None:
    async with open_push() as push:

        def fail(_topic: str, _message: WakuMessage, _peer: object) -> Verdict:
            raise RuntimeError("broken")

        push.node.relay.add_validator(fail)
        response = await push.ask(message(1))
        assert response.status_code == 500
        assert response.status_desc == "a validator failed"


async def test_internal_server_error_where_relay_is_closed() -> None:
    async with open_push() as push:
        relay = push.node.relay
        relay.close()
        result = await push.service.push(TOPIC, message(1))
        assert result.status in (421, 500)


async def test_internal_server_error_for_what_nobody_foresaw(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_push() as push:

        async def fail(*_: object) -> None:
            raise RuntimeError("broken")

        monkeypatch.setattr(push.node.relay, "publish", fail)
        response = await push.ask(message(1), request_id="broken")
        assert (response.status_code, response.request_id) == (500, "broken")
        legacy = await push.ask_legacy(message(1))
        assert (legacy.is_success, legacy.request_id) == (False, "one")


async def test_no_peers_to_relay_where_there_are_none() -> None:
    async with open_push(0) as push:
        response = await push.ask(message(1))
        assert (response.status_code, response.relay_peer_count) == (503, 0)


async def test_what_had_no_peers_is_relayed_when_it_is_sent_again_and_there_are_some() -> None:
    async with open_push(0) as push, open_node(push.world, "late") as late:
        assert (await push.ask(message(1))).status_code == 503
        received: list[ReceivedMessage] = []
        late.relay.subscribe_callback(TOPIC, received.append)
        await late.network.connect(push.node.network.addresses)
        await trio.sleep(3)
        assert (await push.ask(message(1))).status_code == 200
        assert len(received) == 1


async def test_no_peers_to_relay_where_no_peer_takes_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_push() as push:
        peers = push.node.relay._peers
        monkeypatch.setattr(peers, "flush", lambda: 0)
        assert (await push.ask(message(1))).status_code == 503
        assert (await push.ask(message(1))).status_code == 503  # known here, and still nowhere else
        monkeypatch.undo()
        for _ in range(3):  # now a peer takes it; after that it is one that was relayed already
            assert (await push.ask(message(1))).status_code == 200
        assert len(push.received) == 1


# Sending again, and at several service nodes (REQ-RES-RELIABILITY)


async def test_a_message_that_is_sent_again_counts_as_relayed() -> None:
    async with open_push(2) as push:
        for _ in range(2):
            response = await push.ask(message("same"))
            assert (response.status_code, response.relay_peer_count) == (200, 2)
        assert len(push.received) == 2
        assert (push.service.counters.relayed, push.service.counters.known) == (1, 1)


async def test_a_message_that_came_by_relay_before_counts_as_relayed() -> None:
    async with open_push(2) as push:
        await push.others[0].relay.publish(TOPIC, message("same"))
        await trio.sleep(1)
        response = await push.ask(message("same"))
        assert response.status_code == 200
        assert response.relay_peer_count
        assert len(push.received) == 2


async def test_a_message_that_is_asked_for_once_more_a_while_later_is_relayed_once_more() -> None:
    """Whoever asks again has not found it in the network (REQ-RES-RELIABILITY, "Retry missing messages")."""
    async with open_push(1) as push, open_node(push.world, "late") as late:
        assert (await push.ask(message("same"))).status_code == 200
        await trio.sleep(30)  # it is gossiped about no more
        received: list[ReceivedMessage] = []
        late.relay.subscribe_callback(TOPIC, received.append)
        await late.network.connect(push.node.network.addresses)
        await trio.sleep(3)
        assert not received
        for _ in range(2):  # a second time at once is the redundancy of a light node
            response = await push.ask(message("same"))
            assert (response.status_code, push.service.counters.again) == (200, 1)
        await trio.sleep(1)
        assert (len(received), len(push.received)) == (1, 1)


# Legacy


async def test_the_legacy_protocol_relays_as_well() -> None:
    async with open_push() as push:
        response = await push.ask_legacy(message(1), request_id="old")
        assert response == PushResponse("old", True, "OK")
        assert push.payloads == [b"1"]


async def test_the_legacy_protocol_says_why_not() -> None:
    requests = replace(LightpushServiceOptions().requests, per_peer=RateLimit(3, 60.0))
    async with open_push(options=LightpushServiceOptions(requests=requests)) as push:
        elsewhere = await push.ask_legacy(message(1), OTHER_SHARD)
        assert elsewhere == PushResponse("one", False, "not_published_to_any_peer")
        large = await push.ask_legacy(message("x" * MAX_MESSAGE_SIZE))
        assert not large.is_success
        assert "153600" in large.info
        broken = lightpush_legacy.decode_response(await push.ask_bytes(b"\xff", LEGACY_PROTOCOL))
        assert (broken.is_success, broken.request_id) == (False, "N/A")
        assert broken.info.startswith("decode_rpc_failure: ")
        limited = await push.ask_legacy(message(1), request_id="limited")
        assert limited == PushResponse("limited", False, "TOO_MANY_REQUESTS")


async def test_the_legacy_protocol_says_that_there_are_no_peers() -> None:
    async with open_push(0) as push:
        response = await push.ask_legacy(message(1))
        assert response == PushResponse("one", False, "not_published_to_any_peer")


async def test_answers_are_counted_by_code() -> None:
    async with open_push() as push:
        await push.ask(message(1))
        await push.ask_legacy(message(2))
        await push.ask(message(1), OTHER_SHARD)
        assert push.service.counters.answers == {200: 2, 421: 1}
        assert push.service.requests.counters.requests == 2
        assert push.service.legacy_requests.counters.requests == 1


async def test_leaving_the_service_frees_its_protocols() -> None:
    async with SimulatedWorld(1) as world, open_node(world, "service") as node:
        for _ in range(2):
            async with open_lightpush_service(node.network, node.relay):
                await trio.sleep(1)
