"""Events as values: what there is to listen for, and what follows a change (MESSAGING-API, Events).

Pure; `pywaku.messaging.events` hands them to those who listen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar, get_args

from pywaku.messaging.health import ContentTopicHealthChange, HealthChange, HealthStatus, ShardHealthChange
from pywaku.messaging.record import MessageRecord

MessageEventName = Literal[
    "message:change",
    "message:propagated",
    "message:sent",
    "message:received",
    "message:stored",
    "message:error",
]
HealthEventName = Literal["health:change"]
ContentTopicHealthEventName = Literal["content_topic_health:change"]
ShardHealthEventName = Literal["shard_health:change"]
EventName = MessageEventName | HealthEventName | ContentTopicHealthEventName | ShardHealthEventName

MESSAGE_EVENTS: Final[tuple[MessageEventName, ...]] = get_args(MessageEventName)
"""The `message:*` family, in the order in which the events of one change are dispatched."""
EVENT_NAMES: Final[frozenset[str]] = frozenset(
    (*MESSAGE_EVENTS, "health:change", "content_topic_health:change", "shard_health:change")
)
"""Every name there is; no others are supported."""

Detail = MessageRecord | HealthStatus | ContentTopicHealthChange | ShardHealthChange
"""What events carry."""

D_co = TypeVar("D_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Event(Generic[D_co]):
    """Something that has happened (MESSAGING-API, CustomEvent)."""

    name: EventName
    detail: D_co
    """What it is about: of `message:*` the record as it now is, of `health:change` the new status, of
    `shard_health:change` and `content_topic_health:change` which topic and its new health."""
    at_ns: int
    """When it happened, in nanoseconds since 1970."""


def names_of_change(before: MessageRecord | None, after: MessageRecord) -> tuple[MessageEventName, ...]:
    """The events of a record that was `before` (None: not there) and is now `after`.

    `message:change` where `sending`, `sent`, `stored` or `received` changed, or the record is new;
    `message:error` where an error came up, also in place of another one; the others where what they are
    called after has become true.
    """
    names: list[MessageEventName] = []
    was = _UNKNOWN if before is None else _flags(before)
    _, sent, stored, received, propagated, error = now = _flags(after)
    if before is None or was[:4] != now[:4]:
        names.append("message:change")
    if propagated and not was[4]:
        names.append("message:propagated")
    if sent and not was[1]:
        names.append("message:sent")
    if received and not was[3]:
        names.append("message:received")
    if stored and not was[2]:
        names.append("message:stored")
    if error is not None and error != was[5]:
        names.append("message:error")
    return tuple(names)


def events_of_change(
    before: MessageRecord | None, after: MessageRecord, at_ns: int
) -> list[Event[MessageRecord]]:
    """The events of `names_of_change`, each with the record as it now is."""
    return [Event(name, after, at_ns) for name in names_of_change(before, after)]


def event_of_health(change: HealthChange, at_ns: int) -> Event[HealthChange]:
    """The event of a change of health."""
    match change:
        case HealthStatus():
            return Event("health:change", change, at_ns)
        case ShardHealthChange():
            return Event("shard_health:change", change, at_ns)
        case ContentTopicHealthChange():
            return Event("content_topic_health:change", change, at_ns)


_Flags = tuple[bool, bool, bool, bool, bool, str | None]
_UNKNOWN: Final[_Flags] = (False, False, False, False, False, None)


def _flags(record: MessageRecord) -> _Flags:
    return (
        record.sending,
        record.sent,
        record.stored,
        record.received,
        record.propagated,
        record.error,
    )
