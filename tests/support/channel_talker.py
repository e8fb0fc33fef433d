"""Alice's side of a channel as a process of its own, to be killed: it sends, reads, and says what is sure.

`channel_talker PATH ADDRESS LIFE COUNT`: COUNT messages, numbered within this life. Each line is a word, a
number and the time: `sent N` (`send` has returned), `read N` (a message of Bob, as the application reads it),
`final N` (the final event of one of this life) or `ended 0` (nothing is left to be heard of).
"""

from __future__ import annotations

import random
import sys
import time

import trio

import pywaku
from pywaku.channels import ReliableChannel, ReliableChannelOptions
from pywaku.channels.events import MessageReceived, ReliableMessageDelivered, ReliableMessageDeliveryError
from pywaku.sds import RepairOptions

TOPIC = "/test/1/killed/proto"
OPTIONS = ReliableChannelOptions(
    acknowledgement_timeout_ms=500,
    max_retransmissions=1_000,
    sync_min_interval_ms=1_000,
    repair=RepairOptions(t_min_ms=200, t_max_ms=800),
    query_on_connect=False,
)


def config(**more: object) -> pywaku.NodeConfig:
    """A node on this machine."""
    return pywaku.NodeConfig(
        mode="relay",
        cluster_id=42,
        shards=[0],
        listen_address="127.0.0.1",
        tcp_port=0,
        **{"bootstrap_nodes": [], **more},  # pyright: ignore[reportArgumentType]
    )


async def channel_of(node: pywaku.Node, name: str) -> ReliableChannel:
    """The side of a participant."""
    return await pywaku.create_reliable_channel(
        node, channel_id="room", sender_id=name, content_topic=TOPIC, options=OPTIONS
    )


def payload_of(life: int, number: int) -> bytes:
    """What Alice sends: some of it in several segments."""
    text = b"%d %d " % (life, number)
    return text + random.Random(number).randbytes(150_000 if number % 10 == 7 else 30)


def numbers_of(payload: bytes) -> tuple[int, int]:
    """The life and the number in a payload."""
    life, number, _ = payload.split(b" ", 2)
    return int(life), int(number)


def _say(what: str, number: int) -> None:
    sys.stdout.write(f"{what} {number} {time.monotonic()}\n")
    sys.stdout.flush()


async def _talk(path: str, address: str, life: int, count: int) -> None:
    async with pywaku.open_node(config(bootstrap_nodes=[address], records_path=f"{path}-records")) as node:
        await pywaku.open_channels(node, path=path)
        channel = await channel_of(node, "alice")
        numbers: dict[str, int] = {}

        async def read() -> None:
            async for event in channel.events():
                match event:
                    case MessageReceived(payload):
                        _say("read", int(payload))
                    case ReliableMessageDelivered(request_id) | ReliableMessageDeliveryError(request_id):
                        _say("final", numbers.get(request_id, -1))
                    case _:
                        pass

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            for number in range(count):
                numbers[await channel.send(payload_of(life, number))] = number
                _say("sent", number)
                await trio.sleep(0.02)
            while channel.unacknowledged:
                await trio.sleep(0.05)
            _say("ended", 0)
            await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(_talk, sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
