"""Bloom filters of message ids, byte for byte those of js-waku, and one that rolls over."""

from __future__ import annotations

import math
from typing import Final

import mmh3

from pywaku.sds.changes import Rows, Touch, pack, unpack

_MASKS: Final = tuple(1 << bit for bit in range(8))
_COUNT: Final = ""  # the row that has the count; the others have one id each

Cells = list[tuple[int, int]]
"""Where an id is in a filter: byte and bit of each of its hashes."""


class BloomShape:
    """The size of a filter and the number of its hashes, for a number of ids and a rate of wrong answers."""

    __slots__ = ("bits", "capacity", "hashes", "size")

    def __init__(self, capacity: int, error_rate: float) -> None:
        bits_per_element = math.ceil(-math.log(error_rate) / math.log(2) ** 2)
        self.capacity = capacity
        self.hashes = round(math.log(2) * bits_per_element)
        self.bits = capacity * bits_per_element
        self.size = 8 * (1 + self.bits // 64)
        """Bytes on the wire: 64-bit words, the first first, each with its highest byte first."""

    def start_and_step(self, item: str) -> tuple[int, int]:
        """The two hashes of which all positions are made."""
        return abs(mmh3.hash(item)) % self.bits, abs(mmh3.hash(item + " b")) % self.bits

    def positions(self, item: str) -> list[int]:
        """The bits that an item sets."""
        start, step = self.start_and_step(item)
        return [(start + number * step) % self.bits for number in range(self.hashes)]

    def cells(self, item: str) -> Cells:
        """The same as bytes and bits of the encoding."""
        # Bits count from the lowest of a word, bytes from its highest: hence the ^ 7.
        return [(bit >> 3 ^ 7, _MASKS[bit & 7]) for bit in self.positions(item)]

    def false_positive_rate(self, data: bytes) -> float:
        """The share of wrong answers that a filter gives, judged by how full it is."""
        return float((int.from_bytes(data, "little").bit_count() / self.bits) ** self.hashes)


def has_cells(data: bytes, cells: Cells) -> bool:
    """Whether a filter (of the right size) seems to have an item."""
    return all(data[byte] & mask for byte, mask in cells)


class BloomFilter:
    """A set of ids that forgets nothing and takes a few others for its own."""

    __slots__ = ("_data", "_shape")

    def __init__(self, shape: BloomShape) -> None:
        self._shape = shape
        self._data = bytearray(shape.size)

    def insert(self, item: str) -> None:
        """Add an id."""
        shape, data = self._shape, self._data
        bit, step = shape.start_and_step(item)
        bits = shape.bits
        for _ in range(shape.hashes):
            data[bit >> 3 ^ 7] |= _MASKS[bit & 7]
            bit += step
            if bit >= bits:
                bit -= bits

    def lookup(self, item: str) -> bool:
        """Whether the id seems to have been added."""
        shape, data = self._shape, self._data
        bit, step = shape.start_and_step(item)
        bits = shape.bits
        for _ in range(shape.hashes):
            if not data[bit >> 3 ^ 7] & _MASKS[bit & 7]:
                return False
            bit += step
            if bit >= bits:
                bit -= bits
        return True

    def to_bytes(self) -> bytes:
        """The filter as it goes out."""
        return bytes(self._data)


class RollingBloom:
    """The filter of received ids (SDS, Participant state): never more than its capacity, the newest at least.

    Once the capacity is reached, a filter of the newest half takes its place. That one has been filled
    alongside from the middle on, so no message costs more than two insertions.
    """

    __slots__ = ("_count", "_current", "_half", "_next", "_ring", "_shape", "_stale", "_start", "_touch")

    def __init__(self, shape: BloomShape, touch: Touch) -> None:
        self._shape = shape
        self._touch = touch
        self._half = (shape.capacity + 1) // 2
        self._ring: list[str] = []  # the newest ids, in the order of their numbers
        self._count = 0  # ids so far
        self._start = 0  # the number of the first one in the filter
        self._stale = False  # an id was taken back, so the filters have to be made anew
        self._current = BloomFilter(self._shape)
        self._next = BloomFilter(self._shape)

    def __len__(self) -> int:
        return self._count - self._start

    def __contains__(self, item: str) -> bool:
        self._refresh()
        return self._current.lookup(item)

    def add(self, item: str) -> None:
        """Add an id that is new."""
        self._refresh()
        capacity = self._shape.capacity
        if self._count - self._start == capacity:
            self._start += self._half
            self._current = self._next
            self._next = BloomFilter(self._shape)
        slot = self._count % capacity
        if slot == len(self._ring):
            self._ring.append(item)
        else:
            self._ring[slot] = item
        self._count += 1
        self._current.insert(item)
        if self._count > self._start + self._half:
            self._next.insert(item)
        self._touch(str(slot))
        self._touch(_COUNT)

    def remove(self, item: str) -> None:
        """Take back an id, if it is still among the newest; the filter is made anew before it is used."""
        if item in self._ring:
            slot = self._ring.index(item)
            self._ring[slot] = ""
            self._touch(str(slot))
            self._stale = True

    def to_bytes(self) -> bytes:
        """The filter as it goes out."""
        self._refresh()
        return self._current.to_bytes()

    def record(self, key: str) -> bytes | None:
        """A row of the saved state."""
        if key == _COUNT:
            return pack(self._count, self._shape.capacity)
        slot = int(key)
        return self._ring[slot].encode() if slot < len(self._ring) else None

    def load(self, rows: Rows) -> None:
        """Take the saved state, also one of another capacity."""
        if _COUNT not in rows:
            return
        count, capacity = unpack(rows[_COUNT])
        newest = range(max(0, count - capacity), count)
        items = [rows[str(number % capacity)].decode() for number in newest]
        if capacity != self._shape.capacity:
            for key in rows:
                self._touch(key)
            for item in items:
                self.add(item)
            return
        self._count = count
        self._ring = [rows[str(slot)].decode() for slot in range(min(count, capacity))]
        if count > capacity:
            self._start = self._half * -(-(count - capacity) // self._half)
        self._rebuild()

    def _refresh(self) -> None:
        if self._stale:
            self._rebuild()

    def _rebuild(self) -> None:
        self._stale = False
        self._current = BloomFilter(self._shape)
        self._next = BloomFilter(self._shape)
        for number in range(self._start, self._count):
            item = self._ring[number % self._shape.capacity]
            if item:
                self._current.insert(item)
                if number >= self._start + self._half:
                    self._next.insert(item)
