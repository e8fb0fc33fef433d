"""The cache of peer exchange (34/WAKU2-PEER-EXCHANGE, Exchange Peer Cache Size)."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import InvalidInput
from pywaku.peers.exchange_cache import CacheLimits, ExchangeCache
from pywaku.wire.enr import Enr
from tests.support.peers import record_of

RECORDS = [record_of(n) for n in range(150)]


def cache_of(limits: CacheLimits | None = None) -> ExchangeCache:
    return ExchangeCache(limits or CacheLimits(), random.Random(1))


def held(cache: ExchangeCache) -> set[Enr]:
    return set(cache.sample(10_000))


def test_the_cache_holds_ten_times_the_outbound_degree() -> None:
    cache = cache_of()
    cache.refresh(RECORDS, 0)
    assert len(cache) == 60


def test_samples_are_random_distinct_and_no_larger_than_asked_for() -> None:
    cache = cache_of()
    cache.refresh(RECORDS, 0)
    samples = [cache.sample(6) for _ in range(50)]
    assert all(len({record.peer_id for record in sample}) == 6 for sample in samples)
    assert len({record for sample in samples for record in sample}) > 40
    overlap = sum(len(set(one) & set(other)) for one, other in itertools.pairwise(samples)) / 49
    assert overlap < 2, "on average sets do not overlap too much"


def test_a_sample_holds_what_there_is() -> None:
    cache = cache_of()
    assert cache.sample(5) == []
    cache.refresh(RECORDS[:3], 0)
    assert set(cache.sample(5)) == set(RECORDS[:3])
    assert cache.sample(0) == []


def test_excluded_peers_are_not_in_a_sample() -> None:
    cache = cache_of()
    cache.refresh(RECORDS[:10], 0)
    exclude = {record.peer_id for record in RECORDS[:8]}
    assert set(cache.sample(10, exclude)) == set(RECORDS[8:10])


def test_the_oldest_are_replaced_over_a_cycle() -> None:
    cache = cache_of(CacheLimits(size=20, cycle_s=100))
    cache.refresh(RECORDS[:40], 0)
    before = held(cache)
    kept: list[int] = []
    for now in range(0, 101, 5):
        cache.refresh(RECORDS[:40], now)
        kept.append(len(held(cache) & before))
    assert kept[0] == 20
    assert 0 < kept[15] < 20, "some go earlier, some later"
    assert kept[-1] <= 10
    assert len(cache) == 20


def test_nobody_is_replaced_where_there_is_nobody_else() -> None:
    cache = cache_of(CacheLimits(size=20, cycle_s=100))
    for now in range(0, 1000, 50):
        cache.refresh(RECORDS[:10], now)
        assert held(cache) == set(RECORDS[:10])


def test_what_is_known_no_longer_is_given_away_no_longer() -> None:
    cache = cache_of()
    cache.refresh(RECORDS[:10], 0)
    cache.refresh(RECORDS[5:12], 1)
    assert held(cache) == set(RECORDS[5:12])


def test_a_newer_record_takes_the_place_of_the_older_one() -> None:
    cache = cache_of()
    cache.refresh([record_of("a", seq=1)], 0)
    cache.refresh([record_of("a", seq=3)], 1)
    cache.refresh([record_of("a", seq=2)], 2)
    assert [record.seq for record in cache.sample(9)] == [3]


def test_the_cache_grows_to_a_tenth_of_the_requests_of_a_cycle_within_its_bound() -> None:
    cache = cache_of(CacheLimits(longest=100, cycle_s=10))
    cache.refresh(RECORDS, 0)
    for _ in range(800):
        cache.sample(1)
    cache.refresh(RECORDS, 10)
    assert (cache.capacity, len(cache)) == (80, 80)
    for _ in range(5000):
        cache.sample(1)
    cache.refresh(RECORDS, 20)
    assert (cache.capacity, len(cache)) == (100, 100)
    cache.refresh(RECORDS, 30)
    assert (cache.capacity, len(cache)) == (60, 60)


def test_limits_that_cannot_be_meant_are_refused() -> None:
    for wrong in ({"size": 0}, {"size": 10, "longest": 9}, {"cycle_s": 0}):
        with pytest.raises(InvalidInput):
            CacheLimits(**wrong)


@given(st.lists(st.tuples(st.integers(0, 200), st.sets(st.integers(0, 59))), max_size=20))
def test_the_cache_keeps_its_bounds_and_gives_away_only_what_is_known(
    steps: list[tuple[int, set[int]]],
) -> None:
    cache = cache_of(CacheLimits(size=10, longest=12, cycle_s=100))
    now = 0
    for seconds, numbers in steps:
        now += seconds
        known = [RECORDS[n] for n in numbers]
        cache.refresh(known, now)
        assert len(cache) == min(len(known), cache.capacity)
        assert held(cache) <= set(known)
