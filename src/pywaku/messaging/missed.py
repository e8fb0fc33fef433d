"""Messages that were missed, fetched from stores (RELIABILITY-RELAY, Query with Topics and Time Range).

Once a minute where the application wants to know what is stored, else on start and after an outage, stores
are asked which messages of the wanted topics they keep. Those that came already are stored, which is noted;
the others are fetched.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, NamedTuple

import trio

from pywaku.errors import RecordError
from pywaku.ids import PeerId
from pywaku.messaging.inbox import Inbox
from pywaku.messaging.records import Recorder
from pywaku.messaging.stores import Stores
from pywaku.protocols.store import StoreQuery, StoresExhausted

logger = logging.getLogger(__name__)

_SECOND_NS: Final = 1_000_000_000
_MAX_CONTENT_TOPICS: Final = 10  # in a query; nwaku refuses more
_MAX_MARKED: Final = 65_536
_LISTED_AT: Final = 2  # stores whose lists are put together: one may lack what the other has


@dataclass(frozen=True, slots=True)
class MissedOptions:
    """How missed messages are looked for.

    - `interval_s`: how often, where it is done regularly.
    - `overlap_s`: how far before the end of the last search the next one begins: messages carry the time of
      their sender, and reach stores late.
    - `longest_s`: how far it goes back at most, after a long absence.
    - `again_after_s`: a search that something gave rise to is done once more so much later: stores may have
      what was just missed only then.
    - `batch`: messages that are fetched at a time.
    - `retry_s`, `longest_retry_s`: the pause after a search that failed; it doubles.
    - `give_up_after`: searches after which messages that a store lists and no store gives are left.
    """

    interval_s: float = 60.0
    overlap_s: float = 60.0
    longest_s: float = 30 * 86_400.0
    again_after_s: float = 10.0
    batch: int = 50
    retry_s: float = 5.0
    longest_retry_s: float = 60.0
    give_up_after: int = 3


@dataclass(slots=True)
class MissedCounters:
    """What has happened so far."""

    searches: int = 0
    failed: int = 0
    listed: int = 0
    """Messages that stores have listed."""
    fetched: int = 0
    """Messages that were missing here, and are no more."""
    unobtainable: int = 0
    """Messages that a store listed and no store gave."""


class _Moment(NamedTuple):
    """A time of day, and when that was by a clock that does not jump (None: in an earlier life)."""

    wall_ns: int
    steady_ns: int | None

    def earliest_ns(self, now: _Moment) -> int:
        """The moment by the time of day as it is now, or was then, whichever is earlier."""
        assert now.steady_ns is not None
        elapsed_ns = 0 if self.steady_ns is None else now.steady_ns - self.steady_ns
        return min(self.wall_ns, now.wall_ns - elapsed_ns)


class _Content:
    """What is known of a content topic that is watched."""

    __slots__ = ("fetch", "floor", "since")

    def __init__(self, *, fetch: bool, now: _Moment) -> None:
        self.fetch = fetch  # else it is only noted what is stored
        self.floor = now  # what is older was not subscribed to
        self.since: _Moment | None = None


class _Topic:
    """One pubsub topic, and what is watched of it."""

    def __init__(self, pubsub_topic: str) -> None:
        self.pubsub_topic = pubsub_topic
        self.contents: dict[str, _Content] = {}
        self.due = False  # a search is, whatever the time
        self.again_at = math.inf
        self.fruitless = 0


class Missed:
    """Looks for messages of the topics that are watched. `run` does the work."""

    def __init__(
        self,
        stores: Stores,
        recorder: Recorder,
        inbox: Inbox,
        clock: Callable[[], int],
        on_stored: Callable[[bytes, PeerId], None],
        *,
        regularly: bool,
        options: MissedOptions | None = None,
    ) -> None:
        self.counters = MissedCounters()
        self._stores = stores
        self._recorder = recorder
        self._inbox = inbox
        self._clock = clock
        self._on_stored = on_stored
        self._regularly = regularly
        self._options = options or MissedOptions()
        self._topics: dict[str, _Topic] = {}
        self._marked: OrderedDict[bytes, None] = OrderedDict()
        self._allowed: frozenset[str] = frozenset()
        self._changed = trio.Event()

    def watch(self, pubsub_topic: str, content_topic: str, *, fetch: bool) -> None:
        """Search for messages from now on, or from where an earlier life of the node has left off."""
        topic = self._topics.setdefault(pubsub_topic, _Topic(pubsub_topic))
        content = topic.contents.get(content_topic)
        if content is None:
            topic.contents[content_topic] = _Content(fetch=fetch, now=self._now())
        else:
            content.fetch |= fetch

    def unwatch(self, pubsub_topic: str, content_topic: str) -> None:
        """Search no more for those of a content topic."""
        topic = self._topics.get(pubsub_topic)
        if topic is not None:
            topic.contents.pop(content_topic, None)
            if not topic.contents:
                del self._topics[pubsub_topic]

    def fetch_no_more(self, pubsub_topic: str, content_topic: str) -> None:
        """From now on it is only noted what is stored."""
        topic = self._topics.get(pubsub_topic)
        if topic is not None and content_topic in topic.contents:
            topic.contents[content_topic].fetch = False

    def search(self, pubsub_topic: str) -> None:
        """Search a pubsub topic as soon as that is possible, and once more a while later."""
        topic = self._topics.get(pubsub_topic)
        if topic is not None:
            topic.due = True
            topic.again_at = trio.current_time() + self._options.again_after_s
            self._changed.set()

    def allow(self, pubsub_topics: Iterable[str]) -> None:
        """Search these while they are healthy, and no others; those that are so again at once."""
        allowed = frozenset(pubsub_topics)
        for name in allowed - self._allowed:
            self.search(name)
        self._allowed = allowed

    async def run(self) -> None:
        """Search when it is time to."""
        options = self._options
        due = trio.current_time() + options.interval_s
        retry_s = options.retry_s
        while True:
            self._changed = trio.Event()
            now = trio.current_time()
            regular = self._regularly and now >= due
            if regular:
                due = now + options.interval_s
            failed = False
            for topic in tuple(self._topics.values()):
                if topic.again_at <= now:
                    topic.again_at = math.inf
                    topic.due = True
                topic.due |= regular
                if topic.due and topic.pubsub_topic in self._allowed:
                    topic.due = False
                    failed |= not await self._search(topic)
            if failed:
                wait = retry_s
                retry_s = min(2 * retry_s, options.longest_retry_s)
            else:
                retry_s = options.retry_s
                wait = max(0.0, due - trio.current_time()) if self._regularly else math.inf
            until = trio.current_time() + wait
            with trio.move_on_at(min(until, *(topic.again_at for topic in self._topics.values()), until)):
                await self._changed.wait()

    async def _search(self, topic: _Topic) -> bool:
        """Search a pubsub topic; False if it has to be done again."""
        self.counters.searches += 1
        try:
            done = await self._look(topic)
        except RecordError as error:
            logger.warning("missed messages not looked for: topic=%s error=%s", topic.pubsub_topic, error)
            done = False
        except Exception:  # whatever it was about must not end the searches, and with them the node
            logger.exception("missed messages not looked for: topic=%s", topic.pubsub_topic)
            done = False
        if not done:
            self.counters.failed += 1
            topic.due = True
        return done

    async def _look(self, topic: _Topic) -> bool:
        until = self._now()
        parts = await self._parts(topic, until)
        stores = self._stores.peers(topic.pubsub_topic)[:_LISTED_AT]
        if not stores:
            return False
        complete = True
        for start_ns, fetch, names in parts:
            # Without an end: this node's clock may be behind.
            query = StoreQuery(topic.pubsub_topic, names, time_start=start_ns, include_data=False)
            answered = [await self._list(peer, query, topic, fetch=fetch) for peer in stores]
            if True not in answered:
                complete = False
                continue
            await self._recorder.note_fetched(topic.pubsub_topic, names, until.wall_ns)
            for name in names:
                if name in topic.contents:
                    topic.contents[name].since = until
        return complete

    async def _parts(self, topic: _Topic, until: _Moment) -> list[tuple[int, bool, tuple[str, ...]]]:
        """The queries to make: from when on, whether to fetch, and for which content topics."""
        options = self._options
        overlap_ns = int(options.overlap_s * _SECOND_NS)
        earliest_ns = until.wall_ns - int(options.longest_s * _SECOND_NS)
        groups: dict[tuple[int, bool], list[str]] = {}
        for name, content in tuple(topic.contents.items()):
            if content.since is None:
                content.since = content.floor
                known = await self._recorder.fetched_until(topic.pubsub_topic, name)
                if known is not None:
                    content.since = _Moment(known, None)
                    if known - overlap_ns < content.floor.wall_ns:
                        content.floor = _Moment(known - overlap_ns, None)
            since_ns, floor_ns = content.since.earliest_ns(until), content.floor.earliest_ns(until)
            start_ns = max(since_ns - overlap_ns, floor_ns, earliest_ns)
            groups.setdefault((start_ns, content.fetch), []).append(name)
        return [
            (start_ns, fetch, tuple(names[first : first + _MAX_CONTENT_TOPICS]))
            for (start_ns, fetch), names in groups.items()
            for first in range(0, len(names), _MAX_CONTENT_TOPICS)
        ]

    def _now(self) -> _Moment:
        return _Moment(self._clock(), round(trio.current_time() * _SECOND_NS))

    async def _list(self, peer: PeerId, query: StoreQuery, topic: _Topic, *, fetch: bool) -> bool:
        """Go through what one store has; False if it failed, or listed what nobody gave."""
        obtained = True
        try:
            async with aclosing(self._stores.list_hashes(peer, query, topic.pubsub_topic)) as pages:
                async for hashes in pages:
                    self.counters.listed += len(hashes)
                    obtained &= await self._take_page(hashes, peer, topic, fetch=fetch)
        except StoresExhausted as error:
            logger.debug("store does not list messages: peer=%s error=%s", peer.short(), error)
            return False
        if obtained:
            topic.fruitless = 0
            return True
        topic.fruitless += 1
        if topic.fruitless >= self._options.give_up_after:
            logger.warning("messages that a store lists cannot be had: peer=%s", peer.short())
            topic.fruitless = 0
            return True
        return False

    async def _take_page(self, hashes: list[bytes], peer: PeerId, topic: _Topic, *, fetch: bool) -> bool:
        unknown = [value for value in hashes if not self._inbox.knows(value)]
        missing = set(await self._recorder.missing(unknown)) if unknown else set[bytes]()
        if self._regularly:
            self._mark((value for value in hashes if not fetch or value not in missing), peer)
        if not missing or not fetch:
            return True
        wanted = [value for value in hashes if value in missing]
        fetched = self._stores.fetch(topic.pubsub_topic, wanted, batch=self._options.batch)
        async with aclosing(fetched) as entries:
            async for source, entry in entries:
                missing.discard(entry.message_hash)
                self._mark([entry.message_hash], source)
                if entry.message is None or entry.pubsub_topic is None:
                    continue
                taken = self._inbox.take(
                    entry.pubsub_topic, entry.message, entry.message_hash, "store", source
                )
                self.counters.fetched += taken
                if self._inbox.pressed:
                    await self._inbox.let_others_catch_up()
        self.counters.unobtainable += len(missing)
        return not missing

    def _mark(self, hashes: Iterable[bytes], peer: PeerId) -> None:
        """These are stored."""
        for value in hashes:
            if value not in self._marked:
                self._marked[value] = None
                if len(self._marked) > _MAX_MARKED:
                    self._marked.popitem(last=False)
                self._on_stored(value, peer)
