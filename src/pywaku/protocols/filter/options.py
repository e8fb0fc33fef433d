"""What can be set about filter, on either side."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Final

from pywaku.errors import InvalidInput
from pywaku.protocols.filter.queue import QueueLimits
from pywaku.protocols.service import RateLimit, ServiceLimits

_MAX_REQUEST: Final = 32 * 1024  # a hundred content topics of 300 bytes
_MAX_PUSH: Final = 150 * 1024 + 64 * 1024  # the largest message of relay, and what is around it


@dataclass(frozen=True, slots=True)
class FilterServiceOptions:
    """What a filter service node takes on.

    - `max_peers`, `max_criteria_per_peer`: subscribers, and criteria (pairs of topics) of each.
    - `max_criteria_bytes`: what the content topics of one peer's criteria have together.
    - `subscription_timeout_s`: a subscription ends so long after the peer's last request.
    - `requests`: rates and bounds of subscribe requests.
    - `queue`: what may wait to be pushed to one subscriber; what finds no room is lost, for this one alone.
    - `write_timeout_s`: a subscriber that does not take one write for as long loses the stream.
    - `reopen_pause_s`: before a failed stream is opened anew; it doubles with each failure in a row.
    - `steady_s`: a stream that lived as long makes the failures before it forgotten.
    - `unreachable_s`: a subscriber that pushes did not reach for as long loses its subscription
      (12/WAKU2-FILTER, Filter-Push).
    """

    max_peers: int = 1000
    max_criteria_per_peer: int = 1000
    max_criteria_bytes: int = 256 * 1024
    subscription_timeout_s: float = 300.0
    requests: ServiceLimits = field(
        default_factory=lambda: ServiceLimits(
            per_peer=RateLimit(30, 60.0), total=RateLimit(1000, 1.0), max_request=_MAX_REQUEST
        )
    )
    queue: QueueLimits = field(default_factory=QueueLimits)
    write_timeout_s: float = 20.0
    reopen_pause_s: float = 0.5
    steady_s: float = 10.0
    unreachable_s: float = 60.0

    def __post_init__(self) -> None:
        _require_positive(self)


@dataclass(frozen=True, slots=True)
class FilterClientOptions:
    """How a filter client behaves.

    - `max_push`: bytes of one push; a peer that sends a larger one loses the stream.
    - `max_streams_per_peer`: push streams of one service node. One is enough for those that reuse it.
    - `seen_ttl_s`, `max_seen`: how long, and of how many messages, it is known that they came already.
    - `delivery_wait_s`: how long reading pauses at most for a subscription that is half full, before it is
      left to drop messages.
    """

    max_push: int = _MAX_PUSH
    max_streams_per_peer: int = 64
    seen_ttl_s: float = 120.0
    max_seen: int = 16384
    delivery_wait_s: float = 0.1

    def __post_init__(self) -> None:
        _require_positive(self)


def _require_positive(options: FilterServiceOptions | FilterClientOptions) -> None:
    for entry in fields(options):
        value = getattr(options, entry.name)
        if isinstance(value, int | float) and value <= 0:
            raise InvalidInput(f"{entry.name} is above 0, not {value}")
