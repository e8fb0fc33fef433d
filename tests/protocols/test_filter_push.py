"""How messages are pushed to subscribers (12/WAKU2-FILTER, Filter-Push), be they quick, slow or dead."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio

from pywaku.network.port import Direction
from pywaku.network.simulated import LinkProfile, SimulatedWorld
from pywaku.network.simulated.profile import Constant
from pywaku.network.simulated.stream import SimulatedStream
from pywaku.protocols.filter import PUSH_PROTOCOL, FilterServiceOptions, QueueLimits, open_filter_service
from pywaku.protocols.filter import service as service_module
from pywaku.protocols.relay import RelayOptions
from pywaku.wire.filter import FilterSubscribeType, MessagePush
from tests.support.light import open_filter_world, open_light, open_raw_subscriber
from tests.support.relays import CONTENT_TOPIC, TOPIC, message, open_node

pytestmark = pytest.mark.virtual

OPTIONS = FilterServiceOptions()


async def test_each_push_has_one_message_and_the_pubsub_topic_it_came_on() -> None:
    async with open_filter_world(0) as filters, open_raw_subscriber(filters) as raw:
        await raw.subscribe()
        await filters.publish(*(message(number) for number in range(10)))
        assert raw.payloads == [str(number).encode() for number in range(10)]
        assert {push.pubsub_topic for push in raw.pushes} == {TOPIC}


async def test_messages_of_other_sources_are_pushed_as_well() -> None:
    async with open_filter_world(2) as filters:
        await filters.subscribe()
        assert filters.service.push(TOPIC, message("from elsewhere")) == 2
        assert filters.service.push(TOPIC, message("other", meta=b"")) == 2
        await trio.sleep(1)
        assert [light.payloads for light in filters.lights] == [[b"from elsewhere", b"other"]] * 2


async def test_own_messages_are_pushed_unless_relay_does_not_deliver_them() -> None:
    for deliver_own in (True, False):
        async with open_filter_world(relay_options=RelayOptions(deliver_own=deliver_own)) as filters:
            await filters.subscribe()
            await filters.publish(message(1))
            assert len(filters.lights[0].received) == deliver_own


async def test_one_stream_carries_all_pushes_to_a_subscriber() -> None:
    async with open_filter_world(0) as filters, open_raw_subscriber(filters) as raw:
        await raw.subscribe()
        for number in range(300):
            await filters.relay.publish(TOPIC, message(number))
            await trio.sleep(0.5)
        assert len(raw.pushes) == 300
        assert len(raw.streams) == filters.service.counters.streams_opened == 1
        assert raw.streams[0].direction is Direction.INBOUND


async def test_the_stream_ends_with_the_subscription() -> None:
    async with open_filter_world(0) as filters, open_raw_subscriber(filters) as raw:
        for number in range(5):
            await raw.subscribe()
            await filters.publish(message(number))
            await raw.ask(FilterSubscribeType.UNSUBSCRIBE_ALL)
            await trio.sleep(1)
        assert len(raw.streams) == 5
        assert raw.network.streams_refused == 0
        assert filters.service.counters.dropped_gone == 0


async def test_messages_that_wait_together_leave_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    send = SimulatedStream.send

    async def counting(stream: SimulatedStream, data: bytes) -> None:
        if stream.protocol == PUSH_PROTOCOL:
            writes.append(len(data))
        await send(stream, data)

    monkeypatch.setattr(SimulatedStream, "send", counting)
    async with open_filter_world(0) as filters, open_raw_subscriber(filters) as raw:
        await raw.subscribe()
        for number in range(50):
            filters.service.push(TOPIC, message(number))
        await trio.sleep(1)
        assert len(raw.pushes) == 50
        assert len(writes) == 1


async def test_a_failed_stream_is_reopened_and_nothing_that_waited_is_lost() -> None:
    async with open_filter_world(0) as filters, open_raw_subscriber(filters) as raw:
        await raw.subscribe()
        await filters.publish(message("before"))
        raw.streams[0].reset()
        await trio.sleep(1)
        await filters.publish(message("after"))
        await trio.sleep(2)
        assert raw.payloads == [b"before", b"after"]
        assert len(raw.streams) == 2


async def test_a_stream_that_the_subscriber_closes_is_reopened_for_the_next_push() -> None:
    async with open_filter_world(0) as filters, open_raw_subscriber(filters) as raw:
        raw.pushes_per_stream = 1
        await raw.subscribe()
        for number in range(10):
            await filters.publish(message(number))
        assert raw.payloads == [str(number).encode() for number in range(10)]
        assert len(raw.streams) == 10
        assert filters.service.counters.streams_failed == 0


async def test_a_subscriber_whose_streams_always_fail_is_dropped_after_a_minute() -> None:
    async with open_filter_world(0) as filters, open_raw_subscriber(filters) as raw:
        raw.refuse = True
        await raw.subscribe()
        for number in range(59):
            await filters.publish(message(number))
        assert filters.service.peers == 1
        for number in range(60, 65):
            await filters.publish(message(number))
        assert filters.service.peers == 0
        counters = filters.service.counters
        assert (counters.unreachable, counters.expired) == (1, 0)
        assert 5 <= len(raw.streams) <= 10  # the pauses double
        assert (await raw.ask(FilterSubscribeType.SUBSCRIBER_PING)).status_code == 404


async def test_a_subscriber_that_does_not_speak_filter_push_is_dropped_after_a_minute() -> None:
    async with open_filter_world(0) as filters, open_raw_subscriber(filters) as raw:
        raw.network.unserve(PUSH_PROTOCOL)
        await raw.subscribe()
        for number in range(65):
            await filters.publish(message(number))
        assert filters.service.peers == 0
        assert filters.service.counters.unreachable == 1


async def test_a_disconnected_subscriber_gets_what_waited_when_it_is_back() -> None:
    async with open_filter_world(1) as filters:
        await filters.subscribe()
        light = filters.lights[0]
        await filters.publish(message("before"))
        filters.world.cut(filters.network, light.network)
        await filters.publish(message("while away"))
        assert light.payloads == [b"before"]
        await trio.sleep(50)
        await light.network.connect(filters.network.addresses)
        await trio.sleep(1)
        assert light.payloads == [b"before", b"while away"]


async def test_a_subscriber_that_is_away_is_kept_until_a_push_has_not_reached_it_for_a_minute() -> None:
    async with open_filter_world(1) as filters:
        await filters.subscribe()
        filters.world.cut(filters.network, filters.lights[0].network)
        await trio.sleep(200)
        assert filters.service.peers == 1  # nothing was to be pushed
        await filters.publish(message(1))
        await trio.sleep(58)
        assert filters.service.peers == 1
        await trio.sleep(3)
        assert filters.service.peers == 0
        assert filters.service.counters.unreachable == 1
        assert filters.service.counters.dropped_gone == 1


async def test_a_stalled_subscriber_is_dropped_and_can_subscribe_anew() -> None:
    async with open_filter_world(0) as filters, open_raw_subscriber(filters) as raw:
        raw.reading = False
        await raw.subscribe()
        for number in range(100):
            await filters.publish(message(f"{number}" + "x" * 100_000))
        assert filters.service.peers == 0
        raw.reading = True
        await raw.subscribe()
        await filters.publish(message("again"))
        assert raw.payloads[-1] == b"again"


async def test_a_slow_subscriber_loses_its_own_messages_and_they_are_counted() -> None:
    options = replace(OPTIONS, queue=QueueLimits(messages=100))
    async with open_filter_world(3, options=options) as filters:
        await filters.subscribe()
        filters.world.stall(filters.lights[0].network)
        for number in range(5000):
            await filters.relay.publish(TOPIC, message(f"{number:05}" + "x" * 1000))
            if number % 10 == 0:
                await trio.sleep(0.01)
        await trio.sleep(1)
        counters = filters.service.counters
        assert counters.dropped_slow > 1000
        assert filters.service.waiting(filters.lights[0].network.peer_id) <= 200
        for light in filters.lights[1:]:
            assert len(light.received) == 5000


@pytest.mark.parametrize("trouble", ["stalled", "dead", "cut off"])
async def test_a_subscriber_in_trouble_among_100_delays_nobody(trouble: str) -> None:
    async with open_filter_world(101, link=LinkProfile(Constant(0.02))) as filters:
        await filters.subscribe()
        delays: list[float] = []
        sent_at: dict[bytes, float] = {}

        def note(payload: bytes) -> None:
            delays.append(trio.current_time() - sent_at[payload])

        for light in filters.lights[1:]:
            light.client.subscribe_callback(TOPIC, lambda received: note(received.message.payload))
        victim = filters.lights[0].network
        for number in range(30):
            if number == 10:
                if trouble == "stalled":
                    filters.world.stall(victim)
                elif trouble == "dead":
                    filters.world.crash(victim, silent=True)
                else:
                    filters.world.cut(filters.network, victim)
            text = f"{number} {'x' * 20_000}"
            sent_at[text.encode()] = trio.current_time()
            await filters.relay.publish(TOPIC, message(text))
            await trio.sleep(1)
        assert len(delays) == 30 * 100
        assert max(delays) <= 0.1
        assert filters.service.counters.dropped_slow == 0


async def test_a_message_is_encoded_once_for_all_subscribers(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = 0
    encode = service_module.encode_push

    def counting(push: MessagePush) -> bytes:
        nonlocal encoded
        encoded += 1
        return encode(push)

    monkeypatch.setattr(service_module, "encode_push", counting)
    async with open_filter_world(10) as filters:
        await filters.subscribe()
        await filters.publish(message(1), message(2))
        assert encoded == 2
        assert all(len(light.received) == 2 for light in filters.lights)


async def test_leaving_the_service_leaves_nothing_behind() -> None:
    async with SimulatedWorld(1) as world, open_node(world, "service") as node:
        leave = node.relay.subscribe_callback(TOPIC, lambda _: None)
        async with (
            open_filter_service(node.network, node.relay) as service,
            open_light(world, "light", node.network) as light,
        ):
            await light.client.subscribe(node.network.peer_id, TOPIC, [CONTENT_TOPIC])
            assert service.push(TOPIC, message(1)) == 1
            await trio.sleep(1)
        assert service.push(TOPIC, message(2)) == 0  # another source may be late to hear of the end
        leave()
        assert not node.relay.topics
        async with open_filter_service(node.network, node.relay):
            pass  # the protocol is free again


async def test_a_light_node_that_comes_back_under_its_name_is_served_again() -> None:
    async with open_filter_world(0) as filters:
        for number in range(3):
            async with open_light(filters.world, "phone", filters.network) as light:
                assert (await light.client.subscribe(filters.peer, TOPIC, [CONTENT_TOPIC])).is_success
                await filters.publish(message(number))
                assert light.payloads == [str(number).encode()]
