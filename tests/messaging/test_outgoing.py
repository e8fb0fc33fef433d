"""What is sent when (MESSAGING-API, Retry and Request prioritization; RELIABILITY-RELAY), rule by rule."""

from __future__ import annotations

import math
import time

import pytest

from pywaku.errors import InvalidInput, LimitExceeded
from pywaku.messaging.attempts import Progress, SendPolicy, Step, Verdict
from pywaku.messaging.outgoing import Outgoing

A, B = "/waku/2/rs/42/0", "/waku/2/rs/42/1"


def outgoing(policy: SendPolicy | None = None, *, allowed: tuple[str, ...] = (A,)) -> Outgoing:
    """A machine that may send on these topics."""
    machine = Outgoing(policy)
    machine.allow(allowed, 0.0)
    return machine


def submit(machine: Outgoing, *names: str, topic: str = A, confirm: bool = False) -> None:
    """Requests, each of a message of its own."""
    for name in names:
        machine.submit(name, name.encode(), topic, confirm=confirm)


def taken(machine: Outgoing, now: float) -> list[str]:
    """The requests of all attempts that may be made now, in order."""
    found: list[str] = []
    while (attempt := machine.take(now)) is not None:
        found.append(attempt.request_id)
    return found


def steps(progress: list[Progress]) -> list[tuple[str, Step]]:
    """Who has made which step."""
    return [(each.request_id, each.step) for each in progress]


def fail(machine: Outgoing, name: str, now: float) -> list[Progress]:
    """An attempt that nobody took."""
    return machine.settled(name, Verdict.FAILED, now, "timed out")


def look(machine: Outgoing, now: float, *, answers: bool = True) -> list[bytes]:
    """What is looked for now; stores answer that they lack it, or not at all."""
    hashes = [each for hashes in machine.checks(now).values() for each in hashes]
    machine.checked(hashes, hashes if answers else (), now)
    return hashes


# Retry


def test_three_retries_follow_the_first_attempt_after_1_2_and_4_seconds() -> None:
    machine = outgoing()
    submit(machine, "a")
    now = 100.0
    assert taken(machine, now) == ["a"]
    for interval in (1.0, 2.0, 4.0):
        assert steps(fail(machine, "a", now)) == [("a", Step.RETRYING)]
        assert taken(machine, now + interval - 0.001) == []
        assert machine.next_tick(now) == now + interval
        now += interval
        assert taken(machine, now) == ["a"]
    [end] = fail(machine, "a", now)
    assert (end.step, end.attempts, end.error) == (Step.FAILED, 4, "timed out")
    assert machine.pending == ()
    assert taken(machine, now + 1000) == []
    assert machine.next_tick(now) == math.inf


@pytest.mark.parametrize("failures", range(4))
def test_a_retry_that_is_taken_ends_the_request(failures: int) -> None:
    machine = outgoing()
    submit(machine, "a")
    now = 0.0
    for interval in (1.0, 2.0, 4.0)[:failures]:
        taken(machine, now)
        fail(machine, "a", now)
        now += interval
    assert taken(machine, now) == ["a"]
    [end] = machine.settled("a", Verdict.TAKEN, now)
    assert (end.step, end.attempts, end.propagated, end.error) == (Step.SENT, failures + 1, True, None)
    assert len(machine) == 0


def test_the_decision_to_retry_is_based_on_what_the_remote_peer_said() -> None:
    machine = outgoing()
    submit(machine, "taken", "failed", "refused")
    assert taken(machine, 0) == ["taken", "failed", "refused"]
    assert steps(machine.settled("taken", Verdict.TAKEN, 0)) == [("taken", Step.SENT)]
    assert steps(machine.settled("failed", Verdict.FAILED, 0)) == [("failed", Step.RETRYING)]
    [end] = machine.settled("refused", Verdict.REFUSED, 0, "413 too large")
    assert (end.step, end.error) == (Step.FAILED, "413 too large")
    assert machine.pending == ("failed",)


def test_nothing_is_sent_before_the_health_is_known() -> None:
    machine = Outgoing()
    submit(machine, "a")
    assert taken(machine, 0) == []
    assert machine.pending == ("a",)
    machine.allow([A], 1.0)
    assert taken(machine, 1.0) == ["a"]


def test_retries_do_not_continue_while_unhealthy_and_resume_on_recovery() -> None:
    machine = outgoing()
    submit(machine, "a")
    taken(machine, 0)
    fail(machine, "a", 0)
    machine.allow([], 0.5)
    submit(machine, "b")
    assert taken(machine, 1000) == []
    assert machine.pending == ("a", "b")
    machine.allow([A], 1000)
    assert taken(machine, 1000) == ["b", "a"]


def test_an_attempt_that_fails_while_unhealthy_does_not_count() -> None:
    machine = outgoing()
    submit(machine, "a")
    for outage in range(10):
        now = 100.0 * outage
        machine.allow([A], now)
        assert taken(machine, now) == ["a"]
        machine.allow([], now + 1)
        assert fail(machine, "a", now + 1) == []
    machine.allow([A], 2000)
    attempt = machine.take(2000)
    assert attempt is not None
    assert attempt.number == 1
    for interval in (1.0, 2.0, 4.0):
        assert steps(fail(machine, "a", 3000)) == [("a", Step.RETRYING)]
        assert taken(machine, 3000 + interval) == ["a"]
    assert steps(fail(machine, "a", 3000)) == [("a", Step.FAILED)]


def test_one_topic_that_is_unhealthy_does_not_hold_up_another() -> None:
    machine = outgoing(allowed=(B,))
    submit(machine, "a1", "a2")
    submit(machine, "b1", topic=B)
    assert taken(machine, 0) == ["b1"]
    machine.allow([A], 1)
    submit(machine, "a3")
    assert taken(machine, 1) == ["a1", "a2", "a3"]


# Request prioritization


def test_fresh_requests_are_served_in_the_order_of_submission() -> None:
    machine = outgoing()
    submit(machine, *"abcd")
    assert taken(machine, 0) == ["a", "b", "c", "d"]


def test_fresh_requests_come_before_retries() -> None:
    machine = outgoing()
    submit(machine, "old")
    taken(machine, 0)
    fail(machine, "old", 0)
    submit(machine, "new", "newer")
    assert taken(machine, 1) == ["new", "newer", "old"]


def test_of_retries_the_one_scheduled_last_comes_first() -> None:
    machine = outgoing()
    submit(machine, *"abc")
    taken(machine, 0)
    for name, now in (("b", 0.1), ("c", 0.2), ("a", 0.3)):
        fail(machine, name, now)
    assert taken(machine, 2) == ["a", "c", "b"]


def test_order_survives_an_outage_on_several_topics() -> None:
    machine = outgoing(allowed=())
    for number in range(6):
        submit(machine, f"{number}", topic=A if number % 2 else B)
    assert taken(machine, 0) == []
    submit(machine, "last")
    machine.allow([B], 1)
    machine.allow([A, B], 1)
    assert taken(machine, 1) == ["0", "1", "2", "3", "4", "5", "last"]


def test_no_more_attempts_at_a_time_than_the_policy_says() -> None:
    machine = outgoing(SendPolicy(concurrency=2))
    submit(machine, *"abc")
    assert taken(machine, 0) == ["a", "b"]
    assert machine.sending == 2
    machine.settled("b", Verdict.TAKEN, 0)
    assert taken(machine, 0) == ["c"]


# Pending, cancel, limits


def test_pending_requests_are_those_that_have_not_succeeded_each_once() -> None:
    machine = outgoing()
    submit(machine, "fresh", "retrying", "sending", "sent", "failed", "cancelled")
    machine.cancel("cancelled")
    for name in ("fresh", "retrying", "sending", "sent", "failed"):
        attempt = machine.take(0)
        assert attempt is not None
        assert attempt.request_id == name
    machine.settled("sent", Verdict.TAKEN, 0)
    machine.settled("failed", Verdict.REFUSED, 0)
    fail(machine, "retrying", 0)
    assert machine.pending == ("fresh", "retrying", "sending")
    with pytest.raises(InvalidInput, match="fresh already"):
        submit(machine, "fresh")


@pytest.mark.parametrize("when", ["fresh", "sending", "waiting", "ready", "held", "unconfirmed"])
def test_a_request_can_be_cancelled_at_any_time_until_it_is_fulfilled(when: str) -> None:
    machine = outgoing()
    submit(machine, "a", confirm=True)
    if when == "held":
        machine.allow([], 0)
    if when != "fresh":
        machine.take(0)
    if when in ("waiting", "ready"):
        fail(machine, "a", 0)
    if when == "ready":
        machine.tick(1)
    if when == "unconfirmed":
        machine.settled("a", Verdict.TAKEN, 0)
    [end] = machine.cancel("a")
    assert (end.step, end.error) == (Step.CANCELLED, "cancelled")
    if when == "sending":
        assert fail(machine, "a", 0) == []
    machine.allow([A], 20)
    assert (machine.pending, taken(machine, 20), machine.tick(20), machine.checks(20)) == ((), [], [], {})
    assert (machine.untried, machine.sending) == (0, 0)
    assert machine.cancel("a") == []


def test_cancel_is_ignored_for_what_is_fulfilled_or_unknown() -> None:
    machine = outgoing()
    submit(machine, "sent", "failed")
    taken(machine, 0)
    machine.settled("sent", Verdict.TAKEN, 0)
    machine.settled("failed", Verdict.REFUSED, 0)
    for name in ("sent", "failed", "unknown", ""):
        assert machine.cancel(name) == []


def test_more_than_max_pending_are_refused_and_finished_ones_do_not_count() -> None:
    machine = outgoing(SendPolicy(max_pending=2))
    submit(machine, "a", "b")
    with pytest.raises(LimitExceeded, match="2 messages wait"):
        submit(machine, "c")
    machine.cancel("a")
    submit(machine, "c")
    assert machine.pending == ("b", "c")


def test_what_an_earlier_life_has_left_is_taken_up_beyond_the_limit() -> None:
    machine = outgoing(SendPolicy(max_pending=1))
    for name in "abc":
        machine.submit(name, name.encode(), A, attempts=4, resumed=True)
    assert machine.pending == ("a", "b", "c")
    assert machine.untried == 0
    attempt = machine.take(0)
    assert attempt is not None
    assert attempt.number == 5
    with pytest.raises(LimitExceeded):
        submit(machine, "d")


# Confirmation (RELIABILITY-RELAY, Query with Message Hash)


def test_a_message_is_looked_for_after_3_seconds_and_again_every_3() -> None:
    machine = outgoing()
    submit(machine, "a", confirm=True)
    taken(machine, 0)
    assert steps(machine.settled("a", Verdict.TAKEN, 0)) == [("a", Step.PROPAGATED)]
    assert machine.checks(2.99) == {}
    assert machine.next_tick(0) == 3.0
    for now in (3.0, 6.0, 9.0):
        assert look(machine, now) == [b"a"]
        assert look(machine, now) == []
    assert machine.pending == ("a",)


def test_a_message_that_is_found_is_sent() -> None:
    machine = outgoing()
    submit(machine, "a", confirm=True)
    taken(machine, 0)
    machine.settled("a", Verdict.TAKEN, 0)
    [end] = machine.seen([b"a", b"nobody's"])
    assert (end.step, end.propagated) == (Step.SENT, True)
    assert machine.checks(3) == {}
    assert machine.tick(10) == []


def test_a_message_is_not_looked_for_again_before_the_stores_have_answered() -> None:
    machine = outgoing()
    submit(machine, "a", confirm=True)
    taken(machine, 0)
    machine.settled("a", Verdict.TAKEN, 0)
    assert machine.checks(3) == {A: [b"a"]}
    assert machine.checks(8) == {}
    machine.checked([b"a"], (), 8)
    assert machine.checks(10.9) == {}
    assert machine.checks(11) == {A: [b"a"]}


@pytest.mark.parametrize("answers", [True, False])
def test_a_message_that_is_not_found_is_sent_again_after_10_seconds_and_given_up_in_the_end(
    answers: bool,
) -> None:
    machine = outgoing()
    last: Progress | None = None
    wait = 10.0 if answers else 60.0  # without any answer nothing is known
    submit(machine, "a", confirm=True)
    now = 0.0
    for resends in range(4):
        attempt = machine.take(now)
        assert attempt is not None
        assert (attempt.number, attempt.resend) == (resends + 1, resends > 0)
        machine.settled("a", Verdict.TAKEN, now)
        for later in range(3, int(wait), 3):
            assert look(machine, now + later, answers=answers) == [b"a"]
            assert machine.tick(now + later) == []
        assert machine.tick(now + wait - 0.01) == []
        now += wait
        [step] = machine.tick(now)
        last = step
    assert last is not None
    assert (last.step, last.attempts, last.propagated) == (Step.FAILED, 4, True)
    error = "no store has it" if answers else "no store answered"
    assert last.error == f"peers took it, but {error}"
    assert machine.pending == ()


@pytest.mark.parametrize("late", [10.0, 10.5])
def test_a_message_that_a_store_lacks_by_a_late_answer_is_sent_again_once(late: float) -> None:
    machine = outgoing()
    submit(machine, "a", confirm=True)
    taken(machine, 0)
    machine.settled("a", Verdict.TAKEN, 0)
    machine.checks(3)
    machine.checked([b"a"], [b"a"], late)  # before anybody has looked at the time
    assert steps(machine.tick(late)) == [("a", Step.RESENDING)]
    assert machine.tick(late) == []
    assert taken(machine, late) == ["a"]


def test_hashes_are_grouped_by_pubsub_topic() -> None:
    machine = outgoing(allowed=(A, B))
    submit(machine, "a1", "a2", confirm=True)
    submit(machine, "b1", topic=B, confirm=True)
    for name in taken(machine, 0):
        machine.settled(name, Verdict.TAKEN, 0)
    assert machine.checks(3) == {A: [b"a1", b"a2"], B: [b"b1"]}


def test_stores_are_asked_for_many_messages_at_once() -> None:
    machine = outgoing(SendPolicy(concurrency=1000))
    submit(machine, *(f"{number}" for number in range(1000)), confirm=True)
    for number, name in enumerate(taken(machine, 0)):
        machine.settled(name, Verdict.TAKEN, number / 1000)
    asked: list[tuple[float, int]] = []
    now = 1.0
    while now < 4.0:
        if due := look(machine, now):
            asked.append((now, len(due)))
        machine.tick(now)
        now = machine.next_tick(now)
    assert asked == [(3.0, 1), (3.5, 500), (4.0, 499)][: len(asked)]
    assert len(asked) >= 2


def test_a_message_seen_while_it_waits_to_be_sent_again_is_sent() -> None:
    machine = outgoing()
    submit(machine, "a", confirm=True)
    taken(machine, 0)
    fail(machine, "a", 0)
    assert steps(machine.seen([b"a"])) == [("a", Step.SENT)]
    assert taken(machine, 1) == []


@pytest.mark.parametrize("verdict", Verdict)
def test_a_message_seen_during_an_attempt_is_sent_whatever_the_attempt_comes_to(verdict: Verdict) -> None:
    machine = outgoing()
    submit(machine, "a", confirm=True)
    taken(machine, 0)
    assert machine.seen([b"a"]) == []
    assert machine.pending == ("a",)
    assert steps(machine.settled("a", verdict, 1)) == [("a", Step.SENT)]


def test_while_unhealthy_nothing_is_confirmed_or_sent_again_and_then_it_begins_anew() -> None:
    machine = outgoing()
    submit(machine, "a", confirm=True)
    taken(machine, 0)
    machine.settled("a", Verdict.TAKEN, 0)
    machine.allow([], 1)
    assert machine.checks(100) == {}
    assert machine.tick(100) == []
    machine.allow([A], 100)
    assert look(machine, 102.9) == []
    assert look(machine, 103) == [b"a"]
    assert machine.tick(109.9) == []
    assert steps(machine.tick(110)) == [("a", Step.RESENDING)]


def test_of_what_stores_would_not_keep_others_have_to_be_heard_or_it_is_an_error() -> None:
    machine = outgoing()
    submit(machine, "heard", "unheard", confirm=True)
    assert taken(machine, 0) == ["heard", "unheard"]
    for name in ("heard", "unheard"):
        assert steps(machine.settled(name, Verdict.TAKEN, 0, storable=False)) == [(name, Step.PROPAGATED)]
    assert steps(machine.seen([b"heard"])) == [("heard", Step.SENT)]
    assert machine.checks(9) == {}
    assert machine.tick(9.9) == []
    assert steps(machine.tick(10)) == [("unheard", Step.FAILED)]
    assert machine.pending == ()


def test_what_was_taken_before_is_looked_for_though_stores_would_not_keep_it_now() -> None:
    machine = outgoing()
    submit(machine, "lost", confirm=True)
    assert taken(machine, 0) == ["lost"]
    machine.settled("lost", Verdict.TAKEN, 0)
    look(machine, 3)
    machine.tick(10)
    assert taken(machine, 10) == ["lost"]
    assert steps(machine.settled("lost", Verdict.TAKEN, 10, storable=False)) == [("lost", Step.PROPAGATED)]


def test_a_resend_that_fails_has_retries_of_its_own() -> None:
    machine = outgoing()
    submit(machine, "a", confirm=True)
    taken(machine, 0)
    machine.settled("a", Verdict.TAKEN, 0)
    look(machine, 3)
    machine.tick(10)
    now = 10.0
    for interval in (1.0, 2.0, 4.0):
        assert taken(machine, now) == ["a"]
        assert steps(fail(machine, "a", now)) == [("a", Step.RETRYING)]
        now += interval
    assert taken(machine, now) == ["a"]
    assert steps(fail(machine, "a", now)) == [("a", Step.FAILED)]


def test_two_requests_of_the_same_message_are_both_confirmed() -> None:
    machine = outgoing()
    machine.submit("one", b"hash", A, confirm=True)
    machine.submit("two", b"hash", A, confirm=True)
    for name in taken(machine, 0):
        machine.settled(name, Verdict.TAKEN, 0)
    assert steps(machine.seen([b"hash"])) == [("one", Step.SENT), ("two", Step.SENT)]
    assert not machine.awaits(b"hash")


# Cost


def test_the_clock_is_not_asked_for_before_something_is_due_even_if_all_hands_are_busy() -> None:
    machine = outgoing(SendPolicy(concurrency=1))
    submit(machine, "waits", "busy")
    taken(machine, 0)
    fail(machine, "waits", 0)
    assert taken(machine, 0) == ["busy"]
    machine.tick(1)
    assert machine.next_tick(1) == math.inf  # its turn is when a hand is free
    machine.settled("busy", Verdict.TAKEN, 2)
    assert taken(machine, 2) == ["waits"]


def test_what_is_submitted_and_cancelled_while_all_hands_are_busy_leaves_nothing() -> None:
    machine = outgoing(SendPolicy(concurrency=1))
    submit(machine, "busy")
    taken(machine, 0)
    for number in range(10_000):
        submit(machine, f"{number}")
        machine.cancel(f"{number}")
    assert machine.pending == ("busy",)
    assert len(machine._fresh) == 0


@pytest.mark.parametrize("way", ["sent", "cancelled newest first", "outages", "retries"])
def test_the_cost_of_a_request_does_not_grow_with_those_that_are_pending(way: str) -> None:
    def seconds(count: int) -> float:
        machine = outgoing(SendPolicy(max_pending=count, concurrency=64))
        names = [f"{number}" for number in range(count)]
        start = time.thread_time()
        submit(machine, *names)
        match way:
            case "sent":
                while (attempt := machine.take(0)) is not None:
                    machine.settled(attempt.request_id, Verdict.TAKEN, 0)
            case "cancelled newest first":
                for name in reversed(names):
                    machine.cancel(name)
            case "outages":
                for round in range(5):
                    machine.allow([], round)
                    while machine.take(round) is not None:
                        raise AssertionError("nothing may be sent")
                    machine.allow([A], round)
            case _:
                for round in range(5):
                    while (attempt := machine.take(10 * round)) is not None:
                        fail(machine, attempt.request_id, 10 * round)
        return (time.thread_time() - start) / count

    small, large = (min(seconds(count) for _ in range(3)) for count in (1_000, 10_000))
    assert large < 4 * small + 1e-6


def test_a_policy_that_cannot_be_meant_is_refused() -> None:
    for policy, what in (
        ({"retry_intervals_s": (1.0, 0.0)}, "retry_intervals_s"),
        ({"check_after_s": 11.0}, "check_after_s"),
        ({"check_together_s": 0.0}, "check_together_s"),
        ({"answer_within_s": 9.0}, "answer_within_s"),
        ({"max_resends": -1}, "max_resends"),
        ({"max_pending": 0}, "max_pending"),
        ({"concurrency": 0}, "concurrency"),
    ):
        with pytest.raises(InvalidInput, match=what):
            SendPolicy(**policy)  # pyright: ignore[reportArgumentType]
