"""Reliable channels on whole nodes, on virtual time, with all that their applications were told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import trio

import pywaku
from pywaku.channels import ChannelEvent, ReliableChannel
from pywaku.channels.events import EVENT_NAMES, MessageReceived
from pywaku.errors import InvalidInput
from pywaku.messaging import Node
from tests.support.waku_nodes import SHARD, WakuWorld, open_waku_world, until

ROOM = "/test/1/room/proto"

T = TypeVar("T")


class Told:
    """A channel, and its events so far."""

    def __init__(self, channel: ReliableChannel) -> None:
        self.channel = channel
        self.events: list[ChannelEvent] = []
        self.at: list[float] = []
        for name in sorted(EVENT_NAMES):
            channel.add_event_listener(name, self._hear)  # pyright: ignore[reportArgumentType]

    def _hear(self, event: ChannelEvent) -> None:
        self.events.append(event)
        self.at.append(trio.current_time())

    @property
    def names(self) -> list[str]:
        """The names of the events."""
        return [event.name for event in self.events]

    @property
    def received(self) -> list[bytes]:
        """The payloads that came."""
        return [event.payload for event in self.events if isinstance(event, MessageReceived)]

    def of(self, kind: type[T]) -> list[T]:
        """The events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def about(self, message_id: str) -> list[ChannelEvent]:
        """The events of a message that was sent."""
        return [
            event
            for event in self.events
            if message_id in (getattr(event, "message_id", None), getattr(event, "request_id", None))
        ]


async def join(node: Node, sender_id: str, **more: Any) -> Told:
    """The side of a participant; channels of a node are in memory unless it was said otherwise."""
    with suppress(InvalidInput):  # opened already
        await pywaku.open_channels(node, path=None)
    more = {"channel_id": "room", "content_topic": ROOM, "pubsub_topic": SHARD, **more}
    return Told(await pywaku.create_reliable_channel(node, sender_id=sender_id, **more))


@asynccontextmanager
async def open_pair(**more: Any) -> AsyncGenerator[tuple[Told, Told, WakuWorld]]:
    """Alice and Bob, on relay nodes of their own that are connected."""
    async with open_waku_world() as world, world.node("a") as a, world.node("b", a) as b:
        alice, bob = await join(a, "alice", **more), await join(b, "bob", **more)
        await reachable(alice, bob)
        yield alice, bob, world


async def reachable(*members: Told) -> None:
    """Wait until they can send."""
    await until(lambda: all(member.channel.healthy for member in members))


async def finished(members: Sequence[Told], *, seconds: float = 120) -> None:
    """Wait until all that they have sent has its final event."""
    await until(lambda: not any(member.channel.unacknowledged for member in members), seconds=seconds)
