"""Segmentation of large payloads, with Reed-Solomon parity, as a pure state machine."""

from __future__ import annotations

from pywaku.segments.reassembly import Reassembler
from pywaku.segments.splitting import SegmentationConfig, SegmentedPayload, entire_message_hash, split
from pywaku.segments.types import (
    Change,
    Event,
    GivenUp,
    KeptSending,
    PayloadInvalid,
    PayloadIrretrievable,
    PayloadReceived,
    ReassemblyCounters,
    ReassemblyLimits,
    ReassemblySizes,
    Refusal,
    SegmentKept,
    SegmentRefused,
    SendingForgotten,
    SendingOpened,
    SendingSettled,
    Step,
)

__all__ = [
    "Change",
    "Event",
    "GivenUp",
    "KeptSending",
    "PayloadInvalid",
    "PayloadIrretrievable",
    "PayloadReceived",
    "Reassembler",
    "ReassemblyCounters",
    "ReassemblyLimits",
    "ReassemblySizes",
    "Refusal",
    "SegmentKept",
    "SegmentRefused",
    "SegmentationConfig",
    "SegmentedPayload",
    "SendingForgotten",
    "SendingOpened",
    "SendingSettled",
    "Step",
    "entire_message_hash",
    "split",
]
