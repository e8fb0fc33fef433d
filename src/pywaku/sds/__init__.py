"""Scalable Data Sync (SDS) as a pure state machine."""

from pywaku.sds.changes import Change, Table
from pywaku.sds.channel import SdsChannel
from pywaku.sds.options import MessageIds, RepairOptions, SdsOptions
from pywaku.sds.types import (
    Acknowledged,
    AcknowledgedBy,
    Counters,
    Delivered,
    EphemeralReceived,
    LossReason,
    MessagesLost,
    MessagesMissing,
    NotAcknowledged,
    Outcome,
    Participant,
    PossiblyAcknowledged,
    Purpose,
    Received,
    RefusalReason,
    Refused,
    SdsEvent,
    Sizes,
    Transmission,
)

__all__ = [
    "Acknowledged",
    "AcknowledgedBy",
    "Change",
    "Counters",
    "Delivered",
    "EphemeralReceived",
    "LossReason",
    "MessageIds",
    "MessagesLost",
    "MessagesMissing",
    "NotAcknowledged",
    "Outcome",
    "Participant",
    "PossiblyAcknowledged",
    "Purpose",
    "Received",
    "RefusalReason",
    "Refused",
    "RepairOptions",
    "SdsChannel",
    "SdsEvent",
    "SdsOptions",
    "Sizes",
    "Table",
    "Transmission",
]
