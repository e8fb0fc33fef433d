"""The values that go into and come out of a gossip router."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from pywaku.ids import PeerId
from pywaku.wire.relay import Rpc

NOTHING: Final = Rpc()
"""The control part of an `Outgoing` that has messages only."""


class Verdict(Enum):
    """What validation found (gossipsub v1.1, "Extended Validators")."""

    ACCEPT = "accept"
    REJECT = "reject"
    IGNORE = "ignore"


class Candidate(NamedTuple):
    """A message received for the first time; it awaits a verdict. `peer` sent it first."""

    message_id: bytes
    topic: str
    data: bytes
    peer: PeerId


class Published(NamedTuple):
    """What became of a message of our own: to which peers it goes; nothing is sent of a `duplicate`.

    `again`: it was published before, but no peer had taken it.
    """

    message_id: bytes
    peers: tuple[PeerId, ...]
    duplicate: bool
    again: bool = False


class Echo(NamedTuple):
    """A peer has sent us a message that we had published."""

    message_id: bytes
    peer: PeerId


class Outgoing(NamedTuple):
    """All that one peer is to be sent: a control RPC, and messages as (id, encoded `publish` part).

    Encoded control and parts, put together, are one RPC.
    """

    control: Rpc
    messages: list[tuple[bytes, bytes]]


class Wish(NamedTuple):
    """Please connect to this peer: offered by peer exchange, or a direct peer that is away.

    The record is what the offering peer sent, unverified; it may be empty.
    """

    peer: PeerId
    signed_record: bytes


class Sizes(NamedTuple):
    """How full the tables of a router are."""

    peers: int
    topics: int
    seen: int
    cached: int
    cached_bytes: int
    pending: int
    pending_bytes: int
    backoffs: int
    requests: int
    retained_scores: int
    untaken: int
    own: int
    echoes: int


@dataclass(slots=True)
class Counters:
    """What a router has done, and what its bounds have cut, since it exists."""

    published: int = 0
    received: int = 0
    """Messages received for the first time."""
    duplicates: int = 0
    duplicates_while_pending: int = 0
    accepted: int = 0
    rejected: int = 0
    ignored: int = 0
    forwarded: int = 0
    """Transmissions to peers, of our own messages and those of others."""
    signed_refused: int = 0
    unjoined: int = 0
    unknown_peer: int = 0
    graylisted: int = 0
    flooded: int = 0
    """RPCs left unread because their sender has wasted too much of our work."""
    pending_full: int = 0
    pending_expired: int = 0
    seen_evicted: int = 0
    cache_evicted: int = 0
    untaken_evicted: int = 0
    """Messages of our own that no peer has taken, and that are duplicates all the same from now on."""
    echoes: int = 0
    """Messages of our own that peers have sent us; counted while somebody asks for them."""
    echoes_dropped: int = 0
    own_evicted: int = 0
    """Messages of our own whose echoes are not told apart from other duplicates any more."""
    outgoing_dropped: int = 0
    subscriptions_refused: int = 0
    control_ignored: int = 0
    grafts_sent: int = 0
    prunes_sent: int = 0
    grafts_refused: int = 0
    backoff_violations: int = 0
    backoffs_evicted: int = 0
    one_sided: int = 0
    """Mesh links given up because only we held them."""
    ihave_ignored: int = 0
    iwant_sent: int = 0
    iwant_served: int = 0
    iwant_ignored: int = 0
    promises_broken: int = 0
    promises_evicted: int = 0
    idontwant_sent: int = 0
    idontwant_ignored: int = 0
    idontwant_saved: int = 0
    """Transmissions that an IDONTWANT made unnecessary."""
    px_ignored: int = 0
    wishes_dropped: int = 0
    scores_evicted: int = 0
