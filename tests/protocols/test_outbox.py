"""What waits for one peer: bounds, order, frames (pure)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pywaku.errors import InvalidInput
from pywaku.protocols.relay.control import MAX_IDS, merge, split
from pywaku.protocols.relay.outbox import MAX_FRAME_MESSAGES, MAX_FRAME_SIZE, Outbox, OutboxLimits
from pywaku.wire.framing import FrameDecoder
from pywaku.wire.relay import (
    IHave,
    PeerRecord,
    Prune,
    RelayMessage,
    Rpc,
    Subscription,
    decode_rpc,
    encode_publish,
    encode_rpc,
)

TOPIC = "/waku/2/rs/42/0"


def entry(number: int, size: int = 10) -> tuple[bytes, bytes]:
    """A message for an outbox: its id, its `publish` entry."""
    return number.to_bytes(32), encode_publish(TOPIC, number.to_bytes(4) + bytes(max(0, size - 4)))


def frames(data: bytes) -> list[Rpc]:
    """The RPCs in what an outbox gave."""
    decoder = FrameDecoder(16 * 1024 * 1024)
    rpcs = [decode_rpc(frame) for frame in decoder.feed(data)]
    decoder.finish()
    return rpcs


def drain(outbox: Outbox) -> list[Rpc]:
    """All RPCs that an outbox holds."""
    rpcs: list[Rpc] = []
    while outbox:
        rpcs += frames(outbox.take())
    return rpcs


def numbers(rpcs: list[Rpc]) -> list[int]:
    """The messages in RPCs, in order."""
    return [int.from_bytes(message.data[:4]) for rpc in rpcs for message in rpc.publish]


def test_an_empty_outbox_gives_nothing() -> None:
    outbox = Outbox()
    assert not outbox
    assert outbox.take() == b""


def test_messages_keep_their_order_and_leave_in_one_write() -> None:
    outbox = Outbox()
    assert outbox.put_messages([entry(i) for i in range(3)]) == 3
    assert outbox.put_messages([entry(3)]) == 1
    (rpc,) = frames(outbox.take())
    assert numbers([rpc]) == [0, 1, 2, 3]
    assert rpc.publish[0] == RelayMessage(TOPIC, entry(0)[1][-10 - 2 - len(TOPIC) :][:10], signed=False)
    assert not outbox
    assert outbox.size == 0


def test_control_overtakes_messages_and_shares_their_frame() -> None:
    outbox = Outbox()
    outbox.put_messages([entry(0)])
    outbox.put_control(Rpc(graft=(TOPIC,)))
    outbox.put_control(Rpc(iwant=(b"a" * 32,)))
    (rpc,) = frames(outbox.take())
    assert rpc.graft == (TOPIC,)
    assert rpc.iwant == (b"a" * 32,)
    assert numbers([rpc]) == [0]


def test_one_rpc_holds_at_most_100_messages() -> None:
    outbox = Outbox()
    outbox.put_messages([entry(i) for i in range(250)])
    assert [len(rpc.publish) for rpc in frames(outbox.take())] == [MAX_FRAME_MESSAGES, MAX_FRAME_MESSAGES, 50]


def test_one_rpc_holds_about_64_kib_and_a_larger_message_goes_alone() -> None:
    outbox = Outbox(OutboxLimits(write_size=1_000_000))
    outbox.put_messages([entry(0, 100), entry(1, 150_000), *(entry(i, 20_000) for i in range(2, 8))])
    rpcs = drain(outbox)
    assert [len(rpc.publish) for rpc in rpcs] == [1, 1, 3, 3]
    assert all(len(encode_rpc(rpc)) <= MAX_FRAME_SIZE for rpc in rpcs if len(rpc.publish) > 1)
    assert numbers(rpcs) == list(range(8))


def test_a_write_is_bounded() -> None:
    outbox = Outbox(OutboxLimits(write_size=1000))
    outbox.put_messages([entry(i, 300) for i in range(10)])
    writes: list[bytes] = []
    while outbox:
        writes.append(outbox.take())
    assert len(writes) == 4
    assert all(len(write) < 1100 for write in writes)


def test_the_newest_message_is_dropped_and_counted_when_the_count_is_full() -> None:
    outbox = Outbox(OutboxLimits(messages=5))
    assert outbox.put_messages([entry(i) for i in range(8)]) == 5
    assert outbox.dropped == 3
    assert numbers(drain(outbox)) == [0, 1, 2, 3, 4]


def test_the_newest_message_is_dropped_and_counted_when_the_bytes_are_full() -> None:
    outbox = Outbox(OutboxLimits(bytes=1000))
    assert outbox.put_messages([entry(0, 600), entry(1, 600), entry(2, 100)]) == 2
    assert outbox.dropped == 1
    assert outbox.size <= 1000
    assert numbers(drain(outbox)) == [0, 2]


def test_congestion_has_two_marks() -> None:
    outbox = Outbox(OutboxLimits(messages=100, write_size=1))
    outbox.put_messages([entry(i) for i in range(50)])
    assert not outbox.congested
    outbox.put_messages([entry(50)])
    assert outbox.congested
    while len(outbox) > 26:
        outbox.take()
    assert outbox.congested
    outbox.take()
    assert not outbox.congested


def test_messages_a_peer_does_not_want_leave_the_outbox() -> None:
    outbox = Outbox()
    outbox.put_messages([entry(i) for i in range(4)])
    assert outbox.forget(frozenset({entry(1)[0], entry(3)[0], b"other"})) == 2
    assert numbers(drain(outbox)) == [0, 2]
    assert outbox.size == 0


def test_ids_of_no_message_that_waits_do_not_make_the_outbox_look_through_all_that_do() -> None:
    outbox = Outbox(OutboxLimits(write_size=1))
    outbox.put_messages([entry(i) for i in range(1000)])
    for _ in range(600):
        outbox.take()
    waiting = outbox._messages
    assert outbox.forget(frozenset({b"other"})) == 0
    assert outbox._messages is waiting
    assert len(outbox._ids) <= 2 * 400 + 64
    assert outbox.forget(frozenset({entry(5)[0], entry(700)[0]})) == 1
    assert numbers(drain(outbox)) == [i for i in range(600, 1000) if i != 700]
    assert len(outbox._ids) <= 64


@pytest.mark.parametrize(
    "limits", [{"messages": 0}, {"bytes": 0}, {"write_size": 0}, {"low_water": 0.9}, {"high_water": 2.0}]
)
def test_limits_without_sense_are_refused(limits: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        OutboxLimits(**limits)  # pyright: ignore[reportArgumentType]


def test_the_last_word_about_a_topic_counts() -> None:
    merged, lost = merge(
        [
            Rpc(subscriptions=(Subscription(True, "a"), Subscription(True, "b")), graft=("a", "b")),
            Rpc(subscriptions=(Subscription(False, "a"),), prune=(Prune("a", backoff_s=5),)),
            Rpc(graft=("c",), ihave=(IHave("b", (b"1", b"2")),)),
            Rpc(ihave=(IHave("b", (b"2", b"3")),), iwant=(b"4",), idontwant=(b"5", b"5")),
        ]
    )
    assert lost == 0
    assert set(merged.subscriptions) == {Subscription(False, "a"), Subscription(True, "b")}
    assert merged.prune == (Prune("a", backoff_s=5),)
    assert merged.graft == ("b", "c")
    assert merged.ihave == (IHave("b", (b"1", b"2", b"3")),)
    assert merged.iwant == (b"4",)
    assert merged.idontwant == (b"5",)


def test_waiting_message_ids_are_bounded_and_the_oldest_go() -> None:
    outbox = Outbox()
    for start in range(0, MAX_IDS * 2, 100):
        ids = tuple(number.to_bytes(32) for number in range(start, start + 100))
        outbox.put_control(Rpc(ihave=(IHave(TOPIC, ids),)))
    rpcs = drain(outbox)
    kept = [message_id for rpc in rpcs for ihave in rpc.ihave for message_id in ihave.message_ids]
    assert kept == [number.to_bytes(32) for number in range(MAX_IDS, MAX_IDS * 2)]
    assert outbox.control_dropped == MAX_IDS
    assert all(len(encode_rpc(rpc)) <= MAX_FRAME_SIZE * 1.1 for rpc in rpcs)
    assert len(rpcs) > 1


identifiers = st.binary(min_size=1, max_size=32)
topics = st.sampled_from(["a", "b", "c", "d"])
controls = st.builds(
    Rpc,
    subscriptions=st.lists(st.builds(Subscription, st.booleans(), topics), max_size=3).map(tuple),
    ihave=st.lists(
        st.builds(IHave, topics, st.lists(identifiers, min_size=1, max_size=5, unique=True).map(tuple)),
        max_size=2,
        unique_by=lambda ihave: ihave.topic,
    ).map(tuple),
    iwant=st.lists(identifiers, max_size=5, unique=True).map(tuple),
    graft=st.lists(topics, max_size=2, unique=True).map(tuple),
    prune=st.lists(
        st.builds(
            Prune,
            topics,
            st.lists(st.builds(PeerRecord, identifiers, identifiers), max_size=2).map(tuple),
            st.none() | st.integers(0, 3600),
        ),
        max_size=2,
    ).map(tuple),
    idontwant=st.lists(identifiers, max_size=5, unique=True).map(tuple),
)


@given(controls, st.integers(min_value=1, max_value=300))
def test_a_split_rpc_says_what_the_whole_one_says(rpc: Rpc, size: int) -> None:
    parts = split(rpc, size)
    for kind in ("subscriptions", "iwant", "graft", "prune", "idontwant"):
        assert [value for part in parts for value in getattr(part, kind)] == list(getattr(rpc, kind))
    said = [(ihave.topic, name) for part in parts for ihave in part.ihave for name in ihave.message_ids]
    assert sorted(said) == sorted((ihave.topic, name) for ihave in rpc.ihave for name in ihave.message_ids)


@given(
    st.lists(
        st.one_of(
            controls,
            st.lists(st.integers(min_value=4, max_value=5_000), min_size=1, max_size=20),
            st.none(),
        ),
        max_size=30,
    )
)
def test_whatever_is_put_in_comes_out_whole_and_in_order(steps: list[Rpc | list[int] | None]) -> None:
    outbox = Outbox(OutboxLimits(messages=50, bytes=50_000, write_size=20_000))
    put: list[int] = []
    got: list[Rpc] = []
    for step in steps:
        if step is None:
            got += frames(outbox.take())
        elif isinstance(step, Rpc):
            outbox.put_control(step)
        else:
            for size in step:
                number = len(put) + outbox.dropped
                if outbox.put_messages([entry(number, size)]):
                    put.append(number)
        assert len(outbox) <= 50
        assert outbox.size <= 50_000
    got += drain(outbox)
    assert numbers(got) == put
    assert outbox.size == 0
    assert not outbox.congested
    assert all(len(rpc.publish) <= MAX_FRAME_MESSAGES for rpc in got)
