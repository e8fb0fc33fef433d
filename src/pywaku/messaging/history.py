"""Messages that an application asks stores for: what comes is recorded (MESSAGING-API, History API)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.messaging.record import MessageRecord
from pywaku.messaging.records import Change, Recorder
from pywaku.messaging.sender import Sender
from pywaku.protocols.store import StoreEntry, StoreMessages


class History(StoreMessages):
    """The entries of a query: `async for entry in history`. Each is `stored` in the records from then on."""

    def __init__(
        self, messages: StoreMessages, recorder: Recorder, sender: Sender, clock: Callable[[], int]
    ) -> None:
        super().__init__(messages.pages)
        self._recorder = recorder
        self._sender = sender
        self._clock = clock
        self._page: deque[StoreEntry] = deque()

    async def __anext__(self) -> StoreEntry:
        while not self._page:
            page = await anext(self.pages)
            await self._recorder.room()
            for entry in page.entries:
                self._note(entry, page.peer)
            self._page.extend(page.entries if self.pages.query.forward else reversed(page.entries))
        return self._page.popleft()

    def _note(self, entry: StoreEntry, peer: PeerId) -> None:
        """A message that is known here is stored; another one is added to what is known."""
        self._sender.in_store(entry.message_hash, peer)
        if entry.message is not None and entry.pubsub_topic is not None:
            self._recorder.put(self._adding(entry.message_hash, entry.pubsub_topic, entry.message))

    def _adding(self, message_hash: bytes, pubsub_topic: str, message: WakuMessage) -> Change:
        now_ns = self._clock()
        record = MessageRecord(
            message_hash, pubsub_topic, message, stored=True, created_ns=now_ns, updated_ns=now_ns
        )
        return Change(message_hash, now_ns, record, stored=True)
