"""Several participants on a link that loses, delays, overtakes and doubles; some crash. All from one seed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pywaku.sds import RepairOptions, SdsOptions
from pywaku.wire.sds import encode_sds
from tests.support.sds_channels import START_MS, sync
from tests.support.sds_net import Member, SdsNet, Weather

MINUTE_MS = 60_000
PATIENT = SdsOptions(timeout_for_lost_messages_ms=None, repair=RepairOptions(t_min_ms=5_000, t_max_ms=20_000))


def converse(
    seed: int,
    *,
    members: int = 4,
    messages: int = 120,
    options: SdsOptions = PATIENT,
    crashes: bool = False,
    partitions: bool = False,
) -> SdsNet:
    """Messages of random senders over ten minutes, and an hour for all to be repaired."""
    print("seed", seed)
    net = SdsNet(members, seed, options, Weather())
    for number in range(messages):
        chosen = net.rng.choice(net.members)

        def say(number: int = number, member: Member = chosen) -> None:
            if not member.down:
                net.send(member, b"message %d" % number)

        net.after(net.rng.randrange(10 * MINUTE_MS), say)
    if crashes:
        for _ in range(12):
            victim = net.rng.choice(net.members)
            at = net.rng.randrange(10 * MINUTE_MS)
            net.after(at, lambda victim=victim: net.crash(victim, net.rng.randrange(MINUTE_MS)))
    if partitions:
        for minute in range(1, 11):
            net.after(minute * MINUTE_MS, lambda minute=minute: net.divide(1 + minute % 2))
    net.run(70 * MINUTE_MS)
    return net


def prove(net: SdsNet) -> None:
    """Everyone has everything once, in causal order and in the same log; senders know what became of all."""
    sent = {message_id for member in net.members for message_id in member.sent}
    assert len(sent) > 50
    logs = {member.sds.log(10_000) for member in net.members}
    assert len(logs) == 1
    assert set(logs.pop()) == sent
    for member in net.members:
        order = [event.message_id for event in member.delivered]
        assert len(order) == len(set(order))
        assert set(order) == sent - set(member.sent)
        known: set[str] = set(member.sent)
        for event in member.delivered:
            assert not event.missed
            assert not event.late
            assert known.issuperset(net.histories[event.message_id])
            known.add(event.message_id)
        assert {message_id: len(finals) for message_id, finals in member.finals.items()} == dict.fromkeys(
            member.sent, 1
        )
        assert member.sds.unacknowledged() == ()
        assert member.sds.missing() == ()
        assert member.sds.sizes().incoming == 0


@pytest.mark.parametrize("seed", range(4))
def test_everyone_delivers_everything_once_in_causal_order_and_senders_know(seed: int) -> None:
    net = converse(seed)
    prove(net)
    finals = [final for member in net.members for each in member.finals.values() for final in each]
    assert finals.count("Acknowledged") > 0.9 * len(finals)


@pytest.mark.parametrize("seed", range(4))
def test_the_same_with_participants_that_crash_and_come_back_from_what_they_saved(seed: int) -> None:
    net = converse(seed, crashes=True)
    assert sum(member.crashes for member in net.members) > 5
    prove(net)


@pytest.mark.parametrize("seed", range(2))
def test_the_same_while_the_network_falls_apart_and_comes_together(seed: int) -> None:
    prove(converse(seed, members=5, partitions=True, crashes=True))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_the_same_with_many_participants_and_messages(seed: int) -> None:
    prove(converse(seed, members=(3, 10, 20)[seed % 3], messages=500, partitions=True, crashes=True))


def test_the_same_in_a_larger_group_with_the_options_of_js_waku() -> None:
    options = replace(SdsOptions.js_waku(), timeout_for_lost_messages_ms=None)
    prove(converse(5, members=8, messages=60, options=options))


def test_it_replays() -> None:
    first, second = converse(9, messages=60, crashes=True), converse(9, messages=60, crashes=True)
    assert first.bytes == second.bytes
    for one, other in zip(first.members, second.members, strict=True):
        assert one.delivered == other.delivered
        assert one.rows == other.rows


@pytest.mark.parametrize("seed", range(2))
def test_what_nobody_has_is_lost_and_all_else_is_delivered(seed: int) -> None:
    options = SdsOptions(
        timeout_for_lost_messages_ms=5 * MINUTE_MS, repair=RepairOptions(t_min_ms=5_000, t_max_ms=20_000)
    )
    net = SdsNet(3, seed, options, Weather())
    print("seed", seed)
    gone = net.members[0]
    for number in range(40):
        net.after(number * 5_000, lambda number=number: net.send(net.members[1 + number % 2], b"%d" % number))
    net.weather = Weather(loss=1)
    net.send(gone, b"never heard")
    gone.down = True  # with the only copy, but not before somebody heard of it
    ghost = gone.sent[0]
    net.weather = Weather()
    for member in net.members[1:]:
        member.sds.receive(encode_sds(sync(ghost, sender="p0", lamport=START_MS + 9)), net.now_ns)
        net.settle(member)
    net.run(70 * MINUTE_MS)
    alive = net.members[1:]
    for member in alive:
        assert member.lost == {ghost}
        others = {one for other in alive if other is not member for one in other.sent}
        assert {event.message_id for event in member.delivered} == others
        assert member.sds.missing() == ()
