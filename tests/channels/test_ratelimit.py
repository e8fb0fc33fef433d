"""RELIABLE-CHANNEL-API, Rate Limit Manager and Rate limiting; its first edition, Rate limit management."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.channels.ratelimit import RateLimiter
from pywaku.channels.ratequeue import Kind, Transmission
from pywaku.channels.ratevalues import Dropped, RateLimitConfig, RateStep, Reason
from tests.support.rates import EPHEMERAL, MESSAGE, RETRY, SEGMENT, START, SYNC, ask, fill, names, on, why


def test_defaults_are_those_of_the_specifications() -> None:
    config = RateLimitConfig()
    assert config.enabled is False
    assert config.epoch_period_sec == 600
    assert config.messages_per_epoch == 100  # 64/WAKU2-NETWORK, rlnRelayUserMessageLimit
    assert config.approach_threshold == 0.9


def test_when_it_is_not_enabled_everything_goes_and_nothing_is_charged() -> None:
    limiter = RateLimiter()
    for number in range(1000):
        step = ask(limiter, f"{number}", random.Random(number).choice(list(Kind)))
        assert (len(step.send), step.charges) == (1, None)
    assert limiter.usage(START) == (None, 0, 0, START + 600)
    assert limiter.next_tick(START) == math.inf


def test_when_the_limit_is_reached_dispatch_must_be_delayed_until_the_next_epoch() -> None:
    limiter = RateLimiter(on(10))
    fill(limiter, 10, START + 1)
    step = ask(limiter, "late", SEGMENT, START + 2)
    assert step.send == []
    assert why(step) == [Reason.RATE_LIMIT_REACHED]
    assert step.delayed[0].until == START + 600 == limiter.next_tick(START + 2)
    assert limiter.tick(START + 599.9).send == []
    assert names(limiter.tick(START + 600)) == ["late"]


def test_tracks_how_many_messages_have_been_sent_in_the_current_epoch() -> None:
    limiter = RateLimiter(on(10))
    fill(limiter, 7)
    assert limiter.usage(START + 599) == (10, 7, 0, START + 600)
    assert limiter.usage(START + 600) == (10, 0, 0, START + 1200)


def test_the_epoch_size_must_match_the_configured_one() -> None:
    limiter = RateLimiter(on(1, epoch_period_sec=7))
    epoch = START // 7
    assert names(ask(limiter, "a", now=START)) == ["a"]
    assert ask(limiter, "b", now=START).delayed[0].until == (epoch + 1) * 7


@given(st.data())
def test_must_not_send_at_a_rate_that_violates_the_limit_of_any_epoch(draw: st.DataObject) -> None:
    limit = draw.draw(st.integers(1, 5), "limit")
    limiter = RateLimiter(on(limit, space_evenly=draw.draw(st.booleans(), "spaced")))
    sent: dict[int, int] = {}
    now = START
    for number in range(draw.draw(st.integers(1, 60), "calls")):
        now += draw.draw(st.sampled_from([0.0, 0.0, 1.0, 130.0, 599.0, 700.0, -1.0, -601.0]), "passing")
        kind = draw.draw(st.sampled_from([None, *Kind]), "kind")
        step = limiter.tick(now) if kind is None else ask(limiter, f"{number}", kind, now)
        sent[int(now // 600)] = sent.get(int(now // 600), 0) + len(step.send)
    assert all(count <= limit for count in sent.values())


def test_each_segment_counts_toward_the_rate_limit_independently() -> None:
    limiter = RateLimiter(on(3))
    steps = [ask(limiter, f"id:{number}", SEGMENT) for number in range(1, 6)]
    assert [len(step.send) for step in steps] == [1, 1, 1, 0, 0]


def test_large_messages_may_take_multiple_epochs_to_send_completely() -> None:
    limiter = RateLimiter(on(4))
    for number in range(1, 11):
        ask(limiter, f"id:{number}", SEGMENT)
    now, sent = START, [4]
    while (now := limiter.next_tick(now)) < math.inf:
        sent.append(len(limiter.tick(now).send))
    assert sent == [4, 4, 2]


# Who goes first


def test_regular_messages_segments_and_retries_have_right_in_this_order() -> None:
    limiter = RateLimiter(on(8))
    fill(limiter, 8)
    for kind in (RETRY, SEGMENT, MESSAGE, RETRY, SEGMENT, MESSAGE):
        ask(limiter, f"{kind.name} {len(limiter.tick(START).send)} {limiter.usage(START).queued}", kind)
    sent = names(limiter.tick(START + 600))
    assert [name.split()[0] for name in sent] == [
        "MESSAGE",
        "MESSAGE",
        "SEGMENT",
        "SEGMENT",
        "RETRY",
        "RETRY",
    ]


def test_within_a_kind_and_channel_the_order_is_kept() -> None:
    limiter = RateLimiter(on(5))
    fill(limiter, 5)
    for number in range(5):
        ask(limiter, f"{number}", SEGMENT)
    assert names(limiter.tick(START + 600)) == ["0", "1", "2", "3", "4"]


def test_channels_share_the_limit_and_take_turns() -> None:
    limiter = RateLimiter(on(6))
    fill(limiter, 6)
    for number in range(20):
        ask(limiter, f"a{number}", SEGMENT, channel="a")
    for number in range(3):
        ask(limiter, f"b{number}", SEGMENT, channel="b")
    assert names(limiter.tick(START + 600)) == ["a0", "b0", "a1", "b1", "a2", "b2"]
    assert limiter.usage(START + 600).used == 6


def test_keys_of_different_channels_do_not_clash() -> None:
    limiter = RateLimiter(on(1))
    fill(limiter, 1)
    assert len(ask(limiter, "id:1", channel="a").delayed) == 1
    assert len(ask(limiter, "id:1", channel="b").delayed) == 1
    assert limiter.usage(START).queued == 2


def test_retries_should_be_queued_when_the_rate_limit_is_approached() -> None:
    limiter = RateLimiter(on(10))
    fill(limiter, 8)
    assert names(ask(limiter, "retry 1", RETRY)) == ["retry 1"]
    step = ask(limiter, "retry 2", RETRY)
    assert why(step) == [Reason.RATE_LIMIT_APPROACHED]
    assert step.delayed[0].until == START + 600
    assert names(ask(limiter, "fresh")) == ["fresh"]  # while fresh ones still have room
    assert names(limiter.tick(START + 600)) == ["retry 2"]


def test_a_retry_of_what_has_not_been_sent_once_does_not_send_it_twice() -> None:
    limiter = RateLimiter(on(1))
    fill(limiter, 1)
    ask(limiter, "id:1")
    assert ask(limiter, "id:1", RETRY) == RateStep([], [], [], None)
    assert names(limiter.tick(START + 600)) == ["id:1"]
    assert limiter.counters.repeated == 1
    assert limiter.next_tick(START + 600) == math.inf


# What does not wait


@pytest.mark.parametrize("kind", [EPHEMERAL, SYNC])
def test_ephemeral_messages_should_be_dropped_when_the_rate_limit_is_approached_or_reached(
    kind: Kind,
) -> None:
    limiter = RateLimiter(on(10))
    fill(limiter, 8)
    assert names(ask(limiter, "just in time", kind)) == ["just in time"]
    step = ask(limiter, "too late", kind)
    assert step.dropped == [Dropped(Transmission("room", "too late", kind), Reason.RATE_LIMIT_APPROACHED)]
    assert (step.send, step.delayed, step.charges) == ([], [], None)
    fill(limiter, 1)
    assert why(ask(limiter, "later still", kind)) == [Reason.RATE_LIMIT_REACHED]
    assert limiter.tick(START + 600).send == []  # neither sent nor queued
    counters = limiter.counters
    assert (counters.ephemeral_dropped, counters.sync_dropped) == ((2, 0) if kind is EPHEMERAL else (0, 2))


def test_the_reasons_are_those_of_the_specification() -> None:
    assert [reason.value for reason in (Reason.RATE_LIMIT_APPROACHED, Reason.RATE_LIMIT_REACHED)] == [
        "rate_limit_approached",
        "rate_limit_reached",
    ]


@pytest.mark.parametrize(("threshold", "sent"), [(0.5, 5), (0.9, 9), (0.01, 1), (1.0, 10)])
def test_the_approached_threshold_should_be_configurable(threshold: float, sent: int) -> None:
    limiter = RateLimiter(on(10, approach_threshold=threshold))
    went = [bool(ask(limiter, f"{number}", EPHEMERAL).send) for number in range(20)]
    assert went == [True] * sent + [False] * (20 - sent)


def test_reliable_messages_are_never_blocked_by_ephemeral_traffic() -> None:
    """What waits counts as if it were sent already."""
    limiter = RateLimiter(on(10, space_evenly=True))
    for number in range(9):
        ask(limiter, f"{number}", SEGMENT)
    assert limiter.usage(START) == (10, 1, 8, START + 600)
    assert why(ask(limiter, "typing", EPHEMERAL)) == [Reason.RATE_LIMIT_APPROACHED]


def test_an_ephemeral_message_passes_what_is_only_spaced_out() -> None:
    limiter = RateLimiter(on(10, space_evenly=True))
    ask(limiter, "0")
    ask(limiter, "1")
    assert names(ask(limiter, "typing", EPHEMERAL)) == ["typing"]
    assert limiter.next_tick(START + 1) == START + 60


# Spacing


def test_spacing_spreads_messages_over_the_epoch() -> None:
    limiter = RateLimiter(on(10, space_evenly=True))
    assert names(ask(limiter, "0")) == ["0"]
    step = ask(limiter, "1")
    assert (why(step), step.delayed[0].until) == ([Reason.SPACING], START + 60)
    for number in range(2, 12):
        ask(limiter, f"{number}")
    now, times = START, [START]
    while (now := limiter.next_tick(now)) < math.inf:
        assert len(limiter.tick(now).send) == 1
        times.append(now)
    assert times == [START + 60 * number for number in range(12)]


def test_spacing_goes_on_after_a_restart() -> None:
    step = ask(RateLimiter(on(10, space_evenly=True)), "0", now=START + 5)
    limiter = RateLimiter(on(10, space_evenly=True), step.charges)
    assert ask(limiter, "1", now=START + 6).delayed[0].until == START + 65
