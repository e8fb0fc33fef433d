"""The free-bandwidth rule (64/WAKU2-NETWORK, Free bandwidth exceeded), pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.protocols.relay.bandwidth import BandwidthMeter, FreeBandwidth


def test_the_meter_gives_bits_per_second_over_its_window() -> None:
    meter = BandwidthMeter(10.0)
    for second in range(10):
        meter.add(1000, float(second))
    assert meter.bits_per_second(9.0) == pytest.approx(8000)
    assert meter.bits_per_second(14.2) == pytest.approx(4000, rel=0.21)
    assert meter.bits_per_second(30.0) == 0


def test_time_that_stands_still_or_jumps_is_no_trouble() -> None:
    meter = BandwidthMeter(10.0)
    meter.add(100, 5.0)
    meter.add(100, 5.0)
    meter.add(100, 4.0)
    assert meter.bits_per_second(5.0) == pytest.approx(240)
    assert meter.bits_per_second(1e9) == 0


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 10_000)), max_size=100))
def test_the_meter_never_counts_more_than_the_window_held(steps: list[tuple[float, int]]) -> None:
    meter = BandwidthMeter(10.0)
    now = 0.0
    events: list[tuple[float, int]] = []
    for pause, size in steps:
        now += pause
        meter.add(size, now)
        events.append((now, size))
        measured = meter.bits_per_second(now) * 10 / 8
        assert measured <= sum(size for when, size in events if when > now - 10.0 - 1e-6) + 1e-6
        assert measured >= sum(size for when, size in events if when > now - 9.5 + 1e-6) - 1e-6


def test_a_shard_that_equals_or_exceeds_the_limit_has_no_room() -> None:
    rule = FreeBandwidth(1_000_000, window_s=10.0)
    assert rule.has_room("shard", 0.0)
    rule.carried("shard", 1_249_999, 0.0)
    assert rule.has_room("shard", 0.0)
    rule.carried("shard", 1, 0.0)
    assert not rule.has_room("shard", 0.0)
    assert rule.has_room("other shard", 0.0)
    assert rule.has_room("shard", 10.0)


def test_topics_are_bounded() -> None:
    rule = FreeBandwidth(8, window_s=10.0, max_topics=2)
    for topic in ("a", "b", "a", "c"):
        rule.carried(topic, 100, 0.0)
    assert not rule.has_room("a", 0.0)
    assert rule.has_room("b", 0.0)
    assert not rule.has_room("c", 0.0)
