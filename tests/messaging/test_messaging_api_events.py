"""Health, events and the journal on whole nodes (MESSAGING-API; docs/journal.md)."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from pywaku import Message, MessageRecord
from pywaku.journal import read_journal
from pywaku.message import WakuMessage
from pywaku.messaging.event import Event
from pywaku.protocols.lightpush import PushResult
from tests.messaging.test_messaging_api import MODES, light_of, now_of, properties, ready, record_of, send
from tests.support.waku_nodes import SHARD, TOPIC, open_services, open_waku_world, settled, until

pytestmark = pytest.mark.virtual
Row = dict[str, Any]


# Health


@pytest.mark.parametrize("mode", MODES)
async def test_any_change_of_health_must_trigger_health_change_right_after_it(mode: str) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("node", **properties(mode)) as node,
    ):
        heard: list[tuple[str, str]] = []
        node.events.add_event_listener(
            "health:change", lambda event: heard.append((str(event.detail), str(node.health)))
        )
        assert node.health == "Unhealthy"
        for service in services:
            await node.connect(service.addresses[0])
            await trio.sleep(10)
        assert heard[0] == ("MinimallyHealthy", "MinimallyHealthy")
        expected = "Healthy" if mode == "edge" else "MinimallyHealthy"  # of six mesh peers there are two
        assert node.health == expected
        world.world.partition([world.host(node)])
        await until(lambda: node.health == "Unhealthy", seconds=300)
        assert heard[-1] == ("Unhealthy", "Unhealthy")
        assert all(told == was for told, was in heard)


@pytest.mark.parametrize("mode", MODES)
async def test_content_topics_and_shards_have_a_health_of_their_own(mode: str) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("node", *services, **properties(mode)) as node,
    ):
        await ready(node)
        assert node.topic_health(TOPIC) == "NOT_SUBSCRIBED"
        assert node.shard_health(SHARD) == ("NOT_SUBSCRIBED" if mode == "edge" else "MINIMALLY_HEALTHY")
        subscription = await node.subscribe(node.codec(TOPIC))
        await trio.sleep(5)
        expected = "SUFFICIENTLY_HEALTHY" if mode == "edge" else "MINIMALLY_HEALTHY"
        assert (node.topic_health(TOPIC), node.shard_health(SHARD)) == (expected, expected)
        subscription.unsubscribe()
        assert node.topic_health(TOPIC) == "NOT_SUBSCRIBED"


@pytest.mark.parametrize(("peers", "expected"), [(0, "Unhealthy"), (4, "MinimallyHealthy"), (6, "Healthy")])
async def test_a_relay_node_is_as_healthy_as_its_mesh_is_large(peers: int, expected: str) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 7) as services,
        world.node("node", *services[:peers]) as node,
    ):
        await until(lambda: len(node.relay.mesh(SHARD)) == peers)
        await trio.sleep(3)
        assert node.health == expected


async def test_sending_begins_as_soon_as_the_shard_is_fit_also_without_a_change_of_health() -> None:
    """An edge node that sends on a shard to which it has not subscribed."""
    async with (
        open_waku_world() as world,
        world.node("service", shards=[0, 1]) as one,
        world.node("other", one, shards=[0, 1]),
        world.node("edge", mode="edge", shards=[0, 1], subscribe_on_send=False) as node,
    ):
        await node.connect(one.addresses[0])
        await ready(node)
        await trio.sleep(5)
        light = light_of(node)
        peers = light.peers
        blind = True

        def seen(topic: str) -> Any:
            return type(peers(topic))() if blind and topic != SHARD else peers(topic)

        light.peers = seen  # pyright: ignore[reportAttributeAccessIssue]
        await trio.sleep(3)
        await node.subscribe(node.codec(TOPIC, pubsub_topic=SHARD))
        codec = node.codec(TOPIC, pubsub_topic=node.pubsub_topics[1])
        node.send(codec, Message(b"on the other shard"))
        await trio.sleep(3)
        assert node.pending_requests
        blind = False
        await settled([node], seconds=10)


# Events


async def test_events_of_a_message_come_in_order_after_the_change_is_stored() -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 3, stores=1) as services,
        world.node("edge", *services, mode="edge", store_confirmation=True) as node,
    ):
        await ready(node)
        names: list[str] = []
        unlike: list[Any] = []

        async def compare(event: Event[MessageRecord]) -> None:
            known = await node.messages.get_by_request_id(event.detail.request_id or "")
            if known is None or known.updated_ns < event.detail.updated_ns:
                unlike.append((event, known))

        for name in ("message:change", "message:propagated", "message:sent", "message:received"):
            node.events.add_event_listener(name, lambda event: names.append(event.name))
            node.events.add_event_listener(name, compare)
        node.events.add_event_listener("message:stored", lambda event: names.append(event.name))
        send(node)
        await settled([node])
        await trio.sleep(70)
        assert names[0] == "message:change"
        order = [name for name in names if name not in ("message:change", "message:received")]
        assert order[0] == "message:propagated"
        assert sorted(order) == ["message:propagated", "message:sent", "message:stored"]
        assert names.count("message:received") == 1
        assert unlike == []


@pytest.mark.parametrize("mode", MODES)
async def test_message_sent_must_be_dispatched_once_sending_is_false_and_sent_is_true(mode: str) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("node", *services, **properties(mode)) as node,
    ):
        await ready(node)
        records: list[MessageRecord] = []
        node.events.add_event_listener("message:sent", lambda event: records.append(event.detail))
        ids = [send(node, b"%d" % number) for number in range(10)]
        await settled([node])
        await trio.sleep(1)
        assert sorted(record.request_id or "" for record in records) == sorted(ids)
        assert {(record.sending, record.sent, record.error) for record in records} == {(False, True, None)}


async def test_handlers_are_triggered_in_the_order_of_subscription_and_may_fail() -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("node", *services) as node,
    ):
        await ready(node)
        called: list[str] = []

        def handler(name: str) -> Callable[[Event[MessageRecord]], None]:
            def handle(event: Event[MessageRecord]) -> None:
                called.append(name)
                raise ValueError("it does that")

            return handle

        for name in ("first", "second", "third"):
            node.events.add_event_listener("message:sent", handler(name))
        node.events.add_event_listener("message:nonsense", handler("never"))  # pyright: ignore[reportCallIssue, reportArgumentType]
        node.events.remove_event_listener("message:sent", handler("never added"))
        send(node)
        await settled([node])
        await trio.sleep(1)
        assert called == ["first", "second", "third"]


@pytest.mark.parametrize("mode", MODES)
async def test_message_received_must_be_dispatched_for_what_comes_by_a_subscription(mode: str) -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("node", *services, **properties(mode)) as node,
    ):
        records: list[MessageRecord] = []
        node.events.add_event_listener("message:received", lambda event: records.append(event.detail))
        await ready(node)
        await node.subscribe(node.codec(TOPIC))
        await services[0].relay.publish(SHARD, WakuMessage(b"theirs", TOPIC, timestamp_ns=now_of(node)))
        await trio.sleep(2)
        assert [(record.message.payload, record.received) for record in records] == [(b"theirs", True)]


# Message Storage


async def test_records_are_found_by_each_of_their_identifiers_and_nothing_by_others() -> None:
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("node", *services) as node,
    ):
        await ready(node)
        subscription = await node.subscribe(node.codec(TOPIC))
        request_id = send(node)
        await settled([node])
        record = await record_of(node, request_id)
        messages = node.messages
        for value in (record.message_hash, record.message_hash.hex(), f"0x{record.message_hash.hex()}"):
            assert await messages.get_by_hash(value) == record
        assert await messages.get_by_content_topic(TOPIC) == [record]
        assert await messages.get_by_subscription_id(subscription.id) == [record]
        for unknown in ("", "nonsense", b"\x01", bytes(32), "ff" * 32, "zz" * 32):
            assert await messages.get_by_hash(unknown) is None
        assert await messages.get_by_request_id("unknown") is None
        assert await messages.get_by_content_topic("/an/1/other/proto") == []
        assert await messages.get_by_subscription_id("unknown") == []


async def test_skip_and_take_cut_lists() -> None:
    async with open_waku_world() as world, world.node("alone") as node:
        for number in range(5):
            send(node, b"%d" % number)

        async def page(*cut: int) -> list[bytes]:
            return [each.message.payload for each in await node.messages.get_by_content_topic(TOPIC, *cut)]

        assert await page() == [b"0", b"1", b"2", b"3", b"4"]
        assert await page(1, 2) == [b"1", b"2"]
        assert await page(3) == [b"3", b"4"]
        assert await page(3, 100) == [b"3", b"4"]
        assert await page(5) == await page(0, 0) == await page(100, 1) == []


# The journal


def rows_of(path: Path, request_id: str | None = None) -> list[Row]:
    """The rows of a journal, or those of one request."""
    rows: list[Row] = read_journal(path).to_pylist()
    return [row for row in rows if request_id is None or row["request_id"] == request_id]


def test_every_event_of_the_messaging_api_is_documented_with_its_columns() -> None:
    page = (Path(__file__).parents[2] / "docs" / "journal.md").read_text()
    source = (Path(__file__).parents[2] / "src/pywaku/messaging/reports.py").read_text()
    written = set(re.findall(r'"((?:message|[a-z_]*health):[a-z]+)"', source))
    written |= {"message:requested", "message:attempt", "message:cancelled"}
    table = page.split("## Events")[1].split("## Versions")[0]
    documented = {
        name
        for name in re.findall(r"`([a-z_]+:[a-z]+)`", table)
        if name.startswith(("message", "health", "shard", "content"))
    }
    assert documented == written


async def test_a_run_leaves_rows_of_all_that_happened_in_order(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    async with open_waku_world() as world, open_services(world, 3, stores=1) as services:
        edge = properties("edge", store_confirmation=True, journal_path=path)
        async with world.node("edge", *services, **edge) as node:
            await ready(node)
            subscription = await node.subscribe(node.codec(TOPIC), capacity=1)
            request_id = send(node, b"mine")
            await settled([node])
            await trio.sleep(70)
            for number in range(3):
                theirs = WakuMessage(b"theirs %d" % number, TOPIC, timestamp_ns=now_of(node))
                await services[0].relay.publish(SHARD, theirs)
                await trio.sleep(1)
            await trio.sleep(70)
            record = await record_of(node, request_id)
    rows = rows_of(path)
    assert (rows[0]["event"], rows[-1]["event"]) == ("journal:opened", "journal:closed")
    assert [row["sequence"] for row in rows] == list(range(len(rows)))
    assert {row["node_id"] for row in rows} == {str(node.peer_id)}
    assert [row["monotonic_ns"] for row in rows] == sorted(row["monotonic_ns"] for row in rows)
    health = [row["state"] for row in rows if row["event"] == "health:change"]
    assert "Healthy" in health
    assert all(sooner != later for sooner, later in pairwise(["Unhealthy", *health]))

    mine = rows_of(path, request_id)
    names = [row["event"] for row in mine]
    order = list(dict.fromkeys(name for name in names if name != "message:received"))
    assert order[:3] == ["message:requested", "message:attempt", "message:propagated"]
    for name in ("message:sent", "message:received", "message:stored"):
        assert names.count(name) == 1
    for row in mine:
        assert row["message_hash"] == record.message_hash
        assert (row["pubsub_topic"], row["content_topic"]) == (SHARD, TOPIC)
        assert (row["message_timestamp_ns"], row["size"]) == (record.message.timestamp_ns, 4)
    by_name = {row["event"]: row for row in mine}
    peers = {str(service.peer_id) for service in services}
    assert (by_name["message:attempt"]["attempt"], by_name["message:attempt"]["error"]) == (1, None)
    assert by_name["message:attempt"]["peer"] in peers
    assert by_name["message:sent"]["attempt"] == 1
    assert (by_name["message:received"]["source"], by_name["message:received"]["peer"] in peers) == (
        "filter",
        True,
    )
    assert (by_name["message:stored"]["source"], by_name["message:stored"]["peer"]) == (
        "store",
        str(services[2].peer_id),
    )

    theirs = [row for row in rows if row["event"] == "message:received" and row["request_id"] is None]
    assert len(theirs) == 3
    assert {row["source"] for row in theirs} == {"filter"}
    hashes = {row["message_hash"] for row in theirs}
    stored = [row for row in rows if row["event"] == "message:stored" and row["message_hash"] in hashes]
    assert {row["message_hash"] for row in stored} == hashes
    dropped = [row for row in rows if row["event"] == "message:dropped"]
    assert {row["subscription_id"] for row in dropped} == {subscription.id}
    assert len(dropped) == subscription.dropped == 3
    topics = [row for row in rows if row["event"] == "content_topic_health:change"]
    assert {(row["pubsub_topic"], row["content_topic"]) for row in topics} == {(SHARD, TOPIC)}


async def test_rows_tell_of_failed_attempts_errors_and_cancelled_requests(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("edge", *services, mode="edge", journal_path=path) as node,
    ):
        await ready(node)

        async def refuse(*_: Any, **__: Any) -> PushResult:
            return PushResult(429, "slow down")

        light_of(node)._pushing._lightpush.push = refuse
        failed = send(node, b"failed")
        await settled([node])
        cancelled = send(node, b"cancelled")
        node.cancel_request(cancelled)
    rows = rows_of(path, failed)
    assert [(row["event"], row["attempt"]) for row in rows] == [
        ("message:requested", None),
        *(("message:attempt", number) for number in range(1, 5)),
        ("message:error", 4),
    ]
    assert all("429 slow down" in row["error"] for row in rows[1:])
    assert [row["event"] for row in rows_of(path, cancelled)] == ["message:requested", "message:cancelled"]


async def test_a_store_that_lacks_a_message_leaves_rows_of_resending(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    async with open_waku_world() as world, open_services(world, 2, stores=1) as services:

        async def forget(*_: Any, **__: Any) -> int:
            return 0

        world.archives["service-1"].insert = forget
        async with world.node(
            "edge",
            *services,
            mode="edge",
            store_confirmation=True,
            subscribe_on_send=False,
            journal_path=path,
        ) as node:
            await ready(node)
            request_id = send(node)
            await settled([node], seconds=120)
    names = [row["event"] for row in rows_of(path, request_id) if row["event"] != "message:attempt"]
    assert names == [
        "message:requested",
        "message:propagated",
        *["message:resending"] * 3,
        "message:error",
    ]


async def test_a_message_that_is_not_confirmed_is_propagated_and_sent_at_once(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    async with (
        open_waku_world() as world,
        open_services(world, 2) as services,
        world.node("node", *services, journal_path=path) as node,
    ):
        await ready(node)
        request_id = send(node)
        await settled([node])
    assert [row["event"] for row in rows_of(path, request_id)] == [
        "message:requested",
        "message:attempt",
        "message:propagated",
        "message:sent",
    ]
