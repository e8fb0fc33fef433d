"""The values that Waku puts into node records: `waku2` and `multiaddrs` (31/WAKU2-ENR), `rs` and `rsv`
(WAKU2-RELAY-SHARDING, "Discovery").
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Flag
from typing import Final, NamedTuple

from pywaku.errors import DecodeError, InvalidInput
from pywaku.topics import MAX_CLUSTER_ID, SHARDS_PER_CLUSTER
from pywaku.wire.multiaddr import Multiaddr

_VECTOR_BYTES: Final = SHARDS_PER_CLUSTER // 8
_INDEX_LIST_BELOW: Final = 64  # with this many shards and more, the bit vector is to be used


class Capability(Flag):
    """What a node serves (`waku2` ENR key)."""

    RELAY = 1
    STORE = 2
    FILTER = 4
    LIGHTPUSH = 8
    SYNC = 16


_ALL_CAPABILITIES: Final = ~Capability(0)


class RelayShards(NamedTuple):
    """The shards that a node relays, all of one cluster; sorted."""

    cluster_id: int
    shards: tuple[int, ...]


def encode_capabilities(capabilities: Capability) -> bytes:
    """The flags as an 8-bit field."""
    return bytes((capabilities.value,))


def decode_capabilities(value: bytes) -> Capability:
    """The flags that we know of an 8-bit field; raises `DecodeError`."""
    if len(value) != 1:
        raise DecodeError(f"waku2 is one byte, not {len(value)}")
    return Capability(value[0] & _ALL_CAPABILITIES.value)


def encode_shards(shards: RelayShards) -> tuple[bytes, bytes]:
    """The ENR key and value for shards: an index list (`rs`), or a bit vector (`rsv`) for 64 and more."""
    numbers = sorted(set(shards.shards))
    if not 0 <= shards.cluster_id <= MAX_CLUSTER_ID:
        raise InvalidInput(f"cluster ids lie between 0 and {MAX_CLUSTER_ID}, not {shards.cluster_id}")
    if numbers and not 0 <= numbers[0] <= numbers[-1] < SHARDS_PER_CLUSTER:
        raise InvalidInput(f"shards lie between 0 and {SHARDS_PER_CLUSTER - 1}")
    cluster = shards.cluster_id.to_bytes(2)
    if len(numbers) < _INDEX_LIST_BELOW:
        return b"rs", cluster + bytes((len(numbers),)) + b"".join(number.to_bytes(2) for number in numbers)
    return b"rsv", cluster + sum(1 << number for number in numbers).to_bytes(_VECTOR_BYTES)


def decode_index_list(value: bytes) -> RelayShards:
    """The shards of an index list (`rs`); raises `DecodeError`."""
    if len(value) < 3 or len(value) != 3 + 2 * value[2]:
        raise DecodeError("rs is a cluster id, a number of shards and that many shards")
    shards = {int.from_bytes(value[at : at + 2]) for at in range(3, len(value), 2)}
    if any(shard >= SHARDS_PER_CLUSTER for shard in shards):
        raise DecodeError(f"a cluster has {SHARDS_PER_CLUSTER} shards")
    return RelayShards(int.from_bytes(value[:2]), tuple(sorted(shards)))


def decode_bit_vector(value: bytes) -> RelayShards:
    """The shards of a bit vector (`rsv`), whose right-most bit is shard 0; raises `DecodeError`."""
    if len(value) != 2 + _VECTOR_BYTES:
        raise DecodeError(f"rsv is a cluster id and {_VECTOR_BYTES} bytes")
    vector = int.from_bytes(value[2:])
    shards = (shard for shard in range(SHARDS_PER_CLUSTER) if vector >> shard & 1)
    return RelayShards(int.from_bytes(value[:2]), tuple(shards))


def encode_multiaddrs(addresses: Iterable[Multiaddr]) -> bytes:
    """Addresses, each after its size in two bytes.

    They are to be as `multiaddrs` stores them: without the node's own peer id, circuit addresses cut before
    `/p2p-circuit`.
    """
    encoded = [address.encode() for address in addresses]
    return b"".join(len(item).to_bytes(2) + item for item in encoded)


def decode_multiaddrs(value: bytes) -> tuple[Multiaddr, ...]:
    """The addresses of a list as they are stored; raises `DecodeError` where it is none.

    Addresses of kinds that we do not know are skipped.
    """
    addresses: list[Multiaddr] = []
    position = 0
    while position < len(value):
        start = position + 2
        position = start + int.from_bytes(value[position:start])
        if start > len(value) or position > len(value):
            raise DecodeError("a list of multiaddrs is cut short")
        try:
            addresses.append(Multiaddr.decode(value[start:position]))
        except DecodeError:
            continue
    return tuple(addresses)
