"""Reed-Solomon erasure coding whose parity is, byte for byte, that of Leopard FF8.

The shards of a payload are values of polynomials, one polynomial for each byte position. With m the power of
two that the parity shards fit in, data shard i is the value at the point m + i, and the points come in blocks
of m. Through the values in each block goes one polynomial of a degree below m; parity shard j is the value of
their sum at the point j. An additive fast Fourier transform leads from values to coefficients and back, with
m·log m / 2 multiplications of shards for a block instead of m².

Shards are multiplied by `translate` and added by xor, both of which run at the speed of memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from Crypto.Util.strxor import strxor

from pywaku.errors import InvalidInput
from pywaku.segments.field import divide, products_with

POINTS: Final = 256

_Shard = bytearray | None
"""None stands for zeros, which cost nothing."""


def padded_count(parity_count: int) -> int:
    """The power of two that so many parity shards fit in."""
    return 1 << (parity_count - 1).bit_length()


def fits(data_count: int, parity_count: int) -> bool:
    """Are there enough points for so many shards? Leopard uses a larger field, FF16, where there are not."""
    return data_count == 1 or data_count + padded_count(parity_count) <= POINTS


def encode(data: Sequence[bytes | memoryview], parity_count: int) -> list[bytes]:
    """The parity shards of data shards that all have the same length."""
    if not data or parity_count < 1 or not fits(len(data), parity_count):
        raise InvalidInput(
            f"{len(data)} data and {parity_count} parity shards are not possible: there is at least one of "
            f"each, and data and the power of two that parity fits in are at most {POINTS} together"
        )
    if len({len(shard) for shard in data}) > 1:
        raise InvalidInput("shards of one payload all have the same length")
    if len(data) == 1:
        return [bytes(data[0])] * parity_count
    size = len(data[0])
    return [bytes(shard or bytes(size)) for shard in _parity(data, parity_count)[:parity_count]]


def recover(data: Sequence[bytes | None], parity: Mapping[int, bytes], parity_count: int) -> dict[int, bytes]:
    """The data shards that are None, by their indices, out of the others and as many parity shards.

    All shards have the same length; `parity` holds those that there are by their indices.
    """
    lost = [index for index, shard in enumerate(data) if shard is None]
    if len(lost) > len(parity):
        raise InvalidInput(f"{len(parity)} parity shards do not make up for {len(lost)} lost data shards")
    if not lost:
        return {}
    if len(data) == 1:
        return {0: next(iter(parity.values()))}
    used = sorted(parity)[: len(lost)]
    known = _parity(data, parity_count)
    first = padded_count(parity_count)
    rows: list[bytearray] = []
    for index in used:
        # What the lost shards add to this parity shard, behind the factors by which they do.
        row = bytearray(_factor(index, first + point, first) for point in lost) + parity[index]
        there = known[index]
        if there is not None:
            strxor(row, bytes(len(lost)) + there, output=row)
        rows.append(row)
    _solve(rows)
    return {index: bytes(row[len(lost) :]) for index, row in zip(lost, rows, strict=True)}


def _factor(parity_index: int, point: int, block: int) -> int:
    """By which factor the data shard at a point goes into a parity shard.

    It is the Lagrange polynomial of the point in its block, at the point of the parity shard: the product of
    the differences from all points of the block but one, over the same product at the data point itself,
    which is 1 with a Cantor basis. The product over the whole block is what a shift makes of the point.
    """
    return divide(point // block, parity_index ^ point)


def _solve(rows: list[bytearray]) -> None:
    """Gauss-Jordan elimination of the square at the left of the rows, which is never singular."""
    for column, pivot in enumerate(rows):
        if not pivot[column]:
            other = next(row for row in rows[column + 1 :] if row[column])
            pivot[:], other[:] = other[:], pivot[:]
        if pivot[column] != 1:
            pivot[:] = pivot.translate(products_with(divide(1, pivot[column])))
        for row in rows:
            if row is not pivot and row[column]:
                strxor(row, pivot.translate(products_with(row[column])), output=row)


def _parity(data: Sequence[bytes | memoryview | None], parity_count: int) -> list[_Shard]:
    """The values at the points 0 … m-1 of the sum of the polynomials through the blocks of data."""
    block = padded_count(parity_count)
    total: list[_Shard] = [None] * block
    for start in range(0, len(data), block):
        part: list[_Shard] = [
            None if shard is None else bytearray(shard) for shard in data[start : start + block]
        ]
        part += [None] * (block - len(part))
        _to_coefficients(part, block + start)
        for index, shard in enumerate(part):
            total[index] = _sum(total[index], shard)
    _to_values(total, 0)
    return total


def _to_coefficients(shards: list[_Shard], first: int) -> None:
    """Coefficients, over the basis of the transform, of the polynomial with these values from `first` on."""
    distance = 1
    while distance < len(shards):
        for start in range(0, len(shards), 2 * distance):
            factor = (first + start) // distance
            for low in range(start, start + distance):
                high = low + distance
                shards[high] = _sum(shards[high], shards[low])
                shards[low] = _sum(shards[low], _product(shards[high], factor))
        distance *= 2


def _to_values(shards: list[_Shard], first: int) -> None:
    """The way back: each step undone, in the opposite order."""
    distance = len(shards) // 2
    while distance:
        for start in range(0, len(shards), 2 * distance):
            factor = (first + start) // distance
            for low in range(start, start + distance):
                high = low + distance
                shards[low] = _sum(shards[low], _product(shards[high], factor))
                shards[high] = _sum(shards[high], shards[low])
        distance //= 2


def _product(shard: _Shard, factor: int) -> _Shard:
    """A shard of its own, or None for zeros."""
    if shard is None or not factor:
        return None
    return shard.translate(products_with(factor))


def _sum(shard: _Shard, other: _Shard) -> _Shard:
    """The sum, put into `shard` where that is there."""
    if other is None:
        return shard
    if shard is None:
        return bytearray(other)
    strxor(shard, other, output=shard)
    return shard
