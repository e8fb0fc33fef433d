"""The rules of MESSAGING-API, Message Storage, each with a test named after it, on every back end."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from pywaku.errors import InvalidInput
from pywaku.messaging.record import BACKGROUND_SUBSCRIPTION, MessageRecord
from pywaku.messaging.records import Change, Changed, RecordStore
from tests.records.conftest import OpenStore
from tests.support.records import START_NS, TOPIC, adding, guid, hash_of, receiving, record

LATER_NS = START_NS + 77


def _to_send(number: int, **what: object) -> Change:
    return Change(hash_of(number), LATER_NS, request_id=guid(number), **what)  # type: ignore[arg-type]


async def _one(store: RecordStore, change: Change) -> MessageRecord:
    """Apply a change that changes one record; that record, which is what the store has now."""
    (told,) = await store.apply([change])
    assert await store.all_by_hash(change.message_hash) == [told.after]
    return told.after


# Message storage is populated by


async def test_populated_by_messages_sent(open_store: OpenStore) -> None:
    async with open_store() as store:
        assert await store.apply([adding(1)]) == [Changed(None, replace(record(1, 1), updated_ns=_at(1)))]
        assert await store.by_hash(hash_of(1)) == await store.by_request_id(guid(1))


async def test_populated_by_messages_received(open_store: OpenStore) -> None:
    async with open_store() as store:
        kept = await _one(store, receiving(1, "subscription"))
        assert kept == replace(record(1), received=True, updated_ns=_at(1))


async def test_populated_by_messages_fetched(open_store: OpenStore) -> None:
    async with open_store() as store:
        kept = await _one(store, Change(hash_of(1), LATER_NS, record(1), stored=True))
        assert kept.stored
        assert not kept.received
        assert kept.created_ns == _at(1)
        assert kept.updated_ns == LATER_NS


# Properties


async def test_sending_defaults_to_false_and_is_true_while_the_message_is_sent(open_store: OpenStore) -> None:
    assert not record(1).sending
    async with open_store() as store:
        assert (await _one(store, adding(1))).sending
        assert not (await _one(store, _to_send(1, sending=False))).sending
        assert (await _one(store, _to_send(1, sending=True))).sending


async def test_sending_transitions_back_to_false_when_the_send_completes(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([adding(1), adding(2)])
        assert not (await _one(store, _to_send(1, sent=True))).sending
        failed = await _one(store, _to_send(2, sending=False, sent=False, error="no peer took it"))
        assert not failed.sending
        assert not failed.sent
        assert failed.error == "no peer took it"


async def test_sending_and_sent_are_not_applicable_to_messages_received(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([receiving(1)])
        change = Change(hash_of(1), LATER_NS, sending=True, sent=True, propagated=True, attempts=3)
        assert await store.apply([change]) == []
        added = Change(hash_of(2), LATER_NS, replace(record(2), sending=True, sent=True, attempts=3))
        kept = await _one(store, added)
        assert (kept.sending, kept.sent, kept.propagated, kept.attempts) == (False, False, False, 0)


async def test_sent_remains_unchanged_once_true(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([adding(1), _to_send(1, sent=True)])
        assert await store.apply([_to_send(1, sent=False)]) == []
        assert await store.apply([_to_send(1, sending=True)]) == []  # it is done, so it is not sent again
        assert (await _one(store, _to_send(1, sent=False, error="unreadable"))).sent


@pytest.mark.parametrize("name", ["stored", "received", "propagated", "sent"])
async def test_stored_received_sent_and_propagated_are_final(open_store: OpenStore, name: str) -> None:
    async with open_store() as store:
        await store.apply([adding(1)])
        assert not getattr(await store.by_hash(hash_of(1)), name)
        assert getattr(await _one(store, _to_send(1, **{name: True})), name)
        assert await store.apply([_to_send(1, **{name: False})]) == []
        assert getattr(await store.by_hash(hash_of(1)), name)


async def test_stored_is_populated_for_received_messages_too(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([receiving(1)])
        assert (await _one(store, Change(hash_of(1), LATER_NS, stored=True))).stored


async def test_request_id_defaults_to_none_and_is_constant(open_store: OpenStore) -> None:
    async with open_store() as store:
        assert (await _one(store, receiving(1))).request_id is None
        (told,) = await store.apply([adding(1)])  # a send of the same message is a record of its own
        assert told == Changed(None, replace(record(1, 1), updated_ns=_at(1)))
        assert [known.request_id for known in await store.all_by_hash(hash_of(1))] == [None, guid(1)]


async def test_message_is_kept_with_all_its_attributes(open_store: OpenStore) -> None:
    plain = record(1).message
    messages = [
        plain,
        replace(plain, payload=b""),
        replace(plain, payload=bytes(range(256)) * 600, meta=b"", version=0, ephemeral=False),
        replace(plain, meta=bytes(64), version=(1 << 32) - 1, ephemeral=True, rate_limit_proof=b"proof"),
        replace(plain, timestamp_ns=None, content_topic="/täst/1/\0 and ’/proto"),
        replace(plain, timestamp_ns=-(1 << 63)),
    ]
    async with open_store() as store:
        for number, message in enumerate(messages):
            new = replace(record(number, number), message=message)
            await store.apply([Change.adding(new)])
    async with open_store() as again:
        for number, message in enumerate(messages):
            if again.name == "memory":
                await again.apply([Change.adding(replace(record(number, number), message=message))])
            found = await again.by_request_id(guid(number))
            assert found is not None
            assert found.message == message
        assert len(await again.by_content_topic("/täst/1/\0 and ’/proto")) == 1


async def test_error_persists_until_the_message_is_sent_after_all(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([adding(1)])
        assert (await _one(store, _to_send(1, error="no peers"))).error == "no peers"
        assert (await _one(store, _to_send(1, attempts=2))).error == "no peers"
        assert (await _one(store, _to_send(1, sent=True))).error is None


async def test_error_during_reception_is_populated_and_stays_with_a_message_that_was_sent(
    open_store: OpenStore,
) -> None:
    async with open_store() as store:
        await store.apply([adding(1), _to_send(1, sent=True)])
        assert (await _one(store, _to_send(1, received=True, error="unreadable"))).error == "unreadable"
        assert (await _one(store, _to_send(1, stored=True, sent=True))).error == "unreadable"
        assert (await _one(store, _to_send(1, clear_error=True))).error is None


async def test_error_is_kept_to_its_first_thousand_characters(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([adding(1)])
        assert (await _one(store, _to_send(1, error="é" * 2_000))).error == "é" * 1_000
        assert (await _one(store, _to_send(1, error="file \udc80"))).error == "file \\udc80"


async def test_any_set_of_true_properties_is_kept(open_store: OpenStore) -> None:
    names = ("propagated", "stored", "received", "sent")
    sets = [chosen for size in range(5) for chosen in combinations(names, size)]
    async with open_store() as store:
        for number, chosen in enumerate(sets):
            await store.apply([adding(number), _to_send(number, **dict.fromkeys(chosen, True))])
        for number, chosen in enumerate(sets):
            found = await store.by_request_id(guid(number))
            assert found is not None
            assert [name for name in names if getattr(found, name)] == [n for n in names if n in chosen]
            assert found.sending is ("sent" not in chosen)


# Methods


async def test_get_by_request_id_returns_nothing_for_an_invalid_or_unknown_id(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([adding(1)])
        for unknown in (guid(2), "", "no guid", "\udc80", "’", guid(1)[:-1], guid(1) + "0", "-1", "0" * 900):
            assert await store.by_request_id(unknown) is None


async def test_get_by_hash_returns_nothing_for_an_invalid_or_unknown_hash(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([adding(1)])
        for unknown in (hash_of(2), b"", hash_of(1)[:-1], hash_of(1) + b"\0", hash_of(1)[:31] + b"x"):
            assert await store.by_hash(unknown) is None
            assert await store.all_by_hash(unknown) == []


async def test_get_by_content_topic_returns_a_page(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([adding(number) for number in range(7)])
        await store.apply([receiving(9, content_topic="/another/1/topic/proto")])
        for skip in range(9):
            for take in (None, *range(9)):
                found = await store.by_content_topic(TOPIC, skip, take)
                expected = list(range(7))[skip:][:take]
                assert [known.message_hash for known in found] == [hash_of(number) for number in expected]


async def test_get_by_content_topic_without_skip_and_take_returns_all(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([adding(number) for number in range(1_100)])
        assert len(await store.by_content_topic(TOPIC)) == 1_100


async def test_skip_beyond_the_end_and_take_zero_return_nothing(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([receiving(1, "subscription")])
        for skip, take in ((1, None), (5, 5), (0, 0), (1 << 80, None), (1 << 80, 1 << 80)):
            assert await store.by_content_topic(TOPIC, skip, take) == []
            assert await store.by_subscription_id("subscription", skip, take) == []
        assert len(await store.by_content_topic(TOPIC, 0, 1 << 80)) == 1


async def test_negative_skip_and_take_are_refused(open_store: OpenStore) -> None:
    async with open_store() as store:
        for skip, take, name in ((-1, None, "skip"), (0, -1, "take"), (-1, 0, "skip")):
            with pytest.raises(InvalidInput, match=name):
                await store.by_content_topic(TOPIC, skip, take)
            with pytest.raises(InvalidInput, match=name):
                await store.by_subscription_id("none", skip, take)


async def test_unknown_topics_and_subscriptions_have_no_records(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([receiving(1, "subscription")])
        for unknown in ("", "none", "\udc80", TOPIC[:-1], "subscription"):
            assert await store.by_content_topic(unknown) == []
        for unknown in ("", "none", "\udc80", TOPIC):
            assert await store.by_subscription_id(unknown) == []


async def test_get_by_subscription_id_returns_what_was_received_under_it(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([adding(1), receiving(2, "a"), receiving(1, "b", BACKGROUND_SUBSCRIPTION)])
        await store.apply([receiving(3, "a", "b"), receiving(2, "b", "a"), receiving(1, "a")])
        listed = {
            subscription: [found.message_hash for found in await store.by_subscription_id(subscription)]
            for subscription in ("a", "b", BACKGROUND_SUBSCRIPTION)
        }
        assert listed == {
            "a": [hash_of(2), hash_of(3), hash_of(1)],  # in the order of arrival, each once
            "b": [hash_of(1), hash_of(3), hash_of(2)],
            BACKGROUND_SUBSCRIPTION: [hash_of(1)],
        }
        assert await store.by_subscription_id("a", 1, 1) == await store.all_by_hash(hash_of(3))


async def test_lists_hold_still_while_new_records_come(open_store: OpenStore) -> None:
    async with open_store() as store:
        await store.apply([adding(5), receiving(3, "a")])
        first = [
            [found.message_hash for found in await store.by_content_topic(TOPIC)],
            [found.message_hash for found in await store.by_subscription_id("a")],
        ]
        await store.apply([receiving(1, "a"), receiving(5, "a"), adding(0)])
        second = [
            [found.message_hash for found in await store.by_content_topic(TOPIC)],
            [found.message_hash for found in await store.by_subscription_id("a")],
        ]
        assert [longer[: len(shorter)] for shorter, longer in zip(first, second, strict=True)] == first
        assert second == [
            [hash_of(5), hash_of(3), hash_of(1), hash_of(0)],
            [hash_of(3), hash_of(1), hash_of(5)],
        ]


def _at(number: int) -> int:
    return record(number).created_ns
