"""Sending in the background, on a transport that does as it is told (MESSAGING-API, Send)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from typing import NamedTuple, cast

import pytest
import trio

from pywaku.errors import LimitExceeded
from pywaku.ids import PeerId
from pywaku.message import WakuMessage, message_hash
from pywaku.messaging.attempts import Progress, SendPolicy, Step, Verdict
from pywaku.messaging.environment import Environment
from pywaku.messaging.own import OwnMessages
from pywaku.messaging.record import MessageRecord
from pywaku.messaging.records import MemoryRecordStore, Recorder, open_recorder
from pywaku.messaging.reports import Reports
from pywaku.messaging.sender import Sender
from pywaku.messaging.stores import Presence
from pywaku.messaging.transport import Handover, Transport
from tests.support.peers import peer_of

A, B = "/waku/2/rs/42/0", "/waku/2/rs/42/1"
TOPIC = "/test/1/sender/proto"
SERVICE, OTHER = peer_of("service"), peer_of("other")
TAKEN = Handover(Verdict.TAKEN, None, (SERVICE,), (SERVICE,))
FAILED = Handover(Verdict.FAILED, "no answer", (), (SERVICE,))


class Wire:
    """A transport: `answer` says what becomes of each attempt."""

    concurrency = 4

    def __init__(self) -> None:
        self.attempts: list[tuple[float, bytes]] = []
        self.given_to: list[Collection[PeerId]] = []
        self.most = self._now = 0
        self.answer: Callable[[MessageRecord], Awaitable[Handover]] = self.take
        self.busy: tuple[PeerId, ...] = ()

    async def take(self, record: MessageRecord) -> Handover:
        """Somebody takes it, after 10 ms."""
        await trio.sleep(0.01)
        return TAKEN

    async def fail(self, record: MessageRecord) -> Handover:
        """Nobody does."""
        await trio.lowlevel.checkpoint()
        return FAILED

    async def send(
        self, record: MessageRecord, *, resend: bool, given_to: Collection[PeerId] = ()
    ) -> Handover:
        """What `Transport` has."""
        self.attempts.append((round(trio.current_time(), 2), record.message.payload))
        self.given_to.append(given_to)
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            return await self.answer(record)
        finally:
            self._now -= 1

    def busy_peers(self, pubsub_topic: str) -> Collection[PeerId]:
        """What `Transport` has."""
        return self.busy

    def times(self, payload: bytes) -> list[float]:
        """When a message was tried to send."""
        return [at for at, what in self.attempts if what == payload]


class Scene(NamedTuple):
    """A sender, and all that has to do with it."""

    sender: Sender
    wire: Wire
    recorder: Recorder
    left: list[MessageRecord]
    needed: Counter[str]
    asked: list[tuple[float, list[bytes]]]
    stored: set[bytes]

    def submit(self, payload: bytes, *, topic: str = A, **fields: object) -> MessageRecord:
        """As `Messaging.send` does."""
        record = record_of(payload, topic, at_ns=CLOCK(), **fields)
        self.recorder.accept(record)
        self.sender.submit(record)
        return record

    async def record(self, record: MessageRecord) -> MessageRecord:
        """What is known of it now."""
        assert record.request_id is not None
        found = await self.recorder.by_request_id(record.request_id)
        assert found is not None
        return found


CLOCK = Environment.simulated(1).clock


def record_of(payload: bytes, topic: str = A, *, at_ns: int = 1, **fields: object) -> MessageRecord:
    """A record of a request, as `send` makes it."""
    message = WakuMessage(payload, TOPIC, timestamp_ns=at_ns, **fields)  # pyright: ignore[reportArgumentType]
    return MessageRecord(
        message_hash(topic, message), topic, message, sending=True, request_id=f"id-{payload.decode()}"
    )


@asynccontextmanager
async def open_scene(
    *, confirm: bool = False, policy: SendPolicy | None = None, allowed: Collection[str] = (A,)
) -> AsyncGenerator[Scene]:
    """See `Scene`; what `stored` names is found in stores, which have all else not."""
    wire = Wire()
    left: list[MessageRecord] = []
    needed: Counter[str] = Counter()
    asked: list[tuple[float, list[bytes]]] = []
    stored: set[bytes] = set()

    async def is_stored(topic: str, hashes: list[bytes]) -> Presence:
        asked.append((round(trio.current_time(), 2), hashes))
        await trio.sleep(0.1)
        found = {value: OTHER for value in hashes if value in stored}
        return Presence(found, {value for value in hashes if value not in stored})

    def need(topic: str, wanted: bool) -> None:
        needed[topic] += 1 if wanted else -1

    async with (
        open_recorder(MemoryRecordStore(), lambda _: None, clock=CLOCK) as recorder,
        trio.open_nursery() as nursery,
    ):
        sender = Sender(
            cast("Transport", wire),
            recorder,
            Reports(None),
            CLOCK,
            policy or SendPolicy(),
            is_stored=is_stored if confirm else None,
            on_left=left.append,
            on_need=need,
        )
        sender.start(nursery)
        sender.allow(allowed)
        yield Scene(sender, wire, recorder, left, needed, asked, stored)
        nursery.cancel_scope.cancel()


@pytest.mark.virtual
async def test_a_message_that_is_taken_is_sent() -> None:
    async with open_scene() as scene:
        record = scene.submit(b"a")
        assert scene.sender.pending == (record.request_id,)
        await trio.sleep(1)
        after = await scene.record(record)
        assert (after.sending, after.sent, after.propagated, after.error) == (False, True, True, None)
        assert after.attempts == 1
        assert scene.sender.pending == ()


@pytest.mark.virtual
async def test_it_is_retried_after_1_2_and_4_seconds_and_then_given_up() -> None:
    async with open_scene() as scene:
        scene.wire.answer = scene.wire.fail
        record = scene.submit(b"a")
        await trio.sleep(100)
        assert scene.wire.times(b"a") == [0, 1, 3, 7]
        after = await scene.record(record)
        assert (after.sending, after.sent, after.error, after.attempts) == (False, False, "no answer", 4)


@pytest.mark.virtual
async def test_a_transport_that_raises_is_a_failed_attempt() -> None:
    async with open_scene() as scene:

        async def explode(record: MessageRecord) -> Handover:
            raise ValueError("nobody thought of this")

        scene.wire.answer = explode
        record = scene.submit(b"a")
        await trio.sleep(0.5)
        scene.wire.answer = scene.wire.take
        await trio.sleep(100)
        assert scene.wire.times(b"a") == [0, 1]
        assert (await scene.record(record)).sent


@pytest.mark.virtual
async def test_while_a_topic_is_unhealthy_its_messages_wait_and_then_go_on() -> None:
    async with open_scene() as scene:
        scene.wire.answer = scene.wire.fail
        record = scene.submit(b"a")
        await trio.sleep(2)
        assert scene.wire.times(b"a") == [0, 1]
        scene.sender.allow([])
        scene.wire.answer = scene.wire.take
        await trio.sleep(1000)
        assert scene.wire.times(b"a") == [0, 1]
        assert scene.sender.pending == (record.request_id,)
        scene.sender.allow([A])
        await trio.sleep(1)
        assert scene.wire.times(b"a") == [0, 1, 1002]
        assert (await scene.record(record)).sent


@pytest.mark.virtual
async def test_fresh_messages_go_before_retries() -> None:
    async with open_scene() as scene:
        scene.wire.answer = scene.wire.fail
        scene.submit(b"old")
        await trio.sleep(0.5)
        scene.sender.allow([])
        await trio.sleep(10)
        scene.submit(b"new")
        scene.wire.answer = scene.wire.take
        scene.sender.allow([A])
        await trio.sleep(1)
        assert [payload for _, payload in scene.wire.attempts] == [b"old", b"new", b"old"]


@pytest.mark.virtual
async def test_as_many_attempts_at_a_time_as_the_transport_likes_and_none_waits_for_nothing() -> None:
    async with open_scene() as scene:
        for number in range(40):
            scene.submit(b"%d" % number)
        await trio.sleep(10)
        assert scene.wire.most == 4
        assert scene.wire.attempts[-1][0] == pytest.approx(0.09, abs=0.001)


@pytest.mark.virtual
async def test_time_passes_while_all_workers_are_busy_and_retries_are_due() -> None:
    async with open_scene() as scene:

        async def slowly(record: MessageRecord) -> Handover:
            await trio.sleep(30)
            return FAILED

        scene.wire.answer = scene.wire.fail
        scene.submit(b"early")
        await trio.sleep(0.1)
        scene.wire.answer = slowly
        for number in range(8):
            scene.submit(b"%d" % number)
        await trio.sleep(29)  # a task that never sleeps would stop this clock
        assert scene.wire.times(b"early") == [0]


@pytest.mark.virtual
async def test_a_cancelled_message_is_not_sent() -> None:
    async with open_scene(allowed=()) as scene:
        record = scene.submit(b"a")
        scene.sender.cancel("id-a")
        scene.sender.cancel("id-a")
        scene.sender.cancel("unknown")
        scene.sender.allow([A])
        await trio.sleep(10)
        assert scene.wire.attempts == []
        after = await scene.record(record)
        assert (after.sending, after.sent, after.error) == (False, False, "cancelled")


@pytest.mark.virtual
async def test_pending_is_bounded() -> None:
    async with open_scene(policy=SendPolicy(max_pending=2), allowed=()) as scene:
        scene.submit(b"a")
        scene.submit(b"b")
        with pytest.raises(LimitExceeded):
            scene.sender.require_room()
        scene.sender.cancel("id-a")
        scene.sender.require_room()


@pytest.mark.virtual
async def test_the_topic_is_needed_while_there_is_something_to_send_on_it() -> None:
    async with open_scene(confirm=True) as scene:
        one, two = scene.submit(b"one"), scene.submit(b"two")
        assert scene.needed == {A: 1}
        scene.stored.update((one.message_hash, two.message_hash))
        await trio.sleep(10)  # both end at once
        assert scene.needed[A] == 0
        scene.submit(b"three")
        assert scene.needed[A] == 1


@pytest.mark.virtual
async def test_on_left_hears_of_each_message_once() -> None:
    async with open_scene(confirm=True) as scene:
        scene.wire.answer = scene.wire.fail
        scene.submit(b"a")
        await trio.sleep(0.5)
        assert scene.left == []
        scene.wire.answer = scene.wire.take
        await trio.sleep(100)  # it is sent again and again, as no store has it
        assert len(scene.wire.times(b"a")) == 5
        assert [record.message.payload for record in scene.left] == [b"a"]


# Confirmation


@pytest.mark.virtual
async def test_with_confirmation_it_is_sent_once_a_store_has_it() -> None:
    async with open_scene(confirm=True) as scene:
        record = scene.submit(b"a")
        await trio.sleep(2)
        after = await scene.record(record)
        assert (after.sending, after.sent, after.propagated, after.stored) == (True, False, True, False)
        scene.stored.add(record.message_hash)
        await trio.sleep(2)
        after = await scene.record(record)
        assert (after.sending, after.sent, after.propagated, after.stored) == (False, True, True, True)
        [(at, hashes)] = scene.asked
        assert 3 <= at <= 3.6
        assert hashes == [record.message_hash]


@pytest.mark.virtual
async def test_what_no_store_has_is_sent_again_after_10_seconds_to_other_nodes_and_given_up_in_the_end() -> (
    None
):
    async with open_scene(confirm=True) as scene:
        record = scene.submit(b"a")
        await trio.sleep(200)
        first, *again = scene.wire.times(b"a")
        assert first == 0
        assert [round(at) for at in again] == [10, 20, 30]
        assert scene.wire.given_to == [(), {SERVICE}, {SERVICE}, {SERVICE}]
        after = await scene.record(record)
        assert (after.sending, after.sent, after.propagated) == (False, False, True)
        assert after.error == "peers took it, but no store has it"


@pytest.mark.virtual
async def test_stores_are_asked_for_all_that_is_due_at_once() -> None:
    async with open_scene(confirm=True) as scene:
        for number in range(200):
            scene.submit(b"%d" % number)
            await trio.sleep(0.002)
        await trio.sleep(4)
        assert sum(len(hashes) for _, hashes in scene.asked) == 200
        assert len(scene.asked) <= 2


@pytest.mark.virtual
async def test_a_store_check_that_raises_ends_nothing() -> None:
    async with open_scene(confirm=True) as scene:

        async def explode(topic: str, hashes: list[bytes]) -> Presence:
            raise ValueError("nobody thought of this")

        works, scene.sender._is_stored = scene.sender._is_stored, explode
        record = scene.submit(b"a")
        await trio.sleep(5)
        scene.sender._is_stored = works
        scene.stored.add(record.message_hash)
        await trio.sleep(5)
        assert (await scene.record(record)).sent


@pytest.mark.virtual
async def test_ephemeral_messages_are_not_looked_for_in_stores() -> None:
    async with open_scene(confirm=True) as scene:
        record = scene.submit(b"a", ephemeral=True)
        await trio.sleep(100)
        assert (await scene.record(record)).sent
        assert scene.asked == []
        assert len(scene.wire.attempts) == 1


@pytest.mark.virtual
@pytest.mark.parametrize("heard", [True, False])
async def test_a_message_that_has_become_too_old_for_stores_is_sent_if_others_have_it_and_else_an_error(
    heard: bool,
) -> None:
    async with open_scene(confirm=True, allowed=()) as scene:
        record = scene.submit(b"a")
        await trio.sleep(60)
        scene.sender.allow([A])
        await trio.sleep(1)
        if heard:
            scene.sender.own(record.message_hash, OTHER)
        await trio.sleep(10)
        found = await scene.record(record)
        assert (found.sent, found.propagated) == (heard, True)
        assert (found.error is None) is heard
        assert scene.asked == []


@pytest.mark.virtual
async def test_a_message_that_another_peer_pushes_has_travelled() -> None:
    async with open_scene(confirm=True) as scene:
        record = scene.submit(b"a")
        await trio.sleep(1)
        assert scene.sender.own(record.message_hash, SERVICE) is not None  # that one was given it
        assert scene.sender.pending == ("id-a",)
        scene.wire.busy = (OTHER,)
        scene.sender.own(record.message_hash, OTHER)  # and that one may be about to
        assert scene.sender.pending == ("id-a",)
        scene.wire.busy = ()
        own = scene.sender.own(record.message_hash, OTHER)
        assert scene.sender.pending == ()
        assert own is not None
        assert own.sent


@pytest.mark.virtual
async def test_a_message_that_a_relay_peer_sends_back_has_travelled_and_is_told_of_once() -> None:
    async with open_scene(confirm=True) as scene:
        record = scene.submit(b"a")
        await trio.sleep(1)
        own = scene.sender.echoed(record.message_hash, SERVICE)
        assert own is not None
        assert own.sent
        assert scene.sender.pending == ()
        assert scene.sender.echoed(record.message_hash, OTHER) is None
        assert scene.sender.echoed(b"nobody's", OTHER) is None


@pytest.mark.virtual
async def test_a_message_of_an_earlier_life_is_taken_up_with_its_attempts() -> None:
    async with open_scene(policy=SendPolicy(max_pending=1)) as scene:
        for number in range(3):
            record = record_of(b"%d" % number)
            scene.recorder.accept(record)
            scene.sender.submit(record, resumed=True)
        await trio.sleep(1)
        assert len(scene.wire.attempts) == 3


@pytest.mark.virtual
async def test_tried_returns_when_every_message_was_tried_or_seen() -> None:
    async with open_scene(allowed=(A,)) as scene:
        scene.submit(b"a")
        other = scene.submit(b"b", topic=B)
        returned = trio.Event()

        async def wait() -> None:
            await scene.sender.tried()
            returned.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(5)
            assert not returned.is_set()
            scene.sender.in_store(other.message_hash, OTHER)  # another node has sent it, say
            await trio.sleep(0)
            await trio.sleep(0.1)
            assert returned.is_set()


# Own messages


def _progress(record: MessageRecord, step: Step) -> Progress:
    assert record.request_id is not None
    return Progress(record.request_id, record.message_hash, step, 1, step is Step.SENT)


def test_finished_messages_are_remembered_within_bounds_and_pending_ones_always() -> None:
    own = OwnMessages(max_finished=10, max_bytes=1000)
    pending = record_of(b"pending")
    own.add(pending)
    for number in range(100):
        record = record_of(b"%d" % number)
        own.add(record)
        own.follow(record, _progress(record, Step.SENT))
        own.finished(record.message_hash)
    assert len(own) == 11
    assert pending.message_hash in own
    last = own.get(record_of(b"99").message_hash)
    assert last is not None
    assert last.record.sent
    large = record_of(b"x" * 990)
    own.add(large)
    own.finished(large.message_hash)
    assert len(own) <= 7
    huge = record_of(b"x" * 2000)
    own.add(huge)
    assert huge.message_hash in own
    own.finished(huge.message_hash)
    assert huge.message_hash not in own


def test_a_message_that_is_sent_twice_is_remembered_until_both_are_finished() -> None:
    own = OwnMessages(max_finished=0)
    record = record_of(b"a")
    own.add(record)
    own.add(record)
    own.finished(record.message_hash)
    assert record.message_hash in own
    own.finished(record.message_hash)
    assert record.message_hash not in own


def test_own_messages_hold_to_their_bounds_whatever_happens() -> None:
    chance = random.Random(1)
    own = OwnMessages(max_finished=5)
    under_way: list[MessageRecord] = []
    for number in range(2000):
        if under_way and chance.random() < 0.5:
            own.finished(under_way.pop(chance.randrange(len(under_way))).message_hash)
        else:
            record = record_of(b"%d" % (number // chance.randint(1, 3)))
            own.add(record)
            under_way.append(record)
        assert all(record.message_hash in own for record in under_way)
        assert len(own) <= len(under_way) + 5
