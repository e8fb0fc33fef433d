"""What parity spares: a tenth of the segments is lost, and nothing is sent again."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pywaku.channels import ReliableChannelOptions
from pywaku.channels.conversation import Conversation, Outbound
from pywaku.channels.events import MessageReceived, ReliableMessageDelivered
from pywaku.segments import SegmentationConfig
from tests.support.channels import CHANNEL, START_MS

SIZE = 64
LOSS = 0.1
ABREAST = 150
"""Of more segments, one names all before it, and waits for them."""


class Pair:
    """Alice sends, Bob receives; what is lost comes before the next message, as if it had been repaired."""

    def __init__(self, rate: float, seed: int) -> None:
        print("seed", seed)
        self.rng = random.Random(seed)
        config = SegmentationConfig(segment_size_bytes=SIZE, enable_reed_solomon=True, parity_rate=rate)
        options = ReliableChannelOptions(segmentation=config, sync_min_interval_ms=0)
        self.now_ns = START_MS * 1_000_000
        self.alice, self.bob = (
            Conversation(CHANNEL, name, options, rng=self.rng, now_ns=self.now_ns)
            for name in ("alice", "bob")
        )

    def message(self, segments: int, lost: Callable[[int], bool]) -> bool:
        """A message of so many data segments; is it received without those that are lost?"""
        self.now_ns += 1_000_000
        payload = self.rng.randbytes(segments * SIZE)
        message_id = self.alice.new_id(payload, self.now_ns)
        self.alice.send(message_id, payload, self.alice.segments(payload), self.now_ns)
        outbound = self.alice.take(self.now_ns).outbound
        late = [one for number, one in enumerate(outbound) if lost(number)]
        came = self._carry([one for one in outbound if one not in late])
        again = self._carry(late)
        assert came + again == [payload]
        self._reply()
        return bool(came)

    def _carry(self, outbound: list[Outbound]) -> list[bytes]:
        for one in outbound:
            self.bob.receive(one.data, self.now_ns, None)
        events = self.bob.take(self.now_ns).events
        return [event.payload for event in events if isinstance(event, MessageReceived)]

    def _reply(self) -> None:
        """Bob's next messages acknowledge all of it: they name, or have in their filters, what he has."""
        finals = 0
        for _ in range(2):
            self.now_ns += 1_000_000
            reply_id = self.bob.new_id(b"got it", self.now_ns)
            self.bob.send(reply_id, b"got it", self.bob.segments(b"got it"), self.now_ns)
            for one in self.bob.take(self.now_ns).outbound:
                self.alice.receive(one.data, self.now_ns, None)
            events = self.alice.take(self.now_ns).events
            finals += sum(isinstance(event, ReliableMessageDelivered) for event in events)
        assert finals == 1

    def share(self, messages: int, segments: int) -> float:
        """How many messages need no retransmission where every segment may be lost."""
        data, parity = self.alice.options.segmentation.counts(segments * SIZE)
        whole = 0
        for _ in range(messages):
            lost = {number for number in range(data + parity) if self.rng.random() < LOSS}
            came = self.message(segments, lost.__contains__)
            if segments + parity <= ABREAST:
                assert came == (len(lost) <= parity)
            whole += came
        return whole / messages


@pytest.mark.parametrize(("segments", "rate"), [(20, 0.4), (64, 0.25)])
def test_with_enough_parity_99_of_100_messages_survive_the_loss_of_a_tenth(
    segments: int, rate: float
) -> None:
    assert Pair(rate, seed=1).share(100, segments) >= 0.99


@pytest.mark.long
@pytest.mark.parametrize(("segments", "rate"), [(20, 0.4), (32, 0.3), (64, 0.25), (100, 0.25), (150, 0.25)])
def test_with_enough_parity_99_of_100_messages_survive_it_in_the_long_run(segments: int, rate: float) -> None:
    assert Pair(rate, seed=2).share(400, segments) >= 0.99


@pytest.mark.parametrize("segments", [20, 40, 150, 200])
def test_as_many_segments_may_be_lost_as_there_is_parity_whichever_they_are(segments: int) -> None:
    pair = Pair(0.125, seed=segments)
    parity = pair.alice.options.segmentation.counts(segments * SIZE)[1]
    spare = parity - (segments + parity > ABREAST)
    places = range(min(ABREAST, segments + parity))
    lost = set(pair.rng.sample(places, spare))
    assert pair.message(segments, lambda number: number in lost)
    lost = set(pair.rng.sample(places, parity + 1))
    assert not pair.message(segments, lambda number: number in lost)


def test_a_lost_segment_holds_up_no_message_of_others() -> None:
    pair = Pair(0.4, seed=1)
    payload = pair.rng.randbytes(20 * SIZE)
    pair.alice.send("m", payload, pair.alice.segments(payload), pair.now_ns)
    for one in pair.alice.take(pair.now_ns).outbound[3:]:
        pair.bob.receive(one.data, pair.now_ns, None)
    options = pair.bob.options
    carol = Conversation(CHANNEL, "carol", options, rng=pair.rng, now_ns=pair.now_ns)
    carol.send("n", b"hello", carol.segments(b"hello"), pair.now_ns)
    pair.bob.receive(carol.take(pair.now_ns).outbound[0].data, pair.now_ns, None)
    events = pair.bob.take(pair.now_ns).events
    assert [event.payload for event in events if isinstance(event, MessageReceived)] == [payload, b"hello"]
