"""Reliable channels with js-waku (`ReliableChannel` of `@waku/sdk`), through service nodes of pywaku.

What both sides wait for is shortened by their options, lest the tests take minutes: syncs come every second
instead of every 30, looks into the store twice a second instead of every 10 seconds, and what comes is
processed at once. In the long conversation nothing is shortened but the syncs.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import pytest
import trio

import interop
import pywaku
from interop.node import find_node, what_is_missing
from interop.peer_process import PeerProcess, open_peer_process
from pywaku.channels.events import (
    IrretrievableMessage,
    MessageReceived,
    ReliableMessageDelivered,
    ReliableMessageDeliveryError,
    ReliableMessageSendError,
    ReliableMessageSent,
)
from pywaku.encryption import EciesEncryption, Encryption, SymmetricEncryption, generate_key
from pywaku.keys import PrivateKey
from pywaku.sds import RepairOptions
from pywaku.wire.multiaddr import Multiaddr

SCRIPT = Path(interop.__path__[0]) / "js-waku" / "waku.mjs"


def missing() -> str | None:
    """Why the node cannot be started here; None when all is there."""
    if not (SCRIPT.parent / "node_modules" / "@waku" / "message-encryption").is_dir():
        return what_is_missing() or "js-waku is not installed: run 'interop/node-setup.sh python3'"
    return what_is_missing()


MISSING = missing()
pytestmark = [pytest.mark.interop, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]

CHANNEL: Final = "room"
CONTENT_TOPIC: Final = "/pywaku/1/channels/proto"
CLUSTER, SHARDS = 42, 8
NETWORK: Final[dict[str, Any]] = {
    "cluster_id": CLUSTER,
    "num_shards_in_network": SHARDS,
    "listen_address": "127.0.0.1",
}
JS_WAKU = pywaku.ReliableChannelOptions.js_waku()
OPTIONS = replace(
    JS_WAKU,
    sync_min_interval_ms=1_000,
    retrieve_frequency_ms=500,
    sweep_in_buf_interval_ms=200,
    process_task_min_elapse_ms=200,
)
THEIR_OPTIONS = {
    "syncMinIntervalMs": 1_000,
    "retrieveFrequencyMs": 500,
    "sweepInBufIntervalMs": 500,
    "processTaskMinElapseMs": 200,
}
NEVER_MS = 3_600_000
PATIENCE_S = 40.0


class Theirs:
    """A channel of js-waku, in a light node of its own."""

    def __init__(self, js: PeerProcess, name: str) -> None:
        self.js = js
        self.name = name

    async def open(self, options: dict[str, Any], keys: dict[str, str]) -> None:
        """Join."""
        where: dict[str, Any] = {
            "channel": CHANNEL,
            "sender": self.name,
            "contentTopic": CONTENT_TOPIC,
            **keys,
        }
        assert await self.js.call("openChannel", options=THEIR_OPTIONS | options, **where)

    async def send(self, payloads: Sequence[str], every_ms: int = 0) -> list[str]:
        """Send, one after the other; the ids of the messages."""
        return await self.js.call("channelSend", channel=CHANNEL, payloads=payloads, everyMs=every_ms)

    async def told(self) -> dict[str, Any]:
        """What the application was told."""
        return await self.js.call("channelTold", channel=CHANNEL)

    async def wait_acknowledged(self, ids: Iterable[str]) -> None:
        """Until it was told that others have these messages."""
        while not set(ids) <= set((await self.told())["acknowledged"]):
            await trio.sleep(0.1)

    async def wait_received(self, payloads: Iterable[str]) -> None:
        """Until it was told of these messages."""
        while not set(payloads) <= (await self.told())["received"].keys():
            await trio.sleep(0.1)

    async def log(self) -> list[str]:
        """The ids in the log of its SDS."""
        return await self.js.call("channelLog", channel=CHANNEL)


class Ours:
    """A channel of pywaku, and what it has told."""

    def __init__(self, channel: pywaku.ReliableChannel) -> None:
        self.channel = channel
        self.received: list[str] = []
        self.sent: set[str] = set()
        self.delivered: set[str] = set()
        self.errors: list[Any] = []

    async def hear(self) -> None:
        """Take what is told."""
        async for event in self.channel.events():
            match event:
                case MessageReceived():
                    self.received.append(event.payload.decode())
                case ReliableMessageSent():
                    self.sent.add(event.request_id)
                case ReliableMessageDelivered():
                    self.delivered.add(event.request_id)
                case IrretrievableMessage() | ReliableMessageSendError() | ReliableMessageDeliveryError():
                    self.errors.append(event)
                case _:
                    pass

    async def send(self, payloads: Sequence[str], every_ms: int = 0) -> list[str]:
        """Send, one after the other; the ids of the messages."""
        ids: list[str] = []
        for payload in payloads:
            ids.append(await self.channel.send(payload.encode()))
            await trio.sleep(every_ms / 1000)
        return ids

    async def wait_delivered(self, ids: Iterable[str]) -> None:
        """Until others have these messages."""
        while not set(ids) <= self.delivered:
            await trio.sleep(0.02)

    async def wait_received(self, payloads: Iterable[str]) -> None:
        """Until these messages have come."""
        while not set(payloads) <= set(self.received):
            await trio.sleep(0.02)

    @property
    def log(self) -> list[str]:
        """The ids in the log of the SDS."""
        return list(self.channel.conversation.sds.log(10_000))


@asynccontextmanager
async def open_service(*neighbours: pywaku.Node) -> AsyncGenerator[pywaku.Node]:
    """A node that relays and keeps messages, and serves light nodes."""
    async with pywaku.open_node(
        mode="relay",
        bootstrap_nodes=[address(each) for each in neighbours],
        store=True,
        store_url="sqlite://:memory:",
        websocket_port=0,
        **NETWORK,
    ) as node:
        yield node


def address(node: pywaku.Node, *, ws: bool = False) -> Multiaddr:
    """Where a node listens."""
    return next(one for one in node.addresses if one.has("ws") == ws)


@asynccontextmanager
async def open_ours(
    service: pywaku.Node,
    *,
    name: str = "py",
    mode: Literal["edge", "relay"] = "relay",
    options: pywaku.ReliableChannelOptions = OPTIONS,
    encryption: Encryption | None = None,
    path: Path | None = None,
    **properties: Any,
) -> AsyncGenerator[Ours]:
    """A participant of pywaku, in a node of its own."""
    properties = {**NETWORK, **properties}
    async with pywaku.open_node(mode=mode, bootstrap_nodes=[address(service)], **properties) as node:
        await pywaku.open_channels(node, path=path)
        channel = await pywaku.create_reliable_channel(
            node,
            channel_id=CHANNEL,
            sender_id=name,
            content_topic=CONTENT_TOPIC,
            encryption=encryption,
            options=options,
        )
        ours = Ours(channel)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.hear)
            yield ours
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_theirs(
    service: pywaku.Node,
    *,
    name: str = "js",
    options: dict[str, Any] | None = None,
    keys: dict[str, str] | None = None,
) -> AsyncGenerator[Theirs]:
    """A participant of js-waku, in a light node of its own."""
    node = find_node()
    assert node is not None
    arguments = json.dumps(
        {"bootstrap": [str(address(service, ws=True))], "cluster": CLUSTER, "shards": SHARDS}
    )
    async with open_peer_process([node, str(SCRIPT), arguments]) as js:
        theirs = Theirs(js, name)
        await js.call("waitForPeers")
        await theirs.open(options or {}, keys or {})
        yield theirs


def payloads(name: str, count: int, start: int = 0) -> list[str]:
    """Payloads of a participant, no two the same, of many sizes."""
    return [f"{name} {start + number} " + "x" * (number * 37 % 400) for number in range(count)]


async def same_log(ours: Ours, theirs: Theirs) -> None:
    """Both have the same messages in the same order, at the latest when js-waku has looked at what waits."""
    with trio.fail_after(PATIENCE_S):
        while ours.log != await theirs.log():
            await trio.sleep(0.1)


async def converse(ours: Ours, theirs: Theirs, count: int, every_ms: int = 10) -> None:
    """Both send so many messages; both receive those of the other once, and are told that theirs arrived."""
    mine, yours = payloads("py", count), payloads("js", count)
    my_ids: list[str] = []
    your_ids: list[str] = []

    async def we_send() -> None:
        my_ids.extend(await ours.send(mine, every_ms))

    async def they_send() -> None:
        your_ids.extend(await theirs.send(yours, every_ms))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(we_send)
        nursery.start_soon(they_send)
    with trio.fail_after(PATIENCE_S):
        await ours.wait_received(yours)
        await ours.wait_delivered(my_ids)
        await theirs.wait_acknowledged(your_ids)
    assert ours.received == yours
    assert ours.errors == []
    told = await theirs.told()
    # js-waku tells of its own messages as well, as they come back.
    assert {payload for payload in told["received"] if payload.startswith("py")} == set(mine)
    assert told["errors"] == []
    await same_log(ours, theirs)
    assert len(ours.log) == 2 * count


async def test_a_conversation_of_500_messages_is_acknowledged_on_both_sides(tmp_path: Path) -> None:
    options = replace(JS_WAKU, sync_min_interval_ms=2_000)
    defaults = {
        "syncMinIntervalMs": 2_000,
        "retrieveFrequencyMs": 10_000,
        "sweepInBufIntervalMs": 5_000,
        "processTaskMinElapseMs": 1_000,
    }
    async with (
        open_service() as first,
        open_service(first) as second,
        open_theirs(first, options=defaults) as theirs,
        open_ours(second, mode="edge", options=options, path=tmp_path / "channels.sqlite3") as ours,
    ):
        await converse(ours, theirs, 250)
        told = await theirs.told()
        assert set(told["sent"].values()) == {1}, "nothing had to be sent again"
        assert ours.channel.conversation.sds.counters.retransmitted == 0
        assert ours.channel.unacknowledged == ()


async def test_a_conversation_under_a_symmetric_key_is_acknowledged_on_both_sides() -> None:
    key = generate_key()
    async with (
        open_service() as service,
        open_theirs(service, keys={"key": key.hex()}) as theirs,
        open_ours(service, encryption=SymmetricEncryption(key)) as ours,
    ):
        await converse(ours, theirs, 250)
        assert ours.channel.counters.undecryptable == 0


async def test_a_conversation_under_a_common_key_pair_is_acknowledged_on_both_sides() -> None:
    # One pair for all: js-waku hears its own messages too, and fails on one that it cannot read.
    key = PrivateKey.generate()
    keys = {"publicKey": "04" + key.public.uncompressed.hex(), "privateKey": key.raw.hex()}
    async with (
        open_service() as service,
        open_theirs(service, keys=keys) as theirs,
        open_ours(service, encryption=EciesEncryption(key, key.public)) as ours,
    ):
        await converse(ours, theirs, 30)
        assert ours.channel.counters.undecryptable == 0


async def test_they_fetch_what_they_miss_from_a_store_of_ours() -> None:
    async with (
        open_service() as service,
        open_theirs(service) as theirs,
        open_ours(service) as ours,
    ):
        await theirs.js.call("beDeaf", on=True)
        lost = payloads("py", 60)
        ids = await ours.send(lost, 5)
        await theirs.js.call("beDeaf", on=False)
        ids += await ours.send(["py after"])
        with trio.fail_after(PATIENCE_S):
            await theirs.wait_received([*lost, "py after"])
            await ours.wait_delivered(ids)
        assert ours.channel.conversation.sds.counters.retransmitted == 0
        await same_log(ours, theirs)


async def test_they_come_late_and_fetch_the_conversation_from_a_store_of_ours() -> None:
    async with open_service() as service, open_service(service), open_ours(service) as ours:
        sent = payloads("py", 60)
        ids = await ours.send(sent, 5)
        async with open_theirs(service) as theirs:
            with trio.fail_after(PATIENCE_S):
                await theirs.wait_received(sent)
                await ours.wait_delivered(ids)
            await same_log(ours, theirs)


@pytest.mark.parametrize("encrypted", [False, True])
async def test_we_were_away_and_fetch_what_they_sent_from_a_store_of_ours(
    encrypted: bool, tmp_path: Path
) -> None:
    # Their hints are the hashes of messages that they encode once more to send: other bytes when encrypted,
    # and else if the clock has gone on by a millisecond. So our channel has to look through the store.
    key = generate_key()
    keys = {"key": key.hex()} if encrypted else None
    ourselves: dict[str, Any] = {
        "mode": "edge",
        "fetch_missed": False,
        "encryption": SymmetricEncryption(key) if encrypted else None,
        "path": tmp_path / "channels.sqlite3",
    }
    early, missed = payloads("js", 5), payloads("js", 60, start=5)
    async with open_service() as service, open_service(service), open_theirs(service, keys=keys) as theirs:
        async with open_ours(service, **ourselves) as ours:
            ids = await theirs.send(early)
            with trio.fail_after(PATIENCE_S):
                await ours.wait_received(early)
        ids += await theirs.send(missed)
        async with open_ours(service, **ourselves) as ours:
            with trio.fail_after(PATIENCE_S):
                await ours.wait_received(missed)
                await theirs.wait_acknowledged(ids)
            assert ours.received == missed
            assert ours.channel.counters.retrieved > 0
            assert ours.errors == []
            await same_log(ours, theirs)


async def test_what_is_lost_without_a_store_is_sent_again_by_both() -> None:
    ours_again = replace(
        OPTIONS, acknowledgement_timeout_ms=1_000, query_on_connect=False, retrieve_frequency_ms=NEVER_MS
    )
    without_store = {"queryOnConnect": False, "retrieveFrequencyMs": 0}
    async with (
        open_service() as service,
        open_service(service) as second,
        open_theirs(service, options={**without_store, "retryIntervalMs": 1_000}) as theirs,
        open_ours(second, mode="edge", options=ours_again, fetch_missed=False) as ours,
    ):
        await theirs.js.call("beDeaf", on=True)
        my_ids = await ours.send(payloads("py", 10))
        while len(ours.sent) < 10:
            await trio.sleep(0.02)
        await theirs.js.call("beDeaf", on=False)
        with trio.fail_after(PATIENCE_S):
            await theirs.wait_received(payloads("py", 10))
            await ours.wait_delivered(my_ids)
        assert ours.channel.conversation.sds.counters.retransmitted > 0

        await ours.channel.stop()
        your_ids = await theirs.send(payloads("js", 10))
        await ours.channel.start()
        with trio.fail_after(PATIENCE_S):
            await ours.wait_received(payloads("js", 10))
            await theirs.wait_acknowledged(your_ids)
        assert max((await theirs.told())["sent"].values()) > 1
        assert ours.received == payloads("js", 10)
        assert ours.errors == []
        await same_log(ours, theirs)


async def test_we_send_what_they_request_as_repairs() -> None:
    repair = RepairOptions(t_min_ms=100, t_max_ms=500)
    without_store = {"queryOnConnect": False, "retrieveFrequencyMs": 0}
    async with (
        open_service() as service,
        open_theirs(service, options={**without_store, "repairConfig": {"tMin": 100, "tMax": 500}}) as theirs,
        open_ours(service, options=replace(OPTIONS, repair=repair)) as ours,
    ):
        await theirs.js.call("beDeaf", on=True)
        ids = await ours.send(payloads("py", 3))
        while len(ours.sent) < 3:
            await trio.sleep(0.02)
        await theirs.js.call("beDeaf", on=False)
        ids += await ours.send(["py after"])
        with trio.fail_after(PATIENCE_S):
            await theirs.wait_received([*payloads("py", 3), "py after"])
            await ours.wait_delivered(ids)
        counters = ours.channel.conversation.sds.counters
        assert counters.repairs_sent >= 3
        assert counters.retransmitted == 0


async def test_segments_and_bare_content_are_read_side_by_side() -> None:
    # One of ours speaks as js-waku does, one in segments, which js-waku gives its application as they are.
    segments = replace(OPTIONS, wrap_segments=True)
    async with (
        open_service() as service,
        open_theirs(service) as theirs,
        open_ours(service) as bare,
        open_ours(service, name="py-segments", options=segments) as wrapped,
    ):
        ids = await bare.send(["py bare"])
        ids_wrapped = await wrapped.send(["py in segments", "py large " + "x" * 250_000])
        your_ids = await theirs.send(["js bare"])
        with trio.fail_after(PATIENCE_S):
            await bare.wait_received(["py in segments", "py large " + "x" * 250_000, "js bare"])
            await wrapped.wait_received(["py bare", "js bare"])
            await theirs.wait_received(["py bare"])
            await bare.wait_delivered(ids)
            await wrapped.wait_delivered(ids_wrapped)
            await theirs.wait_acknowledged(your_ids)
        assert not any(each.errors for each in (bare, wrapped))
        assert set(bare.log) == set(wrapped.log)


async def test_the_largest_bare_messages_pass_both_ways() -> None:
    size = 100 * 1024
    async with open_service() as service, open_theirs(service) as theirs, open_ours(service) as ours:
        ids = await ours.send(["py " + "x" * (size - 3), "py 2"])
        your_ids = await theirs.send(["js " + "y" * (size - 3), "js 2"])
        with trio.fail_after(PATIENCE_S):
            await theirs.wait_received(["py " + "x" * (size - 3), "py 2"])
            await ours.wait_received(["js " + "y" * (size - 3), "js 2"])
            await ours.wait_delivered(ids)
            await theirs.wait_acknowledged(your_ids)
        assert ours.errors == []


async def test_the_same_payload_of_both_at_the_same_time_is_received_by_both() -> None:
    # Their ids are hashes of the payload; ours are unique, so that neither takes the other's for its own.
    async with open_service() as service, open_theirs(service) as theirs, open_ours(service) as ours:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(theirs.send, ["hi"])
            ids = await ours.send(["hi", "hi"])
        ids += await ours.send(["after"])
        with trio.fail_after(PATIENCE_S):
            await ours.wait_received(["hi"])
            await theirs.wait_received(["hi", "after"])
            await ours.wait_delivered(ids)
            await same_log(ours, theirs)
        assert ours.received == ["hi"]
        assert len(ours.log) == 4
