"""SDS, Send Message: causal histories, with loose ends and hints, and parts that are sent together."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from pywaku.errors import InvalidInput, LimitExceeded
from pywaku.sds import SdsChannel, SdsOptions
from pywaku.wire.sds import decode_sds
from tests.support.sds_channels import CHANNEL, START_MS, Side, content, decoded

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parent / "data" / "sds.json").read_text(encoding="utf-8")
)


def test_the_causal_history_has_the_preceding_ids_of_the_log_in_its_order() -> None:
    side = Side("alice", causal_history_size=3)
    side.hear(content("b", lamport=START_MS - 5), content("a", lamport=START_MS - 5))
    side.hear(content("c", lamport=START_MS - 9))
    assert [entry.message_id for entry in decoded(side.send(b"1")).causal_history] == ["c", "a", "b"]
    first = side.sds.log(1)[0]
    assert [entry.message_id for entry in decoded(side.send(b"2")).causal_history] == ["a", "b", first]


@pytest.mark.parametrize("size", [0, 1, 2, 200])
def test_the_number_of_ids_in_the_causal_history_is_configurable(size: int) -> None:
    side = Side("alice", causal_history_size=size)
    sent = [side.send(b"%d" % number) for number in range(250)]
    history = [entry.message_id for entry in decoded(sent[-1]).causal_history]
    assert history == [one.message_id for one in sent[249 - size : 249]]


def test_a_causal_history_of_two_is_the_default() -> None:
    assert SdsOptions().causal_history_size == 2


def test_messages_that_no_other_names_are_in_the_causal_history_however_old_they_are() -> None:
    side = Side("alice")
    side.hear(content("old", lamport=START_MS - 99), content("older", lamport=START_MS - 100))
    for number in range(5):
        side.hear(content(f"m{number}", *([f"m{number - 1}"] if number else []), lamport=START_MS + number))
    assert side.sds.sizes().heads == 3
    sent = decoded(side.at(50).send())
    assert sent.history_ids == ["older", "old", "m3", "m4"]
    assert side.sds.sizes().heads == 1
    assert decoded(side.send()).history_ids == ["m4", sent.message_id]


def test_a_causal_history_has_200_entries_at_most_and_the_next_ones_have_the_rest() -> None:
    side = Side("alice", causal_history_size=150)
    ids = [f"m{number:03}" for number in range(400)]
    side.hear(*[content(message_id, lamport=START_MS + number) for number, message_id in enumerate(ids)])
    assert side.sds.sizes().heads == 400
    first = decoded(side.at(1_000).send())
    # The loose ends in front of the last 150, and as many of those as there is room for.
    assert first.history_ids == [*ids[:199], ids[399]]
    second = decoded(side.at(1_001).send())
    assert second.history_ids == [*ids[199:251], *ids[253:], first.message_id]
    third = decoded(side.at(1_002).send())
    assert {*first.history_ids, *second.history_ids, *third.history_ids}.issuperset(ids)


def test_loose_ends_are_bounded_and_the_oldest_go_first() -> None:
    side = Side("alice", max_log=2_000)
    side.hear(*[content(f"m{number:04}", lamport=START_MS + number) for number in range(1_500)])
    assert side.sds.sizes().heads == 1_000
    assert side.sds.counters.heads_evicted == 500
    assert decoded(side.at(9_000).send()).history_ids[0] == "m0500"


def test_sync_messages_name_other_loose_ends_each_time_where_there_are_too_many() -> None:
    side = Side("alice")
    side.hear(*[content(f"m{number:03}", lamport=START_MS + number) for number in range(400)])
    histories = [decode_sds(side.sync()).history_ids for _ in range(12)]
    assert all(len(history) <= 200 for history in histories)
    assert len({message_id for history in histories for message_id in history}) > 390


def test_parts_of_one_thing_have_the_causal_history_of_the_first() -> None:
    side = Side("alice")
    side.hear(content("old", lamport=START_MS - 9), content("a"), content("b", "a", lamport=START_MS + 1))
    parts = [b"part %d" % number for number in range(5)]
    made = side.sds.send_together(parts, side.now_ns, size=35)
    messages = [decoded(one) for one in made]
    assert [message.content for message in messages] == parts
    assert {tuple(message.history_ids) for message in messages} == {("old", "a", "b")}
    stamps = [message.lamport_timestamp or 0 for message in messages]
    assert stamps == sorted(set(stamps))
    assert decoded(side.send()).history_ids == [message.message_id for message in messages]


def test_who_lacks_one_part_delivers_the_others_and_names_them_all() -> None:
    alice, bob = Side("alice"), Side("bob")
    made = alice.sds.send_together([b"%d" % number for number in range(30)], alice.now_ns, size=60)
    bob.hear(*[one.data for number, one in enumerate(made) if number != 7])
    assert len(bob.delivered()) == 29
    alice.at(100).hear(bob.at(100).send().data)
    assert alice.sds.unacknowledged() == (made[7].message_id,)


def test_of_many_parts_one_now_and_then_names_those_before_it_so_that_all_are_named() -> None:
    side = Side("alice")
    made = side.sds.send_together([b"%d" % number for number in range(255)], side.now_ns, size=600)
    sizes = [len(decoded(one).causal_history) for one in made]
    assert [number for number, size in enumerate(sizes) if size] == [150]
    assert max(sizes) <= 152
    named = {entry for one in [*made, side.send()] for entry in decoded(one).history_ids}
    assert named == {one.message_id for one in made}


def test_parts_are_taken_all_or_not_at_all() -> None:
    side = Side("alice", max_outgoing=10, max_outgoing_bytes=1_000_000)
    side.hear(content("a"))
    side.sds.send(b"one", side.now_ns)
    for count, size in ((10, 10), (2, 1_000_000)):
        with pytest.raises(LimitExceeded):
            side.sds.send_together([b"x"] * count, side.now_ns, size=size)
    assert side.sds.sizes().outgoing == 1
    assert side.sds.sizes().log == 2
    assert len(side.sds.send_together([b"x"] * 9, side.now_ns, size=9)) == 9


def test_what_a_withdrawn_message_named_is_a_loose_end_again() -> None:
    side = Side("alice", causal_history_size=1)
    side.hear(content("a"), content("b", lamport=START_MS + 1))
    doomed = side.at(10).sds.send(b"never", side.now_ns)
    assert decoded(doomed).history_ids == ["a", "b"]
    assert side.sds.withdraw(doomed.message_id)
    assert decoded(side.send()).history_ids == ["a", "b"]


def test_an_entry_may_include_a_retrieval_hint_that_was_reported_received_or_provided() -> None:
    side = Side("alice", causal_history_size=3)
    made = side.sds.send(b"own", side.now_ns)
    side.sds.sent(made.message_id, side.now_ns, retrieval_hint=b"reported")
    side.at(1).hear(content("x", lamport=START_MS + 9), hint=b"received")
    side.hear(content("y", lamport=START_MS + 10))
    history = decoded(side.send(b"2")).causal_history
    assert [entry.retrieval_hint for entry in history] == [b"reported", b"received", None]
    side.sds.set_retrieval_hint("y", b"later")
    assert decoded(side.send(b"3")).causal_history[-2].retrieval_hint == b"later"


def test_hints_come_from_the_provider_where_it_knows_them_and_are_kept() -> None:
    known: dict[str, bytes] = {}
    asked: list[str] = []

    def provider(message_id: str) -> bytes | None:
        asked.append(message_id)
        return known.get(message_id)

    now = START_MS * 1_000_000
    channel = SdsChannel(CHANNEL, "alice", rng=random.Random(1), now_ns=now, hints=provider)
    first = channel.send(b"1", now).message_id
    assert decoded(channel.send(b"2", now)).causal_history[0].retrieval_hint is None
    known[first] = b"hash"
    assert decoded(channel.send(b"3", now)).causal_history[0].retrieval_hint == b"hash"
    asked.clear()
    channel.set_retrieval_hint(channel.log(2)[0], b"other")
    channel.send(b"4", now)
    assert first not in asked


def test_hints_that_others_would_refuse_are_refused_here() -> None:
    side = Side("alice")
    side.hear(content("x"))
    with pytest.raises(InvalidInput, match="512"):
        side.sds.set_retrieval_hint("x", bytes(513))
    with pytest.raises(InvalidInput, match="512"):
        side.hear(content("y"), hint=bytes(513))
