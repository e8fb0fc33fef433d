"""What is to be sent, when, and for how long, as a plain machine (MESSAGING-API, Send; RELIABILITY-RELAY).

Requests, outcomes and `now` go in; attempts to make, store checks to make, and steps that records and events
follow from come out. It sends nothing, asks nobody, and reads no clock.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Collection, Container, Iterable
from enum import Enum

from pywaku.errors import InvalidInput, LimitExceeded
from pywaku.messaging.attempts import CANCELLED, Attempt, Progress, SendPolicy, Step, Verdict
from pywaku.messaging.record import RequestId


class _State(Enum):
    FRESH = 0
    SENDING = 1
    WAITING = 2  # for a retry's time
    READY = 3  # to be tried again
    UNCONFIRMED = 4
    DONE = 5


class _Request:
    __slots__ = (
        "asked",
        "attempts",
        "confirm",
        "error",
        "failures",
        "lacking",
        "late",
        "message_hash",
        "propagated",
        "pubsub_topic",
        "request_id",
        "resends",
        "seen",
        "state",
        "taken_at",
        "tried",
        "turn",
    )

    def __init__(
        self, request_id: RequestId, message_hash: bytes, pubsub_topic: str, *, confirm: bool, attempts: int
    ) -> None:
        self.request_id = request_id
        self.message_hash = message_hash
        self.pubsub_topic = pubsub_topic
        self.confirm = confirm
        self.attempts = attempts
        self.failures = 0  # attempts in a row that nobody took
        self.resends = 0
        self.propagated = False
        self.seen = False
        self.taken_at = -math.inf
        self.asked = False  # stores are being asked for it
        self.late = False  # first taken when no store would keep it any more
        self.lacking = False  # a store has answered since it was taken, and lacks it
        self.tried = attempts > 0
        self.error: str | None = None
        self.state = _State.FRESH
        self.turn = 0  # when it was scheduled; tells entries of the heaps that count from those that are over


_Timer = tuple[float, int, _Request]


class Outgoing:
    """The requests that are not finished, in the order in which they are served.

    Fresh requests come first, in the order of their submission; then those to be tried again, the one that
    was scheduled last first (MESSAGING-API, Request prioritization). Those on a pubsub topic on which nothing
    may be sent at the moment wait, and an attempt that fails meanwhile counts for nothing: the network was
    away, and nobody is to blame. In the beginning nothing may be sent.
    """

    def __init__(self, policy: SendPolicy | None = None) -> None:
        self.policy = policy or SendPolicy()
        self._requests: dict[RequestId, _Request] = {}
        self._by_hash: dict[bytes, list[_Request]] = {}
        self._fresh: OrderedDict[_Request, None] = OrderedDict()  # in the order of submission
        # Heaps; an entry whose turn is not its request's any more is passed over.
        self._waiting: list[_Timer] = []
        self._ready: list[tuple[int, _Request]] = []  # by turn, descending
        self._checks: list[_Timer] = []
        self._resends: list[_Timer] = []
        self._unconfirmed: dict[_Request, None] = {}
        self._allowed: frozenset[str] = frozenset()
        # Those whose turn came while nothing could be sent on the topic.
        self._held: dict[str, dict[_Request, None]] = {}
        self._on: dict[str, int] = {}
        self._turns = 0
        self._untried = 0
        self._sending = 0

    # What there is

    @property
    def pending(self) -> tuple[RequestId, ...]:
        """The requests that are neither sent nor given up, oldest first."""
        return tuple(self._requests)

    @property
    def pubsub_topics(self) -> Collection[str]:
        """The pubsub topics on which there is something to send."""
        return self._on.keys()

    @property
    def untried(self) -> int:
        """Requests of which no attempt has ended yet."""
        return self._untried

    @property
    def sending(self) -> int:
        """Attempts under way."""
        return self._sending

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._requests

    def __len__(self) -> int:
        return len(self._requests)

    def awaits(self, message_hash: bytes) -> bool:
        """Is a message of this hash one of those being sent?"""
        return message_hash in self._by_hash

    # What is wanted

    def submit(
        self,
        request_id: RequestId,
        message_hash: bytes,
        pubsub_topic: str,
        *,
        confirm: bool = False,
        attempts: int = 0,
        resumed: bool = False,
    ) -> None:
        """Schedule a request. With `confirm` it counts as sent once it was seen in the network.

        Raises `LimitExceeded` while as many requests are pending as the policy allows, unless it is `resumed`
        from an earlier life of the node, in which `attempts` were made already.
        """
        if request_id in self._requests:
            raise InvalidInput(f"there is a request {request_id} already")
        if not resumed:
            self.require_room()
        request = _Request(request_id, message_hash, pubsub_topic, confirm=confirm, attempts=attempts)
        self._requests[request_id] = request
        self._by_hash.setdefault(message_hash, []).append(request)
        self._on[pubsub_topic] = self._on.get(pubsub_topic, 0) + 1
        self._turns += 1
        request.turn = self._turns
        self._fresh[request] = None
        self._untried += not request.tried

    def require_room(self) -> None:
        """Raise `LimitExceeded` if no request can be submitted."""
        if len(self._requests) >= self.policy.max_pending:
            raise LimitExceeded(
                f"{len(self._requests)} messages wait to be sent, which is the most; send again when fewer do"
            )

    def cancel(self, request_id: RequestId) -> list[Progress]:
        """Give a request up; nothing happens if it is unknown or finished."""
        request = self._requests.get(request_id)
        return [] if request is None else [self._finish(request, Step.CANCELLED, CANCELLED)]

    def allow(self, pubsub_topics: Iterable[str], now: float) -> None:
        """From now on messages may be sent on these pubsub topics, and on no others: the health says so.

        Where they may again, stores are asked anew only after a while: what was sent was not seen meanwhile.
        """
        allowed = frozenset(pubsub_topics)
        again = allowed - self._allowed
        self._allowed = allowed
        if not again:
            return
        fresh = list(self._fresh)
        for topic in again:
            for request in self._held.pop(topic, ()):
                if request.state is _State.FRESH:
                    fresh.append(request)
                else:
                    heapq.heappush(self._ready, (-request.turn, request))
        self._fresh = OrderedDict.fromkeys(sorted(fresh, key=lambda request: request.turn))
        for request in self._unconfirmed:
            if request.pubsub_topic in again:
                self._await_confirmation(request, now)

    # What is to be done

    def take(self, now: float) -> Attempt | None:
        """The next attempt to make now, if there is one and room for it."""
        self._wake(now)
        if self._sending >= self.policy.concurrency:
            return None
        request = self._next()
        if request is None:
            return None
        self._sending += 1
        request.state = _State.SENDING
        request.attempts += 1
        return Attempt(request.request_id, request.attempts, request.propagated)

    def _next(self) -> _Request | None:
        while self._fresh:
            request, _ = self._fresh.popitem(last=False)
            if not self._hold(request):
                return request
        while self._ready:
            turn, request = heapq.heappop(self._ready)
            if request.state is _State.READY and -turn == request.turn and not self._hold(request):
                return request
        return None

    def _hold(self, request: _Request) -> bool:
        """Its turn comes again when something may be sent on its topic."""
        if request.pubsub_topic in self._allowed:
            return False
        self._held.setdefault(request.pubsub_topic, {})[request] = None
        return True

    def _wake(self, now: float) -> None:
        """Whose time has come is ready."""
        for request in self._due(self._waiting, _State.WAITING, now):
            request.state = _State.READY
            heapq.heappush(self._ready, (-request.turn, request))

    @staticmethod
    def _due(heap: list[_Timer], state: _State, now: float) -> list[_Request]:
        due: list[_Request] = []
        while heap and heap[0][0] <= now:
            _, turn, request = heapq.heappop(heap)
            if request.state is state and turn == request.turn:
                due.append(request)
        return due

    def settled(
        self,
        request_id: RequestId,
        verdict: Verdict,
        now: float,
        error: str | None = None,
        *,
        storable: bool = True,
    ) -> list[Progress]:
        """What became of an attempt. For a request that was cancelled meanwhile nothing follows from it.

        Where stores would not keep the message any more (not `storable`), none is asked to confirm it, and it
        is not sent again: others have to be heard to have it, soon, unless peers took it before.
        """
        self._sending -= 1
        request = self._requests.get(request_id)
        if request is None:
            return []
        self._has_tried(request)
        match verdict:
            case Verdict.TAKEN:
                return self._taken(request, now, storable=storable)
            case _ if request.seen:  # by others, whatever these peers say
                return [self._finish(request, Step.SENT, None)]
            case Verdict.REFUSED:
                return [self._finish(request, Step.FAILED, error or "refused")]
            case Verdict.FAILED:
                return self._not_taken(request, error or "nobody took it", now)

    def _taken(self, request: _Request, now: float, *, storable: bool) -> list[Progress]:
        request.late = not storable and not request.propagated
        request.failures = 0
        request.propagated = True
        request.error = None
        if not request.confirm or request.seen:
            return [self._finish(request, Step.SENT, None)]
        request.state = _State.UNCONFIRMED
        self._unconfirmed[request] = None
        self._await_confirmation(request, now)
        return [self._progress(request, Step.PROPAGATED)]

    def _not_taken(self, request: _Request, error: str, now: float) -> list[Progress]:
        request.error = error
        if request.pubsub_topic not in self._allowed:
            request.attempts -= 1
            self._schedule(request, now)
            return []
        intervals = self.policy.retry_intervals_s
        if request.failures >= len(intervals):
            return [self._finish(request, Step.FAILED, error)]
        self._schedule(request, now + intervals[request.failures])
        request.failures += 1
        return [self._progress(request, Step.RETRYING)]

    def _schedule(self, request: _Request, when: float) -> None:
        self._turns += 1
        request.turn = self._turns
        request.state = _State.WAITING
        heapq.heappush(self._waiting, (when, request.turn, request))

    # Confirmation

    def checks(self, now: float) -> dict[str, list[bytes]]:
        """The messages to look for in a store now, by pubsub topic (RELIABILITY-RELAY).

        What is found is `seen`; then `checked` says that the stores have been asked.
        """
        due: dict[str, list[bytes]] = {}
        for request in self._due(self._checks, _State.UNCONFIRMED, now):
            if request.pubsub_topic not in self._allowed:
                continue  # `allow` begins anew
            request.asked = True
            due.setdefault(request.pubsub_topic, []).append(request.message_hash)
        return due

    def checked(self, hashes: Iterable[bytes], lacking: Container[bytes], now: float) -> None:
        """Stores were asked for these messages, and some have answered that they lack those of `lacking`.

        Of those that are neither seen nor lacking nobody knows: no store has answered.
        """
        for message_hash in hashes:
            for request in self._by_hash.get(message_hash, ()):
                if request.state is not _State.UNCONFIRMED or not request.asked:
                    continue
                request.asked = False
                self._check_later(request, now)
                if message_hash in lacking and not request.lacking:
                    request.lacking = True
                    if now >= request.taken_at + self.policy.resend_after_s:
                        heapq.heappush(self._resends, (now, request.turn, request))

    def seen(self, hashes: Iterable[bytes]) -> list[Progress]:
        """These messages were seen in the network: in a store, or with a peer they were not sent to."""
        steps: list[Progress] = []
        for message_hash in hashes:
            for request in tuple(self._by_hash.get(message_hash, ())):
                request.seen = True
                if request.state is _State.SENDING:
                    continue  # what becomes of the attempt is known soon
                request.propagated = True
                steps.append(self._finish(request, Step.SENT, None))
        return steps

    def tick(self, now: float) -> list[Progress]:
        """Time has passed: what stores lack is sent again, or given up. See `next_tick`.

        While no store answers nothing is known, and the attempts that are left are not used up: the network
        may be away without anybody having noticed.
        """
        steps: list[Progress] = []
        for request in self._due(self._resends, _State.UNCONFIRMED, now):
            if request.state is not _State.UNCONFIRMED or request.pubsub_topic not in self._allowed:
                continue  # it was due twice, or `allow` begins anew
            if request.late:
                error = "peers took it when it was too old for stores, and nobody has confirmed it"
                steps.append(self._finish(request, Step.FAILED, error))
                continue
            answer_by = request.taken_at + self.policy.answer_within_s
            if not request.lacking and now < answer_by:
                heapq.heappush(self._resends, (answer_by, request.turn, request))
                continue
            del self._unconfirmed[request]
            if request.resends >= self.policy.max_resends:
                error = "no store has it" if request.lacking else "no store answered"
                steps.append(self._finish(request, Step.FAILED, f"peers took it, but {error}"))
                continue
            request.resends += 1
            self._schedule(request, now)
            steps.append(self._progress(request, Step.RESENDING))
        self._wake(now)
        return steps

    def next_tick(self, now: float) -> float:
        """When there is something to do at the latest, other than what `take` gives now."""
        heads = [heap[0][0] for heap in (self._waiting, self._checks, self._resends) if heap]
        return max(now, min(heads, default=math.inf))

    def _await_confirmation(self, request: _Request, now: float) -> None:
        self._turns += 1
        request.turn = self._turns
        request.taken_at = now
        request.asked = request.lacking = False
        if not request.late:
            self._check_later(request, now)
        heapq.heappush(self._resends, (now + self.policy.resend_after_s, request.turn, request))

    def _check_later(self, request: _Request, now: float) -> None:
        """At the next of the times at which stores are asked: so they are asked for many messages at once."""
        together = self.policy.check_together_s
        when = math.ceil((now + self.policy.check_after_s) / together) * together
        heapq.heappush(self._checks, (when, request.turn, request))

    # Within

    def _has_tried(self, request: _Request) -> None:
        self._untried -= not request.tried
        request.tried = True

    def _finish(self, request: _Request, step: Step, error: str | None) -> Progress:
        request.error = error
        self._has_tried(request)
        del self._requests[request.request_id]
        same = self._by_hash[request.message_hash]
        same.remove(request)
        if not same:
            del self._by_hash[request.message_hash]
        self._on[request.pubsub_topic] -= 1
        if not self._on[request.pubsub_topic]:
            del self._on[request.pubsub_topic]
        self._fresh.pop(request, None)
        self._unconfirmed.pop(request, None)
        self._held.get(request.pubsub_topic, {}).pop(request, None)
        request.state = _State.DONE  # what is left of it in the queues is passed over
        return self._progress(request, step)

    def _progress(self, request: _Request, step: Step) -> Progress:
        return Progress(
            request.request_id,
            request.message_hash,
            step,
            request.attempts,
            request.propagated,
            request.error,
        )
