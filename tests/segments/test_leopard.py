"""Parity is that of Leopard FF8, byte for byte, and makes up for any loss it can."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import InvalidInput
from pywaku.segments.field import divide, multiply, products_with
from pywaku.segments.leopard import encode, fits, padded_count, recover

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "leopard.json").read_text(encoding="utf-8")
)


def vector_data(count: int, size: int) -> list[bytes]:
    """The data shards that the vectors were made of."""
    columns = [7 * x + (x >> 3) for x in range(size)]
    return [bytes((31 * shard + column) & 255 for column in columns) for shard in range(count)]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: f"{v['data']}+{v['parity']} of {v['size']}")
def test_parity_of_leopard(vector: dict[str, Any]) -> None:
    parity = encode(vector_data(vector["data"], vector["size"]), vector["parity"])
    assert len(parity) == vector["parity"]
    if vector["shards"]:
        assert [shard.hex() for shard in parity] == vector["shards"]
    assert hashlib.sha256(b"".join(parity)).hexdigest() == vector["sha256"]


def by_definition(data: list[bytes], parity_count: int) -> list[bytes]:
    """Parity by the Lagrange polynomials of the points, without any transform."""
    block = padded_count(parity_count)
    parity = [bytearray(len(data[0])) for _ in range(parity_count)]
    for number, shard in enumerate(data):
        point = block + number
        others = [t for t in range(point // block * block, (point // block + 1) * block) if t != point]
        for index, sums in enumerate(parity):
            factor = 1
            for other in others:
                factor = multiply(factor, divide(index ^ other, point ^ other))
            for place, byte in enumerate(shard):
                sums[place] ^= multiply(factor, byte)
    return [bytes(shard) for shard in parity]


@pytest.mark.parametrize(
    ("data", "parity"), [(2, 1), (2, 2), (5, 3), (16, 16), (33, 32), (97, 33), (200, 28), (240, 16), (255, 1)]
)
def test_the_transform_computes_what_the_definition_says(data: int, parity: int) -> None:
    shards = [random.Random(number).randbytes(3) for number in range(data)]
    assert encode(shards, parity) == by_definition(shards, parity)


@given(st.data())
def test_any_loss_up_to_the_parity_is_recovered(draw: st.DataObject) -> None:
    data_count = draw.draw(st.integers(1, 60), "data")
    parity_count = draw.draw(st.integers(1, min(20, 2 * data_count)), "parity")
    rng = random.Random(draw.draw(st.integers(0, 2**32), "content"))
    data = [rng.randbytes(7) for _ in range(data_count)]
    parity = encode(data, parity_count)
    lost = draw.draw(st.sets(st.integers(0, data_count - 1), max_size=min(parity_count, data_count)), "lost")
    there = draw.draw(
        st.sets(st.integers(0, parity_count - 1), min_size=len(lost), max_size=parity_count), "parity left"
    )
    holed = [None if index in lost else shard for index, shard in enumerate(data)]
    found = recover(holed, {index: parity[index] for index in there}, parity_count)
    assert found == {index: data[index] for index in lost}


@pytest.mark.parametrize(("data", "parity"), [(224, 28), (128, 127), (192, 64), (240, 15), (254, 1)])
def test_the_largest_sets_are_recovered_at_the_worst_loss(data: int, parity: int) -> None:
    rng = random.Random(5)
    shards = [rng.randbytes(64) for _ in range(data)]
    made = encode(shards, parity)
    lost = set(rng.sample(range(data), parity))
    holed = [None if index in lost else shard for index, shard in enumerate(shards)]
    assert recover(holed, dict(enumerate(made)), parity) == {index: shards[index] for index in lost}


def test_shards_of_zeros_have_parity_of_zeros_and_are_recovered() -> None:
    data = [bytes(64) for _ in range(5)]
    parity = encode(data, 3)
    assert parity == [bytes(64)] * 3
    assert recover([None, None, None, *data[3:]], dict(enumerate(parity)), 3) == dict(enumerate(data[:3]))


def test_parity_of_a_single_shard_is_a_copy_of_it() -> None:
    assert encode([b"one"], 3) == [b"one"] * 3
    assert recover([None], {2: b"one"}, 3) == {0: b"one"}


def test_nothing_lost_is_nothing_to_recover() -> None:
    assert recover([b"a", b"b"], {}, 1) == {}


def test_what_leopard_ff8_cannot_do() -> None:
    assert fits(224, 32)
    assert not fits(225, 32)
    assert not fits(225, 17)
    assert fits(240, 16)
    assert fits(1, 254)
    with pytest.raises(InvalidInput, match="225 data and 17 parity shards are not possible"):
        encode([b"x"] * 225, 17)
    with pytest.raises(InvalidInput, match="at least one of each"):
        encode([], 1)
    with pytest.raises(InvalidInput, match="at least one of each"):
        encode([b"x"], 0)
    with pytest.raises(InvalidInput, match="same length"):
        encode([b"x", b"xy"], 1)
    with pytest.raises(InvalidInput, match="1 parity shards do not make up for 2"):
        recover([None, None, b"x"], {0: b"y"}, 2)


def test_the_field_is_a_field() -> None:
    assert [multiply(1, element) for element in range(256)] == list(range(256))
    for element in range(1, 256):
        assert multiply(element, divide(1, element)) == 1
        assert sorted(products_with(element)) == list(range(256))
    rng = random.Random(1)
    for a, b, c in [[rng.randrange(256) for _ in range(3)] for _ in range(500)]:
        assert multiply(a, b ^ c) == multiply(a, b) ^ multiply(a, c)
        assert multiply(multiply(a, b), c) == multiply(a, multiply(b, c))
    with pytest.raises(ZeroDivisionError):
        divide(1, 0)


def test_x_squared_plus_x_is_a_shift() -> None:
    """The property of the Cantor basis on which the transform rests."""
    assert all(multiply(x, x) ^ x == x >> 1 for x in range(256))
