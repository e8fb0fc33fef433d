"""The RPC of the relay protocol (11/WAKU2-RELAY on GossipSub 1.0, 1.1 and 1.2)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from pywaku.errors import DecodeError
from pywaku.wire import varint
from pywaku.wire.proto import parse, relay_pb2

PROTOCOL: Final = "/vac/waku/relay/2.0.0"

MAX_SUBSCRIPTIONS: Final = 5_000
MAX_PUBLISHED: Final = 10_000
MAX_MESSAGE_IDS: Final = 10_000
"""Message ids in one RPC: those of all IHAVE, of all IWANT, and of all IDONTWANT, each."""
MAX_CONTROLS: Final = 5_000
"""Control messages of one kind in one RPC."""
MAX_PEERS: Final = 1_000
"""Peers that all PRUNE of one RPC offer."""

_PUBLISH: Final = b"\x12"  # field number and wire type in RPC
_DATA: Final = b"\x12"  # and in Message
_TOPIC: Final = b"\x22"


class Subscription(NamedTuple):
    """The sender joins (`subscribe`) or leaves a topic."""

    subscribe: bool
    topic: str


class RelayMessage(NamedTuple):
    """A published message. `signed`: it has any of from, seqno, signature and key, be it an empty one."""

    topic: str
    data: bytes
    signed: bool


class IHave(NamedTuple):
    """The sender has these messages of a topic."""

    topic: str
    message_ids: tuple[bytes, ...]


class PeerRecord(NamedTuple):
    """A peer that is offered in exchange."""

    peer_id: bytes
    signed_record: bytes


class Prune(NamedTuple):
    """The sender has taken us out of its mesh, offers other peers, and asks not to come back too soon."""

    topic: str
    peers: tuple[PeerRecord, ...] = ()
    backoff_s: int | None = None


@dataclass(frozen=True, slots=True)
class Rpc:
    """All that one RPC says. `iwant` and `idontwant` are the message ids of all such control messages."""

    subscriptions: tuple[Subscription, ...] = ()
    publish: tuple[RelayMessage, ...] = ()
    ihave: tuple[IHave, ...] = ()
    iwant: tuple[bytes, ...] = ()
    graft: tuple[str, ...] = ()
    prune: tuple[Prune, ...] = ()
    idontwant: tuple[bytes, ...] = ()


def encode_publish(topic: str, data: bytes) -> bytes:
    """One message as a part of an RPC: parts put together, and an encoded control RPC, are an RPC.

    `StrictNoSign`: from, seqno, signature and key are absent.
    """
    name = topic.encode()
    before = _DATA + varint.encode(len(data))
    after = _TOPIC + varint.encode(len(name)) + name
    return b"".join((_PUBLISH, varint.encode(len(before) + len(data) + len(after)), before, data, after))


def encode_rpc(rpc: Rpc) -> bytes:
    """The RPC in protobuf. It has messages without signatures only, whatever `signed` says."""
    out = relay_pb2.RPC()
    for subscription in rpc.subscriptions:
        out.subscriptions.add(subscribe=subscription.subscribe, topicid=subscription.topic.encode())
    for message in rpc.publish:
        out.publish.add(topic=message.topic.encode(), data=message.data)
    for ihave in rpc.ihave:
        out.control.ihave.add(topic_id=ihave.topic.encode(), message_ids=ihave.message_ids)
    if rpc.iwant:
        out.control.iwant.add(message_ids=rpc.iwant)
    for topic in rpc.graft:
        out.control.graft.add(topic_id=topic.encode())
    for prune in rpc.prune:
        entry = out.control.prune.add(topic_id=prune.topic.encode(), backoff=prune.backoff_s)
        for peer in prune.peers:
            entry.peers.add(peer_id=peer.peer_id, signed_peer_record=peer.signed_record)
    if rpc.idontwant:
        out.control.idontwant.add(message_ids=rpc.idontwant)
    return out.SerializeToString(deterministic=True)


def decode_rpc(data: bytes) -> Rpc:
    """The RPC in `data`. A topic, data or id that a part of it lacks is an empty one."""
    # The hottest function of a relay node: no generators, and nothing is done for what is not there.
    found = parse(relay_pb2.RPC, data)
    try:
        subscriptions = _subscriptions(found.subscriptions)
        publish = _published(found.publish)
        if not found.HasField("control"):
            return Rpc(subscriptions, publish)
        control = found.control
        return Rpc(
            subscriptions,
            publish,
            _ihave(control.ihave),
            _message_ids(control.iwant),
            _graft(control.graft),
            _prune(control.prune),
            _message_ids(control.idontwant),
        )
    except UnicodeDecodeError:
        raise DecodeError("a topic in an RPC is not UTF-8") from None


def _subscriptions(entries: Collection[relay_pb2.RPC.SubOpts]) -> tuple[Subscription, ...]:
    if not entries:
        return ()
    _limit("subscriptions", len(entries), MAX_SUBSCRIPTIONS)
    return tuple([Subscription(entry.subscribe, entry.topicid.decode()) for entry in entries])


def _published(entries: Collection[relay_pb2.Message]) -> tuple[RelayMessage, ...]:
    if not entries:
        return ()
    _limit("messages", len(entries), MAX_PUBLISHED)
    messages: list[RelayMessage] = []
    name, topic = b"", ""
    for entry in entries:
        if entry.topic != name:  # messages of one topic share its text
            name = entry.topic
            topic = name.decode()
        fields = (topic, entry.data, entry.HasField("signer"))
        # What the constructor does, at half the price.
        messages.append(tuple.__new__(RelayMessage, fields))  # pyright: ignore[reportUnknownMemberType]
    return tuple(messages)


def _ihave(entries: Collection[relay_pb2.ControlIHave]) -> tuple[IHave, ...]:
    if not entries:
        return ()
    _limit("IHAVE", len(entries), MAX_CONTROLS)
    ihave = tuple([IHave(entry.topic_id.decode(), tuple(entry.message_ids)) for entry in entries])
    _limit("message ids", sum([len(entry.message_ids) for entry in ihave]), MAX_MESSAGE_IDS)
    return ihave


def _message_ids(
    entries: Collection[relay_pb2.ControlIWant] | Collection[relay_pb2.ControlIDontWant],
) -> tuple[bytes, ...]:
    if not entries:
        return ()
    _limit("IWANT or IDONTWANT", len(entries), MAX_CONTROLS)
    message_ids = tuple([message_id for entry in entries for message_id in entry.message_ids])
    _limit("message ids", len(message_ids), MAX_MESSAGE_IDS)
    return message_ids


def _graft(entries: Collection[relay_pb2.ControlGraft]) -> tuple[str, ...]:
    if not entries:
        return ()
    _limit("GRAFT", len(entries), MAX_CONTROLS)
    return tuple([entry.topic_id.decode() for entry in entries])


def _prune(entries: Collection[relay_pb2.ControlPrune]) -> tuple[Prune, ...]:
    if not entries:
        return ()
    _limit("PRUNE", len(entries), MAX_CONTROLS)
    _limit("peers", sum([len(entry.peers) for entry in entries]), MAX_PEERS)
    return tuple(
        [
            Prune(
                entry.topic_id.decode(),
                tuple([PeerRecord(peer.peer_id, peer.signed_peer_record) for peer in entry.peers]),
                entry.backoff if entry.HasField("backoff") else None,
            )
            for entry in entries
        ]
    )


def _limit(what: str, count: int, most: int) -> None:
    if count > most:
        raise DecodeError(f"an RPC with {count} {what} has more than {most}")
