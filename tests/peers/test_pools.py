"""Pools, live, on simulated networks: who is connected, who is used, and what happens when nodes fail."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import pytest
import trio

from pywaku.errors import NodeClosed
from pywaku.ids import PeerId
from pywaku.network.libp2p.host import open_network
from pywaku.network.simulated import SimulatedNetwork, SimulatedWorld
from pywaku.peers.entry import Candidate, Origin
from pywaku.peers.manager import PeerManager, PeersOptions, open_peers
from pywaku.peers.pool import Ping, Replace, Use
from pywaku.peers.pools import NodePool, PoolEvent, Pools, open_pools
from pywaku.peers.selection import Need
from pywaku.peers.services import (
    CONNECTION_LOST,
    OK,
    TIMED_OUT,
    UNSUITABLE,
    Outcome,
    PoolPolicy,
    Result,
    Service,
)
from pywaku.protocols.metadata import Metadata, open_metadata
from pywaku.wire.filter import SUBSCRIBE_PROTOCOL
from pywaku.wire.lightpush import PROTOCOL as LIGHTPUSH
from pywaku.wire.multiaddr import Multiaddr
from tests.support.networks import echo, eventually

NEED = Need(Service.LIGHTPUSH)
FILTER = Need(Service.FILTER)
OPTIONS = PeersOptions(transports=frozenset({"memory"}))
PING_OK = Outcome(Result.OK, 200, ping=True)
PING_FAILED = Outcome(Result.TIMED_OUT, ping=True)


class Scene(NamedTuple):
    """An edge node with its book and pools, and some service nodes that it does not know yet."""

    world: SimulatedWorld
    edge: SimulatedNetwork
    manager: PeerManager
    pools: Pools
    nodes: list[SimulatedNetwork]

    def learn(self, *nodes: SimulatedNetwork, origin: Origin = Origin.STATIC) -> None:
        self.manager.learn(Candidate(node.peer_id, node.addresses, origin) for node in nodes)


@asynccontextmanager
async def open_scene(
    count: int, *, metadata: Metadata | None = None, options: PeersOptions = OPTIONS
) -> AsyncGenerator[Scene, None]:
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(SimulatedWorld(1))
        edge = await stack.enter_async_context(world.host("edge"))
        nodes: list[SimulatedNetwork] = []
        for n in range(count):
            node = await stack.enter_async_context(world.host(f"node {n}"))
            node.serve(LIGHTPUSH, echo)
            node.serve(SUBSCRIBE_PROTOCOL, echo)
            nodes.append(node)
        manager = await stack.enter_async_context(
            open_peers(
                edge,
                metadata=None if metadata is None else metadata.of,
                options=options,
                rng=random.Random(1),
                clock=trio.current_time,
            )
        )
        pools = await stack.enter_async_context(open_pools(manager))
        yield Scene(world, edge, manager, pools, nodes)


def heard_by(pool: NodePool) -> list[PoolEvent]:
    events: list[PoolEvent] = []
    pool.watch(events.append)
    return events


def others(scene: Scene, used: tuple[PeerId, ...]) -> set[PeerId]:
    return {node.peer_id for node in scene.nodes} - set(used)


@pytest.mark.virtual
async def test_a_pool_connects_with_two_nodes_and_no_more() -> None:
    async with open_scene(5) as scene:
        scene.learn(*scene.nodes)
        pool = scene.pools.open(NEED)
        assert len(await pool.wait_for(2)) == 2
        await trio.sleep(100)
        assert set(scene.edge.peers) == set(pool.in_use)
        assert pool.in_use == await pool.wait_for()


@pytest.mark.virtual
async def test_a_pool_fills_as_soon_as_nodes_become_known() -> None:
    async with open_scene(2) as scene:
        pool = scene.pools.open(NEED)
        await trio.sleep(50)
        assert pool.in_use == ()
        assert pool.counters.discoveries > 1
        scene.learn(*scene.nodes)
        with trio.fail_after(2):
            await pool.wait_for(2)


@pytest.mark.virtual
async def test_a_need_has_one_pool() -> None:
    async with open_scene(1) as scene:
        pool = scene.pools.open(NEED)
        assert scene.pools.open(NEED) is pool
        assert scene.pools.open(FILTER) is not pool


@pytest.mark.virtual
async def test_a_failing_node_is_replaced_at_once_and_its_place_taken() -> None:
    async with open_scene(3) as scene:
        scene.learn(*scene.nodes)
        pool = scene.pools.open(NEED)
        first, second = await pool.wait_for(2)
        (third,) = others(scene, (first, second))
        events = heard_by(pool)
        assert events == [Use(first), Use(second)]
        events.clear()
        pool.report(first, TIMED_OUT)
        assert events == [Replace(first, third, TIMED_OUT)]
        assert pool.in_use == (second,)
        assert await pool.wait_for(2) == (second, third)
        assert events == [Replace(first, third, TIMED_OUT), Use(third)]
        entry = scene.manager.book.get(first)
        assert entry is not None
        assert entry.failures == 1


@pytest.mark.virtual
async def test_a_node_whose_connection_is_lost_is_replaced() -> None:
    async with open_scene(3) as scene:
        scene.learn(*scene.nodes)
        pool = scene.pools.open(NEED)
        first, second = await pool.wait_for(2)
        events = heard_by(pool)
        await scene.edge.disconnect(first)
        await trio.sleep(1)
        (third,) = others(scene, (first, second))
        assert pool.in_use == (second, third)
        assert Replace(first, third, CONNECTION_LOST) in events


@pytest.mark.virtual
async def test_nodes_that_cannot_be_reached_are_passed_over() -> None:
    async with open_scene(4) as scene:
        for node in scene.nodes[:2]:
            scene.world.stall(node)
        scene.learn(*scene.nodes)
        pool = scene.pools.open(NEED)
        with trio.fail_after(60):
            assert set(await pool.wait_for(2)) == {node.peer_id for node in scene.nodes[2:]}


@pytest.mark.virtual
async def test_a_node_that_does_not_provide_the_service_is_not_used() -> None:
    async with open_scene(2) as scene:
        scene.nodes[0].unserve(LIGHTPUSH)
        scene.learn(*scene.nodes)
        pool = scene.pools.open(NEED)
        await trio.sleep(20)
        assert pool.in_use == (scene.nodes[1].peer_id,)


@pytest.mark.virtual
async def test_a_node_that_stops_to_provide_the_service_is_replaced() -> None:
    async with open_scene(3) as scene:
        scene.learn(*scene.nodes)
        pool = scene.pools.open(NEED)
        first, second = await pool.wait_for(2)
        events = heard_by(pool)
        next(node for node in scene.nodes if node.peer_id == first).unserve(LIGHTPUSH)
        await trio.sleep(5)
        (third,) = others(scene, (first, second))
        assert pool.in_use == (second, third)
        assert Replace(first, third, UNSUITABLE) in events


@pytest.mark.virtual
async def test_a_node_that_turns_out_to_be_on_another_shard_is_replaced() -> None:
    need = Need(Service.LIGHTPUSH, 42, frozenset({0}))
    async with AsyncExitStack() as stack:
        scene = await stack.enter_async_context(open_scene(2))
        shards = [0], [1]
        for node, named in zip(scene.nodes, shards, strict=True):
            await stack.enter_async_context(open_metadata(node, cluster_id=42, shards=lambda n=named: n))
        metadata = await stack.enter_async_context(open_metadata(scene.edge, cluster_id=42))
        manager = await stack.enter_async_context(
            open_peers(scene.edge, metadata=metadata.of, options=OPTIONS, rng=random.Random(1))
        )
        pools = await stack.enter_async_context(open_pools(manager))
        manager.learn(Candidate(node.peer_id, node.addresses, Origin.STATIC) for node in scene.nodes)
        pool = pools.open(need)
        await trio.sleep(10)
        assert pool.in_use == (scene.nodes[0].peer_id,)


@pytest.mark.virtual
async def test_pings_are_wished_for_each_minute_and_two_failures_have_a_node_replaced() -> None:
    async with open_scene(3) as scene:
        scene.learn(*scene.nodes)
        pool = scene.pools.open(FILTER)
        first, second = await pool.wait_for(2)
        pings: list[tuple[int, PeerId]] = []

        def answer(event: PoolEvent) -> None:
            if isinstance(event, Ping):
                pings.append((round(trio.current_time() / 60), event.peer))
                pool.report(event.peer, PING_FAILED if event.peer == first else PING_OK)

        pool.watch(answer)
        await trio.sleep(190)
        (third,) = others(scene, (first, second))
        assert [minute for minute, peer in pings if peer == first] == [1, 2]
        assert [minute for minute, peer in pings if peer == second] == [1, 2, 3]
        assert pool.in_use == (second, third)


@pytest.mark.virtual
async def test_when_all_connections_go_at_once_the_nodes_are_not_to_blame() -> None:
    async with open_scene(4) as scene:
        scene.learn(*scene.nodes)
        pool = scene.pools.open(FILTER)
        before = await pool.wait_for(2)
        events = heard_by(pool)
        scene.pools.went_offline()
        for peer in before:
            await scene.edge.disconnect(peer)
        await trio.sleep(5)
        assert not any(isinstance(event, Replace) for event in events)
        assert pool.in_use == before, "they were dialed again"
        assert not scene.pools.offline
        pinged = {event.peer for event in events if isinstance(event, Ping)}
        assert pinged == set(before), "and pinged, as it is not known whether they still serve"


@pytest.mark.virtual
async def test_the_loss_of_all_connections_is_taken_for_an_absent_network_for_a_while() -> None:
    async with open_scene(3) as scene:
        scene.learn(*scene.nodes)
        pool = scene.pools.open(NEED)
        await pool.wait_for(2)
        for node in scene.nodes:
            scene.world.stall(node)
        for peer in pool.in_use:
            await scene.edge.disconnect(peer)
        assert scene.pools.offline
        await trio.sleep(31)
        assert not scene.pools.offline
        for node in scene.nodes:
            scene.world.resume(node)
        with trio.fail_after(120):
            await pool.wait_for(2)


@pytest.mark.virtual
async def test_a_closed_pool_does_nothing_more() -> None:
    async with open_scene(3) as scene:
        scene.learn(*scene.nodes)
        pool = scene.pools.open(NEED)
        events = heard_by(pool)
        used = await pool.wait_for(2)
        scene.pools.close(pool)
        count = len(events)
        await scene.edge.disconnect(used[0])
        await trio.sleep(100)
        assert len(events) == count
        assert len(scene.edge.peers) == 1
        assert scene.pools.open(NEED) is not pool


@pytest.mark.virtual
async def test_nobody_waits_for_nodes_of_a_closed_pool() -> None:
    async with open_scene(1) as scene:
        scene.learn(*scene.nodes)
        pool = scene.pools.open(NEED)
        await pool.wait_for(1)

        async def wait() -> None:
            with pytest.raises(NodeClosed):
                await pool.wait_for(2)

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.sleep(1)
                scene.pools.close(pool)
            await wait()


@pytest.mark.virtual
async def test_pools_end_with_the_room_for_them() -> None:
    async with open_scene(3) as scene:
        scene.learn(*scene.nodes)
        async with open_pools(scene.manager) as pools:
            pool = pools.open(NEED)
            used = await pool.wait_for(2)
        for peer in used:
            pool.report(peer, TIMED_OUT)
        with pytest.raises(NodeClosed):
            await pool.wait_for(3)


@pytest.mark.virtual
async def test_what_is_reported_to_a_closed_pool_changes_nothing() -> None:
    """Requests that were under way end after the pool."""
    async with open_scene(3) as scene:
        scene.learn(*scene.nodes)
        pool = scene.pools.open(NEED)
        events = heard_by(pool)
        used = await pool.wait_for(2)
        scene.pools.close(pool)
        await trio.sleep(1)
        count = len(events)
        for peer in used:
            pool.report(peer, TIMED_OUT)
        pool.went_offline()
        pool.came_online()
        await trio.sleep(1)
        assert len(events) == count


@pytest.mark.virtual
async def test_a_listener_that_fails_disturbs_nobody() -> None:
    async with open_scene(3) as scene:
        scene.learn(*scene.nodes)
        pool = scene.pools.open(NEED)

        def fail(event: PoolEvent) -> None:
            raise RuntimeError(str(event))

        pool.watch(fail)
        unwatch = pool.watch(fail)
        unwatch()
        unwatch()
        first, _ = await pool.wait_for(2)
        pool.report(first, OK)
        pool.report(first, CONNECTION_LOST)
        assert len(await pool.wait_for(2)) == 2


@pytest.mark.virtual
@pytest.mark.parametrize("seed", range(5))
async def test_a_pool_is_full_most_of_the_time_while_nodes_come_and_go(seed: int) -> None:
    rng = random.Random(seed)
    async with open_scene(8) as scene:
        scene.learn(*scene.nodes)
        pool = scene.pools.open(NEED, PoolPolicy(size=2))
        await pool.wait_for(2)
        full = 0
        for _ in range(300):
            await trio.sleep(1)
            full += len(pool.in_use) == 2
            if rng.random() < 0.1 and pool.in_use:
                await scene.edge.disconnect(rng.choice(pool.in_use))
            elif rng.random() < 0.1 and pool.in_use:
                pool.report(rng.choice(pool.in_use), rng.choice([TIMED_OUT, Outcome.of_status(503)]))
            assert set(pool.in_use) <= set(scene.edge.peers)
        assert full > 240


async def test_a_pool_works_on_real_sockets() -> None:
    listen = [Multiaddr.parse("/ip4/127.0.0.1/tcp/0")]
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(open_network(listen=listen)) for _ in range(3)]
        for node in nodes:
            node.serve(LIGHTPUSH, echo)
        edge = await stack.enter_async_context(open_network())
        manager = await stack.enter_async_context(open_peers(edge, rng=random.Random(1)))
        pools = await stack.enter_async_context(open_pools(manager))
        manager.learn(Candidate(node.peer_id, node.addresses, Origin.STATIC) for node in nodes)
        pool = pools.open(NEED)
        first, second = await pool.wait_for(2)
        await edge.disconnect(first)
        await eventually(lambda: len(pool.in_use) == 2)
        assert first not in pool.in_use
        assert second in pool.in_use
        pool.report(second, Outcome.of_status(503))
        await eventually(lambda: len(pool.in_use) == 2)
        assert set(edge.peers) >= set(pool.in_use)


@pytest.mark.virtual
async def test_filter_and_lightpush_use_different_nodes_where_there_are_enough() -> None:
    """Messages are verified through "a different service node than the one used for LightPush"."""
    async with open_scene(4) as scene:
        scene.learn(*scene.nodes)
        sending, receiving = scene.pools.open(NEED), scene.pools.open(FILTER)
        await eventually(lambda: len(sending.in_use) == len(receiving.in_use) == 2)
        assert not set(sending.in_use) & set(receiving.in_use)


@pytest.mark.virtual
async def test_filter_and_lightpush_share_nodes_where_there_are_two() -> None:
    async with open_scene(2) as scene:
        scene.learn(*scene.nodes)
        sending, receiving = scene.pools.open(NEED), scene.pools.open(FILTER)
        await eventually(lambda: len(sending.in_use) == len(receiving.in_use) == 2)


@pytest.mark.virtual
async def test_a_doubted_node_is_replaced_at_once() -> None:
    async with open_scene(3) as scene:
        scene.learn(*scene.nodes)
        pool = scene.pools.open(NEED)
        await eventually(lambda: len(pool.in_use) == 2)
        doubted = pool.in_use[0]
        pool.doubt(doubted)
        await eventually(lambda: len(pool.in_use) == 2)
        assert doubted not in pool.in_use
