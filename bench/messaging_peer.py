"""A node for the benchmarks of the Messaging API: sends with records and journal, or by the bare protocol."""

from __future__ import annotations

import os
import tempfile
import time
from itertools import count
from typing import Any

import trio

from bench.commands import answer_commands, start_options
from interop.streams import repeat
from pywaku import LimitExceeded, Message, Node, NodeConfig, PlainCodec, WakuMessage, open_node
from pywaku.ids import PeerId
from pywaku.protocols.lightpush import LightpushClient

_TOPIC = "/pywaku/1/bench/proto"
_SHARD = "/waku/2/rs/42/0"


class MessagingPeer:
    """What can be asked of it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._codec = PlainCodec(_TOPIC, _SHARD)
        self._lightpush = LightpushClient(node.network)
        self._numbers = count(time.time_ns())

    def _payloads(self, options: dict[str, Any]) -> list[bytes]:
        filler = os.urandom(options["size"] - 8)
        return [next(self._numbers).to_bytes(8) + filler for _ in range(options["count"])]

    async def ready(self, _options: dict[str, Any]) -> None:
        """Wait until the node may send."""
        while self._node.health == "Unhealthy":
            await trio.sleep(0.05)

    async def bench_send(self, options: dict[str, Any]) -> float:
        """Seconds until messages given to `send` are sent, and their records stored."""
        payloads = self._payloads(options)
        start = time.perf_counter()
        last = ""
        for payload in payloads:
            while True:
                try:
                    last = self._node.send(self._codec, Message(payload))
                    break
                except LimitExceeded:
                    await trio.sleep(0.001)
            if len(payload) % 64 == 0:
                await trio.lowlevel.checkpoint()
        while self._node.pending_requests:
            await trio.sleep(0.001)
        record = await self._node.messages.get_by_request_id(last)
        seconds = time.perf_counter() - start
        if record is None or not record.sent:
            raise RuntimeError(f"not sent: {record}")
        return seconds

    async def bench_publish(self, options: dict[str, Any]) -> float:
        """Seconds until the same number of messages was given to relay."""
        payloads = self._payloads(options)
        start = time.perf_counter()
        for payload in payloads:
            await self._node.relay.publish(_SHARD, WakuMessage(payload, _TOPIC, timestamp_ns=time.time_ns()))
        return time.perf_counter() - start

    async def bench_pushes(self, options: dict[str, Any]) -> float:
        """Seconds until the same number of messages was acknowledged by a light push node."""
        payloads = iter(self._payloads(options))
        peer = PeerId.from_text(options["peer"])

        async def push() -> None:
            message = WakuMessage(next(payloads), _TOPIC, timestamp_ns=time.time_ns())
            result = await self._lightpush.push(peer, _SHARD, message)
            if not result.is_success:
                raise RuntimeError(f"refused: {result}")

        start = time.perf_counter()
        await repeat(options["count"], options["concurrency"], push)
        return time.perf_counter() - start


async def main() -> None:
    """Send and answer until stdin ends."""
    options = start_options()
    with tempfile.TemporaryDirectory() as directory:
        config = NodeConfig(
            mode=options["mode"],
            cluster_id=42,
            shards=[0],
            bootstrap_nodes=options["bootstrap"],
            listen_address="127.0.0.1",
            records_path=f"{directory}/records.sqlite3",
            journal_path=f"{directory}/journal",
            peer_exchange=False,
            subscribe_on_send=False,  # what is measured is sending, not also receiving it
        )
        async with open_node(config) as node:
            peer = MessagingPeer(node)
            commands = {
                "ready": peer.ready,
                "benchSend": peer.bench_send,
                "benchPublish": peer.bench_publish,
                "benchPushes": peer.bench_pushes,
            }
            addresses = [str(address) for address in node.addresses]
            await answer_commands(commands, {"peer": str(node.peer_id), "addresses": addresses})


if __name__ == "__main__":
    trio.run(main)
