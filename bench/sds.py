"""SDS against the one of js-waku, both with its options: 200 history entries, filters of 18,752 bytes.

A rate is that at a certain length of history, codec included. Ours got there by as many messages, theirs is
put there: it would take hours. What counts is the time of the processor, for nothing here waits.
"""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.report import Row, compare
from bench.sides import Scale
from interop.sds import open_js_sds, what_is_missing_for_sds
from pywaku.sds import Outcome, SdsChannel, SdsOptions
from pywaku.sds.bloom import BloomFilter, BloomShape

_START_NS: Final = 1_700_000_000_000_000_000
_STEP_NS: Final = 1_000_000
_OPTIONS: Final = replace(SdsOptions.js_waku(), max_log=50_000)
_PEER: Final = "js @waku/sds"
_COUNT: Final = 500
_SYNC_EVERY: Final = 50
_IDS: Final = 20_000
_JS_COUNT: Final = {1_000: 400, 10_000: 60}
RATE_NAMES: Final = tuple(
    f"sds-{way}-{length}" for length in ("1k", "10k", "50k") for way in ("send", "receive")
)
_GOALS: Final = {"sds-send-1k": 5.0, "sds-receive-1k": 5.0, "sds-send-10k": 30.0, "sds-receive-10k": 100.0}


class _Pair:
    """A sender and a receiver who acknowledges now and then, as time goes on."""

    def __init__(self) -> None:
        self.now_ns = _START_NS
        self.sender = self._open("sender")
        self.receiver = self._open("receiver")
        self.length = 0

    def _open(self, name: str) -> SdsChannel:
        return SdsChannel("bench", name, _OPTIONS, rng=random.Random(1), now_ns=self.now_ns)

    def exchange(self, count: int) -> tuple[float, float]:
        """So many messages: the seconds to send and to receive them."""
        sending = receiving = 0.0
        for _ in range(count):
            self.now_ns += _STEP_NS
            content = b"bench %d " % self.length
            content += b"x" * (100 - len(content))
            start = time.thread_time()
            made = self.sender.send(content, self.now_ns)
            middle = time.thread_time()
            received = self.receiver.receive(made.data, self.now_ns)
            receiving += time.thread_time() - middle
            sending += middle - start
            if received.outcome is not Outcome.DELIVERED:
                raise RuntimeError(f"a message was {received.outcome.value}")
            self.sender.sent(made.message_id, self.now_ns, retrieval_hint=bytes(32))
            self.length += 1
            if self.length % _SYNC_EVERY == 0:
                self._acknowledge()
        return sending, receiving

    def _acknowledge(self) -> None:
        self.receiver.sync(self.now_ns)
        for one in self.receiver.take_transmissions():
            self.sender.receive(one.data, self.now_ns)
        self.sender.take_events()
        self.receiver.take_events()


async def rates(scale: Scale) -> list[Row]:
    """Messages per second with 1,000, 10,000 and 50,000 messages of history; the last are ours alone."""
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}
    count = scale.of(_COUNT)
    async with AsyncExitStack() as stack:
        js = None if what_is_missing_for_sds() else await stack.enter_async_context(open_js_sds())
        pairs = {length: _Pair() for length in (1_000, 10_000, 50_000)}
        for length, pair in pairs.items():
            pair.exchange(length - pair.length)
        if js is not None:
            await js.call("bench", history=0, count=1_000, timeout=600)  # to be compiled
        for _ in range(scale.rounds):
            for length, pair in pairs.items():
                sending, receiving = pair.exchange(count)
                name = f"{length // 1_000}k"
                ours.setdefault(f"sds-send-{name}", []).append(count / sending)
                ours.setdefault(f"sds-receive-{name}", []).append(count / receiving)
                if js is not None and length in _JS_COUNT:
                    found = await js.call("bench", history=length, count=_JS_COUNT[length], timeout=600)
                    theirs.setdefault(f"sds-send-{name}", []).append(float(found["send"]))
                    theirs.setdefault(f"sds-receive-{name}", []).append(float(found["receive"]))
    rows: list[Row] = []
    for name, values in ours.items():
        compared = _median(theirs.get(name))
        peer, goal = _PEER, _GOALS.get(name)
        if name.endswith("-50k"):
            compared, peer, goal = _median(ours[name.replace("-50k", "-1k")]), "ours at 1k", 0.8
        rows.append(
            compare(
                name, ours=statistics.median(values), theirs=compared, peer=peer, goal=goal, unit="messages/s"
            )
        )
    return rows


def _median(values: list[float] | None) -> float | None:
    return statistics.median(values) if values else None


async def bloom(scale: Scale) -> list[Row]:
    """Insertions into a bloom filter, and look-ups of what is in it."""
    count = scale.of(_IDS)
    ids = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(count)]
    ours: dict[str, list[float]] = {"insert": [], "lookup": []}
    theirs: dict[str, list[float]] = {"insert": [], "lookup": []}
    async with AsyncExitStack() as stack:
        js = None if what_is_missing_for_sds() else await stack.enter_async_context(open_js_sds())
        if js is not None:
            await js.call("benchBloom", count=count)
        for _ in range(scale.rounds):
            made = BloomFilter(BloomShape(10_000, 0.001))
            ours["insert"].append(count / _seconds(made.insert, ids))
            ours["lookup"].append(count / _seconds(made.lookup, ids))
            if js is not None:
                for name, value in (await js.call("benchBloom", count=count)).items():
                    theirs[name].append(float(value))
    return [
        compare(
            f"bloom-{name}",
            ours=statistics.median(ours[name]),
            theirs=_median(theirs[name]),
            peer=_PEER,
            goal=10.0,
            unit="ids/s",
        )
        for name in ours
    ]


def _seconds(action: Callable[[str], object], ids: list[str]) -> float:
    start = time.thread_time()
    for one in ids:
        action(one)
    return time.thread_time() - start


async def memory(scale: Scale) -> list[Row]:
    """What a participant that has received 50,000 messages holds in memory, in a process of its own."""
    del scale  # it is memory at 50,000, whatever the scale
    done = subprocess.run(
        [sys.executable, "-m", "bench.sds", "50000"], capture_output=True, text=True, check=True
    )
    return [compare("sds-memory-50k", ours=float(json.loads(done.stdout)), unit="MB")]


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def _measure_memory(length: int) -> None:
    pair = _Pair()
    pair.exchange(100)
    empty = _resident_mb()
    pair.exchange(length)
    both = _resident_mb() - empty
    print(json.dumps(both / 2))


if __name__ == "__main__":
    _measure_memory(int(sys.argv[1]))
