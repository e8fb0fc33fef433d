"""Our half of the conversation with one relay peer: the outbound stream, and the task that writes to it.

libp2p pubsub uses two streams between peers, each in one direction (Stream management). The inbound one is
read elsewhere; this one only writes, and is watched for its end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Final

import trio

from pywaku.errors import NetworkError, NodeClosed, NotConnected, ProtocolNotSupported
from pywaku.ids import PeerId
from pywaku.network.port import Network, Stream
from pywaku.protocols.relay.counters import RelayCounters
from pywaku.protocols.relay.options import RelayOptions
from pywaku.protocols.relay.outbox import Outbox
from pywaku.wire.framing import frame
from pywaku.wire.relay import PROTOCOL, Rpc, encode_rpc

logger = logging.getLogger(__name__)

_STEADY_S: Final = 60.0  # a stream that lived as long forgives the failures before it


class LinkEnd(Enum):
    """Why a link ended."""

    FINISHED = "finished"
    UNSUPPORTED = "the peer does not speak relay"
    GONE = "the peer is not connected"
    GIVEN_UP = "the stream failed too often"


class PeerLink:
    """One relay peer: its outbox, and the stream by which that empties.

    `hello` gives what a peer must hear first on a stream that replaces a failed one; `has_room` is called
    when the outbox is no longer congested.
    """

    def __init__(
        self,
        peer: PeerId,
        network: Network,
        options: RelayOptions,
        counters: RelayCounters,
        *,
        hello: Callable[[], Rpc],
        has_room: Callable[[PeerId], None],
    ) -> None:
        self.peer = peer
        self.outbox = Outbox(options.outbox)
        self.scope = trio.CancelScope()
        self.patience_ends = 0.0
        """Until when publishers wait for a congested peer."""
        self.leaving = False
        """The peer is disconnected; what it has sent is still being read."""
        self._network = network
        self._options = options
        self._counters = counters
        self._hello = hello
        self._has_room = has_room
        self._wake = trio.Event()
        self._finishing = False
        self._unsent = b""  # whole frames that a failed stream may not have delivered

    def wake(self) -> None:
        """There is something in the outbox."""
        self._wake.set()

    def finish(self) -> None:
        """Send what waits, then end."""
        self._finishing = True
        self._wake.set()

    async def run(self) -> LinkEnd:
        """Keep a stream open and write to it, until finished, cancelled by `scope`, or given up."""
        failures = 0
        with self.scope:
            while True:
                opened_at = trio.current_time()
                end = await self._session(again=failures > 0)
                if end is not None:
                    return end
                self._counters.streams_failed += 1
                steady = trio.current_time() - opened_at >= _STEADY_S
                failures = 1 if steady else failures + 1
                if failures > self._options.reopen_attempts or self._finishing:
                    return LinkEnd.GIVEN_UP
                await trio.sleep(self._options.reopen_pause_s * 2 ** (failures - 1))
        return LinkEnd.FINISHED

    async def _session(self, *, again: bool) -> LinkEnd | None:
        """One stream's life; None if it failed."""
        try:
            stream = await self._network.open_stream(self.peer, PROTOCOL)
            self._counters.streams_opened += 1
            if again:
                # Whatever made the stream fail may have made the peer forget our topics.
                self._unsent = frame(encode_rpc(self._hello())) + self._unsent
            async with stream:
                failure = await self._converse(stream)
                if failure is not None:
                    raise failure
        except (NotConnected, NodeClosed):
            return LinkEnd.GONE
        except ProtocolNotSupported:
            return LinkEnd.UNSUPPORTED
        except NetworkError as error:
            logger.debug("relay stream failed: peer=%s error=%s", self.peer.short(), error)
            return None
        return LinkEnd.FINISHED

    async def _converse(self, stream: Stream) -> NetworkError | None:
        """Write until all is done (None) or the stream fails."""
        failure: NetworkError | None = None
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                # Nothing is to come this way: an end, or bytes, mean that the peer is done with the stream.
                nonlocal failure
                try:
                    data = await stream.receive()
                    failure = NetworkError("bytes on a one-way stream" if data else "ended by the peer")
                except NetworkError as error:
                    failure = error
                nursery.cancel_scope.cancel()

            nursery.start_soon(watch)
            try:
                await self._write(stream)
            except NetworkError as error:
                failure = error
            nursery.cancel_scope.cancel()
        return failure

    async def _write(self, stream: Stream) -> None:
        outbox = self.outbox
        while True:
            if not self._unsent:
                if outbox:
                    was_congested = outbox.congested
                    self._unsent = outbox.take()
                    if was_congested and not outbox.congested:
                        self._has_room(self.peer)
                elif self._finishing:
                    return
                else:
                    self._wake = trio.Event()
                    await self._wake.wait()
                    continue
            with trio.move_on_after(self._options.write_timeout_s) as limit:
                await stream.send(self._unsent)
            if limit.cancelled_caught:
                raise NetworkError(f"the peer took nothing for {self._options.write_timeout_s:g} s")
            self._counters.bytes_out += len(self._unsent)
            self._unsent = b""
