"""The peer book's file: what is saved comes back, and damage never stops a node."""

from __future__ import annotations

import logging
import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pywaku.errors import InvalidInput
from pywaku.peers.entry import Origin, PeerEntry
from pywaku.peers.persistence import SCHEMA_VERSION, PeerStore
from pywaku.wire.multiaddr import Multiaddr
from tests.support.peers import entry_of, key_of, peer_of, record_of


def full_entry() -> PeerEntry:
    record = record_of("full", seq=9)
    return PeerEntry(
        record.peer_id,
        Origin.DNS,
        first_seen=1.5,
        last_seen=2.5,
        recorded=record.dial_addresses,
        told=(Multiaddr.parse("/dns4/a.example/tcp/1/wss").with_peer(record.peer_id),),
        protocols=frozenset({"/a/1", "/b/2"}),
        agent="agent/ü",
        cluster_id=42,
        shards=frozenset({0, 1023}),
        capabilities=record.capabilities,
        record=record,
        failures=3,
        retry_at=99.25,
    )


def test_peers_come_back_as_they_were_saved(tmp_path: Path) -> None:
    bare = PeerEntry(peer_of("bare"), Origin.INBOUND, first_seen=0, last_seen=1)
    empty = replace(bare, peer=peer_of("empty"), last_seen=0, protocols=frozenset(), shards=frozenset())
    with closing(PeerStore.open(tmp_path / "peers.sqlite3")) as store:
        store.save([bare, empty, full_entry()])
    with closing(PeerStore.open(tmp_path / "peers.sqlite3")) as store:
        assert list(store.load()) == [full_entry(), bare, empty]


def test_peers_are_replaced_and_struck_out(tmp_path: Path) -> None:
    with closing(PeerStore.open(tmp_path / "peers")) as store:
        a, b = (entry_of(name, capabilities=None) for name in "ab")
        store.save([a, b])
        store.save([replace(a, failures=1)], [b.peer, peer_of("never there")])
        assert list(store.load()) == [replace(a, failures=1)]


def test_who_is_configured_is_decided_anew_at_each_start(tmp_path: Path) -> None:
    entry = entry_of("a", Origin.STATIC, capabilities=None, configured=entry_of("a").recorded, recorded=())
    with closing(PeerStore.open(tmp_path / "peers")) as store:
        store.save([entry])
        (loaded,) = store.load()
    assert loaded == replace(entry, origin=Origin.OUTBOUND, configured=())


def test_facts_come_back(tmp_path: Path) -> None:
    with closing(PeerStore.open(tmp_path / "peers")) as store:
        assert store.fact("record") is None
        store.note("record", b"1")
        store.note("record", b"2")
    with closing(PeerStore.open(tmp_path / "peers")) as store:
        assert store.fact("record") == b"2"


@pytest.mark.parametrize("content", [b"this is no database" * 100, b"SQLite format 3\0" + b"\xff" * 4000])
def test_a_damaged_file_is_set_aside_with_a_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    path = tmp_path / "peers"
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING), closing(PeerStore.open(path)) as store:
        store.save([full_entry()])
        assert list(store.load()) == [full_entry()]
    assert (tmp_path / "peers.damaged").read_bytes() == content
    assert "set aside" in caplog.text


def test_a_file_of_a_later_version_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "peers"
    PeerStore.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    with closing(PeerStore.open(path)) as store:
        assert list(store.load()) == []
    assert (tmp_path / "peers.damaged").exists()


def test_a_table_of_another_shape_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "peers"
    PeerStore.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE peers DROP COLUMN agent")
    with closing(PeerStore.open(path)) as store:
        store.save([full_entry()])
    assert (tmp_path / "peers.damaged").exists()


def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "messages"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE messages (id)")
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="no peer book"):
        PeerStore.open(path)
    assert path.read_bytes() == before


def test_rows_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "peers"
    with closing(PeerStore.open(path)) as store:
        store.save([entry_of(n, capabilities=None) for n in range(10)])
    damages = (
        "peer = x'00'",
        "origin = 'nowhere'",
        "first_seen = 'soon'",
        "told = x'00ff'",
        "recorded = '/ip4/nothing'",
        "shards = 'a'",
        f"record = x'{record_of('other').encode().hex()}'",
        "record = x'00'",
        "record = 7",
    )
    with closing(sqlite3.connect(path)) as connection:
        peers = [row[0] for row in connection.execute("SELECT peer FROM peers").fetchall()]
        for peer, damage in zip(peers, damages, strict=False):
            connection.execute(f"UPDATE peers SET {damage} WHERE peer = ?", (peer,))
        connection.commit()
    with closing(PeerStore.open(path)) as store:
        assert len(list(store.load())) == 1
        assert store.unreadable == 9


@pytest.mark.parametrize("seed", range(40))
def test_a_file_with_any_damage_opens(tmp_path: Path, seed: int) -> None:
    """Bytes turned over and cut off: the file opens, with what is left or anew."""
    rng = random.Random(seed)
    path = tmp_path / "peers"
    with closing(PeerStore.open(path)) as store:
        store.save([entry_of(n, capabilities=None) for n in range(40)])
    data = bytearray(path.read_bytes())
    for _ in range(rng.randint(1, 20)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
    with closing(PeerStore.open(path)) as store:
        assert len(list(store.load())) <= 40
        store.save([full_entry()])


def test_keys_are_not_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "peers"
    with closing(PeerStore.open(path)) as store:
        store.save([full_entry()])
    assert key_of("full").raw not in path.read_bytes()
