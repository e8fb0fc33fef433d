"""What the Messaging API says of itself: rows of the event journal, for each thing that happens."""

from __future__ import annotations

from typing import Final

from pywaku.ids import PeerId
from pywaku.journal import MESSAGE_ATTEMPT, MESSAGE_CANCELLED, MESSAGE_REQUESTED, Journal, JournalEntry
from pywaku.messaging.attempts import Progress, Step
from pywaku.messaging.health import ContentTopicHealthChange, HealthChange, HealthStatus, ShardHealthChange
from pywaku.messaging.record import MessageRecord, SubscriptionId
from pywaku.messaging.transport import Handover

_STEPS: Final = {
    Step.RESENDING: "message:resending",
    Step.SENT: "message:sent",
    Step.FAILED: "message:error",
    Step.CANCELLED: MESSAGE_CANCELLED,
}


class Reports:
    """Writes rows where there is a journal."""

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal

    def channel(self, entry: JournalEntry) -> None:
        """Something happened in a channel."""
        if self._journal is not None:
            self._journal.write(entry)

    @property
    def wanted(self) -> bool:
        """Is there a journal?"""
        return self._journal is not None

    def requested(self, record: MessageRecord) -> None:
        """The application asked for a message to be sent."""
        if self._journal is not None:
            self._journal.write(_entry(MESSAGE_REQUESTED, record))

    def attempted(self, record: MessageRecord, attempt: int, handover: Handover) -> None:
        """One attempt to send ended: a row for each peer that took it, or one without a peer."""
        journal = self._journal
        if journal is None:
            return
        for peer in handover.taken_by or (None,):
            journal.write(_entry(MESSAGE_ATTEMPT, record, attempt=attempt, peer=peer, error=handover.error))

    def progressed(self, record: MessageRecord, progress: Progress) -> None:
        """A request of that record, as it was before, made a step."""
        journal = self._journal
        if journal is None:
            return
        if progress.propagated and not record.propagated:
            journal.write(_entry("message:propagated", record, attempt=progress.attempts))
        event = _STEPS.get(progress.step)
        if event is not None:
            journal.write(_entry(event, record, attempt=progress.attempts, error=progress.error))

    def received(self, record: MessageRecord, source: str, peer: PeerId) -> None:
        """A message came."""
        if self._journal is not None:
            self._journal.write(_entry("message:received", record, source=source, peer=peer))

    def stored(self, message_hash: bytes, record: MessageRecord | None, peer: PeerId) -> None:
        """A store node has it."""
        if self._journal is None:
            return
        if record is not None:
            self._journal.write(_entry("message:stored", record, source="store", peer=peer))
        else:
            self._journal.write(
                JournalEntry("message:stored", message_hash=message_hash, source="store", peer=peer)
            )

    def dropped(self, record: MessageRecord, subscription_id: SubscriptionId) -> None:
        """A subscription had no room for it."""
        if self._journal is not None:
            self._journal.write(_entry("message:dropped", record, subscription_id=subscription_id))

    def not_decoded(self, record: MessageRecord, error: str) -> None:
        """A decoder could not read it."""
        if self._journal is not None:
            self._journal.write(_entry("message:error", record, error=error))

    def health(self, change: HealthChange) -> None:
        """The health of the node, a shard or a content topic changed."""
        if self._journal is None:
            return
        match change:
            case HealthStatus():
                entry = JournalEntry("health:change", state=change.value)
            case ShardHealthChange(topic, health):
                entry = JournalEntry("shard_health:change", pubsub_topic=topic, state=health.value)
            case ContentTopicHealthChange(topic, content_topic, health):
                entry = JournalEntry(
                    "content_topic_health:change",
                    pubsub_topic=topic,
                    content_topic=content_topic,
                    state=health.value,
                )
        self._journal.write(entry)


def _entry(
    event: str,
    record: MessageRecord,
    *,
    subscription_id: SubscriptionId | None = None,
    attempt: int | None = None,
    peer: PeerId | None = None,
    source: str | None = None,
    error: str | None = None,
) -> JournalEntry:
    message = record.message
    return JournalEntry(
        event,
        record.request_id,
        subscription_id,
        record.message_hash,
        record.pubsub_topic,
        message.content_topic,
        message.timestamp_ns,
        len(message.payload),
        attempt,
        peer,
        source,
        None,
        error,
    )
