"""SDS, Periodic Sync Message and Ephemeral Messages; sync timing as in js-waku."""

from __future__ import annotations

import random

import pytest

from pywaku.sds import Acknowledged, EphemeralReceived, Outcome, Purpose, SdsChannel, SdsOptions
from pywaku.wire.sds import SdsKind, SdsMessage
from tests.support.sds_channels import CHANNEL, START_MS, Side, bloom, content, decoded, sync


def only_sync(side: Side) -> SdsMessage:
    """What the next sync message says."""
    return decoded(side.sync())


def test_a_sync_message_is_sent_with_empty_content() -> None:
    side = Side("alice")
    side.hear(content("a"))
    message = only_sync(side)
    assert not message.content
    assert message.kind is SdsKind.SYNC
    assert (message.sender_id, message.channel_id) == ("alice", CHANNEL)
    assert message.message_id.startswith("sync-")


def test_a_sync_message_includes_an_increased_lamport_timestamp() -> None:
    side = Side("alice")
    side.hear(content("a", lamport=START_MS + 30))
    assert only_sync(side).lamport_timestamp == START_MS + 31
    assert only_sync(side.at(500)).lamport_timestamp == START_MS + 500
    assert side.sds.lamport_timestamp == START_MS + 500


def test_a_sync_message_includes_causal_history_and_bloom_filter() -> None:
    side = Side("alice")
    side.hear(content("a"), content("b", "a"), content("c", "b"))
    message = only_sync(side)
    assert [entry.message_id for entry in message.causal_history] == ["b", "c"]
    assert message.bloom_filter == bloom(["a", "b", "c"])


def test_a_sync_message_is_not_added_to_buffer_history_filter_or_log() -> None:
    side = Side("alice")
    side.hear(content("a"))
    before = (side.sds.sizes(), side.sds.log(9), decoded(side.sync()).bloom_filter)
    for _ in range(3):
        side.sync()
    assert (side.sds.sizes(), side.sds.log(9), decoded(side.sync()).bloom_filter) == before
    assert side.sds.unacknowledged() == ()


def test_a_received_sync_message_is_processed_and_not_kept() -> None:
    side = Side("alice")
    sent = side.send().message_id
    sizes = side.sds.sizes()
    assert side.hear(sync(sent)) is Outcome.SYNC
    assert side.take(Acknowledged)
    assert side.sds.log(9) == (sent,)
    after = side.sds.sizes()
    assert after.bloom_filter == sizes.bloom_filter
    assert after.incoming == 0


def test_no_sync_message_is_sent_without_history_or_repair_requests() -> None:
    side = Side("alice")
    assert not side.sds.sync(side.now_ns)
    assert side.tick(1_000_000) == []
    side.hear(sync("missing", lamport=START_MS + 1))
    side.at(3_000_000)
    assert [entry.message_id for entry in only_sync(side).repair_request] == ["missing"]


@pytest.mark.parametrize(
    ("factor", "event"),
    [
        (0.5, "content received"),
        (1, "own content"),
        (1, "sync received"),
        (1, "start"),
        (2, "fired"),
    ],
)
def test_the_pause_before_a_sync_message_is_random_up_to_the_interval_times_a_factor(
    factor: float, event: str
) -> None:
    pauses: list[int] = []
    for seed in range(300):
        side = Side("alice", seed=seed, acknowledgement_timeout_ms=10**9, timeout_for_lost_messages_ms=10**9)
        if event == "content received":
            side.hear(content("a"))
        elif event == "own content":
            side.send()
        elif event == "sync received":
            side.hear(sync())
        elif event == "fired":
            side.tick(40_000)
        due_ns = side.sds.next_tick()
        assert due_ns is not None
        pauses.append(due_ns // 1_000_000 - START_MS - side.now_ms)
    limit = 30_000 * factor
    assert 0 <= min(pauses) < 0.05 * limit
    assert 0.95 * limit < max(pauses) < limit


def test_repair_requests_that_are_due_hasten_the_sync_message_and_nothing_puts_it_off() -> None:
    pauses: list[int] = []
    for seed in range(200):
        side = Side("alice", seed=seed)
        side.hear(sync("missing"))
        side.at(200_000).hear(sync("missing", lamport=START_MS + 2))
        due_ns = side.sds.next_tick()
        assert due_ns is not None
        for number in range(10):
            side.hear(sync("missing", lamport=START_MS + 3 + number))
        later_ns = side.sds.next_tick()
        assert later_ns is not None
        assert later_ns <= due_ns
        pauses.append(due_ns // 1_000_000 - START_MS - side.now_ms)
    assert max(pauses) < 9_000


def test_who_hears_a_sync_message_draws_anew_and_so_spares_its_own() -> None:
    later = 0
    for seed in range(100):
        side = Side("alice", seed=seed, acknowledgement_timeout_ms=10**9)
        side.hear(content("a"))
        before = side.sds.next_tick() or 0
        side.at(1_000).hear(sync("a", lamport=START_MS + 1))
        after = side.sds.next_tick() or 0
        assert after != before
        later += after > before
    assert later > 60, "a pause after a sync message is the longer one"


def test_sync_messages_can_be_switched_off() -> None:
    side = Side("alice", sync_min_interval_ms=0)
    side.hear(content("a"))
    assert side.sds.next_tick() is None


def test_an_ephemeral_message_has_timestamp_history_and_filter_unset() -> None:
    side = Side("alice")
    side.hear(content("a"))
    made = side.sds.send_ephemeral(b"typing", side.now_ns)
    message = decoded(made)
    assert made.purpose is Purpose.EPHEMERAL
    assert message.kind is SdsKind.EPHEMERAL
    assert message == SdsMessage("alice", made.message_id, CHANNEL, content=b"typing")


def test_an_ephemeral_message_is_not_added_to_the_outgoing_buffer_or_log() -> None:
    side = Side("alice")
    sizes, lamport = side.sds.sizes(), side.sds.lamport_timestamp
    side.sds.send_ephemeral(b"typing", side.now_ns)
    assert (side.sds.sizes(), side.sds.lamport_timestamp) == (sizes, lamport)


def test_an_ephemeral_message_is_delivered_immediately_without_regard_for_dependencies() -> None:
    other = SdsChannel(CHANNEL, "bob", SdsOptions(), rng=random.Random(1), now_ns=START_MS * 1_000_000)
    side = Side("alice")
    made = other.send_ephemeral(b"typing", START_MS * 1_000_000)
    sizes = side.sds.sizes()
    assert side.hear(made.data) is Outcome.EPHEMERAL
    odd = SdsMessage("bob", "e", CHANNEL, None, content("x", "unknown").causal_history, content=b"odd")
    assert side.hear(odd) is Outcome.EPHEMERAL
    assert side.events == [
        EphemeralReceived(made.message_id, "bob", b"typing"),
        EphemeralReceived("e", "bob", b"odd"),
    ]
    assert side.sds.sizes() == sizes


def test_own_ephemeral_messages_are_ignored() -> None:
    side = Side("alice")
    made = side.sds.send_ephemeral(b"typing", side.now_ns)
    assert side.hear(made.data) is Outcome.OWN
    assert not side.events


def test_who_hears_a_message_again_acknowledges_it_soon() -> None:
    """It is not acknowledged, or it would not be sent again."""
    for seed in range(20):
        side = Side("alice", seed=seed)
        side.hear(content("a"))
        side.now_ms = 5_000
        side.hear(content("a"))
        heard = [one for now_ms in range(5_000, 14_001, 250) for one in side.tick(now_ms)]
        assert [one.purpose for one in heard][:1] == [Purpose.SYNC]
        assert decoded(heard[0]).history_ids == ["a"]


def test_who_was_heard_a_moment_ago_is_in_no_hurry_to_acknowledge() -> None:
    side = Side("alice")
    side.hear(content("a"))
    sent = 0
    for now_ms in range(0, 600_000, 500):
        side.now_ms = now_ms
        side.hear(content("a"))
        sent += len(side.tick())
    assert sent <= 600_000 / 9_000


def test_who_was_heard_a_moment_ago_acknowledges_when_that_is_over() -> None:
    """What was said then did not do: it was lost, or the other waits to see it in two bloom filters."""
    for seed in range(20):
        side = Side("alice", seed=seed)
        side.hear(content("a"))
        side.now_ms = 5_000
        side.hear(content("a"))
        spoke = next(now_ms for now_ms in range(5_000, 14_001, 250) if side.tick(now_ms))
        side.now_ms = spoke + 6_000
        side.hear(content("a"))
        assert any(side.tick(now_ms) for now_ms in range(spoke + 6_000, spoke + 18_001, 250))


def test_who_hears_that_somebody_else_has_acknowledged_draws_the_pause_anew() -> None:
    due: list[int] = []
    for seed in range(50):
        side = Side("alice", seed=seed)
        side.hear(content("a", sender="carol"), content("a", sender="carol"))
        side.hear(sync("a", sender="bob"))
        due.append((side.sds.next_tick() or 0) // 1_000_000 - START_MS)
    assert max(due) > 20_000
