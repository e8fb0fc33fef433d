"""SDS, Send Message: every MUST and SHOULD of it, and what the caller has to know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pywaku.errors import InvalidInput, LimitExceeded
from pywaku.sds import Acknowledged, MessageIds, NotAcknowledged, Purpose, SdsOptions
from pywaku.sds.message_ids import content_id, unique_id
from pywaku.wire.sds import SdsKind
from tests.support.sds_channels import CHANNEL, START_MS, Side, bloom, content, decoded, sync

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "sds.json").read_text(encoding="utf-8")
)


def test_a_message_includes_sender_id_message_id_channel_id_and_content() -> None:
    sent = Side("alice").send(b"hello")
    message = decoded(sent)
    assert (message.sender_id, message.channel_id, message.content) == ("alice", CHANNEL, b"hello")
    assert message.message_id == sent.message_id
    assert message.kind is SdsKind.CONTENT
    assert sent.purpose is Purpose.CONTENT


def test_the_lamport_timestamp_is_initialized_to_the_current_time_in_milliseconds() -> None:
    assert Side("alice").sds.lamport_timestamp == START_MS


def test_the_lamport_timestamp_is_set_to_the_time_or_one_more_than_before() -> None:
    side = Side("alice")
    assert decoded(side.send(b"1")).lamport_timestamp == START_MS + 1
    assert decoded(side.send(b"2")).lamport_timestamp == START_MS + 2
    assert decoded(side.at(500).send(b"3")).lamport_timestamp == START_MS + 500
    assert decoded(side.at(400).send(b"4")).lamport_timestamp == START_MS + 501
    assert side.sds.lamport_timestamp == START_MS + 501


def test_a_retired_message_is_not_sent_again_and_stays_in_the_log_for_repair() -> None:
    side = Side("alice")
    made = side.send()
    assert side.sds.retire(made.message_id)
    assert not side.sds.retire(made.message_id)
    assert side.sds.unacknowledged() == ()
    assert side.sds.log(1) == (made.message_id,)
    assert side.sds.sizes().cached == 1
    assert not [one for one in side.tick(60_000) if one.purpose is Purpose.RETRANSMISSION]
    assert not any(isinstance(event, NotAcknowledged) for event in side.events)


def test_the_bloom_filter_is_the_state_before_the_message() -> None:
    side = Side("alice")
    side.hear(content("x"))
    first = side.send(b"1")
    assert decoded(first).bloom_filter == bloom(["x"])
    assert decoded(side.send(b"2")).bloom_filter == bloom(["x", first.message_id])


def test_a_sent_message_is_added_to_the_outgoing_buffer_and_to_the_log() -> None:
    side = Side("alice")
    sent = side.send(b"1")
    assert side.sds.unacknowledged() == (sent.message_id,)
    assert side.sds.log(5) == (sent.message_id,)


def test_known_message_ids() -> None:
    vector = VECTORS["unique_id"]
    assert unique_id(vector["senderId"], int(vector["ns"]), vector["content_utf8"].encode()) == vector["id"]
    for vector in VECTORS["messageId"]:
        assert content_id(vector["utf8"].encode()) == vector["id"]


def test_equal_content_has_different_ids_even_within_one_nanosecond() -> None:
    side = Side("alice")
    ids = [side.send(b"same").message_id for _ in range(3)]
    assert len(set(ids)) == 3
    assert ids[0] == unique_id("alice", side.now_ns, b"same")


def test_ids_of_js_waku_are_an_option_and_sending_content_again_gets_another_one() -> None:
    side = Side("alice", message_ids=MessageIds.CONTENT)
    first = side.send(b"same")
    assert first.message_id == content_id(b"same")
    side.hear(sync(first.message_id))
    assert side.take(Acknowledged)
    second = side.send(b"same")
    assert second.message_id != first.message_id
    assert second.message_id not in [entry.message_id for entry in decoded(second).causal_history]


def test_the_caller_may_choose_an_id_that_is_not_taken() -> None:
    side = Side("alice")
    assert side.send(b"1", message_id="chosen").message_id == "chosen"
    for taken in ("chosen", "waiting"):
        side.hear(content("waiting", "unknown"))
        with pytest.raises(InvalidInput, match="taken"):
            side.send(b"2", message_id=taken)


@pytest.mark.parametrize(
    "arguments", [{"message_id": ""}, {"message_id": "x" * 513}, {"message_id": "\ud800"}]
)
def test_impossible_ids_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="message_id"):
        Side("alice").send(b"1", **arguments)
    with pytest.raises(InvalidInput, match="sender_id"):
        Side(arguments["message_id"])


def test_a_message_needs_content() -> None:
    side = Side("alice")
    with pytest.raises(InvalidInput, match="content"):
        side.send(b"")
    with pytest.raises(InvalidInput, match="content"):
        side.sds.send_ephemeral(b"", side.now_ns)


@pytest.mark.parametrize("recipients", [[], ["alice"], ["bob", "alice"]])
def test_recipients_are_others(recipients: list[str]) -> None:
    with pytest.raises(InvalidInput, match="recipients"):
        Side("alice").send(b"1", recipients=recipients)


def test_nothing_more_is_taken_while_the_outgoing_buffer_is_full() -> None:
    side = Side("alice", max_outgoing=2)
    first, second = side.send(b"1"), side.send(b"2")
    with pytest.raises(LimitExceeded, match="2 messages"):
        side.send(b"3")
    assert side.sds.log(5) == (first.message_id, second.message_id)
    side.hear(sync(first.message_id))
    side.send(b"3")
    with pytest.raises(LimitExceeded):
        Side("alice", max_outgoing_bytes=10).send(b"more than ten")


def test_a_message_that_can_never_be_sent_is_withdrawn_from_log_filter_and_buffer() -> None:
    side = Side("alice")
    first, gone = side.send(b"1"), side.send(b"2")
    assert side.sds.withdraw(gone.message_id)
    assert not side.sds.withdraw(gone.message_id)
    assert side.sds.unacknowledged() == (first.message_id,)
    message = decoded(side.send(b"3"))
    assert [entry.message_id for entry in message.causal_history] == [first.message_id]
    assert message.bloom_filter == bloom([first.message_id])
    assert gone.message_id not in [one.message_id for one in side.tick(100_000)]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("causal_history_size", 201),
        ("causal_history_size", -1),
        ("bloom_filter_capacity", 0),
        ("bloom_filter_error_rate", 0.0),
        ("possible_acks_threshold", 0),
        ("timeout_for_lost_messages_ms", 0),
        ("max_retransmissions", -1),
        ("max_log", 1),
        ("max_lamport_ahead_ms", -1),
    ],
)
def test_impossible_options_are_refused(option: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=option):
        SdsOptions(**{option: value})
