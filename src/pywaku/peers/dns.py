"""Discovery by DNS: signed lists of node records, looked up entry by entry (EIP-1459, `enrtree://…`)."""

from __future__ import annotations

import logging
import random
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import trio

from pywaku.errors import DecodeError, InvalidInput, NetworkError
from pywaku.peers.enrtree import Branch, Entry, Link, Root, matches, parse_entry, parse_url
from pywaku.peers.entry import Candidate, Origin
from pywaku.wire.enr import Enr

logger = logging.getLogger(__name__)

_ROOTS_REMEMBERED: Final = 256


class TxtResolver(Protocol):
    """Looks up DNS TXT records."""

    async def txt(self, name: str) -> list[str]:
        """The texts at a name. Raises `NetworkError` when there are none, or no server answers in time."""
        ...


@dataclass(frozen=True, slots=True)
class DnsLimits:
    """How far one search goes: lookups in all and at a time, trees, links in a row, levels below a root."""

    max_lookups: int = 2000
    at_once: int = 8
    max_trees: int = 16
    max_link_depth: int = 4
    max_depth: int = 12
    timeout_s: float = 60.0

    def __post_init__(self) -> None:
        if min(self.max_lookups, self.at_once, self.max_trees) < 1 or self.timeout_s <= 0:
            raise InvalidInput("max_lookups, at_once and max_trees are at least 1, timeout_s is positive")


@dataclass(slots=True)
class DnsCounters:
    """What has happened so far."""

    lookups: int = 0
    failed_lookups: int = 0
    bad_roots: int = 0
    """Roots that were missing, not signed by the list's key, or older than one seen before."""
    bad_entries: int = 0
    """Entries that do not match their hash, make no sense, or are where they do not belong."""
    unusable: int = 0
    """Node records without an address to connect to."""
    records: int = 0
    cut_short: int = 0
    """Searches that a limit ended."""


@dataclass(frozen=True, slots=True)
class _Place:
    """An entry that is to be looked up."""

    link: Link
    name: str | None
    """Its hash; None for the root."""
    links: bool
    """In the subtree of links, not in that of records."""
    depth: int
    link_depth: int


class DnsDiscovery:
    """Finds the nodes of DNS node lists, in random order, no more of a tree than is needed.

    Every record found is below a root that is signed by the key of its list. A list that links to others
    vouches for them.
    """

    name = "dns"
    every_s: float | None = 1800.0

    def __init__(
        self,
        urls: Sequence[str | Link],
        resolver: TxtResolver,
        *,
        limits: DnsLimits | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.counters = DnsCounters()
        self._links = tuple(parse_url(url) if isinstance(url, str) else url for url in urls)
        self._resolver = resolver
        self._limits = limits or DnsLimits()
        self._rng = rng or random.Random()
        self._newest: OrderedDict[Link, int] = OrderedDict()  # the highest sequence number seen of each list

    async def find(self, count: int) -> AsyncGenerator[Candidate, None]:
        """About `count` nodes: all that the entries which were looked up last have brought."""
        search = _Search(self._links, self._limits, self._rng)
        found: set[bytes] = set()
        deadline = trio.current_time() + self._limits.timeout_s
        while len(found) < count:
            batch = search.next_batch()
            if not batch:
                break
            results: list[tuple[_Place, Root | Entry]] = []
            with trio.move_on_at(deadline) as scope:
                async with trio.open_nursery() as nursery:
                    for place in batch:
                        nursery.start_soon(self._look_up, place, results)
            # Outside of the scope: a generator must not hand out values from within one.
            for place, entry in results:
                if isinstance(entry, Enr):
                    candidate = Candidate.of_record(entry, Origin.DNS)
                    if not candidate.addresses:
                        self.counters.unusable += 1
                    elif candidate.peer not in found:
                        found.add(candidate.peer)
                        self.counters.records += 1
                        yield candidate
                else:
                    search.take(place, entry)
            if scope.cancelled_caught:
                search.cut_short = True
                break
        if search.cut_short:
            self.counters.cut_short += 1
            logger.info("dns search cut short: lookups=%d found=%d", search.lookups, len(found))

    async def _look_up(self, place: _Place, results: list[tuple[_Place, Root | Entry]]) -> None:
        name = place.link.domain if place.name is None else f"{place.name}.{place.link.domain}"
        self.counters.lookups += 1
        try:
            texts = await self._resolver.txt(name)
        except NetworkError as error:
            self.counters.failed_lookups += 1
            logger.debug("dns lookup failed: name=%s error=%s", name, error)
            return
        try:
            entry = self._root(place, texts) if place.name is None else _entry(place, place.name, texts)
        except DecodeError as error:
            if place.name is None:
                self.counters.bad_roots += 1
                logger.warning("dns node list refused: list=%s error=%s", place.link.domain, error)
            else:
                self.counters.bad_entries += 1
                logger.debug("dns entry passed over: name=%s error=%s", name, error)
            return
        results.append((place, entry))

    def _root(self, place: _Place, texts: list[str]) -> Root:
        link = place.link
        text = next((text for text in texts if text.startswith("enrtree-root:")), None)
        if text is None:
            raise DecodeError("there is no root")
        root = Root.parse(text)
        if not root.verify(link.key):
            raise DecodeError("the root is not signed by the key of the list")
        newest = self._newest.get(link, 0)
        if root.seq < newest:
            raise DecodeError(f"the root has number {root.seq}; {newest} has been seen")
        self._newest[link] = root.seq
        self._newest.move_to_end(link)
        if len(self._newest) > _ROOTS_REMEMBERED:
            self._newest.popitem(last=False)
        return root


def _entry(place: _Place, name: str, texts: list[str]) -> Entry:
    text = next((text for text in texts if matches(text, name)), None)
    if text is None:
        raise DecodeError("no text there has this hash")
    entry = parse_entry(text)
    if isinstance(entry, Enr if place.links else Link):
        raise DecodeError("links and node records each have their own subtree")
    return entry


class _Search:
    """What one search has yet to look up; knows what it has looked up, so that it ends."""

    def __init__(self, links: Sequence[Link], limits: DnsLimits, rng: random.Random) -> None:
        self.lookups = 0
        self.cut_short = False
        self._limits = limits
        self._rng = rng
        self._trees: set[Link] = set()
        self._seen: set[tuple[str, str, bool]] = set()
        self._open: list[_Place] = []
        for link in links:
            self._add_tree(link, 0)

    def next_batch(self) -> list[_Place]:
        """Some of what is to be looked up next, by chance; nothing when it is all done."""
        room = min(self._limits.at_once, self._limits.max_lookups - self.lookups)
        batch: list[_Place] = []
        while self._open and len(batch) < room:
            last = len(self._open) - 1
            chosen = self._rng.randrange(last + 1)
            self._open[chosen], self._open[last] = self._open[last], self._open[chosen]
            batch.append(self._open.pop())
        self.lookups += len(batch)
        if not batch and self._open:
            self.cut_short = True
        return batch

    def take(self, place: _Place, entry: Root | Branch | Link) -> None:
        """Go on from an entry that was found."""
        link, link_depth = place.link, place.link_depth
        match entry:
            case Root():
                self._add(_Place(link, entry.links, True, 1, link_depth))
                self._add(_Place(link, entry.records, False, 1, link_depth))
            case Branch():
                for name in entry.hashes:
                    self._add(_Place(link, name, place.links, place.depth + 1, link_depth))
            case Link():
                self._add_tree(entry, link_depth + 1)

    def _add_tree(self, link: Link, link_depth: int) -> None:
        if link in self._trees:
            return
        if len(self._trees) >= self._limits.max_trees or link_depth > self._limits.max_link_depth:
            self.cut_short = True
            return
        self._trees.add(link)
        self._open.append(_Place(link, None, False, 0, link_depth))

    def _add(self, place: _Place) -> None:
        key = (place.link.domain, place.name or "", place.links)
        if key in self._seen:
            return
        if place.depth > self._limits.max_depth or len(self._seen) >= self._limits.max_lookups:
            self.cut_short = True
            return
        self._seen.add(key)
        self._open.append(place)
