"""Sending through service nodes: what an edge node does in place of relay.

Messages are pushed through all service nodes in use (two by default), so that one of them may fail. What
became of each request goes to the pools, which replace nodes as the policy says (REQ-RES-RELIABILITY).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Final

import trio

from pywaku.errors import NetworkError
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.messaging.attempts import Verdict
from pywaku.messaging.outcomes import need_of, outcome_of
from pywaku.messaging.transport import Handover
from pywaku.peers.pools import NodePool, Pools
from pywaku.peers.services import WITHOUT_CODE, Outcome, Service
from pywaku.protocols.lightpush import INVALID_MESSAGE, LightpushClient, PushResult
from pywaku.tasks import run_guarded
from pywaku.wire.lightpush import Status

logger = logging.getLogger(__name__)

_PATIENCE_S: Final = 10.0
_FINAL: Final = frozenset({Status.BAD_REQUEST, Status.PAYLOAD_TOO_LARGE, INVALID_MESSAGE})
"""Codes that say something of the message and not of the service node: no other one would take it."""


class Pushing:
    """Pushes messages through the nodes of `pools`; what is still under way when one has taken it goes on."""

    def __init__(self, pools: Pools, lightpush: LightpushClient, nursery: trio.Nursery) -> None:
        self._pools = pools
        self._lightpush = lightpush
        self._nursery = nursery

    def pool(self, pubsub_topic: str) -> NodePool:
        """The nodes of a shard."""
        return self._pools.open(need_of(Service.LIGHTPUSH, pubsub_topic))

    async def push(
        self,
        pubsub_topic: str,
        message: WakuMessage,
        *,
        timeout: float = _PATIENCE_S,
        given_to: Collection[PeerId] = (),
    ) -> Handover:
        """Push a message; returns when a service node has taken it, or when all have refused.

        Waits up to `timeout` seconds for one. What the others say then goes to the pool only. The nodes that
        it was `given_to` before make place for others where there are some (REQ-RES-RELIABILITY, "Retry
        missing messages": using a different service node).
        """
        pool = self.pool(pubsub_topic)
        for peer in given_to:
            pool.doubt(peer)
        nodes: Sequence[PeerId] = pool.in_use
        if not nodes:
            with trio.move_on_after(timeout):
                nodes = await pool.wait_for()
        if not nodes:
            return Handover(Verdict.FAILED, f"no light push node within {timeout:g} s")
        pushes = _Pushes(tuple(nodes))
        if len(nodes) == 1:  # there is nobody else to wait for, so no other task is needed
            await self._push(pool, nodes[0], pubsub_topic, message, pushes)
            return pushes.handover()
        for peer in nodes:
            self._nursery.start_soon(run_guarded, self._push, pool, peer, pubsub_topic, message, pushes)
        await pushes.decided.wait()
        return pushes.handover()

    async def _push(
        self, pool: NodePool, peer: PeerId, topic: str, message: WakuMessage, pushes: _Pushes
    ) -> None:
        try:
            result = await self._lightpush.push(peer, topic, message)
        except NetworkError as error:
            logger.debug("lightpush failed: peer=%s error=%s", peer.short(), error)
            pushes.failed(peer, str(error), final=False)
            pool.report(peer, outcome_of(error))
            return
        except BaseException:
            pushes.failed(peer, "ended", final=False)
            raise
        if result.is_success:
            pushes.taken(peer)
        else:
            logger.debug("lightpush refused: peer=%s status=%s", peer.short(), result.status)
            text = f"{result.status if result.status is not None else 'failed'} {result.description}".strip()
            pushes.failed(peer, text, final=result.status in _FINAL)
        pool.report(peer, _outcome_of_push(result))


class _Pushes:
    """One message on its way through several service nodes."""

    def __init__(self, through: tuple[PeerId, ...]) -> None:
        self.decided = trio.Event()
        self._through = through
        self._open = len(through)
        self._taken: list[PeerId] = []
        self._errors: list[str] = []
        self._final = True

    def taken(self, peer: PeerId) -> None:
        self._taken.append(peer)
        self.decided.set()
        self._one_less()

    def failed(self, peer: PeerId, error: str, *, final: bool) -> None:
        self._errors.append(f"{peer.short()}: {error}")
        self._final = self._final and final
        self._one_less()

    def _one_less(self) -> None:
        self._open -= 1
        if not self._open:
            self.decided.set()

    def handover(self) -> Handover:
        if self._taken:
            return Handover(Verdict.TAKEN, None, tuple(self._taken), self._through)
        verdict = Verdict.REFUSED if self._final else Verdict.FAILED
        return Handover(verdict, "; ".join(self._errors), (), self._through)


def _outcome_of_push(result: PushResult) -> Outcome:
    return WITHOUT_CODE if result.status is None else Outcome.of_status(result.status)
