"""The cells of the fault matrix: what goes wrong, in which mode, and what must become of the message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

import trio

from pywaku.gossip import Verdict
from pywaku.messaging.record import RequestId
from pywaku.peers.services import Service
from pywaku.wire import lightpush
from tests.support import misbehaving as bad
from tests.support.faults import HOUR_NS, Actor, Fate, Mode, Stage, open_stage
from tests.support.stores import serve_twisted


class Expect(Enum):
    """What must become of the message, besides what holds in every cell."""

    SENT = "sent"
    """It is sent, and every live subscriber has it."""
    HEARD = "heard"
    """Every live subscriber has it; it may have an error all the same. Stores do not keep what is more than
    20 s old when it comes (13/WAKU2-STORE, Waku Message Store Eligibility), and so do not confirm it."""
    ERROR = "error"
    """It has an error."""


Act = Callable[[Stage], Awaitable[RequestId]]


@dataclass(frozen=True, slots=True)
class Cell:
    """One fault in one mode."""

    fault: str
    mode: Mode
    act: Act
    expect: Expect
    services: int = 3
    stores: int = 1
    records: bool = False
    regular: bool = False
    """The subscribers search stores every minute (`store_confirmation`)."""

    @property
    def name(self) -> str:
        """The fault, then the mode."""
        return f"{self.fault} ({self.mode})"


async def play(cell: Cell, directory: Path, *, seed: int = 1) -> Fate:
    """Put a cell on the stage, and hold it to what it promises."""
    records = directory / "records" if cell.records else None
    async with open_stage(
        cell.mode,
        seed=seed,
        services=cell.services,
        stores=cell.stores,
        records=records,
        regular=cell.regular,
    ) as stage:
        request_id = await cell.act(stage)
        fate = await stage.fate(request_id)
        stage.hold(fate)
        match cell.expect:
            case Expect.SENT:
                assert fate.record.sent, fate
                assert None not in fate.heard_after_s.values(), fate
            case Expect.HEARD:
                assert None not in fate.heard_after_s.values(), fate
            case Expect.ERROR:
                assert fate.record.error is not None, fate
        return fate
    raise AssertionError("unreachable")


# Light push nodes that misbehave


def _in_use(how: bad.Misbehaviour, *, times: int | None = None, back_after: float | None = None) -> Act:
    """Both nodes in use misbehave; a third one does not."""

    async def act(stage: Stage) -> RequestId:
        faulty = stage.neighbours()
        assert len(faulty) == 2
        asked = bad.misbehave(faulty, how, times=times)
        request_id = stage.send()
        await trio.sleep(2)
        assert asked[0], "nobody was asked"
        if back_after is not None:
            await trio.sleep(back_after)
            for actor in faulty:
                await actor.gone()
                await actor.start()
        return request_id

    return act


def _one(how: bad.Misbehaviour) -> Act:
    """One of the two nodes in use misbehaves."""

    async def act(stage: Stage) -> RequestId:
        bad.misbehave(stage.neighbours()[:1], how)
        return stage.send()

    return act


def _all(how: bad.Misbehaviour) -> Act:
    """Every service node misbehaves, for ever."""

    async def act(stage: Stage) -> RequestId:
        bad.misbehave(stage.services, how)
        return stage.send()

    return act


def _light_push() -> list[Cell]:
    ways: list[tuple[str, bad.Misbehaviour, Expect, Expect]] = [
        # what, how, where there is another node, where there is none
        ("answers garbage", bad.answer_bytes(bad.garbage(1)), Expect.SENT, Expect.ERROR),
        ("answers nothing", bad.answer_bytes(b""), Expect.SENT, Expect.ERROR),
        ("answers another request", bad.answer_another, Expect.SENT, Expect.ERROR),
        ("resets the stream", bad.reset, Expect.SENT, Expect.ERROR),
        ("answers after 5 s", bad.answer_slowly(5), Expect.SENT, Expect.SENT),
        ("answers after 30 s", bad.answer_slowly(30), Expect.SENT, Expect.SENT),
        ("lies about success", bad.lie, Expect.SENT, Expect.ERROR),
    ]
    final = (lightpush.Status.BAD_REQUEST, lightpush.Status.PAYLOAD_TOO_LARGE)
    for code in (*lightpush.Status, 504, 505):
        if code != lightpush.Status.SUCCESS:
            other = Expect.ERROR if code in final else Expect.SENT
            ways.append((f"answers {int(code)}", bad.refuse(code), other, Expect.ERROR))
    cells: list[Cell] = []
    for what, how, with_another, alone in ways:
        cells += [
            Cell(f"one service node {what}", "edge", _one(how), Expect.SENT),
            Cell(f"both service nodes: {what}", "edge", _in_use(how), with_another),
            Cell(f"every service node {what}", "edge", _all(how), alone),
        ]
    cells += [
        Cell(
            "both service nodes: answers 429, twice", "edge", _in_use(bad.refuse(429), times=2), Expect.SENT
        ),
    ]
    for when, how in (
        ("before", bad.die_before_the_answer),
        ("during", bad.die_during_the_answer),
        ("after", bad.die_after_the_answer),
    ):
        cells += [
            Cell(f"one service node dies {when} the answer", "edge", _one(how), Expect.SENT),
            Cell(f"both service nodes die {when} the answer", "edge", _in_use(how), Expect.SENT),
        ]
        cells.append(
            Cell(
                f"all service nodes die {when} the answer and come back after 5 s",
                "edge",
                _in_use(how, times=1, back_after=3),
                Expect.SENT,
                services=2,
            )
        )
    return cells


# Relay peers that misbehave


async def _crash(actor: Actor, *, delay: float) -> None:
    await trio.sleep(delay)
    actor.crash()


def _relay_peers_die(verdict: Verdict, *, delay: float, back_after: float) -> Act:
    async def act(stage: Stage) -> RequestId:
        faulty = stage.neighbours()
        bad.on_relayed(stage, faulty, verdict, partial(_crash, delay=delay))
        request_id = stage.send()
        await trio.sleep(2)
        assert not any(actor.up for actor in faulty)
        await trio.sleep(back_after)
        for actor in faulty:
            await actor.gone()
            await actor.start()
        return request_id

    return act


def _relay_peers_hang(seconds: float) -> Act:
    async def act(stage: Stage) -> RequestId:
        hosts = [actor.host for actor in stage.neighbours()]
        for host in hosts:
            stage.waku.world.stall(host)
        request_id = stage.send()
        await trio.sleep(seconds)
        for host in hosts:
            stage.waku.world.resume(host)
        return request_id

    return act


def _relay_peers_drop(*, some: bool) -> Act:
    async def act(stage: Stage) -> RequestId:
        faulty = stage.neighbours()
        bad.ignore_all(faulty[:-1] if some else faulty)
        return stage.send()

    return act


async def _relay_peers_talk_nonsense(stage: Stage) -> RequestId:
    for actor in stage.neighbours():
        await bad.say_to(actor, stage.sender, "/vac/waku/relay/2.0.0", bad.garbage(2))
    return stage.send()


def _relay() -> list[Cell]:
    ignore, accept = Verdict.IGNORE, Verdict.ACCEPT
    return [
        Cell(
            "all relay peers die before they forward and come back after 4 s",
            "relay",
            _relay_peers_die(ignore, delay=0.0, back_after=2),
            Expect.SENT,
        ),
        Cell(
            "all relay peers die before they forward and come back after 20 s",
            "relay",
            _relay_peers_die(ignore, delay=0.0, back_after=18),
            Expect.HEARD,
        ),
        Cell(
            "all relay peers die after they forwarded and come back after 20 s",
            "relay",
            _relay_peers_die(accept, delay=0.1, back_after=18),
            Expect.SENT,
        ),
        Cell("all relay peers hang for 5 s", "relay", _relay_peers_hang(5), Expect.SENT),
        Cell("all relay peers hang for 30 s", "relay", _relay_peers_hang(30), Expect.HEARD),
        Cell(
            "some relay peers take messages and drop them",
            "relay",
            _relay_peers_drop(some=True),
            Expect.SENT,
            regular=True,
        ),
        Cell(
            "all relay peers take messages and drop them",
            "relay",
            _relay_peers_drop(some=False),
            Expect.ERROR,
        ),
        Cell("relay peers talk nonsense", "relay", _relay_peers_talk_nonsense, Expect.SENT),
    ]


# Partitions


def _sender_parted(seconds: float) -> Act:
    async def act(stage: Stage) -> RequestId:
        stage.nursery.start_soon(partial(stage.part, stage.sender, seconds=seconds))
        await trio.sleep(0.5)
        return stage.send()

    return act


def _sender_parted_in_flight(seconds: float) -> Act:
    async def act(stage: Stage) -> RequestId:
        request_id = stage.send()
        await trio.sleep(0.005)  # it has left, and not arrived
        await stage.part(stage.sender, seconds=seconds)
        return request_id

    return act


def _neighbours_parted(seconds: float) -> Act:
    """The nodes that the sender uses are cut off from everybody."""

    async def act(stage: Stage) -> RequestId:
        stage.nursery.start_soon(partial(stage.part, *stage.neighbours(), seconds=seconds))
        await trio.sleep(0.5)
        return stage.send()

    return act


def _island(seconds: float) -> Act:
    """The sender and the nodes it uses are cut off together: they still serve it."""

    async def act(stage: Stage) -> RequestId:
        island = [actor for actor in stage.neighbours() if actor not in stage.stores]
        stage.nursery.start_soon(partial(stage.part, stage.sender, *island, seconds=seconds))
        await trio.sleep(0.5)
        return stage.send()

    return act


def _receivers_parted(seconds: float) -> Act:
    async def act(stage: Stage) -> RequestId:
        receivers = [listener.actor for listener in stage.listeners]
        stage.nursery.start_soon(partial(stage.part, *receivers, seconds=seconds))
        await trio.sleep(0.5)
        return stage.send()

    return act


async def _flapping(stage: Stage) -> RequestId:
    async def flap() -> None:
        for _ in range(6):
            await stage.part(stage.sender, seconds=6)
            await trio.sleep(4)

    stage.nursery.start_soon(flap)
    await trio.sleep(0.5)
    return stage.send()


# Filter nodes


def _filter_nodes_crash(*, silent: bool) -> Act:
    """Both filter nodes of the edge subscriber are gone; it finds out at once, or much later."""

    async def act(stage: Stage) -> RequestId:
        for actor in stage.in_use(Service.FILTER, stage.listeners[0].actor):
            actor.crash(silent=silent)
        return stage.send()

    return act


async def _filter_nodes_push_nothing(stage: Stage) -> RequestId:
    """They agree, answer pings, and push nothing of what the network has."""
    faulty = stage.in_use(Service.FILTER, stage.listeners[0].actor)
    bad.ignore_all(faulty)
    return stage.send()


async def _filter_nodes_forget(stage: Stage) -> RequestId:
    """They have been restarted so quickly that their peers did not see it."""
    subscriber = stage.listeners[0].actor
    for actor in stage.in_use(Service.FILTER, subscriber):
        await bad.forget(actor, subscriber)
    return stage.send()


def _filter_nodes_answer(data: bytes) -> Act:
    """They have to be asked again, and answer this."""

    async def act(stage: Stage) -> RequestId:
        receiver = stage.listeners[0].actor
        for actor in stage.in_use(Service.FILTER, receiver):
            bad.answer_filter_requests(actor, data)
            stage.waku.world.cut(actor.host, receiver.host)
        await trio.sleep(1)
        return stage.send()

    return act


def _partitions() -> list[Cell]:
    cells: list[Cell] = []
    modes: tuple[Mode, ...] = ("edge", "relay")
    for mode in modes:
        for seconds, expect in ((10, Expect.SENT), (90, Expect.HEARD)):
            cells += [
                Cell(f"the sender is parted for {seconds} s", mode, _sender_parted(seconds), expect),
                Cell(
                    f"the sender is parted for {seconds} s while it sends",
                    mode,
                    _sender_parted_in_flight(seconds),
                    expect,
                ),
                Cell(
                    f"the nodes in use are parted from all for {seconds} s",
                    mode,
                    _neighbours_parted(seconds),
                    expect,
                ),
                Cell(
                    f"the subscribers are parted for {seconds} s",
                    mode,
                    _receivers_parted(seconds),
                    Expect.SENT,
                ),
                Cell(
                    f"the sender is on an island with its nodes for {seconds} s",
                    mode,
                    _island(seconds),
                    expect,
                ),
            ]
        cells += [
            Cell("the sender's network comes and goes for a minute", mode, _flapping, Expect.HEARD),
            Cell(
                "the subscriber's filter nodes die",
                mode,
                _filter_nodes_crash(silent=False),
                Expect.SENT,
                services=5,
            ),
            Cell(
                "the subscriber's filter nodes lose power",
                mode,
                _filter_nodes_crash(silent=True),
                Expect.SENT,
                services=5,
            ),
            Cell(
                "the subscriber's filter nodes push nothing",
                mode,
                _filter_nodes_push_nothing,
                Expect.SENT,
                services=5,
                regular=True,
            ),
            Cell(
                "the subscriber's filter nodes forget it",
                mode,
                _filter_nodes_forget,
                Expect.SENT,
                services=5,
            ),
            Cell(
                "the subscriber's filter nodes answer garbage",
                mode,
                _filter_nodes_answer(bad.garbage(4)),
                Expect.SENT,
                services=5,
            ),
        ]
    return cells


# Restarts of the sender


async def _restart(stage: Stage, *, after: float = 5.0) -> None:
    stage.sender.crash()
    await stage.sender.gone()
    await trio.sleep(after)
    await stage.start_sender()


async def _restart_after_send(stage: Stage) -> RequestId:
    request_id = stage.send()
    await _restart(stage)
    return request_id


async def _stop_after_send(stage: Stage) -> RequestId:
    request_id = stage.send()
    await stage.sender.stop()
    await trio.sleep(5)
    await stage.start_sender()
    return request_id


async def _restart_in_flight(stage: Stage) -> RequestId:
    request_id = stage.send()
    await trio.sleep(0.03)  # peers have it, and have not answered
    await _restart(stage)
    return request_id


async def _restart_after_propagated(stage: Stage) -> RequestId:
    heard = trio.Event()
    stage.sender.node.events.add_event_listener("message:propagated", lambda _: heard.set())
    request_id = stage.send()
    await heard.wait()
    await _restart(stage)
    return request_id


async def _restart_before_confirmation(stage: Stage) -> RequestId:
    """The message was propagated, and the store does not answer."""
    stage.waku.world.stall(stage.stores[0].host)
    bad.misbehave(stage.services, bad.lie_and_relay_later(8))
    request_id = stage.send()
    await trio.sleep(5)
    await _restart(stage)
    stage.waku.world.resume(stage.stores[0].host)
    return request_id


async def _restart_after_sent(stage: Stage) -> RequestId:
    request_id = stage.send()
    heard = trio.Event()
    stage.sender.node.events.add_event_listener("message:sent", lambda _: heard.set())
    await heard.wait()
    await _restart(stage)
    return request_id


async def _restart_again_and_again(stage: Stage) -> RequestId:
    request_id = stage.send()
    for pause in (0.0, 0.03, 0.3, 1.0, 3.1):
        await trio.sleep(pause)
        await _restart(stage, after=1)
    return request_id


def _restarts() -> list[Cell]:
    modes: tuple[Mode, ...] = ("edge", "relay")
    return [
        Cell(f"the sender {what}", mode, act, Expect.SENT, records=True)
        for mode in modes
        for what, act in (
            ("is killed right after send", _restart_after_send),
            ("is stopped right after send", _stop_after_send),
            ("is killed with an attempt under way", _restart_in_flight),
            ("is killed once the message is propagated", _restart_after_propagated),
            ("is killed before a confirmation", _restart_before_confirmation),
            ("is killed once the message is sent", _restart_after_sent),
            ("is killed five times", _restart_again_and_again),
        )
    ]


# Stores


async def _store_keeps_nothing(stage: Stage) -> RequestId:
    for actor in stage.stores:
        serve_twisted(actor.host, bad.empty_archive(), lambda request, response: response)
    return stage.send()


async def _one_store_keeps_nothing(stage: Stage) -> RequestId:
    serve_twisted(stage.stores[0].host, bad.empty_archive(), lambda request, response: response)
    return stage.send()


async def _stores_are_down(stage: Stage) -> RequestId:
    for actor in stage.stores:
        actor.crash()
    return stage.send()


async def _stores_answer_garbage(stage: Stage) -> RequestId:
    for actor in stage.stores:
        serve_twisted(actor.host, bad.empty_archive(), lambda request, response: bad.garbage(3))
    return stage.send()


async def _stores_come_late(stage: Stage) -> RequestId:
    hosts = [actor.host for actor in stage.stores]
    for host in hosts:
        stage.waku.world.stall(host)
    request_id = stage.send()
    await trio.sleep(25)
    for host in hosts:
        stage.waku.world.resume(host)
    return request_id


def _stores() -> list[Cell]:
    modes: tuple[Mode, ...] = ("edge", "relay")
    cells: list[Cell] = []
    for mode in modes:
        cells += [
            Cell(
                "one of two stores lacks the message", mode, _one_store_keeps_nothing, Expect.SENT, stores=2
            ),
            Cell("no store has the message", mode, _store_keeps_nothing, Expect.HEARD),
            Cell("the stores are down", mode, _stores_are_down, Expect.HEARD),
            Cell("the stores answer garbage", mode, _stores_answer_garbage, Expect.HEARD),
            Cell("the stores hang for 25 s", mode, _stores_come_late, Expect.HEARD),
        ]
    return cells


# Clocks


def _sender_clock(jump_ns: int) -> Act:
    async def act(stage: Stage) -> RequestId:
        stage.sender.skew_ns = jump_ns
        return stage.send()

    return act


def _sender_clock_later(jump_ns: int) -> Act:
    async def act(stage: Stage) -> RequestId:
        request_id = stage.send()
        await trio.sleep(0.5)
        stage.sender.skew_ns = jump_ns
        return request_id

    return act


def _receiver_clock(jump_ns: int, *, back: bool) -> Act:
    """The subscribers' clocks jump, and maybe back; then they miss a message."""

    async def act(stage: Stage) -> RequestId:
        receivers = [listener.actor for listener in stage.listeners]
        for receiver in receivers:
            receiver.skew_ns = jump_ns
        await stage.part(*receivers, seconds=70)
        await trio.sleep(30)
        if back:
            for receiver in receivers:
                receiver.skew_ns = 0
        stage.nursery.start_soon(partial(stage.part, *receivers, seconds=70))
        await trio.sleep(0.5)
        return stage.send()

    return act


def _clocks() -> list[Cell]:
    modes: tuple[Mode, ...] = ("edge", "relay")
    cells: list[Cell] = []
    for mode in modes:
        for sign, jump in (("+", HOUR_NS), ("-", -HOUR_NS)):
            cells += [
                Cell(f"the sender's clock jumps {sign}1 h", mode, _sender_clock(jump), Expect.HEARD),
                Cell(
                    f"the sender's clock jumps {sign}1 h while it waits for a confirmation",
                    mode,
                    _sender_clock_later(jump),
                    Expect.SENT,
                ),
                Cell(
                    f"the subscribers' clocks jump {sign}1 h and back, and they miss it live",
                    mode,
                    _receiver_clock(jump, back=True),
                    Expect.SENT,
                ),
            ]
        cells.append(
            Cell(
                "the subscribers' clocks are -1 h and they miss it live",
                mode,
                _receiver_clock(-HOUR_NS, back=False),
                Expect.SENT,
            )
        )
    return cells


CELLS: list[Cell] = [*_light_push(), *_relay(), *_partitions(), *_restarts(), *_stores(), *_clocks()]
