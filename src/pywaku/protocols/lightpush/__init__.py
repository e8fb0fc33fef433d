"""Light push (WAKU-LIGHTPUSH, 19/WAKU2-LIGHTPUSH): light nodes have service nodes relay their messages."""

from pywaku.protocols.lightpush.client import LightpushClient
from pywaku.protocols.lightpush.options import (
    MAX_REQUEST,
    AutoSharding,
    LightpushClientCounters,
    LightpushServiceCounters,
    LightpushServiceOptions,
)
from pywaku.protocols.lightpush.service import LightpushService, open_lightpush_service
from pywaku.protocols.lightpush.status import INVALID_MESSAGE, PushResult
from pywaku.wire.lightpush import PROTOCOL, Status
from pywaku.wire.lightpush_legacy import PROTOCOL as LEGACY_PROTOCOL

__all__ = [
    "INVALID_MESSAGE",
    "LEGACY_PROTOCOL",
    "MAX_REQUEST",
    "PROTOCOL",
    "AutoSharding",
    "LightpushClient",
    "LightpushClientCounters",
    "LightpushService",
    "LightpushServiceCounters",
    "LightpushServiceOptions",
    "PushResult",
    "Status",
    "open_lightpush_service",
]
