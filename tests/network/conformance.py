"""What `pywaku.network.port` promises, as checks that every build of it has to pass.

Each check takes a `NetworkFactory`; `CONFORMANCE` lists them all. A build's test module runs them under its
own clock: see `test_simulated.py`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from pywaku.errors import (
    DialError,
    InvalidInput,
    NetworkError,
    NodeClosed,
    NotConnected,
    ProtocolNotSupported,
    StreamClosed,
    StreamReset,
)
from pywaku.keys import PrivateKey
from pywaku.network.port import (
    Direction,
    Network,
    PeerConnected,
    PeerDisconnected,
    PeerIdentified,
    Stream,
    StreamHandler,
)
from tests.support.networks import (
    PATIENCE_S,
    NetworkFactory,
    Recorder,
    echo,
    eventually,
    receive_exactly,
    receive_to_end,
)

Check = Callable[[NetworkFactory], Awaitable[None]]
CONFORMANCE: list[Check] = []

ECHO = "/test/echo/1.0.0"
OTHER = "/test/other/1.0.0"
LARGE = 5 * 1024 * 1024


def check(function: Check) -> Check:
    CONFORMANCE.append(function)
    return function


@asynccontextmanager
async def pair(factory: NetworkFactory) -> AsyncGenerator[tuple[Network, Network]]:
    """Two hosts, the first connected to the second, each knowing what the other speaks."""
    async with factory.host() as one, factory.host() as two:
        one_hears, two_hears = Recorder(one), Recorder(two)
        await one.connect(two.addresses)
        await two_hears.wait(PeerIdentified, one.peer_id)
        await one_hears.wait(PeerIdentified, two.peer_id)
        one_hears.stop()
        two_hears.stop()
        yield one, two


class Inbox:
    """A handler that hands its streams to the test and stays until the test lets go of them.

    Then it goes on as the handler `then`.
    """

    def __init__(self, then: StreamHandler | None = None) -> None:
        self._send, self._receive = trio.open_memory_channel[Stream](math.inf)
        self._then = then
        self.release = trio.Event()

    async def __call__(self, stream: Stream) -> None:
        await self._send.send(stream)
        await self.release.wait()
        if self._then is not None:
            await self._then(stream)

    async def next(self) -> Stream:
        with trio.fail_after(PATIENCE_S):
            return await self._receive.receive()


@asynccontextmanager
async def stream_pair(factory: NetworkFactory) -> AsyncGenerator[tuple[Stream, Stream]]:
    """Both ends of one stream; its first byte has been exchanged, so that the negotiation is over."""
    inbox = Inbox()
    async with pair(factory) as (one, two):
        two.serve(ECHO, inbox)
        near = await one.open_stream(two.peer_id, ECHO)
        await near.send(b"?")
        far = await inbox.next()
        assert await receive_exactly(far, 1) == b"?"
        await far.send(b"!")
        assert await receive_exactly(near, 1) == b"!"
        yield near, far
        inbox.release.set()


async def assert_echoes(network: Network, other: Network) -> None:
    async with await network.open_stream(other.peer_id, ECHO) as stream:
        await stream.send(b"still there?")
        assert await receive_exactly(stream, 12) == b"still there?"


async def eventually_echoes(network: Network, other: Network) -> None:
    """The same, after a while in which the other side may still refuse it."""
    with trio.fail_after(PATIENCE_S):
        while True:
            try:
                return await assert_echoes(network, other)
            except StreamReset:
                await trio.sleep(0.01)


async def assert_reset(stream: Stream) -> None:
    """The stream's end is, sooner or later, a reset."""
    with trio.fail_after(PATIENCE_S), pytest.raises(StreamReset):
        await receive_to_end(stream)


async def send_for_ever(stream: Stream, size: int = 64 * 1024) -> None:
    """Send as much as the stream takes."""
    while True:
        await stream.send(bytes(size))


async def converse(stream: Stream) -> None:
    """Send something and wait for something."""
    with trio.fail_after(PATIENCE_S):
        await stream.send(b"hello")
        await stream.receive()


async def open_and_converse(network: Network, other: Network, protocol: str) -> None:
    """The same on a new stream, which need not fail before it is used."""
    await converse(await network.open_stream(other.peer_id, protocol))


# Connections.


@check
async def connecting_makes_each_a_peer_of_the_other(factory: NetworkFactory) -> None:
    async with factory.host() as one, factory.host() as two:
        assert one.peer_id != two.peer_id
        assert not one.peers
        hears = Recorder(two)
        assert await one.connect(two.addresses) == two.peer_id
        await hears.wait(PeerConnected, one.peer_id)
        assert one.peers[two.peer_id].direction is Direction.OUTBOUND
        assert two.peers[one.peer_id].direction is Direction.INBOUND
        assert one.peers[two.peer_id].remote_address is not None


@check
async def one_address_will_do(factory: NetworkFactory) -> None:
    async with factory.host() as one, factory.host() as two:
        assert await one.connect(two.addresses[0]) == two.peer_id
        assert two.peer_id in one.peers


@check
async def addresses_carry_the_peer_id_and_are_sorted(factory: NetworkFactory) -> None:
    async with factory.host() as one:
        assert one.addresses
        assert all(address.peer_id == one.peer_id for address in one.addresses)
        assert list(one.addresses) == sorted(one.addresses, key=str)


@check
async def an_address_without_a_peer_id_is_accepted(factory: NetworkFactory) -> None:
    async with factory.host() as one, factory.host() as two:
        assert await one.connect(two.addresses[0].without_peer()) == two.peer_id


@check
async def connecting_nowhere_is_invalid(factory: NetworkFactory) -> None:
    async with factory.host() as one:
        with pytest.raises((InvalidInput, DialError)):
            await one.connect([])


@check
async def a_refused_dial_is_a_dial_error(factory: NetworkFactory) -> None:
    address = await factory.refusing_address()
    async with factory.host() as one:
        with pytest.raises(DialError):
            await one.connect(address)
        assert not one.peers


@check
async def a_silent_address_times_out(factory: NetworkFactory) -> None:
    async with factory.host() as one, factory.silent_address() as address:
        started = trio.current_time()
        with pytest.raises(DialError):
            await one.connect(address, timeout=0.3)
        assert trio.current_time() - started >= 0.25
        assert not one.peers


@check
async def a_silent_address_delays_no_other_dial(factory: NetworkFactory) -> None:
    async with (
        factory.host() as one,
        factory.host() as two,
        factory.silent_address() as address,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(partial(one.connect, address, timeout=10 * PATIENCE_S))
        await trio.sleep(0.05)
        with trio.fail_after(PATIENCE_S):
            assert await one.connect(two.addresses) == two.peer_id
        nursery.cancel_scope.cancel()


@check
async def addresses_are_tried_in_turn(factory: NetworkFactory) -> None:
    address = await factory.refusing_address()
    async with factory.host() as one, factory.host() as two:
        addresses = [address.with_peer(two.peer_id), *two.addresses]
        assert await one.connect(addresses) == two.peer_id


@check
async def another_peer_than_the_expected_is_refused(factory: NetworkFactory) -> None:
    expected = PrivateKey.generate().public.peer_id
    async with factory.host() as one, factory.host() as two:
        with pytest.raises(DialError):
            await one.connect(two.addresses[0].without_peer().with_peer(expected))
        assert not one.peers
        assert await one.connect(two.addresses) == two.peer_id


@check
async def a_node_does_not_connect_to_itself(factory: NetworkFactory) -> None:
    async with factory.host() as one:
        with pytest.raises(DialError):
            await one.connect(one.addresses)
        assert not one.peers


@check
async def a_failed_dial_can_be_repeated_at_once(factory: NetworkFactory) -> None:
    address = await factory.refusing_address()
    async with factory.host() as one, factory.host() as two:
        with pytest.raises(DialError):
            await one.connect(address.with_peer(two.peer_id))
        assert await one.connect(two.addresses) == two.peer_id


@check
async def connecting_twice_is_one_connection(factory: NetworkFactory) -> None:
    async with factory.host() as one, factory.host() as two:
        one_hears, two_hears = Recorder(one), Recorder(two)
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(one.connect, two.addresses)
        assert await one.connect(two.addresses) == two.peer_id
        await two_hears.wait(PeerIdentified, one.peer_id)
        await one.disconnect(two.peer_id)
        await two_hears.wait(PeerDisconnected, one.peer_id)
        assert len(one_hears.of(PeerConnected, two.peer_id)) == 1
        assert len(two_hears.of(PeerConnected, one.peer_id)) == 1


@check
async def dialing_each_other_at_once_ends_in_a_working_connection(factory: NetworkFactory) -> None:
    async with factory.host() as one, factory.host() as two:
        one.serve(ECHO, echo)
        two.serve(ECHO, echo)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.connect, two.addresses)
            nursery.start_soon(two.connect, one.addresses)
        await trio.sleep(0.2)
        await assert_echoes(one, two)
        await assert_echoes(two, one)


@check
async def a_cancelled_dial_leaves_the_network_usable(factory: NetworkFactory) -> None:
    async with factory.host() as one, factory.host() as two, factory.silent_address() as address:
        two.serve(ECHO, echo)
        with trio.move_on_after(0.05):
            await one.connect(address)
        with trio.CancelScope() as scope:
            scope.cancel()
            await one.connect(two.addresses)
        assert await one.connect(two.addresses) == two.peer_id
        await assert_echoes(one, two)


@check
async def disconnecting_is_seen_on_both_sides_and_can_be_undone(factory: NetworkFactory) -> None:
    async with pair(factory) as (one, two):
        two.serve(ECHO, echo)
        one_hears, two_hears = Recorder(one), Recorder(two)
        await one.disconnect(two.peer_id, reason="for a reason")
        assert (await one_hears.wait(PeerDisconnected, two.peer_id)).reason == "for a reason"
        assert (await two_hears.wait(PeerDisconnected, one.peer_id)).reason
        assert two.peer_id not in one.peers
        assert one.peer_id not in two.peers
        await one.disconnect(two.peer_id)
        await one.connect(two.addresses)
        await assert_echoes(one, two)


@check
async def disconnecting_resets_the_streams(factory: NetworkFactory) -> None:
    inbox = Inbox()
    async with pair(factory) as (one, two):
        two.serve(ECHO, inbox)
        near = await one.open_stream(two.peer_id, ECHO)
        await near.send(b"hello")
        far = await inbox.next()
        assert await receive_exactly(far, 5) == b"hello"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(assert_reset, near)
            nursery.start_soon(assert_reset, far)
            await trio.sleep(0.05)
            await one.disconnect(two.peer_id)
        for stream in (near, far):
            with pytest.raises(StreamReset):
                await stream.send(b"too late")


@check
async def what_ended_before_a_disconnection_can_still_be_read(factory: NetworkFactory) -> None:
    for half_closed in (True, False):
        answered = trio.Event()

        async def answer(stream: Stream, answered: trio.Event = answered) -> None:
            await receive_exactly(stream, len(b"a question"))
            await stream.send(b"all of it")
            await stream.close()
            answered.set()

        async with pair(factory) as (one, two):
            two.serve(OTHER, answer)
            two.serve(ECHO, echo)
            hears = Recorder(one)
            stream = await one.open_stream(two.peer_id, OTHER)
            await stream.send(b"a question")
            if half_closed:
                await stream.close_write()
            await answered.wait()
            await assert_echoes(one, two)  # by then the answer has arrived
            await two.disconnect(one.peer_id)
            await hears.wait(PeerDisconnected, two.peer_id)
            assert await receive_to_end(stream) == b"all of it"
            assert await stream.receive() == b""
            with pytest.raises((StreamReset, StreamClosed)):
                await stream.send(b"too late")


@check
async def an_end_is_no_end_any_more_after_a_reset(factory: NetworkFactory) -> None:
    async with pair(factory) as (one, two):

        async def hang_up(stream: Stream) -> None:
            await stream.close_write()
            await trio.sleep_forever()

        two.serve(OTHER, hang_up)
        stream = await one.open_stream(two.peer_id, OTHER)
        await stream.send(b"?")
        assert await stream.receive() == b""
        stream.reset()
        await assert_reset(stream)


# Events.


@check
async def peer_events_come_in_order_and_once(factory: NetworkFactory) -> None:
    async with factory.host() as one, factory.host() as two:
        two.serve(ECHO, echo)
        hears, also_hears = Recorder(one), Recorder(two)
        for count in (1, 2):
            await one.connect(two.addresses)
            await hears.wait(PeerIdentified, two.peer_id, count=count)
            await also_hears.wait(PeerIdentified, one.peer_id, count=count)
            await one.disconnect(two.peer_id)
            await hears.wait(PeerDisconnected, two.peer_id, count=count)
            await also_hears.wait(PeerDisconnected, one.peer_id, count=count)
        expected = [PeerConnected, PeerIdentified, PeerDisconnected] * 2
        assert [type(event) for event in hears.events] == expected
        assert [type(event) for event in also_hears.events] == expected
        first, second = hears.events[0], also_hears.events[0]
        assert isinstance(first, PeerConnected)
        assert isinstance(second, PeerConnected)
        assert (first.direction, second.direction) == (Direction.OUTBOUND, Direction.INBOUND)


@check
async def peers_identify_themselves(factory: NetworkFactory) -> None:
    async with factory.host() as one, factory.host() as two:
        two.serve(ECHO, echo)
        two.serve(OTHER, echo)
        hears = Recorder(one)
        await one.connect(two.addresses)
        told = await hears.wait(PeerIdentified, two.peer_id)
        assert {ECHO, OTHER} <= told.protocols
        assert told.agent
        assert {address.without_peer() for address in told.listen_addresses} == {
            address.without_peer() for address in two.addresses
        }
        info = one.peers[two.peer_id]
        assert info.identified
        assert (info.protocols, info.agent, info.listen_addresses) == (
            told.protocols,
            told.agent,
            told.listen_addresses,
        )


@check
async def what_a_peer_begins_to_serve_is_made_known(factory: NetworkFactory) -> None:
    async with pair(factory) as (one, two):
        assert ECHO not in one.peers[two.peer_id].protocols
        hears = Recorder(one)
        two.serve(ECHO, echo)
        assert ECHO in (await hears.wait(PeerIdentified, two.peer_id)).protocols
        two.unserve(ECHO)
        assert ECHO not in (await hears.wait(PeerIdentified, two.peer_id, count=2)).protocols
        assert ECHO not in one.peers[two.peer_id].protocols


@check
async def a_listener_that_raises_harms_nobody(factory: NetworkFactory) -> None:
    def fail(event: object) -> None:
        raise ValueError("a bad listener")

    async with factory.host() as one, factory.host() as two:
        two.serve(ECHO, echo)
        one.watch(fail)
        hears = Recorder(one)
        await one.connect(two.addresses)
        await hears.wait(PeerIdentified, two.peer_id)
        await assert_echoes(one, two)


@check
async def a_listener_that_was_ended_hears_nothing(factory: NetworkFactory) -> None:
    async with factory.host() as one, factory.host() as two:
        ended, hears = Recorder(one), Recorder(one)
        ended.stop()
        ended.stop()
        await one.connect(two.addresses)
        await hears.wait(PeerConnected, two.peer_id)
        assert not ended.events


# Protocols.


@check
async def an_unknown_protocol_is_not_supported(factory: NetworkFactory) -> None:
    async with pair(factory) as (one, two):
        two.serve(ECHO, echo)
        with pytest.raises(ProtocolNotSupported):
            await open_and_converse(one, two, OTHER)
        with trio.fail_after(PATIENCE_S), pytest.raises(ProtocolNotSupported):
            await one.open_stream(two.peer_id, ["/test/a", "/test/b"])
        await assert_echoes(one, two)


@check
async def the_first_protocol_that_the_peer_speaks_is_taken(factory: NetworkFactory) -> None:
    inbox = Inbox()
    async with pair(factory) as (one, two):
        two.serve(ECHO, inbox)
        two.serve(OTHER, inbox)
        async with await one.open_stream(two.peer_id, ["/test/none", OTHER, ECHO]) as stream:
            assert stream.protocol == OTHER
            await stream.send(b"hello")
            far = await inbox.next()
            assert far.protocol == OTHER
            assert (far.peer, far.direction) == (one.peer_id, Direction.INBOUND)
            assert (stream.peer, stream.direction) == (two.peer_id, Direction.OUTBOUND)
            assert await receive_exactly(far, 5) == b"hello"
        inbox.release.set()


@check
async def the_peer_may_speak_first(factory: NetworkFactory) -> None:
    async def greet(stream: Stream) -> None:
        await stream.send(b"welcome")

    async with pair(factory) as (one, two):
        two.serve(ECHO, greet)
        async with await one.open_stream(two.peer_id, [OTHER, ECHO]) as stream:
            assert await receive_to_end(stream) == b"welcome"


@check
async def a_protocol_is_served_once(factory: NetworkFactory) -> None:
    async with factory.host() as one:
        one.serve(ECHO, echo)
        with pytest.raises(InvalidInput):
            one.serve(ECHO, echo)
        one.unserve(ECHO)
        one.unserve(ECHO)
        one.serve(ECHO, echo)


@check
async def unserving_refuses_new_streams_and_leaves_old_ones(factory: NetworkFactory) -> None:
    async with pair(factory) as (one, two):
        two.serve(ECHO, echo)
        old = await one.open_stream(two.peer_id, ECHO)
        await old.send(b"1")
        assert await receive_exactly(old, 1) == b"1"
        two.unserve(ECHO)
        with pytest.raises(ProtocolNotSupported):
            await open_and_converse(one, two, ECHO)
        await old.send(b"3")
        assert await receive_exactly(old, 1) == b"3"
        await old.close()


@check
async def a_stream_needs_a_connection(factory: NetworkFactory) -> None:
    async with factory.host() as one, factory.host() as two:
        with pytest.raises(NotConnected):
            await one.open_stream(two.peer_id, ECHO)
        with pytest.raises(NotConnected):
            await one.open_stream(two.peer_id, [ECHO, OTHER])


# Bytes.


@check
async def what_is_sent_arrives_both_ways(factory: NetworkFactory) -> None:
    async with stream_pair(factory) as (near, far):
        for number in range(20):
            message = bytes([number]) * (number * 37 + 1)
            await near.send(message)
            assert await receive_exactly(far, len(message)) == message
            await far.send(message[::-1])
            assert await receive_exactly(near, len(message)) == message[::-1]


@check
async def one_receive_takes_all_that_has_arrived(factory: NetworkFactory) -> None:
    inbox = Inbox()
    async with pair(factory) as (one, two):
        two.serve(OTHER, inbox)
        two.serve(ECHO, echo)
        near = await one.open_stream(two.peer_id, OTHER)
        await near.send(b"?")
        far = await inbox.next()
        assert await receive_exactly(far, 1) == b"?"
        for number in range(10):
            await near.send(bytes([number]) * 100)
        await assert_echoes(one, two)  # by then all of it has arrived
        assert len(await far.receive()) == 1000
        inbox.release.set()


@check
async def large_data_passes_both_ways_at_once(factory: NetworkFactory) -> None:
    data = bytes(range(256)) * (LARGE // 256)
    async with stream_pair(factory) as (near, far):

        async def send(stream: Stream) -> None:
            await stream.send(data)
            await stream.close_write()

        received: list[bytes] = []

        async def receive(stream: Stream) -> None:
            received.append(await receive_to_end(stream))

        async with trio.open_nursery() as nursery:
            for stream in (near, far):
                nursery.start_soon(send, stream)
                nursery.start_soon(receive, stream)
        assert received == [data, data]


@check
async def an_echo_of_much_data_in_small_pieces_is_complete(factory: NetworkFactory) -> None:
    pieces = [bytes([number % 251]) * 1500 for number in range(500)]
    async with pair(factory) as (one, two):
        two.serve(ECHO, echo)
        async with await one.open_stream(two.peer_id, ECHO) as stream, trio.open_nursery() as nursery:

            async def send() -> None:
                for piece in pieces:
                    await stream.send(piece)
                await stream.close_write()

            nursery.start_soon(send)
            assert await receive_to_end(stream) == b"".join(pieces)


@check
async def two_hundred_streams_run_side_by_side(factory: NetworkFactory) -> None:
    done: list[int] = []
    async with pair(factory) as (one, two):
        two.serve(ECHO, echo, max_streams_per_peer=200)

        async def talk(number: int) -> None:
            message = number.to_bytes(2) * 500
            async with await one.open_stream(two.peer_id, ECHO) as stream:
                for _ in range(3):
                    await stream.send(message)
                    assert await receive_exactly(stream, len(message)) == message
            done.append(number)

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(talk, number)
        assert sorted(done) == list(range(200))


@check
async def streams_can_be_opened_one_after_the_other_without_end(factory: NetworkFactory) -> None:
    async with pair(factory) as (one, two):
        two.serve(ECHO, echo, max_streams_per_peer=8)
        for number in range(300):
            async with await one.open_stream(two.peer_id, ECHO) as stream:
                await stream.send(b"x")
                await stream.close_write()
                assert await receive_to_end(stream) == b"x", number


@check
async def a_sender_waits_for_a_receiver_that_does_not_read(factory: NetworkFactory) -> None:
    most = 32 * 1024 * 1024
    block = bytes(64 * 1024)
    async with stream_pair(factory) as (near, far):
        sent = 0

        async def send() -> None:
            nonlocal sent
            while sent < most:
                await near.send(block)
                sent += len(block)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            before = -1
            while before < sent:
                before = sent
                await trio.sleep(0.3)
            assert sent < most // 2, "nothing held the sender back"
            await far.receive()
            await receive_until(far, 4 * sent)
            nursery.cancel_scope.cancel()


async def receive_until(stream: Stream, size: int) -> None:
    """Read on until at least `size` bytes have come."""
    with trio.fail_after(PATIENCE_S):
        while size > 0:
            size -= len(await stream.receive())


@check
async def a_stuck_stream_holds_up_no_other(factory: NetworkFactory) -> None:
    inbox = Inbox()
    async with pair(factory) as (one, two):
        two.serve(OTHER, inbox)
        two.serve(ECHO, echo)
        stuck = await one.open_stream(two.peer_id, OTHER)
        with trio.move_on_after(0.3):
            await send_for_ever(stuck)
        for _ in range(5):
            await assert_echoes(one, two)
        stuck.reset()
        inbox.release.set()


# Endings.


@check
async def each_direction_ends_by_itself(factory: NetworkFactory) -> None:
    async with stream_pair(factory) as (near, far):
        await near.send(b"last words")
        await near.close_write()
        assert await receive_to_end(far) == b"last words"
        await far.send(b"an answer")
        assert await receive_exactly(near, 9) == b"an answer"
        await far.close_write()
        assert await receive_to_end(near) == b""


@check
async def the_end_stays_the_end(factory: NetworkFactory) -> None:
    async with stream_pair(factory) as (near, far):
        await far.send(b"tail")
        await far.close_write()
        assert await receive_to_end(near) == b"tail"
        for _ in range(3):
            assert await near.receive() == b""
        await near.send(b"the other way is open")
        assert await receive_exactly(far, 21)


@check
async def sending_after_closing_raises(factory: NetworkFactory) -> None:
    async with stream_pair(factory) as (near, far):
        await near.close_write()
        await near.close_write()
        with pytest.raises(StreamClosed):
            await near.send(b"one more thing")
        await far.close()
        await far.close()
        with pytest.raises(StreamClosed):
            await far.send(b"one more thing")


@check
async def what_was_sent_before_closing_is_delivered(factory: NetworkFactory) -> None:
    data = bytes(range(256)) * 400
    async with stream_pair(factory) as (near, far):
        await near.send(data)
        await near.close()
        assert await receive_to_end(far) == data


@check
async def a_handler_that_returns_closes_its_stream(factory: NetworkFactory) -> None:
    async def answer(stream: Stream) -> None:
        await stream.send(b"answer")

    async with pair(factory) as (one, two):
        two.serve(ECHO, answer)
        async with await one.open_stream(two.peer_id, ECHO) as stream:
            await stream.send(b"a question that is not read")
            assert await receive_to_end(stream) == b"answer"


@check
async def a_reset_is_seen_by_the_other_side(factory: NetworkFactory) -> None:
    async with stream_pair(factory) as (near, far):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(assert_reset, near)
            nursery.start_soon(assert_reset, far)
            await trio.sleep(0.05)
            near.reset()
        for stream in (near, far):
            with pytest.raises(StreamReset):
                await stream.send(b"x")
        near.reset()
        await near.close()


@check
async def a_reset_drops_what_was_not_read(factory: NetworkFactory) -> None:
    async with pair(factory) as (one, two):
        inbox = Inbox()
        two.serve(OTHER, inbox)
        two.serve(ECHO, echo)
        near = await one.open_stream(two.peer_id, OTHER)
        await near.send(b"unread")
        await near.close_write()
        far = await inbox.next()
        await assert_echoes(one, two)  # by then it has arrived
        far.reset()
        with pytest.raises(StreamReset):
            await far.receive()
        await assert_reset(near)
        inbox.release.set()


@check
async def a_reset_wakes_a_waiting_sender(factory: NetworkFactory) -> None:
    async with stream_pair(factory) as (near, far):

        async def send_in_vain() -> None:
            with pytest.raises(StreamReset):
                await send_for_ever(near)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_in_vain)
            await trio.sleep(0.3)
            far.reset()


@check
async def leaving_a_stream_by_an_exception_resets_it(factory: NetworkFactory) -> None:
    async with stream_pair(factory) as (near, far):
        with pytest.raises(ValueError, match="trouble"):
            async with near:
                raise ValueError("trouble")
        await assert_reset(far)


@check
async def leaving_a_stream_regularly_closes_it(factory: NetworkFactory) -> None:
    async with stream_pair(factory) as (near, far):
        async with near:
            await near.send(b"bye")
        assert await receive_to_end(far) == b"bye"


# Handlers.


@check
async def a_handler_that_raises_resets_its_stream_only(factory: NetworkFactory) -> None:
    async def fail(stream: Stream) -> None:
        await stream.receive()
        raise ValueError("a bad handler")

    async with pair(factory) as (one, two):
        two.serve(OTHER, fail)
        two.serve(ECHO, echo)
        good = await one.open_stream(two.peer_id, ECHO)
        await good.send(b"1")
        assert await receive_exactly(good, 1) == b"1"
        bad = await one.open_stream(two.peer_id, OTHER)
        await bad.send(b"hello")
        await assert_reset(bad)
        await good.send(b"2")
        assert await receive_exactly(good, 1) == b"2"
        await good.close()
        await assert_echoes(one, two)
        assert one.peer_id in two.peers


@check
async def a_handler_that_raises_a_group_resets_its_stream_only(factory: NetworkFactory) -> None:
    async def fail_later() -> None:
        await trio.sleep(0.01)
        raise ValueError("a bad handler")

    async def fail(stream: Stream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_later)
            nursery.start_soon(partial(echo, stream))

    async with pair(factory) as (one, two):
        two.serve(OTHER, fail)
        two.serve(ECHO, echo)
        bad = await one.open_stream(two.peer_id, OTHER)
        await bad.send(b"hello")
        await assert_reset(bad)
        await assert_echoes(one, two)


@check
async def a_handler_that_reads_nothing_harms_nobody(factory: NetworkFactory) -> None:
    async def ignore(stream: Stream) -> None:
        await trio.sleep(0.01)

    async with pair(factory) as (one, two):
        two.serve(OTHER, ignore)
        two.serve(ECHO, echo)
        for _ in range(20):
            with trio.move_on_after(0.2):
                try:
                    async with await one.open_stream(two.peer_id, OTHER) as stream:
                        await stream.send(bytes(1024))
                        assert await stream.receive() == b""
                except StreamReset:
                    pass
        await assert_echoes(one, two)


@check
async def streams_beyond_the_maximum_per_peer_are_reset(factory: NetworkFactory) -> None:
    inbox = Inbox(then=echo)
    async with pair(factory) as (one, two):
        two.serve(ECHO, inbox, max_streams_per_peer=3)
        held: list[Stream] = []
        for _ in range(3):
            stream = await one.open_stream(two.peer_id, ECHO)
            await stream.send(b"x")
            await inbox.next()
            held.append(stream)
        with pytest.raises(StreamReset):
            await open_and_converse(one, two, ECHO)
        async with factory.host() as three:  # others have a count of their own
            await three.connect(two.addresses)
            other = await three.open_stream(two.peer_id, ECHO)
            await other.send(b"x")
            await inbox.next()
            await other.close()
        inbox.release.set()
        for stream in held:
            await stream.close()
        await eventually_echoes(one, two)


# Cancellation.


@check
async def a_cancelled_receive_loses_nothing(factory: NetworkFactory) -> None:
    async with stream_pair(factory) as (near, far):
        with trio.move_on_after(0.05) as scope:
            await near.receive()
        assert scope.cancelled_caught
        await far.send(b"after all")
        assert await receive_exactly(near, 9) == b"after all"
        with trio.CancelScope() as scope:
            scope.cancel()
            await near.receive()
        await near.send(b"and back")
        assert await receive_exactly(far, 8) == b"and back"


@check
async def a_cancelled_send_leaves_the_connection_usable(factory: NetworkFactory) -> None:
    inbox = Inbox()
    async with pair(factory) as (one, two):
        two.serve(OTHER, inbox)
        two.serve(ECHO, echo)
        stream = await one.open_stream(two.peer_id, OTHER)
        with trio.move_on_after(0.3) as scope:
            await send_for_ever(stream, 300 * 1024)
        assert scope.cancelled_caught
        await assert_echoes(one, two)
        stream.reset()
        inbox.release.set()
        await assert_echoes(one, two)


@check
async def a_send_that_is_cancelled_before_it_begins_changes_nothing(factory: NetworkFactory) -> None:
    async with stream_pair(factory) as (one, two), trio.open_nursery() as nursery:
        much = b"a" * 2 * 1024 * 1024
        nursery.start_soon(one.send, much)
        await trio.sleep(0.1)
        with trio.move_on_after(0.1) as limit:
            await one.send(b"not this")
        nursery.start_soon(one.send, b"but this")
        # Without flow control, as over mplex, nothing waits: then it was not cancelled either.
        expected = much + (b"" if limit.cancelled_caught else b"not this") + b"but this"
        assert await receive_exactly(two, len(expected)) == expected


@check
async def of_tasks_that_send_on_one_stream_each_is_heard_whole(factory: NetworkFactory) -> None:
    async with stream_pair(factory) as (one, two), trio.open_nursery() as nursery:
        much = 3 * 1024 * 1024
        for letter in (b"a", b"b", b"c"):
            nursery.start_soon(one.send, letter * much)
        received = await receive_exactly(two, 3 * much)
        assert {received[at : at + much] for at in range(0, 3 * much, much)} == {
            letter * much for letter in (b"a", b"b", b"c")
        }


@check
async def a_cancelled_open_leaves_the_connection_usable(factory: NetworkFactory) -> None:
    async with pair(factory) as (one, two):
        two.serve(ECHO, echo)
        for delay in (0.0, 0.001, 0.01):
            with trio.move_on_after(delay):
                stream = await one.open_stream(two.peer_id, [OTHER, ECHO])
                stream.reset()
        await assert_echoes(one, two)
        assert one.peer_id in two.peers


# The end.


@check
async def closing_leaves_nothing_behind(factory: NetworkFactory) -> None:
    begun: list[str] = []
    cancelled: list[str] = []

    async def linger(stream: Stream) -> None:
        begun.append("handler")
        try:
            await trio.sleep_forever()
        finally:
            cancelled.append("handler")

    async with factory.host() as one:
        hears = Recorder(one)
        async with factory.host() as two:
            two.serve(ECHO, linger)
            addresses = two.addresses
            await one.connect(addresses)
            stream = await one.open_stream(two.peer_id, ECHO)
            await stream.send(b"hello")
            own = await one.open_stream(two.peer_id, ECHO)
            await own.send(b"hello")
            await eventually(lambda: len(begun) == 2)
        assert cancelled == ["handler", "handler"]
        await hears.wait(PeerDisconnected, two.peer_id)
        with pytest.raises(NetworkError):
            await converse(stream)
        with pytest.raises(DialError):
            await one.connect(addresses)
        with pytest.raises((NodeClosed, NotConnected)):
            await two.open_stream(one.peer_id, ECHO)
        with pytest.raises((NodeClosed, DialError)):
            await two.connect(one.addresses)
        assert not two.peers
        assert not one.peers


@check
async def closing_resets_the_streams_that_are_open(factory: NetworkFactory) -> None:
    inbox = Inbox()
    async with factory.host() as one:
        one.serve(ECHO, inbox)
        async with factory.host() as two:
            await two.connect(one.addresses)
            stream = await two.open_stream(one.peer_id, ECHO)
            await stream.send(b"hello")
            far = await inbox.next()
        await assert_reset(far)
        with pytest.raises(NetworkError):
            await stream.send(b"x")
        with pytest.raises(NetworkError):
            await stream.receive()
        inbox.release.set()


@check
async def a_block_that_raises_closes_the_network_and_raises_on(factory: NetworkFactory) -> None:
    async with factory.host() as one:
        hears = Recorder(one)

        async def trouble() -> None:
            async with factory.host() as two:
                await two.connect(one.addresses)
                await hears.wait(PeerConnected, two.peer_id)
                raise ValueError("trouble")

        with pytest.raises(ValueError, match="trouble"):
            await trouble()
        await eventually(lambda: not one.peers)
