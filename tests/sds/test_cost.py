"""What a message costs does not grow with the history, nor memory with what strangers send."""

from __future__ import annotations

import random
import sys
from typing import Any, cast

import pytest

from pywaku.sds import (
    RepairOptions,
    SdsChannel,
    SdsOptions,
)
from pywaku.wire.sds import encode_sds
from tests.support.decoders import DECODERS
from tests.support.sds_channels import CHANNEL, START_MS, Side, content, entries, sync

SDS_ENCODINGS = next(decoder for decoder in DECODERS if decoder.name == "sds").encodings


def footprint(value: Any, seen: set[int] | None = None) -> int:
    """The bytes that an object and all within it take."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, type | random.Random) or callable(value):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    inside: list[Any]
    if isinstance(value, dict):
        table = cast("dict[Any, Any]", value)
        inside = [*table.keys(), *table.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        inside = list(cast("list[Any]", value))
    else:
        names = [*getattr(cast("object", type(value)), "__slots__", ()), *getattr(value, "__dict__", ())]
        inside = [getattr(value, name) for name in names if hasattr(value, name)]
    return size + sum(footprint(one, seen) for one in inside)


def forgetting(name: str, **options: Any) -> Side:
    """A side whose rows nobody takes: a store is not what is measured here."""
    channel = SdsChannel(
        CHANNEL, name, SdsOptions(**options), rng=random.Random(1), now_ns=START_MS * 1_000_000
    )
    return Side(name, channel=channel)


@pytest.mark.parametrize("senders", [1, 3_000])
def test_memory_is_bounded_under_a_flood_of_everything(senders: int) -> None:
    repair = RepairOptions(max_cached=200, max_cached_bytes=200_000, max_responses=50)
    side = forgetting(
        "alice",
        repair=repair,
        max_log=500,
        max_incoming=100,
        max_missing=300,
        max_lost=200,
        max_participants=100,
        bloom_filter_capacity=1_000,
    )
    own = [side.send(b"%d" % number).message_id for number in range(50)]
    rng = random.Random(1)
    sizes: list[int] = []
    for number in range(6_000):
        known = f"m{rng.randrange(max(1, number))}"
        after = rng.choice(
            [(), (known,), (f"x{number}", known), tuple(f"y{number}-{one}" for one in range(20))]
        )
        sender = f"sender-{number % senders}"
        fields: dict[str, Any] = {
            "sender": sender,
            "lamport": START_MS + number,
            "repair_request": entries(known, rng.choice(own), f"z{number}"),
            "bloom_filter": bytes(rng.choice([0, 5, 2_344])),
        }
        message = sync(*after, **fields) if number % 3 == 0 else content(f"m{number}", *after, **fields)
        side.hear(message)
        side.events.clear()
        if number % 100 == 0:
            side.tick(number)
        if number in (2_999, 5_999):
            sizes.append(footprint(side.sds))
    found = side.sds.sizes()
    assert (found.log, found.cached <= 200, found.cached_bytes <= 200_000) == (500, True, True)
    assert found.incoming <= 100
    assert found.missing <= 300
    assert found.lost <= 200
    assert found.participants <= 100
    assert found.responses <= 50
    assert found.heads <= 500
    assert sizes[1] < 1.1 * sizes[0]
    assert sizes[1] < 5_000_000


def test_the_cost_of_a_message_does_not_grow_with_the_history() -> None:
    """Counted in steps of the interpreter, which are the same on any machine."""

    def steps(history: int) -> tuple[int, int]:
        sender = forgetting("alice", causal_history_size=200, max_log=50_000, sync_min_interval_ms=0)
        receiver = forgetting("bob", causal_history_size=200, max_log=50_000, sync_min_interval_ms=0)
        for number in range(history):
            message = encode_sds(content(f"m{number}", lamport=START_MS + number, sender="carol"))
            sender.sds.receive(message, sender.now_ns)
            receiver.sds.receive(message, receiver.now_ns)
        made = [sender.sds.send(b"warm", sender.now_ns)]
        receiver.sds.receive(made[0].data, receiver.now_ns)
        sending = _counted(lambda: made.append(sender.sds.send(b"counted", sender.now_ns)))
        receiving = _counted(lambda: receiver.sds.receive(made[1].data, receiver.now_ns))
        return sending, receiving

    few, many = steps(600), steps(6_000)
    assert many[0] <= 1.1 * few[0]
    assert many[1] <= 1.1 * few[1]


def _counted(action: Any) -> int:
    lines = 0

    def trace(_frame: Any, _event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return lines
