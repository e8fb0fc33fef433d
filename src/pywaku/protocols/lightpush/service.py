"""The light push service (WAKU-LIGHTPUSH, 19/WAKU2-LIGHTPUSH): relays messages for light nodes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import trio

from pywaku.errors import DecodeError, InvalidTopic, NodeClosed
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.network.port import Network
from pywaku.protocols.lightpush.options import LightpushServiceCounters, LightpushServiceOptions
from pywaku.protocols.lightpush.status import PushResult, of_refusal, to_legacy
from pywaku.protocols.relay import MessageRefused, Relay
from pywaku.protocols.request_id import request_id_of
from pywaku.protocols.service import RequestService
from pywaku.wire import lightpush, lightpush_legacy
from pywaku.wire.lightpush import Status

_UNKNOWN_ID: Final = "N/A"  # what nwaku says where it does not know the request's
_TOO_MANY: Final = PushResult(Status.TOO_MANY_REQUESTS, "Request rejected due to too many requests")
_FAILED: Final = PushResult(Status.INTERNAL_SERVER_ERROR, "the request failed at the service node")


@asynccontextmanager
async def open_lightpush_service(
    network: Network, relay: Relay, *, options: LightpushServiceOptions | None = None
) -> AsyncGenerator[LightpushService, None]:
    """Serve light push, version 3 and legacy: publish by `relay` what light nodes ask for."""
    service = LightpushService(network, relay, options or LightpushServiceOptions())
    service.start()
    try:
        yield service
    finally:
        service.close()


class LightpushService:
    """Publishes for others. Made by `open_lightpush_service`."""

    def __init__(self, network: Network, relay: Relay, options: LightpushServiceOptions) -> None:
        self.counters = LightpushServiceCounters()
        self.requests = RequestService(
            network,
            lightpush.PROTOCOL,
            self._handle,
            limits=options.requests,
            on_limited=lambda request: self._encode(request_id_of(request), _TOO_MANY),
            on_undecodable=lambda request, error: self._encode(request_id_of(request), _undecodable(error)),
            on_failed=lambda request, _: self._encode(request_id_of(request), _FAILED),
        )
        """The serving of version 3, to look at its counters."""
        self.legacy_requests = RequestService(
            network,
            lightpush_legacy.PROTOCOL,
            self._handle_legacy,
            limits=options.requests,
            on_limited=lambda request: self._encode_legacy(request_id_of(request), _TOO_MANY),
            on_undecodable=lambda request, error: self._encode_legacy(
                request_id_of(request), _undecodable(error)
            ),
            on_failed=lambda request, _: self._encode_legacy(request_id_of(request), _FAILED),
        )
        """The serving of the legacy protocol, to look at its counters."""
        self._relay = relay
        self._options = options
        self._unrelayed: OrderedDict[bytes, None] = OrderedDict()
        self._asked_at: OrderedDict[bytes, float] = OrderedDict()

    def start(self) -> None:
        """Begin; `open_lightpush_service` does this."""
        self.requests.start()
        self.legacy_requests.start()

    def close(self) -> None:
        """Stop; `open_lightpush_service` does this."""
        self.requests.close()
        self.legacy_requests.close()

    async def _handle(self, _peer: PeerId, data: bytes) -> bytes:
        request = lightpush.decode_request(data)
        result = await self.push(request.pubsub_topic, request.message)
        return self._encode(request.request_id, result)

    async def _handle_legacy(self, _peer: PeerId, data: bytes) -> bytes:
        request = lightpush_legacy.decode_request(data)
        result = await self.push(request.pubsub_topic, request.message)
        return self._encode_legacy(request.request_id, result)

    async def push(self, pubsub_topic: str | None, message: WakuMessage) -> PushResult:
        """Publish a message as if a light node had asked for it."""
        if pubsub_topic is None:
            sharding = self._options.auto_sharding
            if sharding is None:
                return PushResult(
                    Status.BAD_REQUEST, "Pubsub topic must be specified when static sharding is enabled"
                )
            try:
                pubsub_topic = sharding.pubsub_topic(message.content_topic)
            except InvalidTopic as error:
                return PushResult(Status.BAD_REQUEST, f"Invalid content-topic: {error}")
        if not pubsub_topic.strip():
            return PushResult(Status.BAD_REQUEST, "topic must not be empty")
        if pubsub_topic not in self._relay.topics:
            return PushResult(
                Status.UNSUPPORTED_PUBSUB_TOPIC, f"node not subscribed to topic: {pubsub_topic[:100]}"
            )
        try:
            return await self._publish(pubsub_topic, message)
        except MessageRefused as refused:
            return of_refusal(refused)
        except InvalidTopic as error:
            return PushResult(Status.BAD_REQUEST, str(error))
        except NodeClosed as error:
            return PushResult(Status.INTERNAL_SERVER_ERROR, str(error))

    async def _publish(self, pubsub_topic: str, message: WakuMessage) -> PushResult:
        """Publish, and say to how many peers that was.

        Light nodes send a message again, and at several service nodes at once (REQ-RES-RELIABILITY), so that
        it may be here already: it counts as relayed to those it was forwarded to, unless it reached nobody.
        A light node that asks again a while later has not found it in the network: it is sent to all peers
        once more, which may be others by now.
        """
        relay = self._relay
        if not relay.peers_of(pubsub_topic):
            return _no_peers(pubsub_topic)  # relay would take a second attempt for a duplicate
        outcome = await relay.publish(pubsub_topic, message)
        if outcome.duplicate:
            self.counters.known += 1
            if self._is_asked_again(outcome.message_id):
                self.counters.again += 1
                outcome = await relay.publish(pubsub_topic, message, resend=True)
                return (
                    PushResult(Status.SUCCESS, relay_peer_count=outcome.peers)
                    if outcome.peers
                    else _no_peers(pubsub_topic)
                )
            if outcome.message_id in self._unrelayed:
                return _no_peers(pubsub_topic)
            peers = max(1, len(relay.mesh(pubsub_topic)))
        elif outcome.peers:
            self._is_asked_again(outcome.message_id)
            self._unrelayed.pop(outcome.message_id, None)
            self.counters.relayed += 1
            peers = outcome.peers
        else:
            self._unrelayed[outcome.message_id] = None
            if len(self._unrelayed) > self._options.max_unrelayed:
                self._unrelayed.popitem(last=False)
            return _no_peers(pubsub_topic)
        return PushResult(Status.SUCCESS, relay_peer_count=peers)

    def _is_asked_again(self, message_id: bytes) -> bool:
        """Was it asked for before, and long enough ago? The next such time counts from now on then."""
        now = trio.current_time()
        before = self._asked_at.get(message_id)
        if before is not None and now - before < self._options.relay_again_after_s:
            return False
        self._asked_at[message_id] = now
        self._asked_at.move_to_end(message_id)
        if len(self._asked_at) > self._options.max_relayed:
            self._asked_at.popitem(last=False)
        return before is not None

    def _encode(self, request_id: str | None, result: PushResult) -> bytes:
        self._count(result)
        return lightpush.encode_response(
            lightpush.LightPushResponse(
                _UNKNOWN_ID if request_id is None else request_id,
                result.status or Status.INTERNAL_SERVER_ERROR,
                result.description or None,
                result.relay_peer_count,
            )
        )

    def _encode_legacy(self, request_id: str | None, result: PushResult) -> bytes:
        self._count(result)
        return lightpush_legacy.encode_response(
            to_legacy(_UNKNOWN_ID if request_id is None else request_id, result)
        )

    def _count(self, result: PushResult) -> None:
        code = result.status or Status.INTERNAL_SERVER_ERROR
        self.counters.answers[code] = self.counters.answers.get(code, 0) + 1


def _no_peers(pubsub_topic: str) -> PushResult:
    return PushResult(Status.NO_PEERS_TO_RELAY, f"no relay peers for topic: {pubsub_topic}", 0)


def _undecodable(error: DecodeError) -> PushResult:
    return PushResult(Status.BAD_REQUEST, f"decode_rpc_failure: {error}")
