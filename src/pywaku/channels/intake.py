"""From the node to the machine of a channel: what comes live, and what stores have of it."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import trio

from pywaku.channels.conversation import Conversation
from pywaku.channels.retrieval import MissingMessages, QueryOnConnect, Search
from pywaku.encryption import Encryption, decrypt_with
from pywaku.errors import DecodeError, DecryptionFailed, RecordError
from pywaku.message import WakuMessage
from pywaku.messaging.node import Node
from pywaku.messaging.record import PlainCodec
from pywaku.messaging.subscriptions import Subscription
from pywaku.protocols.store import StoreEntry, StoreQuery, StoresExhausted
from pywaku.protocols.store.query import MAX_PAGE_SIZE
from pywaku.wire.sds import decode_sds

if TYPE_CHECKING:
    from pywaku.channels.channel import ReliableChannel

logger = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
_PAGE: Final = 20
_FETCH: Final = 20
_SEARCH_PAGES: Final = 20
_MAX_TAKEN: Final = 20_000
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
        self._search = Search(options.retrieve_frequency_ms / 1000)
        self._query = QueryOnConnect(options.query_threshold_ms / 1000)
        self._taken: OrderedDict[bytes, None] = OrderedDict()  # the hashes of the latest messages

    async def subscribe(self) -> Subscription:
        """Have messages come."""
        return await self._node.subscribe(self._codec)

    async def receive(self, subscription: Subscription) -> None:
        """Take what comes live."""
        async for record in subscription:
            await self._channel.room()
            await self._take(record.message, record.message_hash, own=record.request_id is not None)

    def outage(self) -> None:
        """The node could not reach anybody."""
        self._query.outage()

    async def retrieve(self) -> None:
        """Ask stores for missing messages by their hints, now and then (Missing message retrieval).

        What hints do not lead to is searched for among the messages of the content topic.
        """
        every_s = self._channel.options.retrieve_frequency_ms / 1000
        stores = self._node.parts.stores
        while True:
            await trio.sleep(every_s)
            if not self._channel.healthy or not stores.peers(self._codec.pubsub_topic):
                continue
            missing = self._conversation.missing()
            sought = self._missing.beyond_hints(missing)
            hashes = self._missing.due(missing, trio.current_time())
            if hashes:
                self._channel.counters.retrieved += await self._fetch(hashes)
            if self._search.due(sought, trio.current_time()):
                found = await self._look_through_store()
                self._search.done(trio.current_time(), found=found)

    async def _fetch(self, hashes: Sequence[bytes]) -> int:
        """Take these messages from whichever store has them; how many there were."""
        count = 0
        stores = self._node.parts.stores
        async with aclosing(stores.fetch(self._codec.pubsub_topic, hashes, batch=_FETCH)) as entries:
            async for _, entry in entries:
                if await self._take_entry(entry) is not None:
                    count += 1
                await self._channel.room()
        return count

    async def _look_through_store(self) -> bool:
        """Take what is new of the latest messages, newest first, until none is missing; was there any?"""
        stores, topic = self._node.parts.stores, self._codec.pubsub_topic
        query = StoreQuery(
            topic,
            (self._codec.content_topic,),
            time_start=self._earliest_ns(),
            forward=False,
            include_data=False,
            page_size=MAX_PAGE_SIZE,
        )
        self._channel.counters.searches += 1
        found = pages = 0
        for peer in stores.peers(topic):
            try:
                async with aclosing(stores.list_hashes(peer, query, topic)) as listed:
                    async for page in listed:
                        found += await self._fetch([value for value in page if value not in self._taken])
                        await self._digested()
                        pages += 1
                        if pages == _SEARCH_PAGES or not self._conversation.missing():
                            break
                break
            except StoresExhausted as error:
                logger.debug("channel search failed: channel=%s error=%s", self._channel.channel_id, error)
        self._channel.counters.retrieved += found
        return found > 0

    async def _digested(self) -> None:
        """Wait until the machine has had all that was taken so far."""
        digested = trio.Event()
        self._channel.tell(lambda _: digested.set())
        await digested.wait()

    async def catch_up(self) -> None:
        """Ask stores for the latest messages when they can be reached (Query on connect)."""
        if not self._channel.options.query_on_connect:
            return
        stores = self._node.parts.stores
        while True:
            available = self._channel.healthy and bool(stores.peers(self._codec.pubsub_topic))
            if self._query.due(trio.current_time(), store_available=available):
                self._query.begun()
                if await self._ask():
                    self._query.done(trio.current_time())
                else:
                    self._query.failed(trio.current_time())
            await trio.sleep(_LOOK_S)

    async def _ask(self) -> bool:
        """The latest messages, back to one that leads to all before it; False if no store answers."""
        node = self._node
        query = StoreQuery(
            self._codec.pubsub_topic,
            (self._codec.content_topic,),
            time_start=self._earliest_ns(),
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
                await self._channel.room()
                if leads_on:
                    break
        except StoresExhausted as error:
            logger.debug("channel query failed: channel=%s error=%s", self._channel.channel_id, error)
            return False
        return True

    def _earliest_ns(self) -> int:
        """What is older is not looked for."""
        return self._node.parts.environment.clock() - self._channel.options.query_age_limit_ms * 1_000_000

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

    async def _take(
        self, message: WakuMessage, message_hash: bytes, *, own: bool | None = None
    ) -> bytes | None:
        """Decrypt a message and give it to the machine; what it is decrypted, None if it is not for us.

        `own` says whether this node sent it; None: the records know.
        """
        self._taken[message_hash] = None
        if len(self._taken) > _MAX_TAKEN:
            self._taken.popitem(last=False)
        data = message.payload
        if self._encryption is not None:
            try:
                data = await decrypt_with(self._encryption, data)
            except DecryptionFailed as error:
                if own is None:
                    own = await self._is_own(message_hash)
                if not own:  # what is encrypted for others its sender cannot read either
                    self._channel.counters.undecryptable += 1
                    logger.debug(
                        "channel message not decrypted: channel=%s error=%s", self._channel.channel_id, error
                    )
                return None
        self._channel.tell(lambda now_ns: self._conversation.receive(data, now_ns, message_hash))
        return data

    async def _is_own(self, message_hash: bytes) -> bool:
        try:
            record = await self._node.messages.get_by_hash(message_hash)
        except RecordError:
            return False
        return record is not None and record.request_id is not None
