"""The peer book, live, on simulated networks: events, metadata, discovery, dials and the file."""

from __future__ import annotations

import logging
import random
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from pywaku.errors import InvalidInput, NetworkError
from pywaku.network.port import Network
from pywaku.network.simulated import SimulatedNetwork, SimulatedWorld
from pywaku.peers.discovery import StaticDiscovery
from pywaku.peers.entry import Candidate, Origin
from pywaku.peers.manager import PeerManager, PeersOptions, open_peers
from pywaku.peers.selection import Need
from pywaku.peers.services import Service
from pywaku.protocols.metadata import open_metadata
from pywaku.wire.lightpush import PROTOCOL as LIGHTPUSH
from pywaku.wire.multiaddr import Multiaddr
from tests.support.networks import echo, eventually
from tests.support.peers import candidate_of, peer_of

START = 1_700_000_000.0
MEMORY = frozenset({"memory"})
OPTIONS = PeersOptions(transports=MEMORY)


def clock() -> float:
    return START + trio.current_time()


@asynccontextmanager
async def open_manager(
    network: Network, *, path: Path | None = None, options: PeersOptions = OPTIONS
) -> AsyncGenerator[PeerManager, None]:
    async with open_peers(network, path=path, options=options, rng=random.Random(1), clock=clock) as manager:
        yield manager


def found(network: SimulatedNetwork, origin: Origin = Origin.DNS) -> Candidate:
    return Candidate(network.peer_id, network.addresses, origin)


@pytest.mark.virtual
async def test_the_book_follows_the_network() -> None:
    async with (
        SimulatedWorld(1) as world,
        world.host("a") as a,
        world.host("b") as b,
        world.host("early") as early,
    ):
        b.serve(LIGHTPUSH, echo)
        await a.connect(early.addresses)
        await trio.sleep(1)
        async with open_manager(a) as manager:
            entry = manager.book.get(early.peer_id)
            assert entry is not None
            assert entry.connected
            await a.connect(b.addresses)
            await trio.sleep(1)
            entry = manager.book.get(b.peer_id)
            assert entry is not None
            assert entry.connected
            assert LIGHTPUSH in (entry.protocols or ())
            assert entry.addresses == b.addresses
            await trio.sleep(100)
            await a.disconnect(b.peer_id)
            entry = manager.book.get(b.peer_id)
            assert entry is not None
            assert not entry.connected
            assert entry.last_seen == pytest.approx(clock(), abs=1)


@pytest.mark.virtual
async def test_metadata_of_peers_comes_into_the_book() -> None:
    async with (
        SimulatedWorld(1) as world,
        world.host("a") as a,
        world.host("b") as b,
        open_metadata(b, cluster_id=42, shards=lambda: [3, 5]),
        open_metadata(a, cluster_id=42) as metadata,
        open_peers(a, metadata=metadata.of, options=OPTIONS, clock=clock) as manager,
    ):
        await a.connect(b.addresses)
        await trio.sleep(5)
        entry = manager.book.get(b.peer_id)
        assert entry is not None
        assert (entry.cluster_id, entry.shards) == (42, frozenset({3, 5}))


@pytest.mark.virtual
async def test_a_failed_dial_is_noted_and_a_success_forgives_it() -> None:
    async with SimulatedWorld(1) as world, world.host("a") as a, open_manager(a) as manager:
        async with world.host("b") as b:
            candidate = found(b)
        manager.learn([candidate])
        assert not await manager.connect(candidate.peer)
        entry = manager.book.get(candidate.peer)
        assert entry is not None
        assert (entry.failures, entry.retry_at > clock()) == (1, True)
        async with world.host("b") as b:
            manager.learn([found(b)])
            assert await manager.connect(b.peer_id)
            assert await manager.connect(b.peer_id)
            entry = manager.book.get(candidate.peer)
            assert entry is not None
            assert (entry.failures, entry.retry_at) == (0, 0)
        assert (manager.counters.dials, manager.counters.failed_dials) == (2, 1)


@pytest.mark.virtual
async def test_a_dial_that_fails_as_nobody_thought_of_is_a_failed_dial(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("out of the blue")

    async with SimulatedWorld(1) as world, world.host("a") as a, open_manager(a) as manager:
        async with world.host("b") as b:
            candidate = found(b)
        manager.learn([candidate])
        monkeypatch.setattr(a, "connect", fail)
        assert not await manager.connect(candidate.peer)
        assert manager.counters.failed_dials == 1
        entry = manager.book.get(candidate.peer)
        assert entry is not None
        assert entry.failures == 1
    assert "out of the blue" in caplog.text


async def test_peers_without_a_usable_address_are_not_dialed() -> None:
    async with SimulatedWorld(1) as world, world.host("a") as a, open_manager(a) as manager:
        manager.learn([candidate_of("tcp only")])
        assert not await manager.connect(peer_of("tcp only"))
        assert not await manager.connect(peer_of("unknown"))
        assert manager.counters.dials == 0


@pytest.mark.virtual
async def test_this_node_is_not_in_its_own_book() -> None:
    async with SimulatedWorld(1) as world, world.host("a") as a, open_manager(a) as manager:
        assert manager.learn([found(a)]) == 0
        assert len(manager.book) == 0


@pytest.mark.virtual
async def test_selection_looks_at_the_present_book() -> None:
    need = Need(Service.LIGHTPUSH)
    async with SimulatedWorld(1) as world, world.host("a") as a, open_manager(a) as manager:
        async with world.host("b") as b:
            b.serve(LIGHTPUSH, echo)
            await a.connect(b.addresses)
            await trio.sleep(1)
            assert [entry.peer for entry in manager.select(need)] == [b.peer_id]
            assert manager.select(need, exclude=frozenset({b.peer_id})) == []
        await trio.sleep(1)
        manager.failed(b.peer_id)
        assert manager.select(need) == []
        await trio.sleep(3600)
        assert [entry.peer for entry in manager.select(need)] == [b.peer_id]


# Discovery


class Scripted:
    """A discovery that finds what it is told, and tells how often it was asked."""

    name = "scripted"

    def __init__(self, *finds: list[Candidate] | Exception, every_s: float | None = 60.0) -> None:
        self.every_s = every_s
        self.asked: list[float] = []
        self._finds = list(finds)

    async def find(self, count: int) -> AsyncGenerator[Candidate, None]:
        self.asked.append(trio.current_time())
        assert count > 0
        await trio.sleep(0)
        finds = self._finds.pop(0) if self._finds else []
        if isinstance(finds, Exception):
            raise finds
        for candidate in finds:
            yield candidate


@pytest.mark.virtual
async def test_what_discoveries_find_comes_into_the_book() -> None:
    async with SimulatedWorld(1) as world, world.host("a") as a, open_manager(a) as manager:
        manager.add_discovery(StaticDiscovery([candidate_of("x", Origin.STATIC)]))
        manager.add_discovery(Scripted([candidate_of("y"), candidate_of("x")]))
        await trio.sleep(1)
        assert {entry.peer: entry.origin for entry in manager.book} == {
            peer_of("x"): Origin.STATIC,
            peer_of("y"): Origin.DNS,
        }
        assert manager.counters.discovered == 2


@pytest.mark.virtual
async def test_a_failing_discovery_is_asked_again() -> None:
    async with SimulatedWorld(1) as world, world.host("a") as a, open_manager(a) as manager:
        scripted = Scripted(NetworkError("no answer"), RuntimeError("a bug"), [candidate_of("x")])
        manager.add_discovery(scripted)
        await trio.sleep(200)
        assert peer_of("x") in manager.book
        assert manager.counters.failed_searches == 2


@pytest.mark.virtual
async def test_discoveries_go_on_continuously_and_sooner_when_peers_are_needed() -> None:
    async with SimulatedWorld(1) as world, world.host("a") as a, open_manager(a) as manager:
        scripted = Scripted(*([candidate_of(n)] for n in range(100)))
        manager.add_discovery(scripted)
        await trio.sleep(130)
        assert scripted.asked == [0, 60, 120]
        manager.need_more()
        await trio.sleep(1)
        assert scripted.asked[3:] == [130]
        for _ in range(100):
            manager.need_more()
            await trio.sleep(0.1)
        assert len(scripted.asked) == 5, "a discovery rests ten seconds at least"


@pytest.mark.virtual
async def test_a_discovery_that_brings_nobody_new_rests_longer() -> None:
    async with SimulatedWorld(1) as world, world.host("a") as a, open_manager(a) as manager:
        scripted = Scripted()
        manager.add_discovery(scripted)
        with trio.move_on_after(1000):
            while True:
                manager.need_more()
                await trio.sleep(0.5)
        assert 5 <= len(scripted.asked) <= 8


# The file


async def test_the_book_outlives_the_node(tmp_path: Path) -> None:
    async with SimulatedWorld(1) as world, world.host("a") as a:
        async with open_manager(a, path=tmp_path / "peers") as manager:
            manager.learn([candidate_of("x")])
            await manager.note("record", b"mine")
            await manager.save()
            manager.learn([candidate_of("y")])
        async with open_manager(a, path=tmp_path / "peers") as manager:
            assert {entry.peer for entry in manager.book} == {peer_of("x"), peer_of("y")}
            assert await manager.fact("record") == b"mine"
            assert await manager.fact("other") is None


async def test_what_could_not_be_saved_is_saved_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    path = tmp_path / "peers"
    async with SimulatedWorld(1) as world, world.host("a") as a:
        async with open_manager(a, path=path) as manager:
            manager.learn([candidate_of("x"), candidate_of("gone")])
            await manager.save()
            with monkeypatch.context() as patched:
                patched.setattr("pywaku.peers.persistence.PeerStore.save", fail)
                manager.learn([candidate_of("y")])
                manager.book.forget(peer_of("gone"))
                await manager.save()
            assert manager.counters.failed_saves == 1
        async with open_manager(a, path=path) as manager:
            assert {entry.peer for entry in manager.book} == {peer_of("x"), peer_of("y")}


async def test_changes_are_saved_every_now_and_then(tmp_path: Path) -> None:
    options = PeersOptions(transports=MEMORY, save_every_s=0.01, metadata_every_s=0.01)
    async with (
        SimulatedWorld(1) as world,
        world.host("a") as a,
        open_manager(a, path=tmp_path / "peers", options=options) as manager,
    ):
        manager.learn([candidate_of("x")])
        await eventually(lambda: manager.counters.saves == 1)
        await trio.sleep(0.05)
        assert manager.counters.saves == 1, "nothing has changed since"


async def test_a_damaged_file_does_not_stop_the_node(tmp_path: Path) -> None:
    path = tmp_path / "peers"
    path.write_bytes(random.Random(1).randbytes(10_000))
    async with SimulatedWorld(1) as world, world.host("a") as a, open_manager(a, path=path) as manager:
        manager.learn([candidate_of("x")])
    async with SimulatedWorld(1) as world, world.host("a") as a, open_manager(a, path=path) as manager:
        assert peer_of("x") in manager.book


async def test_without_a_usable_file_the_node_runs_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "no such directory" / "peers"
    with caplog.at_level(logging.WARNING):
        async with SimulatedWorld(1) as world, world.host("a") as a, open_manager(a, path=path) as manager:
            manager.learn([candidate_of("x")])
            await manager.save()
            await manager.note("a", b"b")
            assert await manager.fact("a") is None
    assert "not persistent" in caplog.text


async def test_a_disk_that_fails_is_counted_and_the_node_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("pywaku.peers.persistence.PeerStore.save", fail)
    monkeypatch.setattr("pywaku.peers.persistence.PeerStore.note", fail)
    monkeypatch.setattr("pywaku.peers.persistence.PeerStore.fact", fail)
    monkeypatch.setattr("pywaku.peers.persistence.PeerStore.load", fail)
    async with (
        SimulatedWorld(1) as world,
        world.host("a") as a,
        open_manager(a, path=tmp_path / "peers") as manager,
    ):
        manager.learn([candidate_of("x")])
        await manager.save()
        await manager.note("a", b"b")
        assert await manager.fact("a") is None
        assert manager.counters.failed_saves == 2


async def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE messages (id)")
    connection.close()
    async with SimulatedWorld(1) as world, world.host("a") as a:
        with pytest.raises(InvalidInput, match="no peer book"):
            async with open_manager(a, path=path):
                pass


def test_options_that_cannot_be_meant_are_refused() -> None:
    for wrong in ({"save_every_s": 0.0}, {"max_dials": 0}, {"discover_count": 0}, {"dial_timeout_s": -1.0}):
        with pytest.raises(InvalidInput):
            PeersOptions(**wrong)  # pyright: ignore[reportArgumentType]


@pytest.mark.virtual
async def test_who_lied_about_an_address_is_not_connected_to() -> None:
    """An address of somebody else, told as that of a peer, leads to no connection under that peer's name."""
    async with (
        SimulatedWorld(1) as world,
        world.host("a") as a,
        world.host("b") as b,
        open_manager(a) as manager,
    ):
        stolen = Multiaddr.parse(str(b.addresses[0].without_peer())).with_peer(peer_of("x"))
        manager.learn([Candidate(peer_of("x"), (stolen,), Origin.PEER_EXCHANGE)])
        assert not await manager.connect(peer_of("x"))
        assert not a.peers
