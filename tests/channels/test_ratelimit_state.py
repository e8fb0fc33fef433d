"""What a rate limiter keeps: through restarts, jumping clocks, changing limits and a full queue."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pywaku.channels.ratelimit import RateLimiter
from pywaku.channels.ratequeue import Kind, RateQueue, Transmission
from pywaku.channels.ratevalues import Charges, Dropped, NodeLimit, RateLimitConfig, RateStep, Reason
from pywaku.errors import InvalidInput
from tests.support.rates import EPHEMERAL, MESSAGE, RETRY, SEGMENT, START, ask, fill, names, on, why

# Restarts and clocks


def test_charges_survive_a_restart() -> None:
    limiter = RateLimiter(on(3))
    charges = None
    for number in range(3):
        charges = ask(limiter, f"{number}").charges
        limiter = RateLimiter(on(3), charges)
    assert charges == Charges(600, ((int(START // 600), 3),), START)
    assert why(ask(limiter, "3")) == [Reason.RATE_LIMIT_REACHED]
    assert names(limiter.tick(START + 600)) == ["3"]


def test_charges_come_with_whatever_is_sent_and_only_then() -> None:
    limiter = RateLimiter(on(2))
    assert ask(limiter, "0").charges is not None
    assert ask(limiter, "1").charges is not None
    assert ask(limiter, "2").charges is None
    assert limiter.tick(START + 1).charges is None
    assert limiter.tick(START + 600).charges is not None


def test_a_clock_that_goes_back_into_an_epoch_finds_what_was_sent_in_it() -> None:
    limiter = RateLimiter(on(2))
    fill(limiter, 2)
    fill(limiter, 1, START + 600)
    assert why(ask(limiter, "again", now=START + 599)) == [Reason.RATE_LIMIT_REACHED]
    assert limiter.next_tick(START + 599) == START + 600
    assert names(limiter.tick(START + 600)) == ["again"]
    assert limiter.usage(START + 600).used == 2


def test_a_clock_that_was_far_ahead_for_a_while_blocks_nothing() -> None:
    limiter = RateLimiter(on(2, space_evenly=True))
    ask(limiter, "in a distant future", now=START + 1e9)
    assert ask(limiter, "now", now=START).delayed[0].until == START + 300  # an interval from now
    assert names(limiter.tick(START + 300)) == ["now"]


def test_a_clock_that_jumps_ahead_is_another_epoch() -> None:
    limiter = RateLimiter(on(1))
    fill(limiter, 1)
    ask(limiter, "waits")
    assert names(limiter.tick(START + 1e6)) == ["waits"]


def test_epochs_that_are_remembered_are_bounded() -> None:
    limiter = RateLimiter(on(1))
    step = None
    for number in range(100):
        step = ask(limiter, f"{number}", now=START + 600 * number)
    assert step is not None
    assert step.charges is not None
    assert len(step.charges.epochs) == 16
    assert step.charges.epochs[-1] == (int(START // 600) + 99, 1)


def test_of_the_epochs_that_are_remembered_the_one_sent_in_last_stays() -> None:
    limiter = RateLimiter(on(5))
    for number in (*range(16), 0, 16):
        fill(limiter, 1, START + 600 * number)
    assert limiter.usage(START).used == 2
    assert limiter.usage(START + 600).used == 0


# The node's limit


def test_a_limit_that_the_node_provides_holds_also_where_none_is_configured() -> None:
    limiter = RateLimiter()
    assert limiter.node_limit_changed(NodeLimit(2, 600), START) == RateStep([], [], [], None)
    assert [len(ask(limiter, f"{number}").send) for number in range(4)] == [1, 1, 0, 0]
    assert names(limiter.node_limit_changed(None, START)) == ["2", "3"]


def test_the_lower_of_two_limits_over_the_same_epoch_holds() -> None:
    limiter = RateLimiter(on(5))
    limiter.node_limit_changed(NodeLimit(20, 600), START)
    assert limiter.limit == 5
    limiter.node_limit_changed(NodeLimit(3, 600), START)
    assert limiter.limit == 3
    limiter.node_limit_changed(NodeLimit(20, 60), START)
    assert limiter.limit == 20


def test_what_the_node_has_used_otherwise_counts() -> None:
    limiter = RateLimiter()
    step = limiter.node_limit_changed(NodeLimit(10, 600, used=9), START)
    assert step.charges == Charges(600, ((int(START // 600), 9),), None)
    assert len(ask(limiter, "a").send) == 1
    assert why(ask(limiter, "b")) == [Reason.RATE_LIMIT_REACHED]
    limiter.node_limit_changed(NodeLimit(10, 600, used=3), START)  # ours is the higher count
    assert limiter.usage(START).used == 10


def test_another_length_of_epochs_keeps_what_was_sent_in_those_that_overlap() -> None:
    limiter = RateLimiter(on(50))
    fill(limiter, 4, START)
    fill(limiter, 3, START + 600)
    limiter.node_limit_changed(NodeLimit(50, 60), START + 610)
    assert limiter.usage(START + 610) == (50, 3, 0, START + 660)
    limiter.node_limit_changed(None, START + 610)
    assert limiter.usage(START + 610) == (50, 3, 0, START + 1200)
    restarted = RateLimiter(on(50, epoch_period_sec=1200), Charges(600, ((int(START // 600), 4),), None))
    assert restarted.usage(START).used == 4


def test_a_membership_that_allows_nothing_sends_nothing() -> None:
    limiter = RateLimiter(on(5, space_evenly=True))
    limiter.node_limit_changed(NodeLimit(0, 600), START)
    assert why(ask(limiter, "a")) == [Reason.RATE_LIMIT_REACHED]
    assert why(ask(limiter, "b", EPHEMERAL)) == [Reason.RATE_LIMIT_REACHED]
    assert limiter.next_tick(START) == START + 600
    assert limiter.tick(START + 600).send == []
    assert names(limiter.node_limit_changed(NodeLimit(1, 600), START + 600)) == ["a"]


# The queue


def test_the_queue_is_bounded_and_what_has_least_right_makes_room() -> None:
    limiter = RateLimiter(on(1, max_queued=3))
    fill(limiter, 1)
    for name in ("a1", "a2"):
        ask(limiter, name, RETRY, channel="a")
    ask(limiter, "b1", RETRY, channel="b")
    step = ask(limiter, "segment", SEGMENT)
    assert step.dropped == [Dropped(Transmission("a", "a2", RETRY), Reason.QUEUE_FULL)]
    assert [delayed.transmission.key for delayed in step.delayed] == ["segment"]
    assert why(ask(limiter, "c1", RETRY, channel="c")) == [Reason.QUEUE_FULL]
    ask(limiter, "m1")
    ask(limiter, "m2")
    assert limiter.usage(START).queued == 3
    step = ask(limiter, "m3")
    assert [dropped.transmission.key for dropped in step.dropped] == ["segment"]
    step = ask(limiter, "m4")
    assert [dropped.transmission.key for dropped in step.dropped] == ["m4"]
    assert limiter.counters.queue_full == 6


def test_a_full_queue_of_retries_does_not_hinder_what_still_has_room() -> None:
    limiter = RateLimiter(on(10, max_queued=1))
    fill(limiter, 9)
    ask(limiter, "retry", RETRY)
    assert names(ask(limiter, "fresh")) == ["fresh"]
    assert limiter.usage(START).queued == 1


def test_what_is_withdrawn_is_not_sent() -> None:
    limiter = RateLimiter(on(1))
    fill(limiter, 1)
    ask(limiter, "a")
    ask(limiter, "b")
    assert limiter.withdraw("room", "a")
    assert not limiter.withdraw("room", "a")
    assert not limiter.withdraw("room", "unknown")
    assert names(limiter.tick(START + 600)) == ["b"]


def test_a_closed_channel_takes_what_waits_with_it() -> None:
    limiter = RateLimiter(on(1))
    fill(limiter, 1)
    for number, kind in enumerate((MESSAGE, SEGMENT, RETRY)):
        ask(limiter, f"{number}", kind, channel="closing")
        ask(limiter, f"{number}", kind, channel="staying")
    assert limiter.withdraw_channel("closing") == 3
    assert limiter.withdraw_channel("closing") == 0
    assert limiter.usage(START).queued == 3
    assert limiter.counters.withdrawn == 3


def test_an_empty_queue_gives_nothing() -> None:
    queue = RateQueue()
    assert queue.best is None
    assert queue.displace_for(MESSAGE) is None
    with pytest.raises(IndexError):
        queue.pop()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"epoch_period_sec": 0}, "epoch_period_sec is at least 1, not 0"),
        ({"messages_per_epoch": 0}, "messages_per_epoch is at least 1"),
        ({"max_queued": -1}, "max_queued is at least 1"),
        ({"approach_threshold": 0}, "above 0 and at most 1, not 0"),
        ({"approach_threshold": 1.1}, "above 0 and at most 1, not 1.1"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        RateLimitConfig(**options)


@pytest.mark.parametrize("values", [(-1, 600, 0), (1, 0, 0), (1, 600, -1)])
def test_limits_of_the_node_that_cannot_be_meant(values: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidInput, match="not negative"):
        NodeLimit(*values)


class Limited(RuleBasedStateMachine):
    """Requests, restarts, limits that change and a clock that jumps; the shell stores charges and sends."""

    @initialize(limit=st.integers(1, 8), spaced=st.booleans(), full=st.integers(1, 12))
    def begin(self, limit: int, spaced: bool, full: int) -> None:
        self.config = on(limit, space_evenly=spaced, max_queued=full)
        self.limiter = RateLimiter(self.config)
        self.charges: Charges | None = None
        self.now = START
        self.number = 0
        self.waiting: dict[str, Kind] = {}
        self.sent: dict[int, int] = {}
        self.gone: set[str] = set()

    def take(self, step: RateStep) -> None:
        if step.charges is not None:
            self.charges = step.charges
        assert (step.charges is not None) == bool(step.send)
        rights = [transmission.kind for transmission in step.send]
        assert rights == sorted(rights)
        for delayed in step.delayed:
            assert delayed.until > self.now
            self.waiting[delayed.transmission.key] = delayed.transmission.kind
        for transmission in step.send:
            assert transmission.key not in self.gone
            self.gone.add(transmission.key)
            self.waiting.pop(transmission.key, None)
            epoch = int(self.now // 600)
            self.sent[epoch] = self.sent.get(epoch, 0) + 1
        for dropped in step.dropped:
            assert dropped.reason is Reason.QUEUE_FULL or not dropped.transmission.kind.waits
            self.gone.add(dropped.transmission.key)
            self.waiting.pop(dropped.transmission.key, None)

    @rule(kind=st.sampled_from(Kind), channel=st.sampled_from("ab"))
    def request(self, kind: Kind, channel: str) -> None:
        self.number += 1
        step = ask(self.limiter, f"{self.number}", kind, self.now, channel)
        self.take(step)
        assert f"{self.number}" in self.gone or f"{self.number}" in self.waiting

    @rule(seconds=st.sampled_from([0.5, 60.0, 300.0, 600.0, 5000.0, -0.5, -600.0]))
    def clock(self, seconds: float) -> None:
        self.now += seconds
        self.take(self.limiter.tick(self.now))

    @rule()
    def wake_in_time(self) -> None:
        at = self.limiter.next_tick(self.now)
        assert (at == math.inf) == (not self.waiting)
        if at < math.inf:
            assert at > self.now
            self.now = at
            self.take(self.limiter.tick(at))

    @rule()
    def restart(self) -> None:
        self.limiter = RateLimiter(self.config, self.charges)
        self.waiting.clear()

    @invariant()
    def no_epoch_has_too_many(self) -> None:
        assert all(count <= self.config.messages_per_epoch for count in self.sent.values())

    @invariant()
    def the_queue_is_what_was_delayed(self) -> None:
        assert self.limiter.usage(self.now).queued == len(self.waiting) <= self.config.max_queued

    def teardown(self) -> None:
        """Given time, everything that waits is sent."""
        for _ in range(200):
            at = self.limiter.next_tick(self.now)
            if at == math.inf:
                break
            self.now = at
            self.take(self.limiter.tick(at))
        assert not self.waiting


TestLimited = Limited.TestCase
