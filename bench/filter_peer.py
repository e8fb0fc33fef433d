"""A Python peer for the benchmark of filter: a service node, or a crowd of subscribers, quick or stalled."""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import trio

from bench.commands import answer_commands
from interop.streams import BULK, serve_streams
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.network.libp2p.host import Libp2pNetwork, open_network
from pywaku.network.port import Stream
from pywaku.protocols.filter import (
    PUSH_PROTOCOL,
    FilterClient,
    FilterService,
    FilterServiceOptions,
    ReceivedMessage,
    open_filter_client,
    open_filter_service,
)
from pywaku.protocols.relay import Relay, open_relay
from pywaku.protocols.service import ServiceLimits
from pywaku.wire.framing import frame
from pywaku.wire.multiaddr import Multiaddr

_LISTEN = [Multiaddr.parse("/ip4/127.0.0.1/tcp/0")]
_CONTENT_TOPIC = "/pywaku/1/bench/proto"
_NO_RATES = FilterServiceOptions(requests=ServiceLimits(per_peer=None, total=None))


class ServicePeer:
    """The service node's part."""

    def __init__(self, network: Libp2pNetwork, relay: Relay, service: FilterService) -> None:
        self._network = network
        self._relay = relay
        self._service = service

    async def join(self, options: dict[str, Any]) -> None:
        """Join a topic."""
        self._relay.subscribe_callback(options["topic"], lambda _: None)

    async def bench_publish(self, options: dict[str, Any]) -> float:
        """Publish `count` messages, one every `interval` seconds; the processor seconds that they took."""
        filler = os.urandom(options["size"] - 8)
        start = time.process_time()
        for _ in range(options["count"]):
            now = time.monotonic_ns()  # one clock for all processes of a machine
            message = WakuMessage(now.to_bytes(8) + filler, _CONTENT_TOPIC, timestamp_ns=now)
            await self._relay.publish(options["topic"], message)
            await trio.sleep(options["interval"])
        return time.process_time() - start

    async def bench_bare(self, options: dict[str, Any]) -> float:
        """Write as many bytes to as many streams at the same pace, and do nothing else."""
        data = frame(os.urandom(options["size"]))
        peers = [peer for peer, info in self._network.peers.items() if BULK in info.protocols]
        streams = [await self._network.open_stream(peer, BULK) for peer in peers]
        start = time.process_time()
        for _ in range(options["count"]):
            for stream in streams:
                await stream.send(data)
            await trio.sleep(options["interval"])
        elapsed = time.process_time() - start
        for stream in streams:
            stream.reset()
        return elapsed

    async def dropped(self, _options: dict[str, Any]) -> int:
        """Messages that subscribers have lost so far."""
        return self._service.counters.dropped_slow


class CrowdPeer:
    """The subscribers' part."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._clients: list[FilterClient] = []
        self._stalled: list[FilterClient] = []
        self._delays: list[float] = []
        self._wanted = 0
        self._all_there = trio.Event()

    async def crowd(self, options: dict[str, Any]) -> None:
        """Make subscribers of a service node, and subscribe; with `stalled`, such as read no pushes."""
        address = Multiaddr.parse(options["address"])
        clients = self._stalled if options["stalled"] else self._clients
        for _ in range(options["size"]):
            network, client = await self._nursery.start(_keep_client, options["stalled"])
            await network.connect(address)
            clients.append(client)
            client.subscribe_callback(options["topic"], self._count)

    async def subscribe(self, options: dict[str, Any]) -> None:
        """Subscribe, or with `end` unsubscribe."""
        peer = PeerId.from_text(options["peer"])
        for client in self._stalled if options["stalled"] else self._clients:
            if options["end"]:
                await client.unsubscribe_all(peer)
            elif not (await client.subscribe(peer, options["topic"], [_CONTENT_TOPIC])).is_success:
                raise RuntimeError("the service node refused a subscription")

    def _count(self, received: ReceivedMessage) -> None:
        sent_at = int.from_bytes(received.message.payload[:8])
        self._delays.append((time.monotonic_ns() - sent_at) / 1e9)
        if len(self._delays) == self._wanted:
            self._all_there.set()

    async def median_delay(self, options: dict[str, Any]) -> float:
        """Wait until so many messages are there, and count from zero again; the median delay in seconds."""
        self._wanted = options["count"]
        if len(self._delays) < self._wanted:
            self._all_there = trio.Event()
            await self._all_there.wait()
        delay = statistics.median(self._delays)
        self._delays.clear()
        return delay


async def _ignore(_stream: Stream) -> None:
    await trio.sleep_forever()


async def _keep_client(
    stalled: bool,
    *,
    task_status: trio.TaskStatus[tuple[Libp2pNetwork, FilterClient]] = trio.TASK_STATUS_IGNORED,
) -> None:
    async with open_network() as network, open_filter_client(network) as client:
        if stalled:
            network.unserve(PUSH_PROTOCOL)
            network.serve(PUSH_PROTOCOL, _ignore)
        else:
            serve_streams(network)
        task_status.started((network, client))
        await trio.sleep_forever()


async def main() -> None:
    """Serve and answer until stdin ends."""
    async with (
        open_network(listen=_LISTEN) as network,
        open_relay(network) as relay,
        open_filter_service(network, relay, options=_NO_RATES) as service,
        trio.open_nursery() as nursery,
    ):
        server, crowd = ServicePeer(network, relay, service), CrowdPeer(nursery)
        await answer_commands(
            {
                "join": server.join,
                "benchPublish": server.bench_publish,
                "benchBare": server.bench_bare,
                "dropped": server.dropped,
                "crowd": crowd.crowd,
                "subscribe": crowd.subscribe,
                "medianDelay": crowd.median_delay,
            },
            {"peer": str(network.peer_id), "addresses": [str(address) for address in network.addresses]},
        )
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main)
