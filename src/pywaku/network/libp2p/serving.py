"""What a host answers: the protocols it serves, and the streams that peers open under them."""

from __future__ import annotations

import logging

import trio

from pywaku.errors import InvalidInput, WakuError
from pywaku.ids import PeerId
from pywaku.network.libp2p.negotiate import agree_inbound
from pywaku.network.libp2p.stream import MuxedStream
from pywaku.network.port import StreamHandler

logger = logging.getLogger(__name__)


class Serving:
    """The handlers by protocol, and how many streams of each peer run under them."""

    def __init__(self, nursery: trio.Nursery, *, negotiation_timeout_s: float) -> None:
        self._nursery = nursery
        self._negotiation_timeout_s = negotiation_timeout_s
        self._handlers: dict[str, tuple[StreamHandler, int]] = {}
        self._running: dict[tuple[PeerId, str], int] = {}

    @property
    def protocols(self) -> tuple[str, ...]:
        """What is served, sorted."""
        return tuple(sorted(self._handlers))

    def add(self, protocol: str, handler: StreamHandler, max_streams_per_peer: int) -> None:
        """Serve a protocol. Raises `InvalidInput` if it is served already."""
        if protocol in self._handlers:
            raise InvalidInput(f"{protocol} is served already")
        self._handlers[protocol] = (handler, max_streams_per_peer)

    def remove(self, protocol: str) -> bool:
        """Serve a protocol no longer; says whether it was served."""
        return self._handlers.pop(protocol, None) is not None

    def accept(self, stream: MuxedStream) -> None:
        """A peer has opened a stream."""
        self._nursery.start_soon(self._answer, stream)

    async def _answer(self, stream: MuxedStream) -> None:
        """Agree on a protocol with the peer and run its handler. Nothing raises out of here."""
        try:
            with trio.fail_after(self._negotiation_timeout_s):
                protocol = await agree_inbound(stream, self._handlers.keys())
            handler, maximum = self._handlers.get(protocol, (None, 0))
            key = (stream.peer, protocol)
            count = self._running.get(key, 0)
            if handler is None or count >= maximum:
                logger.debug("stream refused: protocol=%s open=%d", protocol, count)
                stream.reset()
                return
            stream.protocol = protocol
            self._running[key] = count + 1
            try:
                async with stream:
                    await handler(stream)
            finally:
                self._running[key] -= 1
                if not self._running[key]:
                    del self._running[key]
        except Exception as error:
            stream.reset()
            _, unexpected = BaseExceptionGroup("", [error]).split((WakuError, trio.TooSlowError))
            if unexpected is None:  # the peer's doing
                logger.debug("inbound stream failed: protocol=%s %s", stream.protocol, error)
            else:
                logger.exception("a stream handler failed: protocol=%s", stream.protocol)
