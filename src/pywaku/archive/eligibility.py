"""Which messages a store node keeps (13/WAKU2-STORE, Waku Message Store Eligibility). Pure."""

from __future__ import annotations

from enum import Enum
from typing import Final

from pywaku.message import WakuMessage

MAX_TIME_DEVIATION_NS: Final = 20_000_000_000
"""How far a timestamp may be from the clock of the store node, either way, and still be near enough."""


class Ineligible(Enum):
    """Why a message is not kept."""

    EPHEMERAL = "ephemeral"
    NO_TIMESTAMP = "no-timestamp"
    TOO_OLD = "too-old"
    IN_FUTURE = "in-future"


def why_ineligible(message: WakuMessage, now_ns: int) -> Ineligible | None:
    """The reason not to keep `message` at `now_ns`; None where it is eligible.

    The timestamp must be populated: an absent one, and 0, which is what an absent one means, are refused
    under a name of their own. nwaku's archive refuses them too, as too old.
    """
    if message.ephemeral:
        return Ineligible.EPHEMERAL
    timestamp = message.timestamp_ns
    if not timestamp:
        return Ineligible.NO_TIMESTAMP
    if timestamp < now_ns - MAX_TIME_DEVIATION_NS:
        return Ineligible.TOO_OLD
    if timestamp > now_ns + MAX_TIME_DEVIATION_NS:
        return Ineligible.IN_FUTURE
    return None
