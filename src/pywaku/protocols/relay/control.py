"""Control traffic on its way to one peer: merging what has piled up, and splitting what is too large.

Joins and leaves, GRAFT and PRUNE say how things are now, so the last word about a topic is enough; message
ids (IHAVE, IWANT, IDONTWANT) add up, within a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pywaku.wire.relay import IHave, Prune, Rpc, Subscription

MAX_IDS: Final = 5000
"""Message ids of one kind (IHAVE, IWANT, IDONTWANT) that wait for one peer; the oldest go first."""

_ID_SIZE: Final = 34  # a sha256 with its tag and length
_PIECE_OVERHEAD: Final = 16


def merge(rpcs: Sequence[Rpc]) -> tuple[Rpc, int]:
    """One RPC that says what all of `rpcs` say, in order, and how many message ids found no room in it."""
    if len(rpcs) == 1:
        return rpcs[0], 0
    subscriptions: dict[str, Subscription] = {}
    mesh: dict[str, Prune | None] = {}  # None: graft
    ihave: dict[bytes, str] = {}
    iwant: dict[bytes, None] = {}
    idontwant: dict[bytes, None] = {}
    for rpc in rpcs:
        for subscription in rpc.subscriptions:
            subscriptions[subscription.topic] = subscription
        for topic in rpc.graft:
            mesh[topic] = None
        for prune in rpc.prune:
            mesh[prune.topic] = prune
        for offer in rpc.ihave:
            ihave.update(dict.fromkeys(offer.message_ids, offer.topic))
        iwant.update(dict.fromkeys(rpc.iwant))
        idontwant.update(dict.fromkeys(rpc.idontwant))
    lost = sum(_trim(ids) for ids in (ihave, iwant, idontwant))
    return Rpc(
        subscriptions=tuple(subscriptions.values()),
        ihave=_by_topic(ihave.items()),
        iwant=tuple(iwant),
        graft=tuple(topic for topic, prune in mesh.items() if prune is None),
        prune=tuple(prune for prune in mesh.values() if prune is not None),
        idontwant=tuple(idontwant),
    ), lost


def split(rpc: Rpc, max_size: int) -> list[Rpc]:
    """`rpc` as RPCs of about `max_size` bytes each; a single element is never split."""
    pieces = list(_pieces(rpc))
    if sum(size for _, _, size in pieces) <= max_size:
        return [rpc]
    rpcs: list[Rpc] = []
    group: dict[str, list[Any]] = {}
    group_size = 0
    for kind, value, size in pieces:
        if group and group_size + size > max_size:
            rpcs.append(_assemble(group))
            group, group_size = {}, 0
        group.setdefault(kind, []).append(value)
        group_size += size
    rpcs.append(_assemble(group))
    return rpcs


def _trim(ids: dict[bytes, Any]) -> int:
    excess = len(ids) - MAX_IDS
    if excess <= 0:
        return 0
    for message_id in list(ids)[:excess]:
        del ids[message_id]
    return excess


def _by_topic(offers: Iterable[tuple[bytes, str]]) -> tuple[IHave, ...]:
    topics: dict[str, list[bytes]] = {}
    for message_id, topic in offers:
        topics.setdefault(topic, []).append(message_id)
    return tuple(IHave(topic, tuple(ids)) for topic, ids in topics.items())


def _pieces(rpc: Rpc) -> Iterator[tuple[str, Any, int]]:
    for subscription in rpc.subscriptions:
        yield "subscriptions", subscription, len(subscription.topic) + _PIECE_OVERHEAD
    for topic in rpc.graft:
        yield "graft", topic, len(topic) + _PIECE_OVERHEAD
    for prune in rpc.prune:
        records = sum(len(r.peer_id) + len(r.signed_record) + _PIECE_OVERHEAD for r in prune.peers)
        yield "prune", prune, len(prune.topic) + records + _PIECE_OVERHEAD
    for offer in rpc.ihave:
        for message_id in offer.message_ids:
            yield "ihave", (message_id, offer.topic), _ID_SIZE
    for message_id in rpc.iwant:
        yield "iwant", message_id, _ID_SIZE
    for message_id in rpc.idontwant:
        yield "idontwant", message_id, _ID_SIZE


def _assemble(group: dict[str, list[Any]]) -> Rpc:
    return Rpc(
        subscriptions=tuple(group.get("subscriptions", ())),
        ihave=_by_topic(group.get("ihave", ())),
        iwant=tuple(group.get("iwant", ())),
        graft=tuple(group.get("graft", ())),
        prune=tuple(group.get("prune", ())),
        idontwant=tuple(group.get("idontwant", ())),
    )
