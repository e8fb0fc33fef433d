"""Messages of a node that come back to it (`Relay.on_echo`), between simulated hosts."""

from __future__ import annotations

import random

import pytest
import trio

from pywaku.errors import NodeClosed
from pywaku.ids import PeerId
from pywaku.network.simulated import LinkProfile, LogNormal
from tests.support.relays import TOPIC, message, open_nodes, open_world

Heard = list[tuple[bytes, PeerId]]


@pytest.mark.virtual
async def test_a_listener_hears_of_a_published_message_that_a_peer_sends() -> None:
    heard: Heard = []
    async with open_world() as world:
        world.relay.on_echo(lambda message_id, peer: heard.append((message_id, peer)))
        outcome = await world.relay.publish(TOPIC, message("own"))
        await trio.sleep(1)
        assert heard == []
        await world.arrive(message("own"))
        assert heard == [(outcome.message_id, world.raw.network.peer_id)]
        assert len(world.received) == 1, "delivered once, when it was published"
        assert world.counters.duplicates == 1


@pytest.mark.virtual
async def test_messages_of_others_are_no_echoes() -> None:
    heard: Heard = []
    async with open_world() as world:
        world.relay.on_echo(lambda message_id, peer: heard.append((message_id, peer)))
        await world.arrive(message("theirs"), message("theirs"))
        assert world.counters.duplicates == 1
    assert heard == []


@pytest.mark.virtual
async def test_who_has_left_hears_no_more_and_others_go_on() -> None:
    one: list[bytes] = []
    two: list[bytes] = []
    async with open_world() as world:
        leave = world.relay.on_echo(lambda message_id, _: one.append(message_id))
        leave_too = world.relay.on_echo(lambda message_id, _: two.append(message_id))
        await world.relay.publish(TOPIC, message("own"))
        await world.arrive(message("own"))
        leave()
        leave()  # once more does nothing
        await world.arrive(message("own"))
        assert (len(one), len(two)) == (1, 2)
        leave_too()
        await world.arrive(message("own"))
        assert (len(one), len(two)) == (1, 2)
        assert world.relay.router.counters.echoes == 2, "nobody asks, so nobody looks"
        world.relay.on_echo(lambda message_id, _: one.append(message_id))
        await world.arrive(message("own"))
        assert len(one) == 2


@pytest.mark.virtual
async def test_a_listener_that_fails_or_leaves_meanwhile_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[str] = []
    async with open_world() as world:

        def fail(message_id: bytes, peer: PeerId) -> None:
            calls.append("failed")
            raise ValueError("so")

        def once(message_id: bytes, peer: PeerId) -> None:
            calls.append("once")
            leave()

        world.relay.on_echo(fail)
        leave = world.relay.on_echo(once)
        world.relay.on_echo(lambda message_id, peer: calls.append("last"))
        await world.relay.publish(TOPIC, message("own"))
        await world.arrive(message("own"), message("own"))
        await world.arrive(message("theirs"))
        assert calls == ["failed", "once", "last", "failed", "last"]
        assert world.counters.callback_errors == 2
        assert len(world.received) == 2
    assert "echo listener failed error=ValueError" in caplog.text


@pytest.mark.virtual
async def test_a_closed_relay_has_no_echoes() -> None:
    async with open_world() as world:
        pass
    with pytest.raises(NodeClosed):
        world.relay.on_echo(lambda message_id, peer: None)


@pytest.mark.virtual
async def test_in_a_network_most_messages_come_back_by_some_peer() -> None:
    link = LinkProfile(latency=LogNormal(0.05))
    rng = random.Random(1)
    heard: Heard = []
    async with open_nodes(20, link=link, joined=True) as nodes:
        one, *others = nodes
        one.relay.on_echo(lambda message_id, peer: heard.append((message_id, peer)))
        published = set[bytes]()
        for number in range(50):
            published.add((await one.relay.publish(TOPIC, message(number))).message_id)
            await rng.choice(others).relay.publish(TOPIC, message(f"other {number}"))
            await trio.sleep(1)
    echoed = {message_id for message_id, _ in heard}
    assert echoed <= published
    assert len(echoed) > len(published) / 2
    assert {peer for _, peer in heard} <= {node.network.peer_id for node in others}
