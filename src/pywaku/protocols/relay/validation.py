"""Whether a message is valid: the built-in rules, then the validators of the application.

The first outcome other than ACCEPT decides (GossipSub v1.1, Extended Validators). Everything that can be said
at once is said at once; only a validator that returns an awaitable costs a task.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from pywaku.errors import DecodeError
from pywaku.gossip import Verdict
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.protocols.relay.bandwidth import FreeBandwidth
from pywaku.protocols.relay.counters import RelayCounters
from pywaku.protocols.relay.failures import Failures
from pywaku.wire.message import decode_message

logger = logging.getLogger(__name__)

Validator = Callable[[str, WakuMessage, PeerId], Verdict | Awaitable[Verdict]]
"""Judges a message on a pubsub topic, and by whom it came (this node's own id when it is published here)."""


class Refusal(NamedTuple):
    """Why a message does not pass."""

    verdict: Verdict
    reason: str
    explanation: str


class Entry(NamedTuple):
    """A validator that was added, and how it fails."""

    validator: Validator
    failures: Failures


class Pending(NamedTuple):
    """A validation that has to wait for the validator at `position`; those after it follow."""

    topic: str
    message: WakuMessage
    peer: PeerId
    answer: Awaitable[Verdict]
    validators: tuple[Entry, ...]
    position: int

    def abandon(self) -> None:
        """The answer will not be asked for; a coroutine that never started says nothing about it."""
        close = getattr(self.answer, "close", None)
        if close is not None:
            close()


_VALIDATOR_ERROR = Refusal(Verdict.IGNORE, "validator-error", "a validator failed")


class Validation:
    """The rules that hold, and the validators that were added."""

    def __init__(
        self,
        *,
        max_message_size: int,
        timestamp_window_s: float | None,
        bandwidth: FreeBandwidth | None,
        proof_validator: Validator | None,
        timeout_s: float,
        clock: Callable[[], int],
        counters: RelayCounters,
    ) -> None:
        self._max_size = max_message_size
        self._window_ns = None if timestamp_window_s is None else round(timestamp_window_s * 1e9)
        self._bandwidth = bandwidth
        self._timeout_s = timeout_s
        self._clock = clock
        self._general: tuple[Entry, ...] = ()
        self._by_topic: dict[str, tuple[Entry, ...]] = {}
        if proof_validator is not None:
            self.add(_with_proof(proof_validator))
        self._has_rules = self._window_ns is not None or bandwidth is not None
        self._counters = counters

    def add(self, validator: Validator, topic: str | None = None) -> Entry:
        """Ask `validator` about messages on `topic`, or on all topics; general ones are asked first."""
        entry = Entry(validator, Failures())
        if topic is None:
            self._general = (*self._general, entry)
        else:
            self._by_topic[topic] = (*self._by_topic.get(topic, ()), entry)
        return entry

    def remove(self, entry: Entry, topic: str | None = None) -> None:
        """Ask a validator no longer; nothing happens if it was removed before."""
        if topic is None:
            self._general = _without(entry, self._general)
        elif topic in self._by_topic:
            left = _without(entry, self._by_topic[topic])
            if left:
                self._by_topic[topic] = left
            else:
                del self._by_topic[topic]

    def decode(self, data: bytes) -> WakuMessage | Refusal:
        """The message in `data`, unless it is too large or none (Message Size, Decoding failure)."""
        if len(data) > self._max_size:
            return self.too_large(len(data))
        try:
            return decode_message(data)
        except DecodeError as error:
            return Refusal(Verdict.REJECT, "undecodable", str(error))

    def too_large(self, size: int) -> Refusal:
        """The refusal of a message of `size` encoded bytes."""
        return Refusal(
            Verdict.REJECT, "size", f"a message has at most {self._max_size} bytes when encoded, not {size}"
        )

    def fits(self, size: int) -> bool:
        """May an encoded message be as large?"""
        return size <= self._max_size

    def judge(self, topic: str, message: WakuMessage, peer: PeerId, now: float) -> Refusal | Pending | None:
        """None if the message passes, why it does not, or that a validator has to be waited for."""
        if self._has_rules:
            refusal = self._rules(topic, message, now)
            if refusal is not None:
                return refusal
        if self._general or self._by_topic:
            return self._ask(topic, message, peer, self._general + self._by_topic.get(topic, ()), 0)
        return None

    async def settle(self, pending: Pending) -> Refusal | None:
        """Wait for a validation to end: None if the message passes. A validator out of time means IGNORE."""
        with trio.move_on_after(self._timeout_s):
            return await self._settle(pending)
        self._counters.validator_timeouts += 1
        return Refusal(Verdict.IGNORE, "validator-timeout", "a validator took too long")

    async def _settle(self, pending: Pending) -> Refusal | None:
        while True:
            topic, message, peer, answer, validators, position = pending
            try:
                verdict: object = await answer
            except Exception as error:
                return self._failed(validators[position], error)
            refusal = self._refusal(validators[position], verdict)
            if refusal is not None:
                return refusal
            further = self._ask(topic, message, peer, validators, position + 1)
            if not isinstance(further, Pending):
                return further
            pending = further

    def _ask(
        self, topic: str, message: WakuMessage, peer: PeerId, validators: tuple[Entry, ...], start: int
    ) -> Refusal | Pending | None:
        for position in range(start, len(validators)):
            entry = validators[position]
            try:
                verdict = entry.validator(topic, message, peer)
            except Exception as error:
                return self._failed(entry, error)
            if verdict is Verdict.ACCEPT:
                continue
            if isinstance(verdict, Awaitable):
                return Pending(topic, message, peer, verdict, validators, position)
            return self._refusal(entry, verdict)
        return None

    def _refusal(self, entry: Entry, verdict: object) -> Refusal | None:
        if verdict is Verdict.ACCEPT:
            return None
        if isinstance(verdict, Verdict):
            return Refusal(verdict, "validator", "a validator refused the message")
        return self._failed(entry, TypeError(f"a validator returns a Verdict, not {type(verdict).__name__}"))

    def _failed(self, entry: Entry, error: Exception) -> Refusal:
        self._counters.validator_errors += 1
        entry.failures.log(logger, "validator", error)
        return _VALIDATOR_ERROR

    def _rules(self, topic: str, message: WakuMessage, now: float) -> Refusal | None:
        if self._window_ns is not None:
            # An absent timestamp is to be interpreted as 0 (14/WAKU2-MESSAGE), which is far in the past.
            deviation = abs((message.timestamp_ns or 0) - self._clock())
            if deviation > self._window_ns:
                return Refusal(
                    Verdict.REJECT,
                    "timestamp",
                    f"the timestamp is {deviation / 1e9:.1f} s away from the time here; "
                    f"{self._window_ns / 1e9:g} s are allowed",
                )
        if (
            self._bandwidth is not None
            and message.rate_limit_proof is None
            and not self._bandwidth.has_room(topic, now)
        ):
            return Refusal(
                Verdict.IGNORE, "bandwidth", f"{topic} carries all that it may without rate limit proofs"
            )
        return None


def _without(entry: Entry, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """All entries but this very one: the same validator may have been added twice."""
    return tuple([other for other in entries if other is not entry])


def _with_proof(validator: Validator) -> Validator:
    def judge(topic: str, message: WakuMessage, peer: PeerId) -> Verdict | Awaitable[Verdict]:
        return Verdict.ACCEPT if message.rate_limit_proof is None else validator(topic, message, peer)

    return judge
