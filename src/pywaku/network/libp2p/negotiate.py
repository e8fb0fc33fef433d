"""Agreeing on a stream's protocol: multistream-select on streams."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pywaku.errors import ProtocolNotSupported, StreamReset
from pywaku.network.libp2p.multistream import Dialer, Listener, lazy_open
from pywaku.network.libp2p.stream import MuxedStream


async def agree_inbound(stream: MuxedStream, supported: Collection[str]) -> str:
    """Answer the peer until it names a supported protocol, which is returned.

    Raises `DecodeError` and `StreamReset`.
    """
    core = Listener(supported, names=sorted(supported))
    if stream.has_data:
        # The proposal came with the stream: the header of our answer leaves with the rest of it.
        core.receive(await stream.receive())
    return await _agree(stream, core)


async def agree_outbound(stream: MuxedStream, protocols: Sequence[str]) -> None:
    """Propose protocols until the peer takes one.

    Raises `ProtocolNotSupported`, `DecodeError` and `StreamReset`.
    """
    stream.protocol = await _agree(stream, Dialer(protocols))


def propose_lazily(stream: MuxedStream, protocol: str) -> None:
    """Let the proposal travel with the first bytes sent; the answer is checked when the first bytes come."""
    stream.protocol = protocol
    stream.negotiate_lazily(Dialer([protocol], opened=True), lazy_open(protocol))


async def _agree(stream: MuxedStream, core: Dialer | Listener) -> str:
    while True:
        output = core.take_output()
        if output:
            stream.queue(output)
        if core.agreed is not None:
            stream.put_back(core.leftover)
            return core.agreed
        if core.refused:
            raise ProtocolNotSupported(f"{stream.peer.short()} speaks none of the protocols asked for")
        data = await stream.receive()
        if not data:
            raise StreamReset("the peer closed the stream before agreeing on a protocol")
        core.receive(data)
