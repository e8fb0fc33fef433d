"""What relay costs per message, each side by itself, in this process and without a network.

    python -m bench.relay_throughput [--size 200] [--count 50000] [--profile publish|receive]

The publishing side ends where bytes are given to a stream, the receiving side starts where they come from
one. `bench/relay_peer.py` has the same over real sockets and between processes.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import trio

from pywaku.errors import StreamReset
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.network.port import Direction, PeerInfo, PeerListener, StreamHandler
from pywaku.protocols.relay import PROTOCOL, RelayOptions, open_relay
from pywaku.wire.framing import frame
from pywaku.wire.message import encode_message
from pywaku.wire.multiaddr import Multiaddr
from pywaku.wire.relay import Rpc, Subscription, encode_publish, encode_rpc

TOPIC = "/waku/2/rs/42/0"
_CHUNK = 64 * 1024
_PEER = PeerId(b"\x12\x20" + bytes(32))
_SELF = PeerId(b"\x12\x20" + b"\x01" * 32)


class MemoryStream:
    """Gives chunks that are there already, counts what is sent."""

    def __init__(self, direction: Direction, chunks: Sequence[bytes] = ()) -> None:
        self.peer = _PEER
        self.protocol = PROTOCOL
        self.direction = direction
        self.sent = 0
        self.writes = 0
        self._chunks = iter(chunks)

    async def send(self, data: bytes) -> None:
        """Count."""
        self.sent += len(data)
        self.writes += 1
        await trio.lowlevel.checkpoint()

    async def receive(self) -> bytes:
        """The next chunk; waits for ever on the stream for sending."""
        if self.direction is Direction.OUTBOUND:
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return next(self._chunks, b"")

    async def close_write(self) -> None:
        """Nothing to do."""

    async def close(self) -> None:
        """Nothing to do."""

    def reset(self) -> None:
        """Would be a failure of the measurement."""
        if self.direction is Direction.INBOUND:
            raise StreamReset("relay refused the stream")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class MemoryNetwork:
    """One peer, connected for good."""

    def __init__(self) -> None:
        self.peer_id = _SELF
        self.addresses: tuple[Multiaddr, ...] = ()
        self.peers: Mapping[PeerId, PeerInfo] = {
            _PEER: PeerInfo(_PEER, Direction.OUTBOUND, None, frozenset({PROTOCOL}), identified=True)
        }
        self.outbound = MemoryStream(Direction.OUTBOUND)
        self._handlers: dict[str, StreamHandler] = {}

    def serve(self, protocol: str, handler: StreamHandler, *, max_streams_per_peer: int = 32) -> None:
        """Remember the handler."""
        self._handlers[protocol] = handler

    def unserve(self, protocol: str) -> None:
        """Forget the handler."""
        self._handlers.pop(protocol, None)

    def watch(self, listener: PeerListener) -> Callable[[], None]:
        """Nothing ever happens."""
        return lambda: None

    async def connect(self, addresses: Sequence[Multiaddr] | Multiaddr, *, timeout: float = 10.0) -> PeerId:
        """There is only the one peer."""
        return _PEER

    async def open_stream(
        self, peer: PeerId, protocols: Sequence[str] | str, *, timeout: float = 10.0
    ) -> MemoryStream:
        """The stream to the peer."""
        return self.outbound

    async def disconnect(self, peer: PeerId, *, reason: str = "closed by us") -> None:
        """Never."""

    async def arrive(self, chunks: Sequence[bytes]) -> None:
        """The peer opens a stream and sends these."""
        await self._handlers[PROTOCOL](MemoryStream(Direction.INBOUND, chunks))


@dataclass(frozen=True, slots=True)
class Cost:
    """What a side costs."""

    side: str
    size: int
    count: int
    seconds: float

    @property
    def microseconds(self) -> float:
        """Per message."""
        return self.seconds / self.count * 1e6

    def __str__(self) -> str:
        rate = self.count / self.seconds
        return f"{self.side:8} {self.size:6} B  {self.microseconds:6.1f} µs a message  {rate:8.0f} messages/s"


def make_messages(count: int, size: int) -> list[WakuMessage]:
    """Different messages of `size` bytes of payload."""
    filler = os.urandom(max(0, size - 4))
    return [
        WakuMessage(number.to_bytes(4) + filler, "/pywaku/1/bench/proto", timestamp_ns=number)
        for number in range(count)
    ]


async def publish_side(count: int, size: int) -> Cost:
    """From `publish` to the bytes given to the stream."""
    messages = make_messages(count, size)
    network = MemoryNetwork()
    async with open_relay(network, options=RelayOptions(deliver_own=False), rng=random.Random(1)) as relay:
        subscribed = Rpc(subscriptions=(Subscription(True, TOPIC),))
        await network.arrive([frame(encode_rpc(subscribed))])
        started = time.perf_counter()
        for message in messages:
            await relay.publish(TOPIC, message)
        box = relay.outbox(_PEER)
        while box:
            await trio.lowlevel.checkpoint()
        seconds = time.perf_counter() - started
        if relay.counters.dropped_slow_peer:
            raise AssertionError(f"{relay.counters.dropped_slow_peer} messages were dropped")
    return Cost("publish", size, count, seconds)


async def receive_side(count: int, size: int) -> Cost:
    """From the bytes of a stream to the subscription's callback."""
    parts = [encode_publish(TOPIC, encode_message(message)) for message in make_messages(count, size)]
    stream = b"".join(frame(b"".join(parts[i : i + 100])) for i in range(0, count, 100))
    chunks = [stream[i : i + _CHUNK] for i in range(0, len(stream), _CHUNK)]
    network = MemoryNetwork()
    delivered = 0

    def deliver(_: object) -> None:
        nonlocal delivered
        delivered += 1

    async with open_relay(network, rng=random.Random(1)) as relay:
        relay.subscribe_callback(TOPIC, deliver)
        started = time.perf_counter()
        await network.arrive(chunks)
        seconds = time.perf_counter() - started
        if delivered != count:
            raise AssertionError(f"{delivered} of {count} messages were delivered")
    return Cost("receive", size, count, seconds)


SIDES: Mapping[str, Callable[[int, int], Awaitable[Cost]]] = {
    "publish": publish_side,
    "receive": receive_side,
}


def main() -> None:
    """Measure both sides, or profile one."""
    parser = argparse.ArgumentParser(description="What relay costs per message")
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--profile", choices=sorted(SIDES))
    arguments = parser.parse_args()
    if arguments.profile:
        profile = cProfile.Profile()
        profile.enable()
        trio.run(SIDES[arguments.profile], arguments.count, arguments.size)
        profile.disable()
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        return
    for side in SIDES.values():
        print(trio.run(side, arguments.count, arguments.size))


if __name__ == "__main__":
    main()
