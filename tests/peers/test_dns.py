"""Discovery by DNS (EIP-1459): trees, honest and hostile, and a real server on loopback."""

from __future__ import annotations

import random
from contextlib import aclosing

import pytest
import trio

from pywaku.errors import InvalidInput, NetworkError
from pywaku.ids import PeerId
from pywaku.peers.dns import DnsDiscovery, DnsLimits
from pywaku.peers.enrtree import Branch, Link, Root, hash_of
from pywaku.peers.entry import Candidate, Origin
from pywaku.wire.enr import Enr
from tests.support.dns_server import link_to, make_tree, open_dns_server
from tests.support.peers import key_of, record_of

KEY = key_of("tree")
DOMAIN = "nodes.example.org"
RECORDS = [record_of(n) for n in range(30)]
PEERS = {record.peer_id for record in RECORDS}


class Zone:
    """A resolver that looks into a dictionary; each lookup takes a while."""

    def __init__(self, *zones: dict[str, str], seconds: float = 0.01) -> None:
        self.texts: dict[str, str | list[str]] = {}
        for zone in zones:
            self.texts.update(zone)
        self.asked: list[str] = []
        self.most_at_once = 0
        self._seconds = seconds
        self._running = 0

    async def txt(self, name: str) -> list[str]:
        self.asked.append(name)
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        await trio.sleep(self._seconds)
        self._running -= 1
        text = self.texts.get(name)
        if text is None:
            raise NetworkError(f"{name} does not exist")
        return [text] if isinstance(text, str) else text


def discovery_in(
    zone: Zone, *links: Link | str, limits: DnsLimits | None = None, seed: int = 1
) -> DnsDiscovery:
    return DnsDiscovery(links or (link_to(KEY, DOMAIN),), zone, limits=limits, rng=random.Random(seed))


async def found_by(discovery: DnsDiscovery, count: int = 1000) -> list[Candidate]:
    async with aclosing(discovery.find(count)) as candidates:
        return [candidate async for candidate in candidates]


def record_in(candidate: Candidate) -> Enr:
    assert candidate.record is not None
    return candidate.record


def peers_of(candidates: list[Candidate]) -> set[PeerId]:
    assert len({candidate.peer for candidate in candidates}) == len(candidates), "each peer once"
    return {candidate.peer for candidate in candidates}


@pytest.mark.virtual
async def test_all_nodes_of_a_list_are_found() -> None:
    discovery = discovery_in(Zone(make_tree(KEY, DOMAIN, RECORDS)))
    candidates = await found_by(discovery)
    assert peers_of(candidates) == PEERS
    assert all(candidate.origin is Origin.DNS for candidate in candidates)
    assert {candidate.record for candidate in candidates} == set(RECORDS)
    assert all(candidate == Candidate.of_record(record_in(candidate), Origin.DNS) for candidate in candidates)
    assert discovery.counters.bad_entries == discovery.counters.failed_lookups == 0


@pytest.mark.virtual
async def test_no_more_of_a_list_is_looked_up_than_is_needed() -> None:
    zone = Zone(make_tree(KEY, DOMAIN, [record_of(n) for n in range(200)]))
    candidates = await found_by(discovery_in(zone), 5)
    assert 5 <= len(candidates) <= 12
    assert len(zone.asked) < 60


@pytest.mark.virtual
async def test_the_tree_is_traversed_in_random_order() -> None:
    zone = make_tree(KEY, DOMAIN, RECORDS)
    firsts = {(await found_by(discovery_in(Zone(zone), seed=seed), 1))[0].peer for seed in range(20)}
    assert len(firsts) > 5


@pytest.mark.virtual
async def test_lookups_run_at_the_same_time_within_the_limit() -> None:
    zone = Zone(make_tree(KEY, DOMAIN, RECORDS))
    await found_by(discovery_in(zone, limits=DnsLimits(at_once=3)))
    assert zone.most_at_once == 3


# Signatures, hashes, numbers


@pytest.mark.virtual
async def test_a_root_that_is_not_signed_by_the_key_of_the_list_is_refused() -> None:
    zone = Zone(make_tree(key_of("mallory"), DOMAIN, RECORDS))
    discovery = discovery_in(zone)
    assert await found_by(discovery) == []
    assert discovery.counters.bad_roots == 1
    assert zone.asked == [DOMAIN]


@pytest.mark.virtual
async def test_a_root_with_a_lower_number_than_before_is_refused() -> None:
    zone = Zone(make_tree(KEY, DOMAIN, RECORDS, seq=5))
    discovery = discovery_in(zone)
    assert peers_of(await found_by(discovery)) == PEERS
    zone.texts.update(make_tree(KEY, DOMAIN, RECORDS[:3], seq=4))
    assert await found_by(discovery) == []
    assert discovery.counters.bad_roots == 1
    zone.texts.update(make_tree(KEY, DOMAIN, RECORDS[:3], seq=5))
    assert peers_of(await found_by(discovery)) == {record.peer_id for record in RECORDS[:3]}


@pytest.mark.virtual
async def test_an_entry_that_does_not_match_its_hash_is_passed_over() -> None:
    zone = make_tree(KEY, DOMAIN, RECORDS)
    foreign = record_of("foreign")
    changed = next(name for name, text in zone.items() if text == RECORDS[0].text)
    zone[changed] = foreign.text
    discovery = discovery_in(Zone(zone))
    assert peers_of(await found_by(discovery)) == PEERS - {RECORDS[0].peer_id}
    assert discovery.counters.bad_entries == 1


@pytest.mark.virtual
async def test_other_texts_beside_an_entry_do_not_matter() -> None:
    zone = Zone()
    for name, text in make_tree(KEY, DOMAIN, RECORDS).items():
        zone.texts[name] = ["v=spf1 -all", text, "something else"]
    assert peers_of(await found_by(discovery_in(zone))) == PEERS


@pytest.mark.virtual
async def test_missing_and_bad_entries_are_passed_over_and_counted() -> None:
    zone = make_tree(KEY, DOMAIN, [*RECORDS[:10], "enr:AAAA", "nonsense", str(link_to(KEY, "x.example"))])
    gone = next(name for name, text in zone.items() if text == RECORDS[0].text)
    del zone[gone]
    discovery = discovery_in(Zone(zone))
    assert peers_of(await found_by(discovery)) == {record.peer_id for record in RECORDS[1:10]}
    assert discovery.counters.bad_entries == 3, "two that are nothing, and a link among records"
    assert discovery.counters.failed_lookups == 1


@pytest.mark.virtual
async def test_a_record_in_the_subtree_of_links_is_passed_over() -> None:
    discovery = discovery_in(Zone(make_tree(KEY, DOMAIN, (), [RECORDS[0].text])))
    assert await found_by(discovery) == []
    assert discovery.counters.bad_entries == 1


@pytest.mark.virtual
async def test_records_without_an_address_are_counted() -> None:
    bare = Enr.create(key_of("bare"))
    discovery = discovery_in(Zone(make_tree(KEY, DOMAIN, [bare])))
    assert await found_by(discovery) == []
    assert discovery.counters.unusable == 1


@pytest.mark.virtual
async def test_a_list_that_is_not_there_is_no_error() -> None:
    discovery = discovery_in(Zone())
    assert await found_by(discovery) == []
    assert discovery.counters.failed_lookups == 1
    without_root = discovery_in(Zone({DOMAIN: "v=spf1"}))
    assert await found_by(without_root) == []
    assert without_root.counters.bad_roots == 1


# Links


@pytest.mark.virtual
async def test_links_to_other_lists_are_followed() -> None:
    other, third = key_of("other"), key_of("third")
    zone = Zone(
        make_tree(KEY, DOMAIN, RECORDS[:10], [link_to(other, "b.example")]),
        make_tree(other, "b.example", RECORDS[10:20], [link_to(third, "c.example")]),
        make_tree(third, "c.example", RECORDS[20:]),
    )
    assert peers_of(await found_by(discovery_in(zone))) == PEERS


@pytest.mark.virtual
async def test_lists_that_link_to_each_other_do_not_make_a_loop() -> None:
    other = key_of("other")
    zone = Zone(
        make_tree(KEY, DOMAIN, RECORDS[:15], [link_to(other, "b.example"), link_to(KEY, DOMAIN)]),
        make_tree(other, "b.example", RECORDS[15:], [link_to(KEY, DOMAIN)]),
    )
    assert peers_of(await found_by(discovery_in(zone))) == PEERS
    assert len(set(zone.asked)) == len(zone.asked)


@pytest.mark.virtual
async def test_a_linked_list_must_be_signed_by_the_key_in_the_link() -> None:
    zone = Zone(
        make_tree(KEY, DOMAIN, RECORDS[:5], [link_to(key_of("other"), "b.example")]),
        make_tree(key_of("mallory"), "b.example", RECORDS[5:]),
    )
    assert peers_of(await found_by(discovery_in(zone))) == {record.peer_id for record in RECORDS[:5]}


# Hostile trees


@pytest.mark.virtual
async def test_branches_in_a_circle_cannot_be_made_but_repetitions_are_looked_up_once() -> None:
    record = RECORDS[0]
    leaf = hash_of(record.text)
    branch = str(Branch((leaf,) * 50))
    zone = {f"{leaf}.{DOMAIN}": record.text, f"{hash_of(branch)}.{DOMAIN}": branch}
    zone[DOMAIN] = str(Root.sign(KEY, records=hash_of(branch), links=hash_of(branch), seq=1))
    asked = Zone(zone)
    assert peers_of(await found_by(discovery_in(asked))) == {record.peer_id}
    assert len(asked.asked) <= 5


class Endless:
    """A list whose signer makes up entries without end: chains of branches, or of lists."""

    def __init__(self, *, lists: bool) -> None:
        self.lookups = 0
        self._lists = lists
        self._made: dict[str, str] = {}
        depth = 60
        text = str(Branch(()))
        for level in range(depth):
            self._made[hash_of(text)] = text
            fillers = tuple(hash_of(f"{level} {n}") for n in range(6))
            text = str(Branch((hash_of(text), *fillers)))
        self._made[hash_of(text)] = text
        self._top = hash_of(text)

    async def txt(self, name: str) -> list[str]:
        self.lookups += 1
        await trio.sleep(0.001)
        first, _, rest = name.partition(".")
        if first in self._made:
            return [self._made[first]]
        if rest == "example":
            links = self._top
            if self._lists:
                link = str(link_to(KEY, f"n{self.lookups}.example"))
                self._made[links := hash_of(link)] = link
            return [str(Root.sign(KEY, records=self._top, links=links, seq=1))]
        raise NetworkError("no such name")


@pytest.mark.virtual
@pytest.mark.parametrize("lists", [False, True])
async def test_a_list_without_end_is_cut_short(lists: bool) -> None:
    endless = Endless(lists=lists)
    limits = DnsLimits(max_lookups=500, max_trees=5, max_link_depth=3, max_depth=10)
    discovery = DnsDiscovery([link_to(KEY, "n0.example")], endless, limits=limits, rng=random.Random(1))
    assert await found_by(discovery) == []
    assert endless.lookups <= 500
    assert discovery.counters.cut_short == 1


@pytest.mark.virtual
async def test_the_number_of_lookups_is_bounded() -> None:
    zone = Zone(make_tree(KEY, DOMAIN, [record_of(n) for n in range(100)]))
    discovery = discovery_in(zone, limits=DnsLimits(max_lookups=20))
    assert len(await found_by(discovery)) < 20
    assert len(zone.asked) <= 20
    assert discovery.counters.cut_short == 1


@pytest.mark.virtual
async def test_the_time_of_a_search_is_bounded_and_what_was_found_till_then_is_kept() -> None:
    zone = Zone(make_tree(KEY, DOMAIN, RECORDS), seconds=1.0)
    discovery = discovery_in(zone, limits=DnsLimits(timeout_s=7.5, at_once=4))
    candidates = await found_by(discovery)
    assert 0 < len(candidates) < len(RECORDS)
    assert trio.current_time() == pytest.approx(7.5)
    assert discovery.counters.cut_short == 1


@pytest.mark.virtual
@pytest.mark.parametrize("seed", range(30))
async def test_whatever_a_zone_holds_only_records_of_the_signed_tree_are_found(seed: int) -> None:
    rng = random.Random(seed)
    zone = make_tree(KEY, DOMAIN, RECORDS[:12])
    bad: list[str | list[str]] = ["", "enrtree-branch:", "x" * 5000, [], record_of("foreign").text, "\x00ÿ"]
    texts: dict[str, str | list[str]] = dict(zone)
    for name in rng.sample(sorted(zone), rng.randint(0, 8)):
        texts[name] = rng.choice([*bad, zone[rng.choice(sorted(zone))]])
    resolver = Zone()
    resolver.texts = texts
    candidates = await found_by(discovery_in(resolver))
    assert peers_of(candidates) <= {record.peer_id for record in RECORDS[:12]}


def test_limits_and_urls_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(InvalidInput):
        DnsLimits(max_lookups=0)
    with pytest.raises(InvalidInput):
        DnsLimits(timeout_s=0)
    with pytest.raises(InvalidInput, match="enrtree"):
        discovery_in(Zone(), "enrtree://nodes.example.org")


# A real server


async def test_a_list_is_found_through_a_real_server() -> None:
    pytest.importorskip("dns")
    from pywaku.peers.resolver import DnsResolver

    async with open_dns_server(make_tree(KEY, DOMAIN, RECORDS)) as server:
        resolver = DnsResolver([server.address])
        discovery = DnsDiscovery([f"{link_to(KEY, DOMAIN)}"], resolver)
        assert peers_of(await found_by(discovery)) == PEERS
        assert not server.asked_by_tcp


async def test_answers_too_large_for_udp_are_asked_for_by_tcp() -> None:
    pytest.importorskip("dns")
    from pywaku.peers.resolver import DnsResolver

    long = "x" * 3000
    async with open_dns_server({"long.example": long, "two.example": ["a", "b" * 300]}) as server:
        resolver = DnsResolver([server.address])
        assert await resolver.txt("long.example") == [long]
        assert server.asked_by_tcp == ["long.example"]
        assert await resolver.txt("Two.example.") == ["a", "b" * 300]


async def test_a_name_server_that_is_silent_at_first_is_asked_again() -> None:
    pytest.importorskip("dns")
    from pywaku.peers.resolver import DnsResolver

    async with (
        open_dns_server({"a.example": "yes"}) as server,
        open_dns_server({"a.example": "also"}) as second,
    ):
        resolver = DnsResolver([server.address, second.address], timeout_s=20)
        resolver.patience_s = 0.05
        server.silent = second.silent = 1
        assert await resolver.txt("a.example") in (["yes"], ["also"])
        assert server.silent == second.silent == 0


async def test_stray_and_forged_packets_are_ignored() -> None:
    pytest.importorskip("dns")
    from pywaku.peers.resolver import DnsResolver

    async with open_dns_server(make_tree(KEY, DOMAIN, RECORDS[:5])) as server:
        server.garbage_first = True
        discovery = DnsDiscovery([link_to(KEY, DOMAIN)], DnsResolver([server.address]))
        assert len(await found_by(discovery)) == 5


async def test_names_that_do_not_exist_and_servers_that_do_not_answer_are_network_errors() -> None:
    pytest.importorskip("dns")
    from pywaku.peers.resolver import DnsResolver

    async with open_dns_server({"latin.example": "\xff"}) as server:
        resolver = DnsResolver([server.address], timeout_s=0.3)
        with pytest.raises(NetworkError, match=r"nothing\.example"):
            await resolver.txt("nothing.example")
        assert await resolver.txt("latin.example") == []
        with pytest.raises(NetworkError):
            await resolver.txt("a" * 100 + ".example")
        server.silent = 1000
        with pytest.raises(NetworkError):
            await resolver.txt("slow.example")


def test_name_servers_are_addresses_with_a_port_if_need_be() -> None:
    pytest.importorskip("dns")
    from pywaku.peers.resolver import DnsResolver, parse_server

    assert parse_server("192.0.2.1") == ("192.0.2.1", 53)
    assert parse_server("192.0.2.1:5353") == ("192.0.2.1", 5353)
    assert parse_server("2001:db8::1") == ("2001:db8::1", 53)
    assert parse_server("[2001:db8::1]:5353") == ("2001:db8::1", 5353)
    for wrong in ("", "dns.example", "192.0.2.1:x", "192.0.2.1:0", "192.0.2.1:70000", "[::1"):
        with pytest.raises(InvalidInput):
            parse_server(wrong)
    with pytest.raises(InvalidInput):
        DnsResolver(["192.0.2.1"], timeout_s=0)
