"""The services that nodes look for in others: their protocols, and when a pool replaces a node."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pywaku.errors import InvalidInput
from pywaku.wire import filter as filter_wire
from pywaku.wire import lightpush, lightpush_legacy, peer_exchange, relay, store
from pywaku.wire.enr_waku import Capability


class Service(Enum):
    """What a node can do for others."""

    RELAY = "relay"
    LIGHTPUSH = "lightpush"
    FILTER = "filter"
    STORE = "store"
    PEER_EXCHANGE = "peer-exchange"

    @property
    def protocols(self) -> tuple[str, ...]:
        """The protocols that provide it, newest version first."""
        return _PROTOCOLS[self]

    @property
    def capability(self) -> Capability | None:
        """The flag by which node records announce it; None where there is none."""
        return _CAPABILITIES.get(self)

    @property
    def shard_relevant(self) -> bool:
        """Does it matter which shards a node is on? (66/WAKU2-METADATA, Providing Shard Information)"""
        return self is not Service.PEER_EXCHANGE


_PROTOCOLS: Final = {
    Service.RELAY: (relay.PROTOCOL,),
    Service.LIGHTPUSH: (lightpush.PROTOCOL, lightpush_legacy.PROTOCOL),
    Service.FILTER: (filter_wire.SUBSCRIBE_PROTOCOL,),
    Service.STORE: (store.PROTOCOL,),
    Service.PEER_EXCHANGE: (peer_exchange.PROTOCOL,),
}
_CAPABILITIES: Final = {
    Service.RELAY: Capability.RELAY,
    Service.LIGHTPUSH: Capability.LIGHTPUSH,
    Service.FILTER: Capability.FILTER,
    Service.STORE: Capability.STORE,
}


class Result(Enum):
    """How a request to a service node went."""

    OK = "ok"
    REFUSED = "refused"
    """Answered, with a code that is not one of success."""
    WITHOUT_CODE = "without-code"
    """Failed without an error code: reset, undecodable, closed early."""
    TIMED_OUT = "timed-out"
    CONNECTION_LOST = "connection-lost"
    UNSUITABLE = "unsuitable"
    """The node turned out to be of another cluster, of other shards, or not to provide the service."""
    UNCONFIRMED = "unconfirmed"
    """The node says that it did what it was asked, and nobody has seen anything of it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request. `ping` tells filter's pings from its other requests."""

    result: Result
    code: int | None = None
    ping: bool = False

    @classmethod
    def of_status(cls, code: int, *, ping: bool = False) -> Outcome:
        """The outcome of a request that was answered with a status code."""
        return cls(Result.OK if 200 <= code < 300 else Result.REFUSED, code, ping)

    @property
    def ok(self) -> bool:
        """Did the node do what it was asked?"""
        return self.result is Result.OK

    def __str__(self) -> str:
        text = self.result.value if self.code is None else f"{self.result.value}-{self.code}"
        return f"ping-{text}" if self.ping else text


OK: Final = Outcome(Result.OK)
TIMED_OUT: Final = Outcome(Result.TIMED_OUT)
CONNECTION_LOST: Final = Outcome(Result.CONNECTION_LOST)
WITHOUT_CODE: Final = Outcome(Result.WITHOUT_CODE)
UNSUITABLE: Final = Outcome(Result.UNSUITABLE)
UNCONFIRMED: Final = Outcome(Result.UNCONFIRMED)


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """How a pool of service nodes behaves (REQ-RES-RELIABILITY, Pool of reliable service nodes).

    - `size`: nodes in use at a time; two are recommended for sending and for subscribing alike.
    - `replace_on`: the codes on which a node is replaced at once; None: any code but those of success.
      On timeouts, lost connections and failures without a code it always is.
    - `ping_interval_s`: how often nodes are pinged (None: not at all), and `pings_in_a_row`: after how many
      failed ones a node is replaced.
    - `rest_s`, `longest_rest_s`: how long a node that failed is left alone at least, even when there is no
      other one; doubles with each failure in a row. While there are others it is passed over `forget_s` long.
    - `discover_every_s`: how often at most the pool asks for more nodes.
    - `remember`: failed nodes and candidates that are remembered.
    """

    size: int = 2
    replace_on: frozenset[int] | None = None
    ping_interval_s: float | None = None
    pings_in_a_row: int = 2
    rest_s: float = 1.0
    longest_rest_s: float = 60.0
    forget_s: float = 300.0
    discover_every_s: float = 10.0
    remember: int = 256

    def __post_init__(self) -> None:
        if self.size < 1 or self.pings_in_a_row < 1 or self.remember < self.size:
            raise InvalidInput("a pool takes size ≥ 1, pings_in_a_row ≥ 1 and remember ≥ size")
        if not 0 < self.rest_s <= self.longest_rest_s or self.forget_s < 0 or self.discover_every_s <= 0:
            raise InvalidInput("a pool takes 0 < rest_s ≤ longest_rest_s, forget_s ≥ 0, discover_every_s > 0")
        if self.ping_interval_s is not None and self.ping_interval_s <= 0:
            raise InvalidInput("ping_interval_s is positive, or None")

    def replaces_at_once(self, outcome: Outcome) -> bool:
        """Is a node replaced right after this outcome of a request (other than a ping)?"""
        if outcome.result is Result.REFUSED and self.replace_on is not None:
            return outcome.code in self.replace_on
        return not outcome.ok


NO_PEERS_OF_NWAKU: Final = 505
"""The code that nwaku answers with for `NO_PEERS_TO_RELAY`; the specification says 503."""

LIGHTPUSH_POLICY: Final = PoolPolicy(
    replace_on=frozenset(
        {
            lightpush.Status.UNSUPPORTED_PUBSUB_TOPIC,
            lightpush.Status.INTERNAL_SERVER_ERROR,
            lightpush.Status.NO_PEERS_TO_RELAY,
            NO_PEERS_OF_NWAKU,
        }
    )
)
FILTER_POLICY: Final = PoolPolicy(ping_interval_s=60.0)
STORE_POLICY: Final = PoolPolicy(replace_on=frozenset({500, 503}))
PEER_EXCHANGE_POLICY: Final = PoolPolicy(replace_on=frozenset({500, 503}))
RELAY_POLICY: Final = PoolPolicy(size=8)
"""For relay nodes that look for others to connect to; the router makes its mesh of those."""

POLICIES: Final = {
    Service.RELAY: RELAY_POLICY,
    Service.LIGHTPUSH: LIGHTPUSH_POLICY,
    Service.FILTER: FILTER_POLICY,
    Service.STORE: STORE_POLICY,
    Service.PEER_EXCHANGE: PEER_EXCHANGE_POLICY,
}
