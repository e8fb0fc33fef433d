"""Bloom filters: js-waku's bytes, honest answers, and roll-over (SDS, Participant state)."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.sds.bloom import BloomFilter, BloomShape, RollingBloom, has_cells

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "sds.json").read_text(encoding="utf-8")
)
DEFAULT = BloomShape(10_000, 0.001)


def untouched(_key: str) -> None:
    """For filters that nobody saves."""


@pytest.mark.parametrize("vector", VECTORS["sizing"], ids=lambda one: f"{one['capacity']}-{one['errorRate']}")
def test_known_sizes(vector: dict[str, Any]) -> None:
    shape = BloomShape(vector["capacity"], vector["errorRate"])
    assert (shape.hashes, shape.bits, shape.size) == (vector["k"], vector["totalBits"], vector["bytes"])


@pytest.mark.parametrize("vector", VECTORS["bloom"])
def test_known_filters(vector: dict[str, Any]) -> None:
    options = vector["options"]
    made = BloomFilter(BloomShape(options["capacity"], options["errorRate"]))
    for item in VECTORS["bloomIds"][vector["ids"]]:
        made.insert(item)
    data = made.to_bytes()
    assert hashlib.sha256(data).hexdigest() == vector["sha256"]
    assert int.from_bytes(data).bit_count() == vector["setBits"]
    assert "hex" not in vector or data.hex() == vector["hex"]


@pytest.mark.parametrize("item", VECTORS["bloomPositions"])
def test_known_positions(item: str) -> None:
    assert DEFAULT.positions(item) == VECTORS["bloomPositions"][item]


@given(st.sets(st.text(max_size=70), max_size=60), st.integers(1, 100), st.sampled_from([0.5, 0.1, 0.001]))
def test_what_was_added_is_found_in_the_filter_and_in_its_bytes(
    items: set[str], capacity: int, error_rate: float
) -> None:
    shape = BloomShape(capacity, error_rate)
    made = BloomFilter(shape)
    for item in items:
        made.insert(item)
    data = made.to_bytes()
    assert len(data) == shape.size
    for item in items:
        assert made.lookup(item)
        assert has_cells(data, shape.cells(item))


def test_the_filter_is_designed_to_minimize_false_positives() -> None:
    made = BloomFilter(DEFAULT)
    for number in range(10_000):
        made.insert(f"in-{number}")
    wrong = sum(made.lookup(f"out-{number}") for number in range(20_000)) / 20_000
    assert wrong < 0.002
    assert DEFAULT.false_positive_rate(made.to_bytes()) == pytest.approx(0.001, rel=0.5)
    assert DEFAULT.false_positive_rate(b"\xff" * DEFAULT.size) >= 1
    assert DEFAULT.false_positive_rate(bytes(DEFAULT.size)) == 0


def test_the_filter_is_rolled_over_and_recomputed_once_it_reaches_its_capacity() -> None:
    rolling = RollingBloom(DEFAULT, untouched)
    ids = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(35_000)]
    for number, item in enumerate(ids, 1):
        rolling.add(item)
        assert len(rolling) <= 10_000
        assert len(rolling) >= min(number, 5_000)
    data = rolling.to_bytes()
    assert len(data) == 18_752
    assert all(item in rolling for item in ids[-5_000:])
    assert sum(item in rolling for item in ids[:20_000]) < 100
    fresh = BloomFilter(DEFAULT)
    for item in ids[-len(rolling) :]:
        fresh.insert(item)
    assert data == fresh.to_bytes()


@given(st.integers(1, 9), st.integers(0, 40), st.integers(1, 9))
def test_a_saved_filter_is_restored_also_into_another_capacity(capacity: int, count: int, other: int) -> None:
    touched: set[str] = set()
    shape = BloomShape(capacity, 0.1)
    rolling = RollingBloom(shape, touched.add)
    for number in range(count):
        rolling.add(f"id-{number}")
    rows = {key: row for key in touched if (row := rolling.record(key)) is not None}
    same = RollingBloom(shape, untouched)
    same.load(rows)
    resized = RollingBloom(BloomShape(other, 0.1), untouched)
    resized.load(rows)
    for number in range(count, count + 2 * capacity):
        assert same.to_bytes() == rolling.to_bytes()
        assert len(same) == len(rolling)
        same.add(f"id-{number}")
        rolling.add(f"id-{number}")
    for number in range(max(0, count - (min(capacity, other) + 1) // 2), count):
        assert f"id-{number}" in resized


def test_a_removed_id_is_gone_and_the_others_stay() -> None:
    shape = BloomShape(100, 0.001)
    rolling = RollingBloom(shape, untouched)
    ids = [f"id-{random.Random(number).random()}" for number in range(170)]
    for item in ids:
        rolling.add(item)
    assert ids[-3] in rolling
    rolling.remove(ids[-3])
    rolling.remove("never there")
    assert ids[-3] not in rolling
    assert all(item in rolling for item in ids[-40:] if item != ids[-3])
