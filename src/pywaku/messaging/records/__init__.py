"""The records of messages (MESSAGING-API, Message Storage)."""

from pywaku.messaging.records.memory import MemoryRecordStore
from pywaku.messaging.records.opening import open_record_store
from pywaku.messaging.records.port import Change, Changed, RecordCounters, RecordStore, Retention
from pywaku.messaging.records.recorder import (
    Recorder,
    RecorderCounters,
    RecorderOptions,
    open_recorder,
)

__all__ = [
    "Change",
    "Changed",
    "MemoryRecordStore",
    "RecordCounters",
    "RecordStore",
    "Recorder",
    "RecorderCounters",
    "RecorderOptions",
    "Retention",
    "open_record_store",
    "open_recorder",
]
