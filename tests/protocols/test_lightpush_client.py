"""What a light push client sends, to whom, and what it makes of answers and of silence."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from pywaku.errors import (
    InvalidTopic,
    NetworkError,
    NotConnected,
    ProtocolNotSupported,
    RequestTimeout,
    StreamReset,
)
from pywaku.message import WakuMessage
from pywaku.network.frames import FrameReader, write_frame
from pywaku.network.port import Stream
from pywaku.network.simulated import SimulatedNetwork, SimulatedWorld
from pywaku.protocols.lightpush import LEGACY_PROTOCOL, PROTOCOL, AutoSharding, LightpushClient, PushResult
from pywaku.wire import lightpush, lightpush_legacy
from pywaku.wire.lightpush import LightPushRequest, LightPushResponse
from pywaku.wire.lightpush_legacy import PushRequest, PushResponse
from tests.support.relays import TOPIC, message

pytestmark = pytest.mark.virtual


class Stub:
    """A service node that answers what it is told to."""

    def __init__(self, world: SimulatedWorld, network: SimulatedNetwork, light: SimulatedNetwork) -> None:
        self.world = world
        self.network = network
        self.light = light
        self.client = LightpushClient(light)
        self.requests: list[LightPushRequest] = []
        self.legacy_requests: list[PushRequest] = []
        self.answer = LightPushResponse("", 200, None, 3)
        self.legacy_answer = PushResponse("", True, "OK")
        self.raw: bytes | None = None
        """Answer this instead."""
        self.foreign = False
        """Answer with an id that is not the request's."""
        self.behaviour = "answer"

    async def push(self, pushed: WakuMessage | None = None, topic: str | None = TOPIC) -> PushResult:
        """The light node pushes."""
        return await self.client.push(self.network.peer_id, topic, pushed or message(1), timeout=5)

    async def settle(self) -> None:
        """Let the light node hear what is spoken."""
        await trio.sleep(1)

    async def serve(self, stream: Stream) -> None:
        """Version 3."""
        data = await self._read(stream)
        if data is not None:
            found = lightpush.decode_request(data)
            self.requests.append(found)
            answer = self.answer
            request_id = "another" if self.foreign else found.request_id
            await self._write(
                stream,
                lightpush.encode_response(
                    LightPushResponse(
                        request_id, answer.status_code, answer.status_desc, answer.relay_peer_count
                    )
                ),
            )

    async def serve_legacy(self, stream: Stream) -> None:
        """Legacy."""
        data = await self._read(stream)
        if data is not None:
            found = lightpush_legacy.decode_request(data)
            self.legacy_requests.append(found)
            answer = self.legacy_answer
            request_id = "another" if self.foreign else found.request_id
            await self._write(
                stream,
                lightpush_legacy.encode_response(PushResponse(request_id, answer.is_success, answer.info)),
            )

    async def _read(self, stream: Stream) -> bytes | None:
        data = await FrameReader(stream, 1_000_000).read()
        if self.behaviour == "reset":
            stream.reset()
        elif self.behaviour == "hang":
            await trio.sleep_forever()
        elif self.behaviour == "lose":
            self.world.cut(self.network, self.light)
        elif self.behaviour == "after-the-end":
            with trio.fail_after(2):
                assert await stream.receive() == b""
            return data
        elif self.behaviour == "answer":
            return data
        return None

    async def _write(self, stream: Stream, data: bytes) -> None:
        await write_frame(stream, data if self.raw is None else self.raw)


@asynccontextmanager
async def open_stub(*protocols: str) -> AsyncGenerator[Stub, None]:
    """A light node that has just connected to a stub that speaks these."""
    async with SimulatedWorld(1) as world, world.host("stub") as network, world.host("light") as light:
        stub = Stub(world, network, light)
        if PROTOCOL in protocols:
            network.serve(PROTOCOL, stub.serve)
        if LEGACY_PROTOCOL in protocols:
            network.serve(LEGACY_PROTOCOL, stub.serve_legacy)
        await light.connect(network.addresses)
        yield stub


# Versions


@pytest.mark.parametrize("identified", [True, False])
async def test_the_most_recent_version_is_used_where_it_is_spoken(identified: bool) -> None:
    async with open_stub(LEGACY_PROTOCOL, PROTOCOL) as stub:
        if identified:
            await stub.settle()
        assert (await stub.push()).is_success
        assert (len(stub.requests), len(stub.legacy_requests)) == (1, 0)


@pytest.mark.parametrize("identified", [True, False])
async def test_the_legacy_version_is_used_where_there_is_no_other(identified: bool) -> None:
    async with open_stub(LEGACY_PROTOCOL) as stub:
        if identified:
            await stub.settle()
        assert (await stub.push()).is_success
        assert [found.pubsub_topic for found in stub.legacy_requests] == [TOPIC]
        assert stub.client.counters.legacy == 1


@pytest.mark.parametrize("identified", [True, False])
async def test_a_peer_that_speaks_neither_is_not_supported(identified: bool) -> None:
    async with open_stub() as stub:
        if identified:
            await stub.settle()
        with pytest.raises(ProtocolNotSupported):
            await stub.push()


async def test_a_legacy_node_is_told_the_pubsub_topic() -> None:
    async with open_stub(LEGACY_PROTOCOL) as stub:
        await stub.settle()
        with pytest.raises(ProtocolNotSupported, match="needs a pubsub topic"):
            await stub.push(topic=None)
        stub.client = LightpushClient(stub.light, auto_sharding=AutoSharding(42, 1))
        assert (await stub.push(topic=None)).is_success
        assert stub.legacy_requests[0].pubsub_topic == TOPIC
        with pytest.raises(InvalidTopic):
            await stub.push(WakuMessage(b"x", "no content topic"), topic=None)


async def test_the_pubsub_topic_is_left_to_the_service_node_where_there_is_none() -> None:
    async with open_stub(PROTOCOL) as stub:
        await stub.push(topic=None)
        assert stub.requests[0].pubsub_topic is None


async def test_every_request_has_a_unique_request_id() -> None:
    async with open_stub(PROTOCOL) as stub:
        for _ in range(50):
            await stub.push()
        assert len({found.request_id for found in stub.requests}) == 50


@pytest.mark.parametrize("protocol", [PROTOCOL, LEGACY_PROTOCOL])
async def test_the_request_ends_before_the_answer_comes(protocol: str) -> None:
    """js-libp2p hangs up on peers that close their half of streams only after it is done with them."""
    async with open_stub(protocol) as stub:
        stub.behaviour = "after-the-end"
        assert (await stub.push()).is_success


# Answers


async def test_success_tells_the_number_of_peers() -> None:
    async with open_stub(PROTOCOL) as stub:
        assert await stub.push() == PushResult(200, "", 3)


@pytest.mark.parametrize("code", [0, 199, 201, 400, 413, 420, 421, 429, 500, 503, 504, 505, 999])
async def test_every_other_code_is_a_failure_that_is_told(code: int) -> None:
    async with open_stub(PROTOCOL) as stub:
        stub.answer = LightPushResponse("", code, "why")
        result = await stub.push()
        assert (result.is_success, result.status, result.description) == (False, code, "why")
        assert stub.client.counters.refused == 1


@pytest.mark.parametrize(
    ("info", "status"),
    [
        ("not_published_to_any_peer", 503),
        ("TOO_MANY_REQUESTS", 429),
        ("decode_rpc_failure", None),
        ("", None),
    ],
)
async def test_a_legacy_failure_has_a_code_where_its_words_are_known(info: str, status: int | None) -> None:
    async with open_stub(LEGACY_PROTOCOL) as stub:
        stub.legacy_answer = PushResponse("", False, info)
        result = await stub.push()
        assert (result.is_success, result.status, result.description) == (False, status, info)


async def test_an_error_is_believed_with_whatever_id() -> None:
    async with open_stub(PROTOCOL) as stub:
        stub.foreign = True
        stub.answer = LightPushResponse("", 429)
        assert (await stub.push()).status == 429


# Silence, and worse


@pytest.mark.parametrize("protocol", [PROTOCOL, LEGACY_PROTOCOL])
async def test_failures_without_an_answer_can_be_told_apart(protocol: str) -> None:
    async with open_stub(protocol) as stub:
        await stub.settle()
        stub.behaviour = "hang"
        with pytest.raises(RequestTimeout):
            await stub.push()
        stub.behaviour = "reset"
        with pytest.raises(StreamReset):
            await stub.push()
        stub.behaviour = "end"
        with pytest.raises(NetworkError, match="without an answer"):
            await stub.push()
        stub.behaviour = "answer"
        for raw in (b"\xff\xff", bytes(20_000)):
            stub.raw = raw
            with pytest.raises(NetworkError, match="no proper answer"):
                await stub.push()
        stub.raw, stub.foreign = None, True
        with pytest.raises(NetworkError, match="another"):
            await stub.push()
        stub.behaviour = "lose"
        with pytest.raises(StreamReset):
            await stub.push()
        with pytest.raises(NotConnected):
            await stub.push()
        assert stub.client.counters.failed == 8
        assert stub.client.counters.refused == 0


async def test_a_message_that_no_node_would_read_is_not_sent() -> None:
    async with open_stub(PROTOCOL) as stub:
        result = await stub.push(message("x" * 300_000))
        assert result.status == 413
        assert not stub.requests
