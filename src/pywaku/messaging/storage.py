"""The Message Storage API: what is known of messages that were sent, received or stored (MESSAGING-API)."""

from __future__ import annotations

from pywaku.messaging.record import MessageRecord, RequestId, SubscriptionId
from pywaku.messaging.records import Recorder
from pywaku.messaging.records.port import HASH_SIZE


class MessageStorage:
    """Reads the records; what was put into them before is seen. `node.messages` is one.

    Lists are in order of arrival, oldest first. Raises `RecordError` where the records cannot be read.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    async def get_by_request_id(self, request_id: RequestId) -> MessageRecord | None:
        """The record of a send; None for an id that is unknown."""
        return await self._recorder.by_request_id(request_id)

    async def get_by_hash(self, message_hash: bytes | str) -> MessageRecord | None:
        """The record of a message by its hash, as bytes or in hex; None for one that is unknown or none."""
        if isinstance(message_hash, str):
            try:
                message_hash = bytes.fromhex(message_hash.removeprefix("0x"))
            except ValueError:
                return None
        if len(message_hash) != HASH_SIZE:
            return None
        return await self._recorder.by_hash(message_hash)

    async def get_by_content_topic(
        self, content_topic: str, skip: int = 0, take: int | None = None
    ) -> list[MessageRecord]:
        """The records of a content topic, without the first `skip`, up to `take`."""
        return await self._recorder.by_content_topic(content_topic, skip, take)

    async def get_by_subscription_id(
        self, subscription_id: SubscriptionId, skip: int = 0, take: int | None = None
    ) -> list[MessageRecord]:
        """The records of what was received under a subscription, without the first `skip`, up to `take`."""
        return await self._recorder.by_subscription_id(subscription_id, skip, take)
