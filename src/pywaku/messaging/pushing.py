"""Sending through service nodes: what an edge node does in place of relay.

Messages are pushed through all service nodes in use (two by default), so that one of them may fail. What
became of each request goes to the pools, which replace nodes as the policy says (REQ-RES-RELIABILITY).
"""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import Final

import trio

from pywaku.errors import NetworkError
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.messaging.outcomes import need_of, outcome_of
from pywaku.peers.pools import NodePool, Pools
from pywaku.peers.services import WITHOUT_CODE, Outcome, Service
from pywaku.protocols.lightpush import LightpushClient, PushResult
from pywaku.protocols.relay import MAX_MESSAGE_SIZE, MessageRefused, PublishOutcome
from pywaku.wire.message import encode_message

logger = logging.getLogger(__name__)

_PATIENCE_S: Final = 10.0


class Pushing:
    """Pushes messages through the nodes of `pools`."""

    def __init__(self, pools: Pools, lightpush: LightpushClient) -> None:
        self._pools = pools
        self._lightpush = lightpush

    async def publish(
        self, pubsub_topic: str, message: WakuMessage, *, timeout: float = _PATIENCE_S
    ) -> PublishOutcome:
        """Push a message through the service nodes in use; `peers` is how many of them relayed it.

        Waits up to `timeout` seconds for a service node. Raises `MessageRefused` for a message too large.
        """
        data = encode_message(message)
        if len(data) > MAX_MESSAGE_SIZE:
            text = (
                f"Message size exceeded maximum of {MAX_MESSAGE_SIZE} bytes: it has {len(data)} when encoded"
            )
            raise MessageRefused("size", text, size=len(data))
        pool = self._pools.open(need_of(Service.LIGHTPUSH, pubsub_topic))
        taken = 0

        async def push(peer: PeerId) -> None:
            nonlocal taken
            taken += await self._push(pool, peer, pubsub_topic, message)

        with trio.move_on_after(timeout):
            nodes = await pool.wait_for()
            async with trio.open_nursery() as nursery:
                for peer in nodes:
                    nursery.start_soon(push, peer)
        return PublishOutcome(pubsub_topic, message, sha256(data).digest(), taken)

    async def _push(self, pool: NodePool, peer: PeerId, topic: str, message: WakuMessage) -> bool:
        try:
            result = await self._lightpush.push(peer, topic, message)
        except NetworkError as error:
            logger.debug("lightpush failed: peer=%s error=%s", peer.short(), error)
            pool.report(peer, outcome_of(error))
            return False
        pool.report(peer, _outcome_of_push(result))
        if not result.is_success:
            logger.debug("lightpush refused: peer=%s status=%s", peer.short(), result.status)
        return result.is_success


def _outcome_of_push(result: PushResult) -> Outcome:
    return WITHOUT_CODE if result.status is None else Outcome.of_status(result.status)
