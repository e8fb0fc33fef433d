"""Health: the criteria of MESSAGING-API, "Health states", and a status that follows them without flapping."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku import InvalidInput
from pywaku.messaging.health import (
    ConnectionStatus,
    ContentTopicHealthChange,
    Health,
    HealthChange,
    HealthStatus,
    ShardHealthChange,
    ShardPeers,
    TopicHealth,
    node_status,
    shard_status,
)
from pywaku.messaging.settling import Settling

UNHEALTHY, MINIMALLY, HEALTHY = HealthStatus
SHARD, OTHER = "/waku/2/rs/42/0", "/waku/2/rs/42/1"
TOPIC = "/test/1/health/proto"

NOBODY = ShardPeers()
ONE_EACH = ShardPeers(filter=1, lightpush=1)
TWO_EACH = ShardPeers(filter=2, lightpush=2)


def edge(*topics: str) -> Health:
    return Health("edge", topics or (SHARD,))


def relay(*topics: str) -> Health:
    return Health("relay", topics or (SHARD,))


def healthy_edge(*topics: str) -> Health:
    """An edge node that is healthy since 0 on all its shards."""
    health = edge(*topics)
    for topic in topics or (SHARD,):
        health.report(topic, TWO_EACH, 0)
    health.tick(2)
    assert health.status is HEALTHY
    return health


# The criteria.


@pytest.mark.parametrize(
    ("filter_", "lightpush", "expected"),
    [
        (0, 0, UNHEALTHY),  # "No connections to service nodes are available, regardless of protocol"
        (1, 0, UNHEALTHY),  # "reception, sending, or both" (ConnectionStatus, Disconnected)
        (0, 1, UNHEALTHY),
        (0, 2, UNHEALTHY),
        (1, 1, MINIMALLY),  # "at least one … FILTER and one … LIGHTPUSH"
        (2, 1, MINIMALLY),
        (1, 2, MINIMALLY),
        (2, 2, HEALTHY),  # "at least two … FILTER and at least two … LIGHTPUSH"
        (3, 2, HEALTHY),
    ],
)
def test_an_edge_node_is_as_healthy_as_its_service_nodes_are_many(
    filter_: int, lightpush: int, expected: HealthStatus
) -> None:
    assert shard_status("edge", ShardPeers(filter=filter_, lightpush=lightpush, mesh=9)) is expected


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        (0, UNHEALTHY),  # "No peers are present in the RELAY mesh"
        (1, MINIMALLY),  # "at least one peer on the topic" (TopicHealth, MINIMALLY_HEALTHY)
        (3, MINIMALLY),
        (4, MINIMALLY),  # "at least four other peers"
        (5, MINIMALLY),
        (6, HEALTHY),  # "at least six other peers"
        (12, HEALTHY),
    ],
)
def test_a_relay_node_is_as_healthy_as_its_mesh_is_large(mesh: int, expected: HealthStatus) -> None:
    assert shard_status("relay", ShardPeers(filter=9, lightpush=9, mesh=mesh)) is expected


@pytest.mark.parametrize(
    ("shards", "expected"),
    [
        ([], UNHEALTHY),
        ([UNHEALTHY, UNHEALTHY], UNHEALTHY),
        ([HEALTHY, UNHEALTHY], MINIMALLY),
        ([MINIMALLY, UNHEALTHY], MINIMALLY),
        ([HEALTHY, MINIMALLY], MINIMALLY),
        ([HEALTHY, HEALTHY], HEALTHY),
    ],
)
def test_a_node_is_healthy_or_unhealthy_where_all_its_shards_are(
    shards: list[HealthStatus], expected: HealthStatus
) -> None:
    assert node_status(shards) is expected


def test_states_are_named_as_in_the_specification() -> None:
    assert [str(status) for status in HealthStatus] == ["Unhealthy", "MinimallyHealthy", "Healthy"]
    assert [status.connection_status for status in HealthStatus] == [
        ConnectionStatus.DISCONNECTED,
        ConnectionStatus.PARTIALLY_CONNECTED,
        ConnectionStatus.CONNECTED,
    ]
    assert edge().status == "Unhealthy"


# A node in time.


def test_a_node_begins_unhealthy_and_rises_with_its_first_connections_at_once() -> None:
    health = edge()
    assert health.status is UNHEALTHY
    assert health.next_tick == math.inf
    assert health.report(SHARD, ShardPeers(lightpush=2), 5) == []
    assert health.report(SHARD, ONE_EACH, 5) == [MINIMALLY]
    assert health.status is MINIMALLY


def test_a_node_becomes_healthy_after_it_could_have_been_for_the_settle_time() -> None:
    health = edge()
    health.report(SHARD, ONE_EACH, 5)
    assert health.report(SHARD, TWO_EACH, 6) == []
    assert health.next_tick == 8
    assert health.tick(7.9) == []
    assert health.tick(8) == [HEALTHY]
    assert health.next_tick == math.inf


def test_the_loss_of_a_second_node_counts_after_the_settle_time() -> None:
    health = healthy_edge()
    assert health.report(SHARD, ONE_EACH, 10) == []
    assert health.next_tick == 12
    assert health.tick(12) == [MINIMALLY]


def test_a_node_replaced_in_time_changes_nothing() -> None:
    health = healthy_edge()
    assert health.report(SHARD, ONE_EACH, 10) == []
    assert health.report(SHARD, TWO_EACH, 11.5) == []
    assert health.next_tick == math.inf
    assert health.tick(100) == []
    assert health.report(SHARD, ONE_EACH, 101) == []
    assert health.next_tick == 103  # the time runs from the last loss, not from the one before


def test_total_loss_is_unhealthy_at_once() -> None:
    health = healthy_edge()
    assert health.report(SHARD, ShardPeers(filter=2), 10) == [UNHEALTHY]
    assert not health.may_send(SHARD)


def test_offline_is_unhealthy_at_once_whatever_seems_connected() -> None:
    health = healthy_edge()
    assert health.set_offline(True, 10) == [UNHEALTHY]
    assert health.offline
    assert health.report(SHARD, TWO_EACH, 11) == []
    assert health.tick(1000) == []
    assert health.set_offline(False, 1000) == [HEALTHY]


def test_recovery_from_a_short_outage_waits_until_the_outage_has_lasted_the_settle_time() -> None:
    health = healthy_edge()
    health.report(SHARD, NOBODY, 10)
    assert health.report(SHARD, ONE_EACH, 10.1) == []
    assert health.next_tick == 12
    assert health.report(SHARD, TWO_EACH, 11) == []
    assert health.tick(12) == [HEALTHY]


def test_recovery_from_a_longer_outage_is_immediate() -> None:
    health = healthy_edge()
    health.report(SHARD, NOBODY, 10)
    assert health.report(SHARD, ONE_EACH, 12) == [MINIMALLY]


def test_a_node_without_subscription_counts_its_configured_shards() -> None:
    health = edge(SHARD, OTHER)
    assert health.report(SHARD, TWO_EACH, 0) == [MINIMALLY]
    assert health.report(OTHER, TWO_EACH, 1) == []
    assert health.tick(3) == [HEALTHY]


def test_a_node_that_needs_some_of_its_shards_counts_those() -> None:
    health = edge(SHARD, OTHER)
    health.report(SHARD, TWO_EACH, 0)
    health.need(SHARD, 1)
    assert health.tick(3) == [HEALTHY]
    health.need(OTHER, 4)
    assert health.tick(6) == [MINIMALLY]
    health.need_no_more(OTHER, 7)
    assert health.tick(9) == [HEALTHY]


def test_one_dead_shard_pauses_what_goes_over_it_and_nothing_else() -> None:
    health = healthy_edge(SHARD, OTHER)
    health.report(OTHER, NOBODY, 10)
    assert not health.may_send(OTHER)
    assert health.may_send(SHARD)
    health.tick(20)
    assert health.status is MINIMALLY
    assert health.may_send(SHARD)


def test_nothing_is_sent_while_the_node_is_unhealthy() -> None:
    health = edge(SHARD, OTHER)
    health.need(SHARD, 0)
    health.report(OTHER, TWO_EACH, 1)
    assert health.status is UNHEALTHY  # it needs the one shard, and is connected on the other
    assert not health.may_send(OTHER)
    assert not health.may_send("/waku/2/rs/42/9")


def test_what_is_needed_twice_is_needed_until_twice_released() -> None:
    health = edge(SHARD, OTHER)
    health.report(SHARD, ONE_EACH, 0)
    health.need(OTHER, 5)
    health.need(OTHER, 5)
    assert health.status is UNHEALTHY
    assert health.need_no_more(OTHER, 10) == []
    assert health.need_no_more(OTHER, 10) == [MINIMALLY]
    assert health.need_no_more(OTHER, 10) == []
    assert health.need(OTHER, 20) == [UNHEALTHY]


def test_a_settle_time_is_not_negative() -> None:
    for settle_s in (-1, math.nan):
        with pytest.raises(InvalidInput, match="settle_s: is at least 0"):
            Health("edge", [SHARD], settle_s=settle_s)


# Shards and content topics.


def test_an_edge_node_is_not_subscribed_to_a_shard_before_one_of_its_content_topics() -> None:
    health = edge()
    assert health.report(SHARD, ONE_EACH, 0) == [MINIMALLY]
    assert health.shard_health(SHARD) is TopicHealth.NOT_SUBSCRIBED
    assert health.content_topic_health(SHARD, TOPIC) is TopicHealth.NOT_SUBSCRIBED
    assert health.subscribe(SHARD, TOPIC, 1) == [
        ShardHealthChange(SHARD, TopicHealth.MINIMALLY_HEALTHY),
        ContentTopicHealthChange(SHARD, TOPIC, TopicHealth.MINIMALLY_HEALTHY),
    ]
    assert health.shard_health(SHARD) is TopicHealth.MINIMALLY_HEALTHY
    assert health.content_topic_health(SHARD, TOPIC) is TopicHealth.MINIMALLY_HEALTHY
    assert health.content_topic_health(OTHER, TOPIC) is TopicHealth.NOT_SUBSCRIBED


def test_a_relay_node_is_subscribed_to_its_shards_from_the_start() -> None:
    health = relay()
    assert health.shard_health(SHARD) is TopicHealth.UNHEALTHY
    assert health.shard_health(OTHER) is TopicHealth.NOT_SUBSCRIBED
    assert health.report(SHARD, ShardPeers(mesh=6), 0) == [
        HEALTHY,
        ShardHealthChange(SHARD, TopicHealth.SUFFICIENTLY_HEALTHY),
    ]
    assert health.subscribe(SHARD, TOPIC, 1) == [
        ContentTopicHealthChange(SHARD, TOPIC, TopicHealth.SUFFICIENTLY_HEALTHY)
    ]


def test_a_shard_and_its_content_topics_change_with_the_connections_on_it() -> None:
    health = edge(SHARD, OTHER)
    health.subscribe(SHARD, TOPIC, 0)
    health.subscribe(OTHER, TOPIC, 0)
    assert health.report(SHARD, TWO_EACH, 1) == [
        MINIMALLY,
        ShardHealthChange(SHARD, TopicHealth.SUFFICIENTLY_HEALTHY),
        ContentTopicHealthChange(SHARD, TOPIC, TopicHealth.SUFFICIENTLY_HEALTHY),
    ]
    assert health.content_topic_health(OTHER, TOPIC) is TopicHealth.UNHEALTHY
    assert health.report(SHARD, NOBODY, 2) == [
        UNHEALTHY,
        ShardHealthChange(SHARD, TopicHealth.UNHEALTHY),
        ContentTopicHealthChange(SHARD, TOPIC, TopicHealth.UNHEALTHY),
    ]


def test_the_last_unsubscription_ends_the_health_of_a_topic() -> None:
    health = healthy_edge()
    health.subscribe(SHARD, TOPIC, 3)
    assert health.subscribe(SHARD, TOPIC, 3) == []
    assert health.unsubscribe(SHARD, TOPIC, 4) == []
    assert health.unsubscribe(SHARD, TOPIC, 4) == [
        ContentTopicHealthChange(SHARD, TOPIC, TopicHealth.NOT_SUBSCRIBED),
        ShardHealthChange(SHARD, TopicHealth.NOT_SUBSCRIBED),
    ]
    assert health.unsubscribe(SHARD, TOPIC, 4) == []
    assert health.unsubscribe(OTHER, TOPIC, 4) == []


def test_a_subscription_in_the_moment_of_a_change_tells_of_each_topic_once() -> None:
    health = healthy_edge()
    health.report(SHARD, ONE_EACH, 10)
    assert health.subscribe(SHARD, TOPIC, 12) == [  # the change is due, and nobody ticked
        MINIMALLY,
        ShardHealthChange(SHARD, TopicHealth.MINIMALLY_HEALTHY),
        ContentTopicHealthChange(SHARD, TOPIC, TopicHealth.MINIMALLY_HEALTHY),
    ]


# No flapping, and the truth in the end.

readings = st.lists(
    st.tuples(st.floats(0, 10, exclude_min=True), st.sampled_from(HealthStatus)), min_size=1, max_size=60
)


def followed(
    inputs: list[tuple[float, HealthStatus]], settle_s: float
) -> tuple[list[tuple[float, HealthStatus]], Settling[HealthStatus], float]:
    """The changes that follow readings, each some seconds after the one before; the last one's time."""
    settling = Settling(UNHEALTHY, settle_s)
    changes: list[tuple[float, HealthStatus]] = []
    now = 0.0
    for pause, reading in inputs:
        after = now + pause
        while settling.due < after:
            now = settling.due
            assert settling.tick(now), "what is due happens"
            changes.append((now, settling.status))
        now = after
        if settling.update(reading, now):
            changes.append((now, settling.status))
    return changes, settling, now


@given(readings, st.floats(0.01, 5))
def test_a_flapping_input_makes_one_change_in_a_settle_time_besides_the_fall_to_unhealthy(
    inputs: list[tuple[float, HealthStatus]], settle_s: float
) -> None:
    changes, _, _ = followed(inputs, settle_s)
    for (earlier, before), (later, after) in pairwise(changes):
        assert before is not after
        assert after is UNHEALTHY or later - earlier >= settle_s * (1 - 1e-9)


@given(readings, st.floats(0, 5))
def test_the_status_of_a_constant_input_is_its_criterion_within_the_settle_time(
    inputs: list[tuple[float, HealthStatus]], settle_s: float
) -> None:
    _, settling, now = followed(inputs, settle_s)
    end = now + settle_s
    if settling.due <= end:
        settling.tick(end)
    assert settling.status is inputs[-1][1]
    assert settling.due == math.inf


@given(readings, st.floats(0, 5))
def test_unhealthy_is_never_late(inputs: list[tuple[float, HealthStatus]], settle_s: float) -> None:
    for length in range(1, len(inputs) + 1):
        _, settling, _ = followed(inputs[:length], settle_s)
        if inputs[length - 1][1] is UNHEALTHY:
            assert settling.status is UNHEALTHY


steps = st.lists(
    st.tuples(
        st.floats(0, 3),
        st.one_of(
            st.tuples(
                st.just("report"),
                st.sampled_from([SHARD, OTHER]),
                st.builds(
                    ShardPeers, filter=st.integers(0, 2), lightpush=st.integers(0, 2), mesh=st.integers(0, 7)
                ),
            ),
            st.tuples(
                st.sampled_from(["subscribe", "unsubscribe", "need", "need_no_more"]),
                st.sampled_from([SHARD, OTHER]),
                st.none(),
            ),
            st.tuples(st.sampled_from(["offline", "online"]), st.none(), st.none()),
        ),
    ),
    max_size=40,
)


@given(st.sampled_from(["edge", "relay"]), steps)
def test_changes_tell_all_of_what_can_be_looked_up(
    mode: Literal["edge", "relay"],
    inputs: list[tuple[float, tuple[str, str, ShardPeers | None]]],
) -> None:
    health = Health(mode, [SHARD])
    heard: dict[str, HealthStatus | TopicHealth] = {"node": UNHEALTHY}
    for shard in (SHARD, OTHER):
        heard[shard] = health.shard_health(shard)
        heard[shard + TOPIC] = TopicHealth.NOT_SUBSCRIBED
    now = 0.0

    def hear(changes: list[HealthChange]) -> None:
        for change in changes:
            match change:
                case HealthStatus():
                    key, value = "node", change
                case ShardHealthChange():
                    key, value = change.pubsub_topic, change.health
                case ContentTopicHealthChange():
                    key, value = change.pubsub_topic + change.content_topic, change.health
            assert heard[key] is not value, "what is told is a change"
            heard[key] = value
        assert heard["node"] is health.status
        for shard in (SHARD, OTHER):
            assert heard[shard] is health.shard_health(shard)
            assert heard[shard + TOPIC] is health.content_topic_health(shard, TOPIC)

    for pause, (what, shard, peers) in inputs:
        after = now + pause
        while health.next_tick < after:
            now = health.next_tick
            hear(health.tick(now))
        now = after
        match what:
            case "report":
                assert peers is not None
                hear(health.report(shard, peers, now))
            case "subscribe":
                hear(health.subscribe(shard, TOPIC, now))
            case "unsubscribe":
                hear(health.unsubscribe(shard, TOPIC, now))
            case "need":
                hear(health.need(shard, now))
            case "need_no_more":
                hear(health.need_no_more(shard, now))
            case _:
                hear(health.set_offline(what == "offline", now))
        assert health.next_tick > now, "nothing is left that is already due"
