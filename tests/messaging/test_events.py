"""Events: what follows a change of a record, and who hears of it in which order (Event Source)."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from pywaku import InvalidInput, WakuMessage
from pywaku.messaging.event import (
    EVENT_NAMES,
    MESSAGE_EVENTS,
    Event,
    event_of_health,
    events_of_change,
    names_of_change,
)
from pywaku.messaging.events import NESTED_BACKLOG, Events, open_events
from pywaku.messaging.health import ContentTopicHealthChange, HealthStatus, ShardHealthChange, TopicHealth
from pywaku.messaging.listeners import HANDLER_BACKLOG
from pywaku.messaging.record import MessageRecord

TOPIC = "/test/1/events/proto"
SHARD = "/waku/2/rs/42/0"
RECORD = MessageRecord(b"\1" * 32, SHARD, WakuMessage(b"payload", TOPIC))
SENDING = replace(RECORD, sending=True, request_id="a request")
HEALTHY = Event("health:change", HealthStatus.HEALTHY, 1)
UNHEALTHY = Event("health:change", HealthStatus.UNHEALTHY, 2)


@asynccontextmanager
async def open_heard() -> AsyncGenerator[tuple[Events, list[Any]]]:
    """Events, and a list for what is heard of them."""
    heard: list[Any] = []
    async with open_events() as events:
        yield events, heard


# What follows a change of a record.


def test_message_change_follows_a_new_record() -> None:
    assert names_of_change(None, RECORD) == ("message:change",)
    assert names_of_change(None, SENDING) == ("message:change",)
    assert names_of_change(None, replace(RECORD, received=True)) == ("message:change", "message:received")


@pytest.mark.parametrize("property_", ["sending", "sent", "stored", "received"])
def test_message_change_follows_each_of_the_key_properties(property_: str) -> None:
    changed = replace(RECORD, **{property_: True})
    assert "message:change" in names_of_change(RECORD, changed)
    assert names_of_change(changed, RECORD) == ("message:change",)


def test_other_properties_are_no_change() -> None:
    assert names_of_change(SENDING, replace(SENDING, attempts=3, updated_ns=7)) == ()
    assert names_of_change(SENDING, SENDING) == ()


def test_message_sent_follows_the_transition_from_sending_to_sent() -> None:
    assert names_of_change(SENDING, replace(SENDING, sending=False, sent=True)) == (
        "message:change",
        "message:sent",
    )


def test_message_received_stored_and_propagated_follow_their_properties() -> None:
    assert names_of_change(RECORD, replace(RECORD, received=True)) == ("message:change", "message:received")
    assert names_of_change(RECORD, replace(RECORD, stored=True)) == ("message:change", "message:stored")
    assert names_of_change(RECORD, replace(RECORD, propagated=True)) == ("message:propagated",)


def test_message_error_follows_an_error_and_not_its_end() -> None:
    failed = replace(SENDING, sending=False, error="no service node took it")
    assert names_of_change(SENDING, failed) == ("message:change", "message:error")
    assert names_of_change(failed, replace(failed, error="it is too large")) == ("message:error",)
    assert names_of_change(failed, replace(failed, sent=True, error=None)) == (
        "message:change",
        "message:sent",
    )
    assert names_of_change(None, replace(RECORD, error="it cannot be read")) == (
        "message:change",
        "message:error",
    )


records = st.builds(
    replace,
    st.just(RECORD),
    sending=st.booleans(),
    sent=st.booleans(),
    propagated=st.booleans(),
    stored=st.booleans(),
    received=st.booleans(),
    error=st.none() | st.sampled_from(["one", "another"]),
)


@given(st.none() | records, records)
def test_events_carry_the_record_as_it_now_is(before: MessageRecord | None, after: MessageRecord) -> None:
    events = events_of_change(before, after, 5)
    assert tuple(event.name for event in events) == names_of_change(before, after)
    assert all(event.detail is after and event.at_ns == 5 for event in events)
    names = [event.name for event in events]
    assert names == [name for name in MESSAGE_EVENTS if name in names]
    assert bool(names_of_change(after, after)) is False


def test_each_change_of_health_has_its_event() -> None:
    shard = ShardHealthChange(SHARD, TopicHealth.UNHEALTHY)
    topic = ContentTopicHealthChange(SHARD, TOPIC, TopicHealth.UNHEALTHY)
    assert event_of_health(HealthStatus.HEALTHY, 1) == HEALTHY
    assert event_of_health(shard, 1) == Event("shard_health:change", shard, 1)
    assert event_of_health(topic, 1) == Event("content_topic_health:change", topic, 1)


# Listeners.


async def test_handlers_are_called_in_the_order_of_subscription() -> None:
    async with open_heard() as (events, heard):
        for number in range(5):
            events.add_event_listener(
                "health:change", lambda event, number=number: heard.append((number, event))
            )
        events.emit(HEALTHY)
        assert heard == [(number, HEALTHY) for number in range(5)]


async def test_only_events_of_the_name_are_heard() -> None:
    async with open_heard() as (events, heard):
        events.add_event_listener("message:sent", heard.append)
        events.emit(HEALTHY)
        events.emit_change(None, SENDING, 1)
        assert heard == []
        sent = replace(SENDING, sending=False, sent=True)
        events.emit_change(SENDING, sent, 2)
        assert heard == [Event("message:sent", sent, 2)]


async def test_an_unsupported_name_is_silently_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async with open_heard() as (events, heard):
        events.add_event_listener("message:read", heard.append)  # pyright: ignore[reportArgumentType, reportCallIssue]
        events.remove_event_listener("message:read", heard.append)  # pyright: ignore[reportArgumentType]
        assert not events.wanted("message:read")  # pyright: ignore[reportArgumentType]
        assert not caplog.records


async def test_an_unregistered_handler_is_silently_ignored() -> None:
    async with open_heard() as (events, heard):
        events.add_event_listener("health:change", heard.append)
        events.remove_event_listener("health:change", lambda event: None)
        events.remove_event_listener("message:sent", heard.append)
        events.emit(HEALTHY)
        assert heard == [HEALTHY]


async def test_a_removed_handler_hears_nothing_more() -> None:
    async with open_heard() as (events, heard):
        events.add_event_listener("health:change", heard.append)
        assert events.wanted("health:change")
        events.remove_event_listener("health:change", heard.append)
        assert not events.wanted("health:change")
        events.emit(HEALTHY)
        assert heard == []


async def test_a_handler_added_twice_is_called_once_and_in_its_first_place() -> None:
    async with open_heard() as (events, heard):
        events.add_event_listener("health:change", heard.append)
        events.add_event_listener("health:change", lambda event: heard.append("second"))
        events.add_event_listener("health:change", heard.append)
        events.emit(HEALTHY)
        assert heard == [HEALTHY, "second"]
        events.remove_event_listener("health:change", heard.append)
        events.emit(UNHEALTHY)
        assert heard == [HEALTHY, "second", "second"]


async def test_what_a_handler_raises_is_logged_and_stops_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(event: Event[HealthStatus]) -> None:
        raise RuntimeError(f"of {event.detail}")

    async def fail_later(event: Event[HealthStatus]) -> None:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("later")

    async with open_heard() as (events, heard):
        events.add_event_listener("health:change", fail)
        events.add_event_listener("health:change", fail_later)
        events.add_event_listener("health:change", heard.append)
        with caplog.at_level(logging.WARNING, "pywaku"):
            for _ in range(12):
                events.emit(HEALTHY)
            await trio.testing.wait_all_tasks_blocked()
        assert heard == [HEALTHY] * 12
        assert events.counters.handler_errors == 24
        # The first and the tenth of each: a handler that always fails does not fill the log.
        assert [record.getMessage() for record in caplog.records] == [
            "handler of health:change failed error=RuntimeError failures=1",
            "handler of health:change failed error=RuntimeError failures=10",
        ] * 2


async def test_a_handler_is_a_function() -> None:
    async with open_heard() as (events, _):
        with pytest.raises(InvalidInput, match="handler: is a function of one event, not None"):
            events.add_event_listener("health:change", None)  # pyright: ignore[reportArgumentType, reportCallIssue]


async def test_a_handler_removed_by_an_earlier_one_is_not_called() -> None:
    async with open_heard() as (events, heard):
        events.add_event_listener(
            "health:change", lambda event: events.remove_event_listener("health:change", heard.append)
        )
        events.add_event_listener("health:change", heard.append)
        events.emit(HEALTHY)
        assert heard == []


async def test_a_handler_added_by_another_hears_of_the_next_event() -> None:
    async with open_heard() as (events, heard):
        events.add_event_listener(
            "health:change", lambda event: events.add_event_listener("health:change", heard.append)
        )
        events.emit(HEALTHY)
        assert heard == []
        events.emit(UNHEALTHY)
        assert heard == [UNHEALTHY]


async def test_what_a_handler_causes_is_heard_by_all_in_its_order() -> None:
    async with open_heard() as (events, heard):

        def fall(event: Event[HealthStatus]) -> None:
            if event == HEALTHY:
                events.emit(UNHEALTHY)

        events.add_event_listener("health:change", fall)
        events.add_event_listener("health:change", heard.append)
        events.emit(HEALTHY)
        assert heard == [HEALTHY, UNHEALTHY]


async def test_the_events_of_one_change_stay_together() -> None:
    async with open_heard() as (events, heard):
        sent = replace(SENDING, sending=False, sent=True)
        events.add_event_listener("message:change", lambda event: events.emit(HEALTHY))
        for name in ("message:change", "message:sent"):
            events.add_event_listener(name, lambda event: heard.append(event.name))
        events.add_event_listener("health:change", lambda event: heard.append(event.name))
        events.emit_change(SENDING, sent, 1)
        assert heard == ["message:change", "message:sent", "health:change"]


async def test_what_handlers_cause_is_bounded() -> None:
    async with open_heard() as (events, heard):

        def breed(event: Event[HealthStatus]) -> None:
            if event == HEALTHY:
                for _ in range(NESTED_BACKLOG + 5):
                    events.emit(UNHEALTHY)

        events.add_event_listener("health:change", breed)
        events.add_event_listener("health:change", heard.append)
        events.emit(HEALTHY)
        assert len(heard) == 1 + NESTED_BACKLOG
        assert events.counters.nested_dropped == 5
        assert events.counters.dispatched == 1 + NESTED_BACKLOG


@pytest.mark.virtual
async def test_asynchronous_handlers_run_in_the_background_one_event_after_the_other() -> None:
    async with open_heard() as (events, heard):

        async def slow(event: Event[HealthStatus]) -> None:
            heard.append(("begins", event.at_ns))
            await trio.sleep(10 - event.at_ns)
            heard.append(("ends", event.at_ns))

        events.add_event_listener("health:change", slow)
        events.emit(HEALTHY)
        events.emit(UNHEALTHY)
        assert heard == []
        await trio.sleep(5)
        assert heard == [("begins", 1)]
        await trio.sleep(100)
        assert heard == [("begins", 1), ("ends", 1), ("begins", 2), ("ends", 2)]


@pytest.mark.virtual
async def test_a_slow_handler_holds_up_no_other() -> None:
    async with open_heard() as (events, heard):

        async def slow(event: Event[HealthStatus]) -> None:
            await trio.sleep_forever()

        async def fast(event: Event[HealthStatus]) -> None:
            heard.append(event)

        events.add_event_listener("health:change", slow)
        events.add_event_listener("health:change", fast)
        events.emit(HEALTHY)
        events.emit(UNHEALTHY)
        await trio.sleep(1)
        assert heard == [HEALTHY, UNHEALTHY]


@pytest.mark.virtual
async def test_a_function_that_returns_a_coroutine_is_awaited_too() -> None:
    async with open_heard() as (events, heard):

        async def take(event: Event[HealthStatus]) -> None:
            heard.append(event)

        events.add_event_listener("health:change", lambda event: take(event))
        events.emit(HEALTHY)
        await trio.sleep(1)
        assert heard == [HEALTHY]


@pytest.mark.virtual
async def test_what_waits_for_an_asynchronous_handler_is_bounded_and_counted() -> None:
    async with open_heard() as (events, heard):
        go = trio.Event()

        async def slow(event: Event[HealthStatus]) -> None:
            await go.wait()
            heard.append(event)

        events.add_event_listener("health:change", slow)
        events.emit(HEALTHY)
        await trio.sleep(1)  # it is being handled
        for _ in range(HANDLER_BACKLOG + 7):
            events.emit(UNHEALTHY)
        assert events.counters.handler_dropped == 7
        go.set()
        await trio.sleep(1)
        assert len(heard) == 1 + HANDLER_BACKLOG


@pytest.mark.virtual
async def test_a_removed_handler_does_not_get_what_waited_for_it() -> None:
    async with open_heard() as (events, heard):

        async def once(event: Event[HealthStatus]) -> None:
            heard.append(event)
            events.remove_event_listener("health:change", once)

        events.add_event_listener("health:change", once)
        events.emit(HEALTHY)
        events.emit(UNHEALTHY)
        await trio.sleep(1)
        assert heard == [HEALTHY]


@pytest.mark.virtual
async def test_closing_ends_handlers_and_streams() -> None:
    ended = trio.Event()
    async with open_heard() as (events, heard):

        async def endless(event: Event[HealthStatus]) -> None:
            try:
                await trio.sleep_forever()
            finally:
                ended.set()

        events.add_event_listener("health:change", endless)
        stream = events.stream("health:change")
        events.emit(HEALTHY)
        events.emit(UNHEALTHY)
        await trio.sleep(1)
    assert ended.is_set()
    assert [event async for event in stream] == [HEALTHY, UNHEALTHY]
    events.add_event_listener("health:change", heard.append)
    events.emit(HEALTHY)
    assert heard == []
    assert [event async for event in events.stream("health:change")] == []


# Streams.


async def test_a_stream_yields_the_events_of_its_names_in_order() -> None:
    async with open_events() as events, events.stream("message:sent", "message:error") as stream:
        sent = replace(SENDING, sending=False, sent=True)
        failed = replace(SENDING, sending=False, error="it failed")
        events.emit_change(None, SENDING, 1)
        events.emit_change(SENDING, failed, 2)
        events.emit_change(failed, replace(sent), 3)
        events.emit(HEALTHY)
        assert len(stream) == 2
        assert await anext(stream) == Event("message:error", failed, 2)
        assert await anext(stream) == Event("message:sent", sent, 3)


async def test_a_stream_without_names_yields_all_events() -> None:
    async with open_events() as events, events.stream() as stream:
        assert all(events.wanted(name) for name in MESSAGE_EVENTS)
        events.emit_change(None, RECORD, 1)
        events.emit_health([HealthStatus.HEALTHY, ShardHealthChange(SHARD, TopicHealth.UNHEALTHY)], 2)
        assert [(await anext(stream)).name for _ in range(3)] == [
            "message:change",
            "health:change",
            "shard_health:change",
        ]


@pytest.mark.virtual
async def test_a_stream_waits_for_events_and_wakes_one_task_for_each() -> None:
    async with open_heard() as (events, heard), events.stream("health:change") as stream:

        async def take() -> None:
            heard.append(await anext(stream))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(take)
            nursery.start_soon(take)
            await trio.sleep(1)
            events.emit(HEALTHY)
            await trio.sleep(1)
            assert heard == [HEALTHY]
            events.emit(UNHEALTHY)
        assert heard == [HEALTHY, UNHEALTHY]


async def test_a_full_stream_drops_the_newest_and_counts_it() -> None:
    async with open_events() as events, events.stream("health:change", capacity=2) as stream:
        for _ in range(2):
            events.emit(HEALTHY)
        for _ in range(3):
            events.emit(UNHEALTHY)
        assert stream.dropped == 3
        assert events.counters.stream_dropped == 3
        assert [await anext(stream), await anext(stream)] == [HEALTHY, HEALTHY]


async def test_a_closed_stream_yields_what_waited_and_takes_no_more() -> None:
    async with open_events() as events:
        stream = events.stream("health:change")
        events.emit(HEALTHY)
        await stream.aclose()
        stream.close()
        assert not events.wanted("health:change")
        events.emit(UNHEALTHY)
        assert [event async for event in stream] == [HEALTHY]


@pytest.mark.virtual
async def test_closing_a_stream_wakes_who_waits_for_it() -> None:
    async with open_events() as events, trio.open_nursery() as nursery:
        stream = events.stream("health:change")

        async def consume() -> None:
            assert [event async for event in stream] == []

        nursery.start_soon(consume)
        await trio.sleep(1)
        stream.close()


async def test_a_consumer_that_never_waits_lets_others_run() -> None:
    async with open_events() as events, events.stream("health:change") as stream:
        for _ in range(100):
            events.emit(HEALTHY)
        ran = trio.Event()

        async def run() -> None:
            ran.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            for _ in range(100):
                await anext(stream)
            assert ran.is_set()


async def test_a_stream_of_an_unknown_name_or_without_room_is_refused() -> None:
    async with open_events() as events:
        with pytest.raises(
            InvalidInput, match="name: 'message:read' is none of content_topic_health:change, "
        ):
            events.stream("message:read")  # pyright: ignore[reportArgumentType, reportCallIssue]
        with pytest.raises(InvalidInput, match="capacity: is at least 1, not 0"):
            events.stream("message:sent", capacity=0)
        assert not any(events.wanted(name) for name in EVENT_NAMES)  # pyright: ignore[reportArgumentType]


async def test_an_event_nobody_listens_for_is_not_made() -> None:
    async with open_heard() as (events, heard):
        events.emit(HEALTHY)
        events.emit_change(None, SENDING, 1)
        events.emit_health([HealthStatus.HEALTHY], 1)
        assert events.counters.dispatched == 0
        events.add_event_listener("health:change", heard.append)
        events.emit_change(None, SENDING, 1)
        assert events.counters.dispatched == 0
