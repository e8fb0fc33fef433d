"""RELIABLE-CHANNEL-API, ReliableChannelOptions, SdsConfig, SegmentationConfig: defaults of both versions."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import pywaku
from pywaku.channels import ReliableChannelOptions
from pywaku.errors import InvalidInput
from pywaku.sds import MessageIds


def test_the_defaults_are_those_of_the_second_version() -> None:
    options = ReliableChannelOptions()
    assert options.acknowledgement_timeout_ms == 5_000
    assert options.max_retransmissions == 5
    assert options.causal_history_size == 2
    assert options.segmentation.segment_size_bytes == 102_400
    assert options.segmentation.enable_reed_solomon is False
    assert options.wrap_segments is True
    assert options.message_ids is MessageIds.UNIQUE


def test_what_only_the_first_version_knows_has_its_defaults() -> None:
    options = ReliableChannelOptions()
    assert options.sync_min_interval_ms == 30_000
    assert options.retrieve_frequency_ms == 10_000
    assert options.query_on_connect is True
    assert options.query_threshold_ms == 300_000
    assert options.auto_start is True
    assert options.possible_acks_threshold == 2
    # A timer of its own for each thing that is due leaves nothing to sweep for, and batches nothing up.
    assert options.sweep_in_buf_interval_ms == 0
    assert options.process_task_min_elapse_ms == 0


def test_js_waku_has_the_defaults_of_the_first_version() -> None:
    options = ReliableChannelOptions.js_waku()
    assert options.sync_min_interval_ms == 30_000
    assert options.acknowledgement_timeout_ms == 30_000  # retry_interval_ms
    assert options.max_retransmissions == 10  # max_retry_attempts
    assert options.retrieve_frequency_ms == 10_000
    assert options.sweep_in_buf_interval_ms == 5_000
    assert options.process_task_min_elapse_ms == 1_000
    assert options.causal_history_size == 200
    assert options.query_on_connect is True
    assert options.auto_start is True
    assert options.wrap_segments is False
    assert options.message_ids is MessageIds.UNIQUE, "hashes of payloads collide"


@pytest.mark.parametrize("options", [ReliableChannelOptions(), ReliableChannelOptions.js_waku()])
def test_the_sds_core_is_configured_as_the_first_version_says_it_should_be(
    options: ReliableChannelOptions,
) -> None:
    sds = options.sds()
    assert sds.bloom_filter_capacity == 10_000
    assert sds.bloom_filter_error_rate == 0.001
    assert sds.possible_acks_threshold == 2
    assert sds.causal_history_size == options.causal_history_size
    assert sds.acknowledgement_timeout_ms == options.acknowledgement_timeout_ms
    assert sds.max_retransmissions == options.max_retransmissions
    assert sds.max_outgoing == options.max_unacknowledged
    assert sds.message_ids is options.message_ids
    assert sds.repair is options.repair


@pytest.mark.parametrize("value", [None, 0])
def test_lost_messages_are_waited_for_without_end_where_the_time_is_0_or_undefined(value: int | None) -> None:
    assert (
        ReliableChannelOptions(timeout_for_lost_messages_ms=value).sds().timeout_for_lost_messages_ms is None
    )


def test_sync_messages_are_switched_off_with_0() -> None:
    assert ReliableChannelOptions(sync_min_interval_ms=0).sds().sync_min_interval_ms == 0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"sync_min_interval_ms": -1}, "sync_min_interval_ms: is at least 0"),
        ({"sweep_in_buf_interval_ms": -1}, "sweep_in_buf_interval_ms"),
        ({"process_task_min_elapse_ms": -1}, "process_task_min_elapse_ms"),
        ({"query_threshold_ms": -1}, "query_threshold_ms"),
        ({"retrieve_frequency_ms": 0}, "retrieve_frequency_ms: is at least 1"),
        ({"query_age_limit_ms": 0}, "query_age_limit_ms"),
        ({"max_unacknowledged": 0}, "max_unacknowledged"),
        ({"causal_history_size": 201}, "causal_history_size must be 0 to 200"),
        ({"causal_history_size": -1}, "causal_history_size"),
        ({"possible_acks_threshold": 0}, "possible_acks_threshold"),
        ({"acknowledgement_timeout_ms": 0}, "acknowledgement_timeout_ms"),
        ({"max_retransmissions": -1}, "max_retransmissions"),
        ({"timeout_for_lost_messages_ms": -1}, "timeout_for_lost_messages_ms"),
        ({"delivered_to": "some"}, "delivered_to: is any, all-known, or a set"),
        ({"delivered_to": frozenset[str]()}, "delivered_to"),
    ],
)
def test_values_that_cannot_be_are_refused_by_name(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        ReliableChannelOptions(**values)


def test_whom_a_message_is_delivered_to_may_be_any_collection() -> None:
    assert ReliableChannelOptions(delivered_to={"a", "b"}).delivered_to == frozenset("ab")  # pyright: ignore[reportArgumentType]


def test_the_rate_limit_is_that_of_the_second_version() -> None:
    limit = pywaku.RateLimitConfig()
    assert (limit.enabled, limit.epoch_period_sec, limit.approach_threshold) == (False, 600, 0.9)


def test_the_encryption_is_intentionally_optional() -> None:
    parameters = inspect.signature(pywaku.create_reliable_channel).parameters
    assert parameters["encryption"].default is None
    assert parameters["options"].default is None


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"max_retransmissions": "5"}, "max_retransmissions: is an int, not '5'"),
        ({"acknowledgement_timeout_ms": 0.5}, "acknowledgement_timeout_ms: is an int, not 0.5"),
        ({"retrieve_frequency_ms": None}, "retrieve_frequency_ms: is an int, not None"),
        ({"auto_start": "no"}, "auto_start: is True or False, not 'no'"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_by_its_name(values: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        ReliableChannelOptions(**values)
    assert ReliableChannelOptions(timeout_for_lost_messages_ms=None).timeout_for_lost_messages_ms is None
