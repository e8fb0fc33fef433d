"""The light node of js-waku (`@waku/sdk`) at a service node of pywaku: over WebSocket, noise and mplex."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
import trio

import interop
from interop.node import find_node, what_is_missing
from interop.peer_process import PeerProcess, open_peer_process
from pywaku.archive import StoredMessage
from pywaku.ids import PeerId
from pywaku.keys import PrivateKey
from pywaku.message import WakuMessage
from pywaku.protocols.lightpush import PROTOCOL
from pywaku.protocols.service import RateLimit
from pywaku.wire.enr import Capability, Enr, RelayShards
from pywaku.wire.metadata import Metadata
from pywaku.wire.multiaddr import Multiaddr
from tests.support.service_node import (
    CLUSTER,
    SHARDING,
    SHARDS,
    ServiceNode,
    open_edge_node,
    open_neighbour,
    open_service_node,
    until,
    without_rates,
)

SCRIPT = Path(interop.__path__[0]) / "js-waku" / "waku.mjs"


def missing() -> str | None:
    """Why the node cannot be started here; None when all is there."""
    if not (SCRIPT.parent / "node_modules" / "@waku" / "sdk").is_dir():
        return what_is_missing() or "js-waku is not installed: run 'interop/node-setup.sh python3'"
    return what_is_missing()


MISSING = missing()
pytestmark = [pytest.mark.interop, pytest.mark.skipif(MISSING is not None, reason=MISSING or "")]

CONTENT_TOPIC = "/pywaku/1/interop/proto"
TOPIC = SHARDING.pubsub_topic(CONTENT_TOPIC)
REFUSED = "Remote peer rejected"  # all that js-waku says of any status but success


@asynccontextmanager
async def open_waku(service: ServiceNode, **options: Any) -> AsyncGenerator[PeerProcess]:
    """A light node that has found the service node by itself and knows what it serves."""
    async with open_stranger(service, **options) as js:
        await js.call("waitForPeers")
        while service.peer not in [one["peer"] for one in await js.call("peers") if one["protocols"]]:
            await trio.sleep(0.02)
        yield js


@asynccontextmanager
async def open_stranger(service: ServiceNode, **options: Any) -> AsyncGenerator[PeerProcess]:
    """A light node that knows nothing but the address of the service node."""
    node = find_node()
    assert node is not None
    arguments = json.dumps({"bootstrap": [str(service.ws)], "cluster": CLUSTER, "shards": SHARDS, **options})
    async with open_peer_process([node, "--expose-gc", str(SCRIPT), arguments]) as js:
        yield js


def message(content_topic: str = CONTENT_TOPIC, size: int = 200, **attributes: Any) -> WakuMessage:
    """A message with a random payload, sent now."""
    return WakuMessage(os.urandom(size), content_topic, timestamp_ns=time.time_ns(), **attributes)


async def fill(service: ServiceNode, messages: Sequence[WakuMessage]) -> list[str]:
    """Have the service node store messages; their hashes in the order of the store."""
    stored = [StoredMessage.of(TOPIC, one, time.time_ns()) for one in messages]
    assert await service.archive.insert(stored) == len(messages)
    return [
        one.message_hash.hex() for one in sorted(stored, key=lambda it: (it.timestamp_ns, it.message_hash))
    ]


def flat(pages: list[list[str]]) -> list[str]:
    """The entries of all pages."""
    return [entry for page in pages for entry in page]


async def test_a_node_finds_the_service_node_and_both_learn_who_the_other_is() -> None:
    async with open_service_node() as service, open_waku(service) as js:
        (connection,) = await js.call("connections")
        with trio.fail_after(10):  # it asks for metadata once it knows the protocols
            while not (await js.call("peers"))[0]["shardInfo"]:
                await trio.sleep(0.02)
        (peer,) = await js.call("peers")
        known = service.metadata.of(PeerId.from_text(js.peer))
        assert await js.call("connected")
        assert await js.call("ping", peer=service.peer) >= 0

    assert (connection["muxer"], connection["encryption"]) == ("/mplex/6.7.0", "/noise")
    assert "/ws/" in connection["address"]
    assert peer["shardInfo"] == {"clusterId": CLUSTER, "shards": list(range(SHARDS))}
    assert known == Metadata(CLUSTER)  # light nodes are on no shard
    assert {"/vac/waku/lightpush/3.0.0", "/vac/waku/filter-subscribe/2.0.0-beta1"} <= set(peer["protocols"])


async def test_nodes_of_another_cluster_are_let_go() -> None:
    async with open_service_node() as service, open_stranger(service, cluster=CLUSTER + 1):
        await until(lambda: service.metadata.counters.disconnected > 0)
        await until(lambda: not service.network.peers)


async def test_content_topics_are_on_the_same_shards() -> None:
    topics = [f"/app-{number}/{number % 3}/name-{number}/proto" for number in range(200)]
    topics += [f"/0{topic}" for topic in topics]
    async with open_service_node() as service, open_stranger(service) as js:
        theirs = await js.call("pubsubTopics", contentTopics=topics)
    assert theirs == [SHARDING.pubsub_topic(topic) for topic in topics]
    assert len(set(theirs)) == SHARDS


async def test_a_thousand_pushes_32_at_a_time_are_acknowledged_and_reach_relay_and_light_nodes() -> None:
    async with (
        open_service_node() as service,
        open_neighbour(service, TOPIC) as (_, relayed),
        open_edge_node(service, TOPIC, CONTENT_TOPIC) as edge,
        open_waku(service) as js,
    ):
        (before,) = await js.call("connections")
        sent = await js.call("push", contentTopic=CONTENT_TOPIC, count=1000, concurrency=32)
        assert sent["errors"] == {}
        assert len(sent["acknowledged"]) == 1000
        await relayed.wait(1000)
        await edge.hearing.wait(1000)
        await service.writer.flush()

        assert Counter(relayed.messages) == Counter(sent["acknowledged"])
        assert Counter(edge.hearing.messages) == Counter(sent["acknowledged"])
        assert (await service.archive.stats()).messages == 1000
        (after,) = await js.call("connections")
        assert after["opened"] == before["opened"]


async def test_pushes_by_the_legacy_protocol_are_acknowledged() -> None:
    async with (
        open_service_node() as service,
        open_neighbour(service, TOPIC) as (_, relayed),
        open_waku(service) as js,
    ):
        sent = await js.call("push", contentTopic=CONTENT_TOPIC, count=200, concurrency=32, legacy=True)
        await relayed.wait(200)
        assert sent["errors"] == {}
        assert Counter(relayed.messages) == Counter(sent["acknowledged"])
        assert service.lightpush.legacy_requests.counters.answered == 200


async def test_refused_pushes_leave_the_connection_alone() -> None:
    few = RateLimit(100, 1000.0)  # however slow the machine is
    async with (
        open_service_node(limits=lambda usual: replace(usual, per_peer=few)) as service,
        open_waku(service) as js,
    ):
        lonely = await js.call("push", contentTopic=CONTENT_TOPIC, count=3)
        assert lonely["errors"] == {REFUSED: 3}, "there was nobody to relay to"

        async with open_neighbour(service, TOPIC) as (_, relayed):
            sent = await js.call("push", contentTopic=CONTENT_TOPIC, count=500, concurrency=32)
            limited = service.lightpush.requests.counters.limited
            assert limited > 0
            assert sent["errors"] == {REFUSED: limited}
            assert len(sent["acknowledged"]) == 500 - limited
            await relayed.wait(500 - limited)
            assert await js.call("ping", peer=service.peer) >= 0
            assert len(await js.call("connections")) == 1


async def test_a_thousand_messages_are_pushed_to_a_subscriber_and_none_is_lost() -> None:
    async with (
        open_service_node() as service,
        open_neighbour(service, TOPIC) as (relay, _),
        open_waku(service) as js,
    ):
        (before,) = await js.call("connections")
        assert await js.call("subscribe", contentTopic=CONTENT_TOPIC)
        sent = [await relay.publish(TOPIC, message()) for _ in range(1000)]
        await js.call("waitReceived", count=1000)
        for _ in range(150):  # one by one, more than js-waku has room for streams
            sent.append(await relay.publish(TOPIC, message()))
            await js.call("waitReceived", count=len(sent))

        got = await js.call("received")
        assert got["messages"] == Counter(one.message_hash.hex() for one in sent)
        assert got["pushes"] == len(sent)
        (after,) = await js.call("connections")
        assert after["opened"] == before["opened"]
        assert after["streams"].count("/vac/waku/filter-push/2.0.0-beta1") == 1
        assert await js.call("pingFilter", peer=service.peer) is None


async def test_subscriptions_on_several_shards_come_and_go() -> None:
    topics = [f"/pywaku-{number}/1/interop/proto" for number in range(8)]
    places = [SHARDING.pubsub_topic(topic) for topic in topics]
    async with open_service_node() as service, open_waku(service) as js:
        assert await js.call("pingFilter", peer=service.peer) == REFUSED
        for topic in topics:
            assert await js.call("subscribe", contentTopic=topic)
        first = [
            await service.relay.publish(place, message(topic))
            for topic, place in zip(topics, places, strict=True)
        ]
        await js.call("waitReceived", count=len(topics))

        assert await js.call("unsubscribe", contentTopic=topics[0])
        await until(lambda: service.filter.counters.answers.get(200) == len(topics) + 1)
        second = [
            await service.relay.publish(place, message(topic))
            for topic, place in zip(topics, places, strict=True)
        ]
        await js.call("waitReceived", count=2 * len(topics) - 1)

        for topic in topics[1:]:
            assert await js.call("unsubscribe", contentTopic=topic)
        while await js.call("pingFilter", peer=service.peer) is None:
            await trio.sleep(0.02)
        got = await js.call("received")
        assert set(got["messages"]) == {one.message_hash.hex() for one in [*first, *second[1:]]}
        assert len(set(places)) > 1


async def test_a_node_that_was_disconnected_comes_back_and_hears_again() -> None:
    async with open_service_node() as service, open_waku(service) as js:
        assert await js.call("subscribe", contentTopic=CONTENT_TOPIC)
        await service.relay.publish(TOPIC, message())
        await js.call("waitReceived", count=1)
        peer = PeerId.from_text(js.peer)
        (before,) = await js.call("connections")
        await service.network.disconnect(peer)
        while before["opened"] in [one["opened"] for one in await js.call("connections")]:
            await trio.sleep(0.02)
        away = await service.relay.publish(TOPIC, message())
        await js.call("dial", address=str(service.ws))  # by itself it would do so after some seconds
        later = await service.relay.publish(TOPIC, message())
        await js.call("waitReceived", count=3)

        got = await js.call("received")
        assert {away.message_hash.hex(), later.message_hash.hex()} <= set(got["messages"])


async def test_streams_that_are_kept_ready_and_reset_for_it_do_no_harm() -> None:
    # js-waku opens a stream for each protocol at once, to have it when it is needed.
    async with (
        open_service_node(limits=lambda usual: replace(without_rates(usual), timeout_s=1.0)) as service,
        open_neighbour(service, TOPIC),
        open_waku(service) as js,
    ):
        requests = service.lightpush.requests
        await until(lambda: requests.counters.timed_out > 0)
        while PROTOCOL in (await js.call("connections"))[0]["streams"]:
            await trio.sleep(0.02)
        sent = await js.call("push", contentTopic=CONTENT_TOPIC, count=20, concurrency=4)
        assert sent["errors"] == {}
        assert len(sent["acknowledged"]) == 20
        assert await js.call("subscribe", contentTopic=CONTENT_TOPIC)
        assert await js.call("pingFilter", peer=service.peer) is None
        assert len(await js.call("connections")) == 1


async def test_light_nodes_of_both_kinds_hear_each_other_at_the_same_time() -> None:
    async with (
        open_service_node() as service,
        open_neighbour(service, TOPIC),
        open_edge_node(service, TOPIC, CONTENT_TOPIC) as edge,
        open_waku(service) as js,
    ):
        assert await js.call("subscribe", contentTopic=CONTENT_TOPIC)
        theirs: dict[str, Any] = {}

        async def they_push() -> None:
            theirs.update(await js.call("push", contentTopic=CONTENT_TOPIC, count=300, concurrency=16))

        async def we_push() -> None:
            for _ in range(300):
                outcome = await edge.lightpush.push(service.network.peer_id, None, message())
                assert outcome.is_success, outcome

        async with trio.open_nursery() as nursery:
            nursery.start_soon(they_push)
            nursery.start_soon(we_push)
        await js.call("waitReceived", count=600)
        await edge.hearing.wait(600)
        assert theirs["errors"] == {}
        assert (await js.call("received"))["messages"] == edge.hearing.messages
        assert set(theirs["acknowledged"]) <= set(edge.hearing.messages)


async def test_two_service_nodes_are_used_at_once_and_one_is_enough() -> None:
    async with (
        open_service_node() as first,
        open_edge_node(first, TOPIC, CONTENT_TOPIC) as edge,
        open_waku(first) as js,
    ):
        async with open_service_node() as second:
            await second.network.connect(first.tcp)
            await until(lambda: first.network.peer_id in second.relay.mesh(TOPIC))
            await until(lambda: second.network.peer_id in first.relay.mesh(TOPIC))
            await js.call("dial", address=str(second.ws))
            while len([one for one in await js.call("peers") if one["shardInfo"]]) < 2:
                await trio.sleep(0.02)
            assert await js.call("subscribe", contentTopic=CONTENT_TOPIC)

            # Each message goes to both, and the one that has it from the other acknowledges it as well.
            sent = await js.call("push", contentTopic=CONTENT_TOPIC, count=100, concurrency=8)
            assert sent["errors"] == {}
            assert len(sent["acknowledged"]) == 100
            assert first.lightpush.requests.counters.answered == 100
            assert second.lightpush.requests.counters.answered == 100

            await js.call("waitReceived", count=100)
            await edge.hearing.wait(100)
            while (got := await js.call("received"))["pushes"] < 200:
                await trio.sleep(0.02)
            assert got["messages"] == edge.hearing.messages == Counter(sent["acknowledged"])

        while len(await js.call("connections")) > 1:
            await trio.sleep(0.02)
        async with open_neighbour(first, TOPIC):
            later = await js.call("push", contentTopic=CONTENT_TOPIC, count=100, concurrency=8)
            await js.call("waitReceived", count=200)
        assert later["errors"] == {}
        assert len(later["acknowledged"]) == 100


async def test_stored_messages_are_paged_through_both_ways() -> None:
    # Between the milliseconds: js-waku's times are up to 128 ns off, being floating point numbers.
    first_ms = time.time_ns() // 1_000_000
    timestamps = [first_ms * 1_000_000 + 500_000 + number // 30 * 1_000_000 for number in range(1050)]
    # Many have one timestamp, so that hashes decide. Those on the other content topic are not asked for.
    messages = [
        WakuMessage(b"%d" % number, CONTENT_TOPIC, timestamp_ns=timestamp)
        for number, timestamp in enumerate(timestamps)
    ]
    span: dict[str, Any] = {"from": first_ms + 5, "to": first_ms + 10}
    async with open_service_node() as service:
        hashes = await fill(service, messages)
        await fill(service, [message("/pywaku/1/other/proto") for _ in range(50)])
        async with open_waku(service) as js:
            for forward in (True, False):

                async def query(*, forward: bool = forward, **options: Any) -> list[list[str]]:
                    """The pages in the order of the store; each is so by itself."""
                    result = await js.call("query", contentTopics=[CONTENT_TOPIC], forward=forward, **options)
                    return result["pages"] if forward else result["pages"][::-1]

                hundreds = await query(pageSize=100)
                assert sorted(len(page) for page in hundreds) == [50] + [100] * 10
                assert flat(hundreds) == hashes

                few = await query(maxPages=3)
                assert [len(page) for page in few] == [20] * 3  # the size for those who ask for none
                assert flat(few) == (hashes[:60] if forward else hashes[-60:])

                assert flat(await query(pageSize=7, **span)) == hashes[5 * 30 : 10 * 30]


async def test_what_a_node_sends_it_finds_in_the_store_by_topic_and_by_hash() -> None:
    async with (
        open_service_node() as service,
        open_neighbour(service, TOPIC) as (_, relayed),
        open_waku(service) as js,
    ):
        sent = await js.call("push", contentTopic=CONTENT_TOPIC, count=30)
        passing = await js.call("push", contentTopic=CONTENT_TOPIC, count=5, ephemeral=True)
        assert sent["errors"] == passing["errors"] == {}
        await relayed.wait(35)
        await service.writer.flush()

        kept = await js.call("query", contentTopics=[CONTENT_TOPIC], pageSize=100)
        some = sent["acknowledged"][:10]
        absent = [*passing["acknowledged"], "00" * 32]
        found = await js.call(
            "query", contentTopics=[CONTENT_TOPIC], hashes=[*some, *absent], pageSize=100, maxPages=1
        )
        nothing = await js.call("query", contentTopics=["/pywaku/1/nothing/proto"])
    (page,) = kept["pages"]
    assert sorted(page) == sorted(sent["acknowledged"])
    assert sorted(found["pages"][0]) == sorted(some)
    assert nothing["pages"] == []


async def test_messages_of_the_largest_size_pass_each_protocol() -> None:
    size = 150 * 1024 - 100  # 150 KiB with all attributes (64/WAKU2-NETWORK, Message Size)
    async with (
        open_service_node() as service,
        open_neighbour(service, TOPIC) as (_, relayed),
        open_waku(service) as js,
    ):
        assert await js.call("subscribe", contentTopic=CONTENT_TOPIC)
        sent = await js.call("push", contentTopic=CONTENT_TOPIC, count=60, concurrency=8, size=size)
        assert sent["errors"] == {}
        await js.call("waitReceived", count=60)
        await relayed.wait(60)
        await service.writer.flush()
        # 9 MB: js-waku takes responses of 4 MiB, so the pages are shorter than what it asks for.
        result = await js.call("query", contentTopics=[CONTENT_TOPIC], pageSize=100)
        too_large = await js.call("push", contentTopic=CONTENT_TOPIC, count=1, size=151 * 1024)

    assert len(result["pages"]) > 2
    assert Counter(one for page in result["pages"] for one in page) == Counter(sent["acknowledged"])
    assert too_large["errors"] == {REFUSED: 1}


async def test_a_node_connects_to_the_peers_that_it_is_told_of() -> None:
    key = PrivateKey.generate()
    shards = RelayShards(CLUSTER, tuple(range(SHARDS)))
    addresses = [
        "/ip4/192.0.2.1/tcp/60000",
        "/ip4/192.0.2.1/tcp/8000/ws",
        "/dns4/node.example.org/tcp/443/wss",
    ]
    elsewhere = Enr.create(
        PrivateKey.generate(),
        ip=IPv4Address("192.0.2.1"),
        tcp=60000,
        multiaddrs=[Multiaddr.parse(address) for address in addresses[1:]],
        shards=RelayShards(CLUSTER + 1, (3,)),
        capabilities=Capability.STORE | Capability.FILTER,
    )
    async with open_service_node(key=key) as other:
        known = Enr.create(key, multiaddrs=[other.ws], shards=shards, capabilities=Capability.RELAY)
        async with (
            open_service_node(records=[known, elsewhere]) as service,
            open_waku(service, peerExchange=True) as js,
        ):
            me = PeerId.from_text(js.peer)
            await until(lambda: me in other.network.peers)
            told = await js.call("peerExchange", peer=service.peer, count=10)
            (one,) = await js.call("peerExchange", peer=service.peer, count=1)
            assert one in told

    first, second = sorted(told, key=lambda one: one["peer"] != other.peer)
    assert first == {
        "peer": other.peer,
        "addresses": [str(other.ws)],
        "shardInfo": {"clusterId": CLUSTER, "shards": list(range(SHARDS))},
        "waku": {"relay": True, "store": False, "filter": False, "lightPush": False},
    }
    assert second == {
        "peer": str(elsewhere.peer_id),
        "addresses": [f"{address}/p2p/{elsewhere.peer_id}" for address in addresses],
        "shardInfo": {"clusterId": CLUSTER + 1, "shards": [3]},
        "waku": {"relay": False, "store": True, "filter": True, "lightPush": False},
    }
