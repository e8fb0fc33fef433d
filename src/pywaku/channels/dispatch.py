"""From the machine of a channel to the node: rate limit, encryption, sending, and what became of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import trio

from pywaku.channels.conversation import Conversation, Outbound
from pywaku.channels.hub import ChannelHub
from pywaku.channels.ratequeue import Kind, Transmission
from pywaku.channels.ratevalues import Dropped
from pywaku.encryption import Encryption, encrypt_with
from pywaku.errors import LimitExceeded, NodeClosed, RecordError
from pywaku.message import WakuMessage
from pywaku.messaging.record import Message, MessageRecord, PlainCodec
from pywaku.protocols.relay import MessageRefused

if TYPE_CHECKING:
    from pywaku.channels.channel import ReliableChannel

logger = logging.getLogger(__name__)

_FULL_S: Final = 0.1
_NOT_RECORDED_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Versioned:
    """An encoder whose messages say how they are encrypted."""

    codec: PlainCodec
    version: int

    @property
    def pubsub_topic(self) -> str:
        return self.codec.pubsub_topic

    @property
    def content_topic(self) -> str:
        return self.codec.content_topic

    def encode(self, message: Message, now_ns: int) -> WakuMessage:
        return replace(self.codec.encode(message, now_ns), version=self.version)


class Dispatch:
    """Sends what the machine wants sent, in the order in which it may be."""

    def __init__(
        self,
        hub: ChannelHub,
        scope: str,
        conversation: Conversation,
        codec: PlainCodec,
        encryption: Encryption | None,
        channel: ReliableChannel,
    ) -> None:
        self._hub = hub
        self._scope = scope
        self._conversation = conversation
        self._encryption = encryption
        self._channel = channel
        version: object = getattr(encryption, "message_version", None)
        self._codec = codec if not isinstance(version, int) else _Versioned(codec, version)
        self._waiting: dict[str, Outbound] = {}  # for the rate limit
        self._queue: dict[str, Outbound] = {}  # for the node, in this order
        self._keys: dict[str, set[str]] = {}  # by SDS id
        self._stirred = trio.Event()
        self._numbers = 0

    def request(self, outbound: Outbound) -> None:
        """Send this as soon as the rate limit permits."""
        self._numbers += 1
        key = f"{outbound.sds_id}#{self._numbers}"
        self._waiting[key] = outbound
        self._keys.setdefault(outbound.sds_id, set()).add(key)
        self._hub.request(
            Transmission(self._scope, key, outbound.kind),
            lambda: self._go(key),
            lambda why: self._drop(key, why),
        )

    def __len__(self) -> int:
        return len(self._waiting) + len(self._queue)

    def withdraw(self) -> list[Outbound]:
        """Send nothing any more; returns what was not sent yet."""
        self._hub.withdraw(self._scope)
        left = [*self._queue.values(), *self._waiting.values()]
        for table in (self._waiting, self._queue, self._keys):
            table.clear()
        return left

    def settle(self, sds_id: str) -> None:
        """This need not be sent any more, unless somebody has asked for it."""
        for key in tuple(self._keys.get(sds_id, ())):
            outbound = self._waiting.get(key) or self._queue[key]
            if not outbound.repair:
                self._hub.withdraw_one(self._scope, key)
                self._remove(key)

    def _remove(self, key: str) -> Outbound | None:
        outbound = self._waiting.pop(key, None) or self._queue.pop(key, None)
        if outbound is not None:
            keys = self._keys[outbound.sds_id]
            keys.discard(key)
            if not keys:
                del self._keys[outbound.sds_id]
        return outbound

    async def run(self) -> None:
        """Send what may be sent."""
        while True:
            self._stirred = trio.Event()
            while self._queue:
                key, outbound = next(iter(self._queue.items()))
                try:
                    await self._send(key, outbound)
                except Exception as error:
                    logger.exception("channel message not sent: channel=%s", self._channel.channel_id)
                    self._fail(outbound, f"{type(error).__name__}: {error}")
                self._remove(key)
            await self._stirred.wait()

    def _go(self, key: str) -> None:
        outbound = self._waiting.pop(key, None)
        if outbound is not None:
            self._queue[key] = outbound
            self._stirred.set()

    def _drop(self, key: str, why: Dropped) -> None:
        outbound = self._remove(key)
        if outbound is None:
            return
        if outbound.kind is Kind.EPHEMERAL:
            self._channel.dropped(outbound.key or outbound.sds_id, why.reason.value)
        elif outbound.kind is not Kind.SYNC:  # the queue was full: SDS sends it again in its time
            self._tell(lambda now_ns: self._conversation.not_sent(outbound.sds_id, now_ns))

    async def _send(self, key: str, outbound: Outbound) -> None:
        data = outbound.data
        if self._encryption is not None:
            try:
                data = await encrypt_with(self._encryption, data)
            except Exception as error:
                self._fail(outbound, f"encryption failed: {type(error).__name__}: {error}")
                return
        ephemeral = True if outbound.kind is Kind.EPHEMERAL else None
        messaging = self._hub.node.parts.messaging
        request_id = None if outbound.kind is Kind.EPHEMERAL else outbound.key
        while key in self._queue:  # else it was settled meanwhile
            if request_id is not None and messaging.is_pending(request_id):
                break  # an earlier life of the channel has given it to the node, which goes on with it
            try:
                request_id = messaging.send(
                    self._codec, Message(data, ephemeral=ephemeral), request_id=request_id
                )
                break
            except MessageRefused as refused:
                self._fail(outbound, str(refused))
                return
            except LimitExceeded:
                await trio.sleep(_FULL_S)
            except RecordError as error:
                logger.warning("channel message not recorded, trying again: %s", error)
                await trio.sleep(_NOT_RECORDED_S)
            except NodeClosed:
                return
        else:
            return
        assert request_id is not None
        self._hub.expect(request_id, lambda record, what: self._outcome(outbound, record, what))
        self._tell(lambda _: self._conversation.sending(outbound.sds_id))

    def _fail(self, outbound: Outbound, error: str) -> None:
        """It can never be sent."""
        conversation = self._conversation
        if outbound.kind is Kind.EPHEMERAL:
            message_id = outbound.key or outbound.sds_id
            self._tell(lambda _: conversation.reject(message_id, error))
        else:
            self._tell(lambda _: conversation.fail(outbound.sds_id, error))

    def _outcome(self, outbound: Outbound, record: MessageRecord, what: str) -> None:
        conversation, sds_id = self._conversation, outbound.sds_id
        if outbound.kind is Kind.EPHEMERAL:
            if what == "propagated":
                message_id = outbound.key or sds_id
                self._tell(lambda _: conversation.ephemeral_sent(message_id))
            else:
                self._fail(outbound, record.error or "nobody took it")
        elif what == "propagated":
            self._tell(lambda now_ns: conversation.sent(sds_id, now_ns, record.message_hash))
        else:
            self._tell(lambda now_ns: conversation.not_sent(sds_id, now_ns))

    def _tell(self, input_: Callable[[int], object]) -> None:
        self._channel.tell(input_)
