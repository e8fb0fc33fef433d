"""Events on their way to the application: what matters is kept until it was read, and nothing piles up."""

from __future__ import annotations

import gc

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import pywaku.channels.eventlog
from pywaku.channels.eventlog import EventLog, EventStream
from pywaku.channels.events import (
    ChannelEvent,
    ChunkInfo,
    EphemeralMessageDropped,
    MessageAcknowledged,
    MessageReceived,
    MessageSent,
    ReliableMessageDelivered,
    ReliableMessageReceived,
    ReliableMessageSendError,
    SendingMessageIrrecoverableError,
)
from pywaku.channels.rows import EVENTS, Row
from pywaku.errors import DecodeError, InvalidInput

ONE = ChunkInfo((0,), 1)


class Keeping:
    """An event log, and the rows it wants kept."""

    def __init__(self) -> None:
        self.rows: dict[str, bytes] = {}
        self.reads = 0
        self.log = EventLog([], self._read)

    def _read(self) -> None:
        self.reads += 1

    def happen(self, *events: ChannelEvent) -> None:
        """Events happen: their rows are saved, then they are told."""
        changes, entries = self.log.rows(list(events))
        for change in [*changes, *self.log.take_changes()]:
            if change.value is None:
                self.rows.pop(change.key, None)
            else:
                self.rows[change.key] = change.value
        self.log.tell(entries)

    def again(self) -> None:
        """The process ends, and another one opens the channel."""
        self.happen()
        self.log = EventLog([Row(EVENTS, key, value) for key, value in self.rows.items()], self._read)


def received(text: str) -> tuple[ChannelEvent, ChannelEvent]:
    """A message, by both names."""
    return MessageReceived(text.encode(), "bob"), ReliableMessageReceived(text.encode(), "bob")


def delivered(name: str) -> tuple[ChannelEvent, ChannelEvent]:
    """A message of ours, by both names."""
    return MessageAcknowledged(name, ONE), ReliableMessageDelivered(name, ("bob",))


async def waiting(stream: EventStream) -> list[ChannelEvent]:
    """All that waits in a stream; the last of them is not done with yet."""
    return [await anext(stream) for _ in range(len(stream))]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """A bound that is soon reached."""
    monkeypatch.setattr(pywaku.channels.eventlog, "MAX_WAITING", 5)
    return 5


async def test_received_messages_and_final_events_are_kept_until_they_were_read() -> None:
    keeping = Keeping()
    keeping.happen(MessageSent("m", ONE), *received("1"), *delivered("m"))
    assert len(keeping.rows) == 2
    stream = keeping.log.stream(("message-received", "reliable:message:delivered"))
    assert await anext(stream) == received("1")[0]
    keeping.happen()
    assert len(keeping.rows) == 2  # nobody has asked for the next
    assert await anext(stream) == delivered("m")[1]
    keeping.happen()
    assert len(keeping.rows) == 1
    stream.close()


async def test_after_a_crash_none_is_missing_and_only_the_last_may_come_again() -> None:
    keeping = Keeping()
    for number in range(4):
        keeping.happen(*received(f"{number}"))
    stream = keeping.log.stream(("message-received",))
    before = [await anext(stream) for _ in range(3)]
    keeping.again()
    after = await waiting(keeping.log.stream(("message-received",)))
    assert before == [received(f"{number}")[0] for number in range(3)]
    assert after == [received(f"{number}")[0] for number in (2, 3)]


async def test_after_a_crash_events_are_as_they_were() -> None:
    keeping = Keeping()
    failed = SendingMessageIrrecoverableError("n", ChunkInfo((1, 2), 3), "too bad")
    events = [*delivered("m"), failed, ReliableMessageSendError("n", "too bad"), *received("x")]
    events.append(EphemeralMessageDropped("e", "rate_limit_reached"))
    keeping.happen(*events)
    keeping.again()
    assert await waiting(keeping.log.stream(())) == events


async def test_a_backlog_waits_for_the_first_who_asks() -> None:
    keeping = Keeping()
    keeping.happen(*received("1"), MessageSent("m", ONE), *received("2"))
    stream = keeping.log.stream(("message-received",))
    assert await waiting(stream) == [received("1")[0], received("2")[0]]
    assert len(keeping.log.stream(("message-sent",))) == 0  # of progress, only what happens from now on


async def test_the_two_names_of_a_thing_are_one_row_and_reading_either_is_enough() -> None:
    keeping = Keeping()
    keeping.happen(*received("1"), *delivered("m"))
    async with keeping.log.stream(("reliable:message:received", "message-acknowledged")) as stream:
        assert await waiting(stream) == [received("1")[1], delivered("m")[0]]
    keeping.happen()
    assert keeping.rows == {}
    assert len(keeping.log.stream(())) == 0


async def test_names_that_nobody_asks_for_do_not_pile_up() -> None:
    keeping = Keeping()
    stream = keeping.log.stream(("message-received",))
    for number in range(100):
        keeping.happen(*received(f"{number}"))
        await anext(stream)
    assert len(keeping.log._backlog) == 1
    stream.close()


async def test_each_stream_gets_every_event_of_its_names() -> None:
    keeping = Keeping()
    everything, some = keeping.log.stream(()), keeping.log.stream(("message-received",))
    keeping.happen(MessageSent("m", ONE), *received("1"))
    assert await waiting(everything) == [MessageSent("m", ONE), *received("1")]
    assert await waiting(some) == [received("1")[0]]


async def test_what_a_stream_leaves_waits_for_the_next_in_order() -> None:
    keeping = Keeping()
    stream = keeping.log.stream(("message-received",))
    keeping.happen(*received("1"), *received("2"), *received("3"))
    await anext(stream)
    await anext(stream)
    stream.close()  # the second was given out; nobody knows what became of it
    keeping.happen(*received("4"))
    assert await waiting(keeping.log.stream(("message-received",))) == [received(x)[0] for x in "234"]


async def test_an_error_in_the_block_leaves_the_event_for_the_next() -> None:
    keeping = Keeping()
    keeping.happen(*received("1"), *received("2"))
    with pytest.raises(ZeroDivisionError):
        async with keeping.log.stream(("message-received",)) as stream:
            await anext(stream)
            raise ZeroDivisionError
    async with keeping.log.stream(("message-received",)) as stream:
        assert await anext(stream) == received("1")[0]
    assert len(keeping.log.stream(("message-received",))) == 1  # the block ended well: the first was read


async def test_a_stream_that_is_dropped_takes_no_events_with_it() -> None:
    keeping = Keeping()
    keeping.happen(*received("1"))
    for text in "234":
        keeping.happen(*received(text))
        async for event in keeping.log.stream(("message-received",)):
            assert event == received(chr(ord(text) - 1))[0]
            break
        gc.collect()
    assert await waiting(keeping.log.stream(("message-received",))) == [received("4")[0]]
    assert len(keeping.log._lines) == 1


async def test_listeners_read_what_waits_and_what_comes() -> None:
    keeping = Keeping()
    heard: list[ChannelEvent] = []
    keeping.happen(*received("1"), *received("2"))
    keeping.log.listen("message-received", heard.append)
    keeping.log.listen("message-received", heard.append)  # once is enough
    keeping.happen(*received("3"))
    assert heard == [received(text)[0] for text in "123"]
    keeping.happen()
    assert keeping.rows == {}
    keeping.log.ignore("message-received", heard.append)
    keeping.log.ignore("message-received", heard.append)
    keeping.happen(*received("4"))
    assert len(heard) == 3


async def test_a_listener_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    keeping = Keeping()
    heard: list[ChannelEvent] = []

    def fail(_: ChannelEvent) -> None:
        raise ZeroDivisionError

    keeping.log.listen("message-received", fail)
    keeping.log.listen("message-received", heard.append)
    keeping.happen(*received("1"))
    assert heard == [received("1")[0]]
    for _ in range(18):
        keeping.happen(*received("1"))
    assert [line.getMessage() for line in caplog.records] == [  # the first and the tenth
        f"channel listener of message-received failed error=ZeroDivisionError failures={count}"
        for count in (1, 10)
    ]


def test_unknown_names_are_refused_by_streams_and_ignored_by_listeners() -> None:
    keeping = Keeping()
    with pytest.raises(InvalidInput, match=r"'heard' is none of .*message-received"):
        keeping.log.stream(("heard",))  # pyright: ignore[reportArgumentType]
    keeping.log.listen("heard", print)  # pyright: ignore[reportArgumentType]
    assert not keeping.log._listeners


async def test_many_received_messages_hold_up_and_reading_frees(few: int) -> None:
    keeping = Keeping()
    for number in range(few):
        assert not keeping.log.crowded
        keeping.happen(*received(f"{number}"))
    assert keeping.log.crowded
    stream = keeping.log.stream(("message-received",))
    assert keeping.log.crowded
    await anext(stream)
    await anext(stream)
    assert not keeping.log.crowded
    assert keeping.reads == 1


async def test_a_slow_stream_holds_up_also_where_another_is_fast(few: int) -> None:
    keeping = Keeping()
    slow, fast = keeping.log.stream(()), keeping.log.stream(("message-received",))
    for number in range(few):
        keeping.happen(*received(f"{number}"))
        await waiting(fast)
    assert keeping.log.crowded
    slow.close()
    assert not keeping.log.crowded


async def test_final_events_that_nobody_reads_are_kept_up_to_a_bound_and_hold_up_nothing(few: int) -> None:
    keeping = Keeping()
    for number in range(few + 3):
        keeping.happen(*delivered(f"{number}"))
    assert not keeping.log.crowded
    assert keeping.log.unkept == 3
    assert len(keeping.rows) == few
    assert len(keeping.log._backlog) == few
    assert len(keeping.log.stream(("reliable:message:delivered",))) == few


async def test_events_of_progress_are_dropped_and_counted_when_too_many_wait(few: int) -> None:
    keeping = Keeping()
    stream = keeping.log.stream(())
    for _ in range(few + 3):
        keeping.happen(MessageSent("m", ONE))
    assert (len(stream), stream.dropped) == (few, 3)
    keeping.happen(*received("1"))  # this is not, by neither name
    assert (len(stream), stream.dropped) == (few + 2, 3)


@pytest.mark.virtual
async def test_a_stream_waits_for_events_and_ends_with_the_channel() -> None:
    keeping = Keeping()
    heard: list[ChannelEvent] = []

    async def read(stream: EventStream) -> None:
        heard.extend([event async for event in stream])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, keeping.log.stream(("message-received",)))
        await trio.sleep(1)
        keeping.happen(*received("1"))
        await trio.sleep(1)
        assert len(heard) == 0  # extend waits for the end
        keeping.log.end()
    assert heard == [received("1")[0]]


STEPS = ("message", "delivered", "read", "open", "close", "drop", "crash", "end well")


@given(st.lists(st.sampled_from(STEPS), max_size=60))
def test_every_event_that_matters_is_read_at_least_once(steps: list[str]) -> None:
    trio.run(_live, steps)


async def _live(steps: list[str]) -> None:
    keeping = Keeping()
    stream: EventStream | None = None
    told: list[ChannelEvent] = []
    read: list[ChannelEvent] = []
    names = ("message-received", "reliable:message:delivered")
    for number, step in enumerate([*steps, "crash", "open", *["read"] * 2 * len(steps)]):
        match step:
            case "message":
                told.append(received(f"{number}")[0])
                keeping.happen(*received(f"{number}"))
            case "delivered":
                told.append(delivered(f"{number}")[1])
                keeping.happen(*delivered(f"{number}"))
            case "read" if stream is not None and len(stream):
                read.append(await anext(stream))
            case "open" if stream is None:
                stream = keeping.log.stream(names)
            case "close" if stream is not None:
                stream.close()
                stream = None
            case "end well" if stream is not None:
                async with stream:
                    pass
                stream = None
            case "drop":
                stream = None
            case "crash":
                stream = None
                keeping.again()
            case _:
                pass
    assert list(dict.fromkeys(read)) == told  # in order, none missing
    again = len(read) - len(told)
    assert again <= sum(step in ("crash", "close") for step in steps) + 1


@pytest.mark.parametrize("key", ["x", "", "-1", "²"])
def test_a_row_without_a_number_is_a_decode_error(key: str) -> None:
    with pytest.raises(DecodeError):
        EventLog([Row(EVENTS, key, b'["dropped","m","r"]')], lambda: None)
