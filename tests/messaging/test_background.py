"""The background subscription and what is wanted of the network (MESSAGING-API, Acknowledgements)."""

from __future__ import annotations

from typing import NamedTuple, cast

import pytest

from pywaku.messaging.background import MAX_SENT_ON, Background
from pywaku.messaging.inbox import Inbox
from pywaku.messaging.record import BACKGROUND_SUBSCRIPTION
from pywaku.messaging.wanting import Wanting

SHARD = "/waku/2/rs/42/0"
Pair = tuple[str, str]


class Recorded:
    """What an inbox is told to record for whom."""

    def __init__(self) -> None:
        self.topics: set[tuple[str, str, str]] = set()

    def record_for(self, subscription_id: str, pubsub_topic: str, content_topic: str) -> None:
        """As `Inbox`."""
        self.topics.add((subscription_id, pubsub_topic, content_topic))

    def record_no_more(self, subscription_id: str, pubsub_topic: str, content_topic: str) -> None:
        """As `Inbox`."""
        self.topics.remove((subscription_id, pubsub_topic, content_topic))


class Wanted:
    """What is wanted, and whether it is to be received."""

    def __init__(self) -> None:
        self.topics: dict[Pair, bool] = {}

    def want(self, pubsub_topic: str, content_topic: str, *, receive: bool = True) -> None:
        """As `Wanting`."""
        assert (pubsub_topic, content_topic) not in self.topics
        self.topics[pubsub_topic, content_topic] = receive

    def want_no_more(self, pubsub_topic: str, content_topic: str, *, receive: bool = True) -> None:
        """As `Wanting`."""
        assert self.topics.pop((pubsub_topic, content_topic)) is receive


class Scene(NamedTuple):
    """A background subscription, and what it does to others."""

    background: Background
    recorded: Recorded
    wanted: Wanted


@pytest.fixture
def scene() -> Scene:
    recorded, wanted = Recorded(), Wanted()
    return Scene(Background(cast("Inbox", recorded), cast("Wanting", wanted)), recorded, wanted)


def test_it_is_active_while_something_is_watched(scene: Scene) -> None:
    assert not scene.background.active
    scene.background.watch(SHARD, "t", receive=True)
    assert scene.background.active
    scene.background.end()
    assert not scene.background.active


@pytest.mark.parametrize("receive", [True, False])
def test_what_is_received_is_recorded_under_the_reserved_id(scene: Scene, receive: bool) -> None:
    scene.background.watch(SHARD, "t", receive=receive)
    assert scene.wanted.topics == {(SHARD, "t"): receive}
    assert scene.recorded.topics == ({(BACKGROUND_SUBSCRIPTION, SHARD, "t")} if receive else set())
    scene.background.end()
    assert scene.wanted.topics == {}
    assert scene.recorded.topics == set()


def test_a_topic_is_watched_once(scene: Scene) -> None:
    scene.background.watch(SHARD, "t", receive=True)
    scene.background.watch(SHARD, "t", receive=True)
    scene.background.sent_on(SHARD, "t")
    assert scene.wanted.topics == {(SHARD, "t"): True}


def test_what_is_sent_on_is_watched_within_a_bound(scene: Scene) -> None:
    for number in range(MAX_SENT_ON + 50):
        scene.background.sent_on(SHARD, f"t{number}")
    assert len(scene.wanted.topics) == MAX_SENT_ON
    scene.background.watch(SHARD, "asked for by name", receive=True)
    assert len(scene.wanted.topics) == MAX_SENT_ON + 1


def test_once_it_was_ended_sending_does_not_begin_it_again(scene: Scene) -> None:
    scene.background.sent_on(SHARD, "t")
    scene.background.end()
    scene.background.end()
    scene.background.sent_on(SHARD, "t")
    assert not scene.background.active
