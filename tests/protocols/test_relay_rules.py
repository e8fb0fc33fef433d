"""Which messages pass (64/WAKU2-NETWORK, Message Validation; GossipSub v1.1, Extended Validators)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio

from pywaku.errors import InvalidInput
from pywaku.ids import PeerId
from pywaku.message import WakuMessage
from pywaku.protocols.relay import MAX_MESSAGE_SIZE, MessageRefused, RelayOptions, Verdict
from pywaku.wire.framing import frame
from pywaku.wire.message import encode_message
from pywaku.wire.proto import relay_pb2
from tests.support.relays import (
    CONTENT_TOPIC,
    NOW_NS,
    TOPIC,
    World,
    message,
    open_world,
    publishes,
    wall_clock,
)

SECOND = 1_000_000_000
OTHER_TOPIC = "/waku/2/rs/42/1"


def score(world: World) -> float:
    """What the node thinks of the raw peer."""
    return world.relay.router.score(world.raw.network.peer_id, trio.current_time())


def sized(size: int) -> WakuMessage:
    """A message with that many bytes when encoded."""
    fixed = len(encode_message(WakuMessage(bytes(size - 100), CONTENT_TOPIC))) - (size - 100)
    found = WakuMessage(bytes(size - fixed), CONTENT_TOPIC)
    assert len(encode_message(found)) == size
    return found


@pytest.mark.virtual
@pytest.mark.parametrize("field", ["from", "seqno", "signature", "key"])
@pytest.mark.parametrize("value", [b"", b"x"])
async def test_signed_messages_are_rejected(field: str, value: bytes) -> None:
    rpc = relay_pb2.RPC()
    entry = rpc.publish.add(topic=TOPIC.encode(), data=encode_message(message("signed")))
    setattr(entry, field, value)
    async with open_world() as world:
        await world.stream.send(frame(rpc.SerializeToString()))
        await trio.sleep(1)
        assert world.received == []
        assert score(world) < 0


@pytest.mark.virtual
async def test_messages_are_built_without_signature_key_from_and_seqno() -> None:
    async with open_world() as world:
        await world.relay.publish(TOPIC, message("unsigned"))
        await trio.sleep(1)
        rpc = relay_pb2.RPC.FromString(world.raw.frames[-1])
        (entry,) = rpc.publish
        assert entry.data == encode_message(message("unsigned"))
        assert {descriptor.name for descriptor, _ in entry.ListFields()} == {"data", "topic"}


@pytest.mark.virtual
async def test_a_message_does_not_exceed_150_kib_when_encoded() -> None:
    assert MAX_MESSAGE_SIZE == 150 * 1024
    async with open_world() as world:
        await world.arrive(sized(MAX_MESSAGE_SIZE))
        assert len(world.received) == 1
        await world.arrive(sized(MAX_MESSAGE_SIZE + 1))
        assert len(world.received) == 1
        assert world.counters.refusals == {"size": 1}
        assert world.counters.rejected == 1
        assert score(world) < -50


@pytest.mark.virtual
async def test_an_own_message_that_is_too_large_is_refused_with_its_size() -> None:
    async with open_world() as world:
        assert (await world.relay.publish(TOPIC, sized(MAX_MESSAGE_SIZE))).peers == 1
        with pytest.raises(MessageRefused, match="153600 bytes") as caught:
            await world.relay.publish(TOPIC, sized(MAX_MESSAGE_SIZE + 1))
        assert caught.value.reason == "size"
        assert caught.value.size == MAX_MESSAGE_SIZE + 1
        assert isinstance(caught.value, InvalidInput)
        assert world.counters.refused_own == 1


@pytest.mark.virtual
@pytest.mark.parametrize("data", [b"\xff", b"", b"\x0a\x01x", b"\x12\x01\xff"])
async def test_a_message_that_fails_to_decode_is_rejected_and_penalised(data: bytes) -> None:
    async with open_world() as world:
        await world.arrive(data)
        assert world.received == []
        assert world.counters.refusals == {"undecodable": 1}
        assert score(world) < -50


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("deviation_ns", "passes"),
    [
        (0, True),
        (20 * SECOND, True),
        (-20 * SECOND, True),
        (20 * SECOND + 1, False),
        (-20 * SECOND - 1, False),
        (None, False),
    ],
)
async def test_a_timestamp_deviates_by_at_most_20_seconds(deviation_ns: int | None, passes: bool) -> None:
    timestamp = None if deviation_ns is None else NOW_NS + deviation_ns
    sent = message("timely", timestamp_ns=timestamp)
    options = RelayOptions(validate_timestamps=True)
    async with open_world(options=options, clock=lambda: NOW_NS) as world:
        await world.arrive(sent)
        assert [received.message for received in world.received] == ([sent] if passes else [])
        assert world.counters.refusals == ({} if passes else {"timestamp": 1})
        assert world.counters.rejected == (0 if passes else 1)


@pytest.mark.virtual
async def test_own_messages_keep_to_the_timestamp_window() -> None:
    async with open_world(options=RelayOptions(validate_timestamps=True)) as world:
        assert (await world.relay.publish(TOPIC, message(1, timestamp_ns=wall_clock()))).peers == 1
        with pytest.raises(MessageRefused, match="timestamp") as caught:
            await world.relay.publish(TOPIC, message(2))
        assert caught.value.reason == "timestamp"


@pytest.mark.virtual
async def test_any_timestamp_passes_by_default() -> None:
    async with open_world() as world:
        await world.arrive(message(1), message(2, timestamp_ns=-5), message(3, timestamp_ns=2**62))
        assert len(world.received) == 3


@pytest.mark.virtual
async def test_without_a_proof_a_message_is_ignored_while_its_shard_carries_1_mbps() -> None:
    payload = bytes(125_000)  # a tenth of what 10 seconds may carry

    def large(number: int, *, proof: bytes | None = None) -> WakuMessage:
        return WakuMessage(number.to_bytes(4) + payload, CONTENT_TOPIC, rate_limit_proof=proof)

    async with open_world(options=RelayOptions(free_bandwidth_bps=1_000_000)) as world:
        for number in range(10):
            await world.stream.send(publishes(large(number)))
        await trio.sleep(0.5)
        assert len(world.received) == 10
        await world.arrive(message("one too many"))
        assert len(world.received) == 10
        assert world.counters.refusals == {"bandwidth": 1}
        assert world.counters.ignored == 1
        assert score(world) >= 0, "it must not trigger a penalty"
        await world.arrive(large(11, proof=b"proof"))
        assert len(world.received) == 11
        with pytest.raises(MessageRefused) as caught:
            await world.relay.publish(TOPIC, message("own"))
        assert caught.value.reason == "bandwidth"
        await trio.sleep(10)
        await world.arrive(message("later"))
        assert len(world.received) == 12


@pytest.mark.virtual
async def test_a_proof_validator_judges_messages_with_a_proof() -> None:
    asked: list[bytes | None] = []

    def judge(_topic: str, judged: WakuMessage, _peer: PeerId) -> Verdict:
        asked.append(judged.rate_limit_proof)
        return Verdict.ACCEPT if judged.rate_limit_proof == b"good" else Verdict.REJECT

    async with open_world(options=RelayOptions(proof_validator=judge)) as world:
        await world.arrive(
            message(1), message(2, rate_limit_proof=b"good"), message(3, rate_limit_proof=b"bad")
        )
        assert [received.message.payload for received in world.received] == [b"1", b"2"]
        assert asked == [b"good", b"bad"]
        assert world.counters.rejected == 1


@pytest.mark.virtual
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("verdict", list(Verdict))
async def test_a_validator_accepts_rejects_or_ignores(verdict: Verdict, late: bool) -> None:
    async def slowly() -> Verdict:
        await trio.sleep(0.1)
        return verdict

    async with open_world() as world:
        before = score(world)
        world.relay.add_validator(lambda _topic, _message, _peer: slowly() if late else verdict)
        await world.arrive(message("judged"))
        assert len(world.received) == (verdict is Verdict.ACCEPT)
        assert world.counters.rejected == (verdict is Verdict.REJECT)
        assert world.counters.ignored == (verdict is Verdict.IGNORE)
        assert (score(world) < before) == (verdict is Verdict.REJECT)


@pytest.mark.virtual
async def test_validators_hear_topic_message_and_peer_and_the_first_refusal_decides() -> None:
    asked: list[tuple[str, object]] = []

    def note(name: str, verdict: Verdict) -> Callable[[str, WakuMessage, PeerId], Verdict]:
        def validator(topic: str, judged: WakuMessage, peer: PeerId) -> Verdict:
            asked.append((name, (topic, judged, peer)))
            return verdict

        return validator

    async with open_world() as world:
        sent = message("first")
        expected = (TOPIC, sent, world.raw.network.peer_id)
        end = world.relay.add_validator(note("of the topic", Verdict.IGNORE), TOPIC)
        world.relay.add_validator(note("of another topic", Verdict.REJECT), OTHER_TOPIC)
        world.relay.add_validator(note("general", Verdict.ACCEPT))
        world.relay.add_validator(note("never asked", Verdict.REJECT), TOPIC)
        await world.arrive(sent)
        assert asked == [("general", expected), ("of the topic", expected)]
        assert world.received == []
        assert world.counters.ignored == 1
        end()
        await world.arrive(message("second"))
        assert [name for name, _ in asked[2:]] == ["general", "never asked"]


@pytest.mark.virtual
async def test_own_messages_are_asked_about_too_also_asynchronously() -> None:
    async def judge(_topic: str, judged: WakuMessage, peer: PeerId) -> Verdict:
        await trio.sleep(1)
        assert peer == world.node.network.peer_id
        return Verdict.ACCEPT if judged.payload == b"good" else Verdict.REJECT

    async with open_world() as world:
        world.relay.add_validator(judge)
        assert (await world.relay.publish(TOPIC, message("good"))).peers == 1
        with pytest.raises(MessageRefused) as caught:
            await world.relay.publish(TOPIC, message("bad"))
        assert caught.value.reason == "validator"


@pytest.mark.virtual
async def test_a_validator_that_stalls_delays_nothing_else() -> None:
    async def stall() -> Verdict:
        await trio.sleep_forever()
        return Verdict.ACCEPT

    async with open_world(options=RelayOptions(validator_timeout_s=5)) as world:
        others: list[object] = []
        world.relay.subscribe_callback(OTHER_TOPIC, others.append)
        world.relay.add_validator(lambda _topic, _message, _peer: stall(), TOPIC)
        await world.arrive(*(message(i) for i in range(10)))
        await world.arrive(message("elsewhere"), topic=OTHER_TOPIC)
        assert len(others) == 1
        assert world.counters.ignored == 0
        await trio.sleep(5)
        assert world.received == []
        assert world.counters.refusals == {"validator-timeout": 10}
        assert world.counters.validator_timeouts == 10
        assert score(world) >= 0


@pytest.mark.virtual
@pytest.mark.parametrize("late", [False, True])
async def test_messages_are_delivered_in_the_order_in_which_they_pass_validation(late: bool) -> None:
    def judge(_topic: str, sent: WakuMessage, _peer: PeerId) -> Verdict | Awaitable[Verdict]:
        return after(0.1 / int(sent.payload)) if late else Verdict.ACCEPT

    async def after(delay: float) -> Verdict:
        await trio.sleep(delay)
        return Verdict.ACCEPT

    async with open_world(joined=False) as world:
        world.relay.add_validator(judge)
        subscription = world.relay.subscribe(TOPIC)
        await world.arrive(message(1), message(2), message(3))
        got = [int((await anext(subscription)).message.payload) for _ in range(3)]
        assert got == ([3, 2, 1] if late else [1, 2, 3])


@pytest.mark.virtual
async def test_asynchronous_validations_are_bounded() -> None:
    running = most = 0

    async def judge() -> Verdict:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(0.1)
        running -= 1
        return Verdict.ACCEPT

    options = RelayOptions(max_validations=3, max_waiting_validations=5)
    async with open_world(options=options) as world:
        world.relay.add_validator(lambda _topic, _message, _peer: judge())
        await world.arrive(*(message(i) for i in range(20)))
        assert most == 3
        assert len(world.received) == 3 + 5
        assert world.counters.refusals == {"validator-overload": 12}


@pytest.mark.virtual
@pytest.mark.parametrize("late", [False, True])
async def test_a_validator_that_raises_ignores_the_message_and_the_node_goes_on(late: bool) -> None:
    async def fail() -> Verdict:
        await trio.sleep(0.01)
        raise RuntimeError("broken")

    def judge(_topic: str, judged: WakuMessage, _peer: PeerId) -> object:
        if judged.payload != b"bad":
            return Verdict.ACCEPT
        if late:
            return fail()
        raise RuntimeError("broken")

    async with open_world() as world:
        world.relay.add_validator(judge)  # pyright: ignore[reportArgumentType]
        await world.arrive(message("bad"))
        await world.arrive(message("good"))
        assert [received.message.payload for received in world.received] == [b"good"]
        assert world.counters.refusals == {"validator-error": 1}
        assert world.counters.validator_errors == 1
        assert score(world) >= 0


def warnings(caplog: pytest.LogCaptureFixture) -> list[tuple[str, bool]]:
    """What was logged as a warning, and whether with a traceback."""
    records = [record for record in caplog.records if record.levelname == "WARNING"]
    return [(record.getMessage(), record.exc_info is not None) for record in records]


@pytest.mark.virtual
@pytest.mark.parametrize("late", [False, True])
async def test_a_validator_that_always_raises_does_not_fill_the_log(
    late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> Verdict:
        await trio.sleep(0)
        raise RuntimeError("broken")

    def judge(_topic: str, _message: WakuMessage, _peer: PeerId) -> Verdict | Awaitable[Verdict]:
        if late:
            return fail()
        raise RuntimeError("broken")

    def other(_topic: str, _message: WakuMessage, _peer: PeerId) -> Verdict:
        raise KeyError("broken too")

    async with open_world() as world:
        end = world.relay.add_validator(judge)
        await world.arrive(*(message(i) for i in range(250)))
        assert world.counters.validator_errors == 250
        assert warnings(caplog) == [
            ("validator failed error=RuntimeError failures=1", True),
            ("validator failed error=RuntimeError failures=10", False),
            ("validator failed error=RuntimeError failures=100", False),
        ]
        end()
        world.relay.add_validator(other)
        await world.arrive(message("more"))
        assert warnings(caplog)[3:] == [("validator failed error=KeyError failures=1", True)]


@pytest.mark.virtual
async def test_a_validator_that_is_removed_while_another_one_waits_skips_none() -> None:
    go = trio.Event()
    asked: list[str] = []

    def first(_topic: str, _message: WakuMessage, _peer: PeerId) -> Verdict:
        return Verdict.ACCEPT

    async def second(_topic: str, _message: WakuMessage, _peer: PeerId) -> Verdict:
        await go.wait()
        return Verdict.ACCEPT

    def third(_topic: str, _message: WakuMessage, _peer: PeerId) -> Verdict:
        asked.append("third")
        return Verdict.REJECT

    async with open_world() as world:
        end = world.relay.add_validator(first)
        world.relay.add_validator(second)
        world.relay.add_validator(third)
        await world.arrive(message(1))
        end()
        go.set()
        await trio.sleep(1)
        assert asked == ["third"]
        assert world.received == []


@pytest.mark.virtual
async def test_to_remove_a_validator_twice_leaves_the_one_that_was_added_again() -> None:
    asked: list[str] = []

    def validator(_topic: str, _message: WakuMessage, _peer: PeerId) -> Verdict:
        asked.append("asked")
        return Verdict.ACCEPT

    async with open_world() as world:
        for topic in (None, TOPIC):
            asked.clear()
            end = world.relay.add_validator(validator, topic)
            end_too = world.relay.add_validator(validator, topic)
            end()
            end()
            await world.arrive(message(f"one {topic}"))
            assert asked == ["asked"]
            end_too()
            await world.arrive(message(f"two {topic}"))
            assert asked == ["asked"]


@pytest.mark.virtual
async def test_a_validator_that_returns_something_else_ignores_the_message() -> None:
    async with open_world() as world:
        world.relay.add_validator(lambda _topic, _message, _peer: True)  # pyright: ignore[reportArgumentType]
        await world.arrive(message("whatever"))
        assert world.received == []
        assert world.counters.validator_errors == 1


@pytest.mark.virtual
async def test_closing_while_validators_wait_leaves_nothing_behind() -> None:
    async def stall() -> Verdict:
        await trio.sleep_forever()
        return Verdict.ACCEPT

    async with open_world(options=RelayOptions(max_validations=1)) as world:
        world.relay.add_validator(lambda _topic, _message, _peer: stall())
        await world.arrive(message(1), message(2), message(3))
    assert world.received == []


@pytest.mark.parametrize("option", ["max_message_size", "max_validations", "bandwidth_window_s"])
def test_options_without_sense_are_refused(option: str) -> None:
    with pytest.raises(InvalidInput, match=option):
        replace(RelayOptions(), **{option: 0})
