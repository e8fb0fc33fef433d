"""The light push client: has service nodes relay messages."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Final

import trio

from pywaku.errors import DecodeError, NetworkError, ProtocolNotSupported, RequestTimeout
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.network.frames import read_frame, write_frame
from pywaku.network.port import Network, Stream
from pywaku.protocols.lightpush.options import MAX_REQUEST, AutoSharding, LightpushClientCounters
from pywaku.protocols.lightpush.status import PushResult, from_legacy
from pywaku.protocols.request_id import new_request_id
from pywaku.wire import lightpush, lightpush_legacy
from pywaku.wire.lightpush import Status

_PROTOCOLS: Final = (lightpush.PROTOCOL, lightpush_legacy.PROTOCOL)
_MAX_RESPONSE: Final = 8 * 1024


class LightpushClient:
    """Pushes messages through service nodes.

    `auto_sharding` finds the pubsub topic of a message for legacy nodes, which do not do so themselves.
    A request of more than `max_request` bytes is not sent: service nodes would not read it.
    """

    def __init__(
        self,
        network: Network,
        *,
        auto_sharding: AutoSharding | None = None,
        max_request: int = MAX_REQUEST,
        rng: random.Random | None = None,
    ) -> None:
        self.counters = LightpushClientCounters()
        self._network = network
        self._auto_sharding = auto_sharding
        self._max_request = max_request
        self._rng = rng or random.Random()

    async def push(
        self, peer: PeerId, pubsub_topic: str | None, message: WakuMessage, *, timeout: float = 10.0
    ) -> PushResult:
        """Have a connected service node relay a message, by the newest version that it speaks.

        With automatic sharding `pubsub_topic` may be None. Returns what the node answered, and raises
        `NetworkError` where it did not: `NotConnected` and `StreamReset` (the connection is lost),
        `RequestTimeout`, `ProtocolNotSupported`, or `NetworkError` itself for a stream that ends without an
        answer and for an answer that cannot be understood.
        """
        self.counters.requests += 1
        try:
            with trio.CancelScope(deadline=trio.current_time() + timeout):
                result = await self._exchange(peer, pubsub_topic, message)
                if not result.is_success:
                    self.counters.refused += 1
                return result
            raise RequestTimeout(f"{peer.short()} did not answer within {timeout:g} s")
        except NetworkError:
            self.counters.failed += 1
            raise

    async def _exchange(self, peer: PeerId, pubsub_topic: str | None, message: WakuMessage) -> PushResult:
        request_id = new_request_id(self._rng)
        async with await self._network.open_stream(peer, self._spoken(peer), timeout=math.inf) as stream:
            legacy = stream.protocol == lightpush_legacy.PROTOCOL
            if legacy:
                self.counters.legacy += 1
                topic = pubsub_topic or self._sharded(peer, message)
                request = lightpush_legacy.encode_request(
                    lightpush_legacy.PushRequest(request_id, topic, message)
                )
            else:
                request = lightpush.encode_request(
                    lightpush.LightPushRequest(request_id, message, pubsub_topic)
                )
            if len(request) > self._max_request:
                return PushResult(
                    Status.PAYLOAD_TOO_LARGE,
                    f"a request has at most {self._max_request} bytes, not {len(request)}",
                )
            await write_frame(stream, request)
            await stream.close_write()  # now rather than after the answer: see `network.frames.request`
            return await _answer(stream, request_id, legacy=legacy)

    def _spoken(self, peer: PeerId) -> Sequence[str] | str:
        """What to open a stream for: the one protocol, if it is known, which saves a round trip."""
        info = self._network.peers.get(peer)
        if info is None or not info.identified:
            return _PROTOCOLS
        for protocol in _PROTOCOLS:
            if protocol in info.protocols:
                return protocol
        raise ProtocolNotSupported(f"{peer.short()} does not speak light push")

    def _sharded(self, peer: PeerId, message: WakuMessage) -> str:
        if self._auto_sharding is None:
            raise ProtocolNotSupported(
                f"{peer.short()} speaks legacy light push only, which needs a pubsub topic"
            )
        return self._auto_sharding.pubsub_topic(message.content_topic)


async def _answer(stream: Stream, request_id: str, *, legacy: bool) -> PushResult:
    """What the node says of the request."""
    peer = stream.peer
    try:
        data = await read_frame(stream, _MAX_RESPONSE)
        if data is None:
            raise NetworkError(f"{peer.short()} ended the stream without an answer")
        if legacy:
            response = lightpush_legacy.decode_response(data)
            result = from_legacy(response)
        else:
            response = lightpush.decode_response(data)
            result = PushResult(response.status_code, response.status_desc or "", response.relay_peer_count)
    except DecodeError as error:
        raise NetworkError(f"{peer.short()} gave no proper answer to a light push: {error}") from None
    if result.is_success and response.request_id != request_id:
        raise NetworkError(f"{peer.short()} answered another light push")
    return result
