"""The stores against a model: random changes, acceptances, retention, restarts; the same answers throughout.

The model says in the plainest way what the specification says, and shares no code with the stores.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from tempfile import TemporaryDirectory

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from pywaku.messaging.record import MessageRecord
from pywaku.messaging.records import Change, Changed, RecordStore, Retention, open_record_store
from tests.support.records import PUBSUB_TOPIC, guid, hash_of, waku_message

_TOPICS = ["/a/1/b/proto", "/c/1/d/proto"]
_SUBSCRIPTIONS = ["one", "two", "three"]
_MESSAGES = 6
_REQUESTS = 8
_NUMBERS = st.integers(0, _MESSAGES - 1)
_TIMES = st.integers(0, 30).map(lambda second: second * 1_000_000_000)
_FLAGS = ("sending", "sent", "propagated", "stored", "received")
_RETENTION = Retention(max_age_s=10, max_records=9)
_UNLIMITED = Retention(max_age_s=None, max_records=None)


def _topic(number: int) -> str:
    return _TOPICS[number % 2]


def _hash(number: int) -> bytes:
    return hash_of(number, _topic(number))


def _record(number: int, request: int | None, created_ns: int) -> MessageRecord:
    return MessageRecord(
        _hash(number),
        PUBSUB_TOPIC,
        waku_message(number, _topic(number)),
        sending=request is not None,
        request_id=None if request is None else guid(request),
        created_ns=created_ns,
    )


def _change(
    target: tuple[int, int | None],
    adds: bool,
    at_ns: int,
    what: dict[str, object],
    subscriptions: list[str],
) -> Change:
    number, request = target
    return Change(
        _hash(number),
        at_ns,
        _record(number, request, at_ns) if adds else None,
        None if request is None else guid(request),
        subscription_ids=tuple(subscriptions),
        **what,  # type: ignore[arg-type]
    )


def _changes() -> st.SearchStrategy[Change]:
    what = st.fixed_dictionaries(
        {},
        optional={name: st.booleans() for name in (*_FLAGS, "clear_error")}
        | {"error": st.sampled_from(["lost", "late"]), "attempts": st.integers(0, 3)},
    )
    # A request belongs to one message: its number says which.
    targets = st.one_of(
        st.integers(0, _REQUESTS - 1).map(lambda request: (request % _MESSAGES, request)),
        st.tuples(_NUMBERS, st.none()),
    )
    subscriptions = st.lists(st.sampled_from(_SUBSCRIPTIONS), max_size=3)
    return st.builds(_change, targets, st.booleans(), _TIMES, what, subscriptions)


@dataclass(frozen=True)
class Accept:
    request: int
    applied: bool


@dataclass(frozen=True)
class Prune:
    now_ns: int


@dataclass(frozen=True)
class Reopen:
    pass


_ACTIONS = st.lists(
    st.one_of(
        st.lists(_changes(), min_size=1, max_size=12),
        st.builds(Accept, st.integers(0, _REQUESTS - 1), st.booleans()),
        st.builds(Prune, _TIMES.map(lambda time: time + 15_000_000_000)),
        st.builds(Reopen),
    ),
    min_size=1,
    max_size=12,
)


@dataclass
class Model:
    """Records in the order of arrival, and what came under each subscription."""

    records: list[MessageRecord] = field(default_factory=list[MessageRecord])
    listed: dict[str, list[MessageRecord]] = field(default_factory=dict[str, list[MessageRecord]])

    def apply(self, changes: list[Change]) -> list[Changed]:
        told: list[Changed] = []
        for change in changes:
            same = [known for known in self.records if known.message_hash == change.message_hash]
            fitting = [known for known in same if change.request_id in (None, known.request_id)]
            befores: list[MessageRecord | None] = list(fitting)
            if not fitting and change.record is not None:
                self.records.append(replace(change.record, updated_ns=change.at_ns))
                fitting = [self.records[-1]]
                befores = [None]
            for before, known in zip(befores, fitting, strict=True):
                after = self._after(known, change)
                if before is None or after != replace(before, updated_ns=after.updated_ns):
                    self._replace(known, after)
                    told.append(Changed(before, after))
                    known = after
                for name in dict.fromkeys(change.subscription_ids):
                    if not any(known is other for other in self.listed.setdefault(name, [])):
                        self.listed[name].append(known)
        return told

    def prune(self, retention: Retention, now_ns: int) -> int:
        count = len(self.records)
        done = [known for known in self.records if not known.sending]
        if retention.max_age_s is not None:
            oldest = now_ns - retention.max_age_s * 1_000_000_000
            for known in done[:]:
                if max(known.created_ns, known.updated_ns) < oldest:
                    self._replace(known, None)
                    done.remove(known)
        if retention.max_records is not None:
            for known in done[: max(0, len(self.records) - retention.max_records)]:
                self._replace(known, None)
        return count - len(self.records)

    @staticmethod
    def _after(known: MessageRecord, change: Change) -> MessageRecord:
        after = known
        for name in _FLAGS:
            value = getattr(change, name)
            applies = known.request_id is not None or name in ("stored", "received")
            if value is not None and applies and (value or name == "sending"):
                after = replace(after, **{name: value})
        if after.sent:
            after = replace(after, sending=False)
        if change.clear_error or (after.sent and not known.sent):
            after = replace(after, error=None)
        if change.error is not None:
            after = replace(after, error=change.error)
        if change.attempts is not None and known.request_id is not None:
            after = replace(after, attempts=change.attempts)
        return replace(after, updated_ns=change.at_ns)

    def _replace(self, known: MessageRecord, after: MessageRecord | None) -> None:
        for some in (self.records, *self.listed.values()):
            some[:] = [x for x in (after if x is known else x for x in some) if x is not None]


async def _same_answers(store: RecordStore, model: Model) -> None:
    for number in range(_MESSAGES):
        same = [known for known in model.records if known.message_hash == _hash(number)]
        assert await store.all_by_hash(_hash(number)) == same
        assert await store.by_hash(_hash(number)) == (same[0] if same else None)
    for request in range(_REQUESTS):
        found = [known for known in model.records if known.request_id == guid(request)]
        assert await store.by_request_id(guid(request)) == (found[0] if found else None)
    for topic in _TOPICS:
        listed = [known for known in model.records if known.content_topic == topic]
        assert await store.by_content_topic(topic) == listed
        assert await store.by_content_topic(topic, 1, 2) == listed[1:3]
    for name in _SUBSCRIPTIONS:
        listed = model.listed.get(name, [])
        assert await store.by_subscription_id(name) == listed
        assert await store.by_subscription_id(name, 1, 2) == listed[1:3]
    assert await store.pending() == [known for known in model.records if known.sending]
    came_or_left = [known for known in model.records if known.received or known.propagated]
    hashes = [_hash(number) for number in range(_MESSAGES)]
    assert await store.missing(hashes) == [
        message_hash for message_hash in hashes if message_hash not in {k.message_hash for k in came_or_left}
    ]
    came_or_left.reverse()
    newest = sorted(came_or_left, key=lambda known: -known.created_ns)
    since = [known.message_hash for known in newest if known.created_ns >= 10_000_000_000]
    assert await store.known_since(10_000_000_000, 3) == list(dict.fromkeys(since))[:3]


Open = Callable[[], AbstractAsyncContextManager[RecordStore]]


async def _run(
    open_store: Open, actions: list[list[Change] | Accept | Prune | Reopen], retention: Retention, lasts: bool
) -> None:
    model = Model()
    accepted: list[Change] = []
    """Not applied yet."""
    restart = True
    remaining = iter([*actions, Reopen()])
    while restart:
        restart = False
        async with open_store() as store:
            model.apply(accepted)  # they are taken up when the store is opened
            accepted.clear()
            await _same_answers(store, model)
            for action in remaining:
                match action:
                    case Accept(request, applied):
                        new = _record(request % _MESSAGES, request, request)
                        adding = Change.adding(new)
                        if adding not in accepted:
                            store.accept(new)
                            accepted += [adding] if lasts else []
                        if applied and accepted:
                            assert await store.apply(accepted) == model.apply(accepted)
                            accepted.clear()
                    case Prune(now_ns):
                        assert await store.prune(now_ns) == model.prune(retention, now_ns)
                    case Reopen():
                        if lasts:
                            restart = True
                            break
                    case changes:
                        # What was accepted comes first: it is put first.
                        assert await store.apply([*accepted, *changes]) == model.apply([*accepted, *changes])
                        accepted.clear()
                        if not lasts:  # memory is bounded at once
                            model.prune(replace(retention, max_age_s=None), 0)
                if not accepted:
                    await _same_answers(store, model)
            else:
                restart = False


_both = pytest.mark.parametrize("retention", [_RETENTION, _UNLIMITED], ids=["limited", "unlimited"])


@_both
@settings(max_examples=100)
@given(actions=_ACTIONS)
def test_records_in_memory_are_those_of_the_model(
    retention: Retention, actions: list[list[Change] | Accept | Prune | Reopen]
) -> None:
    trio.run(_run, lambda: open_record_store(None, retention=retention), actions, retention, False)


def _run_on_a_file(retention: Retention, actions: list[list[Change] | Accept | Prune | Reopen]) -> None:
    with TemporaryDirectory() as directory:
        path = f"{directory}/records.sqlite3"
        trio.run(_run, lambda: open_record_store(path, retention=retention), actions, retention, True)


@_both
@settings(max_examples=25)
@given(actions=_ACTIONS)
def test_records_in_a_file_are_those_of_the_model(
    retention: Retention, actions: list[list[Change] | Accept | Prune | Reopen]
) -> None:
    _run_on_a_file(retention, actions)


@pytest.mark.long
@_both
@settings(max_examples=1_000)
@given(actions=_ACTIONS)
def test_records_in_a_file_are_those_of_the_model_for_long(
    retention: Retention, actions: list[list[Change] | Accept | Prune | Reopen]
) -> None:
    _run_on_a_file(retention, actions)
