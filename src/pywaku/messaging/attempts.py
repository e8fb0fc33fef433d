"""The words of sending: policy, attempts, verdicts, and the steps of a request (MESSAGING-API, Send)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pywaku.errors import InvalidInput
from pywaku.messaging.record import RequestId

CANCELLED: Final = "cancelled"
"""The error of a request that the application has cancelled."""


@dataclass(frozen=True, slots=True)
class SendPolicy:
    """How hard it is tried to send.

    - `retry_intervals_s`: the pauses before each further attempt, when nobody took the message.
    - `check_after_s`: a message that was taken is looked for in a store so long after it, and again after as
      long, together with those whose time comes less than `check_together_s` later; `resend_after_s`: sent
      once more if a store has said by then that it lacks it; `max_resends`: how often; `answer_within_s`: as
      long an answer of a store is waited for, then the message counts as lacking.
    - `max_pending`: requests at a time, finished ones not counted; beyond it `submit` raises `LimitExceeded`.
    - `concurrency`: attempts at a time.
    """

    retry_intervals_s: tuple[float, ...] = (1.0, 2.0, 4.0)
    check_after_s: float = 3.0
    check_together_s: float = 0.5
    resend_after_s: float = 10.0
    answer_within_s: float = 60.0
    max_resends: int = 3
    max_pending: int = 10_000
    concurrency: int = 64

    def __post_init__(self) -> None:
        if not all(interval > 0 for interval in self.retry_intervals_s):
            raise InvalidInput("retry_intervals_s are positive")
        if not 0 < self.check_after_s <= self.resend_after_s <= self.answer_within_s:
            raise InvalidInput("sending takes 0 < check_after_s ≤ resend_after_s ≤ answer_within_s")
        if self.max_resends < 0:
            raise InvalidInput("max_resends is at least 0")
        if not self.check_together_s > 0:
            raise InvalidInput("check_together_s is positive")
        if self.max_pending < 1 or self.concurrency < 1:
            raise InvalidInput("max_pending and concurrency are at least 1")


class Verdict(Enum):
    """What the remote peers said of an attempt."""

    TAKEN = "taken"
    """At least one took the message."""
    FAILED = "failed"
    """None did, and that may change."""
    REFUSED = "refused"
    """They will never take it: it is too large, say, or breaks a rule."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Send the message of this request now, then say what became of it (`settled`)."""

    request_id: RequestId
    number: int
    """1 for the first attempt."""
    resend: bool
    """It was taken before, and seems to be lost."""


class Step(Enum):
    """What has become of a request."""

    RETRYING = "retrying"
    """Nobody took it; it will be tried again."""
    PROPAGATED = "propagated"
    """It was taken, and is now looked for in the network."""
    RESENDING = "resending"
    """It was not found there; it will be sent again."""
    SENT = "sent"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of one request; after SENT, FAILED and CANCELLED there is none."""

    request_id: RequestId
    message_hash: bytes
    step: Step
    attempts: int
    propagated: bool
    error: str | None = None
