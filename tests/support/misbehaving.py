"""Service nodes, stores and relay peers that misbehave: real nodes with one part replaced."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable

import trio

from pywaku.gossip import Verdict
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.network.frames import FrameReader, request, write_frame
from pywaku.network.port import Stream
from pywaku.wire import filter as filter_wire
from pywaku.wire import lightpush
from pywaku.wire.framing import frame
from tests.support.archives import MemoryArchive
from tests.support.faults import Actor, Stage

# Light push

Misbehaviour = Callable[[Actor, Stream, lightpush.LightPushRequest], Awaitable[None]]
"""What a light push node does with a request instead of what it should."""


def misbehave(actors: Iterable[Actor], how: Misbehaviour, *, times: int | None = None) -> list[int]:
    """Have light push nodes misbehave, each for as many requests; the list counts the requests of all."""
    asked = [0]
    for actor in actors:
        _misbehave(actor, how, times, asked)
    return asked


def _misbehave(actor: Actor, how: Misbehaviour, times: int | None, asked: list[int]) -> None:
    count = 0

    async def handle(stream: Stream) -> None:
        nonlocal count
        count += 1
        asked[0] += 1
        data = await FrameReader(stream, 1 << 20).read()
        assert data is not None
        wanted = lightpush.decode_request(data)
        if times is not None and count > times:
            await relay_for(actor, stream, wanted)
        else:
            await how(actor, stream, wanted)

    actor.host.unserve(lightpush.PROTOCOL)
    actor.host.serve(lightpush.PROTOCOL, handle)


async def relay_for(actor: Actor, stream: Stream, wanted: lightpush.LightPushRequest) -> None:
    """What a light push node should do."""
    await relay(actor, wanted)
    await answer(stream, wanted)


async def relay(actor: Actor, wanted: lightpush.LightPushRequest) -> None:
    """Half of it."""
    assert wanted.pubsub_topic is not None
    await actor.node.relay.publish(wanted.pubsub_topic, wanted.message)


async def answer(stream: Stream, wanted: lightpush.LightPushRequest, code: int = 200) -> None:
    """The other half."""
    response = lightpush.LightPushResponse(wanted.request_id, code, f"it is {code}", 2)
    await write_frame(stream, lightpush.encode_response(response))


async def die_before_the_answer(actor: Actor, stream: Stream, wanted: lightpush.LightPushRequest) -> None:
    """Crash with the request in hand."""
    actor.crash()


async def die_during_the_answer(actor: Actor, stream: Stream, wanted: lightpush.LightPushRequest) -> None:
    """Relay, and crash in the middle of the answer."""
    await relay(actor, wanted)
    response = lightpush.LightPushResponse(wanted.request_id, 200, "it was relayed", 2)
    whole = frame(lightpush.encode_response(response))
    await stream.send(whole[: len(whole) // 2])
    await trio.sleep(0.1)
    actor.crash()


async def die_after_the_answer(actor: Actor, stream: Stream, wanted: lightpush.LightPushRequest) -> None:
    """Answer, and crash before anything was relayed."""
    await answer(stream, wanted)
    await trio.sleep(0.1)
    actor.crash()


def answer_slowly(seconds: float) -> Misbehaviour:
    """Relay at once, answer late."""

    async def how(actor: Actor, stream: Stream, wanted: lightpush.LightPushRequest) -> None:
        await relay(actor, wanted)
        await trio.sleep(seconds)
        await answer(stream, wanted)

    return how


def answer_bytes(data: bytes) -> Misbehaviour:
    """Answer with these bytes, and relay nothing."""

    async def how(actor: Actor, stream: Stream, wanted: lightpush.LightPushRequest) -> None:
        await stream.send(data)
        await stream.close_write()

    return how


async def answer_another(actor: Actor, stream: Stream, wanted: lightpush.LightPushRequest) -> None:
    """Answer a request that nobody made."""
    response = lightpush.LightPushResponse("nobody's", 200, None, 2)
    await write_frame(stream, lightpush.encode_response(response))


def refuse(code: int) -> Misbehaviour:
    """Answer with a code, and relay nothing."""

    async def how(actor: Actor, stream: Stream, wanted: lightpush.LightPushRequest) -> None:
        await answer(stream, wanted, code)

    return how


async def lie(actor: Actor, stream: Stream, wanted: lightpush.LightPushRequest) -> None:
    """Say that it was relayed, and drop it."""
    await answer(stream, wanted)


async def reset(actor: Actor, stream: Stream, wanted: lightpush.LightPushRequest) -> None:
    """Reset the stream."""
    stream.reset()


def garbage(seed: int) -> bytes:
    """Bytes that mean nothing."""
    return random.Random(seed).randbytes(64)


# Relay


def on_relayed(
    stage: Stage, actors: Iterable[Actor], verdict: Verdict, then: Callable[[Actor], Awaitable[None]]
) -> None:
    """Have relay peers give their verdict on the next message of the sender's, and do something after it."""
    for actor in actors:
        _on_relayed(stage, actor, verdict, then)


def _on_relayed(
    stage: Stage, actor: Actor, verdict: Verdict, then: Callable[[Actor], Awaitable[None]]
) -> None:
    done = False

    def judge(topic: str, message: WakuMessage, peer: PeerId) -> Verdict:
        nonlocal done
        if not done:
            done = True
            stage.nursery.start_soon(then, actor)
        return verdict

    actor.node.relay.add_validator(judge)


def ignore_all(actors: Iterable[Actor]) -> list[Callable[[], None]]:
    """Have relay peers take messages and drop them; the calls returned end that."""
    return [actor.node.relay.add_validator(_ignore) for actor in actors]


def _ignore(topic: str, message: WakuMessage, peer: PeerId) -> Verdict:
    return Verdict.IGNORE


async def say_to(actor: Actor, to: Actor, protocol: str, data: bytes) -> None:
    """Open a stream to another node, say something on it, and leave it."""
    stream = await actor.host.open_stream(to.node.peer_id, protocol)
    await stream.send(data)
    await stream.close_write()


def lie_and_relay_later(seconds: float) -> Misbehaviour:
    """Answer at once, relay late."""

    async def how(actor: Actor, stream: Stream, wanted: lightpush.LightPushRequest) -> None:
        await answer(stream, wanted)
        await trio.sleep(seconds)
        await relay(actor, wanted)

    return how


# Stores


def empty_archive() -> MemoryArchive:
    """What a store has that keeps nothing."""
    return MemoryArchive()


# Filter


def answer_filter_requests(actor: Actor, data: bytes) -> None:
    """Have a filter node answer all requests with these bytes."""

    async def handle(stream: Stream) -> None:
        await stream.send(data)
        await stream.close_write()

    actor.host.unserve(filter_wire.SUBSCRIBE_PROTOCOL)
    actor.host.serve(filter_wire.SUBSCRIBE_PROTOCOL, handle)


async def forget(actor: Actor, subscriber: Actor) -> None:
    """Have a filter node forget what somebody has subscribed to."""
    ask = filter_wire.FilterSubscribeRequest("forget", filter_wire.FilterSubscribeType.UNSUBSCRIBE_ALL)
    answer = await request(
        subscriber.host,
        actor.node.peer_id,
        filter_wire.SUBSCRIBE_PROTOCOL,
        filter_wire.encode_subscribe_request(ask),
        max_response=1000,
    )
    assert filter_wire.decode_subscribe_response(answer).is_success
