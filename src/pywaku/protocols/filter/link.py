"""The way to one subscriber: its queue, and the one stream by which that empties.

The stream stays open for as long as the subscription lasts. (js-libp2p takes a hundred inbound streams and
does not close its half of them, so a stream for each push would end the connection.)
"""

from __future__ import annotations

import logging
import math
from enum import Enum

import trio

from pywaku.errors import NetworkError, NodeClosed, NotConnected
from pywaku.ids import PeerId
from pywaku.network.port import Network, Stream
from pywaku.protocols.filter.counters import FilterServiceCounters
from pywaku.protocols.filter.options import FilterServiceOptions
from pywaku.protocols.filter.patience import Patience
from pywaku.protocols.filter.queue import PushQueue
from pywaku.wire.filter import PUSH_PROTOCOL

logger = logging.getLogger(__name__)


class _End(Enum):
    """How the life of a stream went."""

    CLOSED = "the peer took pushes, and closed it"
    STEADY = "it failed, after it had worked for long"
    FAILED = "it failed"
    AWAY = "the peer is not connected"


class _Stalled(NetworkError):
    """The peer does not take what is written."""


class PushLink:
    """One subscriber. `push` never waits; `run` writes."""

    __slots__ = (
        "_back",
        "_counters",
        "_network",
        "_options",
        "_unsent",
        "_unsent_count",
        "_wanted",
        "_wrote",
        "peer",
        "queue",
        "scope",
    )

    def __init__(
        self, peer: PeerId, network: Network, options: FilterServiceOptions, counters: FilterServiceCounters
    ) -> None:
        self.peer = peer
        self.queue = PushQueue(options.queue)
        self.scope = trio.CancelScope()
        self._network = network
        self._options = options
        self._counters = counters
        self._wanted = trio.lowlevel.ParkingLot()
        self._back = trio.lowlevel.ParkingLot()
        self._unsent = b""  # whole pushes that a failed stream may not have delivered
        self._unsent_count = 0
        self._wrote = False

    @property
    def waiting(self) -> int:
        """Pushes that were not written yet."""
        return len(self.queue) + self._unsent_count

    def push(self, frame: bytes) -> bool:
        """Queue a framed push; False if there is no room."""
        if not self.queue.put(frame):
            self._counters.dropped_slow += 1
            return False
        if self._wanted:
            self._wanted.unpark()
        return True

    def reconnected(self) -> None:
        """The peer is there again: no need to wait any longer."""
        self._back.unpark_all()

    async def run(self) -> bool:
        """Write what is pushed, until cancelled by `scope`; True if the peer turns out to be unreachable."""
        options = self._options
        patience = Patience(pause_s=options.reopen_pause_s, limit_s=options.unreachable_s)
        with self.scope:
            while True:
                while not self.waiting:
                    await self._wanted.park()
                end = await self._session()
                if end is _End.CLOSED or end is _End.STEADY:
                    patience.succeeded()
                if end is _End.CLOSED:
                    continue
                self._counters.streams_failed += 1
                now = trio.current_time()
                pause = patience.failed(now)
                if pause is None:
                    return True
                with trio.move_on_after(patience.left(now) if end is _End.AWAY else pause):
                    await self._back.park()
        return False

    async def _session(self) -> _End:
        """One stream, from its opening to its end."""
        self._wrote = False
        opened_at = trio.current_time()
        try:
            async with await self._network.open_stream(self.peer, PUSH_PROTOCOL) as stream:
                self._counters.streams_opened += 1
                await self._converse(stream)
        except (NotConnected, NodeClosed):
            return _End.AWAY
        except NetworkError as error:
            logger.debug("push stream failed peer=%s error=%s", self.peer.short(), error)
            lived_s = trio.current_time() - opened_at
            steady = self._wrote and lived_s >= self._options.steady_s and not isinstance(error, _Stalled)
            return _End.STEADY if steady else _End.FAILED
        return _End.CLOSED if self._wrote else _End.FAILED

    async def _converse(self, stream: Stream) -> None:
        """Write until the peer closes its half, or the stream fails."""
        failure: NetworkError | None = None
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                # Nothing is to come this way but the end; some peers close a stream after each push.
                nonlocal failure
                try:
                    while await stream.receive():
                        pass
                except NetworkError as error:
                    failure = failure or error
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            try:
                await self._write(stream)
            except _Stalled as error:
                failure = error  # which made the stream fail for the other task as well
            except NetworkError as error:
                failure = failure or error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _write(self, stream: Stream) -> None:
        counters, timeout = self._counters, self._options.write_timeout_s
        with trio.CancelScope() as limit:  # one for all writes, of which there may be thousands a second
            while True:
                if not self._unsent:
                    while not self.queue:
                        await self._wanted.park()
                    self._unsent, self._unsent_count = self.queue.take()
                limit.deadline = trio.current_time() + timeout
                await stream.send(self._unsent)
                limit.deadline = math.inf
                self._wrote = True
                counters.pushed += self._unsent_count
                counters.bytes_out += len(self._unsent)
                self._unsent, self._unsent_count = b"", 0
        raise _Stalled(f"the peer did not take a write within {timeout:g} s")
