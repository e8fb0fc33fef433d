"""What the light protocols have in common on the serving side: one request, one response, within bounds."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import trio

from pywaku.errors import DecodeError, InvalidInput, NetworkError
from pywaku.ids import PeerId
from pywaku.network.frames import read_frame
from pywaku.network.port import Network, Stream
from pywaku.wire.framing import frame

logger = logging.getLogger(__name__)

MAX_REQUEST: Final = 64 * 1024
_ENOUGH_TIME: Final = 0.9


@dataclass(frozen=True, slots=True)
class RateLimit:
    """So many (`count`) in so long (`period_s`), all of which may come at once."""

    count: int
    period_s: float

    def __post_init__(self) -> None:
        if self.count < 1:
            raise InvalidInput(f"a rate limit allows at least 1, not {self.count}")
        if not 0 < self.period_s < math.inf:
            raise InvalidInput(f"the period of a rate limit is a positive number, not {self.period_s}")


class TokenBucket:
    """Holds up to `count` tokens, full at first, and is refilled steadily, with `count` in each period.

    Within any span of w seconds no more than count * (1 + w / period_s) tokens are given out.
    """

    __slots__ = ("_at", "_capacity", "_per_s", "_tokens")

    def __init__(self, limit: RateLimit, now: float) -> None:
        self._capacity = float(limit.count)
        self._per_s = limit.count / limit.period_s
        self._tokens = self._capacity
        self._at = now

    def take(self, now: float, n: int = 1) -> bool:
        """Take `n` tokens if as many are there; otherwise none. A clock that goes back refills nothing."""
        tokens = self.available(now)
        self._at = max(self._at, now)
        if n > tokens:
            self._tokens = tokens
            return False
        self._tokens = tokens - n
        return True

    def available(self, now: float) -> float:
        """How many tokens there are."""
        elapsed = max(0.0, now - self._at)
        return min(self._capacity, self._tokens + elapsed * self._per_s)


class PeerRates:
    """The rate of each of the `most` peers heard of last; one that is forgotten starts afresh."""

    __slots__ = ("_buckets", "_limit", "_most")

    def __init__(self, limit: RateLimit | None, most: int) -> None:
        self._limit = limit
        self._most = most
        self._buckets: OrderedDict[PeerId, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, peer: PeerId, now: float) -> bool:
        """Whether the peer keeps to its rate with one more."""
        if self._limit is None:
            return True
        bucket = self._buckets.get(peer)
        if bucket is None:
            bucket = self._buckets[peer] = TokenBucket(self._limit, now)
            if len(self._buckets) > self._most:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(peer)
        return bucket.take(now)


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """What a service takes on.

    Each peer may send `per_peer` requests and all together `total`; None means no limit. The rates of the
    `max_tracked_peers` heard of last are known; a peer forgotten starts afresh, still within `total`.
    A request has up to `max_request` bytes. Reading it, handling it and sending the answer may each take
    `timeout_s`. While `max_concurrent` requests are being handled, or answers of `max_unsent_bytes` in all (a
    quarter of that for one peer) wait for peers to take them, further requests are refused like those beyond
    a rate. A peer may have `max_streams_per_peer` requests open at a time. Of all peers, `max_unread`
    requests may have arrived in part; with one more, the one that takes longest is given up, so that peers
    which never finish theirs cost no more memory than that, and keep nobody out.
    """

    per_peer: RateLimit | None = RateLimit(30, 60.0)
    total: RateLimit | None = None
    max_request: int = MAX_REQUEST
    timeout_s: float = 10.0
    max_concurrent: int = 64
    max_unsent_bytes: int = 64 * 1024 * 1024
    max_tracked_peers: int = 4096
    max_streams_per_peer: int = 16
    max_unread: int = 512

    def __post_init__(self) -> None:
        if self.timeout_s <= 0:
            raise InvalidInput(f"timeout_s is positive, not {self.timeout_s}")
        for name in (
            "max_request",
            "max_concurrent",
            "max_unsent_bytes",
            "max_tracked_peers",
            "max_streams_per_peer",
            "max_unread",
        ):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} is at least 1, not {getattr(self, name)}")


@dataclass(slots=True)
class ServiceCounters:
    """What has happened since the service started; each number only grows."""

    requests: int = 0
    """Requests that arrived whole."""
    answered: int = 0
    """Of these, those whose answer was sent, whatever it said."""
    limited: int = 0
    """Refused because of a rate, or because too many were under way."""
    undecodable: int = 0
    """Streams that carried no frame of an allowed size, and requests that could not be understood."""
    failed: int = 0
    """The handler raised something else."""
    timed_out: int = 0
    given_up: int = 0
    """Requests that were still arriving when there were too many of these."""
    stream_errors: int = 0
    """The peer went away, or reset its stream, before the answer was sent."""
    bytes_in: int = 0
    bytes_out: int = 0


Handle = Callable[[PeerId, bytes], Awaitable[bytes | None]]
"""Answers a request; None ends the stream without an answer. Raises `DecodeError` for what is no request."""


class RequestService:
    """Serves one protocol of one framed request and one framed response per stream.

    A peer over its rate gets what `on_limited` makes of its request, a request on which `handle` raises
    `DecodeError` what `on_undecodable` makes of that, any other error of the handler what `on_failed` makes
    of it; without an answer the stream is reset. A stream that carries no proper frame, or one too large, is
    reset as well. Nothing that a peer sends, and no error of a handler, goes further than its own stream.
    """

    def __init__(
        self,
        network: Network,
        protocol: str,
        handle: Handle,
        *,
        limits: ServiceLimits | None = None,
        on_limited: Callable[[bytes], bytes | None] | None = None,
        on_undecodable: Callable[[bytes, DecodeError], bytes | None] | None = None,
        on_failed: Callable[[bytes, Exception], bytes | None] | None = None,
    ) -> None:
        self.protocol = protocol
        self.limits = limits or ServiceLimits()
        self.counters = ServiceCounters()
        self._network = network
        self._handle = handle
        self._on_limited = on_limited
        self._on_undecodable = on_undecodable
        self._on_failed = on_failed
        self._total = (
            None if self.limits.total is None else TokenBucket(self.limits.total, trio.current_time())
        )
        self._rates = PeerRates(self.limits.per_peer, self.limits.max_tracked_peers)
        self._serving: set[trio.CancelScope] = set()
        self._unread: dict[trio.CancelScope, None] = {}  # whose request has not arrived, the oldest first
        self._handling = 0
        self._unsent = 0
        self._unsent_to: dict[PeerId, int] = {}

    @property
    def open_streams(self) -> int:
        """Streams being served at the moment."""
        return len(self._serving)

    @property
    def tracked_peers(self) -> int:
        """Peers whose rates are known."""
        return len(self._rates)

    @property
    def unsent_bytes(self) -> dict[PeerId, int]:
        """Bytes of answers that peers have not taken yet."""
        return dict(self._unsent_to)

    def start(self) -> None:
        """Begin to serve."""
        self._network.serve(self.protocol, self._serve, max_streams_per_peer=self.limits.max_streams_per_peer)

    def close(self) -> None:
        """Serve no longer; what is under way is abandoned."""
        self._network.unserve(self.protocol)
        for scope in tuple(self._serving):
            scope.cancel()

    async def _serve(self, stream: Stream) -> None:
        answered = False
        with trio.CancelScope(deadline=trio.current_time() + self.limits.timeout_s) as scope:
            self._serving.add(scope)
            try:
                answered = await self._exchange(stream, scope)
            except NetworkError as error:
                self.counters.stream_errors += 1
                logger.debug(
                    "request lost protocol=%s peer=%s error=%s", self.protocol, stream.peer.short(), error
                )
            finally:
                self._serving.discard(scope)
        if scope.cancelled_caught and scope.deadline <= trio.current_time():
            self.counters.timed_out += 1
            logger.debug("request timed out protocol=%s peer=%s", self.protocol, stream.peer.short())
        if not answered:
            stream.reset()

    async def _exchange(self, stream: Stream, scope: trio.CancelScope) -> bool:
        """One request and its answer; whether there was one. The network closes the stream."""
        counters = self.counters
        try:
            request = await self._read(stream, scope)
        except DecodeError as error:
            counters.undecodable += 1
            logger.debug("no request protocol=%s peer=%s error=%s", self.protocol, stream.peer.short(), error)
            return False
        if request is None:
            return False
        counters.requests += 1
        counters.bytes_in += len(request)

        now = self._extend(scope)
        if not self._admit(stream.peer, now):
            counters.limited += 1
            response = None if self._on_limited is None else self._on_limited(request)
        else:
            response = await self._answer(stream.peer, request)
        if response is None:
            return False

        self._extend(scope)
        await self._send(stream, response)
        counters.answered += 1
        counters.bytes_out += len(response)
        return True

    async def _read(self, stream: Stream, scope: trio.CancelScope) -> bytes | None:
        unread = self._unread
        unread[scope] = None
        if len(unread) > self.limits.max_unread:
            oldest = next(iter(unread))
            del unread[oldest]
            oldest.cancel()
            self.counters.given_up += 1
        try:
            return await read_frame(stream, self.limits.max_request)
        finally:
            unread.pop(scope, None)

    def _extend(self, scope: trio.CancelScope) -> float:
        """Give the next step its time; returns the current one.

        Most steps take no time at all, and moving a deadline costs more than they do.
        """
        now, timeout = trio.current_time(), self.limits.timeout_s
        if scope.deadline - now < timeout * _ENOUGH_TIME:
            scope.deadline = now + timeout
        return now

    async def _send(self, stream: Stream, response: bytes) -> None:
        peer, size = stream.peer, len(response)
        self._unsent += size
        self._unsent_to[peer] = self._unsent_to.get(peer, 0) + size
        try:
            await stream.send(frame(response))
        finally:
            self._unsent -= size
            self._unsent_to[peer] -= size
            if self._unsent_to[peer] <= 0:
                del self._unsent_to[peer]

    def _admit(self, peer: PeerId, now: float) -> bool:
        """Whether this request may be handled. One that is over its peer's rate costs the others nothing."""
        limits = self.limits
        if (
            not self._rates.take(peer, now)
            or self._handling >= limits.max_concurrent
            or self._unsent >= limits.max_unsent_bytes
            or self._unsent_to.get(peer, 0) >= max(1, limits.max_unsent_bytes // 4)
        ):
            return False
        return self._total is None or self._total.take(now)

    async def _answer(self, peer: PeerId, request: bytes) -> bytes | None:
        self._handling += 1
        try:
            return await self._handle(peer, request)
        except DecodeError as error:
            self.counters.undecodable += 1
            logger.debug("request refused protocol=%s peer=%s error=%s", self.protocol, peer.short(), error)
            return None if self._on_undecodable is None else self._on_undecodable(request, error)
        except Exception as error:
            self.counters.failed += 1
            logger.exception("request handler failed protocol=%s peer=%s", self.protocol, peer.short())
            return None if self._on_failed is None else self._on_failed(request, error)
        finally:
            self._handling -= 1
