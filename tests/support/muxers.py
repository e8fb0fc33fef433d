"""Driving stream multiplexers in tests: what they say, and two of them talking to each other."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import cast

from pywaku.network.libp2p.mplex import Mplex
from pywaku.network.libp2p.muxer import DataReceived, Event, Muxer, MuxerLimits, StreamId
from pywaku.network.libp2p.yamux import Yamux

MuxerType = type[Yamux] | type[Mplex]
MUXERS: tuple[MuxerType, ...] = (Yamux, Mplex)


def pair(kind: MuxerType, limits: MuxerLimits | None = None) -> tuple[Muxer, Muxer]:
    """The two ends of a connection."""
    limits = limits or MuxerLimits()
    return kind(initiator=True, limits=limits), kind(initiator=False, limits=limits)


def seen_by_peer(kind: MuxerType, stream_id: StreamId) -> StreamId:
    """The other side's handle for a stream."""
    return stream_id if kind is Yamux else stream_id ^ 1


def said(muxer: Muxer) -> bytes:
    """What the muxer wants written, in one piece."""
    expected = muxer.queued_bytes
    output = b"".join(muxer.take_output())
    assert len(output) == expected
    assert muxer.queued_bytes == 0
    return output


def pass_on(source: Muxer, target: Muxer) -> list[Event]:
    """Carry all output of one muxer to another."""
    return target.receive(said(source))


def received(events: list[Event], stream_id: StreamId) -> bytes:
    """The bytes of a stream among the events."""
    return b"".join(
        event.data for event in events if isinstance(event, DataReceived) and event.stream_id == stream_id
    )


def held(muxer: Muxer) -> int:
    """How many things a muxer holds on to in all its tables and buffers."""
    parts = cast("Iterable[object]", vars(muxer).values())
    return sum(len(cast("Sized", part)) for part in parts if isinstance(part, dict | list | set | bytes))
