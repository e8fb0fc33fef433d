"""The port of discovery, and the simplest one behind it: a list of bootstrap nodes.

What finds peers stands behind `Discovery`: bootstrap lists, DNS (`pywaku.peers.dns`), peer exchange
(`pywaku.protocols.peer_exchange`); discv5 and rendezvous have their place in `Origin`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

import trio

from pywaku.errors import DecodeError, InvalidInput
from pywaku.peers.entry import Candidate, Origin
from pywaku.wire.enr import Enr
from pywaku.wire.multiaddr import Multiaddr

logger = logging.getLogger(__name__)

_LONGEST_SHOWN: Final = 60


class Discovery(Protocol):
    """One way to find peers."""

    @property
    def name(self) -> str:
        """What log lines and counters call it."""
        ...

    @property
    def every_s(self) -> float | None:
        """How often it is worth asking when nobody is in need; None: once is enough."""
        ...

    def find(self, count: int) -> AsyncGenerator[Candidate, None]:
        """Peers, as they are found, about `count` of them; fewer where there are no more.

        It ends by itself, within a bounded time, and raises `WakuError` when it cannot go on. It is an async
        generator: who leaves early closes it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The peers of a list, and what in it was no peer."""

    candidates: tuple[Candidate, ...]
    skipped: tuple[str, ...] = ()


def read_bootstrap(texts: Iterable[str], *, origin: Origin = Origin.STATIC) -> Bootstrap:
    """Peers from multiaddrs (`/ip4/…/p2p/…`) and node records (`enr:…`), of which bad ones are skipped.

    A bad record among bootstrap nodes is logged, and never stops a node from starting.
    """
    found: list[Candidate] = []
    skipped: list[str] = []
    for text in texts:
        try:
            found.append(read_candidate(text, origin=origin))
        except InvalidInput as error:
            skipped.append(text)
            logger.warning("bootstrap node skipped: node=%.60r error=%s", text, error)
    return Bootstrap(tuple(found), tuple(skipped))


def read_candidate(text: str, *, origin: Origin = Origin.STATIC) -> Candidate:
    """The peer that a multiaddr or a node record in text form names; raises `InvalidInput`."""
    text = text.strip()
    if text.startswith("enr:"):
        try:
            candidate = Candidate.of_record(Enr.parse(text), origin)
        except DecodeError as error:
            raise InvalidInput(f"{_short(text)} is not a node record: {error}") from None
        if not candidate.addresses:
            raise InvalidInput(f"{_short(text)} names no address to connect to")
        return candidate
    address = Multiaddr.parse(text)
    if address.peer_id is None:
        raise InvalidInput(f"{_short(text)} does not end in /p2p/ and a peer id")
    return Candidate(address.peer_id, (address,), origin)


class StaticDiscovery:
    """Finds the peers of a list, always the same."""

    name = "bootstrap"
    every_s = None

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self._candidates = tuple(candidates)

    async def find(self, count: int) -> AsyncGenerator[Candidate, None]:
        """All of the list: `count` is no bound to what was configured."""
        await trio.lowlevel.checkpoint()
        for candidate in self._candidates:
            yield candidate


def _short(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…")
