"""What is sent when, against a model that is too simple to be wrong: lists, searched from end to end."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pywaku.errors import LimitExceeded
from pywaku.messaging.attempts import Progress, SendPolicy, Step, Verdict
from pywaku.messaging.outgoing import Outgoing

TOPICS = ("A", "B")
POLICY = SendPolicy(max_pending=6, concurrency=2, max_resends=1)
Expected = set[tuple[str, Step]]
WHICH = st.integers(0, 25)  # mostly of those that are finished: others shall come far


@dataclass(eq=False)
class Request:
    """What the model knows of a request."""

    name: str
    hash: bytes
    topic: str
    confirm: bool
    tried: bool
    state: str = "fresh"  # fresh, sending, waiting, unconfirmed
    scheduled: int = 0  # the greater the later
    due: float = 0.0
    failures: int = 0
    resends: int = 0
    propagated: bool = False
    seen: bool = False
    taken_at: float = 0.0
    look_at: float = math.inf
    lacking: bool = False

    def look_later(self, now: float) -> None:
        """Stores are asked at full halves of seconds, 3 s from now or a little more."""
        self.look_at = math.ceil((now + 3) * 2) / 2

    def await_confirmation(self, now: float) -> None:
        """It was taken, or the network is back: from now on it is looked for."""
        self.state, self.taken_at, self.lacking = "unconfirmed", now, False
        self.look_later(now)


class OutgoingMachine(RuleBasedStateMachine):
    """Drives both, and compares all that can be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.real = Outgoing(POLICY)
        self.model: list[Request] = []  # in the order of submission
        self.allowed: frozenset[str] = frozenset()
        self.now = 0.0
        self.submitted = 0
        self.schedules = 0
        self.cancelled_while_sending: set[str] = set()  # their attempts go on

    @initialize()
    def healthy(self) -> None:
        """Most of the time."""
        self.allow(frozenset(TOPICS))

    # The model

    def find(self, name: str) -> Request | None:
        """A request that is not finished."""
        return next((request for request in self.model if request.name == name), None)

    def some(self, number: int) -> str:
        """One of the requests, or one that is finished or never was."""
        return self.model[number].name if number < len(self.model) else f"r{number - len(self.model)}"

    def schedule(self, request: Request, due: float) -> None:
        """It is to be tried (again)."""
        self.schedules += 1
        request.state, request.due, request.scheduled = "waiting", due, self.schedules

    def end(self, request: Request, step: Step) -> Expected:
        """It is finished."""
        self.model.remove(request)
        return {(request.name, step)}

    def next(self) -> Request | None:
        """Which is to be served now: fresh ones first, then the latest retry."""
        if (
            sum(request.state == "sending" for request in self.model) + len(self.cancelled_while_sending)
            >= POLICY.concurrency
        ):
            return None
        able = [request for request in self.model if request.topic in self.allowed]
        for request in able:
            if request.state == "fresh":
                return request
        ready = [request for request in able if request.state == "waiting" and request.due <= self.now]
        return max(ready, key=lambda request: request.scheduled, default=None)

    # What happens

    @rule(
        topic=st.sampled_from(TOPICS),
        confirm=st.sampled_from([True, True, False]),
        same=st.booleans(),
        resumed=st.booleans(),
    )
    def submit(self, topic: str, confirm: bool, same: bool, resumed: bool) -> None:
        """A request; some share a message with the one before."""
        name = f"r{self.submitted}"
        full = len(self.model) >= POLICY.max_pending and not resumed
        self.submitted += 1
        message_hash = b"%d" % (self.submitted // 2 if same else self.submitted * 1000)
        attempts = 3 if resumed else 0
        try:
            self.real.submit(name, message_hash, topic, confirm=confirm, attempts=attempts, resumed=resumed)
        except LimitExceeded:
            assert full
            return
        assert not full
        self.model.append(Request(name, message_hash, topic, confirm, tried=resumed))

    @rule()
    def take(self) -> None:
        """A worker asks for work."""
        expected = self.next()
        attempt = self.real.take(self.now)
        assert (attempt and attempt.request_id) == (expected and expected.name)
        if expected is not None and attempt is not None:
            assert attempt.resend is expected.propagated
            expected.state = "sending"

    @rule(verdict=st.sampled_from(Verdict))
    def work(self, verdict: Verdict) -> None:
        """All that can be sent is, and comes to the same."""
        while self.real.sending:
            self.settle(0, verdict)
        while self.next() is not None:
            self.take()
            self.settle(0, verdict)

    @precondition(lambda self: self.real.sending > 0)
    @rule(number=WHICH, verdict=st.sampled_from(Verdict))
    def settle(self, number: int, verdict: Verdict) -> None:
        """An attempt ends."""
        sending = [request.name for request in self.model if request.state == "sending"]
        sending += sorted(self.cancelled_while_sending)
        name = sending[number % len(sending)]
        request = self.find(name)
        if name in self.cancelled_while_sending:
            self.cancelled_while_sending.remove(name)
            self.compare(set(), self.real.settled(name, verdict, self.now))
            return
        assert request is not None
        request.tried = True
        if verdict is Verdict.TAKEN:
            request.failures, request.propagated = 0, True
            if request.confirm and not request.seen:
                request.await_confirmation(self.now)
                expected = {(name, Step.PROPAGATED)}
            else:
                expected = self.end(request, Step.SENT)
        elif request.seen:
            expected = self.end(request, Step.SENT)
        elif verdict is Verdict.REFUSED:
            expected = self.end(request, Step.FAILED)
        elif request.topic not in self.allowed:
            self.schedule(request, self.now)
            expected = set[tuple[str, Step]]()
        elif request.failures == 3:
            expected = self.end(request, Step.FAILED)
        else:
            self.schedule(request, self.now + (1, 2, 4)[request.failures])
            request.failures += 1
            expected = {(name, Step.RETRYING)}
        self.compare(expected, self.real.settled(name, verdict, self.now))

    @rule(number=WHICH)
    def cancel(self, number: int) -> None:
        """The application gives one up, pending or not."""
        name = self.some(number)
        request = self.find(name)
        expected: Expected = set()
        if request is not None:
            if request.state == "sending":
                self.cancelled_while_sending.add(name)
            expected = self.end(request, Step.CANCELLED)
        self.compare(expected, self.real.cancel(name))

    @rule(allowed=st.frozensets(st.sampled_from(TOPICS)))
    def allow(self, allowed: frozenset[str]) -> None:
        """The health changes."""
        for request in self.model:
            if request.state == "unconfirmed" and request.topic in allowed - self.allowed:
                request.await_confirmation(self.now)
        self.allowed = allowed
        self.real.allow(allowed, self.now)

    @rule(number=WHICH)
    def see(self, number: int) -> None:
        """The message of a request is seen in the network."""
        name = self.some(number)
        asked = self.find(name)
        message_hash = b"nobody's" if asked is None else asked.hash
        expected: Expected = set()
        for request in tuple(self.model):
            if request.hash == message_hash:
                request.seen = True
                if request.state != "sending":
                    expected |= self.end(request, Step.SENT)
        assert self.real.awaits(message_hash) is (asked is not None)
        self.compare(expected, self.real.seen([message_hash]))
        assert self.real.awaits(message_hash) is any(each.hash == message_hash for each in self.model)

    @rule(seconds=st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 7.0, 50.0]), answers=st.booleans())
    def wait(self, seconds: float, answers: bool) -> None:
        """Time passes; stores are asked, and answer or do not; what they lack is sent again."""
        self.now += seconds
        looked: set[bytes] = set()
        for request in self.model:
            watched = request.state == "unconfirmed" and request.topic in self.allowed
            if watched and request.look_at <= self.now:
                looked.add(request.hash)
                request.look_later(self.now)
                request.lacking |= answers
        due = self.real.checks(self.now)
        hashes = [value for values in due.values() for value in values]
        assert set(hashes) == looked
        self.real.checked(hashes, hashes if answers else (), self.now)
        expected: Expected = set()
        for request in tuple(self.model):
            if request.state != "unconfirmed" or request.topic not in self.allowed:
                continue
            waited = self.now - request.taken_at
            if waited >= 60 or (waited >= 10 and request.lacking):
                if request.resends == POLICY.max_resends:
                    expected |= self.end(request, Step.FAILED)
                else:
                    request.resends += 1
                    expected.add((request.name, Step.RESENDING))
        self.compare_resends(expected, self.real.tick(self.now))

    @rule(answers=st.booleans())
    def wait_for_stores(self, answers: bool) -> None:
        """Long enough for something to follow from what they say."""
        for _ in range(4):
            self.wait(3.0, answers)

    def compare_resends(self, expected: Expected, progress: list[Progress]) -> None:
        """The order of those sent again at the same time is theirs to choose."""
        self.compare(expected, progress)
        for each in progress:
            request = self.find(each.request_id)
            if request is not None:
                self.schedule(request, self.now)

    def compare(self, expected: Expected, progress: list[Progress]) -> None:
        """The steps are those of the model."""
        assert {(each.request_id, each.step) for each in progress} == expected
        assert len(progress) == len(expected)
        for each in progress:
            assert (each.error is None) is (each.step in (Step.SENT, Step.PROPAGATED, Step.RESENDING)), each

    # What always holds

    @invariant()
    def what_is_pending_is_what_the_model_says(self) -> None:
        """Each once, in order."""
        assert self.real.pending == tuple(request.name for request in self.model)
        assert len(self.real) == len(self.model)
        assert self.real.untried == sum(not request.tried for request in self.model)
        assert set(self.real.pubsub_topics) == {request.topic for request in self.model}
        sending = sum(request.state == "sending" for request in self.model)
        assert self.real.sending == sending + len(self.cancelled_while_sending)

    @invariant()
    def nobody_is_woken_for_nothing(self) -> None:
        """After `checks` and `tick` the next one is later."""
        if self.real.next_tick(self.now) <= self.now:
            self.wait(0.0, answers=False)
            assert self.real.next_tick(self.now) > self.now


OutgoingMachine.TestCase.settings = settings(stateful_step_count=40, max_examples=300)
TestOutgoing = OutgoingMachine.TestCase
