"""From the node to the machine of a channel: what comes live, and what stores have of it."""

from __future__ import annotations

import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import trio

from pywaku.channels.conversation import Conversation
from pywaku.channels.retrieval import MissingMessages, QueryOnConnect
from pywaku.encryption import Encryption, decrypt_with
from pywaku.errors import DecodeError, DecryptionFailed
from pywaku.message import WakuMessage
from pywaku.messaging.node import Node
from pywaku.messaging.record import PlainCodec
from pywaku.messaging.subscriptions import Subscription
from pywaku.protocols.store import StoreEntry, StoreQuery, StoresExhausted
from pywaku.wire.sds import decode_sds

if TYPE_CHECKING:
    from pywaku.channels.channel import ReliableChannel

logger = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_PAGE: Final = 20
_FETCH: Final = 20
_SECOND_NS: Final = 1_000_000_000


class Intake:
    """Takes messages of the content topic in, whichever way they come."""

    def __init__(
        self,
        node: Node,
        conversation: Conversation,
        codec: PlainCodec,
        encryption: Encryption | None,
        channel: ReliableChannel,
    ) -> None:
        self._node = node
        self._conversation = conversation
        self._codec = codec
        self._encryption = encryption
        self._channel = channel
        options = channel.options
        self._missing = MissingMessages(options.retrieve_frequency_ms / 1000)
        self._query = QueryOnConnect(options.query_threshold_ms / 1000)

    async def subscribe(self) -> Subscription:
        """Have messages come."""
        return await self._node.subscribe(self._codec)

    async def receive(self, subscription: Subscription) -> None:
        """Take what comes live."""
        async for record in subscription:
            await self._take(record.message, record.message_hash)
            await self._channel.room()

    def outage(self) -> None:
        """The node could not reach anybody."""
        self._query.outage()

    async def retrieve(self) -> None:
        """Ask stores for missing messages by their hints, now and then (Missing message retrieval)."""
        every_s = self._channel.options.retrieve_frequency_ms / 1000
        stores = self._node.parts.stores
        while True:
            await trio.sleep(every_s)
            if not self._channel.healthy:
                continue
            hashes = self._missing.due(self._conversation.missing(), trio.current_time())
            if not hashes:
                continue
            async with aclosing(stores.fetch(self._codec.pubsub_topic, hashes, batch=_FETCH)) as entries:
                async for _, entry in entries:
                    if await self._take_entry(entry) is not None:
                        self._channel.counters.retrieved += 1

    async def catch_up(self) -> None:
        """Ask stores for the latest messages when they can be reached (Query on connect)."""
        if not self._channel.options.query_on_connect:
            return
        stores = self._node.parts.stores
        while True:
            available = self._channel.healthy and bool(stores.peers(self._codec.pubsub_topic))
            if self._query.due(trio.current_time(), store_available=available) and await self._ask():
                self._query.done(trio.current_time())
            await trio.sleep(_LOOK_S)

    async def _ask(self) -> bool:
        """The latest messages, back to one that leads to all before it; False if no store answers."""
        node = self._node
        now_ns = node.parts.environment.clock()
        limit_ns = self._channel.options.query_age_limit_ms * 1_000_000
        query = StoreQuery(
            self._codec.pubsub_topic,
            (self._codec.content_topic,),
            time_start=now_ns - limit_ns,
            forward=False,
            page_size=_PAGE,
        )
        self._channel.counters.queries += 1
        try:
            pages = node.parts.store.pages(query, node.parts.stores.peers(self._codec.pubsub_topic))
            async for page in pages:
                leads_on = False
                for entry in page.entries:
                    data = await self._take_entry(entry)
                    leads_on = leads_on or (data is not None and self._has_history(data))
                if leads_on:
                    break
        except StoresExhausted as error:
            logger.debug("channel query failed: channel=%s error=%s", self._channel.channel_id, error)
            return False
        return True

    def _has_history(self, data: bytes) -> bool:
        """Does a message name those before it in this channel?"""
        try:
            message = decode_sds(data)
        except DecodeError:
            return False
        return message.channel_id == self._channel.channel_id and bool(message.causal_history)

    async def _take_entry(self, entry: StoreEntry) -> bytes | None:
        if entry.message is None:
            return None
        return await self._take(entry.message, entry.message_hash)

    async def _take(self, message: WakuMessage, message_hash: bytes) -> bytes | None:
        """Decrypt a message and give it to the machine; what it is decrypted, None if it is not for us."""
        data = message.payload
        if self._encryption is not None:
            try:
                data = await decrypt_with(self._encryption, data)
            except DecryptionFailed as error:
                self._channel.counters.undecryptable += 1
                logger.debug(
                    "channel message not decrypted: channel=%s error=%s", self._channel.channel_id, error
                )
                return None
        self._channel.tell(lambda now_ns: self._conversation.receive(data, now_ns, message_hash))
        return data
