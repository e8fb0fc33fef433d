"""SDS Repair (SDS-R): requests, responses, response groups."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pywaku.errors import InvalidInput
from pywaku.sds import Delivered, Purpose, RepairOptions, SdsOptions
from pywaku.sds.repair_times import hash_of, is_in_response_group, request_delay_ms, response_delay_ms
from pywaku.wire.sds import HistoryEntry
from tests.support.sds_channels import START_MS, Side, content, decoded, entries, sync

SDSR: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "sds.json").read_text(encoding="utf-8"))[
    "sdsr"
]
REPAIR = RepairOptions()
NEVER = 10**9


def quiet(name: str, **options: Any) -> Side:
    """A side that sends nothing of itself but repairs."""
    options.setdefault("timeout_for_lost_messages_ms", NEVER)
    return Side(name, sync_min_interval_ms=0, acknowledgement_timeout_ms=NEVER, **options)


def requested(side: Side) -> list[str]:
    """What a sync message would request now."""
    if not side.sds.sync(side.now_ns):
        return []
    return [entry.message_id for entry in decoded(side.sds.take_transmissions()[0]).repair_request]


def test_known_hashes() -> None:
    for text, number in SDSR["hashToInteger"].items():
        assert hash_of(text) == int(number)
    for pair, number in SDSR["combinedHash"].items():
        assert hash_of(pair.replace("|", "")) == int(number)


def test_known_request_times() -> None:
    for pair, delay in SDSR["tReq_default"].items():
        me, message_id = pair.split("|")
        assert request_delay_ms(me, message_id, REPAIR) == delay


def test_known_response_times() -> None:
    for case, delay in SDSR["tResp_default"].items():
        me, sender, message_id = case.split("|")
        found = response_delay_ms(me.partition("=")[2], sender.partition("=")[2], message_id, REPAIR)
        assert found == delay


def test_known_response_groups() -> None:
    for case, expected in SDSR["responseGroup"].items():
        groups, me, sender, message_id = [part.partition("=")[2] or part for part in case.split("|")]
        options = RepairOptions(num_response_groups=int(groups))
        assert is_in_response_group(me, sender, message_id, options) is expected


def test_a_participant_is_always_in_the_response_group_of_its_own_messages() -> None:
    options = RepairOptions(num_response_groups=50)
    assert all(is_in_response_group("alice", "alice", f"m{number}", options) for number in range(100))


def test_the_recommended_number_of_response_groups() -> None:
    assert [RepairOptions.response_groups_for(count) for count in (1, 127, 128, 1_000)] == [1, 1, 2, 8]


def test_entries_of_the_causal_history_name_the_sender() -> None:
    side = Side("alice")
    side.hear(content("a"))
    side.send()
    assert [entry.sender_id for entry in decoded(side.sync()).causal_history] == ["bob", "alice"]
    plain = Side("alice", repair=None)
    plain.hear(content("a"))
    assert [entry.sender_id for entry in decoded(plain.sync()).causal_history] == [None]


def test_entries_are_requested_once_t_req_has_expired() -> None:
    side = quiet("alice")
    missing = HistoryEntry("msg-1", b"hint", "bob")
    side.hear(content("a", causal_history=(missing,)))
    delay = SDSR["tReq_default"]["alice|msg-1"]
    assert requested(side.at(delay - 1)) == []
    assert decoded(side.at(delay).sync()).repair_request == (missing,)


def test_requests_go_with_content_as_well() -> None:
    side = quiet("alice")
    side.hear(content("a", "x"))
    assert [entry.message_id for entry in decoded(side.at(120_000).send()).repair_request] == ["x"]


def test_the_field_is_left_unset_if_nothing_is_eligible() -> None:
    side = quiet("alice")
    side.hear(content("a", "x"))
    assert decoded(side.at(29_999).send()).repair_request == ()


def test_the_quota_is_filled_by_the_entries_with_the_lowest_t_req() -> None:
    side = quiet("alice")
    ids = [f"x{number}" for number in range(10)]
    side.hear(content("a", *ids))
    ids.sort(key=lambda one: request_delay_ms("alice", one, REPAIR))
    side.at(120_000)
    assert [requested(side) for _ in range(4)] == [ids[:3], ids[3:6], ids[6:9], ids[9:]]


def test_a_received_message_is_requested_no_longer() -> None:
    side = quiet("alice")
    side.hear(content("a", "x", "y"), content("x"))
    assert requested(side.at(120_000)) == ["y"]


def test_dependencies_of_sync_messages_are_requested_too() -> None:
    side = quiet("alice")
    side.hear(sync("x"))
    assert requested(side.at(120_000)) == ["x"]


def test_a_request_of_somebody_else_removes_ours_until_a_response_had_its_time() -> None:
    side = quiet("alice")
    side.hear(content("a", "x"))
    side.at(10_000).hear(sync(sender="carol", repair_request=entries("x")))
    delay = request_delay_ms("alice", "x", REPAIR)
    assert requested(side.at(delay)) == []
    assert requested(side.at(10_000 + 120_000 + delay - 1)) == []
    assert requested(side.at(10_000 + 120_000 + delay)) == ["x"]


def test_requests_are_repeated_with_back_off_until_the_message_is_lost() -> None:
    side = quiet("alice", timeout_for_lost_messages_ms=3_600_000)
    side.hear(content("a", "x"))
    times: list[int] = []
    for now in range(0, 3_700_000, 1_000):
        side.tick(now)
        if requested(side):
            times.append(now)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert all(later == 600_000 or later >= 1.9 * earlier for earlier, later in pairwise(pauses))
    assert pauses[0] >= 120_000
    assert side.delivered() == ["a"]


def test_there_is_time_for_some_requests_before_a_message_is_lost() -> None:
    side = quiet("alice", timeout_for_lost_messages_ms=600_000)
    side.hear(content("a", "x"))
    times = [now for now in range(0, 601_000, 1_000) if requested(side.at(now))]
    assert len(times) >= 5
    assert all(later - earlier >= 100_000 for earlier, later in pairwise(times))


def test_the_original_sender_responds_at_once_with_the_same_bytes() -> None:
    side = quiet("alice")
    sent = side.send()
    side.hear(sync(repair_request=entries(sent.message_id, sender_id="alice")))
    assert side.tick() == [(sent.message_id, sent.data, Purpose.REPAIR, 1)]


def test_an_acknowledged_message_can_still_be_repaired() -> None:
    side = quiet("alice")
    sent = side.send()
    side.hear(sync(sent.message_id), sync(lamport=START_MS + 1, repair_request=entries(sent.message_id)))
    assert [one.data for one in side.tick()] == [sent.data]


def test_others_respond_when_t_resp_has_expired() -> None:
    sender, side = quiet("bob"), quiet("alice")
    sent = sender.send(message_id="msg-1")
    side.hear(sent.data)
    side.at(1_000).hear(sync(sender="carol", repair_request=entries("msg-1", sender_id="bob")))
    due = 1_000 + SDSR["tResp_default"]["me=alice|sender=bob|msg-1"]
    assert side.tick(due - 1) == []
    assert side.tick(due) == [("msg-1", sent.data, Purpose.REPAIR, 1)]
    assert side.tick(due + NEVER // 2) == [], "once"


def test_a_response_is_cancelled_when_somebody_else_has_responded() -> None:
    side = quiet("alice")
    message = content("msg-1")
    side.hear(message, sync(sender="carol", repair_request=entries("msg-1")), message)
    assert side.tick(200_000) == []
    assert side.sds.counters.repairs_by_others == 1


def test_only_the_response_group_responds() -> None:
    options = RepairOptions(num_response_groups=2)
    responses = 0
    for number in range(100):
        side = quiet("alice", repair=options)
        side.hear(content(f"m{number}"), sync(sender="carol", repair_request=entries(f"m{number}")))
        responses += len(side.tick(120_000))
    assert 30 < responses < 70


def test_only_messages_that_one_may_have_to_respond_with_are_kept() -> None:
    options = RepairOptions(num_response_groups=4)
    side = quiet("alice", repair=options)
    ids = [f"m{number}" for number in range(100)]
    side.hear(*[content(one) for one in ids])
    mine = [one for one in ids if is_in_response_group("alice", "bob", one, options)]
    assert side.sds.sizes().cached == len(mine)
    assert 10 < len(mine) < 40


def test_what_is_not_in_the_log_is_not_responded_to() -> None:
    side = quiet("alice")
    side.hear(content("waiting", "unknown"))
    side.hear(sync(sender="carol", repair_request=entries("waiting", "unknown", "never heard of")))
    assert side.tick(120_000) == []
    assert side.sds.counters.repair_requests_ignored == 3


def test_the_sender_of_a_requested_message_is_the_one_in_the_log() -> None:
    side = quiet("alice")
    side.hear(content("msg-1", sender="bob"))
    side.hear(sync(sender="carol", repair_request=entries("msg-1", sender_id="alice")))
    due = SDSR["tResp_default"]["me=alice|sender=bob|msg-1"]
    assert side.tick(due - 1) == []
    assert len(side.tick(due)) == 1


def test_a_repair_is_not_sent_again_at_once_and_is_later() -> None:
    side = quiet("alice")
    sent = side.send()
    for now in (0, 10, 29_999):
        side.at(now).hear(sync(lamport=START_MS + now, repair_request=entries(sent.message_id)))
        assert len(side.tick()) == (now == 0)
    side.tick(30_000)
    side.hear(sync(lamport=START_MS + 30_000, repair_request=entries(sent.message_id)))
    assert len(side.tick()) == 1


def test_requests_in_one_message_are_looked_at_up_to_a_bound() -> None:
    side = quiet("alice")
    ids = [side.send(b"%d" % number).message_id for number in range(20)]
    side.hear(sync(repair_request=entries(*ids)))
    assert len(side.tick()) == 16
    assert side.sds.counters.repair_requests_ignored == 4


def test_a_repaired_message_is_delivered_like_any_other() -> None:
    sender, helper, side = quiet("bob"), quiet("alice"), quiet("carol")
    lost, after = sender.send(b"1"), sender.send(b"2")
    helper.hear(lost.data, after.data)
    side.hear(after.data)
    asked = side.at(120_000).sync()
    helper.at(120_000).hear(asked)
    (repair,) = helper.tick(240_000)
    side.hear(repair.data)
    assert [event.content for event in side.take(Delivered)] == [b"1", b"2"]
    assert requested(side.at(NEVER // 2)) == []


def test_without_repair_nothing_is_requested_kept_or_responded_to() -> None:
    side = quiet("alice", repair=None)
    sent = side.send()
    side.hear(content("b", "x"), sync(sent.message_id, repair_request=entries(sent.message_id)))
    assert requested(side.at(NEVER // 2)) == []
    assert side.tick() == []
    assert side.sds.sizes().cached == 0


@pytest.mark.parametrize(
    ("option", "value"), [("t_min_ms", 120_000), ("num_response_groups", 0), ("max_requests_per_message", -1)]
)
def test_impossible_repair_options_are_refused(option: str, value: int) -> None:
    with pytest.raises(InvalidInput, match=option):
        SdsOptions(repair=RepairOptions(**{option: value}))
