"""Whole conversations from one seed: loss, partitions, crashes, payloads of a byte to 5 MB.

In the end everybody has everything once, in an order that respects causality, and senders know of each one.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pywaku.channels import ReliableChannelOptions
from pywaku.sds import RepairOptions
from pywaku.segments import SegmentationConfig
from tests.support.channels import MINUTE_MS, ChannelNet, Weather, prove

MB = 1_000_000
PLAIN = ReliableChannelOptions()
WITH_PARITY = ReliableChannelOptions(segmentation=SegmentationConfig(enable_reed_solomon=True))


def payload_of(rng: random.Random, largest: int) -> bytes:
    """Mostly a few bytes (and the same ones now and then), sometimes much more."""
    chance = rng.random()
    if chance < 0.9:
        size = rng.choice([1, 2, rng.randint(3, 200)])
    elif chance < 0.97:
        size = rng.randint(200, 100_000)
    elif chance < 0.99:
        size = rng.randint(100_000, min(largest, MB))
    else:
        size = rng.randint(100_000, largest)
    return rng.randbytes(size)


def converse(
    count: int,
    seed: int,
    *,
    messages: int,
    minutes: int,
    options: ReliableChannelOptions = PLAIN,
    weather: Weather | None = None,
    largest: int = 5 * MB,
) -> ChannelNet:
    """Random participants send; some crash, and twice nothing gets from one side to the other for a while."""
    print("seed", seed)
    net = ChannelNet(count, seed, options, weather)
    rng, length_ms = net.rng, minutes * MINUTE_MS

    def say() -> None:
        up = [member for member in net.members if not member.down]
        if up:
            net.send(rng.choice(up), payload_of(rng, largest))

    def crash() -> None:
        net.crash(rng.choice(net.members), rng.randrange(2 * MINUTE_MS))

    for action, times in (
        (say, messages),
        (crash, max(4, count // 2)),
        (lambda: net.part(rng.randrange(3 * MINUTE_MS)), 2),
    ):
        for _ in range(times):
            net.after(rng.randrange(length_ms), action)
    net.run(length_ms)
    assert net.run_until_settled(within_ms=120 * MINUTE_MS)
    assert net.crashes >= 2
    return net


def delivered_share(net: ChannelNet) -> float:
    """Of how many messages their senders know that they were delivered."""
    finals = [final for member in net.members for each in member.finals.values() for final in each]
    known = finals.count("reliable:message:delivered")
    return known / sum(len(member.sent) for member in net.members)


@pytest.mark.parametrize(("count", "seed"), [(3, 1), (10, 2)])
def test_everybody_ends_with_the_same_messages_in_causal_order(count: int, seed: int) -> None:
    net = converse(count, seed, messages=150, minutes=15, options=WITH_PARITY if seed % 2 else PLAIN)
    prove(net, at_least=140)
    assert delivered_share(net) > 0.9  # of three, one may be alone for minutes


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [3, 10, 50])
def test_everybody_ends_with_the_same_thousand_messages_in_causal_order(count: int, seed: int) -> None:
    net = converse(count, seed, messages=1_000, minutes=30, options=WITH_PARITY if seed % 2 else PLAIN)
    prove(net, at_least=950)
    assert delivered_share(net) > 0.9


@pytest.mark.parametrize("seed", [3])
def test_participants_repair_all_of_it_without_any_store(seed: int) -> None:
    options = replace(
        PLAIN, timeout_for_lost_messages_ms=None, repair=RepairOptions(t_min_ms=5_000, t_max_ms=20_000)
    )
    net = converse(
        6, seed, messages=100, minutes=10, options=options, weather=Weather(store=False), largest=MB
    )
    prove(net, at_least=90)


@pytest.mark.parametrize("seed", [4])
def test_all_of_many_segments_come_together_in_order_though_a_fifth_of_them_is_lost(seed: int) -> None:
    """Up to 300 segments a message, so that loose ends, knots and bounds of a history matter."""
    small = SegmentationConfig(segment_size_bytes=64, enable_reed_solomon=True)
    print("seed", seed)
    net = ChannelNet(4, seed, replace(PLAIN, segmentation=small))
    for number in range(16):
        size = net.rng.choice([64 * 150, net.rng.randint(1, 4_000)])
        member = net.members[number % 4]
        net.after(number * 9_000, lambda member=member, size=size: net.send(member, net.rng.randbytes(size)))
    net.run(2 * MINUTE_MS)
    net.crash(net.members[0], MINUTE_MS)
    assert net.run_until_settled(within_ms=120 * MINUTE_MS)
    prove(net, at_least=16)


@pytest.mark.parametrize("seed", [5])
def test_delivered_to_all_known_is_delivered_to_all(seed: int) -> None:
    options = replace(PLAIN, delivered_to="all-known")
    net = converse(5, seed, messages=60, minutes=10, options=options, largest=MB)
    prove(net, at_least=50)
    assert delivered_share(net) > 0.98


@pytest.mark.parametrize("seed", [6])
def test_the_same_with_the_options_of_js_waku(seed: int) -> None:
    options = replace(
        ReliableChannelOptions.js_waku(), segmentation=SegmentationConfig(segment_size_bytes=120_000)
    )
    net = converse(5, seed, messages=80, minutes=10, options=options, largest=120_000)
    prove(net, at_least=70)


def test_it_replays() -> None:
    first, second = (converse(4, 7, messages=40, minutes=5, largest=MB) for _ in range(2))
    assert first.transmissions == second.transmissions
    for one, other in zip(first.members, second.members, strict=True):
        assert one.received == other.received
        assert one.rows == other.rows
