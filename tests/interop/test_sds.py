"""SDS with the one of js-waku: the same bytes, and a conversation that both sides agree on."""

from __future__ import annotations

import base64
import random
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from interop.peer_process import PeerProcess
from interop.sds import open_js_sds, what_is_missing_for_sds
from pywaku.channels.conversation import Conversation, Outbound
from pywaku.channels.events import ChannelEvent, MessageReceived, ReliableMessageDelivered
from pywaku.channels.options import ReliableChannelOptions
from pywaku.sds import (
    Acknowledged,
    Delivered,
    EphemeralReceived,
    MessageIds,
    MessagesMissing,
    Outcome,
    PossiblyAcknowledged,
    Purpose,
    RepairOptions,
    SdsChannel,
    SdsOptions,
)
from pywaku.wire.sds import HistoryEntry, SdsMessage, decode_sds, encode_sds

MISSING = what_is_missing_for_sds()
pytestmark = [pytest.mark.interop, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]

CHANNEL = "interop"
JS, PY = "js", "py"


class Theirs:
    """The participant of js-waku."""

    def __init__(self, process: PeerProcess) -> None:
        self._process = process

    async def call(self, name: str, **options: Any) -> Any:
        return await self._process.call(name, sender=JS, **options)

    async def send(self, content: bytes) -> tuple[str, bytes]:
        made = await self.call("send", content=text(content))
        return made["id"], base64.b64decode(made["data"])

    async def sync(self) -> bytes:
        data = await self.call("sync")
        assert data is not None
        return base64.b64decode(data)

    async def receive(self, data: bytes, hint: bytes | None = None) -> str:
        return await self.call("receive", data=text(data), hint=None if hint is None else text(hint))

    async def events(self, name: str) -> list[Any]:
        """The details of the events of one name since the last call."""
        return [event["detail"] for event in await self.call("events") if event["name"] == name]

    async def read(self, data: bytes) -> dict[str, Any]:
        return await self._process.call("decode", data=text(data))


class Ours:
    """The participant of pywaku, on the clock of the machine as theirs is."""

    def __init__(self, options: SdsOptions) -> None:
        self.sds = SdsChannel(CHANNEL, PY, options, rng=random.Random(1), now_ns=time.time_ns())

    def send(self, content: bytes) -> tuple[str, bytes]:
        made = self.sds.send(content, time.time_ns())
        self.sds.sent(made.message_id, time.time_ns())
        return made.message_id, made.data

    def receive(self, data: bytes) -> Outcome:
        return self.sds.receive(data, time.time_ns()).outcome

    def sync(self) -> bytes:
        assert self.sds.sync(time.time_ns())
        return self.sds.take_transmissions()[-1].data

    def events(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.sds.take_events() if isinstance(event, kind)]


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


@asynccontextmanager
async def open_two(options: SdsOptions | None = None, **theirs: Any) -> AsyncGenerator[tuple[Ours, Theirs]]:
    """A participant of each kind in one channel."""
    async with open_js_sds() as process:
        await process.call("open", channel=CHANNEL, sender=JS, options=theirs)
        yield Ours(options or SdsOptions.js_waku()), Theirs(process)


async def test_they_read_our_messages_and_encode_them_to_the_same_bytes() -> None:
    ours = Ours(SdsOptions.js_waku())
    sent = [ours.send(b"%d" % number)[1] for number in range(3)]
    entry = HistoryEntry("lost", b"hint", "carol")
    by_hand = SdsMessage("py", "id", CHANNEL, 7, (entry, HistoryEntry("x")), b"bloom", (entry,), b"content")
    ephemeral = ours.sds.send_ephemeral(b"typing", time.time_ns()).data
    async with open_js_sds() as process:
        for data in (*sent, ours.sync(), encode_sds(by_hand), ephemeral):
            read = await process.call("decode", data=text(data))
            message = decode_sds(data)
            assert base64.b64decode(read["again"]) == data
            assert (read["id"], read["sender"], read["channel"], read["lamport"]) == (
                message.message_id,
                message.sender_id,
                message.channel_id,
                message.lamport_timestamp,
            )
            assert read["history"] == message.history_ids
            assert read["requests"] == [[one.message_id, one.sender_id] for one in message.repair_request]
            assert read["kind"] == message.kind.value


async def test_we_read_their_messages_and_encode_them_to_the_same_bytes() -> None:
    async with open_two() as (_, theirs):
        for number in range(3):
            _, data = await theirs.send(b"%d" % number)
            assert encode_sds(decode_sds(data)) == data
        for data in (
            await theirs.sync(),
            base64.b64decode(await theirs.call("sendEphemeral", content="YQ==")),
        ):
            assert encode_sds(decode_sds(data)) == data


async def test_a_conversation_of_500_messages_ends_in_the_same_log_and_all_is_acknowledged() -> None:
    rng = random.Random(5)
    async with open_two() as (ours, theirs):
        mine: list[str] = []
        yours: list[str] = []
        for number in range(500):
            if rng.random() < 0.5:
                message_id, data = ours.send(b"py %d" % number)
                mine.append(message_id)
                assert await theirs.receive(data) == "content"
            else:
                message_id, data = await theirs.send(b"js %d" % number)
                yours.append(message_id)
                assert ours.receive(data) is Outcome.DELIVERED
        ours.receive(await theirs.sync())
        await theirs.receive(ours.sync())
        assert list(ours.sds.log(1_000)) == await theirs.call("log")
        assert decode_sds(ours.sync()).bloom_filter == base64.b64decode(await theirs.call("bloom"))
        events = ours.sds.take_events()
        assert [one.message_id for one in events if isinstance(one, Delivered)] == yours
        assert {one.message_id for one in events if isinstance(one, Acknowledged)} == set(mine)
        assert ours.sds.unacknowledged() == ()
        said = await theirs.call("events")
        assert [one["detail"] for one in said if one["name"] == "sds:in:message-delivered"] == mine
        assert {one["detail"] for one in said if one["name"] == "sds:out:message-acknowledged"} == set(yours)


async def test_both_send_the_same_causal_history() -> None:
    async with open_two() as (ours, theirs):
        for number in range(230):
            _, data = await theirs.send(b"%d" % number)
            ours.receive(data)
        expected = decode_sds(await theirs.sync()).causal_history
        assert len(expected) == 200
        assert decode_sds(ours.sync()).causal_history == expected


async def test_their_bloom_filters_acknowledge_our_messages_and_ours_theirs() -> None:
    # Of two messages only one is named: the other is acknowledged by bloom filters alone.
    async with open_two(SdsOptions(causal_history_size=1), causalHistorySize=1) as (ours, theirs):
        first, second = ours.send(b"1"), ours.send(b"2")
        for _, data in (first, second):
            await theirs.receive(data)
        ours.receive(await theirs.sync())
        events = ours.sds.take_events()
        assert Acknowledged(second[0], (JS,), True) in events
        assert PossiblyAcknowledged(first[0], JS, 1) in events
        ours.receive(await theirs.sync())
        assert ours.events(Acknowledged) == [Acknowledged(first[0], (JS,), False)]

        third, fourth = await theirs.send(b"3"), await theirs.send(b"4")
        ours.receive(third[1])
        ours.receive(fourth[1])
        await theirs.call("events")
        await theirs.receive(ours.sync())
        await theirs.receive(ours.sync())
        assert set(await theirs.events("sds:out:message-acknowledged")) == {third[0], fourth[0]}


async def test_messages_out_of_order_are_delivered_in_causal_order_on_both_sides() -> None:
    async with open_two() as (ours, theirs):
        sent = [await theirs.send(b"%d" % number) for number in range(5)]
        for _, data in reversed(sent):
            ours.receive(data)
        assert [one.content for one in ours.events(Delivered)] == [b"0", b"1", b"2", b"3", b"4"]
        mine = [ours.send(b"%d" % number) for number in range(5)]
        for _, data in reversed(mine):
            await theirs.receive(data)
        await theirs.call("sweepIncoming")
        assert (await theirs.call("log"))[-5:] == [message_id for message_id, _ in mine]


async def test_they_repair_what_we_miss() -> None:
    repair = RepairOptions(t_min_ms=0, t_max_ms=1)
    async with open_two(SdsOptions(repair=repair), repairConfig={"tMin": 0, "tMax": 1}) as (ours, theirs):
        lost = await theirs.send(b"lost")
        after = await theirs.send(b"after")
        assert ours.receive(after[1]) is Outcome.BUFFERED
        (missing,) = ours.events(MessagesMissing)
        assert missing.entries == (HistoryEntry(lost[0], None, JS),)
        await trio.sleep(0.01)
        await theirs.receive(ours.sync())
        await trio.sleep(0.01)
        (repaired,) = await theirs.call("repairs")
        ours.receive(base64.b64decode(repaired))
        assert [one.content for one in ours.events(Delivered)] == [b"lost", b"after"]


async def test_we_repair_what_they_miss() -> None:
    repair = RepairOptions(t_min_ms=0, t_max_ms=1)
    async with open_two(SdsOptions(repair=repair), repairConfig={"tMin": 0, "tMax": 1}) as (ours, theirs):
        lost, after = ours.send(b"lost"), ours.send(b"after")
        await theirs.receive(after[1])
        assert await theirs.events("sds:in:message-missing") == [[lost[0]]]
        await trio.sleep(0.01)
        ours.receive(await theirs.sync())
        ours.sds.tick(time.time_ns())
        repairs = [one for one in ours.sds.take_transmissions() if one.purpose is Purpose.REPAIR]
        assert [one.data for one in repairs] == [lost[1]]
        await theirs.receive(repairs[0].data)
        await theirs.call("sweepIncoming")
        assert await theirs.call("log") == [lost[0], after[0]]


async def test_ephemeral_messages_go_both_ways() -> None:
    async with open_two() as (ours, theirs):
        data = base64.b64decode(await theirs.call("sendEphemeral", content=text(b"typing")))
        assert ours.receive(data) is Outcome.EPHEMERAL
        assert [one.content for one in ours.events(EphemeralReceived)] == [b"typing"]
        assert await theirs.receive(ours.sds.send_ephemeral(b"typing", time.time_ns()).data) == "ephemeral"


async def test_message_ids_of_content_are_theirs() -> None:
    async with open_two(SdsOptions(message_ids=MessageIds.CONTENT)) as (ours, theirs):
        message_id, _ = await theirs.send(b"same")
        assert ours.send(b"same")[0] == message_id


async def test_hints_go_both_ways() -> None:
    # Of an own message the hint is what its sender was told when it went out, of another's how it came.
    ours_by_us, theirs_by_us, theirs_by_them, ours_by_them = (bytes([number]) * 32 for number in range(4))
    async with open_two() as (ours, theirs):
        made = ours.sds.send(b"py", time.time_ns())
        ours.sds.sent(made.message_id, time.time_ns(), retrieval_hint=ours_by_us)
        await theirs.receive(made.data, ours_by_them)
        sent = await theirs.call("send", content=text(b"js"), hint=text(theirs_by_them))
        ours.sds.receive(base64.b64decode(sent["data"]), time.time_ns(), retrieval_hint=theirs_by_us)

        read = await theirs.read(ours.sync())
        assert read["history"] == [made.message_id, sent["id"]]
        assert read["hints"] == [text(ours_by_us), text(theirs_by_us)]
        history = decode_sds(await theirs.sync()).causal_history
        assert [entry.retrieval_hint for entry in history] == [ours_by_them, theirs_by_them]


class Channel:
    """The machine of a channel of pywaku, as js-waku's own channel is made on its SDS."""

    def __init__(self) -> None:
        options = ReliableChannelOptions.js_waku()
        self.machine = Conversation(CHANNEL, PY, options, rng=random.Random(1), now_ns=time.time_ns())
        self.events: list[ChannelEvent] = []

    def send(self, payload: bytes) -> tuple[str, bytes]:
        """The id of the message, and what goes out."""
        now_ns = time.time_ns()
        message_id = self.machine.new_id(payload, now_ns)
        self.machine.send(message_id, payload, self.machine.segments(payload), now_ns)
        (outbound,) = self._take()
        self.machine.sent(outbound.sds_id, time.time_ns(), bytes(32))
        return message_id, outbound.data

    def receive(self, data: bytes) -> None:
        """Something has come."""
        self.machine.receive(data, time.time_ns(), None)
        self._take()

    def sync(self) -> bytes:
        """A sync message."""
        assert self.machine.sds.sync(time.time_ns())
        return self._take()[-1].data

    def _take(self) -> list[Outbound]:
        step = self.machine.take(time.time_ns())
        self.events += step.events
        return step.outbound


async def test_a_channel_converses_with_their_sds() -> None:
    rng = random.Random(6)
    async with open_js_sds() as process:
        await process.call("open", channel=CHANNEL, sender=JS, options={})
        ours, theirs = Channel(), Theirs(process)
        mine: list[str] = []
        yours: list[bytes] = []
        for number in range(100):
            if rng.random() < 0.5:
                message_id, data = ours.send(b"py %d" % number)
                mine.append(message_id)
                assert base64.b64decode((await theirs.read(data))["content"]) == b"py %d" % number
                await theirs.receive(data)
            else:
                yours.append(b"js %d" % number)
                ours.receive((await theirs.send(yours[-1]))[1])
        ours.receive(await theirs.sync())
        await theirs.receive(ours.sync())
        acknowledged = await theirs.events("sds:out:message-acknowledged")
        assert len(set(acknowledged)) == len(yours)
        delivered = [one.request_id for one in ours.events if isinstance(one, ReliableMessageDelivered)]
        assert sorted(delivered) == sorted(mine)
        assert [one.payload for one in ours.events if isinstance(one, MessageReceived)] == yours
        assert ours.machine.tracker.unfinished == ()
        assert list(ours.machine.sds.log(1_000)) == await theirs.call("log")
